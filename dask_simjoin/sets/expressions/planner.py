"""Run the planning pass over the sets of sources."""

from __future__ import annotations

from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.expressions.known import KNOWN, Known
from dask_simjoin.expressions.planner import check_ids, plan_key, planned_once
from dask_simjoin.expressions.records import Named
from dask_simjoin.expressions.source import FrozenSource, gather, map_frozen
from dask_simjoin.expressions.worker_disks import check_worker_disks
from dask_simjoin.options.settings import current_client
from dask_simjoin.planning.disk import bytes_needed
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.resources import resources
from dask_simjoin.planning.statistics.partition import RIGHT
from dask_simjoin.sets.planning.plan import SetPlan, make_set_plan
from dask_simjoin.sets.planning.summary import SetSummary, summarise_sets
from dask_simjoin.sets.spec import SetSpec


def set_plan_for(
    source: FrozenSource,
    spec: SetSpec,
    goal: Goal,
    other: FrozenSource | None = None,
    run: Named | None = None,
) -> SetPlan:
    """Plan a join of a source's sets with themselves, or with those of `other`; see `plan_for`."""
    key = plan_key(spec, goal, other)
    made: SetPlan = planned_once(source, key, lambda: _compute_plan(source, spec, goal, other), run)
    return made


def _compute_plan(source: FrozenSource, spec: SetSpec, goal: Goal, other: FrozenSource | None) -> SetPlan:
    tables = [(source, spec)] if other is None else [(source, spec), (other, spec.right)]
    names = TABLES if other is not None else (None,)
    known: list[Known] = []
    for which, first, (table, own) in zip(names, (0, RIGHT), tables, strict=False):
        with in_table(which):
            known.append(_known(table, own, goal.with_ids, first))
    have = resources(spec.library)
    plan = make_set_plan([one.summaries for one in known], spec, goal, have)
    # blocks are by size, so that none is whole before all rows are encoded
    check_worker_disks(bytes_needed(float(plan.block_bytes.sum()), 0.0, have), current_client())
    if goal.with_ids:
        for which, one, (table, own) in zip(names, known, tables, strict=True):
            with in_table(which):
                check_ids(table, own, one, plan.budget.chunk)
    return plan


def _known(source: FrozenSource, spec: SetSpec, with_ids: bool, first: int) -> Known:
    """Pass over the partitions of a table, unless their rows are held and were passed over before."""
    partitions = source.inner.npartitions
    each = list(range(partitions))

    def summaries() -> list[SetSummary]:
        expr = map_frozen(
            "simjoin_set_summary", summarise_sets, source, spec, with_ids, partitions, first, each=each
        )
        return gather(dict(expr.__dask_graph__()), expr.__dask_keys__())

    asked = "sets", spec.on, spec.tokenizer, spec.id, str(spec.id_dtype), spec.keep, with_ids, first
    return KNOWN.find(source.inner, asked, summaries)
