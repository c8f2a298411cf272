"""Marked cells lose no pair, and tell most rows that are in none."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.disk_index.cell_filter import (
    CellBoxes,
    make_cell_filter,
    near_tiles,
    rows_in_cells,
    tiled,
    touched,
)
from dask_simjoin.metrics.distances import make_metric
from tests.support.oracle import totals


def near(marks, y):
    """Tell which rows are near marks (n,), bool."""
    found = np.zeros(len(y), bool)
    found[rows_in_cells(marks, [y[:, k] for k in marks.dims])] = True
    return found


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(
        [("euclidean", 2), ("manhattan", 1), ("chebyshev", math.inf), ("minkowski", 3)]
    ),
    st.integers(1, 5),
    st.sampled_from([0.0, 1e8, -1e15]),
    st.sampled_from([1.0, 1e-300, 1e150, 1e-160]),
)
def test_rows_in_a_pair_are_near_marks(seed, metric, dims, offset, unit):
    random = np.random.default_rng(seed)
    steps = 2.0 ** random.integers(-3, 1)
    x = (
        random.integers(0, 100, (random.integers(1, 40), dims)) * steps + offset
    ) * unit
    y = (random.integers(-50, 150, (200, dims)) * steps + offset) * unit
    y[:50] = x[random.integers(0, len(x), 50)] + steps * unit * random.integers(
        -1, 2, (50, dims)
    )
    y[50:80] = np.nextafter(y[:30], random.choice([-np.inf, np.inf]))
    eps = float(steps * unit * random.choice([0.0, 1.0, math.sqrt(2), 3.0]))
    kind = make_metric(*metric)
    marks = make_cell_filter(np.asfortranarray(x), kind.norm, kind.threshold(eps))
    if marks is not None:
        within = (totals(x, y, *metric) <= kind.threshold(eps)).any(axis=0)
        assert near(marks, y)[within].all()


def test_few_rows_far_from_all_marks_are_near_one():
    random = np.random.default_rng(0)
    for dims, most in ((1, 0.45), (2, 0.05), (3, 0.01)):
        x, y = (
            random.uniform(0, 100, (300, dims)),
            random.uniform(0, 100, (20_000, dims)),
        )
        marks = make_cell_filter(np.asfortranarray(x), 2, 0.05**2)
        assert near(marks, y).mean() < most
        outside = near(marks, y + 1000.0)
        assert not outside.any()


def test_where_cells_tell_nothing_there_are_none():
    assert make_cell_filter(np.zeros((0, 2)), 2, 1.0) is None
    assert make_cell_filter(np.zeros((5, 2)), 2, math.inf) is None
    assert (
        make_cell_filter(np.random.default_rng(0).uniform(0, 1, (50, 2)), 2, 1.0)
        is None
    )
    constant = make_cell_filter(np.zeros((5, 2)), 2, 1e-300)
    assert constant is None or near(constant, np.zeros((1, 2))).all()


METRICS = [
    ("euclidean", 2),
    ("manhattan", 1),
    ("chebyshev", math.inf),
    ("minkowski", 3),
]


def reached(x, boxes, metric, p, eps):
    """The groups within reach of rows, and the rows' tiles."""
    norm, threshold = make_metric(metric, p).norm, make_metric(metric, p).threshold(eps)
    tiles = tiled(x, boxes.dims)
    near = near_tiles(tiles, boxes, norm, threshold)
    return touched(tiles, near, boxes, norm, threshold), tiles


def boxes_around(parts, dims):
    """The boxes of some groups of rows."""
    return CellBoxes(
        np.asarray(dims),
        np.array([y.min(axis=0)[dims] for y in parts]),
        np.array([y.max(axis=0)[dims] for y in parts]),
    )


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(METRICS),
    st.integers(1, 5),
    st.sampled_from([0.0, 1e8]),
)
def test_groups_with_a_pair_are_reached_and_no_others_than_boxes_tell(
    seed, metric, dims, offset
):
    random = np.random.default_rng(seed)
    x = random.integers(0, 12, (random.integers(1, 300), dims)) / 2 + offset
    parts = [
        random.integers(0, 5, (4, dims)) / 2 + random.integers(0, 12, dims) + offset
        for _ in range(9)
    ]
    eps = float(random.choice([0.0, 0.5, 1.0, 1.5, math.sqrt(2), 3.0]))
    chosen = sorted(random.permutation(dims)[: random.integers(1, dims + 1)].tolist())
    boxes = boxes_around(parts, chosen)
    found, tiles = reached(x, boxes, *metric, eps)
    assert sorted(tiles.order.tolist()) == list(range(len(x)))
    threshold = make_metric(*metric).threshold(eps)
    for k, y in enumerate(parts):
        if (totals(x, y, *metric) <= threshold).any():
            assert found[k]
        nearest = np.clip(x[:, chosen], boxes.lower[k], boxes.upper[k])
        assert (
            found[k]
            == (np.diag(totals(x[:, chosen], nearest, *metric)) <= threshold).any()
        )


@pytest.mark.parametrize("rows", [1, 64, 65, 5000])
def test_one_row_within_reach_is_enough(rows):
    x = np.zeros((rows, 2))
    x[rows // 2] = 10.0
    boxes = CellBoxes(
        np.arange(2),
        np.array([[11.0, 10], [11.5, 10]]),
        np.array([[12.0, 12], [12.0, 12]]),
    )
    assert reached(x, boxes, "euclidean", 2, 1.0)[0].tolist() == [True, False]


def test_no_rows_and_no_groups():
    boxes = CellBoxes(np.arange(2), np.zeros((1, 2)), np.ones((1, 2)))
    assert reached(np.zeros((0, 2)), boxes, "euclidean", 2, 1.0)[0].tolist() == [False]
    none = boxes.some(np.zeros(0, np.int64))
    assert len(reached(np.zeros((3, 2)), none, "euclidean", 2, 1.0)[0]) == 0
