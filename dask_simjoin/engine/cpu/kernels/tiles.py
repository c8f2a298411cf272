"""Tiles: joins two tile indexes of any number of dimensions.

Points come in tiles of 64.  The tiles' boxes, and the boxes of 64 tiles, and so on, are
themselves stored as tiles, so one SIMD test speaks of 64 points, tiles or groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.annotations import Terms, Tree
from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.engine.cpu.kernels.scan import ALL, NONE, ONE, STATES, scan, within
from dask_simjoin.engine.cpu.kernels.tile_simd import boxes_near, count_bits, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind
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

WORTHWHILE = 58
"""A test costs about a twelfth of what it can save: it pays if fewer points of 64 are kept."""


@kernel
def candidates(lower: Array, upper: Array, levels: Array, low: Any, high: Any, reach: Any, tiles: int,
               least: int, norm: Kind, found: Array) -> int:  # fmt: skip
    """Write the numbers of the tiles >= `least` within `reach` of a box to `found`; how many.

    `levels`: for each level of boxes, where its groups begin in `lower` and `upper`.
    """
    stack = np.empty(STACK, np.int64)
    depth = np.empty(STACK, np.int64)
    d = lower.shape[1]
    step = lower.strides[0]
    top = levels.size - 2
    n = 0
    size = 1
    stack[0], depth[0] = 0, top
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
        if level == 0:
            while mask != NONE:
                tile = group * TILE + lowest_bit(mask)
                mask &= mask - ONE
                if tile < tiles:
                    found[n] = tile
                    n += 1
        else:
            limit = levels[level] - levels[level - 1]
            while mask != NONE:
                child = group * TILE + lowest_bit(mask)
                mask &= mask - ONE
                if child < limit:
                    stack[size], depth[size] = child, level - 1
                    size += 1
    return n


@kernel
def join(q: Terms, q_z: Array, q_low: Array, q_high: Array, q_names: Array, points: int, d: Terms,
         swept: tuple[int, int], d_low: Array, d_high: Array, d_tree: Tree, d_names: Array,
         reach: Any, threshold: float, norm: Kind, same: bool,
         left: Array, right: Array, n: int, cap: int, counting: bool, q_counts: Array,
         d_counts: Array, state: Array) -> int:  # fmt: skip
    """Append pairs of names to `left` and `right`; the new number of pairs.

    Stops where the pairs of two tiles might not fit into `cap`: ``state[0]`` is the tile of
    queries and ``state[1]`` the number of its candidate tiles that are done; ``state[2]`` is
    the room it needs (0: the join is complete).  ``state[3]`` and ``state[4]`` count the
    pairs that only float64 could decide and those of them that it refused.

    With `counting` each pair adds 1 to its two points' numbers in `q_counts` and `d_counts` (one
    array if `same`) instead.

    `q` and `d` are what is known of the two sides: see `sides`; `points`: how many queries.  `q_z`: address
    of the queries' vectors and bytes of a tile, and `swept` of the vectors that are read first; `norm`: see
    `totals.kind_of`.
    """
    dims = q_low.shape[1]
    lower, upper, levels = d_tree
    tiles = d_low.shape[0]
    found = np.empty(tiles, np.int64)
    masks = np.zeros(STATES, np.uint64)
    at_masks = masks.ctypes.data
    state[2] = 0
    z_base, z_step = swept
    share = z_step // (64 * GROUPS) if z_step <= PREFETCHED else 0
    for a in range(state[0], q_low.shape[0]):
        count = candidates(lower, upper, levels, q_low[a], q_high[a], reach, tiles,
                           a if same else 0, norm, found)  # fmt: skip
        valid = ALL if (a + 1) * TILE <= points else (ONE << np.uint64(points - a * TILE)) - ONE
        at = q_z[0] + a * q_z[1]
        tested, kept = 0, 0
        for c in range(state[1], count):
            if not counting and n + TILE * TILE > cap:
                state[0], state[1], state[2] = a, c, TILE * TILE
                return n
            b = found[c]
            near = valid
            if c % PROBE == 0:
                tested, kept = 0, 0
            if tested < PROBE_TESTS or kept < WORTHWHILE * tested:
                low, high = d_low[b].ctypes.data, d_high[b].ctypes.data
                near &= boxes_near(at, at, dims, low, high, reach, norm)
                tested += 1
                kept += count_bits(near)
            ahead = z_base + found[min(c + 1, count - 1)] * z_step
            hit = scan(q, d, a, b, near, ahead, share, at_masks, norm)
            while hit != NONE:
                t = lowest_bit(hit)
                hit &= hit - ONE
                mask, sure = masks[t], masks[TILE + t]
                i = a * TILE + t
                if same and a == b:
                    # later points only: each pair once, and no point with itself
                    upto = ONE << np.uint64(t)
                    mask &= ~(upto | (upto - ONE))
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
                    if counting:
                        q_counts[i] += 1
                        d_counts[j] += 1
                        continue
                    other = d_names[j]
                    if same and other < name:
                        left[n], right[n] = other, name
                    else:
                        left[n], right[n] = name, other
                    n += 1
        state[1] = 0
    state[0] = q_low.shape[0]
    return n
