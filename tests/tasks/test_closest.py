"""The closest pairs are exact, and later searches are of few rows."""

import numpy as np
import pytest

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.tasks.closest import (
    NO_PAIRS,
    RowPairs,
    closest,
    first_pairs,
    rows_to_search_again,
)

X = np.array([5.0, 4.0, 0.0, 9.0, 9.0])
"""Distances of 1 (rows 0 and 1), 4 (1 and 2; 0 and the last two) and 0 (the last two).
"""


def pairs(*rows):
    """Pairs of rows given as left, right and total."""
    left, right, total = zip(*rows, strict=True)
    return RowPairs(np.array(left), np.array(right), np.array(total, float))


def as_rows(found):
    return list(
        zip(
            found.left.tolist(), found.right.tolist(), found.total.tolist(), strict=True
        )
    )


def search_of(x, y=None):
    """Search by all distances; the totals are those of searches, which are listed."""
    asked = []

    def search(rows, others, k, max_total):
        asked.append((rows, others, k, max_total))
        data = x if y is None else y
        rows = np.arange(len(x)) if rows is None else rows
        others = np.arange(len(data)) if others is None else others
        found = []
        for row in rows.tolist():
            away = [
                (abs(x[row] - data[one]), one)
                for one in others.tolist()
                if y is not None or one != row
            ]
            found += [
                (row, one, far) for far, one in sorted(away)[:k] if far <= max_total
            ]
        return pairs(*found) if found else NO_PAIRS

    return search, asked


def test_pairs_are_ordered_by_total_then_left_then_right():
    found = pairs((2, 1, 1.0), (0, 3, 1.0), (0, 2, 1.0), (3, 1, 0.5))
    assert as_rows(first_pairs([found], 3, False)) == [
        (3, 1, 0.5),
        (0, 2, 1.0),
        (0, 3, 1.0),
    ]


def test_pairs_of_one_table_that_are_found_from_both_sides_count_once():
    found = pairs(
        (0, 1, 1.0), (1, 0, 1.0), (2, 3, 2.0), (3, 2, 2.0), (4, 5, 3.0), (5, 4, 3.0)
    )
    assert as_rows(first_pairs([found], 2, True)) == [(0, 1, 1.0), (2, 3, 2.0)]
    assert as_rows(first_pairs([found, found], 3, True)) == [
        (0, 1, 1.0),
        (2, 3, 2.0),
        (4, 5, 3.0),
    ]


def test_each_group_has_its_first_pairs():
    found = pairs((0, 1, 1.0), (2, 3, 2.0), (4, 5, 3.0), (6, 7, 0.5), (8, 9, 4.0))
    found = found._replace(group=np.array([7, 7, 7, 3, 3]))
    assert as_rows(first_pairs([found], 1, False)) == [(6, 7, 0.5), (0, 1, 1.0)]
    assert as_rows(first_pairs([found], 2, False)) == [
        (6, 7, 0.5),
        (0, 1, 1.0),
        (2, 3, 2.0),
        (8, 9, 4.0),
    ]


def test_rows_with_fewer_neighbors_than_asked_for_are_done():
    found = pairs((0, 1, 1.0), (0, 2, 2.0), (1, 0, 1.0))
    assert rows_to_search_again(found, 2, NO_PAIRS, 5, True).left.tolist() == [0]
    assert rows_to_search_again(found, 1, NO_PAIRS, 5, True).left.tolist() == [0, 1]
    assert rows_to_search_again(NO_PAIRS, 1, NO_PAIRS, 5, True).left.tolist() == []


def test_rows_whose_last_neighbor_comes_after_the_best_pairs_are_done():
    found = pairs((0, 1, 1.0), (1, 0, 1.0), (2, 1, 4.0), (3, 2, 2.0))
    best = pairs((0, 1, 1.0), (2, 3, 2.0))
    assert rows_to_search_again(found, 1, best, 2, True).left.tolist() == [0, 1, 3]


@pytest.mark.parametrize("n", range(1, 12))
def test_all_pairs_of_one_table(n):
    search, asked = search_of(X)
    every = sorted((abs(X[i] - X[j]), i, j) for i in range(5) for j in range(i + 1, 5))
    assert as_rows(closest(search, n, (5, 5), True, np.inf)) == [
        (i, j, far) for far, i, j in every[:n]
    ]
    assert max(k for _, _, k, _ in asked) <= 4


@pytest.mark.parametrize("n", [1, 3, 20])
def test_all_pairs_of_two_tables(n):
    search, asked = search_of(X, X[:3] + 1)
    every = sorted((abs(X[i] - X[j] - 1), i, j) for i in range(5) for j in range(3))
    assert as_rows(closest(search, n, (5, 3), False, np.inf)) == [
        (i, j, far) for far, i, j in every[:n]
    ]
    assert max(k for _, _, k, _ in asked) <= 3


def test_later_searches_are_of_rows_of_the_best_pairs():
    """They are within the total of the last of these."""
    x = np.concatenate([np.zeros(3), [10.0, 30.0, 60.0, 100.0]])
    search, asked = search_of(x)
    assert as_rows(closest(search, 3, (7, 7), True, np.inf)) == [
        (0, 1, 0.0),
        (0, 2, 0.0),
        (1, 2, 0.0),
    ]
    assert [k for _, _, k, _ in asked][:2] == [1, 2]
    for rows, others, _, max_total in asked[1:]:
        assert (
            set(rows.tolist()) <= set(others.tolist()) <= {0, 1, 2, 3}
            and max_total <= 10.0
        )
    assert {0, 1, 2} <= set(asked[-1][1].tolist())


def test_tables_without_pairs():
    search, asked = search_of(X)
    assert not len(closest(search, 2, (1, 1), True, np.inf).left) and not asked
    assert not len(closest(search, 2, (3, 0), False, np.inf).left) and not asked
