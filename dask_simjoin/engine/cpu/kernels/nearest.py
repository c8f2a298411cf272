"""Nearest neighbors of the points of one tile index among the points of another.

A tile of 64 queries visits the boxes of the other index, nearest first, from a heap. It
stops when the nearest remaining box is farther away than the worst neighbor of every
query.

A d2 is a squared distance; for norms other than 2 it is the total. Pruning is exact: a
box or point is skipped only if a lower bound of its d2 exceeds the worst neighbor's d2.
So ties with the worst neighbor are found, and the smaller id wins. If all neighbors
have a d2 of 0, boxes without a smaller id are skipped, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_source,
    kernel,
)
from dask_simjoin.engine.cpu.kernels.nearest_lists import (
    begin_lists,
    empty_lists,
    end_lists,
)
from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    MAX_GUESS,
    SLACK,
    Range,
    begin,
    box_gaps,
    limit_filter,
    limit_gaps,
    scan_exact,
    scan_filtered,
)
from dask_simjoin.engine.cpu.kernels.product_simd import QUERIES
from dask_simjoin.engine.cpu.kernels.simd import Terms, Tree
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    ALL,
    NONE,
    ONE,
    lowest_bit,
    prefetch,
)
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array, DType

LEVEL = 48
"""Nodes of the tree are stored as integers: the lower `LEVEL` bits are the number, the
others the level.
"""


@device_function
def _gaps(
    lower: int,
    upper: int,
    dims: int,
    low: int,
    high: int,
    limits: int,
    out: int,
    kind: float,
    norm: Kind,
) -> Any:
    """Call `box_gaps`. Its code is long, so callers share one copy instead of inlining
    the code.
    """
    return box_gaps(lower, upper, dims, low, high, limits, out, kind, norm)


@device_function
def push(
    keys: Array, ties: Array, nodes: Array, size: int, key: float, tie: int, node: int
) -> None:
    """Add a node to a heap of `size` nodes. The node with the smallest (key, tie) is at
    the front.
    """
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if not (key < keys[up] or (key == keys[up] and tie < ties[up])):
            break
        keys[at], ties[at], nodes[at] = keys[up], ties[up], nodes[up]
        at = up
    keys[at], ties[at], nodes[at] = key, tie, node


@device_function
def pop(keys: Array, ties: Array, nodes: Array, size: int) -> None:
    last = size - 1
    key, tie, node = keys[last], ties[last], nodes[last]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= last:
            break
        if child + 1 < last:
            first, second = keys[child], keys[child + 1]
            if second < first or (second == first and ties[child + 1] < ties[child]):
                child += 1
        if not (keys[child] < key or (keys[child] == key and ties[child] < tie)):
            break
        keys[at], ties[at], nodes[at] = keys[child], ties[child], nodes[child]
        at = child
    keys[at], ties[at], nodes[at] = key, tie, node


class Queries(NamedTuple):
    """Arrays of the index of the queries: the box of each tile; row ids and positions
    in index order.
    """

    low: Array
    high: Array
    names: Array
    order: Array


class Data(NamedTuple):
    """Arrays of the index of the data. `least`: the smallest row id in each box."""

    low: Array
    high: Array
    tree: Tree
    least: Array
    names: Array


class Best(NamedTuple):
    """The neighbors of each query so far: d2 and row ids, (queries, k) each."""

    d2: Array
    names: Array


class Heap(NamedTuple):
    """A heap of boxes: their d2, their smallest row ids, and their nodes."""

    keys: Array
    ties: Array
    nodes: Array


def empty_heap(boxes: int) -> Heap:
    return Heap(np.empty(boxes), np.empty(boxes, np.int64), np.empty(boxes, np.int64))


@inline_source
def begin_heap(a: int, own_tiles: bool, levels: Array, heap: Heap) -> int:
    """Write the first nodes for tile `a` to a heap; return their number. `levels`:
    places of the levels of boxes.
    """
    keys, ties, nodes = heap
    size = 0
    if own_tiles:
        # the queries' own tile comes first: its points are near, so most other boxes
        # can be skipped then
        keys[0], ties[0], nodes[0] = -1.0, -1, a
        size = 1
    keys[size], ties[size], nodes[size] = 0.0, 0, (levels.size - 1) << LEVEL
    return size + 1


class Gaps(NamedTuple):
    """The largest gap that matters to each query of a tile, and to any of them; and
    scratch for gaps.
    """

    reach: Array
    all_reach: Array
    found: Array


def empty_gaps(kind: DType) -> Gaps:
    return Gaps(*(np.empty(TILE, kind) for _ in range(3)))


@inline_source
def near_boxes(q: Any, d: Any, a: int, group: int, norm: Kind, gaps: Gaps) -> np.uint64:
    """Write the gaps between tile `a` and the boxes of a group. Return a mask of the
    boxes that are near any query.

    `q`, `d`: arrays of the two indexes, with `low`, `high`, and `d.tree`.
    """
    lower, upper, _ = d.tree
    step, q_step = group * lower.strides[0], a * q.low.strides[0]
    return _gaps(
        lower.ctypes.data + step,
        upper.ctypes.data + step,
        q.low.shape[1],
        q.low.ctypes.data + q_step,
        q.high.ctypes.data + q_step,
        gaps.all_reach.ctypes.data,
        gaps.found.ctypes.data,
        lower.dtype.type(0),
        norm,
    )


@inline_source
def near_queries(z: Array, d: Any, a: int, b: int, norm: Kind, gaps: Gaps) -> np.uint64:
    """Return a mask of the queries of tile `a` that the box of tile `b` is near to.

    `z`: tiles of the queries; `d`: as in `near_boxes`.
    """
    queries, step = z.ctypes.data + a * z.strides[0], b * d.low.strides[0]
    return _gaps(
        queries,
        queries,
        d.low.shape[1],
        d.low.ctypes.data + step,
        d.high.ctypes.data + step,
        gaps.reach.ctypes.data,
        gaps.found.ctypes.data,
        d.low.dtype.type(0),
        norm,
    )


class Scratch(NamedTuple):
    """The scratch arrays of `search`. `own`, `worst`: for each query of a tile, the row
    id that is not its neighbor, and the d2 of its worst neighbor. `scan`: see
    `nearest_scan`. `k`: number of neighbors.
    """

    heap: Heap
    gaps: Gaps
    own: Array
    worst: Array
    lists: Any
    scan: Any
    k: int


def scratch(tiles: int, groups: int, dims: int, kind: DType, k: int) -> Scratch:
    """Return the scratch arrays of `search` for data with these numbers of tiles and of
    groups of boxes.

    `kind`: dtype of the boxes; `k`: number of neighbors. Kernels do not allocate the
    arrays themselves, because Numba compiles allocations slowly.
    """
    new = np.empty(TILE), np.empty(TILE, np.int64)
    picked, masks = np.empty(TILE + QUERIES, np.int64), np.zeros(TILE + 1, np.uint64)
    lanes = np.zeros((TILE + 1, dims), np.float32)
    limit = np.full(TILE + 1, np.inf, np.float32)
    return Scratch(
        empty_heap(tiles + groups + 1),
        empty_gaps(kind),
        np.empty(TILE, np.int64),
        np.empty(TILE),
        empty_lists(k),
        (np.empty(TILE), new, picked, masks, lanes, limit),
        k,
    )


@inline_source
def _begin_tile(
    q: Queries,
    d: Data,
    a: int,
    count: int,
    is_self_join: bool,
    own_tiles: bool,
    best: Best,
    work: Scratch,
) -> int:
    """Prepare the `count` queries of tile `a`. Return the number of nodes of the heap."""
    for t in range(TILE):
        work.gaps.reach[t] = -1.0
    begin_lists(work.lists, q.order, a * TILE, count, best.d2, best.names)
    for t in range(count):
        work.worst[t] = work.lists[0][t, work.k - 1]
        work.own[t] = q.names[a * TILE + t] if is_self_join else -1
    return begin_heap(a, own_tiles, d.tree[2], work.heap)


@inline_source
def _widest(gaps: Gaps, count: int) -> int:
    """Return the lane with the largest reach, and write this reach to `all_reach`."""
    lane = 0
    for t in range(1, count):
        if gaps.reach[t] > gaps.reach[lane]:
            lane = t
    for t in range(TILE):
        gaps.all_reach[t] = gaps.reach[lane]
    return lane


@inline_source
def _push_group(
    q: Queries,
    d: Data,
    a: int,
    level: int,
    number: int,
    own_tiles: bool,
    last: np.uint64,
    norm: Kind,
    work: Scratch,
    size: int,
) -> int:
    """Add the boxes of group `number` that may have a neighbor to the heap. Return its
    number of nodes.
    """
    keys, ties, nodes = work.heap
    levels = d.tree[2]
    group = levels[level] + number
    mask = near_boxes(q, d, a, group, norm, work.gaps)
    boxes = d.low.shape[0] if level == 0 else levels[level] - levels[level - 1]
    while mask != NONE:
        bit = lowest_bit(mask)
        mask &= mask - ONE
        child = number * TILE + bit
        if child >= boxes or (own_tiles and level == 0 and child == a):
            continue
        least, key = d.least[group, bit], np.float64(work.gaps.found[bit])
        if np.uint64(least) <= last:
            push(keys, ties, nodes, size, key, least, (level << LEVEL) | child)
            size += 1
    return size


@inline_source
def _searching(
    z: Array,
    d: Data,
    a: int,
    b: int,
    valid: np.uint64,
    zeros: np.uint64,
    norm: Kind,
    work: Scratch,
) -> np.uint64:
    """Return a mask of the `valid` queries of tile `a` that may have a neighbor in tile
    `b`. `zeros`: the queries whose neighbors are all at distance 0.
    """
    near = valid & near_queries(z, d, a, b, norm, work.gaps)
    names, least = work.lists[1], d.least[b >> 6, b & 63]
    idle, k = near & zeros, work.k
    while idle != NONE:
        t = lowest_bit(idle)
        idle &= idle - ONE
        if least > names[t, k - 1]:
            near &= ~(ONE << np.uint64(t))
    return near


@inline_source
def _prefetch_rows(order: Array, first: int, best: Best) -> None:
    """Prefetch the neighbors so far of the next tile of queries, whose rows are
    anywhere in memory.
    """
    for t in range(first, min(first + TILE, order.size)):
        d2 = best.d2.ctypes.data + order[t] * best.d2.strides[0]
        names = best.names.ctypes.data + order[t] * best.names.strides[0]
        prefetch(d2)
        prefetch(names)
        prefetch(d2 + best.d2.strides[0] - 8)
        prefetch(names + best.names.strides[0] - 8)


@kernel
def search(
    q_terms: Terms,
    d_terms: Terms,
    q: Queries,
    d: Data,
    terms: Any,
    is_self_join: bool,
    own_tiles: bool,
    limits: Range,
    norm: Kind,
    best: Best,
    work: Scratch,
) -> None:
    """Update the neighbors of the queries `q`, in `best`, with the points of `d`.

    `q_terms`, `d_terms`: tiles of the two indexes, and with the filter also its terms
    and the points. `is_self_join`: queries and data are rows of one frame, so a row is
    not its own neighbor. `own_tiles`: both indexes are the same. `norm`: see
    `totals.kind_of`; with the filter it is the norm of squares. `work`: see `scratch`.

    The tests ``len(q_terms) == 1`` ask whether there is no filter. They take no time,
    because the length is part of a tuple's type: Numba compiles only the branch that is
    used. It does so only in the kernel itself, whose argument the tuple is.
    """
    keys, ties, nodes = work.heap
    worst, reach, k, guess = work.worst, work.gaps.reach, work.k, np.inf
    state, names = (work.own, worst, work.lists, d.names, k), work.lists[1]
    z, scan = d_terms[0], work.scan
    lanes, limit = scan[4], scan[5]
    # the processor prefetches the rest by itself
    ahead_lines = min(z.strides[0], 4096) // 64
    for a in range(q.low.shape[0]):
        count = min(TILE, len(q.names) - a * TILE)
        valid = ALL if count == TILE else (ONE << np.uint64(count)) - ONE
        if len(q_terms) > 1:
            begin(q_terms, a, lanes)
        size = _begin_tile(q, d, a, count, is_self_join, own_tiles, best, work)
        _prefetch_rows(q.order, (a + 1) * TILE, best)
        changed, next_guess = valid, np.inf
        # queries whose neighbors are all at distance 0; lanes that may have the largest
        # reach; the largest row id that can replace a neighbor
        zeros, widest, last = NONE, ALL, ALL
        furthest = d.low.dtype.type(0)
        while size > 0:
            if changed != NONE:
                if len(q_terms) == 1:
                    zeros |= limit_gaps(changed, worst, limits, reach)
                else:
                    zeros |= limit_filter(
                        q_terms, terms, a, changed, worst, limits, guess, reach, limit
                    )
                if changed & widest != NONE:
                    lane = _widest(work.gaps, count)
                    widest, furthest = ONE << np.uint64(lane), reach[lane]
                if zeros == valid:
                    last = NONE
                    for t in range(count):
                        last = max(last, np.uint64(names[t, k - 1]))
                changed = NONE
            if keys[0] > furthest or (keys[0] == 0 and np.uint64(ties[0]) > last):
                # if all neighbors are at distance 0, only a point with a smaller id can
                # replace one. Boxes at the same distance are in the order of their
                # smallest ids, so stop
                break
            level, number = (nodes[0] >> LEVEL) - 1, nodes[0] & ((1 << LEVEL) - 1)
            pop(keys, ties, nodes, size)
            size -= 1
            if level >= 0:
                size = _push_group(
                    q, d, a, level, number, own_tiles, last, norm, work, size
                )
                continue
            if size > 0 and nodes[0] >> LEVEL == 0:
                # prefetch the next tile while this one is compared
                ahead = z.ctypes.data + nodes[0] * z.strides[0]
                for line in range(ahead_lines):
                    prefetch(ahead + line * 64)
            wanted = _searching(q_terms[0], d, a, number, valid, zeros, norm, work)
            if wanted != NONE:
                if len(q_terms) == 1:
                    changed = scan_exact(
                        q_terms,
                        d_terms,
                        a,
                        number,
                        wanted,
                        state,
                        work.gaps.found,
                        limits,
                        guess,
                        norm,
                        scan,
                    )
                else:
                    changed = scan_filtered(
                        q_terms, d_terms, a, number, wanted, state, limits, guess, scan
                    )
                if next_guess == np.inf and k < TILE and worst[count - 1] < MAX_GUESS:
                    next_guess = worst[count - 1] * SLACK
        guess = next_guess
        end_lists(work.lists, q.order, a * TILE, count, best.d2, best.names)


@kernel
def drop_one_way(numbers: Array, back: Array) -> None:
    """Keep mutual neighbors only: replace a neighbor by -1 unless the row is also a
    neighbor of it.

    `numbers` (rows, k), int64: neighbors of each row, -1 for none. `back`: for each of
    these neighbors, its own neighbors, ascending.
    """
    for row in range(numbers.shape[0]):
        for n in range(numbers.shape[1]):
            other = numbers[row, n]
            if other < 0:
                continue
            at, size = 0, back.shape[1]
            while size > 1:
                half = size >> 1
                at = at + half if back[other, at + half] <= row else at
                size -= half
            if back[other, at] != row:
                numbers[row, n] = -1
