"""Kernels of Boruvka's rounds: find the lightest edge that leaves each component, and
join components by it.

Nodes are places in one or two indexes. For each node, `least` is a lower bound of the
weights of its edges to other components. When the lightest of these edges is known,
`to` is its other end and `least` its weight; before that, `to` is -1.

The first round joins most nodes. Often the lists of nearest nodes are enough for this
round. Then `least` and `to` are empty arrays until its end, to save memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.best_edges import NO_EDGE, offer, weight_of
from dask_simjoin.engine.cpu.kernels.components import (
    find,
    parent_of,
    unite_different,
)
from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_source,
    kernel,
)
from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    lanes_negative,
    lanes_other,
    lanes_within,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import ALL, NONE, ONE, lowest_bit
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array


@device_function
def float32_below(value: float) -> np.float32:
    """Return the largest float32 that is not above a value."""
    found = np.float32(value)
    if found > value:
        found = np.nextafter(found, np.float32(-np.inf))
    return np.float32(found)


@kernel
def keep_nearest(
    totals: Array,
    places: Array,
    others: int,
    at: int,
    core: Array,
    near: Array,
    away: Array,
    beyond: Array,
) -> None:
    """Keep the result of a search, in the rows from `at` on of four arrays.

    `totals`, `places` (n, k): the nearest rows; -1 stands for none. `others`: number of
    other rows within the core distance. For the arrays see `offer_listed`.
    """
    listed, known = near.shape[1], away.shape[1]
    for r in range(totals.shape[0]):
        o = at + r
        for s in range(listed):
            near[o, s] = places[r, s]
            if known:
                away[o, s] = totals[r, s]
        core[o] = totals[r, others - 1] if others else 0.0
        most = totals[r, listed] if listed < totals.shape[1] else -1.0
        beyond[o] = float32_below(most)


@kernel
def offer_listed(
    component: Array,
    core: Array,
    names: Array,
    near: Array,
    away: Array,
    beyond: Array,
    least: Array,
    to: Array,
    best: Any,
    start: int,
    stop: int,
) -> None:
    """Offer the known edges of the nodes in the tiles `start` ... `stop` - 1: edges
    found earlier, and edges to nearest nodes.

    `names` (n,): id of each node; ids break ties. `near` (n, k): the nearest nodes of
    each node in ascending order, -1 for none. `away` (n, k): the totals between the
    node and these nodes; (n, 0) if no total exceeds the node's core distance. `beyond`
    (nodes,): a lower bound of the totals to all nodes that are not in `near`. The bound
    is set to -1 when all nodes of `near` are in the node's component, and is -1 for
    padding. `best`: see `best_edges`.
    """
    weights = best[0].ctypes.data
    for a in range(start, stop):
        mask = ~lanes_negative(beyond.ctypes.data + a * TILE * 4)
        if to.size > 0:
            mask |= ~lanes_negative(to.ctypes.data + a * TILE * 4)
            if is_whole(component, a):
                most = weight_of(weights, component[a * TILE])
                mask &= lanes_within(least.ctypes.data + a * TILE * 8, most)
        while mask != NONE:
            i = a * TILE + lowest_bit(mask)
            mask &= mask - ONE
            _offer_node(i, component, core, names, near, away, beyond, least, to, best)


@device_function
def is_whole(component: Array, a: int) -> bool:
    """Whether all points of tile `a` are in one component, and the tile is full."""
    first = component.ctypes.data + a * TILE * 4
    return bool(lanes_other(first, component[a * TILE]) == NONE)


@inline_source
def _offer_node(
    i: int,
    component: Array,
    core: Array,
    names: Array,
    near: Array,
    away: Array,
    beyond: Array,
    least: Array,
    to: Array,
    best: Any,
) -> None:
    """Offer the lightest known edge of a node, and update its bounds: see
    `offer_listed`.
    """
    c = component[i]
    if to.size > 0 and to[i] >= 0:
        if component[to[i]] != c:
            offer(best, c, least[i], names[i], names[to[i]], i, to[i])
            return
        to[i] = -1
    if beyond[i] < 0:
        return
    chosen, weight = np.int32(-1), np.inf
    for s in range(near.shape[1]):
        if away.shape[1] and away[i, s] > weight:
            break
        j = near[i, s]
        if j < 0 or component[j] == c:
            continue
        w = max(core[i], core[j])
        if away.shape[1]:
            w = max(w, away[i, s])
        if chosen < 0 or w < weight or (w == weight and names[j] < names[chosen]):
            chosen, weight = j, w
    if to.size > 0:
        least[i] = max(least[i], np.float64(beyond[i]))
    if chosen < 0:
        beyond[i] = np.float32(-1.0)
        return
    offer(best, c, weight, names[i], names[chosen], i, chosen)
    if to.size > 0 and weight < beyond[i]:
        to[i], least[i] = chosen, weight


@kernel
def offer_edges(
    component: Array, names: Array, weight: Array, low: Array, high: Array, best: Any
) -> int:
    """Offer known edges to the components of both of their ends, and drop edges within
    one component.

    Return the number of remaining edges, which move to the front of the arrays.
    """
    kept = 0
    for e in range(weight.size):
        i, j = low[e], high[e]
        a, b = component[i], component[j]
        if a != b:
            offer(best, a, weight[e], names[i], names[j], i, j)
            offer(best, b, weight[e], names[i], names[j], j, i)
            weight[kept], low[kept], high[kept] = weight[e], i, j
            kept += 1
    return kept


@kernel
def who_searches(
    component: Array,
    core: Array,
    least: Array,
    to: Array,
    beyond: Array,
    weights: Array,
    wanted: Array,
    start: int,
    stop: int,
) -> None:
    """Mark the nodes that must search, in the tiles `start` ... `stop` - 1.

    A node must search if it may have an edge as light as its component's best known
    edge, or lighter. `weights`: weight of the best known edge of each component. If
    `least` and `to` are empty, `beyond` is used as `least`. `wanted`: output, one
    64-bit mask of searching nodes per tile.
    """
    for a in range(start, stop):
        if to.size > 0 and is_whole(component, a):
            most = weights[component[a * TILE]]
            wanted[a] = (
                lanes_negative(to.ctypes.data + a * TILE * 4)
                & lanes_within(least.ctypes.data + a * TILE * 8, most)
                & lanes_within(core.ctypes.data + a * TILE * 8, most)
            )
            continue
        wanted[a], left = NONE, ALL
        if to.size > 0:
            left = lanes_negative(to.ctypes.data + a * TILE * 4)
        while left != NONE:
            t = lowest_bit(left)
            left &= left - ONE
            i = a * TILE + t
            known = least[i] if to.size > 0 else np.float64(beyond[i])
            c = component[i]
            if c >= 0 and max(known, core[i]) <= weights[c]:
                wanted[a] |= ONE << np.uint64(t)


@kernel
def raise_bounds(
    component: Array,
    wanted: Array,
    best: Any,
    across: int,
    least: Array,
    to: Array,
    start: int,
    stop: int,
) -> None:
    """Raise the bounds of the nodes that searched, in the tiles `start` ... `stop` - 1:
    none of them has an edge lighter than its component's best.

    `wanted`: masks of these nodes. `across`: first node of the second index; 0: there
    is one index.
    """
    weights, nodes, _, _ = best
    for a in range(start, stop):
        mask = wanted[a]
        if mask == 0:
            continue
        for t in range(TILE):
            if (mask >> np.uint64(t)) & np.uint64(1):
                i = a * TILE + t
                c = component[i]
                least[i] = max(least[i], weights[c])
                end = nodes[c] & 0xFFFFFFFF
                if nodes[c] >> 32 == i and (
                    across == 0 or (i < across) != (end < across)
                ):
                    to[i] = end


@kernel
def join_components(
    component: Array, best: Any, parent: Array, start: int, stop: int
) -> int:
    """Join the components `start` ... `stop` - 1 to others along their best edges.
    Other threads may do so for other components at the same time.

    `parent`: the components joined so far, see `components`. If each node is a
    component, `parent` may be the array `component`. The edges that join components
    move to the first of these places in `best`; return their number.
    """
    weights, nodes, _, _ = best
    components, forest, last = component.ctypes.data, parent.ctypes.data, start
    for c in range(start, stop):
        if nodes[c] != NO_EDGE:
            other = parent_of(components, nodes[c] & 0xFFFFFFFF)
            if unite_different(forest, c, other):
                weights[last], nodes[last] = weights[c], nodes[c]
                last += 1
    return last - start


@kernel
def number_components(parent: Array, before: Array, sizes: Array) -> int:
    """Replace the parent of each component by the number of its new component, and
    count the nodes of each new component. Return how many there are.

    `before`: number of nodes of each component; empty: each has one. `sizes`: output;
    the caller fills it with zeros.
    """
    left = 0
    # a root comes before its descendants, so its new number is known when they need it
    for c in range(parent.size):
        above = parent[c]
        if above == c:
            parent[c] = left
            left += 1
        else:
            parent[c] = parent[above]
        sizes[parent[c]] += before[c] if before.size > 0 else 1
    return left


@kernel
def part_edges(core: Array, weight: Array, nodes: Array) -> int:
    """Move edges to the front if their weight is the larger core distance of their
    ends; count them. `nodes`: see `best_edges`.
    """
    first, last = 0, weight.size - 1
    while first <= last:
        start, end = nodes[first] >> 32, nodes[first] & 0xFFFFFFFF
        if weight[first] == max(core[start], core[end]):
            first += 1
            continue
        nodes[first], nodes[last] = nodes[last], nodes[first]
        weight[first], weight[last] = weight[last], weight[first]
        last -= 1
    return first


@kernel
def number_nodes(component: Array, renamed: Array, start: int, stop: int) -> None:
    """Replace the component of the nodes `start` ... `stop` - 1 by its new number.
    `renamed`: old number -> new number.
    """
    for i in range(start, stop):
        if component[i] >= 0:
            component[i] = renamed[component[i]]


@kernel
def tag_tiles(values: Array, tags: Array, start: int, stop: int) -> None:
    """Fill `tags` for the tiles in the groups `start` ... `stop` - 1: the component
    that has all points of the tile, or -1 if there is none.

    `values`: component of each node, -1 for padding.
    """
    for group in range(start, stop):
        for bit in range(TILE):
            b = group * TILE + bit
            tag = np.int32(-1)
            if b * TILE < values.size:
                tag = values[b * TILE]
                for t in range(1, TILE):
                    own = values[b * TILE + t]
                    if own != tag and own >= 0:
                        tag = np.int32(-1)
                        break
            tags[group, bit] = tag


@kernel
def tag_boxes(points: int, levels: Array, tags: Array) -> None:
    """Fill `tags` for the boxes of tiles, as `tag_tiles` does for tiles. `points`:
    number of nodes.
    """
    for level in range(1, levels.size - 1):
        below, boxes = levels[level - 1], levels[level] - levels[level - 1]
        for number in range((boxes + TILE - 1) // TILE):
            for bit in range(TILE):
                child = number * TILE + bit
                tag = np.int32(-1)
                if child < boxes:
                    tag = tags[below + child, 0]
                    for t in range(1, TILE):
                        # empty boxes at the end of a level do not change the tag
                        if tags[below + child, t] != tag and not _empty(
                            levels, level, child, t, points
                        ):
                            tag = np.int32(-1)
                            break
                tags[levels[level] + number, bit] = tag


@device_function
def _empty(levels: Array, level: int, group: int, bit: int, points: int) -> bool:
    """Whether box `bit` of `group`, in the level below `level`, has no points."""
    boxes = points // TILE if level == 1 else levels[level - 1] - levels[level - 2]
    return bool(group * TILE + bit >= boxes)


@kernel
def min_core_distances(core: Array, levels: Array, least: Array) -> None:
    """For each box, write the smallest core distance of its points to `least`; inf for
    empty boxes.
    """
    least[:] = np.inf
    for i in range(core.size):
        b = i // TILE
        if core[i] < least[b >> 6, b & 63]:  # false for padding, which is NaN
            least[b >> 6, b & 63] = core[i]
    for level in range(1, levels.size - 1):
        for child in range(levels[level] - levels[level - 1]):
            group = levels[level] + (child >> 6)
            for t in range(TILE):
                least[group, child & 63] = min(
                    least[group, child & 63], least[levels[level - 1] + child, t]
                )


SPREAD, BITS = 2654435769, 2**32 - 1
"""Constants of Fibonacci hashing (Knuth, TAOCP 3, 6.4): 2**32 / the golden ratio, and a
mask of 32 bits.

