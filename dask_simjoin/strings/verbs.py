"""Define the verbs for strings: lazy for Dask DataFrames, immediate for plain frames."""

from __future__ import annotations

from typing import Any

from dask_simjoin.calls import verbs
from dask_simjoin.calls.decorators import frame_verb, series_verb, verb
from dask_simjoin.calls.drivers import Drivers, Number
from dask_simjoin.calls.inputs import check_other
from dask_simjoin.calls.tables import table_of
from dask_simjoin.errors import deprecated
from dask_simjoin.metrics.norms import Frame, Series
from dask_simjoin.reports.run import ProfileReport
from dask_simjoin.request.columns import example_of
from dask_simjoin.strings.blocks import EditPlanReport
from dask_simjoin.strings.local import LocalTexts
from dask_simjoin.strings.requests import (
    CountEditPairsRequest,
    EditJoinRequest,
    EditNearDuplicatedRequest,
    EditNeighborCountsRequest,
    EditPlanRequest,
    EditProfileRequest,
    EditSelfJoinRequest,
)


def _lazy() -> type[Any]:
    from dask_simjoin.strings.graph import LazyTextJoins

    return LazyTextJoins


TEXTS = Drivers(LocalTexts, _lazy)


@frame_verb(EditSelfJoinRequest)
def edit_self_join(frame: Frame, request: EditSelfJoinRequest) -> Frame:
    """Find every pair of rows whose texts differ in at most `k` edits.

    Parameters
    ----------
    on : column
        Column of texts. Rows without a text (None, NaN) match no row, but rows with an
        empty text can match.
    k : int, optional
        The largest Levenshtein distance: the number of code points to insert, delete or
        replace.
    similarity : number, optional
        Instead of `k`: the smallest similarity, which is 1 - edits / length of the
        longer text, above 0 and up to 1. It is converted to the exact fraction of its
        decimal text, so rounding changes no pair.
    transpositions : bool
        Count a swap of two adjacent code points as one edit (optimal string alignment,
        a restricted Damerau-Levenshtein distance).
    return_distance : bool
        Add the column `distance` (float64).
    id, keep, suffixes
        As in `self_join`.
    by : column or list of columns, optional
        Columns that must be equal in both rows. Rows with a missing value in these
        columns match no row.
    best, ties
        As in `set_self_join`. With `k`, the most similar texts have the fewest edits,
        with `similarity` the largest similarities.
    threads
        As in `self_join`.
    blocksize : int or str, optional
        Memory of the texts of a block, and of a partition of the result, such as "64
        MiB". Default: as in `self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right`` (the ids' dtype), and ``distance`` and the kept
        columns if requested; lazy if the frame is.  Without `best`, `left` is the row
        that comes first in the frame, and the order of rows is not specified.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column is not allowed.
    TextError, DuplicateIdError
        During planning: rows hold no texts, or ids repeat.
    BudgetError
        A block or the result does not fit into memory.

    Notes
    -----
    Case, accents and Unicode normalization forms matter, so normalize texts first if
    necessary. Each distinct text is joined only once, for all rows that have this text.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Springfield", "Sprinfield", "Springfeild", "Shelbyville"]})
    >>> df.simjoin.edit_self_join("name", 2, return_distance=True)
       left  right  distance
    0     0      1       1.0
    1     0      2       2.0
    >>> df.simjoin.edit_self_join("name", 1, transpositions=True)
       left  right
    0     0      1
    1     0      2

    The most similar other name of each name:

    >>> df.simjoin.edit_self_join("name", 2, best=True, return_distance=True)
       left  right  distance
    0     0      1       1.0
    1     1      0       1.0
    2     2      0       2.0
    """
    return verbs.self_join(frame, request, TEXTS)


