"""Choose for each left row its most similar right rows: the work of one task.

The search returns pairs of groups in batches. A group has the rows of one distinct set
or text. The k best right rows of a left row come first by similarity, and then by
position in the table. Sort groups in the same way, by the position of their first row.
Then the first row of a group is ahead of all rows of the groups behind it. So the k best
rows are in the k best groups. A pair of a batch stays only if its left group has fewer
than k better pairs. The pairs of a join are never all in memory, and only pairs that
stay become rows.

In a self-join, a row may be the first row of one of its best groups. As a row does not
match itself, k + 1 groups are needed then. The search returns each pair of groups once,
and both are the left group of a pair.

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
    SetMatches,
    all_groups,
    by_threads,
    locate_in_ranges,
    matches_in_parts,
    matching_groups,
    numbers_of_rows,
    scores_of_equals,
)
from dask_simjoin.sets.requests import Best, SetSpec
from dask_simjoin.sets.token_ids import sizes_of
from dask_simjoin.sizes import BATCH
from dask_simjoin.tasks.pairs import cast_like, pair_columns, unmatched


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


class Groups(NamedTuple):
    """The groups of one chunk, or of two chunks of one table. The second chunk's groups
    and rows follow the first one's.
    """

    chunks: tuple[SetChunk, ...]
    sizes: np.ndarray  # of the set of each group; 0: no tokens, or no set
    firsts: np.ndarray  # where in `places` the rows of each group begin, and the end
    # place of each row in `SetChunk.order`; the rows of a group are in table order
    places: np.ndarray
    numbers: np.ndarray  # position of each row in the table, in the order of `places`
    position: np.ndarray  # of the first row of each group; any number if it has no row

    @property
    def rows(self) -> np.ndarray:
        """The number of rows of each group (groups,)."""
        return np.diff(self.firsts)


def groups_of(*chunks: SetChunk) -> Groups:
    """Return the groups of one chunk, or of two chunks of one table."""
    sizes: list[np.ndarray] = []
    firsts, numbers, rows = [], [], 0
    for chunk in chunks:
        sizes += [to_host(sizes_of(chunk)), np.zeros(2, np.int64)]
        firsts.append(to_host(chunk["firsts"])[:-1] + rows)
        numbers.append(to_host(numbers_of_rows(chunk)))
        rows += len(numbers[-1])
    ends, number = np.append(np.concatenate(firsts), rows), np.concatenate(numbers)
    group = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    places = np.lexsort((number, group))
    number = number[places]
    position = np.append(number, 0)[ends[:-1]]
    size = np.concatenate(sizes).astype(np.int64)
    return Groups(chunks, size, ends, places, number, position)


class BestSearch(NamedTuple):
    """The groups of a block pair, and which pairs of them are wanted."""

    left: Groups
    right: Groups
    is_one_table: bool
    best: Best  # of groups: in a self-join one more than of rows

    def ranked(
        self, block_pair: SetBlockPair, found: Iterator[SetMatches]
    ) -> Iterator[GroupPairs]:
        """Yield matches with their ranks. In a self-join, yield them in both
        directions, and the groups whose rows match each other.
        """
        rule, swap, is_one = (
            block_pair.spec.rule,
            self.is_one_table,
            block_pair.is_self_join,
        )
        behind = all_groups(block_pair.query) if swap and not is_one else 0
        if is_one and block_pair.first:
            yield self._equal(block_pair)
        for some in found:
            one, other, score = (to_host(some[k]) for k in range(3))
            ends = one, other + behind
            ends = (np.append(*ends), np.append(*ends[::-1])) if swap else ends
            score = np.append(score, score) if swap else score
            sizes = self.left.sizes[ends[0]], self.right.sizes[ends[1]]
            yield GroupPairs(*ends, rule.rank(*sizes, np.nan_to_num(score)), score)

    def _equal(self, block_pair: SetBlockPair) -> GroupPairs:
        """Pair groups of several rows with themselves."""
        chunk, spec, xp = block_pair.data, block_pair.spec, block_pair.xp
        match = to_host(matching_groups(chunk, spec, xp))
        group = np.flatnonzero(match & (self.left.rows > 1))
        score = to_host(scores_of_equals(chunk, spec, xp))[group]
        sizes = self.left.sizes[group]
        rank = spec.rule.rank(sizes, sizes, np.nan_to_num(score))
        return GroupPairs(group, group, rank, score)

    def chosen(self, parts: Sequence[GroupPairs]) -> GroupPairs:
        """Return the best pairs of several parts, sorted by left group and by rank."""
        every = GroupPairs(*map(np.concatenate, zip(*parts, strict=True)))
        position = self.right.position[every.right]
        some = best_of(every.left, every.rank, position, self.best)
        return GroupPairs(*(column[some] for column in every))

    def best_groups(self, found: Iterator[GroupPairs]) -> GroupPairs:
        """Return the best pairs of groups."""
        number = self.best.number
        # the rank of the last of the best pairs found so far, if there are enough
        limit = np.full(len(self.left.sizes), np.inf)
        parts: list[GroupPairs] = []
        held = 0

        for pairs in found:
            if number == 1:
                np.minimum.at(limit, pairs.left, pairs.rank)
            good = pairs.rank <= limit[pairs.left]
            parts.append(GroupPairs(*(column[good] for column in pairs)))
            held += int(good.sum())
            if held > 2 * len(parts[0].left) + BATCH:
                best = self.chosen(parts)
                parts, held = [best], len(best.left)
                place = np.arange(held)
                last = place - _first_equal(best.left) == number - 1
                limit[best.left[last]] = best.rank[last]
        return self.chosen(parts)

    def in_reach(self, groups: GroupPairs) -> GroupPairs:
        """Leave out pairs behind enough rows of better groups. `groups`: see `chosen`."""
        wide = self.right.rows[groups.right]
        before = np.cumsum(wide) - wide
        ties = _first_equal(groups.left, groups.rank)
        ahead = before[ties] - before[_first_equal(groups.left)]
        good = ahead < self.best.number
        return GroupPairs(*(column[good] for column in groups))

    def pairs_of_rows(
        self, groups: GroupPairs, report: Callable[[int], None]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return pairs of rows, among them all best ones. Columns: number of the pair of
        groups; places of the left row and of the right row in `Groups.places`.
        """
        wide = self.right.rows[groups.right]
        if not self.best.all_ties:
            wide = np.minimum(wide, self.best.number)
        ends = np.cumsum(self.left.rows[groups.left] * wide)
        total = int(ends[-1]) if len(ends) else 0
        report(total)
        pair, within = locate_in_ranges(ends, 0, total, np)
        left = self.left.firsts[groups.left][pair] + within // wide[pair]
        right = self.right.firsts[groups.right][pair] + within % wide[pair]
        if not self.is_one_table:
            return pair, left, right
        others = left != right
        return pair[others], left[others], right[others]


