"""Find rows whose sets match those of rows that stay, and leave them out."""

from __future__ import annotations

import functools

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.expressions.duplicates import CONNECTED
from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.examples import series_example
from dask_simjoin.expressions.source import freeze
from dask_simjoin.metrics.types import Array, Frame, Series
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.typed import frame_verb, series_verb
from dask_simjoin.planning.free_memory import free_memory
from dask_simjoin.sets.alike import (
    best_of_chunk,
    check_pairs,
    forest_of_block,
    marks_but,
    marks_of_groups,
    on_host,
    pairs_of_block,
    standing_rows,
)
from dask_simjoin.sets.expressions import joins
from dask_simjoin.sets.expressions.duplicates import SetNearDuplicated as LazyMarks
from dask_simjoin.sets.expressions.duplicates import stays_of_chunks
from dask_simjoin.sets.meeting import SetMeeting
from dask_simjoin.sets.pairs import count_block
from dask_simjoin.sets.requests import SetNearDuplicated
from dask_simjoin.sets.whole import whole_meeting, whole_sets


@series_verb(SetNearDuplicated)
def set_near_duplicated(frame: Frame, asked: SetNearDuplicated) -> Series:
    """Whether each row's set matches that of a row that stays: as `near_duplicated`, for texts, tags, items.

    Parameters
    ----------
    on, threshold, similarity, comparison, tokenizer
        When two rows are near: their sets match, as in `set_self_join`.
    keep : {"first", "last", False} or column
        Which row of near ones stays, and is False: the first in the frame, or the last; or the row with the
        largest value in a column of numbers, the first of those with the same (rows without a value come
        last).  False: none, every row that matches another is True.
    grouping : {"greedy", "connected"}
        "greedy": rows are gone through in order, and one is a duplicate if it matches a row that stays.  So
        no two rows that stay match, and each duplicate matches one that stays.  "connected": rows are in one
        group if matches connect them, and one row of each group stays, however unlike it is to others.
    allow_empty, allow_missing : bool
        Whether rows of empty sets are near each other, and rows without a set; otherwise these all stay.
    method, blocksize
        As in `set_self_join`.

    Returns
    -------
    Series
        bool, with the frame's index and partitions; lazy if the frame is.

    Raises
    ------
    BudgetError
        "greedy" chooses in one task that is told the pairs of distinct sets, which are too many.

    Notes
    -----
    The same for every partitioning.  Equal sets are joined once, and are one row to both groupings.
    "connected" lists no pairs.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"text": ["a b c d", "a b c d e", "b c d e", "x y"], "votes": [1, 2, 3, 4]})
    >>> how = {"on": "text", "threshold": 0.8, "tokenizer": "whitespace"}
    >>> df.simjoin.set_near_duplicated(**how).tolist()
    [False, True, False, False]
    >>> df.simjoin.set_near_duplicated(**how, grouping="connected").tolist()
    [False, True, True, False]
    >>> df.simjoin.set_near_duplicated(**how, keep="votes").tolist()
    [False, True, False, False]
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    example = series_example(meta, None)
    if is_dask_collection(frame):
        source = freeze(frame, spec.columns)
        common = source.inner, source, spec
        if asked.counted:
            return new_collection(joins.SetNeighborCounts(*common, example)) != 0
        return new_collection(LazyMarks(*common, asked.keep, asked.grouping, example)) != 0
    (chunk,) = whole_sets([frame], spec, False)
    gone = _marks(whole_meeting([chunk], spec), asked)
    return frames_for(meta).series(gone, frame.index, None)


@frame_verb(SetNearDuplicated)
def drop_set_near_duplicates(frame: Frame, asked: SetNearDuplicated) -> Frame:
    """The rows of a frame whose sets match none that stays: as `drop_near_duplicates`, for texts.

    Parameters are those of `set_near_duplicated`, which tells the rows.

    Returns
    -------
    DataFrame
        With all columns, and the frame's index and partitions; lazy if the frame is.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"text": ["a b c d", "a b c d e", "x y", "b c d a"]})
    >>> df.simjoin.drop_set_near_duplicates("text", 0.8, tokenizer="whitespace")
          text
    0  a b c d
    2      x y
    """
    return frame[~set_near_duplicated(frame, **vars(asked))]


def _marks(meeting: SetMeeting, asked: SetNearDuplicated) -> Array:
    """Mark the rows (n,) bool of the only chunk that there is."""
    chunk, spec = meeting.q, meeting.spec
    if asked.counted:
        return count_block(meeting)[0] > 0
    rows = standing_rows(chunk, spec, asked.keep)
    if asked.grouping == CONNECTED:
        forest = merge_edges(spec.library, forest_of_block(meeting, [rows]))
        best = best_of_chunk(rows, forest, spec.library)
        return marks_of_groups(chunk, rows, best, best.candidates) != 0
    check = functools.partial(check_pairs, room=free_memory(), asked=spec.asked)
    pairs = pairs_of_block(meeting, [rows], check)
    (stay,) = stays_of_chunks(spec.library, [on_host(rows)], pairs)
    return marks_but(chunk, rows, stay) != np.int64(0)
