"""The steps that plan edit joins.

They are in a module of their own, so that planning plain frames imports no Dask DataFrames.
"""

from __future__ import annotations

from typing import Any

from dask_simjoin.graph.planner import PlanningSteps
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.sets.plan import SetPlan, SetSummary
from dask_simjoin.strings.plan import make_edit_plan, summarise_texts
from dask_simjoin.strings.requests import EditSpec


def _key(spec: EditSpec) -> tuple[Any, ...]:
    """Return the options that statistics of a table's strings depend on."""
    return "strings", spec.on, spec.code, spec.id, str(spec.id_dtype), spec.keep


def _make(tables: list[list[SetSummary]], sources: list[Any], spec: EditSpec, output: OutputSpec,
          resources: Resources, check: Any) -> SetPlan:  # fmt: skip
    return make_edit_plan(tables, spec, output, resources)


EDIT_STEPS = PlanningSteps("simjoin_edit_summary", _key, summarise_texts, _make, names_table=True)
"""Steps for edit joins."""
