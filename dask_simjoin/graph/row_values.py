"""Expressions that return values of rows, such as neighbor counts, from chunks to the
rows of the source.

If later steps only reduce the values, for example to their maximum, the partitions of
values are merged first. Otherwise Dask would reduce each partition by a separate task.
On a cluster, the maximum of the labels in 320 partitions took half of the time of the
clustering.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import values_of
from dask_simjoin.graph.aligned import (
    Aligned,
    Held,
    add_counts,
    add_partitions,
    found_task,
    pieces_by_partition,
    row_names,
)
from dask_simjoin.graph.base import Call, LabelledExpr, Shared, Steps, pick
from dask_simjoin.graph.chunks import Chunks
from dask_simjoin.graph.dask_private import (
    BlockwiseIO,
    Elemwise,
    Expr,
    PartitionsFiltered,
    ReducedPartition,
    RepartitionToFewer,
    Shuffle,
    Task,
    TaskRef,
    TreeReduce,
    fuse_with_shuffles,
    key_split,
)
from dask_simjoin.graph.lazy_join import LazyJoin, block_pair_of
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.graph.shuffle import partition_tasks, runs_held
from dask_simjoin.graph.source import (
    FrozenSource,
    Listed,
    MapPartition,
    is_held,
    optimise_in_place,
)
from dask_simjoin.metrics.norms import Array, Frame, Ids, Series
from dask_simjoin.planning.entity_chunks import Shuffled, is_shuffled
from dask_simjoin.planning.outputs import ROW_COUNTS
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.sizes import PARTITION
from dask_simjoin.tasks.chunks import Chunk, check_source
from dask_simjoin.tasks.counts import count_cells, scatter, update_columns
from dask_simjoin.tasks.shuffle import (
    CELL,
    POSITION,
    counts_by_partition,
    labelled_counts,
)

Dependents = dict[str, list["weakref.ref[Expr]"]]
"""Name of an expression -> weak references to the expressions that read it."""


class FoundTogether(LabelledExpr):
    """Merge the values of several partitions into one. `held`: the `Held` of each
    merged partition.
    """

    _parameters = ["label", "found", "names", "held", "meta", "source_divisions"]

    def _layer(self) -> dict[Any, Any]:
        names, found, held = self.names._name, self.found._name, self.operand("held")
        keys = [(self._name, n) for n in range(len(held))]
        return {
            key: Task(key, *found_task(names, found, some, self._meta))
            for key, some in zip(keys, held, strict=True)
        }


def read_by_reductions(expr: Expr, dependents: Dependents) -> bool:
    """Return whether all readers of an expression only reduce its values, so that its
    partitions do not matter.
    """
    readers = [
        reader for ref in dependents[expr._name] if (reader := ref()) is not None
    ]
    return bool(readers) and all(_reduces(reader, dependents) for reader in readers)


def _reduces(reader: Expr, dependents: Dependents) -> bool:
    if isinstance(reader, RepartitionToFewer):
        return reader.npartitions == 1
    if len(reader.dependencies()) != 1:
        return False
    if type(reader) is ReducedPartition:
        above = [
            node for ref in dependents[reader._name] if (node := ref()) is not None
        ]
        return bool(above) and all(type(node) is TreeReduce for node in above)
    return isinstance(reader, Elemwise) and read_by_reductions(reader, dependents)


Ranges = list[tuple[int, int]]
"""Ranges (first, last + 1) of partitions."""


def together(rows: Sequence[int]) -> Ranges:
    """Choose ranges (first, last + 1) of partitions to merge. `rows`: number of rows in
    each partition.
    """
    # two, because Dask expects several partitions to reduce
    most = min(PARTITION, -(-sum(rows) // 2))
    found, first, size = [], 0, 0
    for n, own in enumerate(rows):
        if n > first and size + own > most:
            found.append((first, n))
            first, size = n, 0
        size += own
    return [*found, (first, len(rows))] if rows else []


def join_held(
    held: Sequence[Held], groups: Sequence[tuple[int, int]]
) -> tuple[Held, ...]:
    """Return the spans (`Held`) of each merged partition. Adjacent spans of a chunk
    become one span.

    `held`: the spans of each single partition. `groups`: ranges (first, last + 1) of
    partitions to merge.
    """
    found = []
    for first, last in groups:
        spans: list[tuple[int, int, int]] = []
        for c, start, stop in (span for some in held[first:last] for span in some):
            if spans and spans[-1][0] == c and spans[-1][2] == start:
                spans[-1] = c, spans[-1][1], stop
            else:
                spans.append((c, start, stop))
        found.append(tuple(spans))
    return tuple(found)


class FoundByChunk(Aligned, LazyJoin):
    """Lazy values of rows that are computed chunk by chunk. The chunks are not planned
    yet.
    """

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        """Return an expression that makes an array for each chunk, with one or several
        values per row.
        """
        raise NotImplementedError

    def _values(self) -> Expr:
        plan, source, chunks = self.plan, self._source, self._chunks()
        found, meta, chosen = (
            self._found(chunks, plan),
            self._meta,
            self.operand("chosen"),
        )
        own = plan.counted
        if is_shuffled(own):
            updates = RowUpdates(
                f"{self._label}_updates",
                found,
                chunks,
                *updates_of_rows(own, source, meta),
            )
            found_by = key_split(found._name)
            return back_to_rows(updates, ROWS.take(source), own, meta, chosen, found_by)
        whole = source.given.divisions
        return FoundPartitions(
            f"{self._label}_rows",
            found,
            NamesOfRows(chunks),
            own.pieces,
            meta,
            whole,
            chosen,
        )


class MergeablePartitions(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Partitions that are taken from other results, each by one task. Dask may fuse
    this task with the next step.

    On the host, consecutive partitions are merged first if their values are only
    reduced.
    """

    _defaults = {"_partitions": None}

    def _rows(self) -> list[int]:
        """Return the number of rows of each partition."""
        raise NotImplementedError

    def _merged(self, groups: Ranges, divisions: Any) -> Expr:
        """Return the expression with merged partitions. `groups`: ranges of partitions
        to merge.
        """
        raise NotImplementedError

    def _simplify_up(self, parent: Expr, dependents: Dependents) -> Expr | None:
        if frames_for(self._meta).xp is not np or not read_by_reductions(
            self, dependents
        ):
            return None
        rows = self._rows()
        groups = together(rows)
        if not 2 <= len(groups) <= len(rows) // 2:
            return None
        few = self._merged(
            groups,
            (*(self.divisions[first] for first, _ in groups), self.divisions[-1]),
        )
        return type(parent)(
            *(few if operand is self else operand for operand in parent.operands)
        )


