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

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.nearest_lists import (
    begin_lists,
    empty_lists,
    end_lists,
)
from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    MAX_GUESS,
    SLACK,
    begin,
    box_gaps,
    scan_exact,
    scan_filtered,
    set_limits,
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
def _push(
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
def _pop(keys: Array, ties: Array, nodes: Array, size: int) -> None:
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


def scratch(tiles: int, groups: int, dims: int, kind: DType, k: int) -> tuple[Any, ...]:
    """Return the scratch arrays of `search` for data with these numbers of tiles and of
    groups of boxes.

    `kind`: dtype of the boxes; `k`: number of neighbors. Kernels do not allocate the
    arrays themselves, because Numba compiles allocations slowly.
    """
    heap = tiles + groups + 1
    keys, ties, nodes = (
        np.empty(heap),
        np.empty(heap, np.int64),
        np.empty(heap, np.int64),
    )
    own, worst = np.empty(TILE, np.int64), np.empty(TILE)
    reach, all_reach, gaps = (np.empty(TILE, kind) for _ in range(3))
    limit, lanes = (
        np.full(TILE + 1, np.inf, np.float32),
        np.zeros((TILE + 1, dims), np.float32),
    )
    distances, new = np.empty(TILE), (np.empty(TILE), np.empty(TILE, np.int64))
    picked, masks = np.empty(TILE + QUERIES, np.int64), np.zeros(TILE + 1, np.uint64)
    return (
        keys,
        ties,
        nodes,
        own,
        worst,
        reach,
        all_reach,
        gaps,
        limit,
        lanes,
        distances,
        new,
        picked,
        masks,
        empty_lists(k),
    )


@kernel
def search(
    q: Terms,
    q_low: Array,
    q_high: Array,
    q_names: Array,
    q_order: Array,
    d: Terms,
    d_low: Array,
    d_high: Array,
    d_tree: Tree,
    d_least: Array,
    d_names: Array,
    terms: Any,
    is_self_join: bool,
    own_tiles: bool,
    least2: float,
    bound2: float,
    norm: Kind,
    best_d2: Array,
    best_name: Array,
    work: Any,
) -> None:
    """Update the neighbors of the queries `q`, in `best_d2` and `best_name`, with the
    points of `d`.

    `q`, `d`: arrays of the two indexes: the tiles, and with the filter also its terms
    and the points. `is_self_join`: queries and data are rows of one frame, so a row is
    not its own neighbor. `own_tiles`: both indexes are the same. `least2`, `bound2`:
    smallest and largest d2 of a neighbor. `norm`: see `totals.kind_of`; with the filter
    it is the norm of squares. `work`: see `scratch`.

    The tests ``len(q) == 1`` ask whether there is no filter. They take no time, because
    the length is part of a tuple's type: Numba compiles only the branch that is used.
    """
    points, dims = len(q_names), q_low.shape[1]
    k = best_d2.shape[1]
    lower, upper, levels = d_tree
    tiles = d_low.shape[0]
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
        own,
        worst,
        reach,
        all_reach,
        gaps,
        limit,
        lanes,
        distances,
        new,
        picked,
        masks,
        lists,
    ) = work
    lowers, uppers = lower.ctypes.data, upper.ctypes.data
    reaches, all_reaches, all_gaps = (
        reach.ctypes.data,
        all_reach.ctypes.data,
        gaps.ctypes.data,
    )
    list_d2, list_names = lists
    state = own, worst, lists, d_names, k
    scan_work = distances, new, picked, masks, lanes
    kind = lower.dtype.type
    zero = kind(0)
    # the processor prefetches the rest by itself
    ahead_lines = min(d[0].strides[0], 4096) // 64
    guess = np.inf
    for a in range(q_low.shape[0]):
        count = min(TILE, points - a * TILE)
        valid = ALL if count == TILE else (ONE << np.uint64(count)) - ONE
        if len(q) > 1:
            begin(q, a, lanes)
        for t in range(TILE):
            reach[t] = kind(-1)
        begin_lists(lists, q_order, a * TILE, count, best_d2, best_name)
        for t in range(count):
            worst[t] = list_d2[t, k - 1]
            own[t] = q_names[a * TILE + t] if is_self_join else -1
        # with a literal 1, Numba would compile a second `_push` for that type
        size = np.int64(1)
        keys[0], ties[0], nodes[0] = 0.0, 0, (top + 1) << LEVEL
        if own_tiles:
            # the queries' own tile comes first: its points are near, so most other
            # boxes can be skipped then
            _push(keys, ties, nodes, size, -1.0, np.int64(-1), a)
            size += 1
        next_guess = np.inf
        changed = valid
        zeros, furthest, last = NONE, zero, np.uint64(0)
        # mask of lanes that may have the largest limit; `furthest` changes only with
        # them
        widest = ALL
        while size > 0:
            if changed != NONE:
                stale = changed & widest != NONE
                while changed != NONE:
                    t = lowest_bit(changed)
                    changed &= changed - ONE
                    d2 = min(worst[t], bound2)
                    first = min(d2, guess) if worst[t] == np.inf else d2
                    if len(q) == 1:
                        reach[t] = d2
                    else:
                        set_limits(q, terms, a * TILE + t, t, d2, first, reach, limit)
                    if worst[t] == 0.0:
                        zeros |= ONE << np.uint64(t)
                if stale:
                    lane = 0
                    for t in range(1, count):
                        if reach[t] > reach[lane]:
                            lane = t
                    widest = ONE << np.uint64(lane)
                    furthest = reach[lane]
                    for t in range(TILE):
                        all_reach[t] = furthest
                if zeros == valid:
                    last = NONE
                    for t in range(count):
                        last = max(last, np.uint64(list_names[t, k - 1]))
            key, tie, node = keys[0], ties[0], nodes[0]
            if key > furthest or (
                zeros == valid and key == 0 and np.uint64(tie) > last
            ):
                # if all neighbors are at distance 0, only a point with a smaller id can
                # replace one. Boxes at the same distance are in the order of their
                # smallest ids, so stop
                break
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
                    least = d_least[group, bit]
                    if zeros == valid and np.uint64(least) > last:
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
            if size > 0 and nodes[0] >> LEVEL == 0:
                # prefetch the next tile while this one is compared
                ahead = d[0].ctypes.data + nodes[0] * d[0].strides[0]
                for line in range(ahead_lines):
                    prefetch(ahead + line * 64)
            at = q[0].ctypes.data + a * q[0].strides[0]
            wanted = valid & _gaps(
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
            idle = wanted & zeros
            while idle != NONE:
                t = lowest_bit(idle)
                idle &= idle - ONE
                if d_least[b >> 6, b & 63] > list_names[t, k - 1]:
                    wanted &= ~(ONE << np.uint64(t))
            if wanted != NONE:
                if len(q) == 1:
                    changed = scan_exact(
                        q,
                        d,
                        a,
                        b,
                        wanted,
                        state,
                        gaps,
                        least2,
                        bound2,
                        guess,
                        norm,
                        scan_work,
                    )
                else:
                    changed = scan_filtered(
                        q,
                        d,
                        a,
                        b,
                        wanted,
                        state,
                        limit,
                        least2,
                        bound2,
                        guess,
                        scan_work,
                    )
                if next_guess == np.inf and k < TILE and worst[count - 1] < MAX_GUESS:
                    next_guess = worst[count - 1] * SLACK
        guess = next_guess
        end_lists(lists, q_order, a * TILE, count, best_d2, best_name)


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
