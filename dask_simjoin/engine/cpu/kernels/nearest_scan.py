"""Compare a tile of queries with a tile of points, and keep the k nearest points of
each query.

A query that has fewer than k neighbors so far would accept all points of a tile. So it
first guesses a limit from the worst d2 of the previous query. This limit excludes most
points. If too few points are within the guess, a larger limit is tried.

The first part of the module emits vector instructions: totals of a tile, gaps between
boxes, and masks of lanes within a limit. Masks are ``uint64``: bit ``t`` belongs to
lane ``t`` of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source
from dask_simjoin.engine.cpu.kernels.nearest_lists import keep
from dask_simjoin.engine.cpu.kernels.product_simd import filter_tile
from dask_simjoin.engine.cpu.kernels.simd import (
    F32,
    F64,
    I32,
    I64,
    Builder,
    LLVMType,
    NormValue,
    Terms,
    Value,
    bits,
    const,
    llvm_function,
    load,
    splat,
    store,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    ALL,
    NONE,
    ONE,
    REGISTER,
    count_bits,
    lowest_bit,
)
from dask_simjoin.engine.cpu.kernels.totals import (
    Kind,
    add_terms,
    larger,
    zeros,
)
from dask_simjoin.engine.filters.bounds import U
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array

VECTORS = 4
"""Number of vectors of totals that are computed at a time. With more, they would not
fit into registers.
"""


def _totals(
    builder: Builder,
    dims: Value,
    vector: LLVMType,
    norm: NormValue,
    differences: Callable[[Value], Callable[[int], Value]],
) -> list[Value]:
    """Vectors of totals, summed over the dimensions in order.

    `differences(k)(n)`: emits vector n of the differences in dimension k.
    """
    slots = zeros(builder, vector, VECTORS)
    with cgutils.for_range_slice(builder, const(0), dims, const(1)) as (k, _):
        add_terms(builder, norm, slots, differences(k))
    return [builder.load(slot) for slot in slots]


@llvm_function(types.uint64, *(types.int64,) * 3, types.float64, types.int64, None)
def tile_totals(
    builder: Builder,
    tile: Value,
    dims: Value,
    point: Value,
    limit: Value,
    out: Value,
    norm: NormValue,
) -> Value:
    """Write the totals between 64 points and one point. Return a mask of the totals
    that are at most `limit`.

    `tile`: address of the points, float64 [dims][64]. `point`: address of the point's
    first coordinate in its own tile. `out`: address of the 64 totals, float64.
    """
    vector = ir.VectorType(F64, REGISTER // 8)
    width = REGISTER
    mask = cgutils.alloca_once_value(builder, const(0))

    bound = splat(builder, limit, vector)
    for first in range(0, TILE // vector.count, VECTORS):

        def differences(k: Value, first: int = first) -> Value:
            offset = builder.mul(k, const(TILE * 8))
            row = builder.add(tile, offset)
            p = splat(
                builder, load(builder, builder.add(point, offset), F64, 8), vector
            )

            def difference(n: int) -> Value:
                z = load(
                    builder, builder.add(row, const((first + n) * width)), vector, 8
                )
                return builder.fsub(z, p)

            return difference

        totals = _totals(builder, dims, vector, norm, differences)
        for g, total in enumerate(totals, first):
            store(builder, total, builder.add(out, const(g * width)), 8)
            near = bits(builder, builder.fcmp_ordered("<=", total, bound))
            near = builder.shl(near, const(g * vector.count))
            builder.store(builder.or_(builder.load(mask), near), mask)
    return builder.load(mask)


def _lanes(
    builder: Builder,
    numbers: Value,
    kind: LLVMType,
    size: int,
    compare: Callable[[Value], Value],
) -> Value:
    """A mask of the numbers that pass a test, among 64 at an address.

    `compare`: emits the test for a vector.
    """
    vector = ir.VectorType(kind, REGISTER // size)
    mask: Any = const(0)
    for g in range(TILE // vector.count):
        some = load(builder, builder.add(numbers, const(g * REGISTER)), vector, size)
        found = bits(builder, compare(some))
        mask = builder.or_(mask, builder.shl(found, const(g * vector.count)))
    return mask


@llvm_function(types.uint64, types.int64, types.float64)
def lanes_within(builder: Builder, numbers: Value, limit: Value) -> Value:
    """A mask of the numbers that are at most `limit`, among 64 float64 at an address."""
    bound = splat(builder, limit, ir.VectorType(F64, REGISTER // 8))
    return _lanes(
        builder, numbers, F64, 8, lambda some: builder.fcmp_ordered("<=", some, bound)
    )


@llvm_function(types.uint64, types.int64, types.float64)
def lanes_below(builder: Builder, numbers: Value, limit: Value) -> Value:
    """A mask of the numbers that are less than `limit`, among 64 float64 at an
    address.
    """
    bound = splat(builder, limit, ir.VectorType(F64, REGISTER // 8))
    return _lanes(
        builder, numbers, F64, 8, lambda some: builder.fcmp_ordered("<", some, bound)
    )


@llvm_function(types.uint64, types.int64, types.int64)
def names_other(builder: Builder, names: Value, name: Value) -> Value:
    """A mask of the ids that differ from `name`, among 64 int64 at an address."""
    own = splat(builder, name, ir.VectorType(I64, REGISTER // 8))
    return _lanes(
        builder, names, I64, 8, lambda some: builder.icmp_signed("!=", some, own)
    )


@llvm_function(types.uint64, types.int64, types.int32)
def lanes_other(builder: Builder, numbers: Value, number: Value) -> Value:
    """A mask of the numbers that differ from `number`, among 64 int32 at an address."""
    own = splat(builder, number, ir.VectorType(I32, REGISTER // 4))
    return _lanes(
        builder, numbers, I32, 4, lambda some: builder.icmp_signed("!=", some, own)
    )


@llvm_function(types.uint64, types.int64)
def lanes_negative(builder: Builder, numbers: Value) -> Value:
    """A mask of the negative numbers, among 64 int32 or float32 at an address."""
    zero = ir.Constant(ir.VectorType(I32, REGISTER // 4), None)
    return _lanes(
        builder, numbers, I32, 4, lambda some: builder.icmp_signed("<", some, zero)
    )


@llvm_function(types.uint64, *(types.int64,) * 7, None, None)
def box_gaps(
    builder: Builder,
    lower: Value,
    upper: Value,
    dims: Value,
    low: Value,
    high: Value,
    limits: Value,
    out: Value,
    kind: Value,
    norm: NormValue,
) -> Value:
    """Write the totals of the gaps between 64 boxes and one box. Return a mask of the
    boxes within their limits.

    `lower`, `upper`: addresses of the 64 boxes, [dims][64] each; for 64 points, both
    are the same address. `low`, `high`: addresses of the bounds of the one box.
    `limits`: address of a limit for each of the 64 boxes. `out`: address of the 64
    totals. All numbers have the type of `kind`.

    In float64, gaps are added as the differences of two points are, in the same order.
    Rounding is monotone, so the total of the gaps is at most the computed total of any
    two points of the boxes.
    """
    number, size = (F32, 4) if kind.type == F32 else (F64, 8)
    vector = ir.VectorType(number, REGISTER // size)
    width = REGISTER
    mask = cgutils.alloca_once_value(builder, const(0))
    zero = ir.Constant(vector, [0.0] * vector.count)

    for first in range(0, TILE // vector.count, VECTORS):

        def gaps(k: Value, first: int = first) -> Value:
            offset = builder.mul(k, const(size))
            lo = splat(
                builder,
                load(builder, builder.add(low, offset), number, size),
                vector,
            )
            hi = splat(
                builder,
                load(builder, builder.add(high, offset), number, size),
                vector,
            )
            row = builder.mul(k, const(TILE * size))

            def gap(n: int) -> Value:
                at = builder.add(row, const((first + n) * width))
                a = builder.fsub(
                    load(builder, builder.add(lower, at), vector, size), hi
                )
                b = builder.fsub(
                    lo, load(builder, builder.add(upper, at), vector, size)
                )
                return larger(builder, larger(builder, a, b), zero)

            return gap

        totals = _totals(builder, dims, vector, norm, gaps)
        for g, total in enumerate(totals, first):
            at = const(g * width)
            store(builder, total, builder.add(out, at), size)
            limit = load(builder, builder.add(limits, at), vector, size)
            near = bits(builder, builder.fcmp_ordered("<=", total, limit))
            near = builder.shl(near, const(g * vector.count))
            builder.store(builder.or_(builder.load(mask), near), mask)
    return builder.load(mask)


MAX_GUESS, SLACK = 2.0**1000, 1.5
"""The guess for a query is `SLACK` times the worst d2 of the previous query, if that is
below `MAX_GUESS`.
"""


class Range(NamedTuple):
    """Smallest and largest d2 that a neighbor may have."""

    least: float
    most: float


ANY = Range(0.0, np.inf)


@inline_source
def begin(q: Terms, a: int, rows: Array) -> None:
    """Copy the filter vectors of the queries in tile `a` to `rows` (64, dims)."""
    z = q[0]
    for k in range(z.shape[1]):
        for t in range(TILE):
            rows[t, k] = z[a, k, t]


@inline_source
def limit_gaps(changed: np.uint64, d2: Array, limits: Range, reach: Array) -> np.uint64:
    """Write to `reach` the largest gap between a box and each `changed` query, whose
    next neighbor's d2 is at most ``d2[t]`` and ``limits.most``.

    Return a mask of the queries whose ``d2[t]`` is 0.
    """
    zeros = NONE
    while changed != NONE:
        t = lowest_bit(changed)
        changed &= changed - ONE
        reach[t] = min(d2[t], limits.most)
        if d2[t] == 0.0:
            zeros |= ONE << np.uint64(t)
    return zeros


@inline_source
def limit_filter(
    q: Terms,
    terms: Any,
    a: int,
    changed: np.uint64,
    d2: Array,
    limits: Range,
    guess: float,
    reach: Array,
    limit: Array,
) -> np.uint64:
    """Do what `limit_gaps` does for the `changed` queries of tile `a`, and set the
    limits of the filter.

    ``limit[t]`` is the filter's term h (see `filters.quantization`). If ``d2[t]`` is
    infinite, it is computed from `guess`, a smaller d2 to try first.
    """
    scale2, kappa, tiny, largest, largest_norm = terms
    zeros = NONE
    while changed != NONE:
        t = lowest_bit(changed)
        changed &= changed - ONE
        bound = min(d2[t], limits.most)
        # `largest` exceeds the squared distance of any two points, and keeps `e2` finite
        e2 = min(max(bound, 2.0**-900) * scale2 * (1 + 8 * U) + tiny, largest)
        side = np.sqrt(e2) + 2 * U * np.sqrt(largest_norm)
        # the relative margin of 2**-22 plus 2**-148 covers the rounding to float32
        reach[t] = np.float32(
            side * side * (1 + kappa + 8 * U) * (1 + 4 * U) + 2.0**-148
        )
        first = min(bound, guess) if d2[t] == np.inf else bound
        e2 = min(max(first, 2.0**-900) * scale2 * (1 + 8 * U) + tiny, largest)
        h = q[1][a * TILE + t] - 0.5 * e2
        limit[t] = np.float32(h - abs(h) * 4 * U - 2.0**-148)
        if d2[t] == 0.0:
            zeros |= ONE << np.uint64(t)
    return zeros


@device_function
def _measure(
    q_y: Array,
    i: int,
    d_y: Array,
    d_names: Array,
    b: int,
    mask: Any,
    least: float,
    most: float,
    own: int,
    new_d2: Array,
) -> Any:
    """Measure d2 of query `i` to the points `mask` of tile `b`, and write them to
    `new_d2`.

    Return a mask of the points with a d2 from `least` to `most` and another id than
    `own`.
    """
    near = NONE
    while mask != NONE:
        t = lowest_bit(mask)
        mask &= mask - ONE
        j = b * TILE + t
        d2 = 0.0
        for k in range(q_y.shape[1]):
            # the filter is for norm 2 only, so add squares; in order and without fused
            # multiply-add, as elsewhere
            difference = q_y[i, k] - d_y[j, k]
            d2 += difference * difference
        new_d2[t] = d2
        if least <= d2 <= most and d_names[j] != own:
            near |= ONE << np.uint64(t)
    return near


@inline_source
def _without(mask: np.uint64, d_names: Array, b: int, name: int) -> np.uint64:
    """Remove the point with a row id from a mask of points of tile `b`."""
    start = b * TILE
    if start + TILE <= d_names.size:
        return mask & names_other(d_names.ctypes.data + start * 8, name)
    # the last tile has fewer ids than lanes, so a vector would end after the array
    for t in range(d_names.size - start):
        if d_names[start + t] == name:
            mask &= ~(ONE << np.uint64(t))
    return mask


@inline_source
def scan_exact(
    q: Terms,
    d: Terms,
    a: int,
    b: int,
    wanted: np.uint64,
    state: Any,
    gaps: Array,
    limits: Range,
    guess: float,
    norm: Kind,
    work: Any,
) -> np.uint64:
    """Update the neighbors of the `wanted` queries of tile `a` with the points of tile
    `b`.

    Return a mask of the queries whose neighbors may have changed. `gaps`: total of the
    gap between each query and the box of tile `b`.
    """
    own, worst, lists, d_names, k = state
    least2, bound2 = limits
    distances, new = work[:2]
    z = d[0]
    dims, size = np.int64(z.shape[1]), z.itemsize
    tile, points = (
        z.ctypes.data + b * z.strides[0],
        q[0].ctypes.data + a * q[0].strides[0],
    )
    names = d_names.ctypes.data + b * TILE * 8
    changed = NONE
    while wanted != NONE:
        t = lowest_bit(wanted)
        wanted &= wanted - ONE
        furthest = worst[t]
        most = min(furthest, bound2)
        # with `least2` there is no guess: points nearer than `least2` would count as
        # found within the guess
        first = min(guess, most) if furthest == np.inf and least2 == 0.0 else most
        mask = tile_totals(
            tile, dims, points + t * size, first, distances.ctypes.data, norm
        )
        while first < most and count_bits(mask) <= k:
            first = min(4 * first, most) if first > 0 else most
            mask = lanes_within(distances.ctypes.data, first)
        if own[t] >= 0 and gaps[t] == 0.0:
            mask = _without(mask, d_names, b, own[t])
        if least2 > 0.0:
            mask &= ~lanes_below(distances.ctypes.data, least2)
        if mask == NONE:
            continue
        is_finite = (
            first < np.inf or mask & ~lanes_below(distances.ctypes.data, np.inf) == NONE
        )
        keep(lists, t, mask, distances, names, is_finite, new)
        worst[t] = lists[0][t, k - 1]
        if furthest == np.inf and k < TILE:
            guess = worst[t] * SLACK if worst[t] < MAX_GUESS else np.inf
        changed |= ONE << np.uint64(t)
    return changed


@inline_source
def scan_filtered(
    q: Terms,
    d: Terms,
    a: int,
    b: int,
    wanted: np.uint64,
    state: Any,
    limits: Range,
    guess: float,
    work: Any,
) -> np.uint64:
    """Find the same neighbors as `scan_exact`, but run the float32 filter first.

    `work`: scratch for distances and for new neighbors; then for `filter_tile`: picked
    queries, masks, filter vectors, and limits.
    """
    own, worst, lists, d_names, k = state
    least2, bound2 = limits
    distances, new, picked, masks, points, limit = work
    z, start, d_y = d
    some = filter_tile(z, start, b, wanted, points, picked, limit, masks)
    if not some and guess == np.inf:
        return NONE
    count = min(TILE, len(d_names) - b * TILE)
    every = ALL if count == TILE else (ONE << np.uint64(count)) - ONE
    names = d_names.ctypes.data + b * TILE * 8
    changed = NONE
    while wanted != NONE:
        t = lowest_bit(wanted)
        wanted &= wanted - ONE
        mask, furthest = masks[t], worst[t]
        most = min(furthest, bound2)
        first = min(guess, most) if furthest == np.inf else most
        if mask == NONE and first == most:
            continue
        i = a * TILE + t
        near = _measure(
            q[2], i, d_y, d_names, b, mask, least2, first, own[t], distances
        )
        if first < most and count_bits(near) < k:
            near = _measure(
                q[2], i, d_y, d_names, b, every, least2, most, own[t], distances
            )
        if near != NONE:
            keep(lists, t, near, distances, names, True, new)
            worst[t] = lists[0][t, k - 1]
            changed |= ONE << np.uint64(t)
    return changed
