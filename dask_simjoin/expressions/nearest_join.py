"""Make the expressions of lazy joins with nearest neighbours."""

from __future__ import annotations

from typing import Any

from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Expr, PartitionsFiltered, Task
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.searches import add_searches
from dask_simjoin.expressions.source import itself
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.expressions.travelling import travel
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.planning.goal import Goal, nearest_goal
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.report_nearest import NearestReport
from dask_simjoin.tasks.nearest_rows import FoundRows, find_rows, nearest_rows

travel(FoundRows)


class NearestJoin(LazyJoin):
    """Stand for the nearest rows of each row before they are planned.

    `other`: the right table; None: rows are those of one.  `bound`: largest total of a neighbour.
    """

    _label = "simjoin_nearest_join"
    _parameters = ["source", "other", "spec", "k", "bound", "meta"]

    _plan_tells_partitions = True

    def _report(self, plan: Plan) -> NearestReport:
        return NearestReport(plan, self.operand("spec"), self.operand("k"), self.operand("bound"))

    @property
    def goal(self) -> Goal:
        """The nearest neighbours of each row, by their ids."""
        return nearest_goal(self.operand("k"), with_ids=True, max_total=self.operand("bound"))

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.plan.counted), 1) + 1)

    def _lower(self) -> Expr:
        names = "spec", "k", "bound", "meta"
        return NearestRows(self._chunks(), self.plan, *(self.operand(name) for name in names))


class NearestRows(PartitionsFiltered, LabelledExpr):
    """Search the nearest rows of the rows of each chunk.

    The rows of a chunk meet the chunks that may have neighbours of them one after the other, the nearest
    first, so that ever less is near enough; then each of those chunks says which of its rows were found.
    """

    _label = "simjoin_nearest_rows"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "k", "bound", "meta", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.operand("plan").counted), 1) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, meta = self.operand("plan"), self.operand("spec"), self.operand("meta")
        steps = Steps("simjoin_nearest", self.deterministic_token)
        refs = [chunk_ref(self.chunks, c) for c in range(len(plan.chunks))]
        numbers = steps.row_numbers(plan, refs)
        limits = spec.other is None, self.operand("bound")
        for place, c in enumerate(self._partitions):
            key = (self._name, place)
            others = plan.searches[c].tolist() if c < len(plan.counted) else []
            if not others:
                steps.layer[key] = Task(key, itself, meta)
                continue
            options = plan.layout, self.operand("k"), *limits
            how = options, int(plan.parts[c]), plan.threads
            state = [add_searches(steps, c, others, self.chunks, numbers, *how)]
            found = [steps.add("name", (c, d), find_rows, *state, refs[d], numbers[d], spec) for d in others]
            steps.layer[key] = Task(key, nearest_rows, refs[c], *state, spec, meta, *found)
        return steps.layer