A hash is the upper bits of the product with `SPREAD`, modulo 2**32.
"""


@kernel
def nodes_of(names: Array, first: int, ends: Array, table: Array, found: Array) -> None:
    """Replace the row ids in `ends`, the ends of edges, by nodes; look them up in a
    hash table.

    `names`: id of each node, beginning with the node `first`. `table`: scratch, filled
    with -1; its size is a power of two, and at least twice the number of ids.
    """
    last, shift = table.size - 1, 32
    while (1 << (32 - shift)) < table.size:
        shift -= 1
    for i in range(names.size):
        at = ((np.int64(names[i]) * SPREAD) & BITS) >> shift
        while table[at] >= 0:
            at = (at + 1) & last
        table[at] = i
    for e in range(ends.size):
        at = ((np.int64(ends[e]) * SPREAD) & BITS) >> shift
        while names[table[at]] != ends[e]:
            at = (at + 1) & last
        found[e] = first + table[at]


@kernel
def contract(
    component: Array,
    bound: Array,
    weight: Array,
    low: Array,
    high: Array,
    parent: Array,
    joined: Array,
    sizes: Array,
) -> tuple[int, int]:
    """Join nodes along edges that must be in the common tree of two indexes, and number
    the components.

    The edges of each index's own tree are visited in ascending order. Each edge joins
    two components, and no lighter edge within its index leaves either of them. If one
    of these components has only heavier edges to the other index, the edge must be in
    the common tree.

    `component` (nodes,), int32: -1 for padding; the other entries are overwritten with
    the number of the node's component. `bound` (nodes,): lower bounds of the weights of
    edges to the other index; overwritten. `weight`, `low`, `high` (edges,): the edges
    of one tree and then of the other, each in ascending order, with their nodes.
    `parent`, `joined`: scratch. `sizes`: output, the number of nodes of each component.

    Return the number of components, and the number of remaining edges, which move to
    the front.
    """
    for i in range(component.size):
        parent[i] = joined[i] = i
    kept = 0
    for e in range(weight.size):
        i, j = low[e], high[e]
        a, b = find(parent, i), find(parent, j)
        if max(bound[a], bound[b]) > weight[e]:
            p, q = find(joined, i), find(joined, j)
            joined[max(p, q)] = min(p, q)
        else:
            weight[kept], low[kept], high[kept] = weight[e], i, j
            kept += 1
        parent[max(a, b)] = min(a, b)
        bound[min(a, b)] = min(bound[a], bound[b])
    number = 0
    for i in range(component.size):
        if component[i] < 0:
            continue
        above = find(joined, i)
        if above == i:  # the first node of its component
            component[i], sizes[number] = number, 0
            number += 1
        component[i] = component[above]
        sizes[component[i]] += 1
    return number, kept
