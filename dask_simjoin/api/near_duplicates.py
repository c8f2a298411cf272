"""Mark near duplicates, drop near duplicates, and number the rows of a frame."""

from __future__ import annotations

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.duplicates import (
    CONNECTED,
    FIRST,
    best_of_chunk,
    by_priority,
    priorities,
    stays_in_chunk,
    stays_of_chunk,
)
from dask_simjoin.cluster.algorithms.edges import all_cores, components_by_place
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionTypeError
from dask_simjoin.graph.verb import frame_verb, series_example, series_verb
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.data_warnings import raise_if_none
from dask_simjoin.planning.outputs import LISTED_CLUSTERS
from dask_simjoin.request.clusters import NearDuplicatedRequest
from dask_simjoin.request.columns import ROW_ID, check_columns, example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import RowIdRequest
from dask_simjoin.tasks.chunks import whole_chunk
from dask_simjoin.tasks.counts import count_block, no_edges
from dask_simjoin.tasks.left_out import for_all_rows
from dask_simjoin.tasks.matches import BlockPair, whole_block_pair


@series_verb(NearDuplicatedRequest)
def near_duplicated(frame: Frame, request: NearDuplicatedRequest) -> Series:
    """Mark the rows that are near a kept row.

    This is `pandas.DataFrame.duplicated` for similar rows.

    Parameters
    ----------
    eps : float or str
        Largest distance of duplicates, in the units of the metric; see `self_join`. 0
        finds equal rows.
    keep : {"first", "last", False} or column, default "first"
        The row to keep of several near rows. It is marked False.

        - "first", "last": the first or the last row in the frame.
        - A numeric column: the row with the largest value; among equal values the first
          row. Rows without a value come last.
        - False: no row; every row near another row is marked.
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
    on, by, metric, p, dropna, method, blocksize
        As in `self_join`.
    partitioning : {"auto", "entity", "spatial", "replicated"}, default "auto"
        As in `self_join`. For "greedy", "auto" is "entity", which keeps the order of
        rows.

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
    meta = example_of(frame)
    spec = request.spec(meta)
    example = series_example(meta, None)
    if is_dask_collection(frame):
        from dask_simjoin.cluster.expressions.components import (
            NearDuplicated as LazyMarks,
        )
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        keep = False if request.counted else request.keep
        return (
            new_collection(
                LazyMarks(source.inner, source, spec, keep, request.grouping, example)
            )
            != 0
        )
    chunk, plan = whole_chunk(frame, spec, LISTED_CLUSTERS)
    frames = frames_for(meta)
    if plan.meets:
        marked = _marks(whole_block_pair(chunk, spec, plan.layout), request)
        raise_if_none(plan.tables.warnings, marked.any())
    else:
        marked = frames.xp.zeros(0, np.bool_)
    return frames.series(*for_all_rows(marked, frame, spec, False), None)


@frame_verb(NearDuplicatedRequest)
def drop_near_duplicates(frame: Frame, request: NearDuplicatedRequest) -> Frame:
    """Drop the rows that `near_duplicated` marks.

    This is `pandas.DataFrame.drop_duplicates` for similar rows.

    Parameters
    ----------
    eps, keep, grouping, on, by, id, metric, p, dropna, method, partitioning, blocksize
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


def _marks(block_pair: BlockPair, request: NearDuplicatedRequest) -> Array:
    """Return a mask of the rows to drop (n,), if all rows are in one chunk."""
    chunk, layout = block_pair.query, block_pair.layout
    if request.counted:
        return count_block(block_pair, enough=1)[0] > 0
    if request.grouping == CONNECTED:
        within = components_by_place(block_pair, all_cores(chunk))
        found = best_of_chunk(
            chunk, 0, request.keep, 0, within, no_edges(block_pair.xp)
        )
        return ~stays_in_chunk(chunk, found, found.candidates)
    order = (
        None
        if request.keep == FIRST
        else by_priority(priorities(chunk, request.keep, 0))
    )
    return ~stays_of_chunk(chunk, layout, order)


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
    if not is_dask_collection(frame):
        return frame.assign(**{name: np.arange(len(frame), dtype=np.int64)})
    if not len(meta.columns):
        raise ColumnError("The frame has no column, so its rows cannot be numbered.")
    # one column is enough to count rows; its name is in a list, because a name that is
    # a tuple would mean several columns
    ones = frame[[meta.columns[0]]].map_partitions(_ones, meta=_ones(meta))
    return frame.assign(**{name: ones.cumsum() - 1})


def _ones(rows: Series) -> Series:
    return frames_for(rows).series(np.ones(len(rows), np.int64), rows.index, ROW_ID)
