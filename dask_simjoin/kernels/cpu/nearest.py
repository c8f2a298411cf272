"""Nearest neighbours of the points of one tile index among those of another.

A tile of 64 queries goes through the other index's boxes nearest first, with a heap, until the nearest
box left is further than the worst neighbour of each of its queries.  What prunes loses nothing: a box or
point is left out only if a lower bound of its d2 is larger than the worst d2 kept, so that one as far
as the worst is still asked for its name; or if that is 0 and no name in the box is smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload

from dask_simjoin.index.tiles import TILE
from dask_simjoin.kernels.cpu.nearest_simd import box_gaps, lanes_within, tile_distances
from dask_simjoin.kernels.cpu.ranking import take_in
from dask_simjoin.kernels.cpu.tile_simd import count_bits, lowest_bit, tile_filter

ONE = np.uint64(1)
NONE = np.uint64(0)
ALL = np.uint64(2**64 - 1)
LEVEL = 48
"""Bits of a node's number below those of its level."""

GUESS = 2.0**1000
"""Guesses of a query's distance are below this."""

U = 2.0**-24
LEAST_D2 = 2.0**-900
"""Below this the filter takes distances for larger than they are."""


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _address(z: Any, tile: int, lane: int) -> int:
    """Of a point's first coordinate in tiles (tiles, d, 64)."""
    return z.ctypes.data + tile * z.strides[0] + lane * z.itemsize


@njit(nogil=True, cache=True, error_model="numpy")
def _push(keys: Any, nodes: Any, size: int, key: float, node: int) -> None:
    """Add to a heap of `size` with the smallest key first."""
    at = size
    while at > 0:
        up = (at - 1) >> 1
        if keys[up] <= key:
            break
        keys[at], nodes[at] = keys[up], nodes[up]
        at = up
    keys[at], nodes[at] = key, node


@njit(nogil=True, cache=True, error_model="numpy")
def _pop(keys: Any, nodes: Any, size: int) -> None:
    """Remove the first of a heap of `size`."""
    size -= 1
    key, node = keys[size], nodes[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] < keys[child]:
            child += 1
        if keys[child] >= key:
            break
        keys[at], nodes[at] = keys[child], nodes[child]
        at = child
    keys[at], nodes[at] = key, node


def _set_limits(q: Any, terms: Any, i: int, t: int, d2: float, reach: Any, limit: Any) -> None:
    raise NotImplementedError


@overload(_set_limits, inline="always")
def _set_limits_overload(q, terms, i, t, d2, reach, limit):  # type: ignore[no-untyped-def]
    """Say that query `i`, in lane `t`, wants no neighbour beyond `d2`.

    Sets ``reach[t]``, the largest gap of a box, and ``limit[t]``, the filter's term h: see `index.filter`.
    """
    if len(q.types) == 1:

        def exact(q, terms, i, t, d2, reach, limit):  # type: ignore[no-untyped-def]
            reach[t] = d2

        return exact

    def filtered(q, terms, i, t, d2, reach, limit):  # type: ignore[no-untyped-def]
        scale2, kappa, tiny, most, largest_norm = terms
        # `most` is more than any two points' distance: a larger threshold is not needed, and it is finite
        e2 = min(max(d2, LEAST_D2) * scale2 * (1 + 8 * U) + tiny, most)
        side = np.sqrt(e2) + 2 * U * np.sqrt(largest_norm)
        # one part in 2**22 and 2**-148 are more than rounding to float32 takes away
        reach[t] = np.float32(side * side * (1 + kappa + 8 * U) * (1 + 4 * U) + 2.0**-148)
        h = q[1][i] - 0.5 * e2
        limit[t] = np.float32(h - abs(h) * 4 * U - 2.0**-148)

    return filtered


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _distance(y: Any, i: int, other: Any, j: int) -> float:
    """The definition: float64, dimensions in order, nothing fused."""
    total = 0.0
    for k in range(y.shape[1]):
        t = y[i, k] - other[j, k]
        total += t * t
    return total


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _wants(d2: float, name: int, own: int, worst: float, worst_name: int) -> bool:
    """Whether a neighbour at most `worst` away is a better one, and not the query itself."""
    return bool(name != own and (d2 < worst or np.uint64(name) < np.uint64(worst_name)))


