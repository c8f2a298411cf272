"""Kd trees: the order of points in an index, and regions of space.

**Order.** Neighbors in space become neighbors in memory. Each level sorts every block along its widest
dimension and cuts it into parts. Blocks hold a power of two of tiles (the last block fewer), so an aligned
run of tiles is a node of the tree.

Widths are compared in the unit of the data, which is the unit of distances: a narrow column separates few
points. Sort keys are float32 differences from a central point. As fixed-point numbers, nearly all keys would
be equal if a few values were far away.

**Regions.** A tree cuts a sample of the points at weighted medians. Its leaves are the regions: boxes that
tile space, with about equally many points each. To find all pairs, each region also needs its halo: points of
other regions within reach of its box. A point is only sent to regions with lower numbers than its own region.
So every pair between two regions is found once, in the region with the lower number.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.process import shared_out
from dask_simjoin.metrics.norms import Array

SAMPLE = 32
"""Points sampled per block to find its widest dimension."""

MIDDLE = 33
"""Points sampled to find a central point; odd, so that the median is one of their values."""

MAX_CUT_DIMS = 16
"""Maximum number of dimensions to cut; trees have fewer levels."""

VALUE_BITS = 32
"""Bits of a coordinate in a sort key."""

LEAST_SAMPLE, MOST_SAMPLE = 256, 2048
"""Smallest and largest sample to find the range of most points in a column."""

MOST_POINTS = (0.1, 0.9)
"""Quantiles between which most points lie."""

UNIFORM = 12**-0.5 / 0.8
"""Standard deviation of a uniform column whose quantiles `MOST_POINTS` are 1 apart."""

RARE = 10
"""Distant values are ignored in a column's width, but the width is halved at most this number of times."""

BLOCK = 2048
"""Points that one block of GPU threads can sort, because their keys fit into its shared memory."""

BLOCKS_PER_THREAD = 2
"""Threads cut blocks independently once there are this many blocks per thread, which balances their work."""

MAX_EXPONENT = 900
"""Largest exponent of a scale, so that scaled values stay finite."""


