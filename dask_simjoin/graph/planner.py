"""Plan joins in steps: collect statistics of the tables, make the plan, check ids and
disks.

`plan_for` looks up a plan, and calls `plan_join` if there is none. Rows of a frame may
be in memory, in this process or on a cluster. Then their statistics are kept as long as
the frame exists. Otherwise the rows may change between joins, so each join collects
statistics anew.
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
from dataclasses import dataclass, field, replace
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.tokenize import tokenize

from dask_simjoin.catalog import HOME
from dask_simjoin.engine.base import pooled
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.native import native
from dask_simjoin.engine.process import forkable
from dask_simjoin.errors import PlanningError, in_table
from dask_simjoin.graph.base import pick
from dask_simjoin.graph.dask_private import Expr, FromPandas, Projection, Task, TaskRef
from dask_simjoin.graph.records import RUNS, Named
from dask_simjoin.graph.row_cache import ROWS, PassedRows
from dask_simjoin.graph.shuffle import held_by_workers
from dask_simjoin.graph.small_frames import is_read_by_chunk, small_frame
from dask_simjoin.graph.source import (
    FrozenSource,
    Given,
    gather,
    is_held,
    map_frozen,
    may_move,
)
from dask_simjoin.graph.worker_disks import check_worker_disks
from dask_simjoin.graph.workers import end_without_workers
from dask_simjoin.metrics.norms import Array, Frame
from dask_simjoin.planning.checks import check_nearest
from dask_simjoin.planning.data_warnings import raise_warnings
from dask_simjoin.planning.entity_chunks import BY_WORKER
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.partition import RIGHT, points, summarise, summarise_parts
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.resources import (
    check_folder,
    limits_for,
    may_send,
    shuffle_method,
)
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.planning.unique_ids import (
    check_summaries,
    check_suspects,
    key_buckets,
    repeated_keys,
    suspected,
)
from dask_simjoin.request.options import current_client
from dask_simjoin.request.spec import JoinSpec, RowSpec
from dask_simjoin.sizes import ENTRY_BYTES, READ_BYTES, SPARE_BYTES


@dataclass(eq=False)
class TableStatistics:
    """The summaries of a table's partitions; `unique`: whether the ids have been
    checked and are unique.
    """

    summaries: list[Any]
    unique: bool = False
    size: int = field(init=False)  # estimated bytes, most of them in samples of rows

    def __post_init__(self) -> None:
        self.size = sum(some.nbytes for some in self.summaries) + 1000 * len(
            self.summaries
        )


Place = tuple[Any, Hashable]
"""The object in memory that holds a frame's rows, and the key of their statistics in
the cache.
"""


class StatisticsCache:
    """Keeps statistics of tables as long as their frames exist."""

    def __init__(self, most: int = SPARE_BYTES) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, tuple[TableStatistics, weakref.ref[Any]]] = (
            OrderedDict()
        )
        # reentrant, because garbage collection may call `_forget` while this thread
        # holds the lock
        self._lock = forkable(threading.RLock())

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        """Drop the statistics of all tables."""
        with self._lock:
            self._kept.clear()

    def place(self, frame: Expr, key: Hashable) -> Place | None:
        """Return where the statistics of a frame are kept; None if the frame's rows are
        not in memory.
        """
        while isinstance(frame, Projection):
            frame = frame.frame
        if isinstance(frame, FromPandas):
            # Dask may move a projection into `FromPandas`, which gives a new expression
            # that soon disappears. So statistics are kept as long as the pandas frame,
            # under the name of the expression with all columns.
            whole = frame.operand("columns") is None
            name = (
                frame if whole else frame.substitute_parameters({"columns": None})
            )._name
            return frame.operand("frame"), (name, key)
        return (frame, (frame._name, key)) if is_held(frame) else None

    def find(self, place: Place | None) -> TableStatistics | None:
        """Return the statistics that are kept at `place`; None if there are none."""
        if place is None:
            return None
        _, key = place
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, place: Place | None, statistics: TableStatistics) -> None:
        """Keep statistics until their frame is deleted, or until newer statistics need
        the memory.
        """
        if place is None:
            return
        holder, key = place
        with self._lock:
            self._kept[key] = (
                statistics,
                weakref.ref(holder, lambda _: self._forget(key)),
            )
            total = sum(some.size for some, _ in self._kept.values())
            while total > self._most:
                total -= self._kept.popitem(last=False)[1][0].size

    def _forget(self, key: Hashable) -> None:
        if not sys.is_finalizing():
            with self._lock:
                self._kept.pop(key, None)


STATISTICS = StatisticsCache()

Check = Callable[[JoinStatistics, Limits], None]
"""A function that raises an error if tables are too large for the limits."""


@dataclass(frozen=True)
class PlanningSteps:
    """The functions that plan one kind of joins, such as joins by distance."""

    label: str  # name of the tasks that summarize the partitions
    # returns the options of a spec that a table's statistics depend on; statistics are
    # kept under them
    key: Callable[[Any], tuple[Hashable, ...]]
    # Summarizes a partition: ``summarize(frame, number, spec, with_ids, partitions)``.
    # The partitions of a right table have numbers from `RIGHT` on.
    summarize: Callable[..., Any]
    # Makes the plan: ``make(summaries, sources, spec, output, limits, check)``.
    # `summaries` and `sources` have an item for each table.
    make: Callable[..., Any]
    # whether errors in `summarize` name the wrong table, left or right
    names_table: bool = False
    # tables up to this many bytes are summarized in this thread, because starting tasks
    # would take longer
    max_here: int = 1 << 20
    # summarizes all partitions of one frame: ``summarize_parts(frame, bounds, first,
    # spec, with_ids)``; None: `summarize` is called for each partition instead
    summarize_parts: Callable[..., list[Any]] | None = None


def _distance_key(spec: JoinSpec) -> tuple[Hashable, ...]:
    return (
        spec.on,
        spec.coordinates.lists,
        spec.coordinates.gates,
        spec.coordinates.box,
        spec.metric,
        spec.coordinates.dropna,
        spec.id,
        str(spec.id_dtype),
        spec.radius,
        spec.keep,
    )


def _plan_distances(
    summaries: list[list[Any]],
    sources: list[FrozenSource],
    spec: JoinSpec,
    output: OutputSpec,
    limits: Limits,
    check: Check | None,
) -> Plan:
    statistics = join_statistics(summaries, spec)
    if check is not None:
        check(statistics, limits)
    plan = make_plan(
        statistics,
        output,
        replace(limits, shuffle=choose_shuffle(statistics, output, limits, sources)),
    )
    tables = zip(
        sources,
        [spec] if len(sources) == 1 else [spec, spec.right],
        plan.chunks.sides,
        strict=True,
    )
    read_apart = not all(is_read_by_chunk(*table, plan.work.copies) for table in tables)
    return replace(plan, indexing=replace(plan.indexing, read_apart=read_apart))


DISTANCE_STEPS = PlanningSteps(
    "simjoin_summary",
    _distance_key,
    summarise,
    _plan_distances,
    max_here=READ_BYTES,
    summarize_parts=summarise_parts,
)
"""Planning of joins of points by distance."""


def plan_for(
    source: FrozenSource,
    spec: RowSpec,
    output: OutputSpec,
    other: FrozenSource | None = None,
    run: Callable[[], Named] | None = None,
    check: Check | None = None,
    steps: PlanningSteps = DISTANCE_STEPS,
) -> Any:
    """Return the plan of joining a source with itself, or with the right table `other`.
    If there is no plan yet, make it.

    The source keeps the plan, so a join is planned only once, for its number of
    partitions and for its tasks. Equal joins get the same plan, because Dask also
    reuses the expression and the divisions of an equal join. If the source changes
    after planning, the tasks fail.

    `run`: returns the run that tasks are recorded for. `check`: raises an error if
    tables are too large, however they are divided.
    """
    key = plan_key(spec, output, other)
    with source.lock:
        if key not in source.plans:
            begin = time.perf_counter()
            try:
                with pooled(spec.library):
                    plan = plan_join(source, spec, output, other, check, steps)
                if run is not None:
                    named = run()
                    plan = replace(plan, run=named.name)
                    RUNS.planned(named, named.report(plan), time.perf_counter() - begin)
            # Dask would conclude from an AttributeError that the expression has no such
            # attribute
            except AttributeError as error:
                raise PlanningError(
                    "Planning the join failed, because the source raised "
                    f"AttributeError: {error}"
                ) from error
            source.plans[key] = plan
        return source.plans[key]


def plan_join(
    source: FrozenSource,
    spec: RowSpec,
    output: OutputSpec,
    other: FrozenSource | None,
    check: Check | None = None,
    steps: PlanningSteps = DISTANCE_STEPS,
) -> Any:
    """Plan a join: collect statistics of its tables, make the plan, and check ids and
    free disk space.
    """
    end_without_workers(current_client())
    tables = (
        [(source, spec)] if other is None else [(source, spec), (other, spec.right)]
    )
    names = spec.tables if other is not None else (None,)
    collected: list[TableStatistics] = []
    for name, first, (table, own) in zip(names, (0, RIGHT), tables, strict=False):
        with in_table(name if steps.names_table else None):
            # values of rows are aligned with their frame, which is read again with all
            # its columns anyway
            keep = not (output.by_row or output.single_home)
            keep = keep or (output.halo > 0 and not may_move(table.inner))
            # other steps also read such rows, and must get the same ones, so do not
            # keep another copy
            keep = keep and not any(
                isinstance(node, Given) for node in table.inner.walk()
            )
            collected.append(collect(table, own, output.with_ids, first, steps, keep))
    summaries, sources = (
        [table.summaries for table in collected],
        [table for table, _ in tables],
    )
    plan = steps.make(summaries, sources, spec, output, limits_for(spec.library), check)
    if plan.shuffles_on_disk:
        check_folder(
            plan.memory.disk.needed,
            dask.config.get("temporary-directory", None) or tempfile.gettempdir(),
        )
    else:
        check_worker_disks(plan.memory.disk.needed, current_client())
    if output.with_ids:
        if (
            output.k is not None
            and output.max_total == math.inf
            and not output.min_total
        ):
            k = output.k - output.ties
            check_nearest(plan.rows_found(k), plan.result.pair_bytes, k, plan.limits)
        for name, (table, own), found in zip(names, tables, collected, strict=True):
            with in_table(name):
                check_ids(table, own, found, plan.limits.chunk)
    raise_warnings(plan.tables.warnings)
    return plan


def collect(
    source: FrozenSource,
    spec: RowSpec,
    with_ids: bool,
    first: int = 0,
    steps: PlanningSteps = DISTANCE_STEPS,
    keep: bool = False,
) -> TableStatistics:
    """Collect statistics of a table by reading its columns once, unless the statistics
    are kept already.

    `first`: number of the table's first partition. `keep`: whether the rows that are
    read are kept for the join.
    """
    place = STATISTICS.place(source.inner, (*steps.key(spec), with_ids, first))
    found = STATISTICS.find(place)
    if found is None:
        found = _collect_here(source, spec, with_ids, first, steps)
        if found is None:
            found = _collect_by_tasks(
                source, spec, with_ids, first, steps, keep and place is None
            )
        STATISTICS.keep(place, found)
    return found


def _collect_here(
    source: FrozenSource,
    spec: RowSpec,
    with_ids: bool,
    first: int,
    steps: PlanningSteps,
) -> TableStatistics | None:
    """If the source is a small pandas frame, collect its statistics in this thread;
    else return None.
    """
    small = small_frame(source, steps.max_here) if spec.library == HOME else None
    if small is None:
        return None
    if steps.summarize_parts is not None:
        return TableStatistics(
            steps.summarize_parts(small.rows, small.bounds, first, spec, with_ids)
        )
    # the tasks of the join will read the rows again, so the small frame is not kept
    source.small, number = None, len(small.bounds) - 1
    parts = [small.part(n, n + 1) for n in range(number)]
    how = spec, with_ids, number
    return TableStatistics(
        [steps.summarize(part, first + n, *how) for n, part in enumerate(parts)]
    )


def _collect_by_tasks(
    source: FrozenSource,
    spec: RowSpec,
    with_ids: bool,
    first: int,
    steps: PlanningSteps,
    keep: bool,
) -> TableStatistics:
    """Collect statistics of a table by one task per partition. `keep`: see `collect`."""
    number = source.inner.npartitions
    each = list(range(first, first + number))
    how = spec, with_ids, number
    if keep:
        summaries = ROWS.pass_on_workers(
            source, spec.library, steps.label, steps.summarize, *how, each=each
        )
        if summaries is not None:
            return TableStatistics(summaries)
    passed = ROWS.passed(source, spec.library) if keep else None
    expr = map_frozen(
        steps.label, _pass_over, source, steps.summarize, passed, first, *how, each=each
    )
    found = TableStatistics(gather(dict(expr.__dask_graph__()), expr.__dask_keys__()))
    if passed is not None:
        ROWS.keep(source, passed)
    return found


def _pass_over(
    frame: Frame,
    number: int,
    summarize: Callable[..., Any],
    passed: PassedRows | None,
    first: int,
    *args: Any,
) -> Any:
    """Summarize a partition. `passed`: if it is not None, it also collects the rows of
    the partition.
    """
    if passed is not None:
        passed.add(number - first, frame)
    return summarize(frame, number, *args)


def choose_shuffle(
    statistics: JoinStatistics,
    output: OutputSpec,
    limits: Limits,
    sources: list[FrozenSource],
) -> str:
    """Choose how rows are sent to chunks: by Dask's shuffle, or by the workers that
    hold the rows.
    """
    size = sum(
        s.moments.rows * (8 * len(s.moments.lower) + s.id_bytes + s.kept_bytes)
        for table in statistics.each
        for s in table.summaries
    )
    dtypes: list[Any] = []
    for table, source in zip(statistics.each, sources, strict=True):
        dtypes += [table.spec.id_dtype] if output.with_ids else []
        dtypes += [source.inner._meta[name].dtype for name in table.spec.keep]
    most = max(len(table.summaries) for table in statistics.each)
    configured = statistics.spec.settings.shuffle
    # most values that return to the partitions of their rows come back by Dask's
    # shuffle, so rows are sent by it, too
    comes_back = (output.by_row or output.single_home) and not output.halo
    if may_send(limits, size) and not (configured or comes_back):
        held = (held_by_workers(ROWS.look_up(source)) for source in sources)
        if all(frame is not None for frame in held):
            return BY_WORKER
    return shuffle_method(configured, limits, size, most, dtypes)


def plan_key(
    spec: Hashable, output: OutputSpec, other: FrozenSource | None
) -> Hashable:
    """Return the key under which a source keeps the plan."""
    return spec, output, None if other is None else other.inner._name


def check_ids(
    source: FrozenSource, spec: RowSpec, known: TableStatistics, chunk: int
) -> None:
    """Raise an error if ids repeat. `chunk`: maximum bytes of ids that a task may hold."""
    ids = [summary.ids for summary in known.summaries if summary.ids is not None]
    overlapping = check_summaries(ids, spec.id)
    if overlapping and not known.unique:
        size = ENTRY_BYTES * sum(ids[n].rows for n in overlapping)
        _check_across(source, spec, overlapping, -(-size // chunk))
    known.unique = True


def _kept_ids(frame: Frame, spec: RowSpec) -> pd.Index:
    kept = (
        points(frame, spec)[1]
        if isinstance(spec, JoinSpec) and spec.coordinates.dropna
        else None
    )
    return row_ids(
        frame if kept is None else native(frame)[kept], spec.id, spec.id_dtype
    )


def _kept_keys(frame: Frame, spec: RowSpec, buckets: int) -> list[Array]:
    return key_buckets(_kept_ids(frame, spec), buckets)


def _suspects(frame: Frame, spec: RowSpec, keys: np.ndarray) -> pd.Index:
    return suspected(_kept_ids(frame, spec), keys)


def _check_across(
    source: FrozenSource, spec: RowSpec, partitions: list[int], buckets: int
) -> None:
    """Raise an error if an id occurs in two partitions.

    64-bit keys of the ids are split into buckets, and one task per bucket searches for
    repeated keys. Then only the ids with a repeated key are compared.
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
        graph[check] = Task(check, repeated_keys, *(TaskRef(part) for part in parts))
        checks.append(check)
    suspects = np.concatenate(gather(graph, checks))
    if len(suspects):
        found = map_frozen("simjoin_ids_repeated", _suspects, source, spec, suspects)
        keys = [found.__dask_keys__()[n] for n in partitions]
        check_suspects(gather(dict(found.__dask_graph__()), keys), spec.id)
