"""Set-join verbs: lazily for Dask DataFrames, at once for plain ones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.duplicates import CONNECTED
from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.examples import NEIGHBORS, pairs_example, series_example
from dask_simjoin.graph.inputs import check_other, same_library
from dask_simjoin.graph.verb import frame_verb, series_verb, verb
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.budget import free_memory, within_memory
from dask_simjoin.request.inputs import example_of
from dask_simjoin.request.requests import ANTI, LEFT, SEMI
from dask_simjoin.sets.chunks import SetBlockPair
from dask_simjoin.sets.near_duplicates import (
    best_of_chunk,
    check_pairs,
    forest_of_block,
    marks_but,
    marks_of_groups,
    on_host,
    pairs_of_block,
    standing_rows,
    stays_of_chunks,
)
from dask_simjoin.sets.pairs import (
    count_block,
    count_block_pairs,
    join_block,
    room_check,
    whole_block_pair,
    whole_sets,
)
from dask_simjoin.sets.requests import (
    CountSetPairsRequest,
    SetJoinRequest,
    SetNearDuplicatedRequest,
    SetNeighborCountsRequest,
    SetSelfJoinRequest,
)
from dask_simjoin.tasks.pairs import unmatched_rows

Number = Any
"""An int, or a lazy Scalar of Dask."""


@frame_verb(SetSelfJoinRequest)
def set_self_join(frame: Frame, asked: SetSelfJoinRequest) -> Frame:
    """Every pair of rows whose sets of tokens are similar enough.

    Parameters
    ----------
    on : column
        Of lists of tokens, all strings or all integers (of Python, NumPy or Arrow), or of texts, which
        `tokenizer` splits.  A token that a row has several times counts once.
    threshold : number
        Decided as the fraction that its text is: 0.1 is 1/10, and ``Fraction(1, 3)`` is a third.  Above 0 and
        up to 1; of "overlap" a whole number.
    similarity : {"jaccard", "dice", "cosine", "overlap"}
        Of sets of a and b tokens, o of them common: o/(a+b-o), 2o/(a+b), o/sqrt(ab), or o itself.
    comparison : {">=", ">", "="}
        Of the similarity with the threshold, in whole numbers: no pair is lost or won by rounding.
    tokenizer : str, tuple, callable or an object of `dask_simjoin.sets`, optional
        "whitespace"; "words" (letters and digits that follow each other); ``("delimiter", ",")``;
        ``("qgrams", 3)`` (characters that follow each other, padded); a function from a text to a list of
        tokens.  As objects they take options, such as ``QGrams(3, padding=False)``.
    allow_empty : bool
        Whether rows of empty sets match each other, as equal sets do.  Without it they match nothing.
    allow_missing : bool
        Whether rows without a set (None, NaN) match each other; their similarity is NaN.
    method : {"auto", ...} or an object of `dask_simjoin.sets`
        The engine; all give the same pairs.
    return_similarity : bool
        Whether to add the column `similarity` (float64).
    id, keep, suffixes
        As in `self_join`.
    blocksize : int or str, optional
        Memory of the sets of one block, and of one partition of the result, such as "64 MiB"; default as in
        `self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right`` (the ids' dtype) and, if asked for, ``similarity`` and what is kept; lazy
        if the frame is.  `left` is the row that comes first in the frame.  The order of rows is not
        specified.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column that is not allowed.
    TokenError, DuplicateIdError
        When planned: rows that hold no sets, ids that repeat.
    BudgetError
        A block or the result needs more memory than there is.

    Notes
    -----
    Tokens are put in one order, the rarest first; equal sets are joined once, and stand for all of their
    rows.

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
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    example = pairs_example(meta, meta, spec)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        return new_collection(graph.SetSelfJoin(freeze(frame, spec.columns), spec, example))
    chunks = whole_sets([frame], spec, True)
    with within_memory(spec.request):
        return join_block(
            whole_block_pair(chunks, spec), list(example.columns), told=room_check(chunks, spec)
        )


@frame_verb(SetJoinRequest)
def set_join(frame: Frame, asked: SetJoinRequest) -> Frame:
    """Every pair of a row of this frame and a row of `other` whose sets of tokens are similar enough.

    Parameters
    ----------
    other : DataFrame
        The right table: Dask's, or a plain one of the same library.
    on : column
        Of sets, in both tables; see `set_self_join`.
    threshold : number
    how : {"inner", "left", "leftsemi", "leftanti"}
        As in `join`.
    left_on, right_on : column, optional
        Instead of `on`, where the tables call it otherwise.
    id, left_id, right_id, keep, suffixes
        As in `join`.
    similarity, comparison, tokenizer, allow_empty, allow_missing, method, return_similarity, blocksize
        As in `set_self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right``, ``similarity`` if asked for, and what is kept; for "leftsemi" and
        "leftanti" rows of this frame.

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
    """
    check_other("set_join(other, on, threshold)", asked.other, on=asked.on, threshold=asked.threshold)
    frame, other, left, right = same_library(frame, asked.other)
    spec = asked.spec(left, right)
    named = asked.how not in (SEMI, ANTI)
    example = pairs_example(left, right, spec, asked.how == LEFT) if named else left
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        source, data = freeze(frame, spec.columns), freeze(other, spec.right.columns)
        if named:
            return new_collection(graph.SetJoin(source, data, spec, asked.how, example))
        counted = new_collection(
            graph.SetMatchCounts(source.inner, source, data, spec, series_example(left, NEIGHBORS))
        )
        return frame[(counted > 0) if asked.how == SEMI else (counted == 0)]
    chunks = whole_sets([frame, other], spec, named)
    block_pair = whole_block_pair(chunks, spec)
    if not named:
        counts = count_block(block_pair)[0]
        return frame[(counts > 0) if asked.how == SEMI else (counts == 0)]
    like = alone = None
    if asked.how == LEFT:
        like, alone = example, unmatched_rows(chunks[0], count_block(block_pair)[0], spec, example)
    with within_memory(spec.request):
        told = room_check(chunks, spec)
        return join_block(block_pair, list(example.columns), like=like, alone=alone, told=told)


@series_verb(SetNeighborCountsRequest)
def set_neighbor_counts(frame: Frame, asked: SetNeighborCountsRequest) -> Series:
    """How many other rows' sets match each row's.

    No pair is materialised.  Parameters are those of `set_self_join`.

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
    """
    meta = example_of(frame)
    spec = asked.spec(meta)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        source = freeze(frame, spec.columns)
        return new_collection(
            graph.SetNeighborCounts(source.inner, source, spec, series_example(meta, NEIGHBORS))
        )
    chunks = whole_sets([frame], spec, False)
    counts, _ = count_block(whole_block_pair(chunks, spec))
    return frames_for(meta).series(counts, frame.index, NEIGHBORS)


@verb(CountSetPairsRequest)
def count_set_pairs(frame: Frame, asked: CountSetPairsRequest) -> Number:
    """The number of rows that `set_self_join` would return, without materialising any.

    Parameters are those of `set_self_join`.

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
    spec = asked.spec(example_of(frame))
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        return new_collection(graph.CountSetPairs(freeze(frame, spec.columns), spec, 0))
    return count_block_pairs(whole_block_pair(whole_sets([frame], spec, False), spec))


