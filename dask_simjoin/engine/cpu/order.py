"""The order of points in an index, by a kd tree: see `dask_simjoin.engine.index.kdtree`.

All threads together sort the first blocks, which are few. Each thread then orders runs
of blocks, level by level, while the run is in its core's own cache.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels import order as kernels
from dask_simjoin.engine.cpu.sorting import divided
from dask_simjoin.engine.index.kdtree import (
    KdCuts,
    block_sizes,
    middle,
)
from dask_simjoin.engine.process import numbers_apart, shared_out
from dask_simjoin.sizes import BATCH, HELD_PER_THREAD, IN_CACHE


def by_row(x: np.ndarray, threads: int) -> np.ndarray:
    """Return points (n, d) in C order."""
    if x.flags.c_contiguous:
        return x
    out = np.empty(x.shape, x.dtype)

    def copy(start: int, stop: int) -> None:
        for first in range(start, stop, IN_CACHE):
            some = slice(first, min(first + IN_CACHE, stop))
            out[some] = x[some]

    shared_out(copy, len(x), threads, min_items=numbers_apart(x.shape[1]))
    return out


def kd_order(
    x: np.ndarray, cuts: KdCuts, tile: int, fan_out: int, threads: int = 1
) -> np.ndarray:
    """Return the positions of the points `x` (n, d), C-contiguous, in kd order, int64.

    The order affects only speed. `tile`, `fan_out`: see
    `dask_simjoin.engine.index.kdtree.kd_order`.
    """
    n = len(x)
    order = np.empty(n, np.int64)

    def begin(start: int, stop: int) -> None:
        order[start:stop] = np.arange(start, stop)

    shared_out(begin, n, threads)
    if n <= tile:
        return order
    dims, numbers = np.array(cuts.dims), np.empty((len(cuts.dims), n), np.uint32)
    centre, scale = middle(x, cuts.dims), cuts.scale
    shared_out(
        lambda start, stop: kernels.number_columns(
            x, start, stop, dims, centre, scale, numbers
        ),
        n,
        threads,
        min_items=numbers_apart(len(dims)),
    )
    sizes = np.array([*block_sizes(n, tile, fan_out, cuts), tile])
    level = 0
    while sizes[level] > BATCH and -(-n // sizes[level]) < HELD_PER_THREAD * threads:
        _cut(numbers, order, int(sizes[level]), int(sizes[level + 1]), threads)
        level += 1

    def cut_blocks(start: int, stop: int) -> None:
        # no larger than needed, because the allocator keeps it for each thread
        run = min(BATCH, stop - start)
        scratch = (
            np.empty((len(dims), run), np.uint32),
            np.empty(run, np.int64),
            np.empty(run, np.uint64),
            np.empty(kernels.PIVOTS, np.uint64),
        )
        _cut_runs(numbers, order[start:stop], sizes[level:], scratch)

    shared_out(cut_blocks, n, threads, int(sizes[level]), IN_CACHE)
    return order


def _cut_runs(
    numbers: np.ndarray,
    order: np.ndarray,
    sizes: np.ndarray,
    scratch: tuple[np.ndarray, ...],
) -> None:
    """Cut the blocks in `order`, each of `sizes[0]` points, into blocks of a tile."""
    if sizes[0] <= BATCH:
        for start in range(0, len(order), BATCH):
            kernels.order_run(numbers, order[start : start + BATCH], sizes, *scratch)
        return
    for start in range(0, len(order), int(sizes[0])):
        block = order[start : start + int(sizes[0])]
        _cut(numbers, block, int(sizes[0]), int(sizes[1]))
        _cut_runs(numbers, block, sizes[1:], scratch)


def _cut(
    numbers: np.ndarray, order: np.ndarray, size: int, part: int, threads: int = 1
) -> None:
    """Cut each block of `size` points in `order` along its widest dimension into parts
    of `part` points.
    """
    keys = np.empty(len(order), np.uint64)

    def pack(start: int, stop: int) -> None:
        kernels.pack_blocks(numbers, order, size, start, stop, keys)

    def unpack(start: int, stop: int) -> None:
        kernels.unpack_blocks(keys[start:stop], order[start:stop])

    shared_out(pack, len(order), threads)
    for start in range(0, len(order), size):
        block = slice(start, start + size)
        keys[block] = divided(keys[block], part, threads)
    shared_out(unpack, len(order), threads)
