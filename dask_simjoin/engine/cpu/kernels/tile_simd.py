"""Vector code of the method "tiles": compare points and boxes with tiles of 64 points
or boxes.

Masks are ``uint64``: bit ``t`` belongs to lane ``t`` of a tile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.simd import (
    F32,
    F64,
    FEATURES,
    I1,
    I32,
    LANES,
    Builder,
    LLVMType,
    NormValue,
    Value,
    bits,
    call,
    const,
    llvm_function,
    load,
    multiply_add,
    splat,
    store,
)
from dask_simjoin.engine.cpu.kernels.totals import Squares, add_terms, larger, zeros
from dask_simjoin.engine.index.cpu_tiles import TILE

NONE, ONE, ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
"""Masks with no lane, with the first lane, and with all lanes."""

_WIDE = "avx512f" in FEATURES

REGISTER = 64 if _WIDE else 32
"""Bytes of a vector. It fills one register with AVX-512 or AVX2, and two registers with
NEON.
"""

PASSES = 1 if _WIDE else 4
"""Number of parts that a tile is split into, so that the filter's sums for one part fit
into registers.

AVX2 has 16 registers for 8 sums, and AVX-512 has 32 for 16 sums. If sums were in
memory, the filter would take 5 times as long, measured in 16 dimensions.
"""


@llvm_function(types.int64, types.uint64)
def lowest_bit(builder: Builder, mask: Value) -> Value:
    """The number of the lowest bit that is set in `mask`; undefined for 0."""
    return builder.cttz(mask, ir.Constant(I1, 1))


@llvm_function(types.int64, types.uint64)
def count_bits(builder: Builder, mask: Value) -> Value:
    return builder.ctpop(mask)


@llvm_function(types.void, types.int64)
def prefetch(builder: Builder, address: Value) -> None:
    line = builder.inttoptr(address, ir.IntType(8).as_pointer())
    # llvm.prefetch: read, keep in cache, data
    flags = [ir.Constant(I32, flag) for flag in (0, 3, 1)]
    call(builder, "llvm.prefetch.p0", ir.VoidType(), line, *flags)


def lanes_of(kind: ir.Type) -> tuple[ir.VectorType, int, int]:
    """Return the vector type for numbers of this type, the vectors per tile, and the
    bytes per number.
    """
    size = 4 if kind == F32 else 8
    width = REGISTER // size
    return ir.VectorType(kind, width), TILE // width, size


def accumulate(
    builder: Builder, dims: Value, step: Callable[[Value], None], unroll: int
) -> None:
    """Emit a loop that runs `step(k)` for k = 0 ... dims-1; its body has `unroll`
    steps.
    """
    whole = builder.mul(builder.sdiv(dims, const(unroll)), const(unroll))
    with cgutils.for_range_slice(builder, const(0), whole, const(unroll)) as (k, _):
        for u in range(unroll):
            step(builder.add(k, const(u)))
    with cgutils.for_range_slice(builder, whole, dims, const(1)) as (k, _):
        step(k)


def join_bits(builder: Builder, masks: list[Value]) -> Value:
    """A 64-bit mask of several vectors of booleans, side by side."""
    joined = bits(builder, masks[0])
    for g, mask in enumerate(masks[1:], 1):
        more = builder.shl(bits(builder, mask), const(g * mask.type.count))
        joined = builder.or_(joined, more)
    return joined


def _filter_part(
    builder: Builder,
    tile: Value,
    start: Value,
    dims: Value,
    points: Sequence[Value],
    limits: Sequence[Value],
    sures: Sequence[Value],
    part: range,
    masks: list[Value],
) -> None:
    """Run `tile_filter` on the vectors `part` of the tile: set the bits of their points
    in `masks`.
    """
    vector, _, size = lanes_of(F32)
    width = vector.count * size
    slots = [[cgutils.alloca_once(builder, vector) for _ in part] for _ in points]
    for g, group in enumerate(part):
        begin = load(builder, builder.add(start, const(group * width)), vector, size)
        for q, limit in enumerate(limits):
            builder.store(
                builder.fsub(begin, splat(builder, limit, vector)), slots[q][g]
            )

    def step(k: Value) -> None:
        at = builder.mul(k, const(TILE * size))
        row = builder.add(tile, at)
        point = [
            splat(builder, load(builder, builder.add(p, at), F32, size), vector)
            for p in points
        ]
        for g, group in enumerate(part):
            z = load(builder, builder.add(row, const(group * width)), vector, size)
            for q, p in enumerate(point):
                slot = slots[q][g]
                builder.store(multiply_add(builder, z, p, builder.load(slot)), slot)

    accumulate(builder, dims, step, 4)
    # a near point's sum has no sign bit, so the AND of all sums lacks it in a lane with
    # a near point
    integers = ir.VectorType(I32, vector.count)
    signs = [[builder.bitcast(builder.load(v), integers) for v in row] for row in slots]
    zero = ir.Constant(integers, [0] * vector.count)
    together = functools.reduce(builder.and_, [v for row in signs for v in row])
    some = bits(builder, builder.icmp_signed(">=", together, zero))
    shift = const(part[0] * vector.count)
    with builder.if_then(builder.icmp_unsigned("!=", some, const(0)), likely=False):
        for q, (row, bound) in enumerate(zip(slots, sures, strict=True)):
            least = splat(builder, bound, vector)
            near = [builder.icmp_signed(">=", v, zero) for v in signs[q]]
            sure = [builder.fcmp_ordered(">=", builder.load(v), least) for v in row]
            for mask, found in ((masks[q], near), (masks[q + len(points)], sure)):
                more = builder.shl(join_bits(builder, found), shift)
                builder.store(builder.or_(builder.load(mask), more), mask)


@llvm_function(
    types.uint64,
    *(types.int64,) * 3,
    types.UniTuple(types.int64, 4),
    *(types.UniTuple(types.float32, 4),) * 2,
    types.int64,
)
def tile_filter(
    builder: Builder,
    tile: Value,
    start: Value,
    dims: Value,
    queries: Value,
    limits: Value,
    sures: Value,
    out: Value,
) -> Value:
    """Run the float32 filter for 4 queries on the points of a tile.

    A point z may be near query p if the sum (start - h) + <z, p> is at least 0. It
    surely is if the sum is at least s. Return the union of the four masks of points
    that may be near. If it is not 0, write these four masks at the address `out`, and
    then the four masks of points that surely are near.

    `tile`: address of the points, float32 [dims][64]. `start`: address of their 64
    terms, float32. `queries`: addresses of the queries' first coordinates in their
    tile. `limits`, `sures`: h and s of the queries.
    """
    points, limits_of, sures_of = (
        [builder.extract_value(each, k) for k in range(4)]
        for each in (queries, limits, sures)
    )
    groups = lanes_of(F32)[1] // PASSES
    masks = [
        cgutils.alloca_once_value(builder, const(0)) for _ in range(2 * len(points))
    ]
    for part in range(PASSES):
        some = range(part * groups, (part + 1) * groups)
        _filter_part(
            builder, tile, start, dims, points, limits_of, sures_of, some, masks
        )
    near = [builder.load(mask) for mask in masks[: len(points)]]
    union = functools.reduce(builder.or_, near)
    with builder.if_then(builder.icmp_unsigned("!=", union, const(0)), likely=False):
        for q, mask in enumerate(masks):
            store(builder, builder.load(mask), builder.add(out, const(8 * q)), 8)
    return union


def _tile_totals(
    builder: Builder,
    kind: ir.Type,
    tile: Value,
    dims: Value,
    point: Value,
    norm: NormValue,
    parts: int,
) -> list[Value]:
    """The totals between a tile's points and one point, as vectors; the tile is split
    into `parts` parts.
    """
    vector, groups, size = lanes_of(kind)
    found = []
    for part in range(parts):
        slots = zeros(builder, vector, groups // parts)

        def step(
            k: Value, slots: list[Value] = slots, first: int = part * len(slots)
        ) -> None:
            row = builder.add(tile, builder.mul(k, const(TILE * size)))
            at = builder.add(point, builder.mul(k, const(TILE * size)))
            p = splat(builder, load(builder, at, kind, size), vector)

            def difference(g: int) -> Value:
                at = builder.add(row, const((first + g) * vector.count * size))
                return builder.fsub(load(builder, at, vector, size), p)

            add_terms(builder, norm, slots, difference)

        accumulate(builder, dims, step, 2 if parts == 1 else 1)
        found += [builder.load(slot) for slot in slots]
    return found


def _upto(builder: Builder, totals: list[Value], limit: Value) -> Value:
    """A mask of the totals that are at most `limit`."""
    bound = splat(builder, limit, totals[0].type)
    return join_bits(
        builder, [builder.fcmp_ordered("<=", total, bound) for total in totals]
    )


@llvm_function(types.uint64, *(types.int64,) * 3, types.float64, None)
def tile_decide(
    builder: Builder,
    tile: Value,
    dims: Value,
    point: Value,
    threshold: Value,
    norm: NormValue,
) -> Value:
    """The float64 decision: a mask of a tile's points whose total with one point is at
    most the threshold.

    `tile`: address of the points, float64 [dims][64]. `point`: address of the point's
    first coordinate in its own tile.
    """
    # for norms other than 2 the tile is split into parts, because its totals would not
    # all stay in registers
    parts = 1 if norm.kind is Squares else PASSES
    return _upto(
        builder, _tile_totals(builder, F64, tile, dims, point, norm, parts), threshold
    )


@llvm_function(
    types.uint64, *(types.int64,) * 3, types.float32, types.float32, None, types.int64
)
def tile_rounded(
    builder: Builder,
    tile: Value,
    dims: Value,
    point: Value,
    reach: Value,
    sure: Value,
    norm: NormValue,
    out: Value,
) -> Value:
    """The filter of norms 1 and infinity: a mask of a tile's points that may be near
    one point.

    Their float32 totals are at most `reach`. Write the mask of points whose totals are
    at most `sure` at the address `out`: these surely are near. See `filters.bounds`.
    `tile`, `point`: as in `tile_decide`, but float32.
    """
    totals = _tile_totals(builder, F32, tile, dims, point, norm, max(1, PASSES // 2))
    near = _upto(builder, totals, reach)
    store(builder, const(0), out, 8)
    with builder.if_then(builder.icmp_unsigned("!=", near, const(0)), likely=False):
        store(builder, _upto(builder, totals, sure), out, 8)
    return near


def _compare_boxes(
    builder: Builder,
    lower: Value,
    upper: Value,
    dims: Value,
    low: Value,
    high: Value,
    limit: Value,
    norm: NormValue,
    between: Callable[..., Value],
) -> Value:
    """A mask of the boxes, among 64, whose total with one box is at most `limit`.

    `between`: emits the differences of two boxes in one dimension, which are their gaps
    or their spans.
    """
    kind = limit.type
    vector, groups, size = lanes_of(kind)
    slots = zeros(builder, vector, groups)

    def step(k: Value) -> None:
        offset = builder.mul(k, const(size))
        lo = splat(builder, load(builder, builder.add(low, offset), kind, size), vector)
        hi = splat(
            builder, load(builder, builder.add(high, offset), kind, size), vector
        )
        row = builder.mul(k, const(TILE * size))

        def of_boxes(g: int) -> Value:
            at = builder.add(row, const(g * vector.count * size))
            bounds = (
                load(builder, builder.add(side, at), vector, size)
                for side in (lower, upper)
            )
            return between(builder, *bounds, lo, hi)

        add_terms(builder, norm, slots, of_boxes)

    accumulate(builder, dims, step, 2)
    bound = splat(builder, limit, vector)
    near = [builder.fcmp_ordered("<=", builder.load(slot), bound) for slot in slots]
    return join_bits(builder, near)


def _gap(builder: Builder, lower: Value, upper: Value, lo: Value, hi: Value) -> Value:
    zero = ir.Constant(lower.type, [0.0] * lower.type.count)
    return larger(
        builder, larger(builder, builder.fsub(lower, hi), builder.fsub(lo, upper)), zero
    )


def _span(builder: Builder, lower: Value, upper: Value, lo: Value, hi: Value) -> Value:
    return larger(builder, builder.fsub(upper, lo), builder.fsub(hi, lower))


@llvm_function(types.uint64, *(types.int64,) * 5, None, None)
def boxes_near(
    builder: Builder,
    lower: Value,
    upper: Value,
    dims: Value,
    low: Value,
    high: Value,
    limit: Value,
    norm: NormValue,
) -> Value:
    """A mask of the boxes, among 64, that are near one box: the total of the gaps is at
    most `limit`.

    `lower`, `upper`: addresses of the 64 boxes, [dims][64] each; for 64 points, both
    are the same address. `low`, `high`: addresses of the bounds of the one box. All
    numbers have the type of `limit`: float32 or float64.

    Gaps are added as the differences of two points are, in the same order. Rounding is
    monotone, so in float64 their total is at most the computed total of any two points
    of the boxes.
    """
    return _compare_boxes(builder, lower, upper, dims, low, high, limit, norm, _gap)


@llvm_function(types.uint64, *(types.int64,) * 5, None, None)
def boxes_within(
    builder: Builder,
    lower: Value,
    upper: Value,
    dims: Value,
    low: Value,
    high: Value,
    limit: Value,
    norm: NormValue,
) -> Value:
    """A mask of the boxes, among 64, whose points are all near all points of one box.

    The total of the spans is then at most `limit`. The span of two boxes in a dimension
    is the largest difference that two of their points can have. Rounding is monotone,
    so in float64 no computed total of two points exceeds the total of the spans.
    Arguments: see `boxes_near`.
    """
    return _compare_boxes(builder, lower, upper, dims, low, high, limit, norm, _span)


@llvm_function(types.float64, *(types.int64,) * 3)
def total_of(builder: Builder, one: Value, other: Value, dims: Value) -> Value:
    """The sum of squared differences of two points at addresses, added in the order of
    the dimensions.
    """
    slot = cgutils.alloca_once_value(builder, ir.Constant(F64, 0.0))
    with cgutils.for_range_slice(builder, const(0), dims, const(1)) as (k, _):
        at = builder.mul(k, const(8))
        a, b = (load(builder, builder.add(side, at), F64, 8) for side in (one, other))
        t = builder.fsub(a, b)
        builder.store(builder.fadd(builder.load(slot), builder.fmul(t, t)), slot)
    return builder.load(slot)


@llvm_function(types.float64, *(types.int64,) * 3)
def squares(builder: Builder, one: Value, other: Value, dims: Value) -> Value:
    """The sum of squared differences of two points at addresses, added in the fastest
    order.
    """
    vector = ir.VectorType(F64, LANES)
    slots = [
        cgutils.alloca_once_value(builder, ir.Constant(kind, zero))
        for kind, zero in ((vector, [0.0] * LANES), (F64, 0.0))
    ]

    def add(k: Value, slot: Value, kind: LLVMType) -> None:
        at = builder.mul(k, const(8))
        a, b = (load(builder, builder.add(side, at), kind, 8) for side in (one, other))
        t = builder.fsub(a, b)
        builder.store(builder.fadd(builder.load(slot), builder.fmul(t, t)), slot)

    whole = builder.and_(dims, const(-LANES))
    with cgutils.for_range_slice(builder, const(0), whole, const(LANES)) as (k, _):
        add(k, slots[0], vector)
    with cgutils.for_range_slice(builder, whole, dims, const(1)) as (k, _):
        add(k, slots[1], F64)
    signature = ir.FunctionType(F64, [F64, vector])
    reduce = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.vector.reduce.fadd.v{LANES}f64"
    )
    return builder.call(
        reduce, [builder.load(slots[1]), builder.load(slots[0])], fastmath=["reassoc"]
    )