class FoundPartitions(MergeablePartitions):
    """Bring values of rows from entity chunks back to the partitions of the source."""

    _parameters = [
        "label",
        "found",
        "names",
        "pieces",
        "meta",
        "source_divisions",
        "_partitions",
    ]

    @functools.cached_property
    def _held(self) -> dict[int, list[tuple[int, int, int]]]:
        return pieces_by_partition(self.operand("pieces"), list(self._partitions))

    def _filtered_task(self, name: Any, index: int) -> Task:
        return Task(
            name,
            *found_task(
                self.names._name, self.found._name, self._held[index], self._meta
            ),
        )

    def _rows(self) -> list[int]:
        pieces = self.operand("pieces")
        return [
            sum(
                stop - start
                for c, k, _ in self._held[n]
                for _, start, stop in (pieces[c][k],)
            )
            for n in self._partitions
        ]

    def _merged(self, groups: Ranges, divisions: Any) -> Expr:
        held = join_held([self._held[n] for n in self._partitions], groups)
        return FoundTogether(
            self.operand("label"), self.found, self.names, held, self._meta, divisions
        )


class NamesOfRows(LabelledExpr):
    """Take only the `RowNames` from chunks, so that workers exchange these instead of
    whole chunks.
    """

    _label = "simjoin_row_names"
    _parameters = ["chunks"]

    def _divisions(self) -> Any:
        return self.chunks.divisions

    def _layer(self) -> dict[Any, Any]:
        keys = [(self._name, c) for c in range(self.npartitions)]
        return {
            key: Task(key, row_names, self.chunks.chunk_ref(key[1])) for key in keys
        }


class RowUpdates(LabelledExpr):
    """Make updates from values of rows in spatial chunks. A shuffle then sends them to
    the partitions of the rows.
    """

    _parameters = ["label", "found", "chunks", "offsets", "meta"]

    def _divisions(self) -> Any:
        return self.found.divisions

    def _layer(self) -> dict[Any, Any]:
        layer = {}
        for c in range(self.npartitions):
            key = (self._name, c)
            refs = TaskRef((self.chunks._name, c)), TaskRef((self.found._name, c))
            layer[key] = Task(key, _scatter, *refs, self.offsets.ref)
        return layer


def _scatter(chunk: Chunk, values: Array, offsets: np.ndarray) -> Frame:
    # a halo that is indexed with its chunk has no values
    position = chunk["position"][: len(values)]
    return scatter(position, values, offsets, frames_for(chunk["example"]))


