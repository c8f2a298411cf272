"""Find the nearest rows of each row, in the same table or in another."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for, searcher_for
from dask_simjoin.errors import UnitsWarning
from dask_simjoin.graph.inputs import check_other, one_or_two
from dask_simjoin.graph.verb import (
    frame_verb,
    nearest_example,
    series_example,
    series_verb,
)
from dask_simjoin.metrics.distances import Haversine
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.budget import check_room
from dask_simjoin.planning.checks import RANK_BYTES
from dask_simjoin.planning.data_warnings import (
    KILOMETERS,
    MIN_ROWS,
    DataWarning,
    far_from_max_distance,
    raise_warnings,
    small_distance,
)
from dask_simjoin.planning.outputs import nearest_output, rows_found
from dask_simjoin.planning.partition import points
from dask_simjoin.planning.plan import Plan
from dask_simjoin.planning.resources import plain_threads
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.messages import shown
from dask_simjoin.request.requests import (
    ANTI,
    LEFT,
    KDistancesRequest,
    KnnJoinRequest,
    NearestHow,
)
from dask_simjoin.request.resolve import check_flag
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.request.units import as_number
from dask_simjoin.tasks.chunks import whole_chunk, whole_chunks
from dask_simjoin.tasks.left_out import for_all_rows, rows_of
from dask_simjoin.tasks.nearest import (
    ANY_TOTAL,
    Totals,
    find_rows,
    has_neighbor,
    kth_distance,
    mutual_state,
    nearest_or_missing,
    nearest_rows,
    search_chunk,
    state_of_all_rows,
    whole_rows,
)
from dask_simjoin.tasks.ties import ties_in, with_ties

DISTANCES = "k_distance"
"""Name of the Series that `k_distances` returns."""

NEIGHBOR_BYTES = 16
"""Bytes per neighbor that a search needs: a total and an id."""

REVERSE_BYTES = 4
"""Bytes per neighbor that `mutual` needs to compare both directions."""

MERGE_COPIES = 3
"""Number of copies of the result that are in memory while results are merged."""


@series_verb(KDistancesRequest)
def k_distances(frame: Frame, request: KDistancesRequest) -> Series:
    """Return the distance from each row to its k-th nearest neighbor.

    A plot of the sorted distances has a knee where clusters end, which helps to choose
    the `eps` of `dbscan`.

    Parameters
    ----------
    k : int
        Rank of the neighbor, at least 1; a row is not its own neighbor. For `dbscan`
        use ``min_samples - 1``.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    distance_unit : str, optional
        Unit of the distances, as in `self_join`. Default: the unit of the metric.
    on, metric, p, dropna, partitioning, blocksize
        As in `self_join`; "replicated" is not supported.

    Returns
    -------
    Series
        A float64 Series "k_distance" in `distance_unit`, with the index and partitions
        of the frame. The values are inf if the frame has k rows or fewer, and NaN for
        rows that `dropna` leaves out. The result is lazy if the frame is.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, CoordinateError, BudgetError,
    SourceChangedError
        As in `self_join`.

    Notes
    -----
    With ``k = min_samples - 1``, the value of a row is the smallest `eps` that makes it
    a core row of `dbscan`, except for rounding. See Ester, Kriegel, Sander & Xu (1996),
    "A density-based algorithm for discovering clusters in large spatial databases with
    noise", section 4.2. `dask_simjoin.cluster.plots.plot_k_distances` draws the sorted
    distances:

    .. image:: /images/k-distances.png
       :alt: Distances to the seventh other place, sorted: a steep fall, then a gentle
          slope

    Rows are divided into chunks, see `self_join`. A sample gives an upper bound of the
    distances. So each chunk searches only chunks within that bound, the nearest first.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 2.0, 9.0]})
    >>> df.simjoin.k_distances(2).tolist()
    [2.0, 1.0, 2.0, 8.0]

    The largest distances first, as in the plot:

    >>> df.simjoin.k_distances(1).sort_values(ascending=False).tolist()
    [7.0, 1.0, 1.0, 1.0]
    """
    meta = example_of(frame)
    searcher_for(meta)
    number = request.number()
    spec = request.spec(meta)
    frames = frames_for(meta)
    example = series_example(meta, DISTANCES, np.float64)
    if is_dask_collection(frame):
        from dask_simjoin.graph import nearest as lazy
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        return new_collection(
            lazy.KDistances(source.inner, source, spec, number, example)
        )
    threads = plain_threads()
    chunk, plan = whole_chunk(frame, spec, nearest_output(number), threads=threads)
    if number >= plan.rows:  # no row has k neighbors, so all distances are inf
        distances = frames.xp.full(len(chunk["ids"]), math.inf)
    else:
        how = plan.layout, number, (0, 0)
        state = search_chunk(chunk, chunk, *how, threads=threads)
        distances = kth_distance(state, number, spec)
    return frames.series(*for_all_rows(distances, frame, spec, math.nan), DISTANCES)


@frame_verb(KnnJoinRequest)
def knn_join(frame: Frame, request: KnnJoinRequest) -> Frame:
    """Find the `k` nearest rows of each row, exactly.

    Parameters
    ----------
    other : DataFrame, optional
        The table to search. Default: this frame, where no row is its own neighbor.
    k : int, default 10
        Maximum number of neighbors of a row, except for `ties`. A row has fewer if
        there are not enough rows within `max_distance`.
    max_distance : float or str, optional
        Largest distance of a neighbor. It may have a unit, like `eps` of `self_join`.
        Default: no limit.
    min_distance : float or str, optional
        Smallest distance of a neighbor. It may have a unit, like `max_distance`. Nearer
        rows are not neighbors. Rows at exactly `min_distance` or `max_distance` are
        neighbors. cuDF frames, ``method="zorder"`` and `approximate` do not support it.
        Default: no limit.
    how : {"inner", "left", "leftanti"}, default "inner"
        The rows of the result.

        - "inner": all neighbors.
        - "left": all neighbors, and the rows of this frame that have no neighbor. Their
          `right`, `rank` and `distance` are missing. Dtypes of missing values are as in
          `join`; `rank` becomes "Int64".
        - "leftanti": the rows of this frame that have no neighbor, with all their
          columns.
    mutual : bool, default False
        Whether to keep only mutual neighbors: each row is among the `k` nearest
        neighbors of the other row. With ``k=1`` these are mutual best matches. It
        requires ``how="inner"``.
    ties : {"first", "all"}, default "first"
        Which rows to return if several rows are at the distance of the `k`-th neighbor.

        - "first": the rows that come first in their frame, so that there are `k`
          neighbors.
        - "all": all of them. A row then has more than `k` neighbors, and their ranks
          continue. With `mutual`, two rows are mutual neighbors if each is among all
          neighbors of the other. cuDF frames and ``method="zorder"`` do not support it.
    distance_unit : str, optional
        Unit of the column `distance`, as in `self_join`. Default: the unit in
        `max_distance`, else the unit in `min_distance`, else the unit of the metric.
    by : column or list of columns, optional
        Columns whose values must be equal in both rows, as in `self_join`. It requires
        `max_distance`.
    on, left_on, right_on, id, left_id, right_id, keep, suffixes
        As in `join`, and without `other` as in `self_join`.
    metric, p, dropna, blocksize
        As in `self_join`.
    partitioning : {"auto", "entity", "spatial"}, default "auto"
        As in `self_join`. With "spatial" each row belongs to one region only.
    method : {"auto", "tiles", "zorder"} or methods.ZOrder, default "auto"
        "tiles" searches groups of nearby rows with bounding boxes. "zorder" searches
        lists in Z-order; it is a published method for comparison. Both find the same
        rows.
    approximate : bool, default False
        With ``method="zorder"``, whether to search only the neighbors of a row in each
        sorted list. Nearest rows may then be missed, and the result depends on the
        chunks. ``profile(k=...)`` measures the share of nearest rows that is found.

    Returns
    -------
    DataFrame
        One row per neighbor; lazy if one of the tables is:

        - ``left`` and ``right``: the ids of the row and of its neighbor, with the
          dtypes of the ids;
        - ``rank``: int64, 1 for the nearest neighbor;
        - ``distance``: float64, in `distance_unit`;
        - the columns of `keep`.

        Each partition is sorted by the order of the left rows, and then by rank. With
        `mutual` only plain pandas frames keep this order. With "leftanti" the result
        has rows and columns of this frame.

    Raises
    ------
    UnsupportedFrameError, OptionError, OptionTypeError, ColumnError
        At the call; see `join`.
    CoordinateError, DuplicateIdError, BudgetError
        During planning; see `join`.
    SourceChangedError
        During the computation: a table changed after planning.

    Notes
    -----
    If two neighbors are at the same distance, the one that comes first in its frame has
    the lower rank. So results do not depend on partitions or machines. Each chunk
    searches the chunks that may have neighbors, the nearest first. The search distance
    of a row shrinks when neighbors are found. A bound from a sample selects the chunks
    to search, and ``plan(k=..., other=...)`` shows their number. This is a best-first
    search (Hjaltason & Samet 1999, "Distance browsing in spatial databases", section
    4), applied to blocks of rows. `mutual` searches in both directions, and keeps the
    pairs of ids that both searches find.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"x": [0.0, 1.0, 3.0]})
    >>> df.simjoin.knn_join(k=1)
       left  right  rank  distance
    0     0      1     1       1.0
    1     1      0     1       1.0
    2     2      1     1       2.0

    All rows at the distance of the nearest one:

    >>> pd.DataFrame({"x": [1.0, 0.0, 2.0]}).simjoin.knn_join(k=1, ties="all")
       left  right  rank  distance
    0     0      1     1       1.0
    1     0      2     2       1.0
    2     1      0     1       1.0
    3     2      0     1       1.0

    Only mutual neighbors:

    >>> df.simjoin.knn_join(k=1, mutual=True)
       left  right  rank  distance
    0     0      1     1       1.0
    1     1      0     1       1.0

    The nearest shop of each home, at most 3 away:

    >>> shops = pd.DataFrame({"x": [2.0, 8.0], "name": ["A", "B"]})
    >>> homes = pd.DataFrame({"x": [1.0, 3.0, 20.0]}, index=["g", "h", "i"])
    >>> homes.simjoin.knn_join(shops, k=1, max_distance=3.0, on="x", keep="name")
      left  right  rank  distance name
    0    g      0     1       1.0    A
    1    h      0     1       1.0    A

    All homes with their nearest shop, and the homes without a shop that is near enough:

    >>> homes.simjoin.knn_join(shops, k=1, how="left", max_distance=3.0, on="x", keep="name")
      left  right  rank  distance name
    0    g      0     1       1.0    A
    1    h      0     1       1.0    A
    2    i   <NA>  <NA>       NaN  NaN
    >>> homes.simjoin.knn_join(shops, k=1, how="leftanti", max_distance=3.0, on="x")
          x
    i  20.0
    """
    if request.other is not None:
        check_other("knn_join(other, k)", request.other, k=request.k)
    mutual = check_flag("mutual", request.mutual)
    if not mutual or (_on_host(frame, request.other) and not request.all_ties):
        return _nearest(frame, request)
    found = _nearest(frame, request)
    if request.other is None:
        reverse = found
    else:
        sides = {
            f"left_{name}": getattr(request, f"right_{name}") for name in ("on", "id")
        }
        sides |= {
            f"right_{name}": getattr(request, f"left_{name}") for name in ("on", "id")
        }
        reverse = _nearest(
            request.other, replace(request, other=frame, keep=None, **sides)
        )
    swapped = reverse[["right", "left"]].rename(
        columns={"right": "left", "left": "right"}
    )
    return found.merge(swapped, on=["left", "right"])


def check_neighbors(
    plan: Plan,
    number: int,
    totals: Totals,
    device: int | None,
    what: str,
    mutual: bool = False,
    with_alone: bool = False,
) -> None:
    """Raise an error if neighbors of plain frames do not fit into the free memory: see
    `nearest`.

    `device`: as in `check_room`. `with_alone`: whether the result has rows without a
    neighbor.
    """
    rows = plan.rows_found(number)
    row_bytes = plan.result.pair_bytes + RANK_BYTES if totals == ANY_TOTAL else 0.0
    # usually the arrays of the search become the result, but in these cases they are
    # copied
    if device is not None or with_alone:
        row_bytes = (NEIGHBOR_BYTES + row_bytes) * (
            MERGE_COPIES if mutual or with_alone else 1
        )
    elif mutual:
        rows = max(rows, rows_found(plan.tables.rows[::-1], number))
        row_bytes = max(NEIGHBOR_BYTES + REVERSE_BYTES, row_bytes)
    else:
        row_bytes = max(NEIGHBOR_BYTES, row_bytes)
    check_room(rows, row_bytes, what, False, device)


def _on_host(frame: Frame, other: Frame | None) -> bool:
    """Return whether both tables are plain frames in host memory."""
    plain = not (is_dask_collection(frame) or is_dask_collection(other))
    return plain and frames_for(example_of(frame)).memory() is None


def _nearest(frame: Frame, request: KnnJoinRequest) -> Frame:
    """Find the nearest rows of each row.

    With `mutual`, return only mutual neighbors for plain frames in host memory. For
    other frames, return all neighbors; the caller selects the mutual ones.
    """
    number = request.number()
    frame, other, left, right = one_or_two(frame, request.other)
    spec = request.spec(left, right)
    searcher_for(left)
    totals = request.min_total(spec), request.max_total(spec)
    if request.how == ANTI:
        found = _without_neighbor(frame, other, spec, totals)
    else:
        what = f"k={shown(request.k)}"
        found = nearest(
            frame,
            other,
            spec,
            number,
            totals,
            what,
            request.mutual,
            request.how,
            request.all_ties,
        )
    plain = [frame] if other is None else [frame, other]
    # NaN if `max_distance` is missing or has a unit; then there is no warning
    far = as_number(request.max_distance)
    if all(isinstance(one, pd.DataFrame) for one in plain) and far > 0:
        _warn_if_far(found, plain, spec, far, request.how)
    return found


def _warn_if_far(
    found: Frame, plain: list[Frame], spec: JoinSpec, far: float, how: NearestHow
) -> None:
    """Warn if `max_distance` may be in kilometers or degrees instead of meters: it is
    very small, or no row has a neighbor.
    """
    if how == ANTI:
        some = len(found) < len(plain[0])
    else:
        some = found["rank"].notna().any() if how == LEFT else len(found) > 0
    is_small = KILOMETERS[0] <= far < KILOMETERS[1]
    if spec.metric != Haversine.name or min(map(len, plain)) < MIN_ROWS:
        return
    if some and not is_small:
        return
    specs = [spec] if len(plain) == 1 else [spec, spec.right]
    each = [points(frame, own) for frame, own in zip(plain, specs, strict=True)]
    x = [all_rows if kept is None else all_rows[kept] for all_rows, kept in each]
    text = "" if some else far_from_max_distance(x[0], x[-1], spec, far)
    if not text and is_small:
        lower, upper = (
            choose([choose(rows[:, :3], axis=0) for rows in x], axis=0)
            for choose in (np.min, np.max)
        )
        text = small_distance("max_distance", far, spec, lower, upper)
    if text:
        raise_warnings([DataWarning(UnitsWarning(text))])


def nearest(
    frame: Frame,
    other: Frame | None,
    spec: JoinSpec,
    number: int,
    totals: Totals,
    what: str,
    mutual: bool = False,
    how: NearestHow = "inner",
    ties: bool = False,
) -> Frame:
    """Find the nearest rows of each row, for checked options.

    `number`: neighbors per row. `totals`: smallest and largest total of a neighbor; a
    total is a distance before its root is taken. `what`: the option that determines the
    size of the result, in the words of messages. `mutual`: as in `knn_join`, for plain
    frames in host memory. `how`: "inner", or "left", which adds rows without a
    neighbor. `ties`: whether to return all rows at the distance of the last neighbor.
    """
    left = example_of(frame)
    right = None if other is None else example_of(other)
    with_alone = how == LEFT
    example = nearest_example(left, left if right is None else right, spec, with_alone)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.nearest import NearestJoin
        from dask_simjoin.graph.source import freeze

        source = freeze(frame, spec.columns)
        right_source = None if other is None else freeze(other, spec.right.columns)
        return new_collection(
            NearestJoin(source, right_source, spec, number, totals, how, ties, example)
        )
    plain = [frame] if other is None else [frame, other]
    least, most = totals
    threads = plain_threads()
    output = nearest_output(number, True, most, least, ties)
    chunks, plan = whole_chunks(plain, spec, output, threads=threads)
    queries, data = chunks[0], chunks[-1]
    all_rows = None
    if with_alone and len(queries["ids"]) < len(frame):
        all_rows = rows_of(frame, spec)
    if not (len(queries["ids"]) and len(data["ids"])):
        if not with_alone:
            return example
        return nearest_or_missing(all_rows or queries, None, spec, example)
    device = frames_for(left).memory()
    check_neighbors(plan, number, totals, device, what, mutual, with_alone)
    search = functools.partial(
        search_chunk,
        layout=plan.layout,
        k=number + ties,
        numbers=(0, 0),
        is_self_join=other is None,
        totals=totals,
        threads=threads,
    )
    if ties:
        about = search(queries, data), number, spec, queries
        tied = ties_in(*about, data, (0, 0), totals)
        state = with_ties(*about, most, tied)
    elif device is None and mutual:
        state = mutual_state(queries, data, search)
        return whole_rows(queries, data, state, spec, example, threads)
    else:
        state = search(queries, data)
        if device is None and not with_alone:
            return whole_rows(queries, data, state, spec, example, threads)
    if all_rows is not None:
        queries, state = all_rows, state_of_all_rows(state, frame, spec)
    made = nearest_or_missing if with_alone else nearest_rows
    return made(queries, state, spec, example, find_rows(state, data, 0, spec))


def _without_neighbor(
    frame: Frame, other: Frame | None, spec: JoinSpec, totals: Totals
) -> Frame:
    """Return the rows without a neighbor.

    `totals`: smallest and largest total of a neighbor, see `nearest`.
    """
    if not is_dask_collection(frame):
        plain = [frame] if spec.other is None else [frame, other]
        least, most = totals
        output = nearest_output(1, max_total=most, min_total=least)
        chunks, plan = whole_chunks(plain, spec, output)
        queries, data = chunks[0], chunks[-1]
        if not (len(queries["ids"]) and len(data["ids"])):
            return frame.copy()
        state = search_chunk(
            queries, data, plan.layout, 1, (0, 0), spec.other is None, totals
        )
        return frame[~for_all_rows(has_neighbor(state), frame, spec, False)[0]]
    from dask_simjoin.graph import nearest as lazy
    from dask_simjoin.graph.dask_private import new_collection
    from dask_simjoin.graph.source import freeze

    source = freeze(frame, spec.columns)
    right_source = None if spec.other is None else freeze(other, spec.right.columns)
    example = series_example(frame._meta, "found")
    found = lazy.HasNeighbor(
        source.inner, source, right_source, spec, 1, totals, example
    )
    return frame[new_collection(found) == 0]
