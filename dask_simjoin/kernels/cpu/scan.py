"""Which points of a tile are near some queries: by the 8-bit filter, by the float32 one, or decided at once.

What is known of a side comes as tuples of addresses and numbers, whose types say which: a `Filtered`, or a
`Filtered` and a `Quantized`, or a `Decided`.  With arrays in them, every call in the innermost loop would
count references to each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import overload

from dask_simjoin.index.tiles import TILE
from dask_simjoin.kernels.cpu.memory import float32_at, mask_at, put_mask
from dask_simjoin.kernels.cpu.quantized_simd import quantized_filter, squares
from dask_simjoin.kernels.cpu.tile_simd import (
    count_bits,
    lowest_bit,
    prefetch,
    tile_decide,
    tile_filter,
    total_of,
)

ONE = np.uint64(1)
NONE = np.uint64(0)
ALL = np.uint64(2**64 - 1)

STATES = 10
"""Masks that a scan writes, and its memory of how the 8-bit filter does: `SCORE` and `PAUSE`."""

SCORE, PAUSE = 8, 9

FEW = 24
"""Candidates of 4 queries in a tile up to which each is tried by itself: the float32 filter of all 256 takes
as long."""

WORST = np.uint64(64)
"""Of a score that counts how much more often there were more: then the 8-bit filter pauses."""

PAUSED = np.uint64(4096)
"""Scans for which it does."""


class Filtered(NamedTuple):
    """A side's float32 vectors (tiles, dims, 64); `term` and `sure`: of the filter, float32.

    Terms are `limit` (n,) and `sure` (n,) of queries, `start` (tiles, 64) and `sure` (tiles,) of points.
    """

    z: int
    dims: int
    term: int
    sure: int


class Quantized(NamedTuple):
    """A side's arrays of the 8-bit filter, and what all of them are compared with.

    `queries` (n, steps, 4) int8 and `take` (n, 2) int16, `tiles` (tiles, steps, 64, 4) uint8 and `first`
    (tiles, 64, 2) int16: see `index.quantized`; `marked` (tiles,) uint64: points that pass it in any case.
    `rows` (n, dims) float64: the coordinates.
    """

    queries: int
    take: int
    tiles: int
    first: int
    marked: int
    rows: int
    steps: int
    least: np.int32


class Decided(NamedTuple):
    """A side's float64 vectors (tiles, dims, 64)."""

    z: int
    dims: int
    threshold: float


