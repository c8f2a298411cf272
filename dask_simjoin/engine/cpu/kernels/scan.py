"""Scans: find the points of a tile that are near queries of another tile, by filters or
in float64.

The terms of an index are a tuple: see `terms_of`. Its types select the scan. It
contains a `FilterScan`, a `Rounded` or a `Decided`. After a `FilterScan`, it may
contain a `Quantized` or a `QuantizedLongs`. Terms have addresses instead of arrays,
because Numba would count references to arrays at every call in the innermost loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source
from dask_simjoin.engine.cpu.kernels.product_simd import FILTERS, WAYS
from dask_simjoin.engine.cpu.kernels.simd import (
    Terms,
    float32_at,
    float64_at,
    mask_at,
    put_mask,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    ALL,
    NONE,
    ONE,
    count_bits,
    lowest_bit,
    prefetch,
    squares,
    tile_decide,
    tile_filter,
    tile_rounded,
    total_of,
)
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.filters.quantization import STEP
from dask_simjoin.engine.index.cpu_tiles import TILE, TilesLayout
from dask_simjoin.metrics.norms import Index


class FilterScan(NamedTuple):
    """Data of one index for the float32 filter.

    `z` (tiles, dims, 64): filter vectors by tile, float32. `y` (n, width): coordinates
    in index order, float64. The terms are float32. Queries have `limit` (n,) and `sure`
    (n,). Data have `start` (tiles, 64) and `sure` (tiles,).
    """

    dims: int
    z: int
    term: int
    sure: int
    y: int
    width: int


class Quantized(NamedTuple):
    """Data of one index for the 8-bit filter: see `filters.quantization`.

    `queries` (n, steps, 4), int8, and `tiles` (tiles, steps, 64, 4), uint8: rounded
    coordinates. `take` (n, 2) and `first` (tiles, 64, 2), int16: terms of queries and
    of data. `marked` (tiles,), uint64: masks of the points that always pass. A point
    passes if its sum is at least `least`.
    """

    queries: int
    take: int
    tiles: int
    first: int
    marked: int
    steps: int
    least: np.int32


class QuantizedLongs(Quantized):
    """Like `Quantized`, but with 32-bit sums: `take` (n, 1) and `first` (tiles, 64, 1)
    are int32.
    """


class Decided(NamedTuple):
    """Data of one index for a scan in float64, without a filter.

    `z` (tiles, dims, 64): coordinates by tile. `y` (n, width): coordinates in index
    order. `sure`: mask of the found points that are surely pairs. It has all bits set
    if `z` has all dimensions, because the scan then decides pairs. Otherwise it is 0.
    """

    z: int
    dims: int
    threshold: float
    y: int
    width: int
    sure: np.uint64


class Rounded(NamedTuple):
    """Data of one index for the float32 filter of the norms 1 and infinity.

    `z` (tiles, dims, 64): coordinates by tile, float32. `y` (n, dims): coordinates in
    index order, float64. A candidate may be a pair if its float32 total is at most
    `reach`. It surely is a pair if the total is at most `sure`.
    """

    z: int
    dims: int
    reach: np.float32
    sure: np.float32
    y: int


FOUR = 2 * TILE
"""Index in a scan's array `masks` where the masks for the current four queries begin.

Four masks of points that may be near come first, then four masks of points that surely
are near.
"""

SCORE, PAUSE = FOUR + 8, FOUR + 9
"""Indexes in `masks`: the 8-bit filter's score, and for how many more tiles the filter
stays off.
"""

STATES = FOUR + 10
"""Length of the array `masks` (uint64)."""

MAX_SINGLE = 24
"""If at most this many candidates of 4 queries in a tile pass the 8-bit filter, they
are decided one by one.

For more, it is faster to run the float32 filter on all 256 pairs.
"""

MAX_SCORE = np.uint64(64)
"""If its score exceeds this, the 8-bit filter is turned off for a while.

