"""Plan a join (`plan`), and report a finished join (`report`)."""

from __future__ import annotations

import numbers
import os
from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.calls import verbs
from dask_simjoin.calls.decorators import verb
from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.calls.inputs import check_other, one_or_two
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.reports.run import RunReport
from dask_simjoin.request.columns import load
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import KnnJoinRequest, PlanRequest
from dask_simjoin.tasks.nearest import Neighbors


@verb(PlanRequest)
def plan(frame: Frame, request: PlanRequest) -> PlanReport:
    """Estimate the cost and the result of a join, without running it.

    It plans `knn_join` if you pass `k`, otherwise `join` if you pass `other`, otherwise
    `self_join`. Unlike most verbs, it runs at the call: one pass over the needed
    columns, and a join of a sample. Pairs are counted instead of estimated if counting
    costs no more than the rest of planning.

    Parameters
    ----------
    eps : float, str or column
        Largest distance, as in `self_join`; with `k` it is the `max_distance` of
        `knn_join`.
    other : DataFrame, optional
        The right table, as in `join`.
    k : int, optional
        Number of neighbors, as in `knn_join`.
    others
        All other options of `self_join`, `join` and `knn_join`, except `how`, `mutual`
        and `min_distance`.

    Returns
    -------
    PlanReport
        It prints as text, and shows a table and a picture in notebooks. For programs it
        has the attributes ``rows``, ``chunks``, ``block_pairs``, ``partitions``,
        ``pairs``, ``pairs_low``, ``pairs_high``, ``counted``, ``recall``,
        ``result_bytes``, ``partition_bytes``, ``task_bytes``, ``chunk_limit``,
        ``partition_limit``, ``result_limit``, ``partitioning`` and ``method``. Its
        methods are ``to_dict()``, ``to_frame()``, ``svg()`` and ``plot()``.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, DuplicateIdError
        As in the planned verb.
    BudgetError
        The result exceeds the configuration value ``simjoin.result-limit``, or a task
        needs more memory than a worker has. For plain frames: the result exceeds the
        memory that is free now. The message contains both sizes and a remedy.

    Notes
    -----
    A chunk is a group of rows with one index, and a block pair is two chunks that are
    compared; see `self_join`. The plan of a pandas DataFrame has one chunk.

    Pairs are counted if the cost model expects that counting takes no longer than the
    rest of planning. The rest of planning takes 2 ms (3 ms for a Dask DataFrame), plus
    the time to read the columns and to join the sample. In 2 dimensions, pairs are
    counted for up to about 65,000 rows, and in 64 dimensions for up to about 3,000
    rows. Pairs of a table of more than 262,144 coordinates (rows times dimensions) are
    always estimated.

    For an estimate, the interval contains the true number of pairs in about 95 % of all
    cases. It uses the variance of a U-statistic (Hoeffding 1948, "A class of statistics
    with asymptotically normal distribution", section 5); see
    :doc:`/explanation/estimates`. With `k` and `approximate` on a plain frame, the
    recall is measured: the neighbors of 1,000 rows are searched among all rows. A
    search among a sample of rows would have another recall.

    ``plot()`` draws the block pairs:

    .. image:: /images/plan.png
       :alt: Block pairs of one join with two partitionings: only the diagonal, and a
          full triangle

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
      skipped        3, too far apart
      pairs          999 (counted)
      neighbors      2 per row on average
      result         15.61 kiB, 16 bytes per pair
      partitions     7, the largest 3.89 kiB
      memory         20.68 kiB for the largest task
      budget         3.91 kiB per chunk (blocksize='4 kB')
                     3.91 kiB per partition, ... for the result
      tasks          about 11
      time           about ... s (estimated for our benchmark CPU; yours will differ)

    The plan of a search for nearest rows:

    >>> df.simjoin.plan(k=2).pairs
    2000.0
    """
    planned = request.planned()
    if not isinstance(planned, KnnJoinRequest):
        return verbs.plan(frame, request, DISTANCES)
    planned.number()
    if request.other is not None:
        check_other("other=frame", request.other)
    frame, other, left, right = one_or_two(frame, request.other)
    spec = planned.spec(left, right)
    pairs_example(left, left if right is None else right, spec)
    # as requested by the user, even if there are fewer rows
    totals = 0.0, planned.max_total(spec)
    wanted = Neighbors(int(planned.k), totals, what=f"k={shown(int(planned.k))}")
    tables = [frame] if other is None else [frame, other]
    return DISTANCES.of(tables, spec).plan_nearest(wanted)


