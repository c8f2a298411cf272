"""Choose the closest pairs among nearest neighbors, as arrays of row numbers.

Pairs are ordered by total, then by left row, then by right row.  The nearest neighbors of a row are in the
same order, because ties go to the first row.  So each of the n closest pairs is among the n nearest neighbors
of its rows.  This also holds within a group of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np


class RowPairs(NamedTuple):
    """Hold pairs of rows.

    Attributes
    ----------
    left, right : array (n,), int64
        Numbers of the rows in their tables.
    total : array (n,), float64
        Totals, which are compared instead of distances.
    group : array (n,), float64, or None
        Labels of the groups; each group has its own n closest pairs.  None: all rows are one group.
    """

    left: np.ndarray
    right: np.ndarray
    total: np.ndarray
    group: np.ndarray | None = None

    def take(self, rows: np.ndarray | slice) -> RowPairs:
        """Return some of the pairs; `rows`: their positions, or a mask."""
        return RowPairs(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


NO_PAIRS = RowPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def first_pairs(found: Sequence[RowPairs], n: int, one_table: bool) -> RowPairs:
    """Return the first n distinct pairs of each group, in order; in one table, left < right in each pair."""
    left, right, total = (
        np.concatenate(parts) for parts in zip(*(pairs[:3] for pairs in found), strict=True)
    )
    parts = [pairs.group for pairs in found if pairs.group is not None]
    group = np.concatenate(parts) if parts else None
    most = n * (1 + one_table) * len(found)  # in one table, a list can have a pair from both of its rows
    pairs = RowPairs(left, right, total, group)
    if len(total) > most and group is None:
        pairs = pairs.take(total <= np.partition(total, most - 1)[most - 1])
    if one_table:
        ends = pairs.left, pairs.right
        pairs = pairs._replace(left=np.minimum(*ends), right=np.maximum(*ends))
    pairs = pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))
    if pairs.group is not None:
        pairs = pairs.take(np.argsort(pairs.group, kind="stable"))
    new = np.ones(len(pairs.total), bool)
    new[1:] = (pairs.left[1:] != pairs.left[:-1]) | (pairs.right[1:] != pairs.right[:-1])
    pairs = pairs.take(np.flatnonzero(new))
    if pairs.group is None:
        return pairs.take(slice(n))
    rank = np.arange(len(pairs.group)) - np.searchsorted(pairs.group, pairs.group)
    pairs = pairs.take(rank < n)
    return pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))


class LastPairs(NamedTuple):
    """Hold, for some rows, the last of the closest pairs of the row's group.

    Attributes
    ----------
    pairs : RowPairs
        One pair for each row, or a single pair for all rows.
    full : array, bool
        Whether the pair's group has n pairs.
    """

    pairs: RowPairs
    full: np.ndarray


def last_pairs(best: RowPairs, n: int, group: np.ndarray | None) -> LastPairs:
    """Return the last of the closest pairs of each row's group.

    `best`: the closest pairs of all groups, in order.  `group`: the group of each row.
    """
    if group is None or best.group is None:
        return LastPairs(best.take(slice(-1, None)), np.array([len(best.total) >= n]))
    groups, place, count = np.unique(best.group, return_inverse=True, return_counts=True)
    last = np.zeros(len(groups), np.int64)
    np.maximum.at(last, place, np.arange(len(place)))
    own = np.searchsorted(groups, group)  # `best` has pairs of all these groups
    return LastPairs(best.take(last[own]), count[own] >= n)


def rows_to_search_again(found: RowPairs, k: int, best: RowPairs, n: int, one_table: bool) -> RowPairs:
    """Return the k-th neighbors of rows that may have more of the n closest pairs of their group.

    `found`: the neighbors of each row, in order.  `best`: the n closest pairs so far.  A row is done if it
    has fewer than k neighbors, or if its pair with its k-th neighbor comes after all n best pairs.
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
"""Searches the k nearest rows of some left rows among some right rows, within a total.

None: all rows.  Rows are numbered in each table.  Pairs are in the order of left rows, then of rank."""


def closest(search: Search, n: int, rows: tuple[int, int], one_table: bool, max_total: float) -> RowPairs:
    """Return the n closest pairs of each group, in order, by searches for nearest neighbors.

    `rows`: number of rows of each table.  Each search is for more neighbors of fewer rows, and finds at most
    about 4 n pairs of a group.  So memory grows with n and the rows, not with the pairs of duplicates.
    """
    most = rows[1] - one_table
    if min(rows[0], most) < 1:
        return NO_PAIRS
    k = min(max(1, math.ceil(n * (1 + one_table) / rows[0])), most)
    found = search(None, None, k, max_total)
    best = first_pairs([found], n, one_table)
    while True:
        again = rows_to_search_again(found, k, best, n, one_table)
        if k == most or not len(again.left):
            return best
        k = min(2 * k, most)
        others = None
        last, full = last_pairs(best, n, again.group)
        if full.all():
            max_total = float(last.total.max())
            if one_table:  # a row with closer pairs is already in one of the best pairs
                chosen = np.zeros(rows[0], bool)
                chosen[best.left] = chosen[best.right] = True
                others = np.flatnonzero(chosen)
        found = search(again.left, others, k, max_total)
        best = first_pairs([best, found], n, one_table)