def search_of(block_pair: SetBlockPair) -> BestSearch:
    query, data, best = block_pair.query, block_pair.data, block_pair.spec.best
    if block_pair.spec.other is not None:
        return BestSearch(groups_of(query), groups_of(data), False, best)
    both = groups_of(query) if block_pair.is_self_join else groups_of(query, data)
    return BestSearch(both, both, True, best._replace(number=best.number + 1))


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
) -> list[BestRows]:
    """Find for each row of the first chunk the best rows of the second chunk. If two
    different chunks of one table are compared, also find for each row of the second
    chunk the best rows of the first chunk. Return one `BestRows` for each of these
    chunks.

    `report`: is called with the number of pairs of rows to choose from, before they are
    made.
    """
    search, spec, xp = search_of(block_pair), block_pair.spec, block_pair.xp

    def work(own: SetBlockPair, found: Iterator[SetMatches]) -> GroupPairs:
        return search.best_groups(search.ranked(own, found))

    if block_pair.part == (0, 1):
        shares = by_threads(block_pair, True, work)
    else:
        shares = [work(block_pair, _matches_of_share(block_pair))]
    groups = search.in_reach(search.chosen(shares))
    pair, left, right = search.pairs_of_rows(groups, report)
    left, number = search.left.places[left], search.right.numbers[right]
    orders = [to_host(chunk["order"]) for chunk in search.left.chunks]
    firsts = np.cumsum([0, *map(len, orders)])
    row = np.concatenate([order + n for order, n in zip(orders, firsts, strict=False)])
    best = best_of(row[left], groups.rank[pair], number, spec.best)
    pair, left, right = pair[best], left[best], search.right.places[right[best]]
    one = search.left.chunks, xp.asarray(left)
    other = search.right.chunks, xp.asarray(right)
    part = pair_columns(one, other, spec, columns)
    if spec.score in columns:
        part[spec.score] = xp.asarray(groups.score[pair])
    rows = frames_for(block_pair.query["example"]).result(part, len(pair))
    found = BestRows(rows, row[left], groups.rank[pair], number[best])
    return _of_each_chunk(found, firsts)


def _of_each_chunk(found: BestRows, firsts: np.ndarray) -> list[BestRows]:
    """Divide rows of several chunks by their left rows. `firsts`: the position of each
    chunk's first row, and the end.
    """
    ends = np.searchsorted(found.left, firsts).tolist()
    return [
        BestRows(
            found.rows.iloc[start:stop].reset_index(drop=True),
            found.left[start:stop] - first,
            found.rank[start:stop],
            found.right[start:stop],
        )
        for first, start, stop in zip(firsts, ends, ends[1:], strict=False)
    ]


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
    similarity. With ``how="left"``, also its rows without a match, each in its place.
    """
    frames = frames_for(like)
    best = merge_best(spec.best, *found) if found else None
    rows = like if best is None else cast_like(best.rows[list(like.columns)], like)
    if "left" not in KEEPS.get(how, ()):
        return rows
    hit = np.zeros(len(query["ids"]), np.int64)
    left = np.zeros(0, np.int64) if best is None else best.left
    hit[left] = 1
    alone = np.flatnonzero(hit == 0)
    rest = unmatched(query, frames.xp.asarray(hit), spec, like)
    if not len(left) or not len(alone):
        return rest if len(alone) else rows
    order = np.argsort(np.append(left, alone), kind="stable")
    both = frames.stacked([rows, rest]).iloc[frames.xp.asarray(order)]
    return both.reset_index(drop=True)
