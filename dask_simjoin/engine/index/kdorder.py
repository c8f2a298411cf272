"""Points in kd order: neighbours in space become neighbours in memory.

Level by level, one sort a level: every block of points is sorted along the dimension in
which it is widest and cut into parts.  Blocks hold a power of two of tiles (the last one
what is left), so any aligned run of tiles is a node of the tree.  Written once for NumPy
and CuPy (`xp` is either module).

Widths are compared in the unit of the data, for that is the unit of distances: a column that is narrow
beside others tells few points apart, however its own values spread.  What is sorted are float32 numbers,
taken from a point amid the data: numbers of fixed steps would all be one where a value or two lie far off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dask_simjoin.metrics.types import Array, ArrayModule

SAMPLE = 32
"""Points of each block from which its widest dimension is told."""

MIDDLE = 33
"""Points from which it is told where the data are: an odd number, so that a median is one of them."""

MAX_CUT_DIMS = 16
"""Dimensions, those of largest variance, that are cut: there are fewer levels than this."""

VALUE_BITS = 32

MAX_EXPONENT = 900
"""Of a scale: products with it are numbers."""


@dataclass(frozen=True)
class Cuts:
    """By which dimensions all chunks of a join are put in order.

    Attributes
    ----------
    dims : tuple of int
        The widest ones, those first.
    spread : tuple of float
        The standard deviations of all points there.
    """

    dims: tuple[int, ...]
    spread: tuple[float, ...]

    def first(self, n: int, tile: int, times: float) -> Cuts:
        """Return those that n points are worth cutting by.

        A dimension is cut `times` times before the next one is begun, for halves touch and tell no points
        apart, and until it is no wider than that one.
        """
        levels = (max(1, -(-n // tile)) - 1).bit_length()
        cuts, number = 0.0, 0
        while number < len(self.dims) and (cuts < levels or not number):
            number += 1
            following = self.spread[number] if number < len(self.dims) else 0.0
            cuts = sum(max(times, _log2(own, following)) for own in self.spread[:number])
        return Cuts(self.dims[:number], self.spread[:number])

    def parts(self, least: int) -> int:
        """Into how many parts, at least `least`, to cut at first: until the widest is as wide as the next."""
        if len(self.dims) == 1:
            return 1 << 62
        return max(least, 1 << int(_log2(self.spread[0], self.spread[1])))

    @property
    def scale(self) -> float:
        """A power of two by which numbers are multiplied that float32 is to hold."""
        exponent = math.frexp(self.spread[0])[1] if 0 < self.spread[0] < math.inf else 0
        return 2.0 ** -min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT)


def _log2(own: float, other: float) -> float:
    """How often a width can be halved until it is another one; 0 where both are no numbers to compare."""
    if not own > other:
        return 0.0
    return math.log2(own / other) if own < math.inf and other > own * 2.0**-62 else 62.0


def dims_to_cut(variance: np.ndarray) -> Cuts:
    """Return the dimensions by which to put points in order, the ones of largest variance first."""
    dims = tuple(sorted(range(len(variance)), key=lambda k: (-float(variance[k]), k))[:MAX_CUT_DIMS])
    return Cuts(dims, tuple(math.sqrt(float(variance[k])) for k in dims))


def middle(x: Array, dims: tuple[int, ...], xp: ArrayModule) -> Array:
    """A point (dims,) amid others; no `float`: it would wait for a GPU."""
    some = x[xp.arange(MIDDLE) * len(x) // MIDDLE]
    return xp.sort(some[:, xp.asarray(dims)], axis=0)[MIDDLE // 2]


def _flipped(bits: Array) -> Array:
    """The bits of float32 numbers as int32 in their order, and back again."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def kd_order(x: Array, cuts: Cuts, tile: int, fan_out: int, xp: ArrayModule = np) -> Array:
    """Positions of the points of `x` in kd order.

    Parameters
    ----------
    x : array (n, d), float
        What to order by; any order is a valid one, so no exactness is needed.
    cuts : Cuts
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
    centre, scale, fan = middle(x, cuts.dims, xp), cuts.scale, cuts.parts(fan_out)
    values = xp.empty((len(cuts.dims), n), xp.int32)
    with np.errstate(over="ignore", invalid="ignore"):
        for number, k in enumerate(cuts.dims):
            values[number] = _flipped(((x[:, k] - centre[number]) * scale).astype(xp.float32).view(xp.int32))
        position_bits = (n - 1).bit_length()
        size = tile << (-(-n // tile) - 1).bit_length()
        while size > tile:
            blocks = -(-n // size)
            shift = max(0, position_bits + (blocks - 1).bit_length() + VALUE_BITS - 64)
            block = xp.arange(n) >> (size.bit_length() - 1)
            if len(values) == 1:
                column = values[0][order]
            else:
                sampled = xp.arange(blocks)[:, None] * size + (xp.arange(SAMPLE) * size // SAMPLE)[None, :]
                sampled = _flipped(values[:, order[xp.minimum(sampled, n - 1)]]).view(xp.float32)
                widest = sampled.astype(float).var(axis=2).argmax(axis=0)
                column = values.reshape(-1)[(widest * n)[block] + order]
            packed = ((column.astype(xp.int64) + (1 << 31)) >> shift).view(xp.uint64)
            packed |= (block << (VALUE_BITS - shift)).view(xp.uint64)
            packed <<= xp.uint64(position_bits)
            packed |= xp.arange(n).view(xp.uint64)
            packed.sort()
            order = order[(packed & xp.uint64((1 << position_bits) - 1)).view(xp.int64)]
            size, fan = max(tile, size // fan), fan_out
    return order
