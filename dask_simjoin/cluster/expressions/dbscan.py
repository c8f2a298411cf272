"""Make the expressions of DBSCAN's lazy labels."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

from dask_simjoin.cluster.algorithms.dbscan import (
    Begun,
    ClusterNumbering,
    CoreStanding,
    begun_clusters,
    border_labels,
    edges_across,
    label_alone,
    label_cores,
    labels_by_place,
    labels_of_rows,
    merge_edges,
    number_clusters,
)
from dask_simjoin.cluster.algorithms.edges import (
    PlaceCounts,
    components_by_place,
    cores_by_place,
    counts_by_place,
    joined_places,
)
from dask_simjoin.graph.base import LabelledExpr, Steps, pick, picked
from dask_simjoin.graph.dask_private import Expr, List, Task, TaskRef
from dask_simjoin.graph.lazy_join import Chunks, block_pair_of, chunk_ref
from dask_simjoin.graph.row_values import FoundByChunk
from dask_simjoin.graph.shuffle import register_tuples
from dask_simjoin.planning.outputs import CLUSTERS
from dask_simjoin.planning.plan import Plan
from dask_simjoin.request.spec import JoinSpec

register_tuples(PlaceCounts, CoreStanding, Begun, ClusterNumbering)

MERGED = 8
"""Lists of edges that one task merges: few, so that merging begins while other tasks find edges."""


class Labels(FoundByChunk):
    """Stand for labels before they are planned."""

    _label = "simjoin_dbscan"
    _parameters = ["frame", "source", "spec", "min_samples", "meta", "chosen"]

    # bytes for the row number, count, components and labels of each row
    _output = replace(CLUSTERS, result_bytes_per_row=40, single_home=True, joins=3)

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        kind = ChunkLabels if len(plan.chunks) > 1 else AloneLabels
        return kind(chunks, plan, self.operand("spec"), self.operand("min_samples"))


class ChunkLabels(LabelledExpr):
    """Label the rows of each chunk; before, rows are identified by places.

    Core rows are connected within each chunk.  Then each block pair finds edges that connect components of
    two chunks, and a tree of tasks merges the edges.  Clusters are numbered from the counts of clusters that
    begin in each chunk.  Last, each block pair labels border rows.
    """

    _label = "simjoin_labels"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "min_samples"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, samples = self.operand("plan"), self.operand("spec"), self.operand("min_samples")
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, every, threads = steps.add, range(len(plan.chunks)), plan.threads
        pieces = pieces_of(self.chunks, plan, spec)
        found: list[list[Task]] = [[] for _ in every]
        for piece in pieces:
            counts = add("count", piece.place, counts_by_place, piece.block_pair, samples)
            for side, c in enumerate(piece.chunks):
                found[c].append(picked(counts, side))
        cores = [add("core", c, cores_by_place, samples, *found[c]) for c in every]
        within, forest = add_components(steps, pieces, plan, spec, cores)
        chunks = [chunk_ref(self.chunks, c) for c in every]
        begun = [
            add("begun", c, begun_clusters, chunks[c], c, threads, cores[c], within[c], forest) for c in every
        ]
        told = [add("firsts", c, pick, some, 1) for c, some in enumerate(begun)]
        numbering = add("number", 0, number_clusters, plan.counted.in_frame_order, *told)
        labels = [
            add("label", c, label_cores, c, cores[c], within[c], picked(begun[c], 0), numbering)
            for c in every
        ]
        low: list[list[Task]] = [[] for _ in every]
        for piece in pieces:
            border = add("border", piece.place, border_labels, piece.block_pair, piece.of(labels))
            for side, c in enumerate(piece.chunks):
                low[c].append(picked(border, side))
        for c in every:
            key = (self._name, c)
            steps.layer[key] = Task(key, labels_of_rows, chunks[c], threads, labels[c], *low[c])
        return steps.layer


class AloneLabels(ChunkLabels):
    """Label the rows of a single chunk, whose places tasks share.

    If one task is enough, it does all steps.
    """

    def _layer(self) -> dict[Any, Any]:
        plan, spec, samples = self.operand("plan"), self.operand("spec"), self.operand("min_samples")
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, chunk = steps.add, chunk_ref(self.chunks, 0)
        pieces, key = pieces_of(self.chunks, plan, spec), (self._name, 0)
        if len(pieces) == 1:
            return {key: Task(key, label_alone, pieces[0].block_pair, samples, plan.threads)}
        counts = [add("count", one.place, counts_by_place, one.block_pair, samples) for one in pieces]
        core = add("core", 0, cores_by_place, samples, *(picked(some, 0) for some in counts))
        within = [add("within", one.place, components_by_place, one.block_pair, core) for one in pieces]
        labels = add("number", 0, labels_by_place, chunk, plan.threads, core, *within)
        low = [add("border", one.place, border_labels, one.block_pair, List(labels)) for one in pieces]
        borders = (picked(some, 0) for some in low)
        steps.layer[key] = Task(key, labels_of_rows, chunk, plan.threads, labels, *borders)
        return steps.layer


class Piece(NamedTuple):
    """Describe a part of the work of a block pair.

    Attributes
    ----------
    place : tuple of int
        The index of the part, unique among all parts.
    chunks : tuple of int
        The numbers of one chunk, or of two.
    block_pair : Task
        The task that makes the block pair.
    """

    place: tuple[int, int]
    chunks: tuple[int, ...]
    block_pair: Task

    def of(self, values: list[TaskRef]) -> List:
        """Return the entries of `values` for the chunks of this part."""
        return List(*(values[c] for c in self.chunks))


def pieces_of(chunks: Expr, plan: Plan, spec: JoinSpec) -> list[Piece]:
    """List the parts of the work; each chunk is compared with itself, even if it has no points."""
    pieces = [
        Piece((b, part[0]), (i,) if i == j else (i, j), block_pair_of(chunks, i, j, spec, plan.layout, part))
        for b, i, j, part in plan.pieces()
    ]
    alone = set(range(len(plan.chunks))) - {piece.chunks[0] for piece in pieces if len(piece.chunks) == 1}
    return pieces + [
        Piece((len(plan) + c, 0), (c,), block_pair_of(chunks, c, c, spec, plan.layout)) for c in sorted(alone)
    ]


def add_components(steps: Steps, pieces: list[Piece], plan: Plan, spec: JoinSpec,
                   cores: list[TaskRef]) -> tuple[list[TaskRef], TaskRef]:  # fmt: skip
    """Connect core rows; return the components within each chunk, and the edges across chunks."""
    add = steps.add
    found: list[list[TaskRef]] = [[] for _ in cores]
    for piece in pieces:
        if len(piece.chunks) == 1:
            (c,) = piece.chunks
            found[c].append(add("within", piece.place, components_by_place, piece.block_pair, cores[c]))
    join = functools.partial(joined_places, spec.library)
    within = [some[0] if len(some) == 1 else add("joined", c, join, *some) for c, some in enumerate(found)]
    edges = [
        add("across", one.place, edges_across, one.block_pair, one.chunks, one.of(cores), one.of(within))
        for one in pieces
        if len(one.chunks) == 2
    ]
    return within, steps.merged("merge", functools.partial(merge_edges, spec.library), edges, MERGED)