@frame_verb(EditJoinRequest)
def edit_join(frame: Frame, request: EditJoinRequest) -> Frame:
    """Find every pair of a row of this frame and a row of `other` whose texts differ in
    at most `k` edits.

    Parameters
    ----------
    other : DataFrame
        The right table: a Dask DataFrame, or a plain frame of the same library.
    on : column
        Column of texts in both tables; see `edit_self_join`.
    k : int, optional
    how : {"inner", "left", "right", "outer", "leftsemi", "leftanti"}
        As in `join`.
    left_on, right_on : column, optional
        Use these instead of `on` if the names differ.
    id, left_id, right_id, keep, suffixes
        As in `join`.
    best : bool or int, default False
        Return only the most similar right row of each left row, or with a number at
        most this number of them. With `k` these have the fewest edits, with `similarity`
        the largest similarities. Rows come in the order of the left rows, the most
        similar right row first; with Dask, in each partition. `how` must be "inner" or
        "left". Within one table use `edit_self_join`, where no row matches itself.
    ties : {"first", "all"}, default "first"
        With `best`, which of several equally similar rows to return: those that come
        first in `other`, or all that are as similar as the last of them.
    matching : {"all", "greedy"}, default "all"
        With "greedy", each row is in at most one pair. The most similar pairs are taken
        first, then pairs in the order of their left rows and of their right rows, unless
        one of their rows is in an earlier pair. `how` must not be "leftsemi" or
        "leftanti".
    by : column or list of columns, optional
        As in `edit_self_join`. Columns of both tables may be pairs of names, as in
        `join`.
    similarity, transpositions, return_distance, threads, blocksize
        As in `edit_self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right``, ``distance`` if requested, and the kept columns.
        With "leftsemi" and "leftanti", rows of this frame.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> ours = pd.DataFrame({"city": ["Lisbon", "Porto"]}, index=["x", "y"])
    >>> theirs = pd.DataFrame({"city": ["Lisboa", "Lisbonn", "Faro"]})
    >>> ours.simjoin.edit_join(theirs, "city", 1, keep="city")
      left  right city_left city_right
    0    x      0    Lisbon     Lisboa
    1    x      1    Lisbon    Lisbonn
    >>> ours.simjoin.edit_join(theirs, "city", 1, how="leftanti")
        city
    y  Porto

    The most similar city of each row:

    >>> ours.simjoin.edit_join(theirs, "city", 4, best=True, keep="city")
      left  right city_left city_right
    0    x      0    Lisbon     Lisboa
    1    y      2     Porto       Faro

    Each city in at most one pair:

    >>> ours.simjoin.edit_join(theirs, "city", 5, matching="greedy", keep="city")
      left  right city_left city_right
    0    x      0    Lisbon     Lisboa
    1    y      2     Porto       Faro
    """
    check_other("edit_join(other, on, k)", request.other, on=request.on, k=request.k)
    return verbs.join(frame, request, TEXTS)


@series_verb(EditNeighborCountsRequest)
def edit_neighbor_counts(frame: Frame, request: EditNeighborCountsRequest) -> Series:
    """Count for each row the other rows whose texts differ in at most `k` edits, or such
    rows of another table.

    The parameters are the same as for `edit_self_join`. With `other`, rows of this table
    are counted, and `left_on` and `right_on` are as in `edit_join`.

    Returns
    -------
    Series
        int64 ``neighbors``, with the frame's index and partitions; lazy if the frame
        is.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Springfield", "Sprinfield", "Springfeild", "Shelbyville"]})
    >>> df.simjoin.edit_neighbor_counts("name", 2).tolist()
    [2, 1, 1, 0]
    >>> df.simjoin.edit_neighbor_counts("name", 2, other=df[:1]).tolist()
    [1, 1, 1, 0]
    """
    return verbs.neighbor_counts(frame, request, TEXTS)


@verb(CountEditPairsRequest)
def count_edit_pairs(frame: Frame, request: CountEditPairsRequest) -> Number:
    """Count the pairs that `edit_self_join` would return, without storing them.

    The parameters are the same as for `edit_self_join`.

    Returns
    -------
    int, or a lazy Dask Scalar

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Springfield", "Sprinfield", "Springfeild", "Shelbyville"]})
    >>> df.simjoin.count_edit_pairs("name", 2)
    2
    """
    return verbs.count_pairs(frame, request, TEXTS)


