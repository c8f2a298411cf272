"""Find all pairs within a distance, in one table or between two; lazily for Dask DataFrames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph import pairs
from dask_simjoin.graph.base import pairs_example, series_example
from dask_simjoin.graph.counts import MatchCounts
from dask_simjoin.graph.dask_private import new_collection
from dask_simjoin.graph.source import freeze
from dask_simjoin.graph.steps import check_other, same_library
from dask_simjoin.graph.verb import frame_verb
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.budget import within_memory
from dask_simjoin.planning.data_warnings import raise_if_none
from dask_simjoin.planning.outputs import COUNTS, PAIRS
from dask_simjoin.planning.plan import WholePlan
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.requests import ANTI, LEFT, SEMI, JoinRequest, SelfJoinRequest
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk, whole_chunk, whole_chunks
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.matches import BlockPair, whole_block_pair
from dask_simjoin.tasks.pairs import join_block, unmatched, unmatched_rows


@frame_verb(JoinRequest)
def join(frame: Frame, asked: JoinRequest) -> Frame:
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
    with within_memory(spec.request):
        block_pair = BlockPair(q, d, False, spec, plan.layout)
        found = join_block(block_pair, list(example.columns), like=like, alone=alone)
    raise_if_none(plan.data_warnings, len(found) - (0 if alone is None else alone[0]))
    return found


def _counts(q: Chunk, d: Chunk, spec: JoinSpec, plan: WholePlan) -> Array | int:
    """How many rows of the right table are near each row of the left one, by position."""
    return count_block(BlockPair(q, d, False, spec, plan.layout))[0] if plan.meets else 0


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


@frame_verb(SelfJoinRequest)
def self_join(frame: Frame, asked: SelfJoinRequest) -> Frame:
    """Every pair of rows within `eps` of each other.

    Parameters
    ----------
    eps : float, text or column
        Largest distance, finite and >= 0, in the units of the metric: with most those of the columns.
        0 finds duplicates.  Text with a unit, where the metric has one: of "haversine" lengths or angles,
        such as "2 km" and "1 arcsec", of "cosine" angles, such as "5 deg".  The name of a column: each
        row's own; ``pairs="both"`` is needed then, and a row is the left one of those within its own
        distance.
    on : column or list of columns, optional
        The coordinates, in the order in which their differences' powers are summed; or one column of
        lists of numbers of equal length, such as embeddings.  Default: all numeric columns besides
        `id`, booleans and "row_id"; integers that are identifiers by their names are refused then.
    by : column or list of columns, optional
        Columns of any dtype that must be equal in both rows, such as a country or a day.  Rows without a
        value are refused, or left out by `dropna`.  Within groups distances are as ever, to the last bit,
        and rows of other groups are not compared.  A Dask DataFrame's distinct values are found by one more
        pass over these columns, and must fit memory.
    id : column, optional
        The column that names rows in the result; its values must be unique.  Default: the
        index labels.
    metric : {"euclidean", "sqeuclidean", "manhattan", "chebyshev", "minkowski", "cosine", "haversine"}
        What a distance is; the formulas are in `dask_simjoin.metrics`.  "cosine": one minus the cosine
        of the angle between rows.  "haversine": `on` names latitude and longitude, in this order and
        in degrees, and distances are in metres; longitudes go to 180 or to 360.
    p : int or float
        Of "minkowski": 1, 2, 3, ... or ``float("inf")``.
    pairs : {"unique", "both"}
        "unique": each pair once, `left` being the row that comes first in the frame.
        "both": in both directions.
    include_self : bool
        Whether each row is a pair with itself.  Rows with equal coordinates always are pairs.
    return_distance : bool
        Whether to add the column `distance`.
    keep : column or list of columns, optional
        Columns whose values the result has, of any dtype, of both rows.
    suffixes : pair of str
        What the names of those end in.
    dropna : bool
        Whether to leave out rows with a missing, NaN or infinite coordinate.
    method : {"auto", "sweep", "tiles", "grid", "nested_loop", "zorder", "kmeans"} or an object
        Or an object of `dask_simjoin.methods`.
        The engine: a row sweep over an eps-grid for up to 4 dimensions, or tiles for any
        number; on GPUs tiles.  For comparison "grid": the grid joins of two papers,
        "nested_loop": each row with each, "zorder": lists in Z-order, and "kmeans":
        clusters with windows at their borders; as an object it takes options, such as
        ``methods.Grid(indexed=4)``.  All give the same pairs.
    approximate : bool
        With ``method="kmeans"``: whether to leave out pairs of rows of two clusters, for which rows
        near a border are copied otherwise.  `plan` and `profile` tell how many are found.
    partitioning : {"auto", "entity", "spatial", "replicated"}
        Of a Dask DataFrame.  "entity": rows stay with the rows next to them; small partitions
        are joined together and large ones cut, and every chunk meets every other, unless their
        boxes are further apart than `eps`.  "spatial": rows are shuffled into regions of about
        as many rows first, so that work grows with the data and not with its square.
        "replicated": all rows are one chunk, which workers copy, and each task takes some of its
        queries.  "auto": on GPUs "replicated" if a chunk holds all rows; else entity or spatial
        chunks, whichever are expected to be faster.  All give the same pairs.
    blocksize : int or str, optional
        Memory of one chunk's coordinates and ids, and of one partition of the result, such as
        "64 MiB".  Default: 1/12 of what each thread of a worker has, at most 1 GiB; without a
        cluster of what each thread has, 128 MiB to 1 GiB, and 128 MiB of a result; on GPUs 1/12
        of a GPU's memory, and for a chunk at most 12 GiB.  The configuration's
        ``simjoin.blocksize`` and ``simjoin.output-size`` change the defaults.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right`` (the ids' dtype) and, if asked for, ``distance``
        (float64); lazy if the frame is.  The order of rows is not specified.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column that is not allowed.
    CoordinateError, DuplicateIdError
        When planned: coordinates that are no finite float64 number, ids that repeat.
    BudgetError
        When planned: a chunk or the result needs more memory than there is.  Nothing of the
        join has run by then.
    SourceChangedError
        When computed: a partition has another number of rows, or coordinates in another range,
        than when the join was planned.

    Warns
    -----
    UnitsWarning, ColumnsWarning, ApproximateWarning
        When planned: the data tell that `eps` or the coordinates are in other units, such as radians,
        or that integers which no `on` named are no coordinates; or pairs may be left out, as was asked for.

    Notes
    -----
    As a function of the package it also takes, in place of the frame, arrays (n, d) of NumPy, CuPy and Dask
    and all that streams Arrow's batches: tables of Arrow, polars and DuckDB; so do the other verbs.  Points
    of GeoPandas are their own coordinates: in degrees by "haversine", in metres, and projected ones in the
    units of their system.

    Partitions of the result are at most about as large as `blocksize`, however many pairs a
    block pair gives: by the estimate of the plan it is cut into several partitions, at places
    that its exact numbers of pairs give (as the batches of GPU-Join, section 5, bound a
    result, but balanced).

    The grid follows GPU-Join (Gowanlock & Karsin, "GPU-accelerated similarity self-join for
    multi-dimensional data", section 4): only non-empty cells, and half of the neighbours.

    On GPUs tiles of points in kd order meet where their boxes are within `eps`, 64 or 128 points
    against 64 or 256 at a time, so that units of work are equal, which Gallet & Gowanlock (2019,
    "Load imbalance mitigation optimizations for GPU-accelerated similarity joins") reach by sorting
    cells by workload.  From 9 dimensions tensor cores tell most pairs apart, in float16 with a bound
    on its error: see `dask_simjoin.engine.filters.float16` and, above 200,
    `dask_simjoin.engine.filters.tensor_cores`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0]})
    >>> df.simjoin.self_join(1.0, return_distance=True)
       left  right  distance
    0     0      1       1.0
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    example = pairs_example(meta, meta, spec)
    if is_dask_collection(frame):
        return new_collection(pairs.SelfJoin(freeze(frame, spec.columns), spec, example))
    chunk, plan = whole_chunk(frame, spec, PAIRS)
    if not plan.meets:
        return example
    with within_memory(spec.request):
        found = join_block(whole_block_pair(chunk, spec, plan.layout), list(example.columns))
    raise_if_none(plan.data_warnings, len(found))
    return found
