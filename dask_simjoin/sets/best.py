"""Choose for each left row its most similar right row: the work of one task.

The search returns pairs of distinct sets or texts in batches. A pair of a batch stays
only if no better pair of its left group is known. So the pairs of a join are never all
in memory, and only best ones become rows.

If several right rows are equally similar, the first in the table is the best one, or
all of them are: see `ValueSpec.best`. "Equally" refers to the float64 values that
`rank` of a rule returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.requests import ALL_TIES, KEEPS
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
from dask_simjoin.sets.requests import SetSpec
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


def first_of_groups(chunk: SetChunk) -> tuple[np.ndarray, np.ndarray]:
    """Return for each group the place of the row that comes first in the table, and the
    position of this row (groups,). Groups without rows have any numbers.
    """
    numbers, firsts = to_host(numbers_of_rows(chunk)), to_host(chunk["firsts"])
    if not len(numbers):
        none = np.zeros(len(firsts) - 1, np.int64)
        return none, none
    group = np.repeat(np.arange(len(firsts) - 1), np.diff(firsts))
    place = np.lexsort((numbers, group))[np.minimum(firsts[:-1], len(numbers) - 1)]
    return place, numbers[place]


def best_of(
    left: np.ndarray, rank: np.ndarray, right: np.ndarray, ties: str
) -> np.ndarray:
    """Return the places of the best pairs, sorted by `left`, then by `right`.

    `ties`: "first": of equal ranks, only the pair with the smallest `right` is best.
    """
    order = np.lexsort((right, rank, left))
    left, rank = left[order], rank[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = left[1:] != left[:-1]
    if ties != ALL_TIES:
        return order[is_first]
    first = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
    return order[rank == rank[first]]


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
    least = np.full(all_groups(block_pair.query), np.inf)
    parts: list[GroupPairs] = []
    held = 0

    for batch in found:
        pairs = _ranked(block_pair, batch)
        np.minimum.at(least, pairs.left, pairs.rank)
        good = pairs.rank == least[pairs.left]
        parts.append(GroupPairs(*(column[good] for column in pairs)))
        held += int(good.sum())
        if held > 2 * len(parts[0].left) + BATCH:
            parts = [_chosen(block_pair, parts, position)]
            held = len(parts[0].left)
    return _chosen(block_pair, parts, position)


def _chosen(
    block_pair: SetBlockPair, parts: Sequence[GroupPairs], position: np.ndarray
) -> GroupPairs:
    """Return the best pairs of several parts. `position`: see `best_groups`."""
    every = GroupPairs(*map(np.concatenate, zip(*parts, strict=True)))
    ties = block_pair.spec.best or ""
    some = best_of(every.left, every.rank, position[every.right], ties)
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

    `report`: is called with the number of these rows, before they are made.
    """
    place, position = first_of_groups(block_pair.data)
    if block_pair.part == (0, 1):
        shares = by_threads(
            block_pair, True, lambda own, found: best_groups(own, found, position)
        )
    else:
        shares = [best_groups(block_pair, _matches_of_share(block_pair), position)]
    best = _chosen(block_pair, shares, position)
    pair, left, right = _rows_of_groups(block_pair, best, place)
    report(len(pair))
    xp = block_pair.xp
    pairs = RowPairs(xp.asarray(left), xp.asarray(right), xp.asarray(best.score[pair]))
    number, part = columns_of_rows(block_pair, pairs, columns)
    return BestRows(
        frames_for(block_pair.query["example"]).result(part, number),
        to_host(block_pair.query["order"])[left],
        best.rank[pair],
        to_host(numbers_of_rows(block_pair.data))[right],
    )


def _rows_of_groups(
    block_pair: SetBlockPair, best: GroupPairs, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of rows: the number of the pair of groups, and the places of both
    rows. `place`: see `first_of_groups`.
    """
    q_firsts, d_firsts = (
        to_host(chunk["firsts"]) for chunk in (block_pair.query, block_pair.data)
    )
    wide = np.ones(len(best.left), np.int64)
    if block_pair.spec.best == ALL_TIES:
        wide = np.diff(d_firsts)[best.right]
    ends = np.cumsum(np.diff(q_firsts)[best.left] * wide)
    total = int(ends[-1]) if len(ends) else 0
    pair, within = locate_in_ranges(ends, 0, total, np)
    left = q_firsts[best.left][pair] + within // wide[pair]
    if block_pair.spec.best != ALL_TIES:
        return pair, left, place[best.right][pair]
    return pair, left, d_firsts[best.right][pair] + within % wide[pair]


def merge_best(ties: str, *found: BestRows) -> BestRows:
    """Choose the best of the rows that several tasks found for one chunk."""
    left, rank, right = (
        np.concatenate([getattr(one, name) for one in found])
        for name in ("left", "rank", "right")
    )
    some = best_of(left, rank, right, ties)
    frames = frames_for(found[0].rows)
    rows = frames.stacked([one.rows for one in found]).iloc[frames.xp.asarray(some)]
    return BestRows(rows.reset_index(drop=True), left[some], rank[some], right[some])


def best_rows(
    query: SetChunk, spec: SetSpec, like: Frame, how: str, *found: BestRows
) -> Frame:
    """Make rows of the result for one chunk: its best pairs, sorted by left row, and
    with ``how="left"`` also its rows without a match.
    """
    frames = frames_for(like)
    parts: Sequence[Frame] = ()
    hit = np.zeros(len(query["ids"]), np.int64)
    if found:
        best = merge_best(spec.best or "", *found)
        hit[best.left] = 1
        parts = [cast_like(best.rows[list(like.columns)], like)]
    if "left" in KEEPS.get(how, ()):
        counts = frames.xp.asarray(hit)
        parts = [*parts, unmatched(query, counts, spec, like)]
    return frames.stacked(list(parts)) if parts else like
