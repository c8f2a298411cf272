"""Explicit SIMD of the 8-bit filter (see `index.quantized`): 4 queries against a tile of 64."""

from __future__ import annotations

import functools

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.annotations import (
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
)
from dask_simjoin.engine.cpu.kernels.vectors import FEATURES, I8, I32, bits, call, const, load, splat, store
from dask_simjoin.engine.filters.int8 import STEP
from dask_simjoin.engine.index.tiles import TILE

AVAILABLE = "avx2" in FEATURES
"""Whether the machine multiplies bytes and adds the products in pairs."""

LANES = 8
"""Points of a vector: of 256 bits also where there are longer ones."""

VECTORS = 2
"""Vectors of the tile at a time: with 4 queries 8 sums in 16 registers."""

MULTIPLY_BYTES, MULTIPLY_WORDS = "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"
"""Products of bytes without and with a sign, or of signed words, two of them added."""

BYTES, WORDS = ir.VectorType(I8, LANES * STEP), ir.VectorType(ir.IntType(16), LANES * STEP // 2)
LONGS = ir.VectorType(I32, LANES)


def _sums(builder: Builder, tile: Value, first: Value, steps: Value, points: list[Value],
          limits: list[Value]) -> list[Value]:  # fmt: skip
    """Sums of both halves (int32) of each query and some vectors of a tile."""
    size = LANES * STEP
    slots = [[cgutils.alloca_once(builder, WORDS) for _ in range(VECTORS)] for _ in points]
    for g in range(VECTORS):
        start = load(builder, builder.add(first, const(g * size)), WORDS, size)
        for row, limit in zip(slots, limits, strict=True):
            own = builder.bitcast(splat(builder, limit, LONGS), WORDS)
            builder.store(builder.sub(start, own), row[g])
    with cgutils.for_range_slice(builder, const(0), steps, const(1)) as (k, _):
        at = builder.add(tile, builder.mul(k, const(TILE * STEP)))
        z = [load(builder, builder.add(at, const(g * size)), BYTES, size) for g in range(VECTORS)]
        offset = builder.mul(k, const(STEP))
        for point, row in zip(points, slots, strict=True):
            p = splat(builder, load(builder, builder.add(point, offset), I32, STEP), LONGS)
            for vector, slot in zip(z, row, strict=True):
                product = call(builder, MULTIPLY_BYTES, WORDS, vector, builder.bitcast(p, BYTES))
                builder.store(builder.add(builder.load(slot), product), slot)
    ones = ir.Constant(WORDS, [1] * WORDS.count)
    return [call(builder, MULTIPLY_WORDS, LONGS, builder.load(slot), ones) for row in slots for slot in row]


def _put_bits(builder: Builder, sums: list[Value], least: Value, shift: Value, masks: list[Value]) -> None:
    """Add the bits of those that are large enough to the masks."""
    bound = splat(builder, least, LONGS)
    largest = functools.reduce(lambda a, b: call(builder, f"llvm.smax.v{LANES}i32", LONGS, a, b), sums)
    some = bits(builder, builder.icmp_signed(">=", largest, bound))
    with builder.if_then(builder.icmp_unsigned("!=", some, const(0)), likely=False):
        for q, mask in enumerate(masks):
            for g in range(VECTORS):
                near = bits(builder, builder.icmp_signed(">=", sums[q * VECTORS + g], bound))
                near = builder.shl(near, builder.add(shift, const(g * LANES)))
                builder.store(builder.or_(builder.load(mask), near), mask)


@intrinsic
def quantized_filter(typingctx: TypingContext, tile: NumbaType, first: NumbaType, steps: NumbaType,
                     rows: NumbaType, take: NumbaType, i0: NumbaType, i1: NumbaType, i2: NumbaType,
                     i3: NumbaType, least: NumbaType, passing: NumbaType,
                     out: NumbaType) -> Intrinsic:  # fmt: skip
    """For 4 queries: are the halves of first - take + <A, b>, of 16 bits each, at least `least` together?

    `tile`: address of bytes [steps][64][4]; `first`: of 64 pairs of int16; `rows`: of all queries' bytes
    [steps][4]; `take`: of their pairs of int16; `i0..i3`: which queries; `passing`: mask of points for which
    the answer is yes in any case.  Returns the union of the four masks; if that is not 0 they are written at
    `out`.
    """
    sig = types.uint64(*(types.int64,) * 9, types.int32, types.uint64, types.int64)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        tile, first, steps, rows, take = args[:5]
        numbers = args[5:9]
        least, passing, out = args[9:]
        step = builder.mul(steps, const(STEP))
        points = [builder.add(rows, builder.mul(i, step)) for i in numbers]
        limits = [load(builder, builder.add(take, builder.mul(i, const(4))), I32, 4) for i in numbers]
        masks = [cgutils.alloca_once_value(builder, passing) for _ in points]
        size = VECTORS * LANES * STEP
        for part in range(TILE // (LANES * VECTORS)):
            here = builder.add(tile, const(part * size)), builder.add(first, const(part * size))
            sums = _sums(builder, *here, steps, points, limits)
            _put_bits(builder, sums, least, const(part * LANES * VECTORS), masks)
        found = [builder.load(mask) for mask in masks]
        union = functools.reduce(builder.or_, found)
        with builder.if_then(builder.icmp_unsigned("!=", union, const(0)), likely=False):
            for q, mask in enumerate(found):
                store(builder, mask, builder.add(out, const(8 * q)), 8)
        return union

    return sig, codegen
