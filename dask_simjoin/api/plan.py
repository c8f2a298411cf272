"""Tell what other verbs would run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.expressions.examples import pairs_example
from dask_simjoin.expressions.planner import plan_for
from dask_simjoin.expressions.source import freeze
from dask_simjoin.expressions.two_tables import check_other, one_or_two
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.calls import verb
from dask_simjoin.options.planned import Plan
from dask_simjoin.options.requests import KnnJoin, SelfJoin
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.doubts import raise_if_none
from dask_simjoin.planning.goal import PAIRS, Goal, nearest_goal
from dask_simjoin.planning.plan import Plan as MadePlan
from dask_simjoin.planning.report import PlanReport
from dask_simjoin.planning.report_nearest import NearestReport
from dask_simjoin.planning.statistics.recall import Recall
from dask_simjoin.planning.statistics.recall_nearest import PLANNED, measured_neighbors
from dask_simjoin.tasks.chunks import read_piece
from dask_simjoin.tasks.whole import plan_whole


@verb(Plan)
def plan(frame: Frame, asked: Plan) -> PlanReport:
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
      neighbours     2 of a row, on average
      result         15.61 kiB, 16 bytes a pair
      partitions     7, the largest 3.89 kiB
      memory         19.53 kiB for the largest task
      budget         3.91 kiB a chunk (blocksize='3.91 kiB')
                     3.91 kiB a partition, ... the result
      tasks          about 11
      time           about ... s, on idle cores like those that were measured
    """
    wanted = asked.planned()
    k = None
    if isinstance(wanted, KnnJoin):
        wanted.number()
        k = int(wanted.k)  # the report says what was asked for
    if asked.other is not None:
        check_other("other=frame", asked.other)
    frame, other, left, right = one_or_two(frame, asked.other)
    spec = wanted.spec(left) if isinstance(wanted, SelfJoin) else wanted.spec(left, right)
    pairs_example(left, left if right is None else right, spec)
    most = wanted.most(spec) if isinstance(wanted, KnnJoin) else math.inf
    goal = PAIRS if k is None else nearest_goal(k, with_ids=True, max_total=most)
    made = _planned(frame, other, spec, goal)
    if goal.k is not None and spec.approximate and not is_dask_collection(frame):
        every = [frame] if other is None else [frame, other]
        made = replace(made, recall=_neighbor_recall(every, made, spec, goal))
    return PlanReport(made, spec) if k is None else NearestReport(made, spec, k, most)


def _planned(frame: Frame, other: Frame | None, spec: JoinSpec, goal: Goal) -> MadePlan:
    if is_dask_collection(frame):
        data = None if other is None else freeze(other, spec.right.columns)
        return plan_for(freeze(frame, spec.columns), spec, goal, data)
    made = plan_whole([frame] if other is None else [frame, other], spec, goal, sampled=True)
    raise_if_none(made.doubts, 0)
    size = round(made.rows * made.row_bytes)
    budget = replace(made.budget, chunk=size, output=size, origin="the whole frame, as it is in memory")
    return replace(made, budget=budget, slices=np.ones_like(made.slices))


def _neighbor_recall(frames: list[Frame], made: MadePlan, spec: JoinSpec, goal: Goal) -> Recall:
    """Measure which share of the nearest rows a search of plain frames finds that may miss some."""
    specs = [spec] if len(frames) == 1 else [spec, spec.right]
    sides = [
        read_piece(one, replace(own, dims=made.dims))["x"] for one, own in zip(frames, specs, strict=True)
    ]
    assert goal.k is not None
    return measured_neighbors(sides[0], sides[-1], made.layout, goal.k, spec.library, goal.max_total, PLANNED)
