"""Make the expressions of lazy distances to nearest neighbours."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import Chunks
from dask_simjoin.expressions.dask_private import Expr, Task
from dask_simjoin.expressions.row_values import FoundByChunk
from dask_simjoin.expressions.searches import add_searches
from dask_simjoin.expressions.steps import Steps
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Array
from dask_simjoin.planning.goal import Goal, nearest_goal
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.report_nearest import NearestReport
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.nearest import State, kth_distance


class KDistances(FoundByChunk):
    """Stand for distances to the k-th neighbours before they are planned."""

    _label = "simjoin_k_distances"
    _parameters = ["frame", "source", "spec", "k", "meta", "chosen"]

    def _report(self, plan: Plan) -> NearestReport:
        return NearestReport(plan, self.operand("spec"), self.operand("k"))

    @property
    def goal(self) -> Goal:
        """The nearest neighbours of each row."""
        return nearest_goal(self.operand("k"))

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        return ChunkDistances(chunks, plan, self.operand("k"), self.operand("spec").measure)


class ChunkDistances(LabelledExpr):
    """Search the distances of the rows of each chunk, as the bits of their numbers.

    The rows of a chunk meet the others that may have neighbours of them one after the other, the nearest
    first, so that ever less is near enough.
    """

    _label = "simjoin_k_distance"
    _makes_result = True
    _parameters = ["chunks", "plan", "k", "metric"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self.operand("plan").chunks) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        steps = Steps("simjoin_nearest", self.deterministic_token)
        refs = [chunk_ref(self.chunks, c) for c in range(len(plan.chunks))]
        numbers = steps.row_numbers(plan, refs)
        for c, others in enumerate(plan.searches):
            if self.operand("k") >= plan.rows:  # no row has so many neighbours
                steps.layer[(self._name, c)] = Task((self._name, c), _none, refs[c])
                continue
            options = plan.layout, self.operand("k"), True, math.inf
            some = others.tolist() or [c]
            how = options, int(plan.parts[c]), plan.threads
            state = add_searches(steps, c, some, self.chunks, numbers, *how)
            steps.layer[(self._name, c)] = Task(
                (self._name, c), _bits, state, self.operand("k"), self.operand("metric")
            )
        return steps.layer


def _bits(state: State, k: int, metric: Metric) -> Array:
    return kth_distance(state, k, metric).view(np.int64)


def _none(chunk: Chunk) -> Array:
    xp = frames_for(chunk["example"]).xp
    return xp.full(len(chunk["ids"]), math.inf).view(np.int64)
