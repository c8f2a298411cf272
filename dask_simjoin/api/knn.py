"""Find the nearest rows of each row, in the same table or in another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from dask_simjoin.calls.decorators import frame_verb, series_verb
from dask_simjoin.calls.examples import nearest_example, series_example
from dask_simjoin.calls.inputs import check_other, one_or_two
from dask_simjoin.calls.tables import table_of
from dask_simjoin.cluster.distances import DISTANCES
from dask_simjoin.engine.base import searcher_for
from dask_simjoin.errors import UnitsWarning
from dask_simjoin.metrics.distances import Haversine
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.planning.data_warnings import MIN_ROWS, DataWarning, raise_warnings
from dask_simjoin.planning.kilometers import (
    KILOMETERS,
    far_from_max_distance,
    small_distance,
)
from dask_simjoin.planning.partition import points
from dask_simjoin.request.columns import example_of, swapped_conditions
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
from dask_simjoin.tasks.nearest import Neighbors

K_DISTANCE = "k_distance"
"""Name of the Series that `k_distances` returns."""


@series_verb(KDistancesRequest)
def k_distances(frame: Frame, request: KDistancesRequest) -> Series:
    """Return the distance from each row to its k-th nearest neighbor.

    A plot of the sorted distances has a knee where clusters end, which helps to choose
    the `eps` of `dbscan`. `dask_simjoin.cluster.k_distance_knee` finds it, and shows
    whether it is pronounced.

    Parameters
    ----------
    k : int
        Rank of the neighbor, at least 1; a row is not its own neighbor. For `dbscan`
        use ``min_samples - 1``.
    id : column, optional
        A column to exclude from the default coordinates. Its values are not read, so
        they may repeat.
    max_distance : float or str, optional
        Largest distance of a neighbor, as in `knn_join`.
    by, within, different, box
        Conditions on a row and its neighbor, as in `knn_join`; `by` needs
        `max_distance`. Use those that `dbscan` will have.
    distance_unit : str, optional
        Unit of the distances, as in `self_join`. Default: the unit in `max_distance`,
        or the unit of the metric.
    on, metric, dropna, p, threads, blocksize, partitioning
        As in `self_join`; "replicated" is not supported.

    Returns
    -------
    Series
        A float64 Series "k_distance" in `distance_unit`, with the index and partitions
        of the frame. The values are inf for rows with fewer than k neighbors, and NaN
        for rows that `dropna` leaves out. The result is lazy if the frame is.

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

    Distances to rows of the same minute:

    >>> df.assign(minute=[0, 0, 5, 5]).simjoin.k_distances(1, on="x", within={"minute": 1}).tolist()
    [1.0, 1.0, 7.0, 7.0]
    """
    meta = example_of(frame)
    searcher_for(meta)
    k = request.number()
    spec = request.spec(meta)
    example = series_example(meta, K_DISTANCE, np.float64)
    return DISTANCES.of([frame], spec).k_distances(k, request.totals(spec), example)


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
    distance_unit : str, optional
        Unit of the column `distance`, as in `self_join`. Default: the unit in
        `max_distance`, else the unit in `min_distance`, else the unit of the metric.
    on, left_on, right_on, id, left_id, right_id, keep, suffixes
        As in `join`, and without `other` as in `self_join`.
    by : column or list of columns, optional
        Columns whose values must be equal in both rows, as in `self_join`. It requires
        `max_distance`. Columns of two tables may be pairs of names, as in `join`.
    within : dict, optional
        How far apart both rows may be in further columns, as in `self_join`. A range
        such as ``{"time": ("-1 h", "0 h")}`` finds the nearest earlier rows: it is for
        the neighbor's value minus the row's own value. ``(None, "0 h")`` has no lower
        bound.
    different : column or list of columns, optional
        Columns; a row and its neighbors differ in at least one of them.
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
    metric, dropna, p, box, threads, blocksize
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
    found, done = _nearest(frame, request)
    if done:
        return found
    if request.other is None:
        reverse = found
    else:
        sides = {
            f"{side}_{name}": getattr(request, f"{other}_{name}")
            for side, other in (("left", "right"), ("right", "left"))
            for name in ("on", "id")
        }
        sides |= swapped_conditions(request)
        swapped = replace(request, other=frame, keep=None, **sides)
        reverse, _ = _nearest(request.other, swapped)
    swapped = reverse[["right", "left"]].rename(
        columns={"right": "left", "left": "right"}
    )
    return table_of(found.merge(swapped, on=["left", "right"])).recorded()


def _nearest(frame: Frame, request: KnnJoinRequest) -> tuple[Frame, bool]:
    """Find the nearest rows of each row. Also return whether they are the result, or
    mutual neighbors are still to be selected.
    """
    k, mutual = request.number(), check_flag("mutual", request.mutual)
    frame, other, left, right = one_or_two(frame, request.other)
    spec = request.spec(left, right)
    searcher_for(left)
    wanted = Neighbors(
        k,
        (request.min_total(spec), request.max_total(spec)),
        request.how,
        request.all_ties,
        mutual,
        f"k={shown(request.k)}",
    )
    tables = [frame] if other is None else [frame, other]
    driver = DISTANCES.of(tables, spec)
    if request.how == ANTI:
        found = frame[
            ~driver.has_neighbor(wanted.totals, series_example(left, "found"))
        ]
    else:
        example = nearest_example(
            left, left if right is None else right, spec, request.how
        )
        found = driver.nearest(wanted, example)
    # NaN if `max_distance` is missing or has a unit; then there is no warning
    far = as_number(request.max_distance)
    if all(isinstance(table, pd.DataFrame) for table in tables) and far > 0:
        _warn_if_far(found, tables, spec, far, request.how)
    return found, not mutual or driver.finds_mutual(wanted)


def nearest(
    frame: Frame, other: Frame | None, spec: JoinSpec, wanted: Neighbors
) -> Frame:
    """Find the nearest rows of each row, for checked options."""
    left = example_of(frame)
    right = left if other is None else example_of(other)
    tables = [frame] if other is None else [frame, other]
    example = nearest_example(left, right, spec)
    return DISTANCES.of(tables, spec).nearest(wanted, example)


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
    if spec.metric.name != Haversine.name or min(map(len, plain)) < MIN_ROWS:
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
