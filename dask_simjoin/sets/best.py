"""Choose for each left row its most similar right rows: the work of one task.

The search returns pairs of groups in batches. A group has the rows of one distinct set
or text. The k best right rows of a left row come first by similarity, and then by
position in the table. Sort groups in the same way, by the position of their first row.
Then the first row of a group is ahead of all rows of the groups behind it. So the k best
rows are in the k best groups. A pair of a batch stays only if its left group has fewer
than k better pairs. The pairs of a join are never all in memory, and only pairs
that stay become rows.

Similarities are compared by the float64 values that `rank` of a rule returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.requests import KEEPS
from dask_simjoin.sets.chunks import SetBlockPair, SetChunk
from dask_simjoin.sets.pairs import (
    RowPairs,
    SetMatches,
    all_groups,
    by_threads,
    columns_of_rows,
    locate_in_ranges,
    matches_in_parts,
    numbers_of_rows,
)
from dask_simjoin.sets.requests import Best, SetSpec
from dask_simjoin.sets.token_ids import sizes_of
from dask_simjoin.sizes import BATCH
from dask_simjoin.tasks.pairs import cast_like, unmatched


class GroupPairs(NamedTuple):
    """Pairs of groups, see `SetMatches`, with the rank of each. The smallest rank is the
    best one.
    """

    left: np.ndarray  # (pairs,) int64
    right: np.ndarray  # (pairs,) int64
    rank: np.ndarray  # (pairs,) float64
    score: np.ndarray  # (pairs,) float64


class BestRows(NamedTuple):
    """Rows of the result, and the values that decide which of a left row are best."""

    rows: Frame
    left: np.ndarray  # position of the left row in its chunk (rows,), int64
    rank: np.ndarray  # see `GroupPairs`
    right: np.ndarray  # position of the right row in its table (rows,), int64


class GroupRows(NamedTuple):
    """The groups of a chunk, and their rows in the order of the table."""

    firsts: np.ndarray  # where in `places` the rows of each group begin, and the end
    places: np.ndarray  # place of each row in `SetChunk.order`
    numbers: np.ndarray  # position of each row in the table, in the order of `places`

    @property
    def position(self) -> np.ndarray:
        """The position of the first row of each group (groups,). Groups without rows
        have any numbers.
        """
        last = max(len(self.numbers) - 1, 0)
        some = self.numbers if len(self.numbers) else np.zeros(1, np.int64)
        return some[np.minimum(self.firsts[:-1], last)]


def rows_of_groups(chunk: SetChunk) -> GroupRows:
    """Return the rows of each group, sorted by their positions in the table."""
    numbers, firsts = to_host(numbers_of_rows(chunk)), to_host(chunk["firsts"])
    group = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    places = np.lexsort((numbers, group))
    return GroupRows(firsts, places, numbers[places])


def best_of(
    left: np.ndarray, rank: np.ndarray, right: np.ndarray, best: Best
) -> np.ndarray:
    """Return the places of the best pairs, sorted by `left`, by `rank`, and then by
    `right`.

    If ranks are equal, pairs with a smaller `right` are better. With ``best.all_ties``,
    pairs are also best if they have the same rank as the last one.
    """
    order = np.lexsort((right, rank, left))
    left, rank = left[order], rank[order]
    place = _first_equal(left, rank) if best.all_ties else np.arange(len(order))
    return order[place - _first_equal(left) < best.number]


def _first_equal(*columns: np.ndarray) -> np.ndarray:
    """For each place of sorted columns, return the first place with the same values."""
    is_first = np.ones(len(columns[0]), bool)
    is_first[1:] = np.any([c[1:] != c[:-1] for c in columns], axis=0)
    return np.flatnonzero(is_first)[np.cumsum(is_first) - 1]


def _ranked(block_pair: SetBlockPair, found: SetMatches) -> GroupPairs:
    left, right, score = (to_host(found[k]) for k in range(3))
    sides = zip((block_pair.query, block_pair.data), (left, right), strict=True)
    sizes = []
    for chunk, groups in sides:
        each = np.zeros(all_groups(chunk), np.int64)  # of empty and missing sets: 0
        each[:-2] = to_host(sizes_of(chunk))
        sizes.append(each[groups])
    own, other = sizes
    rank = block_pair.spec.rule.rank(own, other, np.nan_to_num(score))
    return GroupPairs(left, right, rank, score)


def best_groups(
    block_pair: SetBlockPair, found: Iterator[SetMatches], position: np.ndarray
) -> GroupPairs:
    """Return the best pairs of groups. `position`: for each group of the second chunk,
    the position of its first row.
    """
    number = block_pair.spec.best.number
    # the rank of the last of the best pairs found so far, if there are enough
    limit = np.full(all_groups(block_pair.query), np.inf)
    parts: list[GroupPairs] = []
    held = 0

    for batch in found:
        pairs = _ranked(block_pair, batch)
        if number == 1:
            np.minimum.at(limit, pairs.left, pairs.rank)
        good = pairs.rank <= limit[pairs.left]
        parts.append(GroupPairs(*(column[good] for column in pairs)))
        held += int(good.sum())
        if held > 2 * len(parts[0].left) + BATCH:
            best = _chosen(block_pair, parts, position)
            parts, held = [best], len(best.left)
            place = np.arange(held)
            last = place - _first_equal(best.left) == number - 1
            limit[best.left[last]] = best.rank[last]
    return _chosen(block_pair, parts, position)


def _chosen(
    block_pair: SetBlockPair, parts: Sequence[GroupPairs], position: np.ndarray
) -> GroupPairs:
    """Return the best pairs of several parts, sorted by left group and by rank.
    `position`: see `best_groups`.
    """
    every = GroupPairs(*map(np.concatenate, zip(*parts, strict=True)))
    best = block_pair.spec.best
    some = best_of(every.left, every.rank, position[every.right], best)
    return GroupPairs(*(column[some] for column in every))


def _matches_of_share(block_pair: SetBlockPair) -> Iterator[SetMatches]:
    """Yield the matches of this share of the work."""
    yield from matches_in_parts(block_pair, *block_pair.range, scored=True)
    if block_pair.first:
        groups = all_groups(block_pair.data)
        yield from matches_in_parts(
            block_pair, len(block_pair.data["weights"]), groups, scored=True
        )


def best_of_block(
    block_pair: SetBlockPair,
    columns: list[str],
    report: Callable[[int], None] = lambda rows: None,
) -> BestRows:
    """Find for each row of the first chunk the best rows of the second chunk.

    `report`: is called with the number of pairs of rows to choose from, before they are
    made.
    """
    rows = rows_of_groups(block_pair.data)
    position = rows.position
    if block_pair.part == (0, 1):
        shares = by_threads(
            block_pair, True, lambda own, found: best_groups(own, found, position)
        )
    else:
        shares = [best_groups(block_pair, _matches_of_share(block_pair), position)]
    groups = _chosen(block_pair, shares, position)
    groups = _in_reach(groups, rows, block_pair.spec.best.number)
    pair, left, right = _pairs_of_rows(block_pair, groups, rows, report)
    left_row, number = to_host(block_pair.query["order"])[left], rows.numbers[right]
    best = best_of(left_row, groups.rank[pair], number, block_pair.spec.best)
    pair, left, right = pair[best], left[best], rows.places[right[best]]
    xp = block_pair.xp
    score = xp.asarray(groups.score[pair])
    pairs = RowPairs(xp.asarray(left), xp.asarray(right), score)
    total, part = columns_of_rows(block_pair, pairs, columns)
    return BestRows(
        frames_for(block_pair.query["example"]).result(part, total),
        left_row[best],
        groups.rank[pair],
        number[best],
    )


def _in_reach(groups: GroupPairs, rows: GroupRows, number: int) -> GroupPairs:
    """Leave out pairs behind `number` or more rows of better groups. `groups`: see
    `_chosen`. `rows`: of the right groups.
    """
    wide = np.diff(rows.firsts)[groups.right]
    before = np.cumsum(wide) - wide
    ties = _first_equal(groups.left, groups.rank)
    ahead = before[ties] - before[_first_equal(groups.left)]
    return GroupPairs(*(column[ahead < number] for column in groups))


def _pairs_of_rows(
    block_pair: SetBlockPair,
    groups: GroupPairs,
    rows: GroupRows,
    report: Callable[[int], None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of rows, among them all best ones. Columns: number of the pair of
    groups; place of the left row in `SetChunk.order`; place of the right row in `rows`.

    `groups`: see `_chosen`. `rows`: of the second chunk.
    """
    best = block_pair.spec.best
    firsts = to_host(block_pair.query["firsts"])
    wide = np.diff(rows.firsts)[groups.right]
    if not best.all_ties:
        wide = np.minimum(wide, best.number)
    ends = np.cumsum(np.diff(firsts)[groups.left] * wide)
    total = int(ends[-1]) if len(ends) else 0
    report(total)
    pair, within = locate_in_ranges(ends, 0, total, np)
    left = firsts[groups.left][pair] + within // wide[pair]
    return pair, left, rows.firsts[groups.right][pair] + within % wide[pair]


