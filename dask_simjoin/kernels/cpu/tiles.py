"""Tiles: joins two tile indexes of any number of dimensions.

Points come in tiles of 64.  The tiles' boxes, and the boxes of 64 tiles, and so on, are
themselves stored as tiles, so one SIMD test speaks of 64 points, tiles or groups.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from dask_simjoin.index.tiles import TILE
from dask_simjoin.kernels.cpu.tile_simd import (
    boxes_near,
    count_bits,
    lowest_bit,
    prefetch,
    tile_decide,
    tile_filter,
)

ONE = np.uint64(1)
NONE = np.uint64(0)
ALL = np.uint64(2**64 - 1)
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


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _address(z: Any, i: int) -> int:
    """Of point `i`'s first coordinate in tiles (tiles, d, 64)."""
    return z.ctypes.data + (i // TILE) * z.strides[0] + (i % TILE) * z.itemsize


def _scan(q: Any, d: Any, b: int, four: Any, masks: Any, norm: Any) -> Any:
    raise NotImplementedError


@overload(_scan, inline="always")
def _scan_overload(q, d, b, four, masks, norm):  # type: ignore[no-untyped-def]
    """Masks of the points of tile `b` near the queries `four`; their union.

    ``masks[:4]``: those that may be near, ``masks[4:]``: those that surely are.
    """
    if isinstance(q.types[0], types.Array) and q.types[0].dtype == types.float32:

        def filtered(q, d, b, four, masks, norm):  # type: ignore[no-untyped-def]
            q_z, limit, sure = q
            z, start, d_sure = d
            i0, i1, i2, i3 = four[0], four[1], four[2], four[3]
            s = d_sure[b]
            return tile_filter(
                z.ctypes.data + b * z.strides[0], start.ctypes.data + b * start.strides[0],
                z.shape[1], _address(q_z, i0), _address(q_z, i1), _address(q_z, i2),
                _address(q_z, i3), limit[i0], limit[i1], limit[i2], limit[i3], sure[i0] + s,
                sure[i1] + s, sure[i2] + s, sure[i3] + s, masks.ctypes.data,
            )  # fmt: skip

        return filtered

    def decided(q, d, b, four, masks, norm):  # type: ignore[no-untyped-def]
        q_z, limit, _ = q
        z, _, _ = d
        tile = z.ctypes.data + b * z.strides[0]
        union = NONE
        for t in range(4):
            if t > 0 and four[t] == four[t - 1]:
                masks[t] = NONE
            else:
                masks[t] = tile_decide(
                    tile, np.int64(z.shape[1]), _address(q_z, four[t]), limit[0], norm
                )  # fmt: skip
            masks[t + 4] = masks[t]
            union |= masks[t]
        return union

    return decided


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _within(y: Any, i: int, other: Any, j: int, threshold: float) -> bool:
    """The float64 decision; the filter serves squares only."""
    total = 0.0
    for k in range(y.shape[1]):
        t = y[i, k] - other[j, k]
        total += t * t
    return total <= threshold


@njit(nogil=True, cache=True, error_model="numpy")
def candidates(lower: Any, upper: Any, levels: Any, low: Any, high: Any, reach: Any, tiles: int,
               least: int, norm: Any, found: Any) -> int:  # fmt: skip
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


@njit(nogil=True, cache=True, error_model="numpy")
def join(q: Any, q_z: Any, q_y: Any, q_low: Any, q_high: Any, q_names: Any, d: Any, d_y: Any,
         d_low: Any, d_high: Any, d_tree: Any, d_names: Any, reach: Any, threshold: float, norm: Any,
         same: bool, left: Any, right: Any, n: int, cap: int, counting: bool, q_counts: Any,
         d_counts: Any, state: Any) -> int:  # fmt: skip
    """Append pairs of names to `left` and `right`; the new number of pairs.

    Stops where the pairs of two tiles might not fit into `cap`: ``state[0]`` is the tile of
    queries and ``state[1]`` the number of its candidate tiles that are done; ``state[2]`` is
    the room it needs (0: the join is complete).  ``state[3]`` and ``state[4]`` count the
    pairs that only float64 could decide and those of them that it refused.

    With `counting` each pair adds 1 to its two points' numbers in `q_counts` and `d_counts` (one
    array if `same`) instead.

    `q` and `d` are the two sides' terms, of the filter (float32) or of the decision (float64);
    `norm`: see `totals.kind_of`.
    """
    points, dims = q_y.shape
    lower, upper, levels = d_tree
    tiles = d_low.shape[0]
    found = np.empty(tiles, np.int64)
    masks = np.zeros(8, np.uint64)
    four = np.zeros(4, np.int64)
    state[2] = 0
    z_base, z_step = d[0].ctypes.data, d[0].strides[0]
    share = z_step // (64 * GROUPS) if z_step <= PREFETCHED else 0
    for a in range(state[0], q_z.shape[0]):
        count = candidates(lower, upper, levels, q_low[a], q_high[a], reach, tiles,
                           a if same else 0, norm, found)  # fmt: skip
        valid = ALL if (a + 1) * TILE <= points else (ONE << np.uint64(points - a * TILE)) - ONE
        at = q_z.ctypes.data + a * q_z.strides[0]
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
            while near != NONE:
                # the next tile comes into the cache while this one is worked on
                for line in range(share):
                    prefetch(ahead + line * 64)
                ahead += share * 64
                picked = 0
                for t in range(4):
                    if near != NONE:
                        four[t] = a * TILE + lowest_bit(near)
                        near &= near - ONE
                        picked = t + 1
                    else:
                        four[t] = four[t - 1]
                if _scan(q, d, b, four, masks, norm) == NONE:
                    continue
                for t in range(picked):
                    mask, sure = masks[t], masks[t + 4]
                    i = four[t]
                    if same and a == b:
                        # later points only: each pair once, and no point with itself
                        upto = ONE << np.uint64(i - a * TILE)
                        mask &= ~(upto | (upto - ONE))
                    name = q_names[i]
                    while mask != NONE:
                        bit = lowest_bit(mask)
                        mask &= mask - ONE
                        j = b * TILE + bit
                        if (sure >> np.uint64(bit)) & ONE == NONE:
                            state[3] += 1
                            if not _within(q_y, i, d_y, j, threshold):
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
    state[0] = q_z.shape[0]
    return n
