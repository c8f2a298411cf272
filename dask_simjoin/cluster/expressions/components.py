"""Define the expressions that connect rows to components: DBSCAN and near duplicates."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.catalog import HOME
from dask_simjoin.cluster.algorithms.dbscan import (
    border_labels,
    edges_across,
    label_chunk,
    label_cores,
    labels_by_place,
    labels_of_rows,
    merge_edges,
    number_clusters,
    starting_clusters,
)
from dask_simjoin.cluster.algorithms.duplicates import (
    CONNECTED,
    FIRST,
    LAST,
    best_of_chunk,
    by_priority,
    index_of_kept,
    merge_candidates,
    near_kept,
    pairs_of_block,
    priorities,
    stays_in_chunk,
    stays_of_all,
    stays_of_chunk,
)
from dask_simjoin.cluster.algorithms.edges import (
    components_by_place,
    cores_by_place,
    counts_by_place,
    joined_places,
)
from dask_simjoin.cluster.algorithms.optics import numbers_of_rows
from dask_simjoin.cluster.expressions.halos import (
    FoundByRegion,
    HaloLabels,
    HaloMarks,
    HaloMarksOfAllNear,
    has_halos,
)
from dask_simjoin.engine.base import joiner_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.graph.aligned import add_counts
from dask_simjoin.graph.base import Steps, blocks_of_chunks, pick, picked
from dask_simjoin.graph.chunks import Chunks
from dask_simjoin.graph.dask_private import Expr, List, Task, TaskRef
from dask_simjoin.graph.lazy_join import block_pair_of
from dask_simjoin.graph.row_values import ChunkValues
from dask_simjoin.metrics.norms import Array
from dask_simjoin.planning.data_warnings import naming_causes
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import CLUSTERS, OutputSpec
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.request.messages import about_many, size_text
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import ROW_BYTES
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import Groups


class Labels(FoundByRegion):
    """A lazy Series of DBSCAN labels whose chunks are not planned yet."""

    _label = "simjoin_dbscan"
    _fill = -1
    _parameters = ["frame", "source", "spec", "min_samples", "meta", "chosen"]

    # bytes per row: its row number, neighbor count, component and label
    _output = replace(
        CLUSTERS, result_bytes_per_row=40, single_home=True, joins=3, halo=2
    )

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        kind: type[ChunkValues] = (
            ChunkLabels if len(plan.chunks) > 1 else SingleChunkLabels
        )
        if has_halos(plan):
            kind = HaloLabels
        return kind(chunks, plan, self.operand("spec"), self.operand("min_samples"))


class ChunkLabels(ChunkValues):
    """Label the rows of each chunk. All steps except the last use places: positions of
    rows in the index of a chunk.

    Core rows are connected within each chunk. Then each block pair finds edges that
    connect components of two chunks, and a tree of tasks merges these edges. Each chunk
    counts the clusters that begin in it, so that one task can number all clusters.
    Finally, each block pair labels border rows.
    """

    _label = "simjoin_labels"
    _parameters = ["chunks", "plan", "spec", "min_samples"]

    def _layer(self) -> dict[Any, Any]:
        plan, spec, samples = (
            self.operand("plan"),
            self.operand("spec"),
            self.operand("min_samples"),
        )
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, every, threads = steps.add, range(len(plan.chunks)), plan.indexing.threads
        pieces = pieces_of(self.chunks, plan, spec)
        found: list[list[Task]] = [[] for _ in every]
        for piece in pieces:
            counts = add(
                "count", piece.place, counts_by_place, piece.block_pair, samples
            )
            for side, c in enumerate(piece.chunks):
                found[c].append(picked(counts, side))
        cores = [add("core", c, cores_by_place, samples, *found[c]) for c in every]
        within, forest = add_components(steps, pieces, plan, spec, cores)
        chunks = [self.chunks.chunk_ref(c) for c in every]
        begun = [
            add(
                "begun",
                c,
                starting_clusters,
                chunks[c],
                c,
                threads,
                cores[c],
                within[c],
                forest,
            )
            for c in every
        ]
        summaries = [add("firsts", c, pick, some, 1) for c, some in enumerate(begun)]
        numbering = add(
            "number", 0, number_clusters, plan.counted.in_frame_order, *summaries
        )
        labels = [
            add(
                "label",
                c,
                label_cores,
                c,
                cores[c],
                within[c],
                picked(begun[c], 0),
                numbering,
            )
            for c in every
        ]
        low: list[list[Task]] = [[] for _ in every]
        for piece in pieces:
            border = add(
                "border", piece.place, border_labels, piece.block_pair, piece.of(labels)
            )
            for side, c in enumerate(piece.chunks):
                low[c].append(picked(border, side))
        for c in every:
            key = (self._name, c)
            steps.layer[key] = Task(
                key, labels_of_rows, chunks[c], threads, labels[c], *low[c]
            )
        return steps.layer


class SingleChunkLabels(ChunkLabels):
    """Label the rows of a single chunk: in one task, or in several tasks that share its
    places.
    """

    def _layer(self) -> dict[Any, Any]:
        plan, spec, samples = (
            self.operand("plan"),
            self.operand("spec"),
            self.operand("min_samples"),
        )
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, chunk = steps.add, self.chunks.chunk_ref(0)
        pieces, key = pieces_of(self.chunks, plan, spec), (self._name, 0)
        # in one process, one task uses all threads: they share a forest, which separate
        # tasks could not
        own_threads = not spec.settings.cluster and spec.library == HOME
        if len(pieces) == 1 or own_threads:
            whole = block_pair_of(self.chunks, 0, 0, spec, plan.layout)
            return {key: Task(key, label_chunk, whole, samples, plan.indexing.threads)}
        counts = [
            add("count", one.place, counts_by_place, one.block_pair, samples)
            for one in pieces
        ]
        core = add(
            "core", 0, cores_by_place, samples, *(picked(some, 0) for some in counts)
        )
        within = [
            add("within", one.place, components_by_place, one.block_pair, core)
            for one in pieces
        ]
        labels = add(
            "number", 0, labels_by_place, chunk, plan.indexing.threads, core, *within
        )
        low = [
            add("border", one.place, border_labels, one.block_pair, List(labels))
            for one in pieces
        ]
        borders = (picked(some, 0) for some in low)
        steps.layer[key] = Task(
            key, labels_of_rows, chunk, plan.indexing.threads, labels, *borders
        )
        return steps.layer


class Piece(NamedTuple):
    """One share of the work on a block pair."""

    place: tuple[int, int]  # identifies the share within the run
    chunks: tuple[int, ...]  # number of the chunk, or numbers of the two chunks
    block_pair: Task  # task that makes the block pair for this share

    def of(self, values: Sequence[TaskRef | None]) -> List:
        """From `values`, which has one item per chunk, select the items of this share's
        chunks.
        """
        return List(*(values[c] for c in self.chunks))


def pieces_of(chunks: Expr, plan: Plan, spec: JoinSpec) -> list[Piece]:
    """List the shares of the work. Add a share for each chunk that no block pair
    compares with itself.
    """
    pieces = [
        Piece(
            (b, part[0]),
            (i,) if i == j else (i, j),
            block_pair_of(chunks, i, j, spec, plan.layout, part),
        )
        for b, i, j, part in plan.work.pieces()
    ]
    alone = set(range(len(plan.chunks))) - {
        piece.chunks[0] for piece in pieces if len(piece.chunks) == 1
    }
    return pieces + [
        Piece(
            (len(plan.work) + c, 0),
            (c,),
            block_pair_of(chunks, c, c, spec, plan.layout),
        )
        for c in sorted(alone)
    ]


def add_components(
    steps: Steps,
    pieces: list[Piece],
    plan: Plan,
    spec: JoinSpec,
    cores: Sequence[TaskRef | None],
) -> tuple[list[TaskRef], TaskRef]:
    """Connect core rows. Return the components of each chunk, and a forest of the edges
    between different chunks.

    `cores`: for each chunk, a mask of its core rows; None: all rows are core rows.
    """
    add = steps.add
    found: list[list[TaskRef]] = [[] for _ in cores]
    for piece in pieces:
        if len(piece.chunks) == 1:
            (c,) = piece.chunks
            found[c].append(
                add(
                    "within",
                    piece.place,
                    components_by_place,
                    piece.block_pair,
                    cores[c],
                )
            )
    join = functools.partial(joined_places, spec.library)
    within = [
        some[0] if len(some) == 1 else add("joined", c, join, *some)
        for c, some in enumerate(found)
    ]
    edges = [
        add(
            "across",
            one.place,
            edges_across,
            one.block_pair,
            one.chunks,
            one.of(cores),
            one.of(within),
        )
        for one in pieces
        if len(one.chunks) == 2
    ]
    # 8 lists at a time: merging starts before all are found
    return within, steps.merged(
        "merge", functools.partial(merge_edges, spec.library), edges, 8
    )


class NearDuplicated(FoundByRegion):
    """A lazy Series that marks near duplicates, and whose chunks are not planned yet."""

    _label = "simjoin_near_duplicated"
    _parameters = ["frame", "source", "spec", "keep", "grouping", "meta", "chosen"]
    _output = replace(
        CLUSTERS,
        result_bytes_per_row=48,
        single_home=True,
        joins=2,
        finds_copies=True,
        after_row=70.0,  # to decide a row, measured in 2 dimensions
    )
    _fill = False

    @property
    def output(self) -> OutputSpec:
        # a greedy choice in one chunk depends on the choices in others
        one_stays = self.operand("keep") is not False
        greedy = one_stays and self.operand("grouping") != CONNECTED
        return self._output if greedy else replace(self._output, halo=1)

    @property
    def _groups(self) -> Groups:
        spec = self.operand("spec")
        return (*spec.read_together, spec.keep) if spec.keep else spec.read_together

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        spec, keep = self.operand("spec"), self.operand("keep")
        common = chunks, plan, spec, keep
        if keep is False:
            return (HaloMarksOfAllNear if has_halos(plan) else MarksOfAllNear)(*common)
        if self.operand("grouping") == CONNECTED:
            return (HaloMarks if has_halos(plan) else GroupMarks)(*common)
        if len(plan.chunks) == 1 or (
            keep in (FIRST, LAST) and plan.counted.in_frame_order
        ):
            return MarksInOrder(*common)
        with naming_causes(lambda: plan.tables.warnings):
            check_pairs(plan, keep, spec.request, limits_for(spec.library))
        return MarksInOneTask(*common)


class _Marks(ChunkValues):
    """Mark the rows of each chunk: 1 for rows to drop, 0 for rows to keep."""

    _parameters = ["chunks", "plan", "spec", "keep"]

    def _stays(self, steps: Steps, refs: list[TaskRef]) -> Sequence[TaskRef | Task]:
        """For each chunk, return a task or its argument that makes a mask of the rows to
        keep.
        """
        raise NotImplementedError

    def _layer(self) -> dict[Any, Any]:
        steps = Steps("simjoin_duplicates", self.deterministic_token)
        refs = [
            self.chunks.chunk_ref(c) for c in range(len(self.operand("plan").chunks))
        ]
        for c, stay in enumerate(self._stays(steps, refs)):
            steps.layer[(self._name, c)] = Task((self._name, c), marks, stay)
        return steps.layer


class MarksInOrder(_Marks):
    """Select the rows to keep chunk by chunk, if the chunks are in the order of
    priority.

    A row that is near a kept row of an earlier chunk is dropped.
    """

    _label = "simjoin_duplicates_in_order"

    def _stays(self, steps: Steps, refs: list[TaskRef]) -> list[TaskRef]:
        plan: Plan = self.operand("plan")
        keep, add, layout = self.operand("keep"), steps.add, plan.layout
        order = list(range(len(refs)))[:: -1 if keep == LAST else 1]
        stays = functools.partial(stays_of_chunk, threads=plan.indexing.threads)
        near: list[list[TaskRef]] = [[] for _ in refs]
        found: dict[int, TaskRef] = {}
        for c in order:
            first = None if keep == FIRST else add("order", c, _order, refs[c], keep)
            found[c] = add("stay", c, stays, refs[c], layout, first, *near[c])
            later = [
                d for _, _, d in blocks_of_chunks(plan)[c] if d != c and d not in found
            ]
            if later:
                stand = add("stand", c, index_of_kept, refs[c], layout, found[c])
            for d in later:
                near[d].append(add("near", (c, d), near_kept, stand, refs[d], layout))
        return [found[c] for c in range(len(refs))]


class MarksInOneTask(_Marks):
    """Select the rows to keep in one task that receives all pairs.

    This is needed if chunks are not in the order of priority.
    """

    _label = "simjoin_duplicates_together"

    def _stays(self, steps: Steps, refs: list[TaskRef]) -> list[TaskRef]:
        plan: Plan = self.operand("plan")
        spec, keep, add = self.operand("spec"), self.operand("keep"), steps.add
        own = steps.row_numbers(plan, refs)
        numbers = [
            add("rows", c, numbers_of_rows, ref, own[c]) for c, ref in enumerate(refs)
        ]
        keys = [
            add("keys", c, _host_keys, ref, keep, own[c]) for c, ref in enumerate(refs)
        ]
        pairs = [
            add(
                "pairs",
                (b, part[0]),
                pairs_of_block,
                block_pair_of(self.chunks, i, j, spec, plan.layout, part),
                List(own[i], own[j]),
            )
            for b, i, j, part in plan.work.pieces()
        ]
        whole = add(
            "choose", 0, stays_of_all, spec.library, List(*numbers), List(*keys), *pairs
        )
        return [add("stay", c, pick, whole, c) for c in range(len(refs))]


class GroupMarks(_Marks):
    """For each connected component, select one row to keep."""

    _label = "simjoin_duplicates_of_groups"

    def _stays(self, steps: Steps, refs: list[TaskRef]) -> list[Task]:
        plan: Plan = self.operand("plan")
        spec, keep, add = self.operand("spec"), self.operand("keep"), steps.add
        own = steps.row_numbers(plan, refs)
        pieces, every = pieces_of(self.chunks, plan, spec), [None] * len(refs)
        within, forest = add_components(steps, pieces, plan, spec, every)
        best = [
            add("best", c, best_of_chunk, ref, c, keep, own[c], within[c], forest)
            for c, ref in enumerate(refs)
        ]
        candidates = [
            add("candidates", c, pick, some, 2) for c, some in enumerate(best)
        ]
        winners = steps.merged("winners", merge_candidates, candidates)
        return [
            Task(None, stays_in_chunk, ref, best[c], winners)
            for c, ref in enumerate(refs)
        ]


class MarksOfAllNear(ChunkValues):
    """Mark the rows of each chunk: 1 for rows that are near another row, 0 for the
    others.
    """

    _label = "simjoin_duplicates_all"
    _parameters = ["chunks", "plan", "spec", "keep"]

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        layer: dict[Any, Any] = {}
        every = set(range(len(plan.chunks)))
        spec = self.operand("spec")
        counts = add_counts(
            layer, self.deterministic_token, self.chunks, plan, spec, every, 1
        )
        for c in every:
            key = (self._name, c)
            layer[key] = Task(
                key, _some_near, self.chunks.chunk_ref(c), TaskRef(counts[c])
            )
        return layer


def check_pairs(plan: Plan, keep: object, distance: str, limits: Limits) -> None:
    """Raise an error if the pairs of all chunks do not fit in the memory of one task."""
    pairs = plan.result.estimate.total_low
    # the task that selects rows of all chunks takes 80 bytes per row
    need = int(pairs * ROW_BYTES + plan.rows * 80)
    free = limits.room
    if free is not None and need > free:
        raise BudgetError(
            f"With keep={keep!r} and several chunks, one task needs all pairs. "
            f"{distance} gives "
            f"an estimated {about_many(pairs)} pairs or more. They take "
            f"{size_text(need, free)}, and the "
            f"task has {size_text(free)}. Use grouping='connected', or a smaller "
            "distance. Or sort the rows by the column, and use keep='first' and "
            "partitioning='entity'.",
            remedies=[Remedy({"grouping": CONNECTED})],
        )


def marks(stay: Array) -> Array:
    """Return a mark for each row (n,), int64: 0 for the rows that the mask `stay`
    keeps, else 1.
    """
    return (~stay).astype(np.int64)


def _order(chunk: Chunk, keep: object) -> Array:
    return by_priority(priorities(chunk, keep, 0))


def _host_keys(chunk: Chunk, keep: object, own: Any) -> np.ndarray:
    return to_host(priorities(chunk, keep, own))


def _some_near(chunk: Chunk, counts: Array | int) -> Array:
    return joiner_for(chunk["example"]).xp.zeros(len(chunk["ids"]), np.int64) + (
        counts > 0
    )
