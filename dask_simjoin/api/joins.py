"""Find all pairs of rows within a distance, in one table or between two."""

from __future__ import annotations

from dask_simjoin.calls import verbs
from dask_simjoin.calls.decorators import frame_verb
from dask_simjoin.calls.inputs import check_other
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest


@frame_verb(JoinRequest)
def join(frame: Frame, request: JoinRequest) -> Frame:
    """Find all pairs of a row of this frame and a row of `other` that are at most `eps`
    apart.

    Parameters
    ----------
    other : DataFrame
        The right table: a Dask DataFrame, or a plain frame of the same library. If
        either table is a Dask DataFrame, the result is lazy.
    eps : float, str or column
        Largest distance, finite and >= 0, in the units of the metric; see `self_join`.
        If it is the name of a column, each row of this frame has its own distance.
    how : {"inner", "left", "right", "outer", "leftsemi", "leftanti"}, default "inner"
        The rows of the result.

        - "inner": all pairs.
        - "left": all pairs, and the rows of this frame that have no match. Their
          `right` and `distance` are missing. Ids and kept columns of the right table
          get a nullable dtype, such as "Int64" for int64.
        - "right": all pairs, and the rows of `other` that have no match. Their `left`
          and `distance` are missing.
        - "outer": all pairs, and the rows of both tables that have no match.
        - "leftsemi": the rows of this frame that have a match, with all their columns.
        - "leftanti": the rows of this frame that have no match, with all their columns.
    matching : {"all", "greedy"}, default "all"
        "greedy": each row is in at most one pair. All pairs are sorted by distance, then
        by the order of their left rows, then of their right rows. A pair is taken unless
        one of its rows is in a pair that was taken before. The pairs come in this order.
        Without a pair, rows are as those without a match: see `how`, which cannot be
        "leftsemi" or "leftanti". For Dask DataFrames one task needs the row numbers of
        all pairs, and one the rows that have a partner. Only the ids of these rows are
        checked for repeated values.
    on : column or list of columns, optional
        The coordinates in both tables: numeric columns, or one column of lists as in
        `self_join`. Default: the numeric columns that both tables have, except ids.
    left_on, right_on : column or list of columns, optional
        The coordinates of each table in the same order, if their names differ.
    id, left_id, right_id : column, optional
        The columns that identify rows: one name for both tables, or one for each.
        Default: the index labels.
    return_distance : bool, default False
        Whether to add the column `distance`.
    distance_unit : str, optional
        As in `self_join`.
    keep : column, list of columns or dict, optional
        Columns of any dtype to copy into the result: of each table that has them, or
        with a dict such as ``{"left": "name", "right": ["rent"]}`` of one table. Names
        of columns of both tables get `suffixes`, as in `pandas.merge`.
    suffixes : pair of str, default ("_left", "_right")
        Suffixes for overlapping column names; "" for none.
    by : column or list of columns, optional
        Columns of both tables whose values must be equal, as in `self_join`. A column
        with different names is a pair, as in ``[("yob", "birth_year")]``. Columns whose
        values are never equal, such as dates and texts, raise `ColumnError`. If a Dask
        DataFrame stores such a column as text, objects in the column of a plain frame
        are compared as text, too.
    within : dict, optional
        Columns of both tables, and how far apart both rows may be in each, as in
        `self_join`. A key may be a pair of names, such as ``("time", "when")``. A range
        such as ``("-1 h", "0 h")`` is for the right row's value minus the left row's
        value. In ``(None, "0 h")`` the lower side is open.
    different : column or list of columns, optional
        Columns of both tables; both rows must differ in at least one of them. A column
        with different names is a pair, as in `by`.
    partitioning : {"auto", "entity", "spatial", "replicated"}, default "auto"
        As in `self_join`. "spatial" shuffles both tables into the same regions of
        space. Each row of `other` is copied to all regions within `eps`.
    metric, dropna, p, box, threads, blocksize, method, approximate
        As in `self_join`.

    Returns
    -------
    DataFrame
        One row per pair, in no particular order:

        - ``left`` and ``right``: the ids of the two rows, with the dtypes of the ids;
        - ``distance``: float64, in `distance_unit`, if `return_distance`;
        - the columns of `keep`.

        With "leftsemi" and "leftanti" the result has rows and columns of this frame.

    Raises
    ------
    UnsupportedFrameError
        The tables belong to different libraries.
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column is not allowed.
    CoordinateError, DuplicateIdError, BudgetError
        During planning; see `self_join`.
    SourceChangedError
        During the computation: a table changed after planning.

    Notes
    -----
    Each chunk is indexed once. Two chunks are compared only if their bounding boxes are
    within `eps`. The method follows the R-S join of LSS, but the result is exact. LSS
    is Lieberman, Sankaranarayanan & Samet 2008, "A fast similarity join algorithm using
    graphics processing units", section 3. "leftsemi" and "leftanti" do not build pairs.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> shops = pd.DataFrame({"x": [0.0, 5.0], "name": ["A", "B"]})
    >>> homes = pd.DataFrame({"x": [1.0, 9.0], "rent": [700, 800]}, index=["h", "i"])
    >>> shops.simjoin.join(homes, 1.0, on="x", keep=["name", "rent"])
       left right name  rent
    0     0     h    A   700

    The homes without a shop nearby:

    >>> homes.simjoin.join(shops, 1.0, on="x", how="leftanti")
         x  rent
    i  9.0   800

    All shops, and their distances to homes:

    >>> found = shops.simjoin.join(homes, 1.0, on="x", how="left", return_distance=True)
    >>> found.sort_values("left", ignore_index=True)
       left right  distance
    0     0     h       1.0
    1     1   NaN       NaN

    The closest pairs, with each row in at most one of them:

    >>> a = pd.DataFrame({"x": [0.0, 1.0]})
    >>> b = pd.DataFrame({"x": [0.8, 2.5]})
    >>> found = a.simjoin.join(b, 2.0, matching="greedy", return_distance=True)
    >>> found.round(1)
       left  right  distance
    0     1      0       0.2

    All shops and all homes:

    >>> shops.simjoin.join(homes, 1.0, on="x", how="outer", keep=["name", "rent"])
       left right name  rent
    0     0     h    A   700
    1     1   NaN    B  <NA>
    2  <NA>     i  NaN   800
    """
    check_other("join(other, eps)", request.other, eps=request.eps)
    return verbs.join(frame, request, DISTANCES)