def _scan(q: Any, d: Any, a: int, b: int, wanted: Any, state: Any, limit: Any, bound2: float, guess: float,
          work: Any) -> Any:  # fmt: skip
    raise NotImplementedError


@overload(_scan)
def _scan_overload(q, d, a, b, wanted, state, limit, bound2, guess, work):  # type: ignore[no-untyped-def]
    """Offer the points of tile `b` to the `wanted` queries of tile `a`; mask of those that took some."""
    if len(q.types) == 1:

        def exact(q, d, a, b, wanted, state, limit, bound2, guess, work):  # type: ignore[no-untyped-def]
            rows, own, worst, best_d2, best_name, d_names = state
            distances, new_d2, new_name, _, _ = work
            k = best_d2.shape[1]
            tile = _address(d[0], b, 0)
            dims = np.int64(d[0].shape[1])
            changed = NONE
            while wanted != NONE:
                t = lowest_bit(wanted)
                wanted &= wanted - ONE
                row, furthest = rows[t], worst[t]
                most = min(furthest, bound2)
                first = min(guess, most)
                mask = tile_distances(tile, dims, _address(q[0], a, t), first, distances.ctypes.data)
                while first < most and count_bits(mask) <= k:
                    first = min(4 * first, most) if first > 0 else most
                    mask = lanes_within(distances.ctypes.data, first)
                last = best_name[row, k - 1]
                m = 0
                while mask != NONE:
                    bit = lowest_bit(mask)
                    mask &= mask - ONE
                    d2, name = distances[bit], d_names[b * TILE + bit]
                    if _wants(d2, name, own[t], furthest, last):
                        new_d2[m], new_name[m] = d2, name
                        m += 1
                if m > 0:
                    take_in(best_d2, best_name, row, new_d2, new_name, m)
                    worst[t] = best_d2[row, k - 1]
                    if furthest == np.inf:
                        guess = min(worst[t] * 1.5, GUESS)
                    changed |= ONE << np.uint64(t)
            return changed

        return exact

    def filtered(q, d, a, b, wanted, state, limit, bound2, guess, work):  # type: ignore[no-untyped-def]
        rows, own, worst, best_d2, best_name, d_names = state
        _, new_d2, new_name, four, masks = work
        k = best_d2.shape[1]
        tile = _address(d[0], b, 0)
        start = d[1].ctypes.data + b * d[1].strides[0]
        never = np.float32(np.inf)
        changed = NONE
        while wanted != NONE:
            picked = 0
            for n in range(4):
                if wanted != NONE:
                    four[n] = lowest_bit(wanted)
                    wanted &= wanted - ONE
                    picked = n + 1
                else:
                    four[n] = four[n - 1]
            t0, t1, t2, t3 = four[0], four[1], four[2], four[3]
            union = tile_filter(
                tile, start, d[0].shape[1], _address(q[0], a, t0), _address(q[0], a, t1),
                _address(q[0], a, t2), _address(q[0], a, t3), limit[t0], limit[t1], limit[t2], limit[t3],
                never, never, never, never, masks.ctypes.data,
            )  # fmt: skip
            if union == NONE:
                continue
            for n in range(picked):
                t, mask = four[n], masks[n]
                row, furthest = rows[t], worst[t]
                most, last = min(furthest, bound2), best_name[row, k - 1]
                m = 0
                while mask != NONE:
                    j = b * TILE + lowest_bit(mask)
                    mask &= mask - ONE
                    d2, name = _distance(q[2], a * TILE + t, d[2], j), d_names[j]
                    if d2 <= most and _wants(d2, name, own[t], furthest, last):
                        new_d2[m], new_name[m] = d2, name
                        m += 1
                if m > 0:
                    take_in(best_d2, best_name, row, new_d2, new_name, m)
                    worst[t] = best_d2[row, k - 1]
                    changed |= ONE << np.uint64(t)
        return changed

    return filtered


