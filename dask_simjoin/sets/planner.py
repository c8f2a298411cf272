"""The steps that plan joins of sets.

They are in a module of their own, so that planning plain frames imports no Dask DataFrames.
"""

from __future__ import annotations

from typing import Any

from dask_simjoin.graph.planner import PlanningSteps
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.sets.plan import SetPlan, SetSummary, make_set_plan, summarise_sets
from dask_simjoin.sets.requests import SetSpec


def _key(spec: SetSpec) -> tuple[Any, ...]:
    """Return the options that statistics of a table's sets depend on."""
    return "sets", spec.on, spec.tokenizer, spec.id, str(spec.id_dtype), spec.keep


def _make(tables: list[list[SetSummary]], sources: list[Any], spec: SetSpec, output: OutputSpec,
          resources: Resources, check: Any) -> SetPlan:  # fmt: skip
    return make_set_plan(tables, spec, output, resources)


SET_STEPS = PlanningSteps("simjoin_set_summary", _key, summarise_sets, _make, names_table=True)
"""Steps for joins of sets."""
