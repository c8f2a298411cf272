"""The kd order of points on a GPU: `dask_simjoin.engine.index.kdorder.kd_order` in few kernels."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.index.kdorder import BLOCK, MIDDLE, SAMPLE, VALUE_BITS, Cuts, block_sizes
from dask_simjoin.metrics.types import Array

THREADS = 256
assert SAMPLE == 32  # lanes of a warp


def _run(name: str, blocks: int, *arguments: Any) -> None:
    constants = {"VALUE_BITS": VALUE_BITS, "SAMPLES": MIDDLE, "BLOCK": BLOCK}
    load.kernel("order", name, DIMS=1, EXACT=True, **constants)((blocks,), (THREADS,), arguments)


def _steps(x: Array) -> list[Any]:
    """From number to number, row by row and column by column."""
    return [np.int64(step // x.itemsize) for step in x.strides]


def rows_at(x: Array, places: Array) -> Array:
    """Rows of `x` (n, d), float64, at some places, int32, C-contiguous."""
    n, dims = len(places), x.shape[1]
    y = cupy.empty((n, dims))
    if y.size:
        blocks = min(-(-y.size // THREADS), 1 << 16)
        _run("take_rows", blocks, x, *_steps(x), places, np.int64(n), np.int32(dims), y)
    return y


def kd_order(x: Array, cuts: Cuts, tile: int, fan_out: int, many: int) -> Array:
    """Positions (n,), int32, of the points of `x` (n, d), float64, in kd order; see the host's."""
    n = len(x)
    if n <= tile:
        return cupy.arange(n, dtype=cupy.int32)
    blocks = min(-(-n // THREADS), 1 << 16)

    def run(name: str, *arguments: Any, grid: int = blocks) -> None:
        _run(name, grid, *arguments)

    count, number = np.int32(n), np.int32(len(cuts.dims))
    values = cupy.empty((len(cuts.dims), n), cupy.int32)
    order, keys = cupy.empty(n, cupy.int32), cupy.empty(n, cupy.uint64)
    steps = _steps(x)
    columns, centre = cupy.asarray(np.array(cuts.dims, np.int32)), cupy.empty(len(cuts.dims))
    run("middle", x, *steps, columns, count, number, centre, grid=1)
    run("numbers", x, *steps, columns, centre, np.float64(cuts.scale), count, number, values, order)
    place_bits = (n - 1).bit_length()
    for size in block_sizes(n, tile, fan_out, cuts, many):
        parts = -(-n // size)
        shape = (np.int32(size), np.int32(parts))
        last, order = order, cupy.empty_like(order)
        if size <= BLOCK:
            ends = (np.int32(tile), np.int32(fan_out))
            run("order_blocks", values, last, count, number, shape[0], *ends, order, grid=parts)
            break
        widest = cupy.empty(parts, cupy.int32)
        grid = -(-parts * SAMPLE // THREADS)
        run("widest_columns", values, last, count, number, *shape, widest, grid=grid)
        shift = max(0, place_bits + (parts - 1).bit_length() + VALUE_BITS - 64)
        bits = [np.int32(some) for some in (size.bit_length() - 1, shift, place_bits)]
        run("sort_keys", values, last, widest, count, *bits, keys)
        keys.sort()
        run("reorder", keys, last, count, bits[-1], order)
    return order
