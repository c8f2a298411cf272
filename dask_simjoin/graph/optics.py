"""Lazy results of OPTICS."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.budget import SHARE
from dask_simjoin.checks import check_edges
from dask_simjoin.chunks import Chunk
from dask_simjoin.density.edges import Reachable, Room, Runs, edges_of_block, gather_edges
from dask_simjoin.density.optics import discard, order_rows
from dask_simjoin.graph.aligned import Aligned, SomeAligned
from dask_simjoin.graph.chunked import Chunks, chunk_refs
from dask_simjoin.graph.cluster import resources
from dask_simjoin.graph.forest import ForestRows
from dask_simjoin.graph.found import FoundByChunk, Steps
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.private import Expr, List, Task, TaskRef
from dask_simjoin.graph.source import pick
from dask_simjoin.graph.space import free_space, scratch_directory
from dask_simjoin.plan import Plan

IN_MEMORY = 2**30
"""Bytes of edges that are kept in memory where no limit is known."""

SORTED = 48
"""Bytes of an edge while it is sorted."""

EDGES, FOREST = MODES = ("edges", "forest")


class Ordered(FoundByChunk):
    """Rows in order, before they are planned."""

    @property
    def _known(self) -> int:  # type: ignore[override]
        smallest = 16 * self.operand("min_samples") if self.operand("mode") == FOREST else 0
        return 64 + smallest  # a row's name, degree, distances and results

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        samples = self.operand("min_samples")
        if self.operand("mode") == FOREST:
            return ForestRows(chunks, plan, samples)
        spec = self.operand("spec")
        have = resources(spec.library)
        check_edges(plan.estimate.total_low, plan.rows, self.operand("max_eps"), have, free_space())
        limit = None if have.gpu else have.memory
        together = IN_MEMORY if limit is None else limit // SHARE
        rooms = (plan.budget.chunk // 4, together // max(1, len(plan.chunks)))
        buffer = int(np.clip((limit or IN_MEMORY) // SHARE // SORTED, 1 << 16, 1 << 22))
        return OrderedRows(chunks, plan, samples, self.operand("max_eps"), rooms, buffer)


class SomeOrder(Ordered, SomeAligned):
    """Chosen partitions of `Order`."""

    _label = "simjoin_optics"
    _parameters = ["source", "spec", "max_eps", "min_samples", "mode", "meta", "_partitions"]


class Order(Ordered, Aligned):
    """Rows in order, before they are planned."""

    _label = "simjoin_optics"
    _parameters = ["frame", "source", "spec", "max_eps", "min_samples", "mode", "meta"]
    _some = SomeOrder


class OrderedRows(Named):
    """The result for the rows of each chunk, from all edges.

    Each block pair sorts its edges by row; those of each chunk's rows are gathered, with which its core
    distances are known; and one task visits all rows.

    `rooms`: bytes up to which an array of a block's edges, and one of a chunk's, stays in memory.
    """

    _label = "simjoin_optics_order"
    _parameters = ["chunks", "plan", "min_samples", "max_eps", "rooms", "buffer"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_optics", self.deterministic_token)
        every = range(len(plan.chunks))
        refs = [chunk_refs(self.chunks, c, c)[0] for c in every]
        (block, chunk), buffer = self.operand("rooms"), self.operand("buffer")
        sizes = [steps.add("sizes", c, _size, refs[c]) for c in every]
        firsts = steps.add("nodes", 0, _first_nodes, *sizes)
        runs: list[list[TaskRef]] = [[] for _ in every]
        sides: list[list[tuple[int, int]]] = [[] for _ in every]
        for b, (i, j) in enumerate(plan.blocks.tolist()):
            found = steps.add("edges", b, _edges, refs[i], refs[j], plan.layout, (block, buffer), i == j)
            for c, other, side in ((i, j, 0), (j, i, 1))[: 1 + (i != j)]:
                runs[c].append(found)
                sides[c].append((side, other))
        how = self.operand("max_eps"), self.operand("min_samples"), (chunk, buffer)
        gathered = [
            steps.add("gather", c, _gather, sizes[c], firsts, *how, sides[c], *runs[c]) for c in every
        ]
        names = steps.names(plan, refs)
        order = steps.add("visit", 0, _order, List(*names), List(*gathered))
        for c in every:
            steps.layer[(self._name, c)] = Task((self._name, c), pick, order, c)
        return steps.layer


def _size(chunk: Chunk) -> int:
    return len(chunk["ids"])


def _first_nodes(*sizes: int) -> list[int]:
    firsts: list[int] = np.cumsum([0, *sizes]).tolist()
    return firsts


def _room(most: int, buffer: int) -> Room:
    return Room(scratch_directory(), most, buffer)


def _edges(q: Chunk, d: Chunk, layout: Any, room: tuple[int, int], same: bool) -> Any:
    return edges_of_block(q, d, layout, _room(*room), same)


def _gather(rows: int, firsts: list[int], max_eps: float, min_samples: int, room: tuple[int, int],
            sides: list[tuple[int, int]], *found: tuple[Runs, Runs]) -> Reachable:  # fmt: skip
    parts = [both[side] for both, (side, _) in zip(found, sides, strict=True)]
    nodes = [firsts[other] for _, other in sides]
    return gather_edges(rows, max_eps, min_samples, nodes, _room(*room), *parts)


def _order(names: list[Any], gathered: list[Reachable]) -> list[np.ndarray]:
    found = order_rows(names, gathered)
    discard(gathered)
    return found