@frame_verb(SelfJoinRequest)
def self_join(frame: Frame, request: SelfJoinRequest) -> Frame:
    """Find all pairs of rows that are at most `eps` apart.

    Parameters
    ----------
    eps : float, str or column
        Largest distance, finite and >= 0, in the units of the metric, which are usually
        the units of the columns. 0 finds equal rows. Some metrics accept text with a
        unit: lengths or angles for "haversine", such as "2 km" or "1 arcsec", and
        angles for "cosine", such as "5 deg". If it is the name of a column, each row
        has its own distance, and ``pairs="both"`` is required: the distance of the left
        row decides.
    on : column or list of columns, optional
        The coordinates: numeric columns, or one column of number lists of equal length,
        such as embeddings. Differences of coordinates are summed in the order of the
        columns. Default: all numeric columns except `id`, booleans and "row_id". The
        default raises `ColumnError` if an integer column is named like an identifier.
    metric : {"euclidean", "sqeuclidean", "manhattan", "chebyshev", "minkowski",
    "cosine", "haversine", "hamming", "canberra", "braycurtis"}
        The distance, "euclidean" by default. "cosine" is 1 minus the cosine of the
        angle between two rows. "haversine" is the distance on the Earth in meters: `on`
        names latitude and longitude, in this order and in degrees. Longitudes may be
        from -180 to 180, or from 0 to 360. "hamming" is the share of columns with
        different numbers. :doc:`/reference/metrics` has all formulas.
    id : column, optional
        The column that identifies rows in the result; its values must be unique.
        Default: the index labels.
    return_distance : bool, default False
        Whether to add the column `distance`.
    distance_unit : str, optional
        Unit of the column `distance`: a length or an angle for "haversine", such as
        "km" or "arcsec", and an angle for "cosine". Default: the unit in `eps`, and the
        unit of the metric if `eps` is a number. Distances are converted after pairs are
        decided, so pairs do not depend on the unit.
    keep : column, list of columns or dict, optional
        Columns of any dtype to copy into the result, for both rows of each pair, or with
        a dict such as ``{"left": "name", "right": ["name", "size"]}`` for one row.
    suffixes : pair of str, default ("_left", "_right")
        Suffixes of columns that are kept of both rows; "" for none.
    by : column or list of columns, optional
        Columns of any dtype whose values must be equal in both rows, such as a country
        or a day. Rows of different groups are not compared. Rows with a missing value
        raise an error, or have no partner with `dropna`. For a Dask DataFrame one more pass
        over these columns finds the distinct values, which must fit in memory.
    within : dict, optional
        Columns of numbers, times or dates, and how far apart both rows may be in each,
        such as ``{"time": "10 min", "price": "5 %"}``. See Notes, and
        :doc:`/guide/space-and-time`.
    different : column or list of columns, optional
        Columns of any dtype that identify a thing, such as a ship. Both rows must
        differ in at least one of them. A missing value equals a missing value.
    pairs : {"unique", "both"}, default "unique"
        "unique" returns each pair once; `left` is the row that comes first in the
        frame. "both" returns each pair in both directions.
    include_self : bool, default False
        Whether each row is also a pair with itself. Different rows with equal
        coordinates are always pairs.
    dropna : bool, default False
        Whether rows with a missing, NaN or infinite coordinate have no partner.
        Otherwise they raise `CoordinateError`. Results that have the rows of the input,
        such as a left join, keep these rows: see :doc:`/guide/missing-values`.
    p : int or float, default 2
        The power for "minkowski": a number from 1 on, or ``float("inf")``.
    box : float, list or dict, optional
        Length of a periodic box, a list with a length for each column of `on`, or a dict
        such as ``{"x": 1.0}``; None is for a column that is open, and a dict leaves out
        such columns. Coordinates are from 0 to the length. Distances are to the nearest
        image: the difference in a column is ``min(t, length - t)``, where t is the
        absolute difference.
    threads : int, optional
        Number of threads for a frame in memory. Default: the configuration value
        ``simjoin.threads``, or all cores that the process may use; outside the main
        thread 1. Results do not depend on it, but pairs may come in another order. A
        Dask DataFrame uses the threads of Dask instead.
    blocksize : int or str, optional
        Largest size of one chunk's coordinates and ids, and of one partition of the
        result: a number of bytes, or text such as "64 MiB". The configuration values
        ``simjoin.blocksize`` and ``simjoin.output-size`` replace the defaults, which
        are:

        - on a cluster, 1/12 of a worker's memory per thread, at most 1 GiB;
        - without a cluster, 1/12 of this machine's memory per thread, from 128 MiB to 1
          GiB, for a chunk, and 128 MiB for a partition of the result. One chunk of all
          rows may take a fifth of the memory;
        - on GPUs, 1/12 of the GPU's memory, at most 12 GiB for a chunk. Verbs that
          return no pairs put all rows into one chunk if it fits in three quarters of
          the memory, with its index and its results.
    partitioning : {"auto", "entity", "spatial", "replicated"}, default "auto"
        How the rows of a Dask DataFrame are divided into chunks; see Notes. All choices
        return the same pairs. "auto" chooses the fastest one by a cost estimate; on
        GPUs it chooses "replicated" if all rows fit in one chunk.
    method : str or object, default "auto"
        The algorithm within a chunk. All methods return the same pairs, and "auto"
        chooses a fast one. Other methods are for research: see :doc:`/methods`.
    approximate : bool, default False
        For research: whether a method may miss pairs; see :doc:`/methods`.

    Returns
    -------
    DataFrame
        One row per pair, in no particular order; lazy if the frame is a Dask DataFrame:

        - ``left`` and ``right``: the ids of the two rows, with the dtype of the ids;
        - ``distance``: float64, in `distance_unit`, if `return_distance`;
        - the columns of `keep`.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column is not allowed.
    CoordinateError, DuplicateIdError
        During planning: a coordinate is missing, infinite or not exact in float64, or
        ids repeat.
    BudgetError
        During planning, before any pair is computed: a chunk or the result needs more
        memory than available.
    SourceChangedError
        During the computation: the rows or coordinates of a partition changed after
        planning.

    Warns
    -----
    UnitsWarning, ColumnsWarning
        During planning: the data suggest that `eps` or the coordinates have other
        units, such as radians, or that columns chosen by default are not coordinates.
    ApproximateWarning
        During planning: `approximate` is set, so pairs may be missing.

    Notes
    -----
    *Input.* As a function, ``dask_simjoin.self_join(frame, ...)`` also accepts arrays
    (n, d) of NumPy, CuPy and Dask, and tables of Arrow, polars and DuckDB. A GeoPandas
    frame needs no `on`: its points are the coordinates. Longitude and latitude are
    joined by "haversine", in meters, and projected points in the units of their
    projection. All verbs accept these inputs.

    *Chunks.* A chunk is a group of rows with one index. `partitioning` decides which
    rows it has:

    - "entity": rows keep their order in the frame. Small partitions are merged, and
      large ones are split. Two chunks are compared unless their bounding boxes are
      further apart than `eps`.
    - "spatial": rows are first shuffled into regions of space with about equally many
      rows. Each region also gets copies of the rows around it, so it can be joined
      without other regions. The work grows linearly with the data.
    - "replicated": all rows are one chunk, which every worker builds. Each task finds
      the neighbors of its share of the rows.

    :doc:`/explanation/chunks-and-partitionings` compares them.

    *Tolerances.* A value of `within` is a number, a percentage, a duration or a range:

    - A number ``w`` allows ``|b - a| <= w``, where the difference is rounded to float64.
    - "5 %" allows ``|b - a| <= 0.05 * max(|a|, |b|)``, where the difference and the
      product are rounded to float64.
    - For times, dates and time spans of any unit, a duration such as "10 min" or a
      `Timedelta` is compared exactly, as integers.
    - A range ``(low, high)`` of numbers or durations allows ``low <= b - a <= high``,
      where a belongs to the left row and b to the right row. If it is not the same in
      both directions, ``pairs="both"`` is required.

    Rows with a missing value raise an error, or have no partner with `dropna`, as rows
    without coordinates. Pairs that the tolerances exclude are never built.

    *Partitions of the result* have about `blocksize` bytes or less, however many pairs
    two chunks have. If the plan expects more bytes, the work is split. Pairs per row
    are counted first, unless rows have similar numbers of neighbors and the whole
    result takes at most a quarter of a thread's memory. Partitions may then be somewhat
    larger.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 5.0]})
    >>> df.simjoin.self_join(1.0, return_distance=True)
       left  right  distance
    0     0      1       1.0

    A lazy join of a Dask DataFrame, with names from a column:

    >>> import dask.dataframe as dd
    >>> ddf = dd.from_pandas(df.assign(name=["a", "b", "c"]), npartitions=2)
    >>> pairs = ddf.simjoin.self_join(4.0, id="name")
    >>> pairs.compute().sort_values("left", ignore_index=True)
      left right
    0    a     b
    1    b     c

    Places within 50 km of each other; coordinates are in degrees:

    >>> cities = pd.DataFrame({
    ...     "city": ["Bonn", "Cologne", "Berlin"],
    ...     "lat": [50.73, 50.94, 52.52],
    ...     "lon": [7.10, 6.96, 13.40],
    ... })
    >>> near = cities.simjoin.self_join(
    ...     "50 km", on=["lat", "lon"], metric="haversine", id="city", return_distance=True
    ... )
    >>> near.round(1)
       left    right  distance
    0  Bonn  Cologne      25.3
    """
    return verbs.self_join(frame, request, DISTANCES)
