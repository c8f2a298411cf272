"""States of parts are merged; mutual neighbors are found both ways."""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.errors import BudgetError
from dask_simjoin.tasks.nearest import (
    MAX_TABLE_RATIO,
    State,
    join_states,
    rows_of_numbers,
)
from tests.support.profiles import every_nth, pairwise


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
    ids=every_nth(4, ["int64", "int32", "str"]),
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
    monkeypatch.setattr("dask_simjoin.planning.budget.SPARE_BYTES", 0)
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
