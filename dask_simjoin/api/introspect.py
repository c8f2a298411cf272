"""Show what a join would run (`plan`), what it does (`profile`) and what it did (`report`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import Counters, joiner_of_library, profiler_of_library, recall_module
from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.graph.base import pairs_example
from dask_simjoin.graph.lazy_join import LazyJoin
from dask_simjoin.graph.planner import plan_for
from dask_simjoin.graph.records import RUNS
from dask_simjoin.graph.source import freeze
from dask_simjoin.graph.steps import check_other, one_or_two
from dask_simjoin.graph.verb import verb
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.data_warnings import raise_if_none
from dask_simjoin.planning.outputs import COUNTS, PAIRS, OutputSpec, nearest_output
from dask_simjoin.planning.plan import Plan as MadePlan
from dask_simjoin.planning.statistics.estimate import ALL, Recall
from dask_simjoin.reports.plan import NearestPlanReport, PlanReport
from dask_simjoin.reports.profile import NearestProfile, ProfileReport
from dask_simjoin.reports.run import RunReport
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.requests import (
    KnnJoinRequest,
    PlanRequest,
    ProfiledKnnJoinRequest,
    ProfileRequest,
    SelfJoinRequest,
)
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import layout_seconds, plan_whole, read_piece, read_points
from dask_simjoin.tasks.nearest import profile_search


@verb(PlanRequest)
def plan(frame: Frame, asked: PlanRequest) -> PlanReport:
    """What `self_join` with the same options would run, and how much it would give.

    With `other` it is the plan of `join`, and with `k` that of `knn_join`, whose `max_distance` is `eps`.

    Unlike the other verbs it computes at the call: the one pass over the columns that planning
    takes, with a sample of the rows, and only that is joined, to estimate by.  On a pandas
    DataFrame the plan is that of one chunk.  There, with `k` and `approximate=True`, the nearest rows of
    1,000 rows are sought among all besides, to tell the recall: of a sample it would be another.

    Parameters are those of `self_join`, `join` and `knn_join`.

    Returns
    -------
    PlanReport
        Prints as text, shows as a table and a picture in notebooks, and has ``rows``,
        ``chunks``, ``block_pairs``, ``partitions``, ``pairs``, ``pairs_low``, ``pairs_high``,
        ``recall``, ``result_bytes``, ``partitioning``, ``method``, ``to_frame()``, ``svg()`` and ``plot()``.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, DuplicateIdError
        As `self_join` and its planning do.
    BudgetError
        The result is larger than the configuration's ``simjoin.result-limit``, or a task needs
        more memory than a worker has: what is needed, what there is, and the remedy.

    Notes
    -----
    The interval is that of a U-statistic (Hoeffding 1948, "A class of statistics with
    asymptotically normal distribution", section 5); see `dask_simjoin.planning.statistics.estimate`.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": np.arange(1000.0)})
    >>> plan = dd.from_pandas(df, npartitions=4).simjoin.plan(
    ...     1.0, partitioning="entity", blocksize="4 kB"
    ... )
    >>> plan.chunks, plan.block_pairs, plan.partitions
    (4, 7, 7)
    >>> plan
    Plan of a self-join, eps=1.0
      rows           1,000
      dimensions     1: 'x', all numeric columns
      engine         sweep along 'x'
      partitioning   entity: rows in the order of the frame
      chunks         4 (15.62 kiB)
      median chunk   250 rows, 3.91 kiB
      largest chunk  250 rows, 3.91 kiB
      block pairs    7 of 10 possible
      skipped        3, where no pair can be
      pairs          999
      95 % interval  999 to 999
      sampled        1,000 rows, which is all of them
      neighbors      2 of a row, on average
      result         15.61 kiB, 16 bytes a pair
      partitions     7, the largest 3.89 kiB
      memory         19.53 kiB for the largest task
      budget         3.91 kiB a chunk (blocksize='3.91 kiB')
                     3.91 kiB a partition, ... the result
      tasks          about 11
      time           about ... s (estimated for our benchmark CPU; yours will differ)
    """
    wanted = asked.planned()
    k = None
    if isinstance(wanted, KnnJoinRequest):
        wanted.number()
        k = int(wanted.k)  # the report says what was asked for
    if asked.other is not None:
        check_other("other=frame", asked.other)
    frame, other, left, right = one_or_two(frame, asked.other)
    spec = wanted.spec(left) if isinstance(wanted, SelfJoinRequest) else wanted.spec(left, right)
    pairs_example(left, left if right is None else right, spec)
    most = wanted.max_total(spec) if isinstance(wanted, KnnJoinRequest) else math.inf
    output = PAIRS if k is None else nearest_output(k, with_ids=True, max_total=most)
    made = _planned(frame, other, spec, output)
    if output.k is not None and spec.approximate and not is_dask_collection(frame):
        every = [frame] if other is None else [frame, other]
        made = replace(made, recall=_neighbor_recall(every, made, spec, output))
    return PlanReport(made, spec) if k is None else NearestPlanReport(made, spec, k, most)


def _planned(frame: Frame, other: Frame | None, spec: JoinSpec, output: OutputSpec) -> MadePlan:
    if is_dask_collection(frame):
        data = None if other is None else freeze(other, spec.right.columns)
        return plan_for(freeze(frame, spec.columns), spec, output, data)
    made = plan_whole([frame] if other is None else [frame, other], spec, output, sampled=True)
    raise_if_none(made.data_warnings, 0)
    size = round(made.rows * made.row_bytes)
    budget = replace(made.budget, chunk=size, output=size, origin="the whole frame, as it is in memory")
    return replace(made, budget=budget, slices=np.ones_like(made.slices))


def _neighbor_recall(frames: list[Frame], made: MadePlan, spec: JoinSpec, output: OutputSpec) -> Recall:
    """Measure which share of the nearest rows a search of plain frames finds that may miss some."""
    specs = [spec] if len(frames) == 1 else [spec, spec.right]
    sides = [
        read_piece(one, replace(own, dims=made.dims))["x"] for one, own in zip(frames, specs, strict=True)
    ]
    assert output.k is not None
    recall = recall_module(spec.method)
    found: Recall = recall.measured_neighbors(
        sides[0], sides[-1], made.layout, output.k, spec.library, output.max_total, recall.PLANNED
    )
    return found


@verb(ProfileRequest)
def profile(frame: Frame, asked: ProfileRequest) -> ProfileReport:
    """Run a self-join, or with `k` a search for nearest rows, keep nothing of it, and tell what it did.

    It runs at the call, on one core or one GPU, with all rows as one chunk.  Of a Dask DataFrame the
    columns that it needs are computed first, and must fit memory: take a sample of a larger one.

    ``seconds`` begin with the step "layout": the method's choice of its clusters, number of lists or indexed
    dimensions from a sample of the rows.  Reading the frame and estimating the result are not timed.

    Parameters are those of `self_join`, or with `k` those of `knn_join` without another table, whose
    `max_distance` is `eps`; counters are made by a run of their own, so that seconds are those
    of the usual kernels, which are compiled before.  With `approximate=True` up to 10,000 rows, drawn at
    random, are joined exactly with all, or their nearest rows are found: ``numbers`` then have the measured
    ``recall``, between ``recall_low`` and ``recall_high`` with a chance of 95 %, unless there are less than
    1,000 true pairs or neighbours.

    Returns
    -------
    ProfileReport
        Prints as text, shows as a table and a picture in notebooks, and has ``numbers``, ``seconds``,
        ``rows``, ``method``, ``engine``, ``to_frame()``, ``to_dict()``, ``svg()`` and ``plot()``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from dask_simjoin import methods
    >>> df = pd.DataFrame({"x": np.arange(1000.0) % 40, "y": np.arange(1000.0) // 40})
    >>> found = df.simjoin.profile(1.0, method=methods.Grid(pattern="full", order="given"))
    >>> int(found.numbers["pairs"]), int(found.numbers["comparisons"])
    (1935, 9000)
    """
    search = asked.nearest()
    if search is not None:
        return _nearest(frame, search)
    spec = asked.spec(example_of(frame))
    if is_dask_collection(frame):
        frame = frame[spec.columns].compute()
    plan = plan_whole([frame], spec, COUNTS)
    read = read_points(frame, (0, plan.sources[0][0]), replace(spec, dims=plan.dims))
    chosen = {"layout": layout_seconds(frame, spec, COUNTS)}
    counters = profiler_of_library(spec.library).profile(read["x"], plan.layout)
    told = ALL
    if spec.approximate:
        exact = plan_whole([frame], replace(spec, method="auto", approximate=False), COUNTS)
        recall = recall_module(spec.method)
        told = recall.measured_recall(read["x"], plan.layout, exact.layout, joiner_of_library(spec.library))
    counters = Counters(counters.numbers | told.numbers(), chosen | counters.seconds)
    return ProfileReport(plan.layout.method, PlanReport(plan, spec).engine, plan.rows, counters)


def _nearest(frame: Frame, asked: ProfiledKnnJoinRequest) -> ProfileReport:
    """Run a search for the nearest rows of each row."""
    number, spec = asked.number(), asked.spec(example_of(frame))
    most = asked.max_total(spec)
    if is_dask_collection(frame):
        frame = frame[spec.columns].compute()
    output = nearest_output(number)
    plan = plan_whole([frame], spec, output)
    chosen = {"layout": layout_seconds(frame, spec, output)}
    x = read_points(frame, (0, plan.sources[0][0]), replace(spec, dims=plan.dims))["x"]
    counters, told = profile_search(x, plan.layout, number, most, spec.library), ALL
    if spec.approximate:
        told = recall_module(spec.method).measured_neighbors(x, x, plan.layout, number, spec.library, most)
    counters = Counters(counters.numbers | told.numbers(), chosen | counters.seconds)
    return NearestProfile(plan.layout.method, PlanReport(plan, spec).engine, plan.rows, counters)


def report(result: Any) -> RunReport:
    """What the join behind a lazy result did when it was computed here: rows, seconds, tasks of each step.

    It may be asked while the join runs, and tells what is done so far. What was computed several times, it
    tells of the last time.

    Parameters
    ----------
    result : Dask DataFrame, Series or Scalar
        What a verb gave, or what was made of that; of several joins the first one counts. A frame has it as
        ``result.simjoin.report()``.

    Returns
    -------
    RunReport
        Prints as text, shows as a table in notebooks, and has ``rows``, ``bytes``, ``seconds``, ``planning``,
        ``partitions``, ``threads``, ``candidates``, ``done``, ``plan``, ``to_frame()`` and ``to_dict()``.

    Raises
    ------
    UnsupportedFrameError
        If there is no lazy join in it.
    PlanningError
        If it was not planned in this process, as it has not been computed.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> pairs = dd.from_pandas(df, npartitions=2).simjoin.self_join(1.0)
    >>> computed = pairs.compute()
    >>> told = pairs.simjoin.report()
    >>> told.rows, told.done
    (2, True)
    """
    expr = getattr(result, "expr", None) if is_dask_collection(result) else None
    joins = [] if expr is None else list(expr.find_operations(LazyJoin))
    if not joins:
        raise UnsupportedFrameError(
            "There is no lazy join in it, so nothing is known of one; ask for the report of what a verb gave "
            "for a Dask DataFrame, before it is persisted or made a frame of something else."
        )
    found = [RUNS.find(join.named.name) for join in joins]
    told = next((one for one in found if one is not None), None)
    if told is None:
        raise PlanningError(f"{joins[0].named.title} has not been planned here; compute() it first.")
    return told
