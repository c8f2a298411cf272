"""The least edges that leave components: from the points of one tile index to those of another.

The weight of an edge is the largest of the total of its rows and their core distances (totals too): their
mutual reachability.  A tile of 64 queries goes through the other index's boxes nearest first, as in
`nearest`, until the nearest box left is further than what is known of each of its components.  Left out
are boxes of points that are all of the queries' one component, boxes in which all core distances are too
large, and, where no edge can be lighter than the one that is known, boxes whose names are too large.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.annotations import Terms, Tree
from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.nearest import LEVEL, _gaps, _pop, _push
from dask_simjoin.engine.cpu.kernels.nearest_scan import NONE, ONE, begin, set_limits
from dask_simjoin.engine.cpu.kernels.product_simd import QUERIES
from dask_simjoin.engine.cpu.kernels.spanning_scan import comes_first, scan_exact, scan_filtered
from dask_simjoin.engine.cpu.kernels.tile_simd import lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.types import Array, DType


def room(tiles: int, groups: int, dims: int, kind: DType) -> tuple[np.ndarray, ...]:
    """Where a search among so many tiles and groups of boxes works; `kind`: of the boxes."""
    heap = tiles + groups + 1
    keys, ties, nodes = np.empty(heap), np.empty(heap, np.int64), np.empty(heap, np.int64)
    reach, all_reach, gaps = (np.empty(TILE, kind) for _ in range(3))
    limit, lanes = np.full(TILE + 1, np.inf, np.float32), np.zeros((TILE + 1, dims), np.float32)
    picked, masks = np.empty(TILE + QUERIES, np.int64), np.zeros(TILE + 1, np.uint64)
    bounds, distances = np.empty(TILE), np.empty(TILE)
    return keys, ties, nodes, reach, all_reach, gaps, bounds, limit, lanes, picked, masks, distances


@kernel
def search_others(q: Terms, q_low: Array, q_high: Array, d: Terms, d_low: Array, d_high: Array, d_tree: Tree,
                  d_nodes: Any, terms: Any, own_tiles: bool, norm: Kind, wanted: Array, rows: Any, best: Any,
                  work: Any) -> None:  # fmt: skip
    """Improve the best edges of components by those from the `wanted` queries, a mask for each tile.

    `q`, `d`, `terms`, `own_tiles`, `norm`: see `nearest.search`; `d_nodes`: below each box the smallest
    name, the component that all points are of, or -1, and the smallest core distance; `rows`, `best`: see
    `spanning_scan`; `work`: see `room`.
    """
    (components, cores, names, _), _ = rows
    lower, upper, levels = d_tree
    d_least, d_tags, d_cores = d_nodes
    dims, tiles = q_low.shape[1], d_low.shape[0]
    top = levels.size - 2
    step, q_step, d_step = lower.strides[0], q_low.strides[0], d_low.strides[0]
    q_lows, q_highs, d_lows, d_highs = (
        q_low.ctypes.data, q_high.ctypes.data, d_low.ctypes.data, d_high.ctypes.data,
    )  # fmt: skip
    keys, ties, nodes, reach, all_reach, gaps, bounds, limit, lanes, picked, masks, distances = work
    lowers, uppers = lower.ctypes.data, upper.ctypes.data
    reaches, all_reaches, all_gaps = reach.ctypes.data, all_reach.ctypes.data, gaps.ctypes.data
    scan_work = distances, picked, masks, lanes
    kind = lower.dtype.type
    zero = kind(0)
    for a in range(wanted.size):
        valid = wanted[a]
        if valid == NONE:
            continue
        if len(q) > 1:
            begin(q, a, lanes)
        for t in range(TILE):
            reach[t], bounds[t] = kind(-1), -1.0
        only = components[a * TILE + lowest_bit(valid)]
        left = valid
        while left != NONE:
            t = lowest_bit(left)
            left &= left - ONE
            if components[a * TILE + t] != only:
                only = np.int32(-2)
        size = np.int64(1)  # Numba would compile a `_push` for this constant
        keys[0], ties[0], nodes[0] = 0.0, 0, (top + 1) << LEVEL
        if own_tiles:
            _push(keys, ties, nodes, size, -1.0, np.int64(-1), a)
            size += 1
        stale = True
        furthest, most, tied = zero, 0.0, False
        while size > 0:
            if stale:
                stale, tied = False, True
                furthest, most = kind(-1), -1.0
                left = valid
                while left != NONE:
                    t = lowest_bit(left)
                    left &= left - ONE
                    i = a * TILE + t
                    bound = best[0][components[i]]
                    if cores[i] > bound:  # no edge of this row is as light
                        valid &= ~(ONE << np.uint64(t))
                        reach[t] = kind(-1)
                        continue
                    if bound != bounds[t]:
                        bounds[t] = bound
                        if len(q) == 1:
                            reach[t] = bound
                        else:
                            set_limits(q, terms, i, t, bound, bound, reach, limit)
                    tied &= cores[i] == bound
                    furthest, most = max(furthest, reach[t]), max(most, bound)
                for t in range(TILE):
                    all_reach[t] = furthest
            if valid == NONE or keys[0] > furthest:
                break
            node = nodes[0]
            _pop(keys, ties, nodes, size)
            size -= 1
            level, number = (node >> LEVEL) - 1, node & ((1 << LEVEL) - 1)
            if level >= 0:
                group = levels[level] + number
                mask = _gaps(
                    lowers + group * step, uppers + group * step, dims, q_lows + a * q_step,
                    q_highs + a * q_step, all_reaches, all_gaps, zero, norm,
                )  # fmt: skip
                boxes = tiles if level == 0 else levels[level] - levels[level - 1]
                while mask != NONE:
                    bit = lowest_bit(mask)
                    mask &= mask - ONE
                    child = number * TILE + bit
                    if child >= boxes or (own_tiles and level == 0 and child == a):
                        continue
                    if d_tags[group, bit] == only or d_cores[group, bit] > most:
                        continue
                    least = d_least[group, bit]
                    if tied:
                        some, left = False, valid
                        while left != NONE and not some:
                            i = a * TILE + lowest_bit(left)
                            left &= left - ONE
                            some = comes_first(best, components[i], names[i], least)
                        if not some:
                            continue
                    _push(keys, ties, nodes, size, np.float64(gaps[bit]), least, (level << LEVEL) | child)
                    size += 1
                continue
            b = number
            tag, least = d_tags[b >> 6, b & 63], d_least[b >> 6, b & 63]
            if tag == only:
                continue
            at = q[0].ctypes.data + a * q[0].strides[0]
            near = valid & _gaps(
                at, at, dims, d_lows + b * d_step, d_highs + b * d_step, reaches, all_gaps, zero, norm
            )
            left = near
            while left != NONE:
                t = lowest_bit(left)
                left &= left - ONE
                i = a * TILE + t
                c = components[i]
                if c == tag or (cores[i] == bounds[t] and not comes_first(best, c, names[i], least)):
                    near &= ~(ONE << np.uint64(t))
            if near != NONE:
                if len(q) == 1:
                    stale = scan_exact(q, d, a, b, near, rows, best, norm, scan_work)
                else:
                    stale = scan_filtered(q, d, a, b, near, rows, best, limit, scan_work)
