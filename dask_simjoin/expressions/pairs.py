"""Make the expressions of lazy pairs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_simjoin.expressions.aligned import add_counts
from dask_simjoin.expressions.base import LabelledExpr, RowsExpr
from dask_simjoin.expressions.dask_private import Alias, Expr, Task, TaskRef
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.records import Recorded
from dask_simjoin.expressions.source import itself
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.expressions.work import Work, chunk_ref
from dask_simjoin.planning.goal import PAIRS
from dask_simjoin.planning.plan import Plan
from dask_simjoin.tasks.pairs import unmatched


class SelfJoin(LazyJoin):
    """Stand for pairs of a frame with itself before they are planned."""

    _label = "simjoin_self_join"

    _goal = PAIRS
    _plan_tells_partitions = True

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(self.plan.outputs, 1) + 1)

    def _lower(self) -> Expr:
        chunks, plan = self._chunks(), self.plan
        spec, work = self.operand("spec"), self._work
        return JoinBlocks(chunks, Cuts(chunks, plan, spec, work), plan, spec, self._meta, None, work)


class Join(SelfJoin):
    """Stand for pairs of the rows of two tables before they are planned.

    `how`: "inner", or "left": with the left rows that are in no pair, too.
    """

    _label = "simjoin_join"
    _parameters = ["source", "other", "spec", "how", "meta"]

    @property
    def _alone(self) -> int:
        """Count the partitions of left rows that are in no pair."""
        return len(self.plan.counted) if self.operand("how") == LEFT else 0

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(self.plan.outputs + self._alone, 1) + 1)

    def _lower(self) -> Expr:
        chunks, plan, spec, work = self._chunks(), self.plan, self.operand("spec"), self._work
        counts = ChunkCounts(chunks, plan, spec, work) if self._alone else None
        return JoinBlocks(chunks, Cuts(chunks, plan, spec, work), plan, spec, self._meta, counts, work)


LEFT = "left"


class ChunkCounts(LabelledExpr):
    """Count the rows of the other table near each row of the chunks that are counted."""

    _label = "simjoin_counts"
    _parameters = ["chunks", "plan", "spec", "work"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").counted) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        layer: dict[Any, Any] = {}
        every = set(range(len(plan.counted)))
        token = self.deterministic_token
        totals = add_counts(
            layer, token, self.chunks, plan, self.operand("spec"), every, work=self.operand("work")
        )
        for c, key in totals.items():
            layer[(self._name, c)] = Alias((self._name, c), key)
        return layer


class Cuts(LabelledExpr):
    """Cut the rows of the first chunk of block pairs that give several partitions."""

    _label = "simjoin_cuts"
    _parameters = ["chunks", "plan", "spec", "work"]

    @functools.cached_property
    def blocks(self) -> list[int]:
        """List those block pairs."""
        plan: Plan = self.operand("plan")
        return [] if plan.even else np.flatnonzero(plan.slices > 1).tolist()

    @functools.cached_property
    def _number(self) -> dict[int, int]:
        return {block: n for n, block in enumerate(self.blocks)}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.blocks) + 1)

    def ref(self, block: int) -> TaskRef:
        """Refer to the cuts of one of them."""
        return TaskRef((self._name, self._number[block]))

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        work: Work = self.operand("work")
        steps, layer = Steps("simjoin", self.deterministic_token), {}
        for n, block in enumerate(self.blocks):
            i, j = plan.blocks[block].tolist()
            meet = functools.partial(work.meet, self.chunks, i, j, self.operand("spec"), plan.layout)
            key, slices, parts = (self._name, n), int(plan.slices[block]), int(plan.parts[block])
            if parts == 1 or work.weigh is None:
                layer[key] = Task(key, work.cut, meet(), slices)
                continue
            weights = [
                steps.add("weights", (n, part), work.weigh, meet((part, parts))) for part in range(parts)
            ]
            layer[key] = Task(key, work.cut_weighed, plan.layout.grain, slices, *weights)
        return layer | steps.layer


class JoinBlocks(RowsExpr):
    """Make the partitions that the block pairs of a plan give; with `counts` also rows in no pair."""

    _label = "simjoin_pairs"
    _parameters = ["chunks", "cuts", "plan", "spec", "meta", "counts", "work", "columns", "_partitions"]
    _defaults = {"counts": None, "columns": None, "_partitions": None}

    def _divisions(self) -> tuple[None, ...]:
        counts = self.operand("counts")
        alone = 0 if counts is None else counts.npartitions
        return (None,) * (max(self.operand("plan").outputs + alone, 1) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        plan: Plan = self.operand("plan")
        counts = self.operand("counts")
        of = max(plan.outputs + (0 if counts is None else counts.npartitions), 1)

        def recorded(function: Callable[..., Any]) -> Callable[..., Any]:
            return Recorded(function, plan.run, "pairs", index, of) if plan.run else function

        if index >= plan.outputs and counts is not None:
            c = index - plan.outputs
            found = chunk_ref(self.chunks, c), TaskRef((counts._name, c))
            return Task(name, recorded(unmatched), *found, self.operand("spec"), self._meta)
        if not plan.outputs:
            return Task(name, recorded(itself), self._meta)
        like = () if counts is None else (self._meta,)
        block, number, parts = plan.output(index)
        i, j = plan.blocks[block].tolist()
        cuts = parts if plan.even or parts == 1 else self.operand("cuts").ref(block)
        slice_ = (cuts, number) if parts > 1 else (None, 0) if like else ()
        work: Work = self.operand("work")
        meeting = work.meet(self.chunks, i, j, self.operand("spec"), plan.layout, output=(number, parts))
        return Task(name, recorded(work.join), meeting, self.columns, *slice_, *like)
