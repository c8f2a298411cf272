"""Plan joins of the sets of sources: collect statistics, make the plan, and check ids and disks."""

from __future__ import annotations

import time

from dask_simjoin.errors import TABLES, in_table
from dask_simjoin.graph.planner import (
    STATISTICS,
    TableStatistics,
    check_ids,
    plan_key,
    planning_errors,
    recorded,
)
from dask_simjoin.graph.records import Named
from dask_simjoin.graph.source import FrozenSource, gather, map_frozen
from dask_simjoin.graph.workers import check_worker_disks
from dask_simjoin.planning.disk import bytes_needed
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.planning.statistics.partition import RIGHT
from dask_simjoin.request.options import current_client
from dask_simjoin.sets.plan import SetPlan, make_set_plan
from dask_simjoin.sets.requests import SetSpec
from dask_simjoin.sets.samples import summarise_sets


def set_plan_for(
    source: FrozenSource,
    spec: SetSpec,
    output: OutputSpec,
    other: FrozenSource | None = None,
    run: Named | None = None,
) -> SetPlan:
    """Look up the plan of a join of a source's sets with themselves, or with those of `other`; else make it.

    See `dask_simjoin.graph.planner.plan_for`.
    """
    key = plan_key(spec, output, other)
    with source.lock:
        if key not in source.plans:
            begin = time.perf_counter()
            with planning_errors():
                plan = plan_set_join(source, spec, output, other)
                source.plans[key] = recorded(plan, run, begin)
        made: SetPlan = source.plans[key]
        return made


def plan_set_join(source: FrozenSource, spec: SetSpec, output: OutputSpec,
                  other: FrozenSource | None) -> SetPlan:  # fmt: skip
    """Plan a join of sets: collect statistics of its tables, make the plan, and check ids and disks."""
    tables = [(source, spec)] if other is None else [(source, spec), (other, spec.right)]
    names = TABLES if other is not None else (None,)
    collected: list[TableStatistics] = []
    for name, first, (table, own) in zip(names, (0, RIGHT), tables, strict=False):
        with in_table(name):
            collected.append(collect_sets(table, own, output.with_ids, first))
    resources = resources_for(spec.library)
    plan = make_set_plan([one.summaries for one in collected], spec, output, resources)
    # blocks are by size, so that none is whole before all rows are encoded
    check_worker_disks(bytes_needed(float(plan.block_bytes.sum()), 0.0, resources), current_client())
    if output.with_ids:
        for name, one, (table, own) in zip(names, collected, tables, strict=True):
            with in_table(name):
                check_ids(table, own, one, plan.budget.chunk)
    return plan


def collect_sets(source: FrozenSource, spec: SetSpec, with_ids: bool, first: int) -> TableStatistics:
    """Collect statistics of a table's sets by one pass, or look them up where its rows are held."""
    key = "sets", spec.on, spec.tokenizer, spec.id, str(spec.id_dtype), spec.keep, with_ids, first
    place = STATISTICS.place(source.inner, key)
    found = STATISTICS.find(place)
    if found is None:
        number = source.inner.npartitions
        rest = spec, with_ids, number, first
        expr = map_frozen("simjoin_set_summary", summarise_sets, source, *rest, each=list(range(number)))
        found = TableStatistics(gather(dict(expr.__dask_graph__()), expr.__dask_keys__()))
        STATISTICS.keep(place, found)
    return found
