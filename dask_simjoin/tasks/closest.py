"""Find the closest pairs of all rows, by searches for nearest neighbors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class RowPairs(NamedTuple):
    """Pairs of rows, with their totals and, if there are groups, their groups."""

    # (pairs,) int64: positions of the left and the right rows in their tables
    left: np.ndarray
    right: np.ndarray
    # (pairs,) float64: totals, which are compared instead of distances
    total: np.ndarray
    # (pairs,) float64: group of each pair, where the n closest pairs of each group are
    # wanted; None: one group
    group: np.ndarray | None = None

    def take(self, rows: np.ndarray | slice) -> RowPairs:
        return RowPairs(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


NO_PAIRS = RowPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def first_pairs(found: Sequence[RowPairs], n: int, one_table: bool) -> RowPairs:
    """Return the n closest distinct pairs of each group, sorted. In a self-join, left <
    right.
    """
    left, right, total = (
        np.concatenate(parts)
        for parts in zip(*(pairs[:3] for pairs in found), strict=True)
    )
    parts = [pairs.group for pairs in found if pairs.group is not None]
    group = np.concatenate(parts) if parts else None
    # in a join of a table with itself, a pair may be found twice, once from each of its
    # rows
    max_pairs = n * (1 + one_table) * len(found)
    pairs = RowPairs(left, right, total, group)
    if len(total) > max_pairs and group is None:
        pairs = pairs.take(total <= np.partition(total, max_pairs - 1)[max_pairs - 1])
    if one_table:
        ends = pairs.left, pairs.right
        pairs = pairs._replace(left=np.minimum(*ends), right=np.maximum(*ends))
    pairs = pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))
    if pairs.group is not None:
        pairs = pairs.take(np.argsort(pairs.group, kind="stable"))
    new = np.ones(len(pairs.total), bool)
    new[1:] = (pairs.left[1:] != pairs.left[:-1]) | (
        pairs.right[1:] != pairs.right[:-1]
    )
    pairs = pairs.take(np.flatnonzero(new))
    if pairs.group is None:
        return pairs.take(slice(n))
    rank = np.arange(len(pairs.group)) - np.searchsorted(pairs.group, pairs.group)
    pairs = pairs.take(rank < n)
    return pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))


def last_pairs(
    best: RowPairs, n: int, group: np.ndarray | None
) -> tuple[RowPairs, np.ndarray]:
    """For each row, return the last one of the closest pairs in its group, and whether
    the group has n pairs.

    `best`: the closest pairs of all groups, sorted. `group`: the group of each row;
    None: there is one group, and each result has a single item.
    """
    if group is None or best.group is None:
        return best.take(slice(-1, None)), np.array([len(best.total) >= n])
    groups, place, count = np.unique(
        best.group, return_inverse=True, return_counts=True
    )
    last = np.zeros(len(groups), np.int64)
    np.maximum.at(last, place, np.arange(len(place)))
    # `groups` has all of these, because each group has a pair in `best`
    own = np.searchsorted(groups, group)
    return best.take(last[own]), count[own] >= n


def rows_to_search_again(
    found: RowPairs, k: int, best: RowPairs, n: int, one_table: bool
) -> RowPairs:
    """Choose the rows that may have more of the closest pairs. Return each with its
    k-th neighbor, as a pair.

    `found`: the neighbors of each row, sorted. `best`: the n closest pairs of each
    group so far. A row is done if it has fewer than k neighbors. It is also done if the
    pair with its k-th neighbor comes after all pairs in `best`.
    """
    own = found.left
    ends = np.flatnonzero(np.append(own[1:] != own[:-1], len(own) > 0))
    some = found.take(ends[np.diff(ends, prepend=-1) >= k])
    last, full = last_pairs(best, n, some.group)
    if not len(some.left) or not full.any():
        return some
    left, right = some.left, some.right
    if one_table:
        left, right = np.minimum(left, right), np.maximum(left, right)
    before = (left < last.left) | ((left == last.left) & (right <= last.right))
    before = (some.total < last.total) | ((some.total == last.total) & before)
    return some.take(before | ~full)


Search = Callable[[np.ndarray | None, np.ndarray | None, int, float], RowPairs]
"""A function that searches the k nearest rows.

Its arguments: positions of left rows, positions of right rows (None: all rows), k, and
the largest total. It returns pairs sorted by left row and rank.
"""


def closest(
    search: Search, n: int, rows: tuple[int, int], one_table: bool, max_total: float
) -> RowPairs:
    """Return the n closest pairs of each group, sorted. They are found by searches for
    nearest neighbors.

    Pairs are sorted by total, then left row, then right row. The neighbors of a row
    have the same order, because ties go to the first row. So if a pair is among the n
    closest, its right row is among the n nearest neighbors of its left row. The same
    holds within a group.

    `rows`: number of rows in each table. Each further search is for more neighbors of
    fewer rows, and finds at most about 4 n pairs of a group. So memory depends on n and
    the numbers of rows, but not on how many rows are duplicates.
    """
    max_k = rows[1] - one_table
    if min(rows[0], max_k) < 1:
        return NO_PAIRS
    k = min(max(1, math.ceil(n * (1 + one_table) / rows[0])), max_k)
    found = search(None, None, k, max_total)
    best = first_pairs([found], n, one_table)
    while True:
        again = rows_to_search_again(found, k, best, n, one_table)
        if k == max_k or not len(again.left):
            return best
        k = min(2 * k, max_k)
        others = None
        last, full = last_pairs(best, n, again.group)
        if full.all():
            max_total = float(last.total.max())
            # even the nearest neighbor of any other row gave no pair for `best`, so
            # only these rows can form closer pairs
            if one_table:
                chosen = np.zeros(rows[0], bool)
                chosen[best.left] = chosen[best.right] = True
                others = np.flatnonzero(chosen)
        found = search(again.left, others, k, max_total)
        best = first_pairs([best, found], n, one_table)
