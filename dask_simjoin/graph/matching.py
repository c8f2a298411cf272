"""The expression that matches rows of lazy pairs one to one, in one task."""

from __future__ import annotations

from typing import Any

from dask_simjoin.graph.base import LabelledExpr, Steps, after
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.planning.budget import Cause
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.tasks.matching import check_numbers, greedy_of_frames


class GreedyMatches(LabelledExpr):
    """The `RowPairs` of a one-to-one matching.

    `pairs`: lazy pairs, see `greedy_of_frames`. Before the task that needs all of them,
    another task checks their number.
    """

    _label = "simjoin_matching"
    _parameters = ["pairs", "spec", "meta"]

    def _layer(self) -> dict[Any, Any]:
        spec = self.operand("spec")
        steps = Steps(self._label, self.deterministic_token)
        refs = [TaskRef(key) for key in self.pairs.__dask_keys__()]
        numbers = [steps.add("number", n, len, ref) for n, ref in enumerate(refs)]
        free, cause = limits_for(spec.library).room, Cause.of(spec, True)
        checked = steps.add("check", 0, check_numbers, free, cause, *numbers)
        key = (self._name, 0)
        steps.layer[key] = Task(key, after, checked, greedy_of_frames, *refs)
        return steps.layer
