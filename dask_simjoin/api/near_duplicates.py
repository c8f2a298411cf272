"""Mark near duplicates, drop near duplicates, and number the rows of a frame."""

from __future__ import annotations

from dask_simjoin.calls import verbs
from dask_simjoin.calls.decorators import frame_verb, series_verb
from dask_simjoin.calls.tables import table_of
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.errors import ColumnError, OptionTypeError
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.request.clusters import NearDuplicatedRequest
from dask_simjoin.request.columns import ROW_ID, check_columns, example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import RowIdRequest


@series_verb(NearDuplicatedRequest)
def near_duplicated(frame: Frame, request: NearDuplicatedRequest) -> Series:
    """Mark the rows that are near a kept row.

    This is `pandas.DataFrame.duplicated` for similar rows.

    Parameters
    ----------
    eps : float or str
        Largest distance of duplicates, in the units of the metric; see `self_join`. 0
        finds equal rows.
    grouping : {"greedy", "connected"}, default "greedy"
        The rows that count as duplicates of each other. With ``eps=0`` or
        ``keep=False`` both give the same result.

        - "greedy": rows are visited in the order of `keep`: from the first, from the
          last, or from the largest value. A row is a duplicate if a row that was kept
          before is within `eps`. So two kept rows are never near, and each duplicate is
          near a kept row.
        - "connected": rows form a group if a chain of near rows connects them, and one
          row per group is kept. A duplicate may be far from the row that is kept.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat. The column of `keep` is also excluded, unless `on` names it.
    keep : {"first", "last", False} or column, default "first"
        The row to keep of several near rows. It is marked False.

        - "first", "last": the first or the last row in the frame.
        - A column of numbers, times or dates: the row with the largest value; among
          equal values the first row. Rows without a value come last.
        - False: no row; every row near another row is marked.
    partitioning : {"auto", "entity", "spatial", "replicated"}, default "auto"
        As in `self_join`. For "greedy", "auto" is "entity", which keeps the order of
        rows.
    on, metric, by, within, different, dropna, p, box, threads, blocksize, method
        As in `self_join`.

    Returns
    -------
    Series
        bool, with the index and partitions of the frame; lazy if the frame is. Rows
        that `dropna` leaves out are False.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, SourceChangedError
        As in `self_join`.
    BudgetError
        As in `self_join`. Also with "greedy", if `keep` names a column or chunks are
        spatial: a single task then needs all pairs, which may not fit.

    Notes
    -----
    The result does not depend on partitions. Pairs are not stored, except in the case
    that `BudgetError` describes. "greedy" returns the lexicographically first maximal
    independent set of the graph of near rows. It chooses the kept rows of one chunk
    after the other. After each chunk, rows near its kept rows are dropped from all
    later chunks in parallel. Grouping "connected" keeps one row of each cluster of
    `dbscan` with ``min_samples=1``, and is faster on many cores.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.near_duplicated(1.0).tolist()
    [False, True, False, False]

    A chain of near rows as one group:

    >>> df.simjoin.near_duplicated(1.0, grouping="connected").tolist()
    [False, True, True, False]

    Keep the row with the most votes:

    >>> df.assign(votes=[3, 8, 5, 0]).simjoin.near_duplicated(1.0, keep="votes").tolist()
    [True, False, True, False]
    """
    return verbs.near_duplicated(frame, request, DISTANCES)


@frame_verb(NearDuplicatedRequest)
def drop_near_duplicates(frame: Frame, request: NearDuplicatedRequest) -> Frame:
    """Drop the rows that `near_duplicated` marks.

    This is `pandas.DataFrame.drop_duplicates` for similar rows.

    Parameters
    ----------
    eps, keep, grouping, on, by, within, different, id, metric, p, box, dropna, method,
    partitioning, blocksize, threads
        As in `near_duplicated`. Rows that `dropna` leaves out are kept.

    Returns
    -------
    DataFrame
        The rows that are kept, with all columns, and with the index and partitions of
        the frame; lazy if the frame is.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, BudgetError,
    SourceChangedError
        As in `near_duplicated`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0], "name": ["a", "b", "c", "d"]})
    >>> df.simjoin.drop_near_duplicates(1.0)
         x name
    0  0.0    a
    2  2.0    c
    3  9.0    d

    Drop every row that has a neighbor:

    >>> df.simjoin.drop_near_duplicates(1.0, keep=False)
         x name
    3  9.0    d
    """
    marked = near_duplicated(frame, **vars(request))
    return frame[~marked]


@frame_verb(RowIdRequest)
def with_row_id(frame: Frame, request: RowIdRequest) -> Frame:
    """Add a column with the number of each row, from 0.

    Use it as ``id=`` if index labels repeat. They do in a frame from several parquet
    files, because each file counts its rows from 0.

    Parameters
    ----------
    name : str, default "row_id"
        Name of the new column. "row_id" is excluded from the default coordinates of all
        verbs.

    Returns
    -------
    DataFrame
        The frame with one more column (int64). It is lazy if the frame is; counting the
        rows reads one column.

    Raises
    ------
    OptionTypeError, ColumnError
        At the call: the name is not a string, the frame has a column with this name, or
        it has no columns.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [5.0, 5.0]}, index=[7, 7])
    >>> df.simjoin.with_row_id()
         x  row_id
    7  5.0       0
    7  5.0       1
    >>> df.simjoin.with_row_id().simjoin.self_join(1.0, id="row_id")
       left  right
    0     0      1
    """
    meta, name = example_of(frame), request.name
    check_columns(meta)
    if not isinstance(name, str):
        raise OptionTypeError(
            f"name={shown(name)} is not a string; name the new column, such as "
            f"{ROW_ID!r}."
        )
    if name in meta.columns:
        raise ColumnError(
            f"name={name!r} is already a column of the frame; pass id={name!r}, or "
            "choose another name."
        )
    return table_of(frame).numbered(name)
