"""Tiles: joins two tile indexes of any number of dimensions.

Points come in tiles of 64.  The tiles' boxes, and the boxes of 64 tiles, and so on, are
themselves stored as tiles, so one SIMD test speaks of 64 points, tiles or groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.annotations import Terms, Tree
from dask_simjoin.engine.cpu.kernels.compiled import callee, kernel
from dask_simjoin.engine.cpu.kernels.components import find
from dask_simjoin.engine.cpu.kernels.marks import (
    ASK,
    COUNT,
    ENDLESS,
    LINK,
    LOWEST,
    MIXED,
    all_pairs,
    mark_nodes,
    mark_tile,
    mark_tiles,
    own_pairs,
    settled,
)
from dask_simjoin.engine.cpu.kernels.scan import ALL, NONE, ONE, STATES, scan, within
from dask_simjoin.engine.cpu.kernels.tile_simd import boxes_near, boxes_within, count_bits, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.types import Array

STACK = 64 * 8
PROBE = 256
"""Candidate tiles after which it is tried anew whether testing points against boxes pays."""

PROBE_TESTS = 8
PREFETCHED = 16384
"""Bytes of a tile up to which two of them fit a core's first cache."""

GROUPS = 16
"""Groups of four queries in a tile, over which the next tile's prefetch is spread."""

MANY = 16
"""Neighbours of a point in a tile from which on all 64 counts are added to at once."""

WORTHWHILE = 58
"""A test costs about a twelfth of what it can save: it pays if fewer points of 64 are kept."""


@callee
def _within_itself(low: Any, high: Any, sure: Any, norm: Kind) -> bool:
    """Whether all points of a box are within a limit of each other: see `boxes_within`."""
    total = 0.0
    for k in range(low.size):
        total = add_term(total, np.float64(high[k]) - np.float64(low[k]), norm)
    return bool(total <= sure)


@callee
def candidates(tree: Tree, low: Any, high: Any, reach: Any, sure: Any, tiles: int, least: int, norm: Kind,
               notes: Any, a: int, q_points: int, d_points: int, found: Array, stack: Array,
               depth: Array) -> int:  # fmt: skip
    """Write the numbers of the tiles >= `least` within `reach` of tile `a` to `found`; how many.

    `low`, `high`: the tile's box.  With `notes` those are left out of which nothing is to be found
    out, and those of which all pairs are within `sure` are noted at once.  `stack`, `depth`: see `room`.
    """
    lower, upper, levels = tree
    d = lower.shape[1]
    step = lower.strides[0]
    top = levels.size - 2
    n = 0
    size = 1
    stack[0], depth[0] = 0, top
    if notes is not None:
        task, q_marks, d_marks, parent = notes.task, notes.q_marks, notes.d_marks, notes.parent
    while size > 0:
        size -= 1
        group, level = stack[size], depth[size]
        at = (levels[level] + group) * step
        mask = boxes_near(lower.ctypes.data + at, upper.ctypes.data + at, d, low.ctypes.data,
                          high.ctypes.data, reach, norm)  # fmt: skip
        first = least >> (6 * level)
        if first > group * TILE:
            skip = first - group * TILE
            mask = mask & (ALL << np.uint64(skip)) if skip < TILE else NONE
        whole = NONE
        if notes is not None and mask != NONE and task in (COUNT, LINK):
            whole = mask & boxes_within(lower.ctypes.data + at, upper.ctypes.data + at, d, low.ctypes.data,
                                        high.ctypes.data, sure, norm)  # fmt: skip
        limit = tiles if level == 0 else levels[level] - levels[level - 1]
        marks = 0 if level == 0 else tiles + levels[level - 1]
        while mask != NONE:
            bit = lowest_bit(mask)
            child = group * TILE + bit
            mask &= mask - ONE
            if child >= limit:
                break
            if notes is not None:
                x, y = q_marks[a], d_marks[marks + child]
                told = settled(task, x, y)
                if told == 1 or (told == ASK and find(parent, x) == find(parent, y)):
                    continue
                begin = child << (6 * level)
                if (whole >> np.uint64(bit)) & ONE and begin >= least:
                    end = (child + 1) << (6 * level)
                    end = end if end < tiles else tiles
                    all_pairs(notes, a, q_points, marks + child, begin, end, d_points)
                    continue
            if level == 0:
                found[n] = child
                n += 1
            else:
                stack[size], depth[size] = child, level - 1
                size += 1
    return n


