"""Run the planning passes over a source, and cache their statistics.

Only frames whose rows are held, by Dask or by a cluster, and columns of them: what is read or made anew
each time may be otherwise then.  What is kept goes when the frame goes.
"""

from __future__ import annotations

import math
import sys
import tempfile
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.tokenize import tokenize

from dask_simjoin.engine.ids import row_ids
from dask_simjoin.errors import TABLES, PlanningError, in_table
from dask_simjoin.graph.dask_private import Expr, FromPandas, Projection, Task, TaskRef
from dask_simjoin.graph.records import RUNS, Named
from dask_simjoin.graph.shuffle import held_by_workers
from dask_simjoin.graph.source import FrozenSource, gather, is_held, map_frozen, pick
from dask_simjoin.graph.workers import check_worker_disks, end_without_workers
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import check_nearest
from dask_simjoin.planning.data_warnings import raise_doubts
from dask_simjoin.planning.disk import check_folder
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.outputs import Goal
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.resources import resources, sends_by_worker, shuffle_method
from dask_simjoin.planning.statistics.partition import RIGHT, PartitionSummary, points, summarise
from dask_simjoin.planning.statistics.unique_ids import (
    check_summaries,
    first_repeated,
    key_buckets,
    repeated_id,
    repeated_keys,
    suspected,
)
from dask_simjoin.planning.tables import Tables, tables_of
from dask_simjoin.request.options import current_client
from dask_simjoin.request.spec import JoinSpec, RowSpec

MAX_BYTES = 1 << 26
"""Of all that is kept: what was not asked for the longest goes first."""


@dataclass(eq=False)
class Known:
    """What is known of a table: its partitions' summaries, and whether ids of several were compared."""

    summaries: list[Any]
    unique: bool = False

    @property
    def size(self) -> int:
        """Bytes that it takes, about: samples are most of it."""
        return sum(some.nbytes for some in self.summaries) + 1000 * len(self.summaries)


class KnownTables:
    """Hold what is known of tables, as long as their frames are held."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[Known, weakref.ref[Any]]] = OrderedDict()
        self._lock = threading.RLock()  # the collector may run callbacks of references while it is held

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Forget all tables."""
        with self._lock:
            self._kept.clear()

    def find(self, frame: Expr, what: Hashable, make: Callable[[], list[Any]]) -> Known:
        """Return what is known of a frame in a certain respect; `make`: find it out."""
        held = _held(frame)
        if held is None:
            return Known(make())
        holder, name = held
        key = name, what
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        known = Known(make())
        with self._lock:
            self._kept[key] = known, weakref.ref(holder, lambda _: self._forget(key))
            total = sum(some.size for some, _ in self._kept.values())
            while total > self._most:
                total -= self._kept.popitem(last=False)[1][0].size
        return known

    def _forget(self, key: Hashable) -> None:
        if not sys.is_finalizing():
            with self._lock:
                self._kept.pop(key, None)


KNOWN = KnownTables()


def asked_of(spec: JoinSpec, with_ids: bool, first: int) -> Hashable:
    """Name all that summaries of a table depend on, besides its rows."""
    rows = spec.on, spec.lists, spec.metric, spec.p, spec.dropna
    return *rows, spec.id, str(spec.id_dtype), spec.radius, spec.keep, with_ids, first


def _held(frame: Expr) -> tuple[Any, Hashable] | None:
    """What holds the rows of columns of a frame in memory, and a name of the frame; None: nothing does."""
    while isinstance(frame, Projection):
        frame = frame.frame
    if isinstance(frame, FromPandas):
        # Dask may have moved a choice of columns into it, as another expression that soon goes
        return frame.operand("frame"), frame.substitute_parameters({"columns": None})._name
    if is_held(frame):
        return frame, frame._name
    return None


KEY_BYTES = 16
"""Of each id while its key is sorted."""

Check = Callable[[Tables, Resources], None]
"""Refuses tables that what computes has no room for."""


def plan_for(
    source: FrozenSource,
    spec: JoinSpec,
    goal: Goal,
    other: FrozenSource | None = None,
    run: Named | None = None,
    check: Check | None = None,
) -> Plan:
    """Plan a join of a source with itself, or with `other`, the right table.

    The plan is kept with the source that the join was built on, so a join that is asked for its partitions
    and then computed is planned once.  Dask gives out an equal join as long as it is alive, whose
    divisions it keeps: so that is not planned anew either, and refused if its source changed.

    `run`: what tasks are recorded for; `check`: refuses tables that no chunks can help, before any are made.
    """
    key = plan_key(spec, goal, other)
    made: Plan = planned_once(source, key, lambda: _compute_plan(source, spec, goal, other, check), run)
    return made


def plan_key(spec: Hashable, goal: Goal, other: FrozenSource | None) -> Hashable:
    """Name what tells plans of a source apart."""
    return spec, goal, None if other is None else other.inner._name


def planned_once(source: FrozenSource, key: Hashable, compute: Callable[[], Any], run: Named | None) -> Any:
    """Return the plan that is kept with a source under a key; `compute`: make it."""
    with source.lock:
        if key not in source.plans:
            begin = time.perf_counter()
            try:
                plan = compute()
                if run is not None:
                    plan = replace(plan, run=run.name)
                    RUNS.planned(run, run.report(plan), time.perf_counter() - begin)
                source.plans[key] = plan
            except AttributeError as error:
                # Dask asks expressions for attributes: it would take this for a missing one
                raise PlanningError(
                    f"Planning the join failed, as the source raised AttributeError: {error}"
                ) from error
        return source.plans[key]