class BlockValues(PartitionsFiltered, LabelledExpr):
    """Count the matches of each row in blocks by size, and return the counts to the
    partitions of the rows.

    `read`: the rows of each partition, as a dict with the key "ids".  `plan`: a
    `SetPlan`.
    """

    _makes_result = True
    _parameters = [
        "chunks",
        "read",
        "plan",
        "spec",
        "meta",
        "source_divisions",
        "_partitions",
    ]
    _defaults = {"_partitions": None}

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        """For each block, add a task that counts the matches of its rows, in the order
        of the rows' positions.
        """
        raise NotImplementedError

    def _layer(self) -> dict[Any, Any]:
        plan, spec = self.operand("plan"), self.operand("spec")
        read = self.operand("read").inner
        steps = Steps(self._label, self.deterministic_token)
        offsets = [0]
        for rows in plan.tables.sources[0]:
            offsets.append(offsets[-1] + rows)
        splits: list[Call] = [
            (b, counts_by_partition, (self.chunks.chunk_ref(b), values, offsets))
            for b, values in enumerate(self._by_block(steps))
        ]
        threads = limits_for(spec.library).threads if spec.settings.cluster else None
        found = steps.spread("split", "part", splits, self._partitions, threads)
        keys = read.__dask_keys__()
        for place, n in enumerate(self._partitions):
            labels = steps.add("labels", n, pick, TaskRef(keys[n]), "ids")
            key = (self._name, place)
            steps.layer[key] = Task(
                key, labelled_counts, labels, self._meta, *(one[n] for one in found)
            )
        return steps.layer | dict(read.__dask_graph__())


def updates_of_rows(
    chunks: Shuffled, source: FrozenSource, meta: Frame | Series
) -> tuple[Shared, Frame]:
    """Return the offsets of the partitions, and an empty example of the updates.
    `meta`: an example of the result.
    """
    frames = frames_for(meta)
    none = frames.xp.zeros(0 if meta.ndim == 1 else (0, meta.shape[1]), np.int64)
    return Shared("simjoin_offsets", chunks.offsets), scatter(
        none.reshape(-1), none, chunks.offsets, frames
    )


def back_to_rows(
    updates: Expr,
    source: FrozenSource,
    chunks: Shuffled,
    meta: Frame | Series,
    partitions: list[int] | None,
    finding: str | None = None,
) -> Expr:
    """Shuffle updates to the partitions of their rows, and add up the updates of each
    row.

    `finding`: name of the tasks that make the values of each update; None: the updates
    are not made from values.
    """
    number = source.inner.npartitions
    moved = Shuffle(updates, CELL, number, True, chunks.method)
    back = FrozenSource(optimise_in_place(moved))
    whole, offsets = source.simple, Shared("simjoin_offsets", chunks.offsets)
    runs = [(n, n + 1) for n in range(number)]
    if is_held(whole):
        # labels of a range take no memory, so workers send several lists together
        if isinstance(whole._meta.index, pd.RangeIndex):
            runs = runs_held(source)
        labels: Expr = LabelsOfRuns(FrozenSource(whole), Listed(runs), offsets)
    else:
        one = source.inner[[source.inner.columns[0]]]
        labels = MapPartition(one, "simjoin_labels", _labels, (), shared=offsets)
    return RowCounts(
        back,
        (key_split(updates._name), finding),
        FrozenSource(optimise_in_place(labels)),
        Listed(runs),
        chunks.offsets,
        meta,
        source.inner.divisions,
        partitions,
    )


def _labels(frame: Frame, offsets: np.ndarray) -> list[Ids]:
    """Return the labels of the rows, as `labels_of_run`."""
    return labels_of_run(offsets, frame)


class LabelsOfRuns(LabelledExpr):
    """List the labels of the rows of partitions in memory, run by run.

    `frozen`: the partitions. `runs`: for each run, its partitions (first, last + 1).
    """

    _label = "simjoin_labels"
    _parameters = ["frozen", "runs", "offsets"]

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("runs")))

    def _layer(self) -> dict[Any, Any]:
        # partitions are read directly: an alias of each would be another root
        keys, layer = partition_tasks(self.operand("frozen").inner)
        for g, (first, last) in enumerate(self.operand("runs")):
            key, held = (self._name, g), map(TaskRef, keys[first:last])
            layer[key] = Task(key, labels_of_run, self.offsets.ref, *held)
        return layer


def labels_of_run(offsets: np.ndarray, *partitions: Frame) -> list[Ids]:
    """Return the labels of the rows of each partition.

    `offsets`: not used. Dask's time to order tasks grows with the square of the number
    of partitions that need a root of their own. So these tasks depend on a shared value.
    """
    return [partition.index for partition in partitions]


class CountUpdates(LabelledExpr):
    """For each share of the work, make a partition of updates: positions and neighbor
    counts of rows.
    """

    _label = "simjoin_count_block"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "offsets", "meta"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(int(self.operand("plan").work.parts.sum()), 1) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        spec, layer = self.operand("spec"), {}
        for n, (_, i, j, part) in enumerate(plan.work.pieces()):
            key = (self._name, n)
            block_pair = block_pair_of(self.chunks, i, j, spec, plan.layout, part)
            layer[key] = Task(key, count_cells, block_pair, self.offsets.ref)
        return layer


