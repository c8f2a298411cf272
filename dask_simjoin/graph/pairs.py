"""Lazy pairs."""

from __future__ import annotations

import functools
from typing import Any

from dask_simjoin.blocks import join_block
from dask_simjoin.graph.private import BlockwiseIO, Expr, PartitionsFiltered, Task
from dask_simjoin.graph.source import chunk_refs
from dask_simjoin.graph.unplanned import Unplanned
from dask_simjoin.plan import Plan


class SelfJoin(Unplanned):
    """Pairs of a frame with itself, before it is planned."""

    _named = True

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.plan), 1) + 1)

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_self_join-{self.deterministic_token}"

    def _lower(self) -> Expr:
        return JoinBlocks(self._chunks(), self.plan, self.operand("spec"), self._meta)


class JoinBlocks(PartitionsFiltered, BlockwiseIO):
    """One partition for each block pair of the plan."""

    _parameters = ["chunks", "plan", "spec", "meta", "columns", "_partitions"]
    _defaults = {"columns": None, "_partitions": None}
    _absorb_projections = True

    @functools.cached_property
    def columns(self) -> list[str]:
        chosen = self.operand("columns")
        return list(self.operand("meta").columns) if chosen is None else list(chosen)

    @functools.cached_property
    def _meta(self) -> Any:
        return self.operand("meta")[self.columns]

    @functools.cached_property
    def _name(self) -> str:
        return f"simjoin_pairs-{self.deterministic_token}"

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.operand("plan")), 1) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        plan: Plan = self.operand("plan")
        if not len(plan):
            return Task(name, _itself, self._meta)
        i, j = plan.blocks[index].tolist()
        return Task(
            name, join_block, *chunk_refs(self.chunks, i, j), self.operand("spec"), plan.layout, (i, j),
            plan.expected(index), self.columns,
        )  # fmt: skip


def _itself(value: Any) -> Any:
    return value
