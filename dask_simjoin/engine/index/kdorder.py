"""Points in kd order: neighbors in space become neighbors in memory.

Level by level, one sort a level: every block of points is sorted along the dimension in
which it is widest and cut into parts.  Blocks hold a power of two of tiles (the last one
what is left), so any aligned run of tiles is a node of the tree.

Widths are compared in the unit of the data, for that is the unit of distances: a column that is narrow
beside others tells few points apart, however its own values spread.  What is sorted are float32 numbers,
taken from a point amid the data: numbers of fixed steps would all be one where a value or two lie far off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.threads import shared_out
from dask_simjoin.metrics.norms import Array

SAMPLE = 32
"""Points of each block from which its widest dimension is told."""

MIDDLE = 33
"""Points from which it is told where the data are: an odd number, so that a median is one of them."""

MAX_CUT_DIMS = 16
"""Dimensions, those of largest variance, that are cut: there are fewer levels than this."""

VALUE_BITS = 32

LEAST_SAMPLE, MOST_SAMPLE = 256, 2048
"""Points from which it is told where most points of a column are."""

MOST_POINTS = (0.1, 0.9)
"""Between which quantiles those are."""

UNIFORM = 12**-0.5 / 0.8
"""The standard deviation of a uniform column, of which this range is 1."""

RARE = 10
"""Halvings of its standard deviation down to which a column's width may be told by where most points are."""

BLOCK = 2048
"""Points that a block of threads of a GPU puts in order by itself: their keys fit into shared memory."""

BLOCKS_PER_THREAD = 2
"""Blocks for each thread from which on threads cut them apart: so they have about as many each."""

MAX_EXPONENT = 900
"""Of a scale: products with it are numbers."""


@dataclass(frozen=True)
class KdCuts:
    """By which dimensions all chunks of a join are put in order.

    Attributes
    ----------
    dims : tuple of int
        The widest ones, those first.
    spread : tuple of float
        How wide points are spread there, as standard deviations are.
    """

    dims: tuple[int, ...]
    spread: tuple[float, ...]

    def first(self, n: int, tile: int, times: float) -> KdCuts:
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
        return KdCuts(self.dims[:number], self.spread[:number])

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


