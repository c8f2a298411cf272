"""Define the verbs for sets: lazy for Dask DataFrames, immediate for plain frames."""

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
from dask_simjoin.sets.local import LocalSets
from dask_simjoin.sets.plan_report import SetPlanReport
from dask_simjoin.sets.requests import (
    CountSetPairsRequest,
    SetJoinRequest,
    SetNearDuplicatedRequest,
    SetNeighborCountsRequest,
    SetPlanRequest,
    SetProfileRequest,
    SetSelfJoinRequest,
)


def _lazy() -> type[Any]:
    from dask_simjoin.sets.graph import LazySetJoins

    return LazySetJoins


SETS = Drivers(LocalSets, _lazy)


@frame_verb(SetSelfJoinRequest)
def set_self_join(frame: Frame, request: SetSelfJoinRequest) -> Frame:
    """Find every pair of rows with similar sets of tokens.

    Parameters
    ----------
    on : column
        Column of lists of tokens, all strings or all integers (of Python, NumPy or
        Arrow). Or a column of texts, which `tokenizer` splits. Repeated tokens of a row
        count once.
    threshold : number
        Similarity that a pair must reach: above 0 and up to 1, for "overlap" a whole
        number. A float is converted to the exact fraction of its decimal text: 0.1
        becomes 1/10. ``Fraction(1, 3)`` is exact.
    similarity : {"jaccard", "dice", "cosine", "overlap"}
        For sets of a and b tokens with o in common: o/(a+b-o), 2o/(a+b), o/sqrt(ab), or
        o itself.
    tokenizer : str, tuple, callable or an object of `dask_simjoin.sets`, optional
        "whitespace"; "words" (runs of letters and digits); ``("delimiter", ",")``;
        ``("qgrams", 3)`` (runs of 3 characters, padded); a function from a text to a
        list of tokens. Objects of `dask_simjoin.sets` have options, such as ``QGrams(3,
        padding=False)``. None: the column holds lists.
    return_similarity : bool
        Add the column `similarity` (float64).
    id, keep, suffixes
        As in `self_join`.
    best : bool or int, default False
        Return only the most similar other row of each row, or with a number at most
        this number of them. `left` is then the row, and `right` the other row. Rows
        come in the order of the left rows, the most similar right row first; with Dask,
        in each partition.
    ties : {"first", "all"}, default "first"
        With `best`, which of several equally similar rows to return: those that come
        first in the frame, or all that are as similar as the last of them.
    comparison : {">=", ">", "="}
        How the similarity is compared with the threshold. Integers are compared, so
        rounding changes no pair.
    allow_empty : bool
        Whether rows with empty sets match each other, like other equal sets. Otherwise
        they match no row.
    allow_missing : bool
        Whether rows without a set (None, NaN) match each other; their similarity is
        NaN.
    threads
        As in `self_join`.
    blocksize : int or str, optional
        Memory of the sets of a block, and of a partition of the result, such as "64
        MiB". Default: as in `self_join`.
    method : {"auto", ...} or an object of `dask_simjoin.sets`
        The algorithm. All methods give the same pairs.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right`` (the ids' dtype), and ``similarity`` and the kept
        columns if requested; lazy if the frame is.  Without `best`, `left` is the row
        that comes first in the frame, and the order of rows is not specified.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column is not allowed.
    TokenError, DuplicateIdError
        During planning: rows hold no sets, or ids repeat.
    BudgetError
        A block or the result does not fit into memory.

    Notes
    -----
    Each distinct set is joined only once, for all rows that have this set. So copies of
    a row cost little.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"text": ["a b c d", "b c d a", "a b c e", "x y"]})
    >>> df.simjoin.set_self_join("text", 0.6, tokenizer="whitespace", return_similarity=True)
       left  right  similarity
    0     0      1         1.0
    1     0      2         0.6
    2     1      2         0.6

    The most similar other row of each row:

    >>> df.simjoin.set_self_join("text", 0.6, tokenizer="whitespace", best=True)
       left  right
    0     0      1
    1     1      0
    2     2      0
    """
    return verbs.self_join(frame, request, SETS)