@series_verb(EditNearDuplicatedRequest)
def edit_near_duplicated(frame: Frame, request: EditNearDuplicatedRequest) -> Series:
    """Mark rows whose texts are within `k` edits of a row that stays: `near_duplicated`
    for names.

    Parameters
    ----------
    on, k, similarity, transpositions, by
        Two rows are near if `edit_self_join` pairs them.
    grouping : {"greedy", "connected"}
        "greedy": rows are visited in order, and a row is a duplicate if it is near a
        row that stays. So no two rows that stay are near, and each duplicate is near
        one of them. "connected": rows form a group if a chain of near rows connects
        them. One row of each group stays, even if it is not near all rows of the group.
    keep : {"first", "last", False} or column
        Which of several near rows stays, and is marked False: the first in the frame,
        the last, or the row with the largest value in a column of numbers, times or
        dates. Among equal values the first row stays; a missing value is below all
        others. ``keep=False``:
        no row stays, so every row that is near another is True.
    blocksize, threads
        As in `edit_self_join`.

    Returns
    -------
    Series
        bool, with the frame's index and partitions; lazy if the frame is.

    Raises
    ------
    BudgetError
        With "greedy", one task must hold all pairs of distinct texts, and they do not
        fit.

    Notes
    -----
    The result does not depend on the partitioning. For both groupings, rows with equal
    texts count as one row. "connected" needs no list of all pairs.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Meyer", "Meier", "Maier", "Smith"], "orders": [1, 2, 3, 4]})
    >>> df.simjoin.edit_near_duplicated("name", 1).tolist()
    [False, True, False, False]
    >>> df.simjoin.edit_near_duplicated("name", 1, grouping="connected", keep="orders").tolist()
    [True, True, False, False]
    """
    return verbs.near_duplicated(frame, request, TEXTS)


@frame_verb(EditNearDuplicatedRequest)
def drop_edit_near_duplicates(
    frame: Frame, request: EditNearDuplicatedRequest
) -> Frame:
    """Drop rows whose texts are within `k` edits of a row that stays:
    `drop_near_duplicates` for names.

    The parameters are the same as for `edit_near_duplicated`, which marks these rows.

    Returns
    -------
    DataFrame
        The rows that stay, with all columns, their index and partitions; lazy if the
        frame is.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Springfield", "Sprinfield", "Springfeild", "Shelbyville"]})
    >>> df.simjoin.drop_edit_near_duplicates("name", 2)
              name
    0  Springfield
    3  Shelbyville
    """
    return frame[~edit_near_duplicated(frame, **vars(request))]


@verb(EditPlanRequest)
def edit_plan(frame: Frame, request: EditPlanRequest) -> EditPlanReport:
    """Show the tasks of `edit_self_join` with the same options, and the estimated size
    of its result.

    With `other`, it plans `edit_join`. The call reads the column once, and joins a
    sample for the estimate. The plan of a plain frame has one block.

    The parameters are the same as for `edit_self_join` and `edit_join`.

    Returns
    -------
    EditPlanReport
        Prints as text, and shows as a table and a picture in notebooks.  It has
        ``rows``, ``characters``, ``blocks``, ``block_pairs``, ``partitions``,
        ``pairs``, ``pairs_low``, ``pairs_high``, ``result_bytes``, ``to_frame()``,
        ``svg()`` and ``plot()``.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, TextError, DuplicateIdError, BudgetError
        The same errors as for `edit_self_join` and its planning.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Meyer", "Meier", "Maier", "Smith"]})
    >>> plan = df.simjoin.edit_plan("name", 1)
    >>> plan.rows, plan.characters, plan.pairs
    (4, 20.0, 2.0)
    """
    return verbs.plan(frame, request, TEXTS)


def profile_of_texts(frame: Frame, request: EditProfileRequest) -> ProfileReport:
    """Measure a self-join by edit distance, as one block on one core."""
    spec = request.spec(example_of(frame))
    frame = table_of(frame[spec.columns]).computed()
    found = LocalTexts([frame], spec).profile()
    missing = found.rows["missing"]
    texts = len(frame) - (0 if missing is None else int(missing.sum()))
    numbers = {
        "characters": float(len(found.rows["sets"]["codes"]) - spec.rule.tail * texts),
        "values": float(len(found.chunk["weights"])),
    }
    counters = found.counted(numbers, len(frame))
    return ProfileReport(
        "segments", repr(spec.rule), len(frame), counters, "self-join by edit distance"
    )


@deprecated(since="0.1.0", removed_in="0.2.0", use="profile(on=..., k=...)")
@verb(EditProfileRequest)
def edit_profile(frame: Frame, request: EditProfileRequest) -> ProfileReport:
    """Run a self-join by edit distance without keeping its pairs, and report its work
    and time.

    The parameters are the same as for `count_edit_pairs`, except `threads`.

    Returns
    -------
    ProfileReport
        As from `profile`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"name": ["Meyer", "Meier", "Maier", "Meyer"]})
    >>> found = df.simjoin.profile(on="name", k=1)
    >>> int(found.numbers["values"]), int(found.numbers["pairs"])
    (3, 4)
    """
    return profile_of_texts(frame, request)
