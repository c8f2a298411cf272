"""Lazy numbers of neighbours and of pairs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dask_simjoin.backends.base import backend_for
from dask_simjoin.blocks import Chunk, count_block, count_block_pairs
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
from dask_simjoin.graph.source import chunk_refs
from dask_simjoin.graph.unplanned import Unplanned
from dask_simjoin.plan import Plan

SUM_FAN_IN = 16
"""Counts of block pairs that one task adds up."""


class NeighborCounts(Unplanned, CumulativeAggregations):
    """Numbers of neighbours, before they are planned; partitions are the source's.

    Like a cumulative sum it has a value for each row and depends on all of them.  Being one, with the
    source in sight as `frame`, Dask knows it to be aligned with the source: no shuffle is needed to
    assign it.  Where Dask's tuning merges partitions of `frame`, those of the counts follow.
    """

    _parameters = ["frame", "source", "spec", "meta"]

    def _divisions(self) -> Any:
        return self.frame.divisions

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_neighbor_counts-{self.deterministic_token}"

    def _simplify_up(self, parent: Any, dependents: Any) -> Expr | None:
        if not isinstance(parent, Partitions):
            return None
        # numbers of partitions are those of the source as it is: they must not be merged any more
        return SomeNeighborCounts(*self.operands[1:], list(parent.partitions))

    def _lower(self) -> Expr:
        counts = CountBlocks(self._chunks(), self.plan, self._meta)
        if self.frame.npartitions == counts.npartitions:
            return counts
        return Repartition(counts, new_partitions=self.frame.npartitions)


class SomeNeighborCounts(PartitionsFiltered, Unplanned):
    """Chosen partitions of `NeighborCounts`."""

    _parameters = ["source", "spec", "meta", "_partitions"]

    def _divisions(self) -> Any:
        return self.operand("source").inner.divisions

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_neighbor_counts-{self.deterministic_token}"

    def _lower(self) -> Expr:
        return CountBlocks(self._chunks(), self.plan, self._meta, self.operand("_partitions"))


class CountBlocks(PartitionsFiltered, Expr):
    """Counts of the block pairs, added up for each chunk in a tree."""

    _parameters = ["chunks", "plan", "meta", "_partitions"]
    _defaults = {"_partitions": None}

    @property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> Any:
        return self.chunks.divisions

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_counts-{self.deterministic_token}"

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        token = self.deterministic_token
        block, partial = f"simjoin_count_block-{token}", f"simjoin_count_sum-{token}"
        chosen = list(self._partitions)
        parts: dict[int, list[Any]] = {n: [] for n in chosen}
        layer: dict[Any, Any] = {}
        for b, (i, j) in enumerate(plan.blocks.tolist()):
            if i not in parts and j not in parts:
                continue
            layer[(block, b)] = Task(
                (block, b), count_block, *chunk_refs(self.chunks, i, j), plan.layout, (i, j), plan.expected(b)
            )
            for n, side in ((i, 0), (j, 1))[: 1 + (i != j)]:
                if n in parts:
                    parts[n].append((TaskRef((block, b)), side))
        for place, n in enumerate(chosen):
            level, depth = parts[n], 0
            while len(level) > SUM_FAN_IN:
                level, lower = [], level
                for s in range(0, len(lower), SUM_FAN_IN):
                    key = (partial, n, depth, s)
                    layer[key] = _sum_task(key, lower[s : s + SUM_FAN_IN])
                    level.append((TaskRef(key), None))
                depth += 1
            total, last = (partial, n), (self._name, place)
            layer[total] = _sum_task(total, level)
            chunk = TaskRef((self.chunks._name, n))
            layer[last] = Task(last, _aligned, chunk, TaskRef(total), self._meta)
        return layer


def _sum_task(key: Any, parts: list[Any]) -> Task:
    return Task(key, _add_up, [which for _, which in parts], *(ref for ref, _ in parts))


def _add_up(sides: list[int | None], *parts: Any) -> Any:
    total: Any = 0
    for side, part in zip(sides, parts, strict=True):
        total = total + (part if side is None else part[side])
    return total


def _aligned(chunk: Chunk, counts: Any, meta: Any) -> Any:
    if len(chunk["ids"]) == 0:
        counts = np.zeros(0, np.int64)
    return backend_for(chunk["example"]).series(counts, chunk["ids"], meta.name)


class CountPairs(Unplanned):
    """Number of pairs, before it is planned."""

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_count_pairs-{self.deterministic_token}"

    def _lower(self) -> Expr:
        return CountTotal(self._chunks(), self.plan, self.operand("spec"), self._meta)


class CountTotal(Expr):
    """Numbers of the block pairs' pairs, added up."""

    _parameters = ["chunks", "plan", "spec", "meta"]

    @property
    def _meta(self) -> Any:
        return self.operand("meta")

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_count-{self.deterministic_token}"

    def _layer(self) -> dict[Any, Any]:
        plan, spec = self.operand("plan"), self.operand("spec")
        name = f"simjoin_count_block-{self.deterministic_token}"
        layer = {}
        for b, (i, j) in enumerate(plan.blocks.tolist()):
            layer[(name, b)] = Task(
                (name, b), count_block_pairs, *chunk_refs(self.chunks, i, j), spec, plan.layout, (i, j),
                plan.expected(b),
            )  # fmt: skip
        key = (self._name, 0)
        layer[key] = Task(key, sum, List(*(TaskRef((name, b)) for b in range(len(plan)))))
        return layer