@frame_verb(SetJoinRequest)
def set_join(frame: Frame, request: SetJoinRequest) -> Frame:
    """Find every pair of a row of this frame and a row of `other` with similar sets of
    tokens.

    Parameters
    ----------
    other : DataFrame
        The right table: a Dask DataFrame, or a plain frame of the same library.
    on : column
        Column of sets in both tables; see `set_self_join`.
    threshold : number
    how : {"inner", "left", "right", "outer", "leftsemi", "leftanti"}
        As in `join`.
    best : bool or int, default False
        Return only the most similar right row of each left row, or with a number at
        most this number of them. Rows come in the order of the left rows, the most
        similar right row first; with Dask, in each partition. `how` must be "inner" or
        "left". Within one table use `set_self_join`, where no row matches itself.
    ties : {"first", "all"}, default "first"
        With `best`, which of several equally similar rows to return: those that come
        first in `other`, or all that are as similar as the last of them.
    matching : {"all", "greedy"}, default "all"
        With "greedy", each row is in at most one pair. Pairs are taken by descending
        similarity, then in the order of their left rows and of their right rows, unless
        one of their rows is in an earlier pair. `how` must not be "leftsemi" or
        "leftanti".
    left_on, right_on : column, optional
        Use these instead of `on` if the names differ.
    id, left_id, right_id, keep, suffixes
        As in `join`.
    similarity, comparison, tokenizer, allow_empty, allow_missing, method,
    return_similarity, blocksize, threads
        As in `set_self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right``, ``similarity`` if requested, and the kept columns.
        With "leftsemi" and "leftanti", rows of this frame.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> ours = pd.DataFrame({"tags": [["a", "b"], ["c"]]}, index=["x", "y"])
    >>> theirs = pd.DataFrame({"tags": [["b", "a"], ["a", "b", "c"]]})
    >>> ours.simjoin.set_join(theirs, "tags", 0.5)
      left  right
    0    x      0
    1    x      1
    >>> ours.simjoin.set_join(theirs, "tags", 0.5, how="leftanti")
      tags
    y  [c]

    The most similar set of each row:

    >>> ours.simjoin.set_join(theirs, "tags", 0.3, best=True, return_similarity=True)
      left  right  similarity
    0    x      0    1.000000
    1    y      1    0.333333

    The two most similar sets of each row:

    >>> ours.simjoin.set_join(theirs, "tags", 0.3, best=2, return_similarity=True)
      left  right  similarity
    0    x      0    1.000000
    1    x      1    0.666667
    2    y      1    0.333333
    """
    check_other(
        "set_join(other, on, threshold)",
        request.other,
        on=request.on,
        threshold=request.threshold,
    )
    return verbs.join(frame, request, SETS)


@series_verb(SetNeighborCountsRequest)
def set_neighbor_counts(frame: Frame, request: SetNeighborCountsRequest) -> Series:
    """Count for each row the other rows whose sets match its set, or such rows of
    another table.

    Pairs are counted without being stored. The parameters are the same as for
    `set_self_join`. With `other`, rows of this table are counted, and `left_on` and
    `right_on` are as in `set_join`.

    Returns
    -------
    Series
        int64, named "neighbors", with the frame's index and partitions.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"tags": [["a", "b"], ["b", "a"], ["a", "b", "c"], ["d"]]})
    >>> df.simjoin.set_neighbor_counts("tags", 0.6).tolist()
    [2, 2, 2, 0]
    >>> other = pd.DataFrame({"tags": [["a", "b"], ["d", "e"]]})
    >>> df.simjoin.set_neighbor_counts("tags", 0.5, other=other).tolist()
    [1, 1, 1, 1]
    """
    return verbs.neighbor_counts(frame, request, SETS)


@verb(CountSetPairsRequest)
def count_set_pairs(frame: Frame, request: CountSetPairsRequest) -> Number:
    """Count the pairs that `set_self_join` would return, without storing them.

    The parameters are the same as for `set_self_join`.

    Returns
    -------
    int, or a lazy Dask Scalar

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"tags": [["a", "b"], ["b", "a"], ["a", "b", "c"], ["d"]]})
    >>> df.simjoin.count_set_pairs("tags", 0.6)
    3
    """
    return verbs.count_pairs(frame, request, SETS)


