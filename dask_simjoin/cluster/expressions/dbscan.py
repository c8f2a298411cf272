"""Lazy labels of DBSCAN."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.cluster.algorithms.dbscan import (
    border_labels,
    components_within,
    core_rows,
    edges_across,
    final_labels,
    first_rows,
    label_cores,
    merge_edges,
    number_clusters,
)
from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.aligned import add_counts
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import Chunks, chunk_refs
from dask_simjoin.expressions.dask_private import Expr, Task, TaskRef
from dask_simjoin.expressions.row_values import FoundByChunk
from dask_simjoin.expressions.steps import Steps, blocks_of_chunks
from dask_simjoin.planning.plan import Plan
from dask_simjoin.tasks.chunks import Chunk


class Labels(FoundByChunk):
    """Labels, before they are planned."""

    _label = "simjoin_dbscan"
    _parameters = ["frame", "source", "spec", "min_samples", "meta", "chosen"]

    _known = 40  # a row's name, its count, components and labels

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        return ChunkLabels(chunks, plan, self.operand("spec"), self.operand("min_samples"))


class ChunkLabels(LabelledExpr):
    """Labels of the rows of each chunk.

    Core rows are connected within each chunk, then the chunks' components across each block pair; those
    edges are merged in a tree, clusters numbered by one task, and border rows labelled block by block.
    """

    _label = "simjoin_labels"
    _parameters = ["chunks", "plan", "spec", "min_samples"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_dbscan", self.deterministic_token)
        add, layout = steps.add, plan.layout
        every = range(len(plan.chunks))
        refs = [chunk_refs(self.chunks, c, c)[0] for c in every]
        counts = add_counts(
            steps.layer, self.deterministic_token, self.chunks, plan, self.operand("spec"), set(every)
        )
        samples = self.operand("min_samples")
        within = [add("within", c, _within, refs[c], TaskRef(counts[c]), samples, layout) for c in every]
        blocks = plan.blocks.tolist()
        names = steps.names(plan, refs)
        edges = [
            add("across", b, _across, refs[i], refs[j], within[i], within[j], names[i], names[j], layout)
            for b, (i, j) in enumerate(blocks)
            if i != j
        ]
        firsts = [add("firsts", c, first_rows, within[c], names[c]) for c in every]
        numbering = add("number", 0, number_clusters, steps.merged("merge", merge_edges, edges), *firsts)
        cores = [add("cores", c, label_cores, within[c], names[c], numbering) for c in every]
        low = [
            add("border", b, _border, refs[i], refs[j], cores[i], cores[j], layout, i == j)
            for b, (i, j) in enumerate(blocks)
        ]
        for c, met in enumerate(blocks_of_chunks(plan)):
            sides, parts = [side for _, side, _ in met], (low[b] for b, _, _ in met)
            steps.layer[(self._name, c)] = Task((self._name, c), _final, cores[c], sides, *parts)
        return steps.layer


def _within(chunk: Chunk, counts: Any, min_samples: int, layout: Any) -> Any:
    if not len(chunk["ids"]):  # it may meet no chunk, not even itself
        counts = frames_for(chunk["example"]).xp.zeros(0, np.int64)
    return components_within(chunk, core_rows(counts, min_samples), layout)


def _across(q: Chunk, d: Chunk, q_within: Any, d_within: Any, q_names: Any, d_names: Any, layout: Any) -> Any:
    return edges_across(q, d, (q_within, d_within), (q_names, d_names), layout)


def _border(q: Chunk, d: Chunk, q_labels: Any, d_labels: Any, layout: Any, same: bool) -> Any:
    return border_labels(q, d, (q_labels, d_labels), layout, same)


def _final(labels: Any, sides: list[int], *low: Any) -> Any:
    return final_labels(labels, *(some[side] for side, some in zip(sides, low, strict=True)))
