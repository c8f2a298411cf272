"""Kernels that fill the tiles of an index and the rows of a grid, and that assign
points to regions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import prefetch
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.filters.quantization import STEP
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sizes import IN_CACHE


class FilterTerms(NamedTuple):
    """Numbers of the float32 filter: see `quantization.Filter`."""

    centre: Array
    scale: float
    kappa: float
    eps2: float
    sure: float


class FilterTiles(NamedTuple):
    """The arrays of a tile index with the float32 filter of m dimensions, for n points."""

    y: Array  # (n, d), float64: coordinates in index order
    z: Array  # (tiles, m, 64), float32: centered and scaled coordinates
    # terms of the filter, float32
    start: Array  # (tiles, 64)
    limit: Array  # (n,)
    q_sure: Array  # (n,)
    d_sure: Array  # (tiles,)
    # boxes (tiles, m), float32
    low: Array
    high: Array


class GridCells(NamedTuple):
    """Fields of `index.grids.SweepGrid`."""

    dims: Array
    origin: Array
    width: Array
    strides: Array
    scale: float


class SweptBits(NamedTuple):
    """How the swept coordinate becomes a number of `value_bits` bits."""

    sweep: int
    low: float
    factor: float
    value_bits: int
    position_bits: int  # bits of a position


class RegionTree(NamedTuple):
    """The tree of regions: see `index.kdtree.Regions`."""

    dim: Array
    split: Array
    child: Array
    middle: Array  # the first region to the right of each cut
    lower: Array
    upper: Array


class Walls(NamedTuple):
    """The dimensions that a tree of regions splits, and bounds (regions, cut) of each
    region in these dimensions.
    """

    cut: Array
    low: Array
    high: Array


class Needed(NamedTuple):
    """Points, and regions that need them."""

    rows: Array
    regions: Array


class RegionScratch(NamedTuple):
    stack: Array
    place: Array
    value: Array
    below: Array


@inline_source
def _above(value: float) -> np.float32:
    """Round up to float32; the result is larger by less than 2**-22 * abs(value) +
    2**-147.
    """
    return np.float32(value + abs(value) * 2.0**-23 + 2.0**-148)


@inline_source
def _gather(x: Array, order: Array, first: int, count: int, y: Array) -> None:
    """Copy the coordinates of a tile's points to `y`, and prefetch the rows that are
    copied next.
    """
    base, step = x.ctypes.data, x.strides[0]
    last = order.size - 1
    # the processor prefetches the rest of a row by itself
    lines = (step if step < 1024 else 1024) + 64
    for i in range(first, first + count):
        # prefetch the row that comes 16 rows later
        row = base + order[i + 16 if i + 16 < last else last] * step
        for line in range(0, lines, 64):
            prefetch(row + line)
        p = order[i]
        for k in range(x.shape[1]):
            y[i, k] = x[p, k]


@kernel
def pack_filter(
    x: Array,
    order: Array,
    dims: Array,
    terms: FilterTerms,
    out: FilterTiles,
    norms: Array,
) -> float:
    """Fill the arrays of a tile index with the float32 filter; return the largest
    squared norm.

    `order`: positions of the points in index order. `dims` (m,), int64: the dimensions
    that the filter uses. `norms` (64,), float64: scratch. It is not allocated here,
    because that would add 0.1 seconds to compilation.
    """
    centre, scale, kappa, eps2, sure = terms
    y, z, start, limit, q_sure, d_sure, low, high = out
    n = len(order)
    largest = 0.0
    for tile in range(z.shape[0]):
        first = tile * TILE
        count = TILE if first + TILE <= n else n - first
        _gather(x, order, first, count, y)
        for t in range(TILE):
            norms[t] = 0.0
        for k in range(dims.size):
            own, middle = dims[k], centre[k]
            least, most = np.float32(np.inf), np.float32(-np.inf)
            for t in range(count):
                f = np.float32((y[first + t, own] - middle) * scale)
                z[tile, k, t] = f
                least, most = (f if f < least else least), (f if f > most else most)
                norms[t] += np.float64(f) * np.float64(f)
            for t in range(count, TILE):
                z[tile, k, t] = 0.0
            low[tile, k], high[tile, k] = least, most
        here = 0.0
        for t in range(count):
            norm = norms[t]
            start[tile, t] = _above(-0.5 * norm * (1 - kappa))
            limit[first + t] = -_above(-0.5 * (norm * (1 - kappa) - eps2))
            q_sure[first + t] = _above(2 * kappa * norm + sure)
            here = norm if norm > here else here
        for t in range(count, TILE):
            start[tile, t] = -np.inf
        d_sure[tile] = _above(2 * kappa * here)
        largest = here if here > largest else largest
    return largest


@kernel
def pack_exact(
    x: Array,
    order: Array,
    dims: Array,
    centre: Array,
    scale: float,
    y: Array,
    z: Array,
    low: Array,
    high: Array,
) -> None:
    """Fill the arrays of a tile index without the terms of a filter.

    `order`: positions of the points in index order. Output: `y` (n, d), float64,
    coordinates in index order. `z` (tiles, m, 64), coordinates of `dims`, centered and
    scaled, as float64 or rounded to float32. `low`, `high` (tiles, m), the boxes of
    `z`.
    """
    n = len(order)
    for tile in range(z.shape[0]):
        first = tile * TILE
        count = TILE if first + TILE <= n else n - first
        _gather(x, order, first, count, y)
        for k in range(dims.size):
            own, middle = dims[k], centre[k]
            least, most = np.inf, -np.inf
            for t in range(count):
                value = (y[first + t, own] - middle) * scale
                z[tile, k, t] = value
                least, most = (
                    (value if value < least else least),
                    (value if value > most else most),
                )
            for t in range(count, TILE):
                z[tile, k, t] = np.nan
            low[tile, k], high[tile, k] = least, most


@kernel
def pack_quantized(
    y: Array,
    centre: Array,
    scale: float,
    outer: float,
    most: int,
    bias: int,
    queries: Array,
    points: Array,
    take: Array,
    first: Array,
    marked: Array,
    sums: Array,
) -> None:
    """Fill the arrays of the 8-bit filter: see `filters.quantization`.

    `y` (n, d), float64: coordinates in index order. `sums` (3, 2), float64: scratch for
    both halves of the coordinates.

    Output: `queries` (n, steps, 4), int8, and `points` (tiles, steps, 64, 4), uint8,
    rounded coordinates. `take` (n, 2) and `first` (tiles, 64, 2), int16: the terms of
    queries and of points for each half of the coordinates. The caller fills both with
    zeros. With 32-bit sums there is one term for both halves: int32, (n, 1) and (tiles,
    64, 1). `marked` (tiles,), uint64: masks of the points that always pass.
    """
    n, d = y.shape
    ones = np.uint64(1)
    total, square_i, square_j = sums[0], sums[1], sums[2]
    for i in range(n):
        tile, t = i // TILE, i % TILE
        for half in range(2):
            total[half] = square_i[half] = square_j[half] = 0.0
        rest_i = rest_j = 0.0
        for k in range(d):
            a = (y[i, k] - centre[k]) * scale
            b = min(max(np.rint(a), -64.0), 64.0)
            p = min(max(np.rint(2 * a), -128.0), 127.0)
            queries[i, k // STEP, k % STEP] = np.int8(b)
            points[tile, k // STEP, t, k % STEP] = np.uint8(p + 128)
            half = 2 * (k % STEP) // STEP
            total[half] += b
            square_i[half] += b * b
            square_j[half] += p * p / 4
            rest_i += (a - b) * (a - b)
            rest_j += (a - p / 2) * (a - p / 2)
        for side in range(2):
            square, rest = (square_i, rest_i) if side == 0 else (square_j, rest_j)
            r = (
                np.sqrt(rest) * (1 + 2.0**-40)
                + np.sqrt(square[0] + square[1]) * 2.0**-50
            )
            own = (outer * outer / 2 + 2 * outer * r + 2 * r * r) * (
                1 + 2.0**-40
            ) + 2.0**-20
            if not own <= 2 * most:
                marked[tile] |= ones << np.uint64(t)
                own = 2.0 * most
            x = np.ceil(own / 2)
            for half in range(2):
                place = half % take.shape[1]
                if side == 0:
                    take[i, place] += (
                        np.int64(square[half] + 128 * total[half] - x) - bias
                    )
                else:
                    first[tile, t, place] += np.int64(x - np.floor(square[half]))
    if n % TILE:
        marked[n // TILE] = ~np.uint64(0)


@kernel
def find_near(
    x: Array,
    y: Array,
    z: Array,
    low: Array,
    scale: Array,
    cells: Array,
    table: Array,
    out: Array,
) -> int:
    """Find the rows whose grid cell is marked. Write their positions to `out`, and
    return their number.

    `x`, `y`, `z` (n,): coordinates. `low`, `scale`, `cells` (3,): for each coordinate,
    where its first cell starts, the cells per unit of length, and the number of cells.
    A coordinate with one cell is ignored. `table`: the mark of each cell of the grid.
    """
    n = 0
    most = cells[0] - 1.0, cells[1] - 1.0, cells[2] - 1.0
    wide, deep = int(cells[1]), int(cells[2])
    for i in range(x.size):
        a = min(max((x[i] - low[0]) * scale[0], 0.0), most[0])
        b = min(max((y[i] - low[1]) * scale[1], 0.0), most[1])
        c = min(max((z[i] - low[2]) * scale[2], 0.0), most[2])
        out[n] = i
        n += table[(int(a) * wide + int(b)) * deep + int(c)]
    return n


@device_function
def _find_leaves(
    x: Array,
    dim: Array,
    split: Array,
    child: Array,
    depth: int,
    own: Array,
    place: Array,
    value: Array,
    below: Array,
) -> None:
    """For each point, write to `own` the leaf of the kd tree that the point is in.

    All points descend the same number of levels, so that no branch is mispredicted. A
    leaf above the last level is its own child. Scratch: `place` and `value` (nodes and
    leaves,), filled with zeros by the caller; and `below`, twice as long.
    """
    nodes = dim.size
    if nodes == 0:
        own[:] = 0
        return
    leaves = nodes + 1
    for node in range(nodes):
        place[node], value[node] = dim[node], split[node]
        for side in range(2):
            to = child[node, side]
            below[2 * node + side] = to if to >= 0 else nodes - 1 - to
    for leaf in range(leaves):
        below[2 * (nodes + leaf)] = below[2 * (nodes + leaf) + 1] = nodes + leaf
    for i in range(x.shape[0]):
        node = 0
        for _ in range(depth):
            node = below[2 * node + (x[i, place[node]] >= value[node])]
        own[i] = node - nodes


def scratch(cuts: int) -> RegionScratch:
    """Return scratch for `find_regions`; `cuts`: number of inner nodes of the tree."""
    nodes = 2 * cuts + 1
    return RegionScratch(
        np.empty(cuts + 2, np.int64),
        np.zeros(nodes, np.int64),
        np.zeros(nodes),
        np.empty(2 * nodes, np.int64),
    )


@kernel
def find_regions(
    x: Array,
    tree: RegionTree,
    depth: int,
    walls: Walls,
    everywhere: bool,
    mutual: bool,
    reach: float,
    threshold: float,
    norm: Kind,
    own: Array,
    needed: Needed,
    work: RegionScratch,
) -> int:
    """Write the region of each point of `x` (n, d) to `own`, and find the other regions
    that need the point.

    A region needs a point if its box is near the point, and its number is lower than
    the number of the point's own region. With `everywhere`, the number does not matter.
    With `mutual`, it does not matter either, but the point's own region is left out.
    For each point and each region that needs it, write both to `needed`, as many as
    fit. Return the number of all such pairs, including
    pairs that did not fit.

    The gap between a point and a box is computed as a total is. Rounding is monotone,
    so it never exceeds the total of the point and any point in the box. Other regions
    are behind the walls of the point's own region. So no other region needs a point
    that is farther than `reach` from all walls.

    `depth`: number of levels of the tree. `norm`: see `totals.kind_of`. `work`: see
    `scratch`.
    """
    dim, split, child, middle, lower, upper = tree
    cut, low_wall, high_wall = walls
    rows, regions = needed
    stack, place, value, below = work
    dims = x.shape[1]
    _find_leaves(x, dim, split, child, depth, own, place, value, below)
    n = 0
    for i in range(x.shape[0]):
        home = own[i]
        near = False
        for c in range(cut.size):
            at = x[i, cut[c]]
            near = not (
                at - low_wall[home, c] > reach and high_wall[home, c] - at > reach
            )
            if near:
                break
        if not near:
            if everywhere:
                if n < rows.size:
                    rows[n] = i
                    regions[n] = home
                n += 1
            continue
        until = lower.shape[0] if everywhere or mutual else home
        if until == 0:
            continue
        size = 1
        stack[0] = 0
        while size > 0:
            size -= 1
            node = stack[size]
            if node < 0:
                region = -1 - node
                if region >= until or (mutual and region == home):
                    continue
                total = 0.0
                for k in range(dims):
                    gap = max(
                        max(lower[region, k] - x[i, k], x[i, k] - upper[region, k]), 0.0
                    )
                    total = add_term(total, gap, norm)
                if total <= threshold:
                    if n < rows.size:
                        rows[n] = i
                        regions[n] = region
                    n += 1
                continue
            away = x[i, dim[node]] - split[node]
            if away >= -reach and middle[node] < until:
                stack[size] = child[node, 1]
                size += 1
            if away <= reach:
                stack[size] = child[node, 0]
                size += 1
    return n


@kernel
def deal(chunk: Array, ends: Array, free: Array, order: Array) -> None:
    """Group rows by chunk; rows of a chunk stay in their order.

    `chunk` (n,): chunk of each row. `order` (n,): output, the rows by chunk. `ends`
    (chunks + 1,): output, filled with zeros by the caller; chunk c has the rows
    order[ends[c] : ends[c + 1]]. `free` (chunks + 1,): scratch.
    """
    for i in range(chunk.size):
        ends[chunk[i] + 1] += 1
    for c in range(1, ends.size):
        ends[c] += ends[c - 1]
    for c in range(ends.size):
        free[c] = ends[c]
    for i in range(chunk.size):
        order[free[chunk[i]]] = i
        free[chunk[i]] += 1


@kernel
def group_boxes(
    low: Array, high: Array, lower: Array, upper: Array, least: Array, most: Array
) -> None:
    """Store boxes in groups of 64, and find the box of each group.

    `low`, `high` (boxes, d): the boxes. `lower`, `upper` (groups, d, 64): output;
    empty boxes fill the last group. `least`, `most` (groups, d): output, the boxes of
    the groups.
    """
    boxes, dims = low.shape
    for g in range(lower.shape[0]):
        first = g * TILE
        number = min(TILE, boxes - first)
        for k in range(dims):
            a, b = low[first, k], high[first, k]
            for t in range(number):
                x, y = low[first + t, k], high[first + t, k]
                lower[g, k, t], upper[g, k, t] = x, y
                a, b = min(a, x), max(b, y)
            for t in range(number, TILE):
                lower[g, k, t], upper[g, k, t] = np.inf, -np.inf
            least[g, k], most[g, k] = a, b


@kernel
def pack_keys(
    x: Array,
    begin: int,
    end: int,
    grid: GridCells,
    swept: SweptBits,
    least: int,
    packed: Array,
    keys: Array,
) -> None:
    """Pack each of the points `begin` ... `end` - 1 into a 64-bit number, which serves
    as a sort key.

    From the highest bits down, the number has the point's row key minus `least`, its
    swept coordinate in fixed point, and its position. `keys` (IN_CACHE,): scratch.
    """
    dims, origin, width, strides, scale = grid
    sweep, low, factor, value_bits, position_bits = swept
    for first in range(begin, end, IN_CACHE):
        stop = min(first + IN_CACHE, end)
        keys[:] = -least
        for t in range(dims.size):
            zero, wide, stride = origin[t], width[t], strides[t]
            column = x[first:stop, dims[t]]
            for i in range(stop - first):
                # cells are numbered from 1, so that even the neighbor before the first
                # cell has no negative number
                keys[i] += (np.int64((column[i] * scale - zero) / wide) + 1) * stride
        column, out = x[first:stop, sweep], packed[first:stop]
        for i in range(stop - first):
            value = np.int64((column[i] - low) * factor)
            key = (keys[i] << value_bits) | value
            out[i] = (key << position_bits) | (first + i)


@kernel
def lay_out(
    packed: Array,
    begin: int,
    end: int,
    x: Array,
    sweep: int,
    value_bits: int,
    position_bits: int,
    least: int,
    order: Array,
    cols: Array,
    keys: Array,
    starts: Array,
) -> int:
    """Fill an index from the sorted numbers of `pack_keys`; return the number of grid
    rows.

    The numbers `begin` ... `end` - 1 must be complete grid rows. `keys` and `starts`
    are filled from `begin` on. Points with equal fixed-point values are then sorted by
    their coordinates, by insertion. If there are too many of them, return -1, so that
    the caller uses a faster sort.
    """
    dims = x.shape[1]
    mask = (np.uint64(1) << np.uint64(position_bits)) - np.uint64(1)
    # one loop per column, with unsigned indexes, takes a third of the time of a loop
    # over rows, because reads overlap
    for first in range(begin, end, IN_CACHE):
        some = packed[first : min(first + IN_CACHE, end)]
        for k in range(dims):
            column, out = x[:, k], cols[k, first : first + some.size]
            for i in range(some.size):
                out[i] = column[some[i] & mask]
    rows, moves, before, last = begin, 0, np.int64(-1), np.int64(-1)
    for i in range(begin, end):
        value = np.int64(packed[i] >> np.uint64(position_bits))
        order[i] = packed[i] & mask
        key = value >> value_bits
        if key != last:
            keys[rows], starts[rows] = key + least, i
            rows += 1
            last = key
        if value == before:
            j = i
            while j > starts[rows - 1] and cols[sweep, j - 1] > cols[sweep, j]:
                order[j - 1], order[j] = order[j], order[j - 1]
                for k in range(dims):
                    cols[k, j - 1], cols[k, j] = cols[k, j], cols[k, j - 1]
                j -= 1
            moves += i - j
            if moves > end - begin:
                return -1
        before = value
    return rows - begin
