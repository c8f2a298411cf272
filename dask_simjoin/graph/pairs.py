"""Lazy pairs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dask_simjoin.blocks import cut_block, join_block
from dask_simjoin.graph.chunked import chunk_refs
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.private import BlockwiseIO, Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.graph.source import itself
from dask_simjoin.graph.unplanned import Unplanned
from dask_simjoin.plan import Plan


class SelfJoin(Unplanned):
    """Pairs of a frame with itself, before it is planned."""

    _label = "simjoin_self_join"

    _named = True

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(self.plan.outputs, 1) + 1)

    def _lower(self) -> Expr:
        chunks, plan = self._chunks(), self.plan
        return JoinBlocks(chunks, Cuts(chunks, plan), plan, self.operand("spec"), self._meta)


class Cuts(Named):
    """For block pairs that give several partitions: where the rows of the first chunk are cut."""

    _label = "simjoin_cuts"
    _parameters = ["chunks", "plan"]

    @functools.cached_property
    def blocks(self) -> list[int]:
        """The block pairs."""
        plan: Plan = self.operand("plan")
        return [] if plan.even else np.flatnonzero(plan.slices > 1).tolist()

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.blocks) + 1)

    def ref(self, block: int) -> TaskRef:
        """The cuts of one of them."""
        return TaskRef((self._name, int(np.searchsorted(self.blocks, block))))

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        layer = {}
        for n, block in enumerate(self.blocks):
            i, j = plan.blocks[block].tolist()
            key = (self._name, n)
            refs = chunk_refs(self.chunks, i, j)
            layer[key] = Task(key, cut_block, *refs, plan.layout, i == j, int(plan.slices[block]))
        return layer


class JoinBlocks(Named, PartitionsFiltered, BlockwiseIO):
    """The partitions that the block pairs of a plan give."""

    _label = "simjoin_pairs"
    _parameters = ["chunks", "cuts", "plan", "spec", "meta", "columns", "_partitions"]
    _defaults = {"columns": None, "_partitions": None}
    _absorb_projections = True

    @functools.cached_property
    def columns(self) -> list[str]:
        chosen = self.operand("columns")
        return list(self.operand("meta").columns) if chosen is None else list(chosen)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")[self.columns]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(self.operand("plan").outputs, 1) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        plan: Plan = self.operand("plan")
        if not plan.outputs:
            return Task(name, itself, self._meta)
        block, number, parts = plan.output(index)
        i, j = plan.blocks[block].tolist()
        cuts = parts if plan.even or parts == 1 else self.operand("cuts").ref(block)
        slice_ = (cuts, number) if parts > 1 else ()
        return Task(
            name, join_block, *chunk_refs(self.chunks, i, j), self.operand("spec"), plan.layout, i == j,
            self.columns, *slice_,
        )  # fmt: skip
