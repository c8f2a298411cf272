"""Points in kd order: neighbours in space become neighbours in memory.

Level by level, one sort a level: every block of points is sorted along the dimension in
which it is widest and cut into parts.  Blocks hold a power of two of tiles (the last one
what is left), so any aligned run of tiles is a node of the tree.  Written once for NumPy
and CuPy (`xp` is either module).
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.types import Array, ArrayModule

SAMPLE = 32
"""Points of each block from which its widest dimension is told."""

MAX_CUT_DIMS = 16
"""Dimensions, those of largest variance, that are cut: there are fewer levels than this."""

VALUE_BITS = 30

LEAST_SPAN = 2.0**-990
"""What spans less is taken for equal."""


def dims_to_cut(variance: np.ndarray) -> tuple[int, ...]:
    """Return the dimensions by which to put points in order, the ones of largest variance first."""
    return tuple(sorted(range(len(variance)), key=lambda k: (-float(variance[k]), k))[:MAX_CUT_DIMS])


def _quantised(column: Array, out: Array, xp: ArrayModule) -> None:
    """Numbers of `VALUE_BITS` bits, int32, in the order of the column's values."""
    # halves: the difference of two finite numbers need not be finite
    low = column.min() * 0.5
    span = xp.maximum(column.max() * 0.5 - low, LEAST_SPAN)  # no `float`: it would wait for a GPU
    out[:] = (column * 0.5 - low) * (2.0**VALUE_BITS * (1 - 2.0**-20) / span)


def kd_order(x: Array, dims: tuple[int, ...], tile: int, fan_out: int, xp: ArrayModule = np) -> Array:
    """Positions of the points of `x` in kd order.

    Parameters
    ----------
    x : array (n, d), float
        What to order by; any order is a valid one, so no exactness is needed.
    dims : tuple of int
        The dimensions to cut.
    tile, fan_out : int
        Points of a tile; parts into which a block is cut a level: powers of two.
    xp : module
        NumPy or CuPy.

    Returns
    -------
    array (n,), int64
    """
    n = len(x)
    order = xp.arange(n)
    if n <= tile:
        return order
    values = xp.empty((len(dims), n), xp.int32)
    for number, k in enumerate(dims):
        _quantised(x[:, k], values[number], xp)
    position_bits = (n - 1).bit_length()
    size = tile << (-(-n // tile) - 1).bit_length()
    while size > tile:
        blocks = -(-n // size)
        sampled = xp.arange(blocks)[:, None] * size + (xp.arange(SAMPLE) * size // SAMPLE)[None, :]
        sampled = order[xp.minimum(sampled, n - 1)]
        widest = values[:, sampled].astype(float).var(axis=2).argmax(axis=0)
        shift = max(0, position_bits + (blocks - 1).bit_length() + VALUE_BITS - 63)
        block = xp.arange(n) >> (size.bit_length() - 1)
        packed = values.reshape(-1)[(widest * n)[block] + order].astype(xp.int64) >> shift
        packed |= block << (VALUE_BITS - shift)
        packed <<= position_bits
        packed |= xp.arange(n)
        packed = packed.view(xp.uint64)
        packed.sort()
        order = order[(packed & xp.uint64((1 << position_bits) - 1)).view(xp.int64)]
        size = max(tile, size // fan_out)
    return order
