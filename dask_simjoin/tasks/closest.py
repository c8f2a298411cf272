"""Choose the closest pairs among nearest neighbors, as arrays of row numbers.

Pairs are ordered by total, then by left row, then by right row.  Nearest neighbors of a row have the same
order: ties go to the first row.  So each of the n closest pairs is among the n nearest neighbors of its rows.
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
    """

    left: np.ndarray
    right: np.ndarray
    total: np.ndarray


NO_PAIRS = RowPairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))


def first_pairs(found: Sequence[RowPairs], n: int, one_table: bool) -> RowPairs:
    """Return the first n distinct pairs in order; pairs of one table become left < right."""
    left, right, total = (np.concatenate(parts) for parts in zip(NO_PAIRS, *found, strict=True))
    most = n * (1 + one_table) * len(found)  # each list has a pair at most once from each side
    if len(total) > most:
        near = total <= np.partition(total, most - 1)[most - 1]
        left, right, total = left[near], right[near], total[near]
    if one_table:
        left, right = np.minimum(left, right), np.maximum(left, right)
    order = np.lexsort((right, left, total))
    left, right, total = left[order], right[order], total[order]
    new = np.ones(len(total), bool)
    new[1:] = (left[1:] != left[:-1]) | (right[1:] != right[:-1])
    kept = np.flatnonzero(new)[:n]
    return RowPairs(left[kept], right[kept], total[kept])


def rows_to_search_again(found: RowPairs, k: int, best: RowPairs, n: int, one_table: bool) -> np.ndarray:
    """Return the rows that may have more of the n closest pairs than their k nearest neighbors.

    `found`: the neighbors of each row, in order.  `best`: the n closest pairs so far.  A row is done if it
    has fewer than k neighbors, or if its k-th one comes after the last of the best pairs.
    """
    own = found.left
    ends = np.flatnonzero(np.append(own[1:] != own[:-1], len(own) > 0))
    ends = ends[np.diff(ends, prepend=-1) >= k]
    left, right, total = (column[ends] for column in found)
    if len(best.total) < n:
        return left
    rows = left
    if one_table:
        left, right = np.minimum(left, right), np.maximum(left, right)
    last = RowPairs(*(column[-1] for column in best))
    before = (left < last.left) | ((left == last.left) & (right <= last.right))
    return rows[(total < last.total) | ((total == last.total) & before)]


Search = Callable[[np.ndarray | None, np.ndarray | None, int, float], RowPairs]
"""Searches the k nearest rows of some left rows among some right rows, within a total.

None: all rows.  Rows are numbered in each table.  Pairs are in the order of left rows, then of rank."""


def closest(search: Search, n: int, rows: tuple[int, int], one_table: bool, max_total: float) -> RowPairs:
    """Return the n closest pairs, in order, by searches for nearest neighbors.

    `rows`: of both tables.  Each search is for more neighbors of fewer rows, and finds at most about 4 n
    pairs.  So memory grows with n and the rows, not with the pairs of duplicates.
    """
    most = rows[1] - one_table
    if min(rows[0], most) < 1:
        return NO_PAIRS
    k = min(max(1, math.ceil(n * (1 + one_table) / rows[0])), most)
    found = search(None, None, k, max_total)
    best = first_pairs([found], n, one_table)
    while True:
        again = rows_to_search_again(found, k, best, n, one_table)
        if k == most or not len(again):
            return best
        k = min(2 * k, most)
        others = None
        if len(best.total) == n:
            max_total = float(best.total[-1])
            if one_table:  # rows of closer pairs have one among the best
                chosen = np.zeros(rows[0], bool)
                chosen[best.left] = chosen[best.right] = True
                others = np.flatnonzero(chosen)
        found = search(again, others, k, max_total)
        best = first_pairs([best, found], n, one_table)
