"""Mark and drop near duplicates; number the rows of a frame."""

from __future__ import annotations

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.duplicates import (
    FIRST,
    best_of_chunk,
    order_of_preference,
    preferences,
    stays_in_chunk,
    stays_of_chunk,
)
from dask_simjoin.cluster.algorithms.edges import all_cores, components_by_place
from dask_simjoin.cluster.expressions.duplicates import CONNECTED
from dask_simjoin.cluster.expressions.duplicates import NearDuplicated as LazyMarks
from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError, OptionTypeError
from dask_simjoin.graph.base import series_example
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.source import freeze
from dask_simjoin.graph.verb import frame_verb, series_verb
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.outputs import LISTED_CLUSTERS
from dask_simjoin.request.clusters import NearDuplicatedRequest
from dask_simjoin.request.columns import ROW_ID, check_columns
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import RowIdRequest
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import whole_chunk
from dask_simjoin.tasks.counts import count_block, kept_rows, no_edges
from dask_simjoin.tasks.matches import BlockPair, whole_block_pair


@series_verb(NearDuplicatedRequest)
def near_duplicated(frame: Frame, asked: NearDuplicatedRequest) -> Series:
    """Whether each row is near one that stays: as `pandas.DataFrame.duplicated`, for rows that are alike.

    Parameters
    ----------
    eps : float
        Largest distance of duplicates, as in `self_join`; 0 finds equal rows.
    keep : {"first", "last", False} or column
        Which row of near ones stays, and is False: the first in the frame, or the last; or the row with the
        largest value in a column of numbers, the first of those with the same (rows without a value come
        last). False: none, every row that is near another is True.
    grouping : {"greedy", "connected"}
        "greedy": rows are gone through in order, and one is a duplicate if a row that stays is within `eps`.
        So no two rows that stay are near, and each duplicate is near one that stays. "connected": rows are
        in one group if near rows connect them, and one row of each group stays. A chain of rows is one
        group however long it is: a duplicate may be far from the row that stays. For ``eps=0``, and with
        ``keep=False``, both are the same.
    on, by, id, metric, p, dropna, method, partitioning, blocksize
        As in `self_join`; `id` only says which column is no coordinate, and a column that `keep` names is
        none either unless `on` names it. With "greedy", "auto" is "entity", which keeps the order of rows.

    Returns
    -------
    Series
        bool, with the frame's index and partitions; lazy if the frame is. Rows that `dropna` leaves out
        have no entry.

    Raises
    ------
    BudgetError
        When planned: "greedy" in another order than that of a Dask DataFrame's chunks (`keep` names a
        column, or chunks are spatial) chooses in one task, for which pairs are too many.

    Notes
    -----
    The same for every partitioning. Neither grouping lists pairs, with the exception above. "greedy" gives
    the lexicographically first maximal independent set of the graph of near rows: chunks are settled one
    after the other, and rows that stay drop others from later chunks, side by side. "connected" is
    `dbscan` with ``min_samples=1``, one row of each cluster, and is faster on many cores.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.near_duplicated(1.0).tolist()
    [False, True, False, False]
    >>> df.simjoin.near_duplicated(1.0, grouping="connected").tolist()
    [False, True, True, False]
    >>> df.assign(votes=[3, 8, 5, 0]).simjoin.near_duplicated(1.0, keep="votes").tolist()
    [True, False, True, False]
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    example = series_example(meta, None)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        keep = False if asked.counted else asked.keep
        return new_collection(LazyMarks(source.inner, source, spec, keep, asked.grouping, example)) != 0
    chunk, plan = whole_chunk(frame, spec, LISTED_CLUSTERS)
    if not plan.meets:
        return example != 0
    block_pair = whole_block_pair(chunk, spec, plan.layout)
    return frames_for(meta).series(_marks(block_pair, asked), chunk["ids"], None)


@frame_verb(NearDuplicatedRequest)
def drop_near_duplicates(frame: Frame, asked: NearDuplicatedRequest) -> Frame:
    """The rows of a frame that are no near duplicates: as `pandas.DataFrame.drop_duplicates`.

    Parameters are those of `near_duplicated`, which tells the rows; those that `dropna` leaves out are left
    out here, too.

    Returns
    -------
    DataFrame
        With all columns, and the frame's index and partitions; lazy if the frame is.

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
    """
    spec = asked.spec(example_of(frame))
    marked = near_duplicated(frame, **vars(asked))
    if not asked.dropna:
        return frame[~marked]
    if is_dask_collection(frame):
        return frame.map_partitions(_staying, marked, spec, meta=frame._meta)
    return _staying(frame, marked, spec)


def _marks(block_pair: BlockPair, asked: NearDuplicatedRequest) -> Array:
    """Mark the rows (n,) bool of the only chunk that there is."""
    chunk, layout = block_pair.q, block_pair.layout
    if asked.counted:
        return count_block(block_pair, enough=1)[0] > 0
    if asked.grouping == CONNECTED:
        within = components_by_place(block_pair, all_cores(chunk))
        found = best_of_chunk(chunk, 0, asked.keep, 0, within, no_edges(block_pair.xp))
        return ~stays_in_chunk(chunk, found, found.candidates)
    order = None if asked.keep == FIRST else order_of_preference(preferences(chunk, asked.keep, 0))
    return ~stays_of_chunk(chunk, layout, order)


def _staying(frame: Frame, marked: Series, spec: JoinSpec) -> Frame:
    """Take the rows of a partition that stay, of which some have no mark."""
    kept = kept_rows(frame, spec)
    return (frame if kept is None else frame[kept])[(~marked).to_numpy()]


@frame_verb(RowIdRequest)
def with_row_id(frame: Frame, asked: RowIdRequest) -> Frame:
    """The frame with one more column: each row's number in the frame, from 0.

    Use it as ``id=`` where index labels repeat, as they do in a frame read from several
    parquet files, each of which counts its rows from 0.

    Parameters
    ----------
    name : str
        Of the new column (int64).  "row_id" is never taken for a coordinate by default.

    Returns
    -------
    DataFrame
        Lazy if the frame is: numbering the rows reads one column to count them.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> pd.DataFrame({"x": [5.0, 5.0]}, index=[7, 7]).simjoin.with_row_id()
         x  row_id
    7  5.0       0
    7  5.0       1
    """
    meta, name = example_of(frame), asked.name
    check_columns(meta)
    if not isinstance(name, str):
        raise OptionTypeError(f"name={shown(name)} is not a string; name the new column, such as {ROW_ID!r}.")
    if name in meta.columns:
        raise ColumnError(
            f"name={name!r} is a column already; use it with id={name!r}, or choose another name."
        )
    if not is_dask_collection(frame):
        return frame.assign(**{name: np.arange(len(frame), dtype=np.int64)})
    if not len(meta.columns):
        raise ColumnError("The frame has no column, so its rows cannot be numbered.")
    # one column stands for the rows, so that counting them reads no other; as a frame, since Dask takes the
    # name of a column alone, if it is a tuple, for several
    ones = frame[[meta.columns[0]]].map_partitions(_ones, meta=_ones(meta))
    return frame.assign(**{name: ones.cumsum() - 1})


def _ones(rows: Series) -> Series:
    return frames_for(rows).series(np.ones(len(rows), np.int64), rows.index, ROW_ID)