def report(result: Any = None) -> RunReport:
    """Report the work of the join behind a lazy result: rows, seconds, and tasks of
    each step.

    During a computation it reports the progress so far. After several computations it
    reports the last one.

    Parameters
    ----------
    result : Dask DataFrame, Series or Scalar, optional
        The result of a verb, or a collection made from it. If it contains several
        joins, the first one is reported. For a frame, ``result.simjoin.report()`` does
        the same.

        A persisted result is recognized by the names of its tasks. A computed result,
        or the path of a Parquet dataset, is recognized by its number of rows, if only
        one join returned this number. Default: the last join.

    Returns
    -------
    RunReport
        It prints as text, and shows a table in notebooks. For programs it has the
        attributes ``rows``, ``bytes``, ``seconds``, ``planning``, ``partitions``,
        ``threads``, ``candidates``, ``done`` and ``plan``, and the methods
        ``to_dict()`` and ``to_frame()``.

    Raises
    ------
    UnsupportedFrameError
        No join of this process made the result, or several joins may have made it.
    PlanningError
        The join was not planned in this process, because it has not been computed here.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> pairs = dd.from_pandas(df, npartitions=2).simjoin.self_join(1.0)
    >>> computed = pairs.compute()
    >>> report = pairs.simjoin.report()
    >>> report.rows, report.done
    (2, True)

    Numbers and Series have no accessor:

    >>> counts = dd.from_pandas(df, npartitions=2).simjoin.neighbor_counts(1.0)
    >>> computed = counts.compute()
    >>> dask_simjoin.report(counts).done
    True
    """
    from dask_simjoin.graph.records import RUNS

    if result is None:
        last = RUNS.last()
        if last is None:
            raise PlanningError(
                "No lazy join has been planned in this process. Call compute() first."
            )
        return last
    joins = lazy_joins(result)
    if joins:
        found = [
            run for join in joins if (run := RUNS.find(join.named.name)) is not None
        ]
        if not found:
            raise PlanningError(
                f"{joins[0].named.title} has not been planned in this process. Call "
                "compute() first."
            )
        return found[0]
    if is_dask_collection(result):
        found = RUNS.of_keys(_key_name(result))
    else:
        rows = _number_of_rows(result)
        found = [] if rows is None else RUNS.with_rows(rows)
    if len(found) != 1:
        several = (
            "Several joins of this process may have made this result."
            if found
            else NO_JOIN
        )
        raise UnsupportedFrameError(f"{several} {REPORT_HINT}")
    return found[0]


NO_JOIN = "The result contains no lazy join, and does not match a join of this process."

REPORT_HINT = (
    "Call report() on the lazy result of the verb, also after compute(), persist() and "
    "to_parquet(). For "
    "Parquet files, use dask_simjoin.report(path). For the last join, use "
    "dask_simjoin.report()."
)


def lazy_joins(result: Any) -> list[Any]:
    """List the joins of a lazy result. The join that the user asked for comes first."""
    from dask_simjoin.graph.dask_private import Expr
    from dask_simjoin.graph.pairs import LazyGraph
    from dask_simjoin.graph.result_rows import joins_of

    # return early, because the checks below would already plan the join
    if isinstance(result, LazyGraph):
        return [result.expression]
    expr = getattr(result, "expr", None)
    if not isinstance(expr, Expr):
        return []
    return joins_of(expr)


def _key_name(result: Any) -> str:
    """Return the name in the task keys of a collection that contains no join, such as a
    persisted one.
    """
    from dask_simjoin.graph.dask_private import FromGraph

    expr = getattr(result, "expr", None)
    keys = list(
        expr.operand("keys") if isinstance(expr, FromGraph) else result.__dask_keys__()
    )
    first = keys[0] if keys else ""
    return str(first[0] if isinstance(first, tuple) else first)


def _number_of_rows(result: Any) -> int | None:
    """Return the number of rows of a computed or stored result. If the result is an
    int, return it.
    """
    if isinstance(result, str | os.PathLike):
        there = os.path.exists(result)
        return (
            int(load("pyarrow.dataset").dataset(os.fspath(result)).count_rows())
            if there
            else None
        )
    if isinstance(result, numbers.Integral):
        return int(result)
    return len(result) if hasattr(result, "iloc") else None
