"""Lazy labels of DBSCAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dask_simjoin.backends.base import backend_for
from dask_simjoin.blocks import tell
from dask_simjoin.chunking import EntityChunks
from dask_simjoin.chunks import Chunk
from dask_simjoin.density.dbscan import (
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
from dask_simjoin.graph.aligned import SUM_FAN_IN, Aligned, SomeAligned, add_counts, add_partitions
from dask_simjoin.graph.cell_counts import back_to_rows, told_by
from dask_simjoin.graph.chunked import chunk_refs
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.private import Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.graph.unplanned import Unplanned
from dask_simjoin.plan import Plan


class Clustered(Unplanned):
    """Labels by row, before they are planned."""

    _halos = False

    def _values(self, partitions: list[int] | None = None) -> Expr:
        plan, source, chunks = self.plan, self.operand("source"), self._chunks()
        labels = ChunkLabels(chunks, plan, self.operand("min_samples"))
        whole = source.inner.divisions
        if isinstance(plan.chunks, EntityChunks):
            return LabelPartitions(labels, chunks, plan.chunks.pieces, self._meta, whole, partitions)
        told = ToldLabels(labels, chunks, *told_by(plan.chunks, source))
        return back_to_rows(told, source, plan.chunks, self._meta, partitions)


class SomeLabels(Clustered, SomeAligned):
    """Chosen partitions of `Labels`."""

    _label = "simjoin_dbscan"
    _parameters = ["source", "spec", "min_samples", "meta", "_partitions"]


class Labels(Clustered, Aligned):
    """Labels, before they are planned."""

    _label = "simjoin_dbscan"
    _parameters = ["frame", "source", "spec", "min_samples", "meta"]
    _some = SomeLabels


class ChunkLabels(Named):
    """Labels of the rows of each chunk.

    Core rows are connected within each chunk, then the chunks' components across each block pair; those
    edges are merged in a tree, clusters numbered by one task, and border rows labelled block by block.
    """

    _label = "simjoin_labels"
    _parameters = ["chunks", "plan", "min_samples"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        layer: dict[Any, Any] = {}

        def add(step: str, place: Any, function: Callable[..., Any], *arguments: Any) -> TaskRef:
            key = (f"simjoin_dbscan_{step}-{self.deterministic_token}", place)
            layer[key] = Task(key, function, *arguments)
            return TaskRef(key)

        every = range(len(plan.chunks))
        spatial = not isinstance(plan.chunks, EntityChunks)
        refs = [chunk_refs(self.chunks, c, c)[0] for c in every]
        counts = add_counts(layer, self.deterministic_token, self.chunks, plan, set(every))
        samples = self.operand("min_samples")
        within = [add("within", c, _within, refs[c], TaskRef(counts[c]), samples, plan.layout) for c in every]
        blocks = plan.blocks.tolist()
        names = [add("names", c, _positions, refs[c]) if spatial else c for c in every]
        edges = [
            add("across", b, _across, refs[i], refs[j], within[i], within[j], names[i], names[j], plan.layout)
            for b, (i, j) in enumerate(blocks)
            if i != j
        ]
        depth = 0
        while len(edges) > 1:
            groups = [edges[s : s + SUM_FAN_IN] for s in range(0, len(edges), SUM_FAN_IN)]
            edges = [add("merge", (depth, n), merge_edges, *group) for n, group in enumerate(groups)]
            depth += 1
        if not edges:
            edges = [add("merge", (0, 0), merge_edges)]
        firsts = [add("firsts", c, first_rows, within[c], names[c]) for c in every]
        numbering = add("number", 0, number_clusters, edges[0], *firsts)
        cores = [add("cores", c, label_cores, within[c], names[c], numbering) for c in every]
        low: list[list[Any]] = [[] for _ in every]
        for b, (i, j) in enumerate(blocks):
            found = add("border", b, _border, refs[i], refs[j], cores[i], cores[j], plan.layout, i == j)
            low[i].append((found, 0))
            if i != j:
                low[j].append((found, 1))
        for c in every:
            sides, parts = [side for _, side in low[c]], (ref for ref, _ in low[c])
            layer[(self._name, c)] = Task((self._name, c), _final, cores[c], sides, *parts)
        return layer


class LabelPartitions(PartitionsFiltered, Named):
    """Labels of entity chunks as the partitions of the source."""

    _label = "simjoin_dbscan_rows"
    _parameters = ["labels", "chunks", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        pieces, chosen = self.operand("pieces"), list(self._partitions)
        layer: dict[Any, Any] = {}
        values = {c: (self.labels._name, c) for c in range(len(pieces))}
        add_partitions(layer, self._name, self.chunks, pieces, values, chosen, self._meta)
        return layer


class ToldLabels(Named):
    """Labels of the rows of regions, as rows that are to be shuffled back to their partitions."""

    _label = "simjoin_dbscan_told"
    _parameters = ["labels", "chunks", "offsets", "meta"]

    def _divisions(self) -> Any:
        return self.labels.divisions

    def _layer(self) -> dict[Any, Any]:
        layer = {}
        for c in range(self.npartitions):
            key = (self._name, c)
            refs = TaskRef((self.chunks._name, c)), TaskRef((self.labels._name, c))
            layer[key] = Task(key, _told, *refs, self.offsets.ref)
        return layer


def _told(chunk: Chunk, labels: Any, offsets: np.ndarray) -> Any:
    return tell(chunk["position"], labels, offsets, backend_for(chunk["example"]))


def _positions(chunk: Chunk) -> Any:
    return chunk["position"]


def _within(chunk: Chunk, counts: Any, min_samples: int, layout: Any) -> Any:
    if not len(chunk["ids"]):  # it may meet no chunk, not even itself
        counts = backend_for(chunk["example"]).xp.zeros(0, np.int64)
    return components_within(chunk, core_rows(counts, min_samples), layout)


def _across(q: Chunk, d: Chunk, q_within: Any, d_within: Any, q_names: Any, d_names: Any, layout: Any) -> Any:
    return edges_across(q, d, (q_within, d_within), (q_names, d_names), layout)


def _border(q: Chunk, d: Chunk, q_labels: Any, d_labels: Any, layout: Any, same: bool) -> Any:
    return border_labels(q, d, (q_labels, d_labels), layout, same)


def _final(labels: Any, sides: list[int], *low: Any) -> Any:
    return final_labels(labels, *(some[side] for side, some in zip(sides, low, strict=True)))
