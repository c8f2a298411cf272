"""The grid of cells: near points are few cells apart, and each neighbor comes once."""

import sys

import numpy as np

from dask_simjoin.engine.index.cells import MAX_DIMS, CellLayout, make_cells, runs, serves
from dask_simjoin.metrics.norms import reach


def test_near_points_are_at_most_two_cells_apart():
    random = np.random.default_rng(3)
    for dims in range(1, MAX_DIMS + 1):
        for scale in (1e-300, 1.0, 1e150, sys.float_info.max / 4):
            eps = random.random() * scale * 0.1
            x = (random.random((50, dims)) - 0.5) * scale
            x = np.concatenate([x, x + (random.random((50, dims)) - 0.5) * 2 * eps, x[:, ::-1] + eps])
            layout = CellLayout(min(eps * eps, sys.float_info.max))
            grid = make_cells(x.min(axis=0), x.max(axis=0), layout)
            place = [
                np.floor((x[:, k] * grid.scale - origin) / width)
                for k, origin, width in zip(grid.dims, grid.origin, grid.width, strict=True)
            ]
            most = reach(2, layout.threshold)
            for k, some in zip(grid.dims, place, strict=True):
                with np.errstate(over="ignore"):
                    near = np.abs(x[:, None, k] - x[None, :, k]) <= most
                assert (np.abs(some[:, None] - some[None])[near] <= 2).all()


def test_each_run_of_cells_comes_once():
    grid = make_cells(np.zeros(3), np.ones(3), CellLayout(0.01))
    offsets, nearest = runs(grid, half=False)
    assert offsets[0] == 0 and len(set(offsets.tolist())) == 25 and nearest == 5
    later, _ = runs(grid, half=True)
    assert set(later.tolist()) == {key for key in offsets.tolist() if key >= 0}


def test_cells_serve_few_dimensions():
    assert not serves(5, 2) and not serves(3, 1) and serves(4, 2) and serves(4, np.inf)
