"""Find the matching rows of two chunks, and make rows of the result: the work of one
task.

Pairs of rows with equal sets come first. Pairs of rows with distinct sets follow,
sorted by the set in the second chunk. This order is fixed, so a result can be divided
at any pair.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypedDict, TypeVar

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.norms import Array, ArrayModule, Frame
from dask_simjoin.sets.chunks import SetBlockPair, SetChunk
from dask_simjoin.sets.requests import SetSpec, equal_match
from dask_simjoin.sets.token_ids import SetPairs, distinct_sizes, sizes_of
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.pairs import (
    PairColumns,
    ResultRows,
    cast_like,
    concat_results,
    pair_columns,
)

ROWS, DEVICE_ROWS = 1 << 18, 1 << 24
"""Maximum number of row pairs per batch: in host memory, and on a GPU."""


Made = TypeVar("Made")


class SetMatches(NamedTuple):
    """Pairs of groups.

    A group has the rows of one set, all rows with empty sets, or all rows without a
    set.
    """

    left: Array
    right: Array
    """Groups of the first and of the second chunk (pairs,), int64."""
    # similarity of each pair (pairs,), float64; None: not requested
    score: Array | None
    rows: Array  # number of row pairs in each pair of groups (pairs,), int64


class RowPairs(NamedTuple):
    """Pairs of rows. A row is given by its position in the array `SetChunk.order` of
    its chunk.
    """

    left: Array
    right: Array
    score: Array | None


def group_rows(chunk: SetChunk) -> Array:
    """Return the number of rows in each group (sets + 2,): one group per set, then
    empty sets, then rows without a set.
    """
    return chunk["firsts"][1:] - chunk["firsts"][:-1]


def set_matches(
    block_pair: SetBlockPair, start: int, stop: int, scored: bool
) -> SetMatches:
    """Find the matches between the groups `start` to `stop` - 1 of the second chunk and
    all groups of the first chunk.
    """
    parts = list(matches_in_parts(block_pair, start, stop, scored))
    join = block_pair.xp.concatenate
    whole = [
        join([part[k] for part in parts]) if scored or k != 2 else None
        for k in range(4)
    ]
    return SetMatches(*whole)


def matches_in_parts(
    block_pair: SetBlockPair, start: int, stop: int, scored: bool
) -> Iterator[SetMatches]:
    """Yield the same matches as `set_matches` returns, in batches."""
    rule, joiner = block_pair.spec.rule, block_pair.joiner
    yield _special(block_pair, start, stop, scored)
    sets = len(block_pair.data["weights"])
    compared = block_pair.comparisons(start, min(stop, sets)) if start < sets else ()
    for left, right, *firsts in compared:
        found = joiner.batches(left, right, rule, block_pair.method)
        yield from _matches_of(block_pair, found, scored, *firsts)


def _matches_of(
    block_pair: SetBlockPair,
    found: Iterator[SetPairs],
    scored: bool,
    left_first: int = 0,
    right_first: int = 0,
) -> Iterator[SetMatches]:
    """Convert the pairs that a joiner finds. `left_first`, `right_first`: see
    `SetComparison`.
    """
    rule, query, data = block_pair.spec.rule, block_pair.query, block_pair.data
    for some in found:
        one, other = some.left + left_first, some.right + right_first
        score = None
        if scored:
            sizes = sizes_of(query)[one], sizes_of(data)[other]
            score = rule.score(*sizes, some.overlap)
        rows = query["weights"][one] * data["weights"][other]
        yield SetMatches(one, other, score, rows)


def all_matches(block_pair: SetBlockPair, scored: bool) -> Iterator[SetMatches]:
    """Yield all matches in batches."""
    return matches_in_parts(block_pair, 0, all_groups(block_pair.data), scored)


def by_threads(
    block_pair: SetBlockPair,
    scored: bool,
    work: Callable[[SetBlockPair, Iterator[SetMatches]], Made],
) -> list[Made]:
    """Find all matches by several threads, which take parts of the sets in turn.

    `work` is called with each share of the work, and with its matches. Return its
    results, in the same order as with one thread.
    """
    if block_pair.threads == 1 or block_pair.xp is not np:
        return [work(block_pair, all_matches(block_pair, scored))]
    joiner: Any = block_pair.joiner  # only joiners on the host have searches
    right = None if block_pair.is_self_join else block_pair.data
    rule, method = block_pair.spec.rule, block_pair.method
    special = _special(block_pair, 0, all_groups(block_pair.data), scored)

    def share(search: Any) -> Made:
        own = block_pair._replace(part=search.part)
        found = _matches_of(own, search.batches(), scored)
        return work(own, itertools.chain([special] * own.first, found))

    search = joiner.search(block_pair.query, right, rule, method)
    found: list[Made] = search.by_threads(block_pair.threads, share)
    return found


def _special(
    block_pair: SetBlockPair, start: int, stop: int, scored: bool
) -> SetMatches:
    """Pair the rows with empty sets, and pair the rows without a set, if the options
    say that they match.
    """
    xp, spec = block_pair.xp, block_pair.spec
    groups = []
    sides = [
        (chunk["firsts"][-3:], len(chunk["weights"]))
        for chunk in (block_pair.query, block_pair.data)
    ]
    for k, (wanted, score) in enumerate(
        ((spec.empty_match, 1.0), (spec.allow_missing, math.nan))
    ):
        (q_ends, q_sets), (d_ends, d_sets) = sides
        if block_pair.is_self_join or not wanted or not start <= d_sets + k < stop:
            continue
        rows = int(q_ends[k + 1] - q_ends[k]) * int(d_ends[k + 1] - d_ends[k])
        if rows:
            groups.append((q_sets + k, d_sets + k, score, rows))
    columns = list(zip(*groups, strict=True)) or [()] * 4
    kinds = np.int64, np.int64, np.float64, np.int64
    left, right, found, number = (
        xp.asarray(c, kind) for c, kind in zip(columns, kinds, strict=True)
    )
    return SetMatches(left, right, found if scored else None, number)


def all_groups(chunk: SetChunk) -> int:
    return len(chunk["weights"]) + 2


def rows_of_matches(
    block_pair: SetBlockPair,
    found: SetMatches,
    scored: bool,
    some: tuple[int, int] | None = None,
) -> RowPairs:
    """Convert pairs of groups to pairs of rows.

    `some`: convert only this range of row pairs, where the pairs are sorted by the
    groups of the second chunk.
    """
    if some is None:
        return rows_between(block_pair, found, scored, 0, int(found.rows.sum()))
    xp = block_pair.xp
    order = xp.lexsort(xp.stack([found.left, found.right]))
    ordered = SetMatches(
        *(None if column is None else column[order] for column in found)
    )
    return rows_between(block_pair, ordered, scored, *some)


def rows_between(
    block_pair: SetBlockPair, found: SetMatches, scored: bool, lo: int, hi: int
) -> RowPairs:
    """Convert pairs of groups to pairs of rows, in the same order. Return the row pairs
    `lo` to `hi` - 1.
    """
    xp = block_pair.xp
    q_firsts, d_firsts = block_pair.query["firsts"], block_pair.data["firsts"]
    left, right, score, rows = found
    ends = xp.cumsum(rows)
    total = int(ends[-1]) if len(ends) else 0
    # each pair of groups has exactly one pair of rows
    if lo == 0 and hi == total == len(rows):
        return RowPairs(q_firsts[left], d_firsts[right], score if scored else None)
    pair, within = locate_in_ranges(ends, lo, hi, xp)
    wide = group_rows(block_pair.data)[right][pair]
    one, other = within // wide, within % wide
    return RowPairs(
        q_firsts[left][pair] + one,
        d_firsts[right][pair] + other,
        score[pair] if scored and score is not None else None,
    )


def locate_in_ranges(
    ends: Array, lo: int, hi: int, xp: ArrayModule
) -> tuple[Array, Array]:
    """For each number from `lo` to `hi` - 1, return the range that contains it, and the
    offset within this range.

    `ends`: the ends of consecutive ranges. The first range starts at 0, and there are
    no gaps.
    """
    places = xp.arange(lo, hi)
    if hi <= lo:
        return places, places
    if xp is np:
        first, last = np.searchsorted(ends, [lo, hi - 1], side="right").tolist()
        some = ends[first : last + 1]
        edges = np.concatenate([[lo], np.minimum(some, hi)])
        which = np.repeat(np.arange(first, first + len(some)), np.diff(edges))
    else:
        which = xp.searchsorted(ends, places, side="right")
    begins = xp.concatenate([xp.zeros(1, ends.dtype), ends])
    return which, places - begins[which]


class EqualPairs(NamedTuple):
    """The rows of a chunk that match earlier rows because their sets are equal."""

    places: Array
    """Positions in `SetChunk.order` (rows,), int64. Each row matches all earlier rows
    of its group.
    """
    first: Array  # position of the first row of the group (rows,), int64
    ends: Array  # cumulative number of pairs (rows,), int64

    @property
    def total(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0


def equal_pairs(block_pair: SetBlockPair) -> EqualPairs:
    """Find the rows of a chunk that match earlier rows, because their sets are equal.

    If two different chunks are compared, there are none.
    """
    xp = block_pair.xp
    none = xp.zeros(0, xp.int64)
    if not block_pair.is_self_join:
        return EqualPairs(none, none, none)
    chunk = block_pair.data
    rows, firsts = group_rows(chunk), chunk["firsts"]
    groups = xp.flatnonzero((rows > 1) & matching_groups(chunk, block_pair.spec, xp))
    group, k = locate_in_ranges(xp.cumsum(rows[groups]), 0, int(rows[groups].sum()), xp)
    first = firsts[groups][group]
    return EqualPairs(first + k, first, xp.cumsum(k))


def matching_groups(chunk: SetChunk, spec: SetSpec, xp: ArrayModule) -> Array:
    """Return a mask (groups,) of the groups whose rows all match each other."""
    sizes = sizes_of(chunk)
    match = xp.zeros(len(sizes) + 2, np.bool_)
    kinds = distinct_sizes(sizes)
    good = xp.asarray(
        [equal_match(spec.rule, size) for size in kinds.tolist()], np.bool_
    )
    if len(sizes):
        match[: len(sizes)] = good[xp.searchsorted(kinds, sizes)]
    match[len(sizes)] = spec.empty_match
    match[len(sizes) + 1] = spec.allow_missing
    return match


def rows_of_equals(
    block_pair: SetBlockPair,
    own: EqualPairs,
    scored: bool,
    some: tuple[int, int] | None = None,
) -> RowPairs:
    """Return the pairs of rows whose sets are equal. `some`: return only this range of
    the pairs.
    """
    xp, chunk = block_pair.xp, block_pair.data
    lo, hi = (0, own.total) if some is None else some
    member, earlier = locate_in_ranges(own.ends, lo, hi, xp)
    right = own.places[member]
    score = None
    if scored:
        group = xp.searchsorted(chunk["firsts"], right, side="right") - 1
        score = scores_of_equals(chunk, block_pair.spec, xp)[group]
    return RowPairs(own.first[member] + earlier, right, score)


def scores_of_equals(chunk: SetChunk, spec: SetSpec, xp: ArrayModule) -> Array:
    """Return for each group the similarity of its rows (groups,), float64."""
    sizes = sizes_of(chunk)
    each = xp.ones(len(sizes) + 2)
    each[: len(sizes)] = spec.rule.score_of_equals(sizes)
    each[-1] = math.nan
    return each


def row_pairs(
    block_pair: SetBlockPair,
    scored: bool,
    matches: Iterator[SetMatches],
    report: Callable[[int], None] = lambda rows: None,
) -> Iterator[RowPairs]:
    """Yield the pairs of matching rows between two chunks, or within one chunk, in
    batches: first of rows with equal sets, then of `matches`.

    `report`: is called with the number of further pairs, before they are made.
    """
    batch = ROWS if block_pair.xp is np else DEVICE_ROWS
    if block_pair.first:
        own = equal_pairs(block_pair)
        report(own.total)
        for first in range(0, own.total, batch):
            some = first, min(first + batch, own.total)
            yield rows_of_equals(block_pair, own, scored, some)
    for found in matches:
        number = int(found.rows.sum())
        report(number)
        for first in range(0, max(number, 1), batch):
            yield rows_between(
                block_pair, found, scored, first, min(first + batch, number)
            )


class SetCuts(TypedDict):
    """How the result of two chunks is divided into parts."""

    own: int  # number of row pairs with equal sets
    # cumulative number of other row pairs, by group of the second chunk (sets + 2,),
    # int64
    ends: np.ndarray
    parts: int


def join_block(
    block_pair: SetBlockPair,
    columns: list[str],
    cuts: SetCuts | None = None,
    number: int = 0,
    like: Frame | None = None,
    alone: ResultRows | None = None,
    report: Callable[[int], None] = lambda rows: None,
) -> Frame:
    """Return all pairs of matching rows between two chunks, or within one chunk, as
    rows of the result.

    `columns`: names of the result's columns. `cuts`: see `cut_block`; with it, only
    part `number` is returned. `like`: an empty result, if dtypes must be converted to
    it. `alone`: left rows without a match that are appended, see `concat_results`.
    `report`: see `row_pairs`.
    """
    spec, frames = block_pair.spec, frames_for(block_pair.query["example"])
    scored = spec.score is not None and spec.score in columns
    of_chunks = block_pair.is_self_join or spec.other is not None
    on_host = block_pair.xp is np and frames.xp is np

    def write(own: SetBlockPair, found: Iterator[RowPairs]) -> list[ResultRows]:
        if on_host and of_chunks:
            return [_written(own, found, columns)]
        return [columns_of_rows(own, rows, columns) for rows in found]

    def write_share(
        own: SetBlockPair, matches: Iterator[SetMatches]
    ) -> list[ResultRows]:
        return write(own, row_pairs(own, scored, matches, report))

    if cuts is not None:
        parts = write(block_pair, _part(block_pair, scored, cuts, number))
    else:
        shares = by_threads(block_pair, scored, write_share)
        parts = list(itertools.chain.from_iterable(shares))
    threads = block_pair.threads
    if alone is not None and like is not None:
        return concat_results(parts, columns, frames, like, alone, threads)
    made = concat_results(parts, columns, frames, threads=threads)
    return made if like is None else cast_like(made, like)


def _written(
    block_pair: SetBlockPair, found: Iterator[RowPairs], columns: list[str]
) -> ResultRows:
    """Write the columns of a result in host memory. All left rows must be in one chunk,
    and so must all right rows.
    """
    spec, chunks = block_pair.spec, (block_pair.query, block_pair.data)
    wanted = {*columns}
    names = [
        {name: column for name, column in kept.items() if name in wanted}
        for kept in (spec.kept_left, spec.kept_right)
    ]
    written = PairColumns(chunks, names, [spec.score] if spec.score in columns else [])
    for rows in found:
        left, right = rows.left, rows.right
        if spec.other is None:
            left, right = _in_order(block_pair, left, right)
        written.add(left, right, *([] if rows.score is None else [rows.score]))
    return written.rows()


def _in_order(
    block_pair: SetBlockPair, left: Array, right: Array, behind: int = 0
) -> tuple[Array, Array]:
    """Swap the two rows of pairs where needed, so that the left row comes first in the
    table.

    `behind`: a number to add to the positions of rows in the second chunk.
    """
    swap = (
        numbers_of_rows(block_pair.data)[right]
        < numbers_of_rows(block_pair.query)[left]
    )
    right = right + behind if behind else right
    return block_pair.xp.where(swap, right, left), block_pair.xp.where(
        swap, left, right
    )


def columns_of_rows(
    block_pair: SetBlockPair, rows: RowPairs, columns: list[str]
) -> ResultRows:
    """Return the columns of a result for pairs of rows."""
    query, data, is_self_join, spec = (
        block_pair.query,
        block_pair.data,
        block_pair.is_self_join,
        block_pair.spec,
    )
    left, right = rows.left, rows.right
    left_of: tuple[Chunk, ...] = (query,)
    right_of: tuple[Chunk, ...] = (data,)
    if spec.other is None:
        left, right = _in_order(
            block_pair, left, right, 0 if is_self_join else len(query["ids"])
        )
        if not is_self_join:
            left_of = right_of = (query, data)
    part = pair_columns((left_of, left), (right_of, right), spec, columns)
    if spec.score is not None and spec.score in columns:
        part[spec.score] = rows.score
    return len(left), part


def numbers_of_rows(chunk: Chunk) -> Array:
    """For each row, in the order of `SetChunk.order`, return its position in the table."""
    order = chunk["order"]
    return chunk["position"][order] if "position" in chunk else order


def cut_block(block_pair: SetBlockPair, parts: int) -> SetCuts:
    """Count the pairs of each group in the second chunk. With these counts, the result
    is divided into equal parts.
    """
    xp, groups = block_pair.xp, all_groups(block_pair.data)
    rows = xp.zeros(groups, np.int64)
    for found in matches_in_parts(block_pair, 0, groups, False):
        xp.add.at(rows, found.right, found.rows)
    return SetCuts(
        own=equal_pairs(block_pair).total, ends=to_host(xp.cumsum(rows)), parts=parts
    )


def _part(
    block_pair: SetBlockPair, scored: bool, cuts: SetCuts, number: int
) -> Iterator[RowPairs]:
    """Yield the pairs of one part in batches. If there are more parts than pairs, a
    part may be one empty batch.
    """
    own, ends, parts = cuts["own"], cuts["ends"], cuts["parts"]
    total = own + (int(ends[-1]) if len(ends) else 0)
    lo, hi = total * number // parts, total * (number + 1) // parts
    if lo < min(own, hi):
        yield rows_of_equals(
            block_pair, equal_pairs(block_pair), scored, (lo, min(own, hi))
        )
    if own < hi or lo == hi:
        lo, hi = max(lo - own, 0), max(hi - own, 0)
        start = int(np.searchsorted(ends, lo, side="right"))
        stop = int(np.searchsorted(ends, hi, side="left")) + 1 if lo < hi else start
        before = int(ends[start - 1]) if start else 0
        found = set_matches(block_pair, start, min(stop, len(ends)), scored)
        some = (lo - before, hi - before) if lo < hi else (0, 0)
        yield rows_of_matches(block_pair, found, scored, some)


def count_block(
    block_pair: SetBlockPair, enough: int | None = None
) -> tuple[Array, Array | None]:
    """For each row of both chunks, return how many rows match it, in the order of the
    rows.

    If one chunk is compared with itself, the second array is None. `enough` is ignored,
    because counts are always exact.
    """
    xp, query, data, is_self_join = (
        block_pair.xp,
        block_pair.query,
        block_pair.data,
        block_pair.is_self_join,
    )
    counts = [xp.zeros(all_groups(query), np.int64)]
    counts.append(counts[0] if is_self_join else xp.zeros(all_groups(data), np.int64))
    rule, joiner = block_pair.spec.rule, block_pair.joiner
    start, stop = block_pair.range
    for left, right, left_first, right_first in block_pair.comparisons(start, stop):
        one, other = joiner.counts(
            left, right, rule, block_pair.method, block_pair.threads
        )
        counts[0][left_first : left_first + len(one)] += one
        if right is not None:
            counts[1][right_first : right_first + len(other)] += other
    if block_pair.first:
        if is_self_join:
            match = matching_groups(data, block_pair.spec, xp)
            counts[0] += xp.where(match, xp.maximum(group_rows(data) - 1, 0), 0)
        else:
            found = set_matches(
                block_pair, len(data["weights"]), all_groups(data), False
            )
            xp.add.at(counts[0], found.left, group_rows(data)[found.right])
            xp.add.at(counts[1], found.right, group_rows(query)[found.left])
    return _by_position(block_pair, 0, counts), None if is_self_join else _by_position(
        block_pair, 1, counts
    )


def _by_position(block_pair: SetBlockPair, side: int, counts: list[Array]) -> Array:
    chunk, xp = (block_pair.query, block_pair.data)[side], block_pair.xp
    places = xp.arange(len(chunk["ids"]))
    group = xp.searchsorted(chunk["firsts"], places, side="right") - 1
    found = xp.empty(len(places), np.int64)
    found[chunk["order"]] = counts[side][group]
    return found


def count_block_pairs(block_pair: SetBlockPair) -> int:
    data, rule, joiner = block_pair.data, block_pair.spec.rule, block_pair.joiner
    start, stop = block_pair.range
    pairs = sum(
        joiner.count(left, right, rule, block_pair.method, block_pair.threads)
        for left, right, _, _ in block_pair.comparisons(start, stop)
    )
    if block_pair.first and block_pair.is_self_join:
        rows = group_rows(data)
        match = matching_groups(data, block_pair.spec, block_pair.xp)
        pairs += int((rows * (rows - 1) // 2 * match).sum())
    elif block_pair.first:
        found = set_matches(block_pair, len(data["weights"]), all_groups(data), False)
        pairs += int(found.rows.sum())
    return pairs