@dataclass(frozen=True)
class KdCuts:
    """Dimensions that order all chunks of a join.

    Attributes
    ----------
    dims : tuple of int
        The widest dimensions, in descending order of width.
    spread : tuple of float
        Widths of these dimensions, as standard deviations.
    """

    dims: tuple[int, ...]
    spread: tuple[float, ...]

    def first(self, n: int, tile: int, times: float) -> KdCuts:
        """Return the dimensions that are worth cutting for n points.

        A dimension is cut at least `times` times before the next dimension, because few points are far from
        the border of two halves. It is also cut until it is no wider than the next dimension.
        """
        levels = (max(1, -(-n // tile)) - 1).bit_length()
        cuts, number = 0.0, 0
        while number < len(self.dims) and (cuts < levels or not number):
            number += 1
            following = self.spread[number] if number < len(self.dims) else 0.0
            cuts = sum(max(times, _log2(own, following)) for own in self.spread[:number])
        return KdCuts(self.dims[:number], self.spread[:number])

    def parts(self, min_parts: int) -> int:
        """Return the number of parts of the first cut that makes them as wide as the next dimension."""
        if len(self.dims) == 1:
            return 1 << 62
        return max(min_parts, 1 << int(_log2(self.spread[0], self.spread[1])))

    @property
    def scale(self) -> float:
        """Power of two that scales values into float32's range."""
        exponent = math.frexp(self.spread[0])[1] if 0 < self.spread[0] < math.inf else 0
        return 2.0 ** -min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT)


def _log2(own: float, other: float) -> float:
    """Return how many halvings turn the width `own` into `other`; 0 if the widths cannot be compared."""
    if not own > other:
        return 0.0
    return math.log2(own / other) if own < math.inf and other > own * 2.0**-62 else 62.0


def dims_to_cut(variance: np.ndarray, sample: np.ndarray | None = None) -> KdCuts:
    """Return the dimensions to cut, the widest first, for points with this variance (d,).

    `sample`: points (m, d) to find columns that are wide only because of a few distant values.
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
    """Return a central point (dims,)."""
    some = x[np.arange(MIDDLE) * len(x) // MIDDLE]
    return np.sort(some[:, np.asarray(dims)], axis=0)[MIDDLE // 2]


def _numbers(values: np.ndarray) -> np.ndarray:
    """Return float32 values as uint32 numbers that sort like the values."""
    bits = values.view(np.int32)
    return (bits ^ ((bits >> 31) | np.int32(-(1 << 31)))).view(np.uint32)


def _values(numbers: np.ndarray) -> np.ndarray:
    """Return the float32 values of `_numbers`."""
    bits = numbers.view(np.int32)
    return (bits ^ (~(bits >> 31) | np.int32(-(1 << 31)))).view(np.float32)


def block_sizes(n: int, tile: int, fan_out: int, cuts: KdCuts, many: int | None = None) -> Iterator[int]:
    """Yield the sizes of the blocks to cut, level by level: see `kd_order`.

    `many`: maximum number of halvings per level, for blocks of more than `BLOCK` points.
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
    """Return the positions (n,), int64, of points (n, d) in kd order.

    Coordinates need not be exact, because the order affects only speed. `tile`, `fan_out`: points of a tile,
    and parts of a block per level, both powers of two. `many`: see `block_sizes`. `threads` share the work
    once there are enough blocks.
    """
    n = len(x)
    order = np.arange(n, dtype=np.uint64)
    if n <= tile:
        return order.view(np.int64)
    centre, scale = middle(x, cuts.dims), cuts.scale
    numbers = np.empty((len(cuts.dims), n), np.uint32)

    def number(start: int, stop: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # errstate is per thread
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
    """Sort each block of `size` points in `order` along its widest dimension; return the new order."""
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
    # a key has the block, leading bits of the coordinate, and the point; NumPy 1 needs signed indexes
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
    """Repeat one value per block of `size` points, for n points."""
    return values[0] if len(values) == 1 else np.repeat(values, size)[:n]


LEAST_WIDTH = 2.0
"""Minimum width of a region that is cut, in multiples of reach.

Most points of a narrower region would be needed by both parts.
"""

LEAST_REGION_SAMPLE = 8
"""Minimum number of sampled points in a region that is cut: the median of fewer points would be arbitrary."""


@dataclass(frozen=True, eq=False)
class Regions:
    """The kd tree whose leaves are the regions.

    Attributes
    ----------
    dim : array (nodes,), int64
        The dimension that each node cuts.
    split : array (nodes,), float64
        Points below it lie in the left child, others in the right one.
    child : array (nodes, 2), int64
        Left and right child of each node: a node, or ``-1 - leaf``.
    middle : array (nodes,), int64
        The first leaf of each node's right child.
    lower, upper : array (leaves, d), float64
        The leaves' boxes.  Leaves are numbered from left to right.
    """

    dim: np.ndarray
    split: np.ndarray
    child: np.ndarray
    middle: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def __len__(self) -> int:
        return len(self.lower)

    @functools.cached_property
    def depth(self) -> int:
        """Levels of the tree."""
        level, deepest = {0: 1}, 0
        for node, children in enumerate(self.child.tolist()):  # parents come before children
            deepest = max(deepest, level[node])
            level |= {child: level[node] + 1 for child in children if child >= 0}
        return deepest

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the tree."""
        return self.dim, self.split, self.child, self.middle, self.lower, self.upper

    @functools.cached_property
    def walls(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The dimensions that are cut, and the lower and upper wall of each leaf in them (leaves, cut).

        A wall is infinite if no leaf is behind it.
        """
        cut = np.unique(self.dim)
        lower, upper = self.lower[:, cut], self.upper[:, cut]
        low = np.where(lower >= upper.min(axis=0), lower, -np.inf)  # other leaves lie below it
        high = np.where(upper <= lower.max(axis=0), upper, np.inf)
        # contiguous: kernels are compiled for one memory order
        return cut, np.ascontiguousarray(low), np.ascontiguousarray(high)


def make_regions(x: np.ndarray, weight: np.ndarray, lower: np.ndarray, upper: np.ndarray, reach: float,
                 max_points: float, max_regions: int) -> Regions:  # fmt: skip
    """Cut the box [lower, upper] into regions.

    Parameters
    ----------
    x : array (m, d), float64
        A sample of the points.
    weight : array (m,)
        Number of points that each point of the sample stands for.
    lower, upper : array (d,)
        The box of all points.
    reach : float
        Largest difference of one coordinate that a pair can have.
    max_points : float
        Regions with more points are cut.
    max_regions : int
        Maximum number of regions.
    """
    cuts: dict[int, tuple[int, float]] = {}
    places = {1: np.arange(len(x))}  # leaf -> its sampled points; children of node n are 2n and 2n + 1
    queue = [(-float(weight.sum()), 1)]
    while queue and len(places) < max_regions:
        size, node = heapq.heappop(queue)
        cut = _weighted_median(x, weight, places[node], reach) if -size > max_points else None
        if cut is None:
            continue
        cuts[node] = cut
        inside = places.pop(node)
        left = x[inside, cut[0]] < cut[1]
        for part, child in ((inside[left], 2 * node), (inside[~left], 2 * node + 1)):
            places[child] = part
            heapq.heappush(queue, (-float(weight[part].sum()), child))
    return _number(cuts, lower, upper)


def _weighted_median(
    x: np.ndarray, weight: np.ndarray, places: np.ndarray, reach: float
) -> tuple[int, float] | None:
    """Return the dimension of these points' largest extent, and their weighted median there."""
    if len(places) < LEAST_REGION_SAMPLE:
        return None
    some = x[places]
    ordered, tenth = np.sort(some, axis=0), len(places) // 10
    with np.errstate(over="ignore"):
        spread = ordered[-1 - tenth] - ordered[tenth]  # without outliers
        width = ordered[-1] - ordered[0]
    for k in np.lexsort((-width, -spread)).tolist():
        if not width[k] > LEAST_WIDTH * reach:
            continue
        column = some[:, k]
        order = np.argsort(column, kind="stable")
        at = np.searchsorted(np.cumsum(weight[places][order]), weight[places].sum() / 2)
        value = column[order[min(int(at), len(order) - 1)]]
        if value == column[order[0]]:  # the left part would be empty
            value = column[column > value].min()
        return int(k), float(value)
    return None


def _number(cuts: dict[int, tuple[int, float]], lower: np.ndarray, upper: np.ndarray) -> Regions:
    """Return the tree as arrays, with its leaves numbered from left to right."""
    dim: list[int] = []
    split: list[float] = []
    child: list[tuple[int, int]] = []
    middle: list[int] = []
    boxes: list[tuple[np.ndarray, np.ndarray]] = []

    def visit(node: int, low: np.ndarray, high: np.ndarray) -> int:
        if node not in cuts:
            boxes.append((low, high))
            return -len(boxes)
        k, value = cuts[node]
        number = len(dim)
        dim.append(k)
        split.append(value)
        child.append((0, 0))
        middle.append(0)
        middle_high, middle_low = high.copy(), low.copy()
        middle_high[k] = middle_low[k] = value
        left = visit(2 * node, low, middle_high)
        middle[number] = len(boxes)
        child[number] = left, visit(2 * node + 1, middle_low, high)
        return number

    visit(1, np.array(lower, np.float64), np.array(upper, np.float64))
    lows, highs = zip(*boxes, strict=True)
    return Regions(
        np.array(dim, np.int64), np.array(split), np.array(child, np.int64).reshape(-1, 2),
        np.array(middle, np.int64), np.array(lows), np.array(highs),
    )  # fmt: skip
