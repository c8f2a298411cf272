"""The row sweep: cells along a long axis."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.joiner import JOINER
from tests.engine.cpu.test_joiner import _bounds
from tests.support.oracle import brute_force


@pytest.mark.parametrize("step", [0.1, 1.0, 1e-3])
def test_cells_lose_no_neighbour_along_a_long_axis(step):
    """Neighbours exactly eps apart, over more cells than the cells' margin could hide
    an error in.
    """
    n = 600_000
    x = np.zeros((n, 2))
    x[:, 0] = np.arange(n) * step
    lower, upper, mean, _ = _bounds(x)
    layout = JOINER.layout(
        "sweep", lower, upper, mean, np.array([0.0, 1.0]), step * step
    )
    assert layout.grid.dims == (0,)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    t = np.diff(x[:, 0])
    expected = np.flatnonzero(t * t <= step * step)
    assert sorted(found.left.tolist()) == expected.tolist()
    assert (found.right - found.left == 1).all()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pairs_of_all_rows_of_the_grid_are_counted_once(dims):
    x = np.random.default_rng(dims).uniform(0, 3, (90, dims))
    lower, upper, mean, variance = _bounds(x)
    layout = JOINER.layout("sweep", lower, upper, mean, variance, 0.5**2)
    index = JOINER.build(x, layout)
    expected = brute_force(x, 0.5)
    assert len(expected) > 10
    assert JOINER.weights(index, index, layout, is_self_join=True).sum() == len(
        expected
    )
    places = np.array(sorted(expected), np.int64).reshape(-1)
    assert (
        JOINER.counts(index, index, layout, is_self_join=True)[0].tolist()
        == np.bincount(places, minlength=90).tolist()
    )
    limits = np.array([0.1**2, 0.5**2])
    (found,) = JOINER.tally(
        index, index, layout, limits, is_self_join=True, by_row=False, rows=None
    )
    assert found.tolist() == [[len(brute_force(x, eps)) for eps in (0.1, 0.5)]]