@series_verb(SetNearDuplicatedRequest)
def set_near_duplicated(frame: Frame, request: SetNearDuplicatedRequest) -> Series:
    """Mark rows whose sets match the set of a row that stays: `near_duplicated` for
    texts, tags and items.

    Parameters
    ----------
    on, threshold, similarity, tokenizer, comparison
        Two rows are near if their sets match, as in `set_self_join`.
    grouping : {"greedy", "connected"}
        "greedy": rows are visited in order, and a row is a duplicate if it matches a
        row that stays. So no two rows that stay match, and each duplicate matches one
        of them. "connected": rows form a group if a chain of matches connects them. One
        row of each group stays, even if it does not match all rows of the group.
    keep : {"first", "last", False} or column
        Which of several near rows stays, and is marked False: the first in the frame,
        the last, or the row with the largest value in a column of numbers, times or
        dates. Among equal values the first row stays; a missing value is below all
        others. ``keep=False``:
        no row stays, so every row that matches another is True.
    allow_empty, allow_missing : bool
        Whether rows with empty sets are near each other, and whether rows without a set
        are near each other. Otherwise all of these rows stay.
    method, blocksize, threads
        As in `set_self_join`.

    Returns
    -------
    Series
        bool, with the frame's index and partitions; lazy if the frame is.

    Raises
    ------
    BudgetError
        With "greedy", one task must hold all pairs of distinct sets, and they do not
        fit.

    Notes
    -----
    The result does not depend on the partitioning. For both groupings, rows with equal
    sets count as one row. "connected" needs no list of all pairs.

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
    return verbs.near_duplicated(frame, request, SETS)


@frame_verb(SetNearDuplicatedRequest)
def drop_set_near_duplicates(frame: Frame, request: SetNearDuplicatedRequest) -> Frame:
    """Drop rows whose sets match the set of a row that stays: `drop_near_duplicates`
    for texts.

    The parameters are the same as for `set_near_duplicated`, which marks these rows.

    Returns
    -------
    DataFrame
        The rows that stay, with all columns, their index and partitions; lazy if the
        frame is.

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
    return frame[~set_near_duplicated(frame, **vars(request))]


@verb(SetPlanRequest)
def set_plan(frame: Frame, request: SetPlanRequest) -> SetPlanReport:
    """Show the tasks of `set_self_join` with the same options, and the estimated size
    of its result.

    With `other`, it plans `set_join`. The call reads the column once, and joins a
    sample for the estimate. The plan of a plain frame has one block.

    The parameters are the same as for `set_self_join` and `set_join`.

    Returns
    -------
    SetPlanReport
        Prints as text, and shows as a table and a picture in notebooks.  It has
        ``rows``, ``tokens``, ``blocks``, ``block_pairs``, ``partitions``, ``pairs``,
        ``pairs_low``, ``pairs_high``, ``result_bytes``, ``to_frame()``, ``svg()`` and
        ``plot()``.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError, TokenError, DuplicateIdError, BudgetError
        The same errors as for `set_self_join` and its planning.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"text": ["a b c", "b c d", "c d e", "x y"]})
    >>> plan = df.simjoin.set_plan("text", 0.5, tokenizer="words")
    >>> plan.rows, plan.tokens, plan.pairs
    (4, 11.0, 2.0)
    """
    return verbs.plan(frame, request, SETS)


def profile_of_sets(frame: Frame, request: SetProfileRequest) -> ProfileReport:
    """Measure a self-join of sets, as one block on one core or one GPU."""
    spec = request.spec(example_of(frame))
    frame = table_of(frame[spec.columns]).computed()
    found = LocalSets([frame], spec).profile()
    numbers = {
        "tokens": float(len(found.rows["sets"]["codes"])),
        "distinct_tokens": float(found.chunk["universe"]),
        "values": float(len(found.chunk["weights"])),
    }
    method = (
        spec.method
        if isinstance(spec.method, str)
        else type(spec.method).__name__.lower()
    )
    counters = found.counted(numbers, len(frame))
    return ProfileReport(
        method, repr(spec.method), len(frame), counters, "self-join of sets"
    )


@deprecated(since="0.1.0", removed_in="0.2.0", use="profile(threshold=...)")
@verb(SetProfileRequest)
def set_profile(frame: Frame, request: SetProfileRequest) -> ProfileReport:
    """Run a self-join of sets without keeping its pairs, and report its work and time.

    The parameters are the same as for `count_set_pairs`, except `threads`.

    Returns
    -------
    ProfileReport
        As from `profile`.

    Examples
    --------
    >>> import pandas as pd
    >>> import dask_simjoin
    >>> df = pd.DataFrame({"tags": [["a", "b"], ["b", "a"], ["a", "b", "c"], ["d"]]})
    >>> found = df.simjoin.profile(on="tags", threshold=0.6)
    >>> int(found.numbers["values"]), int(found.numbers["pairs"])
    (3, 3)
    """
    return profile_of_sets(frame, request)
