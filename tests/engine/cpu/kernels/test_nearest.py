"""The search of the nearest rows: ties, many tiles, bounds and distances that overflow."""

import math

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.nearest import drop_one_way
from dask_simjoin.engine.cpu.nearest import build, fresh, nearest
from dask_simjoin.engine.index.cpu_tiles import TILE
from tests.engine.cpu.test_nearest import check, layout_of, search
from tests.support.oracle import squared_distances
from tests.support.profiles import in_turns


@in_turns(1, k=[1, 10, 64], dims=[2, 6])
def test_thousands_of_equal_points(dims, k):
    """The k smallest names, told without looking at most of the points."""
    n = 5000
    names = np.random.default_rng(0).permutation(n)
    x = np.full((n, dims), 0.1)
    d2, found = search(x, x, names, names, k, True, layout_of(x, filtered=dims > 2))
    assert not d2.any()
    expected = np.array([np.delete(np.arange(k + 1), min(name, k)) for name in names])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("dims", [2, 6])
def test_distances_that_overflow(k, dims):
    """Neighbours at d2 = inf are neighbours, the smaller names first."""
    x = np.array([-1e200, 1e200, 0.0])[
        np.random.default_rng(0).integers(0, 3, (90, dims))
    ]
    names = np.random.default_rng(1).permutation(90)
    layout = check(x, x, k, True, names, cuts=(20, 64), order=(2, 0, 1))
    assert layout.filter is None
    check(x, x, k, True, names, bound2=1e300)


@pytest.mark.parametrize("dims", [2, 12])
def test_a_bound_is_inclusive(dims):
    x = np.random.default_rng(3).uniform(size=(200, dims))
    d2 = np.sort(squared_distances(x, x)[0])
    for bound2 in (d2[5], math.nextafter(d2[5], 0), math.nextafter(d2[5], 9)):
        check(x, x, 20, True, bound2=float(bound2), filtered=True)


def test_many_tiles_and_levels():
    """More than 64 groups' worth of boxes in 2 dimensions, against a sorted scan along
    one.
    """
    rng = np.random.default_rng(7)
    n = TILE * TILE * 2 + 77
    x = np.stack([rng.uniform(size=n), np.zeros(n)], axis=1)
    layout = layout_of(x)
    index = build(x, np.arange(n), layout)
    assert len(index["levels"]) == 3
    d2, names = fresh(n, 3)
    nearest(index, index, layout, d2, names, is_self_join=True)
    order = np.argsort(x[:, 0])
    line = x[order, 0]
    near = [np.abs(np.roll(line, s) - line) for s in (-3, -2, -1, 1, 2, 3)]
    inside = slice(3, -3)
    expected = np.sort(np.square(near), axis=0)[:3].T
    np.testing.assert_array_equal(d2[order][inside], expected[inside])


def test_queries_far_from_all_data_and_repeated_calls():
    rng = np.random.default_rng(8)
    q, d = rng.uniform(size=(100, 3)) + 1000, rng.uniform(size=(1000, 3))
    check(q, d, 4)
    layout, names = layout_of(q, d), np.arange(1000)
    index = build(d, names, layout)
    state = fresh(1000, 4)
    nearest(index, index, layout, *state, is_self_join=True)
    once = [part.copy() for part in state]
    far = build(q, np.arange(1000, 1100), layout)
    nearest(index, far, layout, *state, is_self_join=True)  # nothing is close enough
    for part, before in zip(state, once, strict=True):
        np.testing.assert_array_equal(part, before)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_neighbors_that_do_not_have_the_row_are_dropped(k):
    rng = np.random.default_rng(k)
    rows = 9
    numbers = np.array([rng.permutation(rows)[:k] for _ in range(rows)], np.int64)
    numbers[2, -1] = -1  # a row with fewer neighbors
    back = np.sort(numbers, axis=1)
    want = [
        [n if n >= 0 and row in numbers[n] else -1 for n in own]
        for row, own in enumerate(numbers)
    ]
    drop_one_way(numbers, back)
    assert numbers.tolist() == want
