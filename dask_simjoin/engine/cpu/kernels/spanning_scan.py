"""What a tile of queries does with a tile of points of other components: in float64, or by the filter first.

Both ways are functions of one name, chosen by what the two sides' terms are, as in `nearest_scan`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.annotations import Terms
from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source
from dask_simjoin.engine.cpu.kernels.nearest_scan import NONE, ONE
from dask_simjoin.engine.cpu.kernels.nearest_simd import lanes_other, lanes_within, tile_totals
from dask_simjoin.engine.cpu.kernels.product_simd import PARTS, QUERIES, part_products
from dask_simjoin.engine.cpu.kernels.tile_simd import lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.types import Array


@inline_source
def comes_first(best: Any, c: int, a: int, b: int) -> bool:
    """Whether an edge of rows named so comes before the best one of component `c`, if both weigh the same."""
    _, starts, ends, names = best
    if starts[c] < 0:
        return True
    low, high = names[starts[c]], names[ends[c]]
    if low > high:
        low, high = high, low
    if a > b:
        a, b = b, a
    return bool(a < low or (a == low and b < high))


@device_function
def offer(best: Any, c: int, weight: float, a: int, b: int, start: int, end: int) -> bool:
    """Take an edge for the least of component `c` if it is; `a`, `b`: names of its nodes start and end.

    Edges are ordered by (weight, smaller name, larger name); `best`: of components weights and nodes, -1
    where there is none, and of nodes the names.
    """
    weights, starts, ends, _ = best
    if weight > weights[c] or (weight == weights[c] and not comes_first(best, c, a, b)):
        return False
    weights[c], starts[c], ends[c] = weight, start, end
    return True


@inline_source
def scan_exact(q: Terms, d: Terms, a: int, b: int, wanted: np.uint64, rows: Any, best: Any, norm: Kind,
               work: Any) -> bool:  # fmt: skip
    """Offer edges from the `wanted` queries of tile `a` to other components' points of `b`; if one was taken.

    `rows`: components, core distances, names and the first nodes of both sides.
    """
    (q_component, q_core, q_names, q_first), (d_component, d_core, d_names, d_first) = rows
    distances = work[0]
    z = d[0]
    dims, size = np.int64(z.shape[1]), z.itemsize
    tile, points = z.ctypes.data + b * z.strides[0], q[0].ctypes.data + a * q[0].strides[0]
    components, cores = d_component.ctypes.data + b * TILE * 4, d_core.ctypes.data + b * TILE * 8
    taken = False
    last, others = np.int32(-1), NONE
    while wanted != NONE:
        t = lowest_bit(wanted)
        wanted &= wanted - ONE
        i = a * TILE + t
        c = q_component[i]
        bound = best[0][c]
        if c != last:
            last, others = c, lanes_other(components, c)
        if others == NONE:
            continue
        mask = others & tile_totals(tile, dims, points + t * size, bound, distances.ctypes.data, norm)
        if mask == NONE:
            continue
        mask &= lanes_within(cores, bound)
        while mask != NONE:
            bit = lowest_bit(mask)
            mask &= mask - ONE
            j = b * TILE + bit
            weight = max(distances[bit], max(q_core[i], d_core[j]))
            taken |= offer(best, c, weight, q_names[i], d_names[j], q_first + i, d_first + j)
    return taken


@inline_source
def scan_filtered(q: Terms, d: Terms, a: int, b: int, wanted: np.uint64, rows: Any, best: Any, limit: Array,
                  work: Any) -> bool:  # fmt: skip
    """Do what `scan_exact` does with the float32 filter first."""
    (q_component, q_core, q_names, q_first), (d_component, d_core, d_names, d_first) = rows
    _, picked, masks, points = work
    z, start, d_y = d
    q_y = q[2]
    tile = z.ctypes.data + b * z.strides[0]
    begins = start.ctypes.data + b * start.strides[0]
    components, cores = d_component.ctypes.data + b * TILE * 4, d_core.ctypes.data + b * TILE * 8
    n = 0
    left = wanted
    while left != NONE:
        picked[n] = lowest_bit(left)
        left &= left - ONE
        n += 1
    while n % QUERIES > 0:
        picked[n] = TILE  # a row whose limit nothing reaches
        n += 1
    for t in range(masks.size):
        masks[t] = NONE
    some = False
    for part in range(PARTS):
        for group in range(0, n, QUERIES):
            some |= part_products(
                tile, begins, z.shape[1], points.ctypes.data, points.strides[0],
                picked.ctypes.data + group * 8, limit.ctypes.data, part, masks.ctypes.data,
            )  # fmt: skip
    taken = False
    if not some:
        return taken
    last, others = np.int32(-1), NONE
    while wanted != NONE:
        t = lowest_bit(wanted)
        wanted &= wanted - ONE
        mask = masks[t]
        if mask == NONE:
            continue
        i = a * TILE + t
        c = q_component[i]
        if c != last:
            last, others = c, lanes_other(components, c)
        mask &= others
        if mask == NONE:
            continue
        mask &= lanes_within(cores, best[0][c])
        while mask != NONE:
            j = b * TILE + lowest_bit(mask)
            mask &= mask - ONE
            total = 0.0
            for k in range(q_y.shape[1]):
                # the definition of squares, which alone have a filter: dimensions in order, nothing fused
                difference = q_y[i, k] - d_y[j, k]
                total += difference * difference
            weight = max(total, max(q_core[i], d_core[j]))
            taken |= offer(best, c, weight, q_names[i], d_names[j], q_first + i, d_first + j)
    return taken