@series_verb(SetNearDuplicatedRequest)
def set_near_duplicated(frame: Frame, asked: SetNearDuplicatedRequest) -> Series:
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
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph
        from dask_simjoin.sets.lazy_near_duplicates import SetNearDuplicated as LazyMarks

        source = freeze(frame, spec.columns)
        common = source.inner, source, spec
        if asked.counted:
            return new_collection(graph.SetNeighborCounts(*common, example)) != 0
        return new_collection(LazyMarks(*common, asked.keep, asked.grouping, example)) != 0
    (chunk,) = whole_sets([frame], spec, False)
    gone = _marks(whole_block_pair([chunk], spec), asked)
    return frames_for(meta).series(gone, frame.index, None)


@frame_verb(SetNearDuplicatedRequest)
def drop_set_near_duplicates(frame: Frame, asked: SetNearDuplicatedRequest) -> Frame:
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


def _marks(block_pair: SetBlockPair, asked: SetNearDuplicatedRequest) -> Array:
    """Mark the rows (n,) bool of the only chunk that there is."""
    chunk, spec = block_pair.q, block_pair.spec
    if asked.counted:
        return count_block(block_pair)[0] > 0
    rows = standing_rows(chunk, spec, asked.keep)
    if asked.grouping == CONNECTED:
        forest = merge_edges(spec.library, forest_of_block(block_pair, [rows]))
        best = best_of_chunk(rows, forest, spec.library)
        return marks_of_groups(chunk, rows, best, best.candidates) != 0
    check = functools.partial(check_pairs, room=free_memory(), asked=spec.request)
    pairs = pairs_of_block(block_pair, [rows], check)
    (stay,) = stays_of_chunks(spec.library, [on_host(rows)], pairs)
    return marks_but(chunk, rows, stay) != np.int64(0)
