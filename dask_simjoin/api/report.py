"""Tell what a lazy result has done."""

from __future__ import annotations

from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.errors import PlanningError, UnsupportedFrameError
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.records import RUNS
from dask_simjoin.planning.report_run import RunReport


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
        Prints as text, and has ``rows``, ``bytes``, ``seconds``, ``planning``, ``partitions``, ``threads``,
        ``candidates``, ``done``, ``plan``, ``to_frame()`` and ``to_dict()``.

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