def merge_best(best: Best, *found: BestRows) -> BestRows:
    """Choose the best of the rows that several tasks found for one chunk."""
    if len(found) == 1:
        return found[0]
    left, rank, right = (
        np.concatenate([getattr(one, name) for one in found])
        for name in ("left", "rank", "right")
    )
    some = best_of(left, rank, right, best)
    frames = frames_for(found[0].rows)
    rows = frames.stacked([one.rows for one in found]).iloc[frames.xp.asarray(some)]
    return BestRows(rows.reset_index(drop=True), left[some], rank[some], right[some])


def best_rows(
    query: SetChunk, spec: SetSpec, like: Frame, how: str, *found: BestRows
) -> Frame:
    """Make rows of the result for one chunk: its best pairs, sorted by left row and by
    similarity. With ``how="left"``, its rows without a match follow.
    """
    frames = frames_for(like)
    parts: Sequence[Frame] = ()
    hit = np.zeros(len(query["ids"]), np.int64)
    if found:
        best = merge_best(spec.best, *found)
        hit[best.left] = 1
        parts = [cast_like(best.rows[list(like.columns)], like)]
    if "left" in KEEPS.get(how, ()):
        counts = frames.xp.asarray(hit)
        parts = [*parts, unmatched(query, counts, spec, like)]
    return frames.stacked(list(parts)) if parts else like
