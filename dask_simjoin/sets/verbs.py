"""Set-join verbs: lazily for Dask DataFrames, at once for plain ones."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.cluster.algorithms.dbscan import merge_edges
from dask_simjoin.cluster.algorithms.duplicates import CONNECTED
from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.inputs import check_other, same_library
from dask_simjoin.graph.outputs import NEIGHBORS, pairs_example, series_example
from dask_simjoin.graph.verb import frame_verb, series_verb, verb
from dask_simjoin.metrics.norms import Array, Frame, Series
from dask_simjoin.planning.budget import free_memory, within_memory
from dask_simjoin.request.columns import example_of
from dask_simjoin.request.requests import ANTI, LEFT, SEMI
from dask_simjoin.sets.chunks import SetBlockPair, room_check, whole_block_pair, whole_sets
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
from dask_simjoin.sets.pairs import count_block, count_block_pairs, join_block
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
def set_self_join(frame: Frame, request: SetSelfJoinRequest) -> Frame:
    """Find every pair of rows with similar sets of tokens.

    Parameters
    ----------
    on : column
        Lists of tokens, all strings or all integers (of Python, NumPy or Arrow), or texts, which
        `tokenizer` splits.  Repeated tokens of a row count once.
    threshold : number
        Taken as the exact fraction of its text: 0.1 is 1/10, and ``Fraction(1, 3)`` is a third.  Above 0 and
        up to 1; for "overlap" a whole number.
    similarity : {"jaccard", "dice", "cosine", "overlap"}
        For sets of a and b tokens with o common ones: o/(a+b-o), 2o/(a+b), o/sqrt(ab), or o itself.
    comparison : {">=", ">", "="}
        Comparison of the similarity with the threshold, in integers: rounding changes no pair.
    tokenizer : str, tuple, callable or an object of `dask_simjoin.sets`, optional
        "whitespace"; "words" (runs of letters and digits); ``("delimiter", ",")``;
        ``("qgrams", 3)`` (runs of 3 characters, padded); a function from a text to a list of
        tokens.  As objects they take options, such as ``QGrams(3, padding=False)``.
    allow_empty : bool
        Whether rows with empty sets match each other, as equal sets do.  Otherwise they match nothing.
    allow_missing : bool
        Whether rows without a set (None, NaN) match each other; their similarity is NaN.
    method : {"auto", ...} or an object of `dask_simjoin.sets`
        The engine; all give the same pairs.
    return_similarity : bool
        Add the column `similarity` (float64).
    id, keep, suffixes
        As in `self_join`.
    blocksize : int or str, optional
        Memory of the sets of one block, and of one partition of the result, such as "64 MiB"; default as in
        `self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right`` (the ids' dtype), and ``similarity`` and the kept columns if requested;
        lazy if the frame is.  `left` is the row that comes first in the frame.  The order of rows is not
        specified.

    Raises
    ------
    OptionError, OptionTypeError, ColumnError
        At the call: an option or a column is not allowed.
    TokenError, DuplicateIdError
        When planned: rows hold no sets, or ids repeat.
    BudgetError
        A block or the result does not fit memory.

    Notes
    -----
    Tokens are ranked, the rarest first.  Equal sets are joined once, and represent all of their rows.

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
    spec = request.spec(meta)
    example = pairs_example(meta, meta, spec)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        return new_collection(graph.SetSelfJoin(freeze(frame, spec.columns), spec, example))
    chunks = whole_sets([frame], spec, True)
    with within_memory(spec.request):
        return join_block(
            whole_block_pair(chunks, spec), list(example.columns), report=room_check(chunks, spec)
        )


@frame_verb(SetJoinRequest)
def set_join(frame: Frame, request: SetJoinRequest) -> Frame:
    """Find every pair of a row of this frame and a row of `other` with similar sets of tokens.

    Parameters
    ----------
    other : DataFrame
        The right table: Dask's, or a plain one of the same library.
    on : column
        Column of sets in both tables; see `set_self_join`.
    threshold : number
    how : {"inner", "left", "leftsemi", "leftanti"}
        As in `join`.
    left_on, right_on : column, optional
        Use these instead of `on` if the names differ.
    id, left_id, right_id, keep, suffixes
        As in `join`.
    similarity, comparison, tokenizer, allow_empty, allow_missing, method, return_similarity, blocksize
        As in `set_self_join`.

    Returns
    -------
    DataFrame
        Columns ``left``, ``right``, ``similarity`` if requested, and the kept columns; for "leftsemi"
        and "leftanti" rows of this frame.

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
    check_other("set_join(other, on, threshold)", request.other, on=request.on, threshold=request.threshold)
    frame, other, left, right = same_library(frame, request.other)
    spec = request.spec(left, right)
    named = request.how not in (SEMI, ANTI)
    example = pairs_example(left, right, spec, request.how == LEFT) if named else left
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        source, data = freeze(frame, spec.columns), freeze(other, spec.right.columns)
        if named:
            return new_collection(graph.SetJoin(source, data, spec, request.how, example))
        counted = new_collection(
            graph.SetMatchCounts(source.inner, source, data, spec, series_example(left, NEIGHBORS))
        )
        return frame[(counted > 0) if request.how == SEMI else (counted == 0)]
    chunks = whole_sets([frame, other], spec, named)
    block_pair = whole_block_pair(chunks, spec)
    if not named:
        counts = count_block(block_pair)[0]
        return frame[(counts > 0) if request.how == SEMI else (counts == 0)]
    like = alone = None
    if request.how == LEFT:
        like, alone = example, unmatched_rows(chunks[0], count_block(block_pair)[0], spec, example)
    with within_memory(spec.request):
        report = room_check(chunks, spec)
        return join_block(block_pair, list(example.columns), like=like, alone=alone, report=report)


@series_verb(SetNeighborCountsRequest)
def set_neighbor_counts(frame: Frame, request: SetNeighborCountsRequest) -> Series:
    """Count for each row the other rows whose sets match.

    No pair is materialized.  The parameters are the same as for `set_self_join`.

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
    spec = request.spec(meta)
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
def count_set_pairs(frame: Frame, request: CountSetPairsRequest) -> Number:
    """Count the rows that `set_self_join` would return, without making them.

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
    spec = request.spec(example_of(frame))
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph

        return new_collection(graph.CountSetPairs(freeze(frame, spec.columns), spec, 0))
    return count_block_pairs(whole_block_pair(whole_sets([frame], spec, False), spec))


@series_verb(SetNearDuplicatedRequest)
def set_near_duplicated(frame: Frame, request: SetNearDuplicatedRequest) -> Series:
    """Mark rows whose sets match the set of a row that stays: `near_duplicated` for texts, tags and items.

    Parameters
    ----------
    on, threshold, similarity, comparison, tokenizer
        Two rows are near if their sets match, as in `set_self_join`.
    keep : {"first", "last", False} or column
        Which of several near rows stays, marked False: the first in the frame, the last, or the row with the
        largest value in a numeric column.  Among equal values the first row stays; a missing value is below
        all others.  ``keep=False``: no row stays, so every row that matches another is True.
    grouping : {"greedy", "connected"}
        "greedy": rows are visited in order, and a row is a duplicate if it matches a row that stays.  So no
        two rows that stay match, and each duplicate matches one of them.  "connected": matches connect rows
        to groups, and one row of each group stays, even if it does not match all others.
    allow_empty, allow_missing : bool
        Whether rows with empty sets are near each other, and whether rows without a set are.  Otherwise all
        of these rows stay.
    method, blocksize
        As in `set_self_join`.

    Returns
    -------
    Series
        bool, with the frame's index and partitions; lazy if the frame is.

    Raises
    ------
    BudgetError
        "greedy" chooses in one task, which cannot hold the pairs of distinct sets.

    Notes
    -----
    The result does not depend on the partitioning.  Equal sets are joined once, and count as one row for
    both groupings.  "connected" lists no pairs.

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
    spec = request.spec(meta)
    example = series_example(meta, None)
    if is_dask_collection(frame):
        from dask_simjoin.graph.dask_private import new_collection
        from dask_simjoin.graph.source import freeze
        from dask_simjoin.sets import graph
        from dask_simjoin.sets.graph import SetNearDuplicated as LazyMarks

        source = freeze(frame, spec.columns)
        common = source.inner, source, spec
        if request.counted:
            return new_collection(graph.SetNeighborCounts(*common, example)) != 0
        return new_collection(LazyMarks(*common, request.keep, request.grouping, example)) != 0
    (chunk,) = whole_sets([frame], spec, False)
    gone = _marks(whole_block_pair([chunk], spec), request)
    return frames_for(meta).series(gone, frame.index, None)


@frame_verb(SetNearDuplicatedRequest)
def drop_set_near_duplicates(frame: Frame, request: SetNearDuplicatedRequest) -> Frame:
    """Drop rows whose sets match the set of a row that stays: `drop_near_duplicates` for texts.

    The parameters are the same as for `set_near_duplicated`, which marks these rows.

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
    return frame[~set_near_duplicated(frame, **vars(request))]


def _marks(block_pair: SetBlockPair, request: SetNearDuplicatedRequest) -> Array:
    """Return a mask of the rows to drop (n,), with one chunk."""
    chunk, spec = block_pair.q, block_pair.spec
    if request.counted:
        return count_block(block_pair)[0] > 0
    rows = standing_rows(chunk, spec, request.keep)
    if request.grouping == CONNECTED:
        forest = merge_edges(spec.library, forest_of_block(block_pair, [rows]))
        best = best_of_chunk(rows, forest, spec.library)
        return marks_of_groups(chunk, rows, best, best.candidates) != 0
    check = functools.partial(check_pairs, room=free_memory(), request=spec.request)
    pairs = pairs_of_block(block_pair, [rows], check)
    (stay,) = stays_of_chunks(spec.library, [on_host(rows)], pairs)
    return marks_but(chunk, rows, stay) != np.int64(0)
