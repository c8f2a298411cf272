"""Arrays of tile indexes, rows in marked cells, and rows of chunks side by side: as
NumPy does it.
"""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.pack import deal, find_near, pack_exact

TILE = 64


@pytest.mark.parametrize("rows", [1, 64, 100])
def test_tiles_hold_the_points_and_boxes_bound_them(rows):
    rng = np.random.default_rng(rows)
    x, order = rng.normal(size=(rows, 3)), rng.permutation(rows)
    dims, tiles = np.array([2, 0]), -(-rows // TILE)
    y, z = np.empty((rows, 3)), np.empty((tiles, 2, TILE))
    low, high = np.empty((tiles, 2)), np.empty((tiles, 2))
    pack_exact(x, order.astype(np.int32), dims, np.zeros(3), 1.0, y, z, low, high)
    assert y.tolist() == x[order].tolist()
    full = np.full((tiles * TILE, 2), np.nan)
    full[:rows] = x[order][:, dims]
    want = full.reshape(tiles, TILE, 2).transpose(0, 2, 1)
    np.testing.assert_array_equal(z, want)
    assert low.tolist() == np.nanmin(want, axis=2).tolist()
    assert high.tolist() == np.nanmax(want, axis=2).tolist()


def test_rows_in_marked_cells():
    rng = np.random.default_rng(0)
    x, y, z = rng.uniform(-0.5, 1.5, (3, 500))
    low, scale, cells = (
        np.zeros(3),
        np.array([4.0, 3.0, 2.0]),
        np.array([4.0, 3.0, 2.0]),
    )
    table = rng.uniform(size=24) < 0.4
    places = [
        np.clip(np.floor(v * s), 0, s - 1).astype(int)
        for v, s in zip((x, y, z), scale, strict=True)
    ]
    want = np.flatnonzero(table.reshape(4, 3, 2)[tuple(places)])
    out = np.empty(501, np.int64)
    number = find_near(x, y, z, low, scale, cells, table.astype(np.uint8), out)
    assert out[:number].tolist() == want.tolist()


def test_rows_of_chunks_lie_side_by_side_in_their_order():
    chunk = np.random.default_rng(1).integers(0, 5, 200).astype(np.int32)
    ends, free, order = (
        np.zeros(6, np.int64),
        np.empty(6, np.int64),
        np.empty(200, np.int64),
    )
    deal(chunk, ends, free, order)
    assert order.tolist() == np.argsort(chunk, kind="stable").tolist()
    assert ends.tolist() == [0, *np.cumsum(np.bincount(chunk, minlength=5)).tolist()]
