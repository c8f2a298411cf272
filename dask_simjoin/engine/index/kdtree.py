"""Kd trees that order the points of an index, and kd trees that divide space into
regions.

**Order.** The kd order places points that are near in space near in memory. Each level
of the tree sorts every block of points along its widest dimension and cuts it into
parts. All blocks of a level have the same size, a power of two of tiles; only the last
block may be smaller. So every node of the tree is an aligned run of tiles.

Widths are compared without scaling the columns, because distances are not scaled
either: cuts along a narrow column would hardly separate points. Sort keys are float32
differences from a central point. They are not fixed-point numbers, because these would
nearly all be equal if a few values were far away.

**Regions.** A tree cuts a sample of the points at weighted medians. Its leaves are the
regions: boxes that cover space without overlap, with about equally many points each. To
find all pairs, each region also needs its halo: points of other regions within reach of
its box. A point is only in halos of regions with lower numbers than its own region. So
every pair between two regions is found once, in the region with the lower number.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dask_simjoin.metrics.norms import Array

SAMPLE = 32
"""Number of points of a block that are sampled to find its widest dimension."""

MIDDLE = 33
"""Number of points that are sampled to find a central point.

It is odd, so that each median is a sampled value.
"""

VALUE_BITS = np.iinfo(np.uint32).bits
"""Bits of a coordinate in a sort key."""

MIN_SAMPLE, MAX_SAMPLE = 256, 2048
"""Minimum and maximum number of sampled points that show the range of most values in a
column.
"""

INNER_QUANTILES = (0.1, 0.9)
"""Quantiles that enclose most values of a column."""

BLOCK = 2048
"""Number of points whose keys fit into the shared memory of one block of GPU threads,
which sorts them.
"""


@dataclass(frozen=True)
class KdCuts:
    """The dimensions to cut, the same for all chunks of a join."""

    dims: tuple[int, ...]  # the widest dimensions, in descending order of width
    # widths of these dimensions, measured as standard deviations
    spread: tuple[float, ...]

    def first(self, n: int, tile: int, times: float) -> KdCuts:
        """Return only the dimensions that a tree over `n` points has to cut.

        Each dimension is halved at least `times` times, and until it is not wider than
        the next one. If a dimension were halved less often, too many points would be
        near the border between two halves.
        """
        levels = (max(1, -(-n // tile)) - 1).bit_length()
        cuts, number = 0.0, 0
        while number < len(self.dims) and (cuts < levels or not number):
            number += 1
            following = self.spread[number] if number < len(self.dims) else 0.0
            cuts = sum(
                max(times, _log2(own, following)) for own in self.spread[:number]
            )
        return KdCuts(self.dims[:number], self.spread[:number])

    def parts(self, min_parts: int) -> int:
        """Return the number of parts to cut the first dimension into, at least
        `min_parts`.

        Each part is then about as wide as the second dimension.
        """
        if len(self.dims) == 1:
            return 1 << 62
        return max(min_parts, 1 << int(_log2(self.spread[0], self.spread[1])))

    @property
    def scale(self) -> float:
        """A power of two that scales values into float32's range."""
        exponent = math.frexp(self.spread[0])[1] if 0 < self.spread[0] < math.inf else 0
        # scaled values stay finite
        return 2.0 ** -min(max(exponent, -900), 900)


def _log2(own: float, other: float) -> float:
    """Return how often the width `own` must be halved to equal the width `other`; 0 if
    `own` is not wider.
    """
    if not own > other:
        return 0.0
    return math.log2(own / other) if own < math.inf and other > own * 2.0**-62 else 62.0


