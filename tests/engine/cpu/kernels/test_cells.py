"""Bounds of the totals of cells, which decide without a distance."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels import cells
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from tests.support.oracle import totals


@pytest.mark.parametrize(
    ("metric", "p"), [("manhattan", 1), ("euclidean", 2), ("chebyshev", np.inf)]
)
def test_a_cell_is_whole_only_if_all_its_points_are_near(metric, p):
    random = np.random.default_rng(0)
    for _ in range(100):
        x = random.random((random.integers(1, 9), 3)) * 0.3 + 1e3
        largest = totals(x, x, metric, p).max()
        for threshold in (largest, np.nextafter(largest, -1.0)):
            low, high, whole = np.empty((1, 3)), np.empty((1, 3)), np.empty(1, bool)
            cells.bound(
                np.ascontiguousarray(x.T),
                np.array([0, len(x)]),
                float(threshold),
                kind_of(p),
                0,
                1,
                low,
                high,
                whole,
            )
            assert (low[0] == x.min(axis=0)).all() and (high[0] == x.max(axis=0)).all()
            assert not whole[0] or largest <= threshold
