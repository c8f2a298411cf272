"""States of parts are merged; mutual neighbors are found both ways; the closest pairs
are exact.
"""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.errors import BudgetError
from dask_simjoin.tasks.nearest import (
    MAX_TABLE_RATIO,
    NO_PAIRS,
    RowPairs,
    State,
    closest,
    first_pairs,
    join_states,
    rows_of_numbers,
    rows_to_search_again,
)
from tests.support.profiles import pairwise


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("rows", "k"), [(50, 5), (50, 1), (7, 0), (0, 3)])
def test_parts_are_put_together_by_their_rows(rows, k, threads):
    rng = np.random.default_rng(rows + k)
    totals, numbers = rng.uniform(size=(rows, k)), rng.integers(-1, rows + 1, (rows, k))
    # some are empty
    of_parts = np.array_split(rng.permutation(rows).astype(np.int32), 4)
    parts = [
        State(totals=totals[some], row_numbers=numbers[some], rows=some)
        for some in of_parts
    ]
    for part in parts:  # as those of another process are
        part["totals"].flags.writeable = part["row_numbers"].flags.writeable = False
    found = join_states(threads, *parts)
    assert (
        np.array_equal(found["totals"], totals) and found["totals"].dtype == np.float64
    )
    assert (
        np.array_equal(found["row_numbers"], numbers)
        and found["row_numbers"].dtype == np.int64
    )


def merged(frame, other, k, **options):
    """Merge both directions by their ids."""
    found = frame.simjoin.knn_join(other, k, **options)
    back = (
        found
        if other is None
        else other.simjoin.knn_join(frame, k, **{**options, "keep": None})
    )
    turned = back[["right", "left"]].rename(columns={"right": "left", "left": "right"})
    return found.merge(turned, on=["left", "right"])


def points(rows, seed, ids="int64"):
    """Rows on a grid, so that many are at the same distance; some have no coordinate."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        random.integers(0, 12, (rows, 2)).astype(float), columns=["x", "y"]
    )
    frame.loc[random.random(rows) < 0.1, "x"] = np.nan
    frame["kind"] = random.integers(0, 3, rows)
    number = random.permutation(rows)
    frame["id"] = number.astype(ids) if ids != "str" else [f"row {n}" for n in number]
    return frame


OPTIONS = {
    "plain": {},
    "kept": {"keep": ["kind", "y"], "suffixes": ("_a", "_b")},
    "near": {"max_distance": 1.0, "keep": "kind"},
    "grouped": {"max_distance": 2.0, "by": "kind"},
    "lists": {"method": "zorder"},
}


@pairwise(
    k=[1, 2, 7, 1000],
    name=list(OPTIONS),
    sizes=[(300, None), (300, 120), (40, 300), (1, None), (1, 1)],
    ids=["int64", "int32", "str"],
)
def test_as_merged(sizes, name, k, ids):
    rows, others = sizes
    options = {"on": ["x", "y"], "id": "id", "dropna": True, **OPTIONS[name]}
    frame, other = (
        points(rows, 1, ids),
        None if others is None else points(others, 2, ids),
    )
    found = frame.simjoin.knn_join(other, k, mutual=True, **options)
    pd.testing.assert_frame_equal(found, merged(frame, other, k, **options))


def test_without_rows():
    frame = points(50, 1)
    for one, other in ((frame, frame[:0]), (frame[:0], frame), (frame[:0], None)):
        found = one.simjoin.knn_join(other, 2, on=["x", "y"], dropna=True, mutual=True)
        assert not len(found) and list(found.columns) == [
            "left",
            "right",
            "rank",
            "distance",
        ]


def test_memory_is_charged_as_that_of_one_direction(monkeypatch):
    frame = points(1000, 1).fillna(0.0)
    monkeypatch.setattr("dask_simjoin.planning.budget.SURE", 0)
    for mutual in (False, True):
        monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 500_000)
        # 10,000 rows of 32 bytes
        frame.simjoin.knn_join(k=10, on=["x", "y"], mutual=mutual)
        monkeypatch.setattr("dask_simjoin.planning.budget.free_memory", lambda: 400_000)
        with pytest.raises(BudgetError, match="k=10 gives"):
            frame.simjoin.knn_join(k=10, on=["x", "y"], mutual=mutual)
    # the other direction has more neighbors
    with pytest.raises(BudgetError, match="k=10 gives"):
        frame[:10].simjoin.knn_join(frame, 10, on=["x", "y"], mutual=True)


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


@pytest.mark.parametrize("apart", [1, 3, 2 * MAX_TABLE_RATIO, 2**30])
def test_rows_are_found_by_their_numbers(apart):
    own = 5 + apart * np.arange(7)
    numbers = np.array(
        [
            [own[0], own[6], own[3], own[0] - 1],
            [own[6] + 1, own[2] + apart // 2, -1, own[1]],
        ]
    )
    where = {number: row for row, number in enumerate(own.tolist())}
    assert rows_of_numbers(own, numbers).tolist() == [
        [where.get(n, -1) for n in row] for row in numbers.tolist()
    ]
    assert rows_of_numbers(own[:0], numbers).tolist() == [[-1] * 4] * 2
