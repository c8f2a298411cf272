"""Find the pairs of two tables: lazily if one of them is a Dask DataFrame, else at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions import pairs
from dask_simjoin.expressions.counts import MatchCounts
from dask_simjoin.expressions.dask_private import new_collection
from dask_simjoin.expressions.examples import pairs_example, series_example
from dask_simjoin.expressions.source import freeze
from dask_simjoin.expressions.two_tables import check_other, same_library
from dask_simjoin.metrics.types import Array, Frame, Series
from dask_simjoin.options.requests import ANTI, LEFT, SEMI, Join
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.options.typed import frame_verb
from dask_simjoin.planning.doubts import raise_if_none
from dask_simjoin.planning.free_memory import within_memory
from dask_simjoin.planning.goal import COUNTS, PAIRS
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.planning.whole import WholePlan
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.pairs import join_block, unmatched, unmatched_rows
from dask_simjoin.tasks.whole import whole_chunks


@frame_verb(Join)
def join(frame: Frame, asked: Join) -> Frame:
    """Every pair of a row of this frame and a row of `other` within `eps` of each other.

    Parameters
    ----------
    other : DataFrame
        The right table: Dask's, or a plain one of the same library.  If either is a Dask DataFrame, the
        result is one.
    eps : float or column
        Largest distance, finite and >= 0.  The name of a column of this frame: each row's own.
    how : {"inner", "left", "leftsemi", "leftanti"}
        "inner": the pairs.  "left": also the rows of this frame that are in no pair, with a missing
        `right` and `distance`; ids and kept columns of the right table are then of dtypes that can be
        missing ("Int64" for int64).  "leftsemi", "leftanti": this frame's own rows, with all columns,
        that are in a pair, or in none; no pair is materialised.
    on : column or list of columns, optional
        The coordinates, of both tables: columns of numbers, or one of lists as in `self_join`.  Default:
        the numeric columns that both have, besides ids.
    left_on, right_on : column or list of columns, optional
        The same where they are called otherwise in the two tables, in the same order.
    by : column or list of columns, optional
        As of `self_join`, with the same names in both tables.  Dtypes without a common value are refused;
        beside a Dask DataFrame that holds texts, objects of a plain one are compared as texts.
    id, left_id, right_id : column, optional
        The columns that name rows, of both tables or of each.  Default: index labels.
    keep : column or list of columns, optional
        Columns whose values the result has, of any dtype.  As in `pandas.merge`, those that both tables
        have are told apart by `suffixes`.
    suffixes : pair of str
    metric, p, return_distance, dropna, method, approximate, partitioning, blocksize
        As of `self_join`.  "spatial" shuffles both tables into the same regions of space, the right one's
        rows to all regions within `eps` of them.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right`` (ids of the two tables), ``distance`` if asked for, and what is kept;
        for "leftsemi" and "leftanti" rows of this frame.

    Raises
    ------
    UnsupportedFrameError
        The tables are of two libraries.
    OptionError, OptionTypeError, ColumnError, CoordinateError, DuplicateIdError, BudgetError
        As `self_join` and its planning do.

    Notes
    -----
    Both tables are put in order, once each chunk, and block pairs of chunks whose boxes are within
    `eps` meet, as in the R-S join of LSS (Lieberman, Sankaranarayanan & Samet 2008, "A fast similarity
    join algorithm using graphics processing units", section 3), but exactly.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> shops = pd.DataFrame({"x": [0.0, 5.0], "name": ["A", "B"]})
    >>> homes = pd.DataFrame({"x": [1.0, 9.0], "rent": [700, 800]}, index=["h", "i"])
    >>> shops.simjoin.join(homes, 1.0, on="x", keep=["name", "rent"])
       left right name  rent
    0     0     h    A   700
    >>> homes.simjoin.join(shops, 1.0, on="x", how="leftanti")
         x  rent
    i  9.0   800
    """
    check_other("join(other, eps)", asked.other, eps=asked.eps)
    frame, other, left, right = same_library(frame, asked.other)
    spec = asked.spec(left, right)
    if asked.how in (SEMI, ANTI):
        return semi_or_anti(frame, other, spec, asked.how == SEMI)
    example = pairs_example(left, right, spec, asked.how == LEFT)
    if is_dask_collection(frame):
        source, data = freeze(frame, spec.columns), freeze(other, spec.right.columns)
        return new_collection(pairs.Join(source, data, spec, asked.how, example))
    (q, d), plan = whole_chunks((frame, other), spec, PAIRS)
    if not plan.meets:
        return unmatched(q, 0, spec, example) if asked.how == LEFT else example
    like = alone = None
    if asked.how == LEFT:
        like, alone = example, unmatched_rows(q, _counts(q, d, spec, plan), spec, example)
    with within_memory(spec.asked):
        meeting = Meeting(q, d, False, spec, plan.layout)
        found = join_block(meeting, list(example.columns), like=like, alone=alone)
    raise_if_none(plan.doubts, len(found) - (0 if alone is None else alone[0]))
    return found


def _counts(q: Chunk, d: Chunk, spec: JoinSpec, plan: WholePlan) -> Array | int:
    """How many rows of the right table are near each row of the left one, by position."""
    return count_block(Meeting(q, d, False, spec, plan.layout))[0] if plan.meets else 0


def semi_or_anti(frame: Frame, other: Frame, spec: JoinSpec, matched: bool) -> Frame:
    """The rows of the left table that are in a pair, or (not `matched`) in none."""
    if spec.dropna:
        frame = _finite(frame, spec)
        spec = replace(spec, dropna=False)
    if not is_dask_collection(frame):
        (q, d), plan = whole_chunks((frame, other), spec, COUNTS)
        counts = _counts(q, d, spec, plan)
        if isinstance(counts, int):
            counts = frames_for(frame).xp.zeros(len(frame), np.int64)
        return frame[(counts > 0) if matched else (counts == 0)]
    source, data = freeze(frame, spec.columns), freeze(other, spec.right.columns)
    meta = frame._meta
    example = series_example(meta, "matches")
    counted = new_collection(MatchCounts(source.inner, source, data, spec, example))
    return frame[(counted > 0) if matched else (counted == 0)]


def _finite(frame: Frame, spec: JoinSpec) -> Frame:
    """The rows that take part; in Dask by a filter, beneath which only columns that are needed are read."""
    if not is_dask_collection(frame):
        kept = points(frame, spec)[1]
        return frame if kept is None else frame[kept]
    own = frame[[name for name in frame.columns if name in spec.on]]
    example = series_example(frame._meta, "taken", np.bool_)
    return frame[own.map_partitions(_taken, spec, meta=example)]


def _taken(frame: Frame, spec: JoinSpec) -> Series:
    """Tell of each row whether it takes part."""
    kept, frames = points(frame, spec)[1], frames_for(frame)
    if kept is None:
        kept = frames.xp.ones(len(frame), np.bool_)
    return frames.series(kept, frame.index, "taken")