class RowCounts(PartitionsFiltered, LabelledExpr):
    """Add up the updates of each row. The result has the order and the labels of the
    source.

    `updates`: the partitions of updates, as they arrive. `making`: name of the tasks
    that make them, and of those before: see `back_to_rows`. `labels`: for each of `runs`,
    a list with the labels of its partitions.
    """

    _label = "simjoin_counts"
    _parameters = [
        "updates",
        "making",
        "labels",
        "runs",
        "offsets",
        "meta",
        "source_divisions",
        "_partitions",
    ]
    _defaults = {"_partitions": None}

    def _layer(self) -> dict[Any, Any]:
        offsets = self.operand("offsets").tolist()
        runs = enumerate(self.operand("runs"))
        of_run = [
            (g, n - first) for g, (first, last) in runs for n in range(first, last)
        ]
        labels = self.operand("labels").inner
        keys, layer = partition_tasks(labels)
        updates = self.operand("updates").inner
        layer |= updates.__dask_graph__()
        for place, n in enumerate(self._partitions):
            key = (self._name, place)
            (run, own), start = of_run[n], offsets[n]
            refs = TaskRef(keys[run]), TaskRef((updates._name, n))
            rows = n, own, start, offsets[n + 1] - start
            layer[key] = Task(key, add_up, *refs, rows, self._meta)
        sending, finding = self.operand("making")
        return fuse_with_shuffles(layer, sending, self._label, finding)


def add_up(
    labels_of_run: Sequence[Ids],
    updates: Frame,
    rows: tuple[int, int, int, int],
    meta: Frame | Series,
) -> Frame | Series:
    """Add up the updates of the rows in one partition.

    `labels_of_run`: the labels of several partitions. `rows`: the number of the
    partition, its position in the run, the position of its first row in the frame, and
    its number of rows.
    """
    number, own, first, size = rows
    labels = labels_of_run[own]
    check_source(number, len(labels), size)
    frames = frames_for(meta)
    xp = frames.xp
    place = values_of(updates[POSITION]) - first
    values = xp.zeros((size, 1 if meta.ndim == 1 else meta.shape[1]), xp.int64)
    for k, name in enumerate(update_columns(values.shape[1])):
        xp.add.at(values[:, k], place, values_of(updates[name]))
    present = xp.zeros(size, bool)
    present[place] = True
    if not present.all():  # `dropna` removed the rows without updates
        labels, values = labels[present], values[present]
    return frames.rows(values if meta.ndim > 1 else values[:, 0], labels, meta)


class NeighborCounts(Aligned, LazyJoin):
    """Lazy neighbor counts. The join is not planned yet."""

    _label = "simjoin_neighbor_counts"
    _parameters = ["frame", "source", "spec", "meta", "chosen"]
    _output = ROW_COUNTS

    def _values(self) -> Expr:
        source, plan = self._source, self.plan
        chunks, spec, chosen = (
            self._chunks(),
            self.operand("spec"),
            self.operand("chosen"),
        )
        own = plan.counted
        if is_shuffled(own):
            updates = CountUpdates(
                chunks, plan, spec, *updates_of_rows(own, source, self._meta)
            )
            return back_to_rows(updates, source, own, self._meta, chosen)
        return CountBlocks(
            chunks, plan, spec, own.pieces, self._meta, source.inner.divisions, chosen
        )


class MatchCounts(NeighborCounts):
    """Lazy counts of matches in another table. The join is not planned yet."""

    _label = "simjoin_match_counts"
    _verb = "join"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountBlocks(PartitionsFiltered, LabelledExpr):
    """Count neighbors in each block pair of entity chunks, and add up the counts of
    each chunk in a tree of tasks.
    """

    _label = "simjoin_counts"
    _makes_result = True
    _parameters = [
        "chunks",
        "plan",
        "spec",
        "pieces",
        "meta",
        "source_divisions",
        "_partitions",
    ]
    _defaults = {"_partitions": None}

    def _layer(self) -> dict[Any, Any]:
        pieces, chosen = self.operand("pieces"), list(self._partitions)
        wanted = {
            c
            for found in pieces_by_partition(pieces, chosen).values()
            for c, _, _ in found
        }
        layer: dict[Any, Any] = {}
        plan, spec = self.operand("plan"), self.operand("spec")
        totals = add_counts(
            layer, self.deterministic_token, self.chunks, plan, spec, wanted
        )
        add_partitions(
            layer, self._name, self.chunks, pieces, totals, chosen, self._meta
        )
        return layer


class ChunkValues(LabelledExpr):
    """Make values for the rows of chunks, as one partition per chunk: see
    `FoundByChunk`.
    """

    _makes_result = True

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)
