"""Choose the closest pairs among nearest neighbors, as arrays of row numbers.

Pairs are ordered by total, then by left row, then by right row.  Nearest neighbors of a row have the same
order: ties go to the first row.  So each of the n closest pairs is among the n nearest neighbors of its rows.
The same holds within a group of rows.
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
    group : array (n,), float64
        Numbers of the groups that each have n closest pairs; all 0 if they have them together.
    """

    left: np.ndarray
    right: np.ndarray
    total: np.ndarray
    group: np.ndarray

    def take(self, rows: np.ndarray) -> RowPairs:
        """Return some of the pairs; `rows`: their positions, or a mask."""
        return RowPairs(*(column[rows] for column in self))


NO_PAIRS = RowPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


def first_pairs(found: Sequence[RowPairs], n: int, one_table: bool) -> RowPairs:
    """Return the first n distinct pairs of each group in order; pairs of one table become left < right."""
    pairs = RowPairs(*(np.concatenate(parts) for parts in zip(NO_PAIRS, *found, strict=True)))
    most = n * (1 + one_table) * len(found)  # each list has a pair at most once from each side
    grouped = bool(pairs.group.any())
    if len(pairs.total) > most and not grouped:
        pairs = pairs.take(pairs.total <= np.partition(pairs.total, most - 1)[most - 1])
    if one_table:
        ends = pairs.left, pairs.right
        pairs = pairs._replace(left=np.minimum(*ends), right=np.maximum(*ends))
    pairs = pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))
    if grouped:
        pairs = pairs.take(np.argsort(pairs.group, kind="stable"))
    new = np.ones(len(pairs.total), bool)
    new[1:] = (pairs.left[1:] != pairs.left[:-1]) | (pairs.right[1:] != pairs.right[:-1])
    pairs = pairs.take(np.flatnonzero(new))
    if not grouped:
        return pairs.take(np.arange(min(n, len(pairs.total))))
    starts = np.searchsorted(pairs.group, pairs.group)
    pairs = pairs.take(np.flatnonzero(np.arange(len(starts)) - starts < n))
    return pairs.take(np.lexsort((pairs.right, pairs.left, pairs.total)))


class LastPairs(NamedTuple):
    """Hold the last of the closest pairs of each group.

    Attributes
    ----------
    group : array (g,), float64
        The groups, ascending.
    full : array (g,), bool
        Whether the group has n pairs.
    pairs : RowPairs
    """

    group: np.ndarray
    full: np.ndarray
    pairs: RowPairs


def last_pairs(best: RowPairs, n: int) -> LastPairs:
    """Return the last pair of each group; `best`: the closest pairs so far, in order."""
    group, place, count = np.unique(best.group, return_inverse=True, return_counts=True)
    last = np.zeros(len(group), np.int64)
    np.maximum.at(last, place, np.arange(len(place)))
    return LastPairs(group, count >= n, best.take(last))


def rows_to_search_again(found: RowPairs, k: int, best: RowPairs, n: int, one_table: bool) -> RowPairs:
    """Return the k-th neighbors of rows that may have more of the n closest pairs of their group.

    `found`: the neighbors of each row, in order.  `best`: the n closest pairs so far.  A row is done if it
    has fewer than k neighbors, or if its k-th one comes after the last of the best pairs.
    """
    own = found.left
    ends = np.flatnonzero(np.append(own[1:] != own[:-1], len(own) > 0))
    some = found.take(ends[np.diff(ends, prepend=-1) >= k])
    groups = last_pairs(best, n)
    place = np.searchsorted(
        groups.group, some.group
    )  # each row has its nearest one among the best, or a last
    last = groups.pairs.take(place)
    left, right = some.left, some.right
    if one_table:
        left, right = np.minimum(left, right), np.maximum(left, right)
    before = (left < last.left) | ((left == last.left) & (right <= last.right))
    before = (some.total < last.total) | ((some.total == last.total) & before)
    return some.take(before | ~groups.full[place])


Search = Callable[[np.ndarray | None, np.ndarray | None, int, float], RowPairs]
"""Searches the k nearest rows of some left rows among some right rows, within a total.

None: all rows.  Rows are numbered in each table.  Pairs are in the order of left rows, then of rank."""


def closest(search: Search, n: int, rows: tuple[int, int], one_table: bool, max_total: float) -> RowPairs:
    """Return the n closest pairs of each group, in order, by searches for nearest neighbors.

    `rows`: of both tables.  Each search is for more neighbors of fewer rows, and finds at most about 4 n
    pairs of a group.  So memory grows with n and the rows, not with the pairs of duplicates.
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
        groups = last_pairs(best, n)
        among = np.searchsorted(groups.group, again.group)
        if groups.full[among].all():
            max_total = float(groups.pairs.total[among].max())
            if one_table:  # rows of closer pairs have one among the best
                chosen = np.zeros(rows[0], bool)
                chosen[best.left] = chosen[best.right] = True
                others = np.flatnonzero(chosen)
        found = search(again.left, others, k, max_total)
        best = first_pairs([best, found], n, one_table)