def _compute_plan(source: FrozenSource, spec: JoinSpec, goal: Goal, other: FrozenSource | None,
                  check: Check | None) -> Plan:  # fmt: skip
    end_without_workers(current_client())
    tables = [(source, spec, passed_over(source, spec, goal.with_ids))]
    if other is not None:
        tables.append((other, spec.right, passed_over(other, spec.right, goal.with_ids, RIGHT)))
    have = resources(spec.library)
    summaries = [known.summaries for _, _, known in tables]
    size = sum(s.moments.rows * (8 * len(s.moments.lower) + s.id_bytes + s.kept_bytes)
               for some in summaries for s in some)  # fmt: skip
    dtypes = [own.id_dtype for _, own, _ in tables if goal.with_ids]
    dtypes += [table.inner._meta[name].dtype for table, own, _ in tables for name in own.keep]
    shuffle = shuffle_method(spec.settings.shuffle, have, size, max(map(len, summaries)), dtypes)
    if shuffle != "p2p" and sends_by_worker(goal, have, spec.settings.shuffle):
        held = all(held_by_workers(table) is not None for table, _, _ in tables)
        shuffle = BY_WORKER if held else shuffle
    joined = tables_of(summaries, spec)
    if check is not None:
        check(joined, have)
    plan = make_plan(joined, goal, have, shuffle)
    check_disk(plan)
    if goal.with_ids:
        if goal.k is not None and goal.max_total == math.inf:
            check_nearest(plan.rows_found(goal.k), plan.pair_bytes, goal.k, plan.budget)
        for which, table in zip(TABLES if other is not None else [None], tables, strict=True):
            with in_table(which):
                check_ids(*table, plan.budget.chunk)
    raise_doubts(plan.doubts)
    return plan


def check_disk(plan: Plan) -> None:
    """Refuse a plan for which the disk has no room, here or on workers."""
    if plan.chunks.method == "disk":
        check_folder(plan.disk.needed, dask.config.get("temporary-directory", None) or tempfile.gettempdir())
    else:
        check_worker_disks(plan.disk.needed, current_client())


def passed_over(source: FrozenSource, spec: JoinSpec, with_ids: bool, first: int = 0) -> Known:
    """Pass over the partitions of a table, unless their rows are held and were passed over before."""
    partitions = source.inner.npartitions
    each = list(range(first, first + partitions))

    def summaries() -> list[PartitionSummary]:
        expr = map_frozen("simjoin_summary", summarise, source, spec, with_ids, partitions, each=each)
        return gather(dict(expr.__dask_graph__()), expr.__dask_keys__())

    return KNOWN.find(source.inner, asked_of(spec, with_ids, first), summaries)


def check_ids(source: FrozenSource, spec: RowSpec, known: Known, chunk: int) -> None:
    """Refuse ids that repeat; `chunk`: bytes that a task may have of them."""
    ids = [summary.ids for summary in known.summaries if summary.ids is not None]
    meeting = check_summaries(ids, spec.id)
    if meeting and not known.unique:
        size = KEY_BYTES * sum(ids[n].rows for n in meeting)
        _check_across(source, spec, meeting, -(-size // chunk))
    known.unique = True


def _kept_ids(frame: Frame, spec: RowSpec) -> pd.Index:
    kept = points(frame, spec)[1] if isinstance(spec, JoinSpec) and spec.dropna else None
    return row_ids(frame if kept is None else frame[kept], spec.id, spec.id_dtype)


def _kept_keys(frame: Frame, spec: RowSpec, buckets: int) -> list[Array]:
    return key_buckets(_kept_ids(frame, spec), buckets)


def _suspects(frame: Frame, spec: RowSpec, keys: np.ndarray) -> pd.Index:
    return suspected(_kept_ids(frame, spec), keys)


def _repeated(*parts: np.ndarray) -> np.ndarray:
    return repeated_keys(list(parts))


def _check_across(source: FrozenSource, spec: RowSpec, partitions: list[int], buckets: int) -> None:
    """Refuse ids that two of the partitions share.

    Keys of 64 bits meet in buckets, each of which fits a task.  Only ids whose keys repeat, which
    without repeated ids are next to none, are then compared themselves.
    """
    split = map_frozen("simjoin_ids", _kept_keys, source, spec, buckets)
    graph = dict(split.__dask_graph__())
    token = tokenize(split._name, partitions)
    keys = split.__dask_keys__()
    checks = []
    for b in range(buckets):
        parts = [(f"simjoin_ids_bucket-{token}", n, b) for n in partitions]
        for n, part in zip(partitions, parts, strict=True):
            graph[part] = Task(part, pick, TaskRef(keys[n]), b)
        check = (f"simjoin_ids_check-{token}", b)
        graph[check] = Task(check, _repeated, *(TaskRef(part) for part in parts))
        checks.append(check)
    suspects = np.concatenate(gather(graph, checks))
    if len(suspects):
        found = map_frozen("simjoin_ids_repeated", _suspects, source, spec, suspects)
        keys = [found.__dask_keys__()[n] for n in partitions]
        repeated = first_repeated(gather(dict(found.__dask_graph__()), keys))
        if repeated is not None:
            raise repeated_id(repeated[0], spec.id, "in several partitions")