def dims_to_cut(variance: np.ndarray, sample: np.ndarray | None = None) -> KdCuts:
    """Return the dimensions to cut, widest first, for points with this variance (d,).

    `sample` (m, d): shows which columns are wide only because of a few distant values.
    """
    width = np.sqrt(variance)
    if sample is not None and len(sample) >= MIN_SAMPLE:
        with np.errstate(over="ignore", invalid="ignore"):
            some = sample[:: -(-len(sample) // MAX_SAMPLE)]
            low, high = np.quantile(some, INNER_QUANTILES, axis=0)
            # the deviation of uniform values whose `INNER_QUANTILES` are 1 apart
            most = np.nan_to_num((12**-0.5 / 0.8) * (high - low), nan=0.0)
        # ignoring distant values may halve the width of a column 10 times at most
        width = np.maximum(np.minimum(width, most), width * 2.0**-10)
    # a tree has fewer levels than 16, so it would not use more dimensions
    dims = tuple(np.argsort(-width, kind="stable")[:16].tolist())
    return KdCuts(dims, tuple(float(width[k]) for k in dims))


def middle(x: Array, dims: tuple[int, ...]) -> Array:
    """Return a central point (dims,): the medians of a sample in these dimensions."""
    some = x[np.arange(MIDDLE) * len(x) // MIDDLE]
    return np.sort(some[:, np.asarray(dims)], axis=0)[MIDDLE // 2]


def _numbers(values: np.ndarray) -> np.ndarray:
    """Map float32 values to uint32 numbers that have the same order."""
    bits = values.view(np.int32)
    return (bits ^ ((bits >> 31) | np.int32(-(1 << 31)))).view(np.uint32)


def _values(numbers: np.ndarray) -> np.ndarray:
    """Invert `_numbers`."""
    bits = numbers.view(np.int32)
    return (bits ^ (~(bits >> 31) | np.int32(-(1 << 31)))).view(np.float32)


def block_sizes(
    n: int, tile: int, fan_out: int, cuts: KdCuts, max_halvings: int | None = None
) -> Iterator[int]:
    """Yield the sizes of the blocks to cut, level by level: see `kd_order`.

    `max_halvings`: maximum halvings per level, for blocks of more than `BLOCK` points.
    """
    size = tile << (-(-n // tile) - 1).bit_length()
    first = cuts.parts(1)
    while size > tile:
        yield size
        bits = fan_out.bit_length() - 1
        if max_halvings is not None and size > BLOCK:
            levels = (size // BLOCK).bit_length() - 1
            bits = -(-levels // -(-levels // max_halvings))
        size = max(tile, size // max(1 << bits, first))
        first = 1


def kd_order(
    x: Array, cuts: KdCuts, tile: int, fan_out: int, max_halvings: int | None = None
) -> Array:
    """Return the positions of the points `x` (n, d) in kd order, as an array (n,),
    int64.

    The order affects only speed, so sort keys may be rounded. `tile`: points per tile.
    `fan_out`: number of parts that each level cuts a block into. Both are powers of
    two. `max_halvings`: see `block_sizes`. Indexes on CPUs and GPUs have faster forms.
    """
    order = np.arange(len(x), dtype=np.uint64)
    if len(x) <= tile:
        return order.view(np.int64)
    centre, scale = middle(x, cuts.dims), cuts.scale
    with np.errstate(over="ignore", invalid="ignore"):
        columns = [
            _numbers(((x[:, k] - from_) * scale).astype(np.float32))
            for k, from_ in zip(cuts.dims, centre, strict=True)
        ]
    for size in block_sizes(len(x), tile, fan_out, cuts, max_halvings):
        order = _cut(np.array(columns), order, size)
    return order.view(np.int64)


def _cut(numbers: np.ndarray, order: np.ndarray, size: int) -> np.ndarray:
    """Sort each block of `size` points in `order` along its widest dimension; return
    the new order.
    """
    n = len(order)
    place_bits, blocks = (n - 1).bit_length(), -(-n // size)
    own = np.arange(n) // size
    column = np.zeros(blocks, np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        if len(numbers) > 1:
            sampled = (
                np.arange(blocks)[:, None] * size
                + (np.arange(SAMPLE) * size // SAMPLE)[None, :]
            )
            sampled = _values(numbers[:, order[np.minimum(sampled, n - 1)]])
            column = sampled.astype(float).var(axis=2).argmax(axis=0)
    # a key packs block, leading bits of the coordinate, and point
    bits = VALUE_BITS - max(0, place_bits + (blocks - 1).bit_length() + VALUE_BITS - 64)
    keys = numbers[column[own], order.view(np.int64)].astype(np.uint64)
    keys >>= np.uint64(VALUE_BITS - bits)
    keys |= own.astype(np.uint64) << np.uint64(bits)
    keys <<= np.uint64(place_bits)
    keys |= order
    keys.sort()
    return keys & np.uint64((1 << place_bits) - 1)


MIN_REGION_WIDTH = 2.0
"""A region is cut only if its width is at least this multiple of `reach`.

In a narrower region, most points would lie in the halo of the other part, so both parts
would need them.
"""


@dataclass(frozen=True, eq=False)
class Regions:
    """The kd tree whose leaves are the regions."""

    dim: np.ndarray  # (nodes,), int64: for each node, the dimension that it cuts
    # (nodes,), float64: for each node, where it cuts: points below lie in the left
    # child, others in the right child
    split: np.ndarray
    # (nodes, 2), int64: for each node, its left and right child: the number of a node,
    # or ``-1 - leaf`` for a leaf
    child: np.ndarray
    # (nodes,), int64: for each node, the first leaf below its right child
    middle: np.ndarray
    # (leaves, d), float64: the leaves' boxes; leaves are numbered from left to right
    lower: np.ndarray
    upper: np.ndarray

    def __len__(self) -> int:
        return len(self.lower)

    @functools.cached_property
    def depth(self) -> int:
        """Number of levels without leaves."""
        level, deepest = {0: 1}, 0
        # parents come before children, so their level is known
        for node, children in enumerate(self.child.tolist()):
            deepest = max(deepest, level[node])
            level |= {child: level[node] + 1 for child in children if child >= 0}
        return deepest

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.dim, self.split, self.child, self.middle, self.lower, self.upper

    @functools.cached_property
    def walls(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The dimensions that are cut, and each leaf's bounds in them (leaves,
        dimensions).

        A bound is infinite if no other leaf lies beyond it.
        """
        cut = np.unique(self.dim)
        lower, upper = self.lower[:, cut], self.upper[:, cut]
        # keep a bound if other leaves lie beyond it; all other bounds become infinite
        low = np.where(lower >= upper.min(axis=0), lower, -np.inf)
        high = np.where(upper <= lower.max(axis=0), upper, np.inf)
        # copied, because kernels are compiled only for contiguous arrays
        return cut, np.ascontiguousarray(low), np.ascontiguousarray(high)


def make_regions(
    x: np.ndarray,
    weight: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    reach: float,
    max_points: float,
    max_regions: int,
    slack: float = 0.0,
) -> Regions:
    """Cut the box [lower, upper] into regions with about equally many points.

    `x` (m, d): a sample of the points.  `weight` (m,): number of points that each
    sampled point represents. `lower`, `upper` (d,): the box of all points.  `reach`:
    largest difference of one coordinate between the points of a pair.  Regions with
    more than `max_points` points are cut, into at most `max_regions` regions. `slack`:
    a region may exceed `max_points` by this share, because the sample is not exact.

    A region that needs an odd number of parts is not halved. Thus three workers get three
    regions, not four.
    """
    cuts: dict[int, tuple[int, float]] = {}
    # leave out columns that are too narrow to be cut, because sorting them would take
    # longest
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.flatnonzero(~(upper - lower <= MIN_REGION_WIDTH * reach))
    # leaf -> its sampled points, column by column, and their weights; the children of
    # node n are 2n and 2n + 1
    leaves = {1: (np.ascontiguousarray(x.T[wide]), weight)}
    queue = [(-float(weight.sum()), 1)]
    while queue and len(leaves) < max_regions:
        size, node = heapq.heappop(queue)
        parts = math.ceil(-size / max_points - slack)
        can_cut = len(wide) > 0 and parts > 1
        cut = None
        if can_cut:
            cut = _cut_of(*leaves[node], reach, parts // 2 / parts)
        if cut is None:
            continue
        cuts[node] = int(wide[cut[0]]), cut[1]
        columns, weights = leaves.pop(node)
        left = columns[cut[0]] < cut[1]
        for inside, child in ((left, 2 * node), (~left, 2 * node + 1)):
            # faster than a mask
            places = np.flatnonzero(inside)
            part = weights.take(places)
            leaves[child] = columns.take(places, axis=1), part
            heapq.heappush(queue, (-float(part.sum()), child))
    return _number(cuts, lower, upper)


def _cut_of(
    columns: np.ndarray, weight: np.ndarray, reach: float, share: float
) -> tuple[int, float] | None:
    """Return the dimension to cut a region in, and the coordinate of the cut; None if
    it should not be cut.

    The dimension has the largest extent without outliers. `share`: fraction of the
    points below the cut. `columns` (d, m), `weight` (m,): the region's points.
    """
    number = columns.shape[1]
    # the median of fewer points is arbitrary
    if number < 8:
        return None
    tenth = number // 10
    # one value at a time: NumPy finds several values of a column far more slowly
    low, high = (
        np.partition(columns, at, axis=1)[:, at] for at in (tenth, number - 1 - tenth)
    )
    with np.errstate(over="ignore"):
        spread = high - low
        width = columns.max(axis=1) - columns.min(axis=1)
    for k in np.lexsort((-width, -spread)).tolist():
        if not width[k] > MIN_REGION_WIDTH * reach:
            continue
        column = columns[k]
        value = _quantile(column, weight, share)
        # the left part would be empty, so cut at the next value
        if value == column.min():
            value = float(column[column > value].min())
        return int(k), value
    return None


def _quantile(values: np.ndarray, weight: np.ndarray, share: float) -> float:
    """Return the smallest of some values such that it and all smaller values have at
    least this share of the weight.
    """
    number = len(values)
    if weight.min() == weight.max():
        at = max(math.ceil(share * number) - 1, 0)
        return float(np.partition(values, at)[at])
    order = np.argsort(values)
    total = np.cumsum(weight[order])
    at = int(np.searchsorted(total, total[-1] * share))
    return float(values[order[min(at, number - 1)]])


def _number(
    cuts: dict[int, tuple[int, float]], lower: np.ndarray, upper: np.ndarray
) -> Regions:
    """Convert the tree to arrays, and number its leaves from left to right."""
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
        np.array(dim, np.int64),
        np.array(split),
        np.array(child, np.int64).reshape(-1, 2),
        np.array(middle, np.int64),
        np.array(lows),
        np.array(highs),
    )
