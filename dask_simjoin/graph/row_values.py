"""Bring values found per chunk back to the rows of the source.

Dask reduces each partition by a separate task, and does not fuse tasks in `compute()`.  So the largest label
of 320 partitions on a cluster took two tasks for each partition, and half of the time of a clustering.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.aligned import Aligned, Held, found_task, pieces_by_partition, row_names
from dask_simjoin.graph.base import LabelledExpr
from dask_simjoin.graph.counts import back_to_rows, updates_of_rows
from dask_simjoin.graph.dask_private import (
    BlockwiseIO,
    Elemwise,
    Expr,
    PartitionsFiltered,
    ReducedPartition,
    RepartitionToFewer,
    Task,
    TaskRef,
    TreeReduce,
)
from dask_simjoin.graph.lazy_join import Chunks, LazyJoin, chunk_ref
from dask_simjoin.graph.source import pick
from dask_simjoin.graph.steps import Call, Steps
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.entity_chunks import is_shuffled
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import scatter
from dask_simjoin.tasks.shuffle import counts_by_partition, labelled_counts

ROWS_TOGETHER = 1 << 20
"""Largest number of rows of merged partitions: 16 MB, enough work for a task."""

FEW = 2
"""Smallest number of partitions after merging, because Dask expects to reduce several."""

Dependents = dict[str, list["weakref.ref[Expr]"]]
"""Readers of each expression, by its name."""


class FoundTogether(LabelledExpr):
    """Concatenate the values of several partitions to one.

    `held`: for each merged partition, the spans of chunks' pieces that hold its rows.
    """

    _parameters = ["label", "found", "names", "held", "meta", "divisions_of_each"]

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_rows"

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> Any:
        return self.operand("divisions_of_each")

    def _layer(self) -> dict[Any, Any]:
        names, found, held = self.names._name, self.found._name, self.operand("held")
        keys = [(self._name, n) for n in range(len(held))]
        return {
            key: Task(key, *found_task(names, found, some, self._meta))
            for key, some in zip(keys, held, strict=True)
        }


def read_by_reductions(expr: Expr, dependents: Dependents) -> bool:
    """Return whether all readers of an expression only reduce its values, by any partitions."""
    readers = [reader for ref in dependents[expr._name] if (reader := ref()) is not None]
    return bool(readers) and all(_reduces(reader, dependents) for reader in readers)


def _reduces(reader: Expr, dependents: Dependents) -> bool:
    if isinstance(reader, RepartitionToFewer):
        return reader.npartitions == 1
    if len(reader.dependencies()) != 1:
        return False
    if type(reader) is ReducedPartition:
        above = [node for ref in dependents[reader._name] if (node := ref()) is not None]
        return bool(above) and all(type(node) is TreeReduce for node in above)
    return isinstance(reader, Elemwise) and read_by_reductions(reader, dependents)


def together(rows: Sequence[int]) -> list[tuple[int, int]]:
    """Choose ranges (first, last + 1) of partitions to merge; `rows`: count of rows of each partition."""
    most = min(ROWS_TOGETHER, -(-sum(rows) // FEW))
    found, first, size = [], 0, 0
    for n, own in enumerate(rows):
        if n > first and size + own > most:
            found.append((first, n))
            first, size = n, 0
        size += own
    return [*found, (first, len(rows))] if rows else []


def join_held(held: Sequence[Held], groups: Sequence[tuple[int, int]]) -> tuple[Held, ...]:
    """List the spans of pieces of groups of partitions, with adjacent spans merged."""
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
    """Stand for values of rows that are computed chunk by chunk, before they are planned."""

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        """Make one array for each chunk, with one or several values per row."""
        raise NotImplementedError

    def _values(self) -> Expr:
        plan, source, chunks = self.plan, self._source, self._chunks()
        found, meta, chosen = self._found(chunks, plan), self._meta, self.operand("chosen")
        own = plan.counted
        if is_shuffled(own):
            updates = RowUpdates(self._label, found, chunks, *updates_of_rows(own, source, meta))
            return back_to_rows(updates, source, own, meta, chosen)
        whole = source.inner.divisions
        return FoundPartitions(self._label, found, NamesOfRows(chunks), own.pieces, meta, whole, chosen)


class FoundPartitions(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Cut the values of entity chunks' rows to the partitions of the source.

    Each partition is a task, which Dask may fuse with the next step.  On the host, partitions that are only
    reduced are merged: see `read_by_reductions`.
    """

    _parameters = ["label", "found", "names", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_rows"

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    @functools.cached_property
    def _held(self) -> dict[int, list[tuple[int, int, int]]]:
        return pieces_by_partition(self.operand("pieces"), list(self._partitions))

    def _filtered_task(self, name: Any, index: int) -> Task:
        return Task(name, *found_task(self.names._name, self.found._name, self._held[index], self._meta))

    def _simplify_up(self, parent: Expr, dependents: Dependents) -> Expr | None:
        if frames_for(self._meta).xp is not np or not read_by_reductions(self, dependents):
            return None
        held = [self._held[n] for n in self._partitions]
        pieces = self.operand("pieces")
        rows = [sum(stop - start for c, k, _ in some for _, start, stop in (pieces[c][k],)) for some in held]
        groups = together(rows)
        if not FEW <= len(groups) <= len(held) // FEW:
            return None
        divisions = (*(self.divisions[first] for first, _ in groups), self.divisions[-1])
        few = FoundTogether(
            self.operand("label"), self.found, self.names, join_held(held, groups), self._meta, divisions
        )
        return type(parent)(*(few if operand is self else operand for operand in parent.operands))


class NamesOfRows(LabelledExpr):
    """Take the fields that identify the rows of chunks' pieces, so that workers do not exchange indexes."""

    _label = "simjoin_row_names"
    _parameters = ["chunks"]

    def _divisions(self) -> Any:
        return self.chunks.divisions

    def _layer(self) -> dict[Any, Any]:
        keys = [(self._name, c) for c in range(self.npartitions)]
        return {key: Task(key, row_names, chunk_ref(self.chunks, key[1])) for key in keys}


class RowUpdates(LabelledExpr):
    """Make updates from the values of regions' rows, to be shuffled to the rows' partitions."""

    _parameters = ["label", "found", "chunks", "offsets", "meta"]

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_updates"

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
    return scatter(chunk["position"], values, offsets, frames_for(chunk["example"]))


class BlockValues(PartitionsFiltered, LabelledExpr):
    """Compute a count for each row of each block, and bring the counts back to the partitions of the source.

    `read`: the rows of each partition, with "ids".  `plan`: has the blocks, and `sources` for partitions.
    """

    _makes_result = True
    _parameters = ["chunks", "read", "plan", "spec", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _by_block(self, steps: Steps) -> list[TaskRef]:
        """Add tasks that compute the counts of each block's rows, in the order of their positions."""
        raise NotImplementedError

    def _layer(self) -> dict[Any, Any]:
        plan, spec = self.operand("plan"), self.operand("spec")
        read = self.operand("read").inner
        steps = Steps(self._label, self.deterministic_token)
        offsets = [0]
        for rows in plan.sources[0]:
            offsets.append(offsets[-1] + rows)
        splits: list[Call] = [
            (b, counts_by_partition, (chunk_ref(self.chunks, b), values, offsets))
            for b, values in enumerate(self._by_block(steps))
        ]
        threads = resources_for(spec.library).threads if spec.settings.cluster else None
        found = steps.spread("split", "part", splits, self._partitions, threads)
        keys = read.__dask_keys__()
        for place, n in enumerate(self._partitions):
            labels = steps.add("labels", n, pick, TaskRef(keys[n]), "ids")
            key = (self._name, place)
            steps.layer[key] = Task(key, labelled_counts, labels, self._meta, *(one[n] for one in found))
        return steps.layer | dict(read.__dask_graph__())


class ChunkValues(LabelledExpr):
    """Make values for the rows of each chunk, as one partition per chunk: see `FoundByChunk`."""

    _makes_result = True

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)
