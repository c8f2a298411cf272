"""Make the expressions of DBSCAN's lazy labels."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

from dask_simjoin.cluster.algorithms.dbscan import (
    begun_clusters,
    border_labels,
    components_within,
    edges_across,
    final_labels,
    join_components,
    label_cores,
    merge_edges,
    number_clusters,
)
from dask_simjoin.cluster.algorithms.dbscan_alone import (
    border_by_place,
    components_by_place,
    cores_by_place,
    counts_by_place,
    labels_by_place,
    labels_of_rows,
)
from dask_simjoin.expressions.aligned import add_counts
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import Chunks
from dask_simjoin.expressions.dask_private import Expr, List, Task, TaskRef
from dask_simjoin.expressions.row_values import FoundByChunk
from dask_simjoin.expressions.source import picked
from dask_simjoin.expressions.steps import Steps, blocks_of_chunks
from dask_simjoin.expressions.work import chunk_ref, meeting_of
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.goal import CLUSTERS
from dask_simjoin.planning.plan import Plan

MERGED = 4
"""Lists of edges that one task merges: few, so that merging begins while others are found."""


class Labels(FoundByChunk):
    """Stand for labels before they are planned."""

    _label = "simjoin_dbscan"
    _parameters = ["frame", "source", "spec", "min_samples", "meta", "chosen"]

    # a row's name, its count, components and labels
    _goal = replace(CLUSTERS, result_bytes_per_row=40, single_home=True, joins=3)

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        kind = ChunkLabels if len(plan.chunks) > 1 else AloneLabels
        return kind(chunks, plan, self.operand("spec"), self.operand("min_samples"))


class ChunkLabels(LabelledExpr):
    """Label the rows of each chunk.

    Core rows are connected within each chunk, then the chunks' components across each block pair; those
    edges are merged in a tree.  Each chunk counts the clusters that begin in it, which numbers them, and
    border rows are labelled block by block.
    """

    _label = "simjoin_labels"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "min_samples"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, spec = steps.add, self.operand("spec")
        every = range(len(plan.chunks))
        samples = self.operand("min_samples")
        counts = add_counts(
            steps.layer, self.deterministic_token, self.chunks, plan, spec, set(every), samples - 1
        )
        connected = add_components(
            steps, self.chunks, plan, spec, samples, {c: TaskRef(key) for c, key in counts.items()}
        )
        within, numbers, forest, pieces = connected
        begun = [add("begun", c, begun_clusters, within[c], numbers[c], forest) for c in every]
        numbering = add("number", 0, number_clusters, plan.counted.in_frame_order, *begun)
        cores = [add("cores", c, label_cores, within[c], numbers[c], forest, numbering) for c in every]
        low: list[list[TaskRef]] = [[] for _ in range(len(plan))]
        for b, i, j, place, meeting in pieces:
            low[b].append(add("border", place, border_labels, meeting, List(cores[i], cores[j])))
        for c, met in enumerate(blocks_of_chunks(plan)):
            parts = (picked(some, side) for b, side, _ in met for some in low[b])
            steps.layer[(self._name, c)] = Task((self._name, c), final_labels, cores[c], *parts)
        return steps.layer


class AloneLabels(ChunkLabels):
    """Label the rows of the one chunk that there is: tasks share out its places, and nothing is merged."""

    def _layer(self) -> dict[Any, Any]:
        plan, spec, samples = self.operand("plan"), self.operand("spec"), self.operand("min_samples")
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, chunk = steps.add, chunk_ref(self.chunks, 0)
        parts = [part for _, _, _, part in plan.pieces()] or [(0, 1)]  # it may have no points
        meetings = {p[0]: meeting_of(self.chunks, 0, 0, spec, plan.layout, p) for p in parts}
        counts = [add("count", n, counts_by_place, one, samples) for n, one in meetings.items()]
        core = add("core", 0, cores_by_place, samples, *counts)
        within = [add("within", n, components_by_place, one, core) for n, one in meetings.items()]
        labels = add("number", 0, labels_by_place, chunk, plan.threads, core, *within)
        low = [add("border", n, border_by_place, one, labels) for n, one in meetings.items()]
        key = (self._name, 0)
        steps.layer[key] = Task(key, labels_of_rows, chunk, plan.threads, labels, *low)
        return steps.layer


class Connected(NamedTuple):
    """Hold what connects the core rows of all chunks.

    Attributes
    ----------
    within : list of TaskRef
        The components of each chunk.
    numbers : list
        What its rows are numbered by.
    forest : TaskRef
        The edges across chunks.
    pieces : list of tuple
        Block pairs, or parts of them: their number, both chunks, what tells the part, and the meeting.
    """

    within: list[TaskRef]
    numbers: list[int | TaskRef]
    forest: TaskRef
    pieces: list[tuple[int, int, int, tuple[int, int], Task]]


def add_components(steps: Steps, chunks: Expr, plan: Plan, spec: JoinSpec, samples: int,
                   counts: dict[int, TaskRef]) -> Connected:  # fmt: skip
    """Connect core rows within chunks, and across them; `counts`: of neighbours, where there are any."""
    add, every = steps.add, range(len(plan.chunks))
    refs = [chunk_ref(chunks, c) for c in every]
    pieces = [
        (b, i, j, (b, part[0]), meeting_of(chunks, i, j, spec, plan.layout, part))
        for b, i, j, part in plan.pieces()
    ]
    found: list[list[TaskRef]] = [[] for _ in every]
    for _, i, j, place, meeting in pieces:
        if i == j:
            found[i].append(add("within", place, components_within, meeting, counts.get(i, 0), samples))
    for c in every:
        if not found[c]:  # it has no points
            alone = meeting_of(chunks, c, c, spec, plan.layout)
            found[c].append(add("within", (c,), components_within, alone, 0, samples))
    join = functools.partial(join_components, spec.library)
    within = [some[0] if len(some) == 1 else add("joined", c, join, *some) for c, some in enumerate(found)]
    numbers = steps.row_numbers(plan, refs)
    edges = [
        add("across", place, edges_across, meeting, *(List(x[i], x[j]) for x in (within, numbers)))
        for _, i, j, place, meeting in pieces
        if i != j
    ]
    forest = steps.merged("merge", functools.partial(merge_edges, spec.library), edges, MERGED)
    return Connected(within, numbers, forest, pieces)