The score rises when more than `MAX_SINGLE` candidates pass, and falls otherwise.
"""

PAUSE_TILES = np.uint64(256)
"""The 8-bit filter is turned off for this many tiles."""


@inline_source
def _address(z: int, dims: int, size: int, i: int) -> int:
    """Return the address of the first coordinate of point `i` in the tiles `z`."""
    return z + ((i // TILE) * dims * TILE + i % TILE) * size


@inline_source
def _filtered(
    q: Terms,
    d: Terms,
    b: int,
    i0: int,
    i1: int,
    i2: int,
    i3: int,
    masks: int,
    norm: Kind,
) -> np.uint64:
    """Run the float32 filter of the norm 2 for four queries."""
    own, other = q[0], d[0]
    z, dims, s = own.z, own.dims, float32_at(other.sure, b)
    return tile_filter(
        other.z + b * dims * (4 * TILE),
        other.term + b * (4 * TILE),
        dims,
        (
            _address(z, dims, 4, i0),
            _address(z, dims, 4, i1),
            _address(z, dims, 4, i2),
            _address(z, dims, 4, i3),
        ),
        (
            float32_at(own.term, i0),
            float32_at(own.term, i1),
            float32_at(own.term, i2),
            float32_at(own.term, i3),
        ),
        (
            float32_at(own.sure, i0) + s,
            float32_at(own.sure, i1) + s,
            float32_at(own.sure, i2) + s,
            float32_at(own.sure, i3) + s,
        ),
        masks + 8 * FOUR,
    )


def _quantized(way: str) -> Any:
    """Make the scan for four queries that starts with the 8-bit filter; `way`: see
    `product_simd.WAYS`.
    """
    coarse = FILTERS[way]

    @inline_source
    def quantized(
        q: Terms,
        d: Terms,
        b: int,
        i0: int,
        i1: int,
        i2: int,
        i3: int,
        masks: int,
        norm: Kind,
    ) -> np.uint64:
        """Run the 8-bit filter; if more than `MAX_SINGLE` candidates pass, run the
        float32 filter as well.
        """
        own, other, row = q[1], d[1], d[0].width * 8
        passing = mask_at(other.marked, b)
        union = passing | coarse(
            other.tiles + b * (own.steps * STEP * TILE),
            other.first + b * (4 * TILE),
            own.steps,
            own.queries,
            own.take,
            (i0, i1, i2, i3),
            own.least,
            passing,
            masks + 8 * FOUR,
        )
        score = mask_at(masks, SCORE)
        fewer = score - ONE if score != NONE else score
        if union == NONE:
            put_mask(masks, SCORE, fewer)
            return NONE
        number = 0
        for t in range(FOUR, FOUR + 4):
            number += count_bits(mask_at(masks, t))
        if number > MAX_SINGLE:
            put_mask(masks, SCORE, score + ONE)
            return _filtered(q, d, b, i0, i1, i2, i3, masks, norm)
        put_mask(masks, SCORE, fewer)
        for t in range(FOUR, FOUR + 4):
            put_mask(masks, t + 4, NONE)
            mask = mask_at(masks, t)
            # prefetch the candidates, because they are compared in float64 after this
            # scan
            while mask != NONE:
                at = d[0].y + (b * TILE + lowest_bit(mask)) * row
                mask &= mask - ONE
                for line in range(0, row, 64):
                    prefetch(at + line)
        return union

    return quantized


@inline_source
def _decided(
    q: Terms,
    d: Terms,
    b: int,
    i0: int,
    i1: int,
    i2: int,
    i3: int,
    masks: int,
    norm: Kind,
) -> np.uint64:
    """Compare four queries in float64.

    If `z` has only some dimensions, the points found are only candidates.
    """
    own, other = q[0], d[0]
    tile = other.z + b * other.dims * (8 * TILE)
    union = NONE
    last = -1
    for t, i in enumerate((i0, i1, i2, i3)):
        mask = NONE
        if i != last:
            mask = tile_decide(
                tile, other.dims, _address(own.z, own.dims, 8, i), own.threshold, norm
            )
        put_mask(masks, FOUR + t, mask)
        put_mask(masks, FOUR + t + 4, mask & own.sure)
        union |= mask
        last = i
    return union


@inline_source
def _rounded(
    q: Terms,
    d: Terms,
    b: int,
    i0: int,
    i1: int,
    i2: int,
    i3: int,
    masks: int,
    norm: Kind,
) -> np.uint64:
    """Run the float32 filter of the norms 1 and infinity for four queries."""
    own, other = q[0], d[0]
    tile = other.z + b * other.dims * (4 * TILE)
    union = NONE
    last = -1
    for t, i in enumerate((i0, i1, i2, i3)):
        mask = NONE
        if i != last:
            at, sure = _address(own.z, own.dims, 4, i), masks + 8 * (FOUR + t + 4)
            mask = tile_rounded(tile, other.dims, at, own.reach, own.sure, norm, sure)
        put_mask(masks, FOUR + t, mask)
        union |= mask
        last = i
    return union


def _in_fours(some: Any) -> Any:
    """From a scan for four queries, make a scan for all queries in a mask `near`."""

    @device_function
    def every(
        q: Terms,
        d: Terms,
        a: int,
        b: int,
        near: np.uint64,
        ahead: int,
        share: int,
        masks: int,
        norm: Kind,
    ) -> Any:
        hit, i = NONE, a * TILE
        while near != NONE:
            # prefetch the next tile while this one is compared
            for line in range(share):
                prefetch(ahead + line * 64)
            ahead += share * 64
            t0 = lowest_bit(near)
            near &= near - ONE
            t1 = lowest_bit(near) if near != NONE else t0
            near &= near - ONE if near != NONE else NONE
            t2 = lowest_bit(near) if near != NONE else t1
            near &= near - ONE if near != NONE else NONE
            t3 = lowest_bit(near) if near != NONE else t2
            near &= near - ONE if near != NONE else NONE
            if some(q, d, b, i + t0, i + t1, i + t2, i + t3, masks, norm) == NONE:
                continue
            # if a query fills several of the four places, its first mask counts, so the
            # first place is written last
            for t, place in ((t3, 3), (t2, 2), (t1, 1), (t0, 0)):
                put_mask(masks, t, mask_at(masks, FOUR + place))
                put_mask(masks, TILE + t, mask_at(masks, FOUR + 4 + place))
                hit |= ONE << np.uint64(t)
        return hit

    return every


_all_filtered = _in_fours(_filtered)


def _coarse_first(way: str) -> Any:
    """Make the scan for a mask of queries that starts with the 8-bit filter, unless it
    is off.
    """
    every = _in_fours(_quantized(way))

    @inline_source
    def coarse_first(
        q: Terms,
        d: Terms,
        a: int,
        b: int,
        near: np.uint64,
        ahead: int,
        share: int,
        masks: int,
        norm: Kind,
    ) -> Any:
        """Run the 8-bit filter. For marked queries, or if the 8-bit filter is off, run
        only the float32 filter.
        """
        marked = mask_at(q[1].marked, a)
        pause = mask_at(masks, PAUSE)
        if pause != NONE or mask_at(d[1].marked, b) == ALL:
            marked = ALL
            put_mask(masks, PAUSE, pause - ONE if pause != NONE else pause)
        elif mask_at(masks, SCORE) > MAX_SCORE:
            put_mask(masks, SCORE, MAX_SCORE // np.uint64(2))
            put_mask(masks, PAUSE, PAUSE_TILES)
        hit = NONE
        if near & marked != NONE:
            hit = _all_filtered(q, d, a, b, near & marked, ahead, 0, masks, norm)
        return hit | every(q, d, a, b, near & ~marked, ahead, share, masks, norm)

    return coarse_first


@inline_source
def _one_by_one(
    q: Terms, d: Terms, i: int, j: int, threshold: float, norm: Kind
) -> bool:
    """Decide a candidate in float64, with terms added in the order of dimensions."""
    dims = q[0].width
    return bool(
        total_of(q[0].y + i * dims * 8, d[0].y + j * dims * 8, dims) <= threshold
    )


@inline_source
def _at_once(q: Terms, d: Terms, i: int, j: int, threshold: float, norm: Kind) -> bool:
    """Decide a candidate as `_one_by_one` does, but faster: first add the terms in any
    order.

    If this total is far from the threshold, no order could change the decision.
    Otherwise add them in order.
    """
    # sums of the same d squares in two orders differ by a factor of at most 1 + d
    # 2**-52
    dims = q[0].width
    one, two = q[0].y + i * dims * 8, d[0].y + j * dims * 8
    total, slack = squares(one, two, dims), threshold * ((dims + 8) * 2.0**-52)
    near = total < threshold - slack
    if not near and not total > threshold + slack:
        near = total_of(one, two, dims) <= threshold
    return near


@inline_source
def _of_norm(q: Terms, d: Terms, i: int, j: int, threshold: float, norm: Kind) -> bool:
    """Decide a candidate in float64, for norms other than 2."""
    dims, total = q[0].dims, 0.0
    one, two = q[0].y + i * dims * 8, d[0].y + j * dims * 8
    for k in range(dims):
        total = add_term(total, float64_at(one, k) - float64_at(two, k), norm)
    return bool(total <= threshold)


SCANS: dict[type, tuple[Any, Any]] = {
    FilterScan: (_all_filtered, _one_by_one),
    Decided: (_in_fours(_decided), _one_by_one),
    Rounded: (_in_fours(_rounded), _of_norm),
}
"""Type of terms -> two functions: the scan of two tiles, and the decision of a
candidate that is not sure.

