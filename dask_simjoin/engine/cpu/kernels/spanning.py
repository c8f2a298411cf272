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

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.best_edges import (
    Best,
    comes_first,
    offer,
    weight_of,
)
from dask_simjoin.engine.cpu.kernels.jit import inline_source, kernel
from dask_simjoin.engine.cpu.kernels.nearest import (
    LEVEL,
    Gaps,
    Heap,
    _gaps,
    begin_heap,
    empty_gaps,
    empty_heap,
    near_boxes,
    near_queries,
    pop,
    push,
)
from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    ANY,
    begin,
    lanes_other,
    lanes_within,
    limit_filter,
    tile_totals,
)
from dask_simjoin.engine.cpu.kernels.product_simd import QUERIES, filter_tile
from dask_simjoin.engine.cpu.kernels.simd import Terms, Tree
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    NONE,
    ONE,
    count_bits,
    lowest_bit,
)
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array, DType


@inline_source
def scan_exact(
    q: Terms,
    d: Terms,
    a: int,
    b: int,
    near: np.uint64,
    found: np.uint64,
    rows: Any,
    best: Any,
    norm: Kind,
    work: Any,
) -> bool:
    """Offer edges from the queries `near` of tile `a` to the points `found` of tile `b`
    in other components.

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
    while near != NONE:
        t = lowest_bit(near)
        near &= near - ONE
        i = a * TILE + t
        c = q_component[i]
        bound = weight_of(weights, c)
        if c != last:
            last, others = c, found & lanes_other(components, c)
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
def scan_few(
    q: Terms,
    d: Terms,
    a: int,
    b: int,
    near: np.uint64,
    found: np.uint64,
    rows: Any,
    best: Any,
    norm: Kind,
    work: Any,
) -> bool:
    """Offer the same edges as `scan_exact`, point by point of `found`. All queries
    `near` are in one component, which has none of these points.
    """
    (q_component, q_core, q_names, q_first), (_, d_core, d_names, d_first) = rows
    distances, weights = work[0], best[0].ctypes.data
    z = q[0]
    tile, points = (
        z.ctypes.data + a * z.strides[0],
        d[0].ctypes.data + b * d[0].strides[0],
    )
    c = q_component[a * TILE + lowest_bit(near)]
    taken = False
    while found != NONE:
        t = lowest_bit(found)
        found &= found - ONE
        j = b * TILE + t
        bound = weight_of(weights, c)
        if not d_core[j] <= bound:
            continue
        mask = near & tile_totals(
            tile,
            np.int64(z.shape[1]),
            points + t * z.itemsize,
            bound,
            distances.ctypes.data,
            norm,
        )
        while mask != NONE:
            bit = lowest_bit(mask)
            mask &= mask - ONE
            i = a * TILE + bit
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
    near: np.uint64,
    found: np.uint64,
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
    some = filter_tile(z, start, b, near, points, picked, limit, masks)
    taken = False
    if not some:
        return taken
    last, others = np.int32(-1), NONE
    while near != NONE:
        t = lowest_bit(near)
        near &= near - ONE
        mask = masks[t] & found
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


class Queries(NamedTuple):
    """The boxes of the tiles of queries, and one 64-bit mask of searching queries per
    tile.
    """

    low: Array
    high: Array
    wanted: Array


class Data(NamedTuple):
    """The boxes of the data. For each box in the tree, the smallest row id in it, the
    component of all its points or -1, and the smallest core distance.
    """

    low: Array
    high: Array
    tree: Tree
    least: Array
    tags: Array
    cores: Array


class Scratch(NamedTuple):
    """The scratch arrays of `search_others`. `low`, `high` (1, d): box of the queries of
    a tile. `bounds`: weight of the best edge of each query's component.
    """

    low: Array
    high: Array
    heap: Heap
    gaps: Gaps
    bounds: Array
    limit: Array
    scan: Any


def scratch(tiles: int, groups: int, dims: int, kind: DType) -> Scratch:
    """Return the scratch arrays of `search_others`.

    `tiles`, `groups`: number of tiles, and of groups of boxes; `kind`: dtype of the
    boxes.
    """
    picked, masks = np.empty(TILE + QUERIES, np.int64), np.zeros(TILE + 1, np.uint64)
    return Scratch(
        np.empty((1, dims), kind),
        np.empty((1, dims), kind),
        empty_heap(tiles + groups + 1),
        empty_gaps(kind),
        np.empty(TILE),
        np.full(TILE + 1, np.inf, np.float32),
        (np.empty(TILE), picked, masks, np.zeros((TILE + 1, dims), np.float32)),
    )


@inline_source
def _begin_tile(
    z: Array, a: int, valid: np.uint64, own_tiles: bool, levels: Array, work: Scratch
) -> int:
    """Prepare the `valid` queries of tile `a`. Return the number of nodes of the heap."""
    low, high = work.low, work.high
    first = lowest_bit(valid)
    for k in range(low.shape[1]):
        low[0, k] = high[0, k] = z[a, k, first]
    for t in range(TILE):
        work.gaps.reach[t], work.bounds[t] = -1.0, -1.0
        # often few points of a tile search, and their box is much smaller
        if (valid >> np.uint64(t)) & ONE:
            for k in range(low.shape[1]):
                low[0, k] = min(low[0, k], z[a, k, t])
                high[0, k] = max(high[0, k], z[a, k, t])
    return begin_heap(a, own_tiles, levels, work.heap)


@inline_source
def _component_of(components: Array, a: int, valid: np.uint64) -> np.int32:
    """Return the component of all `valid` queries of tile `a`; -2 if there are
    several.
    """
    only = components[a * TILE + lowest_bit(valid)]
    while valid != NONE:
        t = lowest_bit(valid)
        valid &= valid - ONE
        if components[a * TILE + t] != only:
            only = np.int32(-2)
    return only


@inline_source
def _lower_bounds(
    a: int, valid: np.uint64, own: Any, weights: int, work: Scratch
) -> tuple[np.uint64, np.uint64, int, bool]:
    """Update the bounds of the `valid` queries of tile `a`, and their reach if there is
    no filter.

    Return a mask of the queries that still search, and one of those with a new bound.
    Then the lane with the largest bound, and whether better edges can only be ties.
    """
    components, cores, _, _ = own
    changed, lane, most, tied = NONE, 0, -1.0, True
    left = valid
    while left != NONE:
        t = lowest_bit(left)
        left &= left - ONE
        i = a * TILE + t
        bound = weight_of(weights, components[i])
        # all edges of this row are heavier than its component's best edge, so it need
        # not search
        if cores[i] > bound:
            valid &= ~(ONE << np.uint64(t))
            work.gaps.reach[t] = -1.0
            continue
        if bound != work.bounds[t]:
            work.bounds[t] = work.gaps.reach[t] = bound
            changed |= ONE << np.uint64(t)
        tied &= cores[i] == bound
        if bound > most:
            lane, most = t, bound
    return valid, changed, lane, tied


@inline_source
def _wins_tie(a: int, valid: np.uint64, own: Any, best: Best, least: int) -> bool:
    """Whether an edge from a `valid` query of tile `a` to row id `least` wins a tie."""
    components, _, names, _ = own
    wins = False
    while valid != NONE and not wins:
        i = a * TILE + lowest_bit(valid)
        valid &= valid - ONE
        wins = comes_first(best, components[i], names[i], least)
    return wins


@inline_source
def _searching(
    z: Array,
    d: Data,
    a: int,
    b: int,
    valid: np.uint64,
    own: Any,
    best: Best,
    norm: Kind,
    work: Scratch,
) -> np.uint64:
    """Return a mask of the `valid` queries of tile `a` that may have a better edge to
    tile `b`.
    """
    components, cores, names, _ = own
    tag, least = d.tags[b >> 6, b & 63], d.least[b >> 6, b & 63]
    near = valid & near_queries(z, d, a, b, norm, work.gaps)
    left = near
    while left != NONE:
        t = lowest_bit(left)
        left &= left - ONE
        i = a * TILE + t
        c = components[i]
        if c == tag or (
            cores[i] == work.bounds[t] and not comes_first(best, c, names[i], least)
        ):
            near &= ~(ONE << np.uint64(t))
    return near


@inline_source
def _near_points(z: Array, b: int, norm: Kind, work: Scratch) -> np.uint64:
    """Return a mask of the points of tile `b` that are near the box of the queries.
    `z`: tiles of the data.
    """
    points = z.ctypes.data + b * z.strides[0]
    return _gaps(
        points,
        points,
        work.low.shape[1],
        work.low.ctypes.data,
        work.high.ctypes.data,
        work.gaps.all_reach.ctypes.data,
        work.gaps.found.ctypes.data,
        work.low.dtype.type(0),
        norm,
    )


@kernel
def search_others(
    q_terms: Terms,
    d_terms: Terms,
    q: Queries,
    d: Data,
    terms: Any,
    own_tiles: bool,
    norm: Kind,
    first: int,
    last: int,
    rows: Any,
    best: Best,
    work: Scratch,
) -> None:
    """Search edges from the wanted queries in the tiles `first` ... `last` - 1 to
    points of `d`, and update the best edges of components.

    `q_terms`, `d_terms`, `terms`, `own_tiles`, `norm`: see `nearest.search`. `rows`:
    see `scan_exact`; `best`: see `best_edges`; `work`: see `scratch`.
    """
    own, weights = rows[0], best[0].ctypes.data
    d_components = rows[1][0].ctypes.data
    _, _, levels = d.tree
    keys, ties, nodes = work.heap
    bounds, limit = work.bounds, work.limit
    scan, reach = work.scan, work.gaps.reach
    for a in range(first, last):
        valid = q.wanted[a]
        if valid == NONE:
            continue
        if len(q_terms) > 1:
            begin(q_terms, a, scan[3])
        size = _begin_tile(q_terms[0], a, valid, own_tiles, levels, work)
        only = _component_of(own[0], a, valid)
        stale, most, tied = True, 0.0, False
        furthest = d.low.dtype.type(0)
        while size > 0:
            if stale:
                valid, changed, lane, tied = _lower_bounds(a, valid, own, weights, work)
                if len(q_terms) > 1:
                    limit_filter(
                        q_terms, terms, a, changed, bounds, ANY, np.inf, reach, limit
                    )
                # a larger bound never has a smaller reach
                stale, furthest, most = False, reach[lane], bounds[lane]
                for t in range(TILE):
                    work.gaps.all_reach[t] = furthest
            if valid == NONE or keys[0] > furthest:
                break
            level, number = (nodes[0] >> LEVEL) - 1, nodes[0] & ((1 << LEVEL) - 1)
            pop(keys, ties, nodes, size)
            size -= 1
            if level >= 0:
                group = levels[level] + number
                mask = near_boxes(work, d, 0, group, norm, work.gaps)
                boxes = d.low.shape[0]
                if level > 0:
                    boxes = levels[level] - levels[level - 1]
                while mask != NONE:
                    bit = lowest_bit(mask)
                    mask &= mask - ONE
                    child = number * TILE + bit
                    if child >= boxes or (own_tiles and level == 0 and child == a):
                        continue
                    if d.tags[group, bit] == only or d.cores[group, bit] > most:
                        continue
                    least, key = d.least[group, bit], np.float64(work.gaps.found[bit])
                    if not tied or _wins_tie(a, valid, own, best, least):
                        node = (level << LEVEL) | child
                        push(keys, ties, nodes, size, key, least, node)
                        size += 1
                continue
            if d.tags[number >> 6, number & 63] == only:
                continue
            found = _near_points(d_terms[0], number, norm, work)
            if only >= 0:
                components = d_components + number * TILE * 4
                found &= lanes_other(components, only)
            if found == NONE:
                continue
            near = _searching(q_terms[0], d, a, number, valid, own, best, norm, work)
            if near == NONE:
                continue
            if len(q_terms) > 1:
                stale = scan_filtered(
                    q_terms, d_terms, a, number, near, found, rows, best, limit, scan
                )
            elif only >= 0 and count_bits(found) < count_bits(near):
                stale = scan_few(
                    q_terms, d_terms, a, number, near, found, rows, best, norm, scan
                )
            else:
                stale = scan_exact(
                    q_terms, d_terms, a, number, near, found, rows, best, norm, scan
                )