@njit(nogil=True, cache=True, error_model="numpy")
def search(q: Any, q_low: Any, q_high: Any, q_names: Any, q_order: Any, d: Any, d_low: Any, d_high: Any,
           d_tree: Any, d_least: Any, d_names: Any, terms: Any, same: bool, own_tiles: bool, bound2: float,
           best_d2: Any, best_name: Any) -> None:  # fmt: skip
    """Improve the neighbours of the queries, rows of `best_d2` and `best_name`, by the points of `d`.

    `q` and `d` are the two sides' tiles and, with the filter, its terms and the points.  `same`: names are
    of one frame, and a query is no neighbour of itself; `own_tiles`: the two indexes are one.
    """
    points, dims = len(q_names), q_low.shape[1]
    k = best_d2.shape[1]
    lower, upper, levels = d_tree
    tiles = d_low.shape[0]
    top = levels.size - 2
    step = lower.strides[0]
    keys = np.empty(tiles + lower.shape[0] + 1)
    nodes = np.empty(keys.size, np.int64)
    rows, own, worst = np.empty(TILE, np.int64), np.empty(TILE, np.int64), np.empty(TILE)
    state = rows, own, worst, best_d2, best_name, d_names
    kind = lower.dtype.type
    reach, all_reach, gaps = np.empty(TILE, kind), np.empty(TILE, kind), np.empty(TILE, kind)
    zero = kind(0)
    limit = np.empty(TILE, np.float32)
    work = (
        np.empty(TILE),
        np.empty(TILE),
        np.empty(TILE, np.int64),
        np.zeros(4, np.int64),
        np.zeros(8, np.uint64),
    )
    guess = np.inf
    for a in range(q_low.shape[0]):
        count = min(TILE, points - a * TILE)
        valid = ALL if count == TILE else (ONE << np.uint64(count)) - ONE
        reach[:] = kind(-1)
        for t in range(count):
            i = a * TILE + t
            rows[t] = q_order[i]
            worst[t] = best_d2[rows[t], k - 1]
            own[t] = q_names[i] if same else -1
            _set_limits(q, terms, i, t, min(worst[t], bound2), reach, limit)
        done = -1
        size = 1
        keys[0], nodes[0] = 0.0, (top + 1) << LEVEL
        if own_tiles:
            # the own tile first: its neighbours are close, and so little is left to be looked at
            _scan(q, d, a, a, valid, state, limit, bound2, guess, work)
            done = a
            if worst[count - 1] < GUESS:
                guess = worst[count - 1] * 1.5
        changed = valid
        zeros, furthest, last = NONE, zero, np.uint64(0)
        while size > 0:
            if changed != NONE:
                while changed != NONE:
                    t = lowest_bit(changed)
                    changed &= changed - ONE
                    _set_limits(q, terms, a * TILE + t, t, min(worst[t], bound2), reach, limit)
                    if worst[t] == 0.0:
                        zeros |= ONE << np.uint64(t)
                furthest = reach.max()
                all_reach[:] = furthest
                if zeros == valid:
                    last = NONE
                    for t in range(count):
                        last = max(last, np.uint64(best_name[rows[t], k - 1]))
            key, node = keys[0], nodes[0]
            if key > furthest:
                break
            _pop(keys, nodes, size)
            size -= 1
            level, number = (node >> LEVEL) - 1, node & ((1 << LEVEL) - 1)
            if level >= 0:
                group = levels[level] + number
                mask = box_gaps(
                    lower.ctypes.data + group * step, upper.ctypes.data + group * step, dims,
                    q_low[a].ctypes.data, q_high[a].ctypes.data, all_reach.ctypes.data,
                    gaps.ctypes.data, zero,
                )  # fmt: skip
                boxes = tiles if level == 0 else levels[level] - levels[level - 1]
                while mask != NONE:
                    bit = lowest_bit(mask)
                    mask &= mask - ONE
                    child = number * TILE + bit
                    if child >= boxes or (level == 0 and child == done):
                        continue
                    if zeros == valid and np.uint64(d_least[group, bit]) > last:
                        continue
                    _push(keys, nodes, size, np.float64(gaps[bit]), (level << LEVEL) | child)
                    size += 1
                continue
            b = number
            at = q[0].ctypes.data + a * q[0].strides[0]
            wanted = valid & box_gaps(
                at, at, dims, d_low[b].ctypes.data, d_high[b].ctypes.data, reach.ctypes.data,
                gaps.ctypes.data, zero,
            )  # fmt: skip
            idle = wanted & zeros
            while idle != NONE:
                t = lowest_bit(idle)
                idle &= idle - ONE
                if d_least[b >> 6, b & 63] > best_name[rows[t], k - 1]:
                    wanted &= ~(ONE << np.uint64(t))
            if wanted != NONE:
                changed = _scan(q, d, a, b, wanted, state, limit, bound2, np.inf, work)