def room(tiles: int) -> tuple[np.ndarray, ...]:
    """Where a join with so many tiles works: arrays made in a kernel cost a tenth of its compiling."""
    return (
        np.empty(tiles, np.int64), np.zeros(STATES, np.uint64), np.empty(STACK, np.int64),
        np.empty(STACK, np.int64),
    )  # fmt: skip


@kernel
def join(q: Terms, q_z: Array, q_low: Array, q_high: Array, q_names: Array, q_points: int, d: Terms,
         swept: tuple[int, int], d_low: Array, d_high: Array, d_tree: Tree, d_names: Array, d_points: int,
         reach: Any, sure_span: Any, threshold: float, norm: Kind, same: bool,
         left: Array, right: Array, n: int, cap: int, notes: Any, state: Array,
         work: tuple[Array, ...]) -> int:  # fmt: skip
    """Append pairs of names to `left` and `right`; the new number of pairs.

    Stops where the pairs of two tiles might not fit into `cap`: ``state[0]`` is the tile of
    queries and ``state[1]`` the number of its candidate tiles that are done; ``state[2]`` is
    the room it needs (0: the join is complete).  ``state[3]`` and ``state[4]`` count the
    pairs that only float64 could decide and those of them that it refused.

    With `notes` nothing is written but them, which are of one side twice if `same`; with None there is
    nothing of them in what is compiled.

    `q` and `d` are what is known of the two sides: see `sides`; `q_z`: address
    of the queries' vectors and bytes of a tile, and `swept` of the vectors that are read first; `norm`: see
    `totals.kind_of`; `reach`: largest gap of boxes that hold a pair, and `sure_span`: largest span of those
    that hold nothing else, as totals; `work`: see `room`.
    """
    dims = q_low.shape[1]
    tiles = d_low.shape[0]
    found, masks, stack, depth = work
    at_masks = masks.ctypes.data
    state[2] = 0
    z_base, z_step = swept
    share = z_step // (64 * GROUPS) if z_step <= PREFETCHED else 0
    levels, own_round = d_tree[2], 0
    if notes is not None:
        task, enough = notes.task, notes.enough
        q_values, d_values, q_lowest, d_lowest = notes.q_values, notes.d_values, notes.q_low, notes.d_low
        q_marks, d_marks, parent = notes.q_marks, notes.d_marks, notes.parent
        marking = task == LINK or (task == COUNT and enough != ENDLESS)
        unsettled = MIXED if task == LINK else 0
        # tiles meet themselves first, where that tells much of them
        own_round = q_low.shape[0] if same else 0
        again = own_round  # when marks of nodes are made anew
        mark_tiles(notes, notes.q_values, notes.q_marks, q_points)
        if not same:
            mark_tiles(notes, notes.d_values, notes.d_marks, d_points)
    for turn in range(state[0], own_round + q_low.shape[0]):
        a = turn if turn < own_round else turn - own_round
        if notes is not None and turn == again:
            mark_nodes(notes, notes.d_marks, tiles, levels)
            again = own_round + (2 * a if a > 0 else 1) if marking else -1
        if notes is not None and turn < own_round:
            count, found[0] = 1, a
            if settled(task, q_marks[a], q_marks[a]) == 1:
                count = 0
            elif task != LOWEST and _within_itself(q_low[a], q_high[a], sure_span, norm):
                own_pairs(notes, a, q_points)
                count = 0
        else:
            least = 0 if not same else (a if notes is None else a + 1)
            count = candidates(d_tree, q_low[a], q_high[a], reach, sure_span, tiles, least, norm, notes, a,
                               q_points, d_points, found, stack, depth)  # fmt: skip
        valid = ALL if (a + 1) * TILE <= q_points else (ONE << np.uint64(q_points - a * TILE)) - ONE
        at = q_z[0] + a * q_z[1]
        tested, kept = 0, 0
        for c in range(state[1], count):
            if notes is None and n + TILE * TILE > cap:
                state[0], state[1], state[2] = turn, c, TILE * TILE
                return n
            b = found[c]
            if notes is not None:
                x, y = q_marks[a], d_marks[b]
                told = settled(task, x, y)
                if told == 1 or (told == ASK and find(parent, x) == find(parent, y)):
                    continue
                alike = task == LINK and x >= 0 and y >= 0  # two sets: one pair is enough
            near = valid
            if c % PROBE == 0:
                tested, kept = 0, 0
            if tested < PROBE_TESTS or kept < WORTHWHILE * tested:
                low, high = d_low[b].ctypes.data, d_high[b].ctypes.data
                near &= boxes_near(at, at, dims, low, high, reach, norm)
                tested += 1
                kept += count_bits(near)
            ahead = z_base + found[c + 1 if c + 1 < count else c] * z_step
            hit = scan(q, d, a, b, near, ahead, share, at_masks, norm)
            hits = 0
            while hit != NONE:
                t = lowest_bit(hit)
                hit &= hit - ONE
                mask, sure = masks[t], masks[TILE + t]
                i = a * TILE + t
                if same and a == b:
                    # later points only: each pair once, and no point with itself
                    upto = ONE << np.uint64(t)
                    mask &= ~(upto | (upto - ONE))
                if notes is not None and task == COUNT and mask & ~sure == NONE and count_bits(mask) >= MANY:
                    hits += 1
                    q_values[i] += count_bits(mask)
                    for k in range(TILE if (b + 1) * TILE <= d_points else d_points - b * TILE):
                        d_values[b * TILE + k] += np.int64((mask >> np.uint64(k)) & ONE)
                    continue
                name = q_names[i]
                while mask != NONE:
                    bit = lowest_bit(mask)
                    mask &= mask - ONE
                    j = b * TILE + bit
                    if (sure >> np.uint64(bit)) & ONE == NONE:
                        state[3] += 1
                        if not within(q, d, i, j, threshold):
                            state[4] += 1
                            continue
                    if notes is not None:
                        # no function is called here: references to arrays would be counted with every pair
                        x, y = q_values[i], d_values[j]
                        if task == COUNT:
                            q_values[i] += 1
                            d_values[j] += 1
                        elif task == LOWEST:
                            if x < 0 <= y:
                                q_lowest[i] = y if y < q_lowest[i] else q_lowest[i]
                            elif y < 0 <= x:
                                d_lowest[j] = x if x < d_lowest[j] else d_lowest[j]
                        elif x >= 0 and y >= 0:
                            while parent[x] != x:
                                parent[x] = parent[parent[x]]
                                x = parent[x]
                            while parent[y] != y:
                                parent[y] = parent[parent[y]]
                                y = parent[y]
                            parent[y if x < y else x] = x if x < y else y
                            if alike:
                                mask, hit = NONE, NONE
                        hits += 1
                        continue
                    other = d_names[j]
                    if same and other < name:
                        left[n], right[n] = other, name
                    else:
                        left[n], right[n] = name, other
                    n += 1
            if notes is not None and marking and hits >= MANY:
                if q_marks[a] == unsettled:
                    q_marks[a] = mark_tile(task, enough, parent, q_values, a, q_points)
                if d_marks[b] == unsettled:
                    d_marks[b] = mark_tile(task, enough, parent, d_values, b, d_points)
        state[1] = 0
    state[0] = own_round + q_low.shape[0]
    return n