@njit(nogil=True, cache=True, error_model="numpy", inline="always")
def _address(z: int, dims: int, size: int, i: int) -> int:
    """Of point `i`'s first coordinate in tiles."""
    return z + ((i // TILE) * dims * TILE + i % TILE) * size


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _filtered(q: Filtered, d: Filtered, b: int, i0: int, i1: int, i2: int, i3: int, masks: int) -> Any:
    """The float32 filter."""
    s = float32_at(d.sure, b)
    return tile_filter(
        d.z + b * d.dims * (4 * TILE), d.term + b * (4 * TILE), d.dims, _address(q.z, q.dims, 4, i0),
        _address(q.z, q.dims, 4, i1), _address(q.z, q.dims, 4, i2), _address(q.z, q.dims, 4, i3),
        float32_at(q.term, i0), float32_at(q.term, i1), float32_at(q.term, i2), float32_at(q.term, i3),
        float32_at(q.sure, i0) + s, float32_at(q.sure, i1) + s, float32_at(q.sure, i2) + s,
        float32_at(q.sure, i3) + s, masks,
    )  # fmt: skip


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _quantized(
    own: Any, other: Any, b: int, dims: int, i0: int, i1: int, i2: int, i3: int, masks: int
) -> Any:
    """The 8-bit filter: its masks' union, and whether they are few; else the float32 filter is to tell."""
    pause = mask_at(masks, PAUSE)
    if pause != NONE:
        put_mask(masks, PAUSE, pause - ONE)
        return NONE, False
    passing = mask_at(other.marked, b)
    if passing == ALL or (mask_at(own.marked, i0 // TILE) >> np.uint64(i0 % TILE)) != NONE:
        return NONE, False
    union = quantized_filter(
        other.tiles + b * (own.steps * 4 * TILE), other.first + b * (4 * TILE), own.steps, own.queries,
        own.take, i0, i1, i2, i3, own.least, masks,
    )  # fmt: skip
    if passing != NONE:
        for t in range(4):
            put_mask(masks, t, passing if union == NONE else mask_at(masks, t) | passing)
        union |= passing
    if union == NONE:
        return NONE, True
    number = 0
    for t in range(4):
        number += count_bits(mask_at(masks, t))
    score = mask_at(masks, SCORE)
    if number > FEW:
        put_mask(masks, SCORE, score + ONE)
        if score >= WORST:
            put_mask(masks, SCORE, WORST // np.uint64(2))
            put_mask(masks, PAUSE, PAUSED)
        return union, False
    put_mask(masks, SCORE, score - ONE if score != NONE else score)
    for t in range(4):
        put_mask(masks, t + 4, NONE)
        mask = mask_at(masks, t)
        while mask != NONE:  # they are tried once all queries of the tile are through
            row = other.rows + (b * TILE + lowest_bit(mask)) * dims * 8
            mask &= mask - ONE
            for line in range(0, dims * 8, 64):
                prefetch(row + line)
    return union, True


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _decided(
    q: Decided, d: Decided, b: int, i0: int, i1: int, i2: int, i3: int, masks: int, norm: Any
) -> Any:
    tile = d.z + b * d.dims * (8 * TILE)
    union = NONE
    last = -1
    for t, i in enumerate((i0, i1, i2, i3)):
        mask = NONE
        if i != last:
            mask = tile_decide(tile, d.dims, _address(q.z, q.dims, 8, i), q.threshold, norm)
        put_mask(masks, t, mask)
        put_mask(masks, t + 4, mask)
        union |= mask
        last = i
    return union


def scan(q: Any, d: Any, b: int, i0: int, i1: int, i2: int, i3: int, masks: int, norm: Any) -> Any:
    """Masks of the points of tile `b` near the queries i0 <= i1 <= i2 <= i3 of one tile; their union.

    `masks`: address of `STATES` uint64; if the union is not 0, the first four are of points that may be near,
    the next four of those that surely are.
    """
    raise NotImplementedError


@overload(scan, inline="always")
def _scan_overload(q, d, b, i0, i1, i2, i3, masks, norm):  # type: ignore[no-untyped-def]
    if len(q.types) == 2:

        def both(q, d, b, i0, i1, i2, i3, masks, norm):  # type: ignore[no-untyped-def]
            union, few = _quantized(q[1], d[1], b, d[0].dims, i0, i1, i2, i3, masks)
            return union if few else _filtered(q[0], d[0], b, i0, i1, i2, i3, masks)

        return both
    if q.types[0].instance_class is Filtered:
        return lambda q, d, b, i0, i1, i2, i3, masks, norm: _filtered(q[0], d[0], b, i0, i1, i2, i3, masks)
    return lambda q, d, b, i0, i1, i2, i3, masks, norm: _decided(q[0], d[0], b, i0, i1, i2, i3, masks, norm)


def within(q: Any, d: Any, y: int, i: int, other: int, j: int, dims: int, threshold: float) -> bool:
    """The float64 decision of a pair that a filter let through; of squares, which filters serve.

    `y`, `other`: addresses of the coordinates (n, dims) float64 of both sides.
    """
    raise NotImplementedError


@overload(within, inline="always")
def _within_overload(q, d, y, i, other, j, dims, threshold):  # type: ignore[no-untyped-def]
    def decide(q, d, y, i, other, j, dims, threshold):  # type: ignore[no-untyped-def]
        return total_of(y + i * dims * 8, other + j * dims * 8, dims) <= threshold

    def filtered(q, d, y, i, other, j, dims, threshold):  # type: ignore[no-untyped-def]
        # two sums of d squares, whatever is added first, differ by a factor of 1 + (d + 3) 2**-51 at most, as
        # long as none underflows; and that is far from any threshold that this filter serves
        one, two = y + i * dims * 8, other + j * dims * 8
        total, slack = squares(one, two, dims), threshold * ((dims + 8) * 2.0**-51)
        if total > threshold + slack:
            return False
        return total < threshold - slack or total_of(one, two, dims) <= threshold

    return filtered if len(q.types) == 2 else decide