A scan has the parameters q, d, a, b, near, ahead, share, masks, norm. It compares the
queries of tile `a` in the mask `near` with the points of tile `b`. It returns a mask of
the queries that may be near such a point.

`masks` is the address of `STATES` uint64. Item t is a mask of the points that may be
near query t. Item 64 + t is a mask of the points that surely are. After every four
queries, the scan prefetches `share` cache lines, beginning at the address `ahead`.
"""

SCANS |= {
    kind: (_coarse_first(way), _at_once)
    for kind, way in ((QuantizedLongs, "longs"), (Quantized, "words"))
    if way in WAYS
}


def _at(array: np.ndarray) -> tuple[int, int]:
    """Return the address of an array, and the stride of its first axis in bytes."""
    return array.ctypes.data, array.strides[0]


_KINDS = {"longs": QuantizedLongs, "words": Quantized}


def _way(index: Index) -> str:
    """Return the way of summing that an index's 8-bit arrays are made for: see
    `product_simd.WAYS`.

    The index may come from another machine, which sums in another way.
    """
    if "tiles" not in index:
        return ""
    return "longs" if index["take"].dtype == np.int32 else "words"


def terms_of(
    q: Index, d: Index, layout: TilesLayout
) -> tuple[Terms, Terms, tuple[int, int]]:
    """Return the terms of both indexes, and the fields `first` and `step` of a
    `marks.TileSide`.

    The addresses are valid as long as the arrays of the indexes exist.
    """
    dims, width = q["z"].shape[1], q["y"].shape[1]
    z, y = ([side[name].ctypes.data for side in (q, d)] for name in ("z", "y"))
    f = layout.rounded
    if f is not None:
        one, two = (Rounded(z[k], dims, f.reach, f.sure, y[k]) for k in range(2))
        return (one,), (two,), _at(d["z"])
    if layout.filter is None:
        decided = np.uint64(0 if dims < width else 2**64 - 1)
        own, other = (
            Decided(z[k], dims, layout.threshold, y[k], width, decided)
            for k in range(2)
        )
        return (own,), (other,), _at(d["z"])
    terms = ((q["limit"], q["sure"]), (d["start"], d["tile_sure"]))
    sides: list[Terms] = [
        (FilterScan(dims, z[k], term.ctypes.data, sure.ctypes.data, y[k], width),)
        for k, (term, sure) in enumerate(terms)
    ]
    way = _way(q)
    if way not in WAYS or way != _way(d):
        return sides[0], sides[1], _at(d["z"])
    assert layout.quantized is not None
    steps, least = q["queries"].shape[1], np.int32(2 * layout.quantized.bias)
    for k, side in enumerate((q, d)):
        at = {
            name: side[name].ctypes.data
            for name in ("queries", "take", "tiles", "first", "marked")
        }
        sides[k] += (_KINDS[way](**at, steps=steps, least=least),)
    return sides[0], sides[1], _at(d["tiles"])
