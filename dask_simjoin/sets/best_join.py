"""Dask expressions of the most similar right rows of each left row.

One task per block pair returns its best rows. Tasks choose the best of these for each
left block, which makes a partition of the result.
"""

from __future__ import annotations

import functools
from typing import Any

from dask_simjoin.graph.base import LabelledExpr, Steps, itself, pick
from dask_simjoin.graph.dask_private import Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.graph.lazy_join import JoinTasks, LazyJoin
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.sets.best import best_of_block, best_rows, merge_best

BEST = OutputSpec(with_ids=True)
"""Tasks visit all pairs, and return at least one row for each row with a match."""


class BestJoin(LazyJoin):
    """The most similar right rows of each left row. The join is not planned yet.

    `other`: the right table, or None for the rows of the same table. `how`: "inner", or
    "left", which adds left rows without a match.
    """

    _parameters = ["source", "other", "spec", "how", "meta"]
    _output = BEST
    _plan_tells_partitions = True

    @property
    def _verb(self) -> str:  # type: ignore[override]
        one = "self_" if self._other is None else ""
        return f"{self.operand('spec').kind}{one}join"

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.plan.counted), 1) + 1)

    def _lower(self) -> Expr:
        how = self.operand("spec"), self.operand("how"), self._meta, self._tasks
        return BestOfBlocks(self._chunks(), self.plan, *how)


class BestOfBlocks(PartitionsFiltered, LabelledExpr):
    """Make a partition of the result for each left block."""

    _label = "simjoin_best"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "how", "meta", "tasks", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.operand("plan").counted), 1) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, meta = (self.operand(name) for name in ("plan", "spec", "meta"))
        tasks: JoinTasks = self.operand("tasks")
        steps = Steps("simjoin_best", self.deterministic_token)
        found: dict[int, list[TaskRef]] = {c: [] for c in self._partitions}
        for b, i, j, part in plan.work.pieces():
            sides = [i] if spec.other is not None or i == j else [i, j]
            if not any(c in found for c in sides):
                continue
            pair = tasks.block_pair(self.chunks, i, j, spec, plan.layout, part)
            how = pair, list(meta.columns)
            both = steps.add("block", (b, part[0]), best_of_block, *how)
            for n, c in enumerate(sides):
                if c in found:
                    found[c].append(steps.add("side", (b, part[0], n), pick, both, n))
        merge = functools.partial(merge_best, spec.best)
        for place, c in enumerate(self._partitions):
            key = (self._name, place)
            if c >= len(plan.counted):  # the left table has no block
                steps.layer[key] = Task(key, itself, meta)
                continue
            some = found[c]
            best = [steps.merged("merge", merge, some, place=(c,))] if some else []
            rows = self.chunks.chunk_ref(c), spec, meta, self.operand("how")
            steps.layer[key] = Task(key, best_rows, *rows, *best)
        return steps.layer