def dims_to_cut(variance: np.ndarray, sample: np.ndarray | None = None) -> KdCuts:
    """Return the dimensions by which to put points in order, the widest ones first.

    Parameters
    ----------
    variance : array (d,), float64
    sample : array (m, d), optional
        Some points: of columns that a few values make wide, it tells where most of them are.
    """
    width = np.sqrt(variance)
    if sample is not None and len(sample) >= LEAST_SAMPLE:
        with np.errstate(over="ignore", invalid="ignore"):
            some = sample[:: -(-len(sample) // MOST_SAMPLE)]
            low, high = np.quantile(some, MOST_POINTS, axis=0)
            most = np.nan_to_num(UNIFORM * (high - low), nan=0.0)
        width = np.maximum(np.minimum(width, most), width * 2.0**-RARE)
    dims = tuple(np.argsort(-width, kind="stable")[:MAX_CUT_DIMS].tolist())
    return KdCuts(dims, tuple(float(width[k]) for k in dims))


def middle(x: Array, dims: tuple[int, ...]) -> Array:
    """A point (dims,) amid others."""
    some = x[np.arange(MIDDLE) * len(x) // MIDDLE]
    return np.sort(some[:, np.asarray(dims)], axis=0)[MIDDLE // 2]


def _numbers(values: np.ndarray) -> np.ndarray:
    """float32 values as numbers (uint32) in their order."""
    bits = values.view(np.int32)
    return (bits ^ ((bits >> 31) | np.int32(-(1 << 31)))).view(np.uint32)


def _values(numbers: np.ndarray) -> np.ndarray:
    """The float32 values that `_numbers` made numbers of."""
    bits = numbers.view(np.int32)
    return (bits ^ (~(bits >> 31) | np.int32(-(1 << 31)))).view(np.float32)


def block_sizes(n: int, tile: int, fan_out: int, cuts: KdCuts, many: int | None = None) -> Iterator[int]:
    """Give the sizes of the blocks that are cut, level by level.

    Parameters
    ----------
    n, tile, fan_out, cuts
        See `kd_order`.
    many : int, optional
        Most cuts in two that one sort makes of blocks of more than `BLOCK` points, whose sorts cost most.
    """
    size = tile << (-(-n // tile) - 1).bit_length()
    first = cuts.parts(1)
    while size > tile:
        yield size
        bits = fan_out.bit_length() - 1
        if many is not None and size > BLOCK:
            levels = (size // BLOCK).bit_length() - 1
            bits = -(-levels // -(-levels // many))
        size = max(tile, size // max(1 << bits, first))
        first = 1


def kd_order(
    x: Array, cuts: KdCuts, tile: int, fan_out: int, many: int | None = None, threads: int = 1
) -> Array:
    """Positions of the points of `x` in kd order.

    Parameters
    ----------
    x : array (n, d), float
        What to order by; any order is a valid one, so no exactness is needed.
    cuts : Cuts
        The dimensions to cut.
    tile, fan_out : int
        Points of a tile; parts into which a block is cut a level: powers of two.
    many : int, optional
        See `block_sizes`.
    threads : int, optional
        That share the work, once there are blocks for each of them.

    Returns
    -------
    array (n,), int64
    """
    n = len(x)
    order = np.arange(n, dtype=np.uint64)
    if n <= tile:
        return order.view(np.int64)
    centre, scale = middle(x, cuts.dims), cuts.scale
    numbers = np.empty((len(cuts.dims), n), np.uint32)

    def number(start: int, stop: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # of this thread
            for k, out, from_ in zip(cuts.dims, numbers, centre, strict=True):
                out[start:stop] = _numbers(((x[start:stop, k] - from_) * scale).astype(np.float32))

    def cut(start: int, stop: int) -> None:
        for size in sizes:
            order[start:stop] = _cut(numbers, order[start:stop], size)

    shared_out(number, n, threads)
    sizes = list(block_sizes(n, tile, fan_out, cuts, many))
    while sizes and threads > 1 and -(-n // sizes[0]) < BLOCKS_PER_THREAD * threads:
        order = _cut(numbers, order, sizes.pop(0))
    if sizes:
        shared_out(cut, n, threads, sizes[0])
    return order.view(np.int64)


def _cut(numbers: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """Sort each block of `size` points, of those that `order` gives, by the dimension it is widest in."""
    n, every = len(order), numbers.shape[1]
    place_bits = (every - 1).bit_length()
    blocks = -(-n // size)
    own = np.arange(blocks, dtype=np.uint64)
    column = 0 * own
    with np.errstate(over="ignore", invalid="ignore"):
        if len(numbers) > 1:
            sampled = np.arange(blocks)[:, None] * size + (np.arange(SAMPLE) * size // SAMPLE)[None, :]
            sampled = _values(numbers[:, order[np.minimum(sampled, n - 1)]])
            column = sampled.astype(float).var(axis=2).argmax(axis=0).astype(np.uint64) * np.uint64(every)
    # block, number less its last bits, point: so that what is sorted tells the order
    # NumPy 1 takes by numbers with a sign alone
    places = (_repeated(column, size, n) + order).view(np.int64)
    keys = numbers.reshape(-1).take(places).astype(np.uint64)
    bits = VALUE_BITS - max(0, place_bits + (blocks - 1).bit_length() + VALUE_BITS - 64)
    keys >>= np.uint64(VALUE_BITS - bits)
    keys <<= np.uint64(place_bits)
    keys |= _repeated(own << np.uint64(bits + place_bits), size, n)
    keys |= order
    keys.sort()
    return keys & np.uint64((1 << place_bits) - 1)


def _repeated(values: np.ndarray, size: int, n: int) -> Array:
    """A number for each of n points, of blocks of so many."""
    return values[0] if len(values) == 1 else np.repeat(values, size)[:n]
