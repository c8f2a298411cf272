"""Find the lightest edge that leaves each component, between two tile indexes.

The weight of an edge is the mutual reachability of its rows: the largest of their total
and both core distances, which are also totals. A tile of 64 queries visits the boxes of
the other index, nearest first, as in `nearest`. It stops when the nearest remaining box
is farther away than the weight of every component's best edge. A box is skipped in
three cases:

- its points and all queries are in one component;
- all its core distances are larger than the weights of the best edges;
- its edges can only tie with the best edges, and its row ids are too large to win such
  a tie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.best_edges import comes_first, offer, weight_of
from dask_simjoin.engine.cpu.kernels.jit import inline_source, kernel
from dask_simjoin.engine.cpu.kernels.nearest import LEVEL, _gaps, _pop, _push
from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    begin,
    lanes_other,
    lanes_within,
    set_limits,
    tile_totals,
)
from dask_simjoin.engine.cpu.kernels.product_simd import QUERIES, filter_tile
from dask_simjoin.engine.cpu.kernels.simd import Terms, Tree
from dask_simjoin.engine.cpu.kernels.tile_simd import NONE, ONE, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array, DType


@inline_source
def scan_exact(
    q: Terms,
    d: Terms,
    a: int,
    b: int,
    wanted: np.uint64,
    rows: Any,
    best: Any,
    norm: Kind,
    work: Any,
) -> bool:
    """Offer edges from the `wanted` queries of tile `a` to the points of tile `b` in
    other components.

    Return whether the best edge of a component changed. `rows`: for each index, the
    components, core distances and row ids of its points, and its first node.
    """
    (q_component, q_core, q_names, q_first), (d_component, d_core, d_names, d_first) = (
        rows
    )
    distances, weights = work[0], best[0].ctypes.data
    z = d[0]
    dims, size = np.int64(z.shape[1]), z.itemsize
    tile, points = (
        z.ctypes.data + b * z.strides[0],
        q[0].ctypes.data + a * q[0].strides[0],
    )
    components, cores = (
        d_component.ctypes.data + b * TILE * 4,
        d_core.ctypes.data + b * TILE * 8,
    )
    taken = False
    last, others = np.int32(-1), NONE
    while wanted != NONE:
        t = lowest_bit(wanted)
        wanted &= wanted - ONE
        i = a * TILE + t
        c = q_component[i]
        bound = weight_of(weights, c)
        if c != last:
            last, others = c, lanes_other(components, c)
        if others == NONE:
            continue
        mask = others & tile_totals(
            tile, dims, points + t * size, bound, distances.ctypes.data, norm
        )
        if mask == NONE:
            continue
        mask &= lanes_within(cores, bound)
        while mask != NONE:
            bit = lowest_bit(mask)
            mask &= mask - ONE
            j = b * TILE + bit
            weight = max(distances[bit], max(q_core[i], d_core[j]))
            taken |= offer(
                best, c, weight, q_names[i], d_names[j], q_first + i, d_first + j
            )
    return taken


@inline_source
def scan_filtered(
    q: Terms,
    d: Terms,
    a: int,
    b: int,
    wanted: np.uint64,
    rows: Any,
    best: Any,
    limit: Array,
    work: Any,
) -> bool:
    """Offer the same edges as `scan_exact`, but run the float32 filter first."""
    (q_component, q_core, q_names, q_first), (d_component, d_core, d_names, d_first) = (
        rows
    )
    _, picked, masks, points = work
    z, start, d_y = d
    q_y = q[2]
    components, cores = (
        d_component.ctypes.data + b * TILE * 4,
        d_core.ctypes.data + b * TILE * 8,
    )
    some = filter_tile(z, start, b, wanted, points, picked, limit, masks)
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
        mask &= lanes_within(cores, weight_of(best[0].ctypes.data, c))
        while mask != NONE:
            j = b * TILE + lowest_bit(mask)
            mask &= mask - ONE
            total = 0.0
            for k in range(q_y.shape[1]):
                # the filter is for norm 2 only, so add squares; in order and without
                # fused multiply-add, as elsewhere
                difference = q_y[i, k] - d_y[j, k]
                total += difference * difference
            weight = max(total, max(q_core[i], d_core[j]))
            taken |= offer(
                best, c, weight, q_names[i], d_names[j], q_first + i, d_first + j
            )
    return taken


def scratch(tiles: int, groups: int, dims: int, kind: DType) -> tuple[np.ndarray, ...]:
    """Return the scratch arrays of `search_others`.

    `tiles`, `groups`: number of tiles, and of groups of boxes; `kind`: dtype of the
    boxes.
    """
    heap = tiles + groups + 1
    keys, ties, nodes = (
        np.empty(heap),
        np.empty(heap, np.int64),
        np.empty(heap, np.int64),
    )
    reach, all_reach, gaps = (np.empty(TILE, kind) for _ in range(3))
    limit, lanes = (
        np.full(TILE + 1, np.inf, np.float32),
        np.zeros((TILE + 1, dims), np.float32),
    )
    picked, masks = np.empty(TILE + QUERIES, np.int64), np.zeros(TILE + 1, np.uint64)
    bounds, distances = np.empty(TILE), np.empty(TILE)
    return (
        keys,
        ties,
        nodes,
        reach,
        all_reach,
        gaps,
        bounds,
        limit,
        lanes,
        picked,
        masks,
        distances,
    )


@kernel
def search_others(
    q: Terms,
    q_low: Array,
    q_high: Array,
    d: Terms,
    d_low: Array,
    d_high: Array,
    d_tree: Tree,
    d_nodes: Any,
    terms: Any,
    own_tiles: bool,
    norm: Kind,
    wanted: Array,
    first: int,
    last: int,
    rows: Any,
    best: Any,
    work: Any,
) -> None:
    """Search edges from the `wanted` queries in the tiles `first` ... `last` - 1 to
    points of `d`, and update the best edges of components.

    `q`, `d`, `terms`, `own_tiles`, `norm`: see `nearest.search`. `wanted`: one 64-bit
    mask per tile. `d_nodes`: for each box, the smallest row id in it, the component of
    all its points or -1, and the smallest core distance. `rows`: see `scan_exact`;
    `best`: see `best_edges`; `work`: see `scratch`.
    """
    (components, cores, names, _), _ = rows
    weights = best[0].ctypes.data
    lower, upper, levels = d_tree
    d_least, d_tags, d_cores = d_nodes
    dims, tiles = q_low.shape[1], d_low.shape[0]
    top = levels.size - 2
    step, q_step, d_step = lower.strides[0], q_low.strides[0], d_low.strides[0]
    q_lows, q_highs, d_lows, d_highs = (
        q_low.ctypes.data,
        q_high.ctypes.data,
        d_low.ctypes.data,
        d_high.ctypes.data,
    )
    (
        keys,
        ties,
        nodes,
        reach,
        all_reach,
        gaps,
        bounds,
        limit,
        lanes,
        picked,
        masks,
        distances,
    ) = work
    lowers, uppers = lower.ctypes.data, upper.ctypes.data
    reaches, all_reaches, all_gaps = (
        reach.ctypes.data,
        all_reach.ctypes.data,
        gaps.ctypes.data,
    )
    scan_work = distances, picked, masks, lanes
    kind = lower.dtype.type
    zero = kind(0)
    for a in range(first, last):
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
        # with a literal 1, Numba would compile a second `_push` for that type
        size = np.int64(1)
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
                    bound = weight_of(weights, components[i])
                    # all edges of this row are heavier than its component's best edge,
                    # so it need not search
                    if cores[i] > bound:
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
                    lowers + group * step,
                    uppers + group * step,
                    dims,
                    q_lows + a * q_step,
                    q_highs + a * q_step,
                    all_reaches,
                    all_gaps,
                    zero,
                    norm,
                )
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
                    _push(
                        keys,
                        ties,
                        nodes,
                        size,
                        np.float64(gaps[bit]),
                        least,
                        (level << LEVEL) | child,
                    )
                    size += 1
                continue
            b = number
            tag, least = d_tags[b >> 6, b & 63], d_least[b >> 6, b & 63]
            if tag == only:
                continue
            at = q[0].ctypes.data + a * q[0].strides[0]
            near = valid & _gaps(
                at,
                at,
                dims,
                d_lows + b * d_step,
                d_highs + b * d_step,
                reaches,
                all_gaps,
                zero,
                norm,
            )
            left = near
            while left != NONE:
                t = lowest_bit(left)
                left &= left - ONE
                i = a * TILE + t
                c = components[i]
                if c == tag or (
                    cores[i] == bounds[t] and not comes_first(best, c, names[i], least)
                ):
                    near &= ~(ONE << np.uint64(t))
            if near != NONE:
                if len(q) == 1:
                    stale = scan_exact(q, d, a, b, near, rows, best, norm, scan_work)
                else:
                    stale = scan_filtered(
                        q, d, a, b, near, rows, best, limit, scan_work
                    )
