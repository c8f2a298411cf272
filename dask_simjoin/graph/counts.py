"""Lazy numbers of neighbours and of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.backends.base import backend_for
from dask_simjoin.blocks import count_block, count_block_pairs
from dask_simjoin.chunking import EntityChunks
from dask_simjoin.chunks import Chunk, joined
from dask_simjoin.graph.cell_counts import count_by_cell
from dask_simjoin.graph.chunked import chunk_refs
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.private import (
    CumulativeAggregations,
    Expr,
    List,
    Partitions,
    PartitionsFiltered,
    Repartition,
    Task,
    TaskRef,
)
from dask_simjoin.graph.unplanned import Unplanned
from dask_simjoin.plan import Plan

SUM_FAN_IN = 16
"""Counts of block pairs that one task adds up."""


class Counted(Unplanned):
    """Counts by row, before they are planned."""

    def _counts(self, partitions: list[int] | None = None) -> Expr:
        source, plan = self.operand("source"), self.plan
        if isinstance(plan.chunks, EntityChunks):
            whole = source.inner.divisions
            return CountBlocks(self._chunks(), plan, plan.chunks.pieces, self._meta, whole, partitions)
        return count_by_cell(source, self.operand("spec"), self._chunks(), plan, self._meta, partitions)


class NeighborCounts(Counted, CumulativeAggregations):
    """Numbers of neighbours, before they are planned; partitions are the source's.

    Like a cumulative sum it has a value for each row and depends on all of them.  Being one, with the
    source in sight as `frame`, Dask knows it to be aligned with the source: no shuffle is needed to
    assign it.  Where Dask's tuning merges partitions of `frame`, those of the counts follow.
    """

    _label = "simjoin_neighbor_counts"
    _parameters = ["frame", "source", "spec", "meta"]

    def _divisions(self) -> Any:
        return self.frame.divisions

    def _simplify_up(self, parent: Any, dependents: Any) -> Expr | None:
        if not isinstance(parent, Partitions):
            return None
        # numbers of partitions are those of the source as it is: they must not be merged any more
        return SomeNeighborCounts(*self.operands[1:], list(parent.partitions))

    def _lower(self) -> Expr:
        counts = self._counts()
        if self.frame.npartitions == counts.npartitions:
            return counts
        return Repartition(counts, new_partitions=self.frame.npartitions)


class SomeNeighborCounts(PartitionsFiltered, Counted):
    """Chosen partitions of `NeighborCounts`."""

    _label = "simjoin_neighbor_counts"
    _parameters = ["source", "spec", "meta", "_partitions"]

    def _divisions(self) -> Any:
        return self.operand("source").inner.divisions

    def _lower(self) -> Expr:
        return self._counts(self.operand("_partitions"))


class CountBlocks(PartitionsFiltered, Named):
    """Counts of the block pairs of entity chunks, added up for each chunk in a tree."""

    _label = "simjoin_counts"
    _parameters = ["chunks", "plan", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        token = self.deterministic_token
        block, partial = f"simjoin_count_block-{token}", f"simjoin_count_sum-{token}"
        chosen = list(self._partitions)
        pieces: dict[int, list[tuple[int, int]]] = {n: [] for n in chosen}
        for c, chunk in enumerate(self.operand("pieces")):
            for k, (n, _, _) in enumerate(chunk):
                if n in pieces:
                    pieces[n].append((c, k))
        parts: dict[int, list[Any]] = {c: [] for found in pieces.values() for c, _ in found}
        layer: dict[Any, Any] = {}
        for b, (i, j) in enumerate(plan.blocks.tolist()):
            if i not in parts and j not in parts:
                continue
            refs = chunk_refs(self.chunks, i, j)
            layer[(block, b)] = Task((block, b), count_block, *refs, plan.layout, i == j)
            for c, side in ((i, 0), (j, 1))[: 1 + (i != j)]:
                if c in parts:
                    parts[c].append((TaskRef((block, b)), side))
        for c, level in parts.items():
            depth = 0
            while len(level) > SUM_FAN_IN:
                level, lower = [], level
                for s in range(0, len(lower), SUM_FAN_IN):
                    key = (partial, c, depth, s)
                    layer[key] = _sum_task(key, lower[s : s + SUM_FAN_IN])
                    level.append((TaskRef(key), None))
                depth += 1
            layer[(partial, c)] = _sum_task((partial, c), level)
        for place, n in enumerate(chosen):
            last = (self._name, place)
            totals = [TaskRef((partial, c)) for c, _ in pieces[n]]
            indexed = [TaskRef((self.chunks._name, c)) for c, _ in pieces[n]]
            which = [k for _, k in pieces[n]]
            layer[last] = Task(last, _aligned, self._meta, which, *indexed, *totals)
        return layer


def _sum_task(key: Any, parts: list[Any]) -> Task:
    return Task(key, _add_up, [which for _, which in parts], *(ref for ref, _ in parts))


def _add_up(sides: list[int | None], *parts: Any) -> Any:
    total: Any = 0
    for side, part in zip(sides, parts, strict=True):
        total = total + (part if side is None else part[side])
    return total


def _aligned(meta: Any, which: list[int], *chunks_and_totals: Any) -> Any:
    """The counts of one partition: some pieces of chunks, one after the other."""
    half = len(chunks_and_totals) // 2
    chunks: tuple[Chunk, ...] = chunks_and_totals[:half]
    if not chunks:
        return meta
    backend = backend_for(chunks[0]["example"])
    values, ids, xp = [], [], backend.xp
    for k, chunk, total in zip(which, chunks, chunks_and_totals[half:], strict=True):
        stop = int(chunk["ends"][k])
        start = int(chunk["ends"][k - 1]) if k else 0
        ids.append(chunk["ids"][start:stop])
        values.append(total[start:stop] if stop > start else xp.zeros(0, np.int64))
    return backend.series(xp.concatenate(values), joined(ids), meta.name)


class CountPairs(Unplanned):
    """Number of pairs, before it is planned."""

    _label = "simjoin_count_pairs"

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> Expr:
        return CountTotal(self._chunks(), self.plan, self.operand("spec"), self._meta)


class CountTotal(Named):
    """Numbers of the block pairs' pairs, added up."""

    _label = "simjoin_count"
    _parameters = ["chunks", "plan", "spec", "meta"]

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _layer(self) -> dict[Any, Any]:
        plan, spec = self.operand("plan"), self.operand("spec")
        name = f"simjoin_count_block-{self.deterministic_token}"
        layer = {}
        for b, (i, j) in enumerate(plan.blocks.tolist()):
            refs = chunk_refs(self.chunks, i, j)
            layer[(name, b)] = Task((name, b), count_block_pairs, *refs, spec, plan.layout, i == j)
        key = (self._name, 0)
        layer[key] = Task(key, sum, List(*(TaskRef((name, b)) for b in range(len(plan)))))
        return layer
