"""SIMD of the float32 and the 8-bit filters: a few queries against a tile of 64 points.

The float32 filter differs from `tile_simd` in three ways:

- Queries lie in rows, so the coordinates of a query share few cache lines.
- More queries are compared at a time.  AVX2's two multipliers take four cycles: 12 sums keep them busy, 8
barely do.
- The query's term does not begin the sum, but is compared with it.

The bound of `filters.quantization` holds as well.  A partial sum of start_j and products is at most
N_j/2 + |z_i||z_j| <= N_j + N_i/2 in size.  So all roundings together err by at most g(N_j + N_i/2).  The
comparison is exact.  For a pair, Q is at least (g + u - u**2)(N_i + N_j).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.simd import (
    F32,
    FEATURES,
    I8,
    I32,
    I64,
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
    bits,
    call,
    const,
    load,
    splat,
    store,
    suffix,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import REGISTER
from dask_simjoin.engine.filters.quantization import STEP
from dask_simjoin.engine.index.cpu_tiles import TILE

QUERIES = 6
"""Queries that are compared with a tile at once."""

VECTORS = 4 if REGISTER == 64 else 2
"""Vectors of the tile at a time: this gives 24 sums for AVX-512 (32 registers), and 12 for AVX2 (16)."""

PARTS = TILE * 4 // (VECTORS * REGISTER)
"""Parts of a tile: each stays in a core's first cache while all queries go through it."""

UNROLL = 2


@intrinsic
def part_products(typingctx: TypingContext, tile: NumbaType, start: NumbaType, dims: NumbaType,
                  rows: NumbaType, step: NumbaType, lanes: NumbaType, limits: NumbaType, part: NumbaType,
                  masks: NumbaType) -> Intrinsic:  # fmt: skip
    """Add points z of a tile's part with start + <z, p> >= limit to the masks of 6 queries p.

    Return whether there are any.

    `tile`, `start`, `rows`, `lanes`, `limits` and `masks` are addresses.  `tile` is float32 [dims][64], and
    `start` float32 [64].  `rows` has the queries' coordinates, `step` bytes from one query to the next.
    `lanes` has the 6 int64 numbers of the queries.  `limits` (float32) and `masks` have one item for each
    query of the tile.  `part` is the number of the tile's part.
    """
    sig = types.boolean(*(types.int64,) * 9)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        tile_, start_, dims_, rows_, step_, lanes_, limits_, part_, masks_ = args
        vector = ir.VectorType(F32, REGISTER // 4)
        groups = range(VECTORS)
        begin = builder.mul(part_, const(VECTORS * REGISTER))
        tile_, start_ = builder.add(tile_, begin), builder.add(start_, begin)
        numbers = [load(builder, builder.add(lanes_, const(8 * n)), I64, 8) for n in range(QUERIES)]
        points = [builder.add(rows_, builder.mul(number, step_)) for number in numbers]
        slots = [[cgutils.alloca_once(builder, vector) for _ in groups] for _ in numbers]
        for g in groups:
            first = load(builder, builder.add(start_, const(g * REGISTER)), vector, 4)
            for row in slots:
                builder.store(first, row[g])

        def add(k: Value) -> None:
            at = builder.add(tile_, builder.mul(k, const(TILE * 4)))
            z = [load(builder, builder.add(at, const(g * REGISTER)), vector, 4) for g in groups]
            offset = builder.mul(k, const(4))
            for point, row in zip(points, slots, strict=True):
                p = splat(builder, load(builder, builder.add(point, offset), F32, 4), vector)
                for g, slot in enumerate(row):
                    builder.store(_multiply_add(builder, z[g], p, builder.load(slot)), slot)

        whole = builder.mul(builder.sdiv(dims_, const(UNROLL)), const(UNROLL))
        with cgutils.for_range_slice(builder, const(0), whole, const(UNROLL)) as (k, _):
            for u in range(UNROLL):
                add(builder.add(k, const(u)))
        with cgutils.for_range_slice(builder, whole, dims_, const(1)) as (k, _):
            add(k)
        near = []
        for number, row in zip(numbers, slots, strict=True):
            limit = load(builder, builder.add(limits_, builder.mul(number, const(4))), F32, 4)
            least = splat(builder, limit, vector)
            near.append([builder.fcmp_ordered(">=", builder.load(slot), least) for slot in row])
        # as integers: one instruction collects their sign bits, but booleans would be packed first
        wide = ir.VectorType(I32, vector.count)
        together = functools.reduce(builder.or_, [builder.sext(found, wide) for row in near for found in row])
        signs = builder.icmp_signed("<", together, ir.Constant(wide, [0] * vector.count))
        some = builder.icmp_unsigned("!=", bits(builder, signs), const(0))
        with builder.if_then(some, likely=False):
            shift = builder.mul(part_, const(VECTORS * vector.count))
            for number, row in zip(numbers, near, strict=True):
                at = builder.add(masks_, builder.mul(number, const(8)))
                mask = load(builder, at, I64, 8)
                for g, found in enumerate(row):
                    more = builder.shl(bits(builder, found), const(g * vector.count))
                    mask = builder.or_(mask, builder.shl(more, shift))
                store(builder, mask, at, 8)
        return some

    return sig, codegen


def _multiply_add(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """a * b + c in one rounding or two, whichever is faster: for filters only."""
    return call(builder, f"llvm.fmuladd.{suffix(a.type)}", a.type, a, b, c)


WAYS = tuple(
    way
    for way, features in (("longs", ("avx512vnni", "avxvnni")), ("words", ("avx2",)))
    if any(feature in FEATURES for feature in features)
)
"""How this machine can sum up products of bytes, the fastest first: four at a time in 32 bits (VNNI), or two
in 16 (AVX2)."""

_WIDE = "avx512vnni" in FEATURES and "avx512bw" in FEATURES

LANES = {"longs": 16 if _WIDE else 8, "words": 8}
"""Points per vector; for sums in 16 bits, vectors have 256 bits even if the machine has longer ones."""

QUANTIZED_VECTORS = {"longs": 4 if _WIDE else 2, "words": 2}
"""Vectors of the tile at a time: with 4 queries this gives 8 sums for 16 registers, or 16 sums for 32."""

MULTIPLY_BYTES, MULTIPLY_WORDS = "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"
"""Instructions that multiply unsigned by signed bytes, or signed words, and add products in pairs."""

MULTIPLY_ADD = "llvm.x86.avx512.vpdpbusd"
"""Instruction that multiplies four unsigned by signed bytes, and adds the products to a 32-bit number."""

Slots = list[list[Value]]
"""Slots for sums: a list of vectors for each query."""


def _starts(builder: Builder, first: Value, limits: list[Value], kind: ir.VectorType, size: int,
            vectors: int) -> Slots:  # fmt: skip
    """Allocate the sums of some vectors of a tile, with their initial values."""
    slots = [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in limits]
    longs = ir.VectorType(I32, size // 4)
    for g in range(vectors):
        start = load(builder, builder.add(first, const(g * size)), kind, size)
        for row, limit in zip(slots, limits, strict=True):
            own = builder.bitcast(splat(builder, limit, longs), kind)
            builder.store(builder.sub(start, own), row[g])
    return slots


def _add_up(builder: Builder, tile: Value, steps: Value, points: list[Value], slots: Slots, lanes: int,
            add: Callable[[Value, Value, Value], Value]) -> None:  # fmt: skip
    """Add products of bytes to the sums by `add(sum, tile's vector, query's vector)`."""
    size = lanes * STEP
    loaded = ir.VectorType(I32, lanes)
    with cgutils.for_range_slice(builder, const(0), steps, const(1)) as (k, _):
        at = builder.add(tile, builder.mul(k, const(TILE * STEP)))
        z = [load(builder, builder.add(at, const(g * size)), loaded, size) for g in range(len(slots[0]))]
        offset = builder.mul(k, const(STEP))
        for point, row in zip(points, slots, strict=True):
            p = splat(builder, load(builder, builder.add(point, offset), I32, STEP), loaded)
            for vector, slot in zip(z, row, strict=True):
                builder.store(add(builder.load(slot), vector, p), slot)


def _add_bits(builder: Builder, sums: Slots, some: Value, near: Callable[[Value], Value], shift: Value,
              masks: list[Value]) -> None:  # fmt: skip
    """Add the bits of near points to the masks, if `some` (at run time) is not 0."""
    with builder.if_then(builder.icmp_unsigned("!=", some, const(0)), likely=False):
        for row, mask in zip(sums, masks, strict=True):
            for g, vector in enumerate(row):
                found = bits(builder, near(vector))
                found = builder.shl(found, builder.add(shift, const(g * vector.type.count)))
                builder.store(builder.or_(builder.load(mask), found), mask)


def _in_words(builder: Builder, tile: Value, first: Value, steps: Value, points: list[Value],
              limits: list[Value], least: Value, shift: Value, masks: list[Value]) -> None:  # fmt: skip
    """Filter some vectors of a tile with sums in 16 bits."""
    lanes = LANES["words"]
    every, words = ir.VectorType(I8, lanes * STEP), ir.VectorType(ir.IntType(16), lanes * STEP // 2)
    longs = ir.VectorType(I32, lanes)

    def add(total: Value, z: Value, p: Value) -> Value:
        both = builder.bitcast(z, every), builder.bitcast(p, every)
        return builder.add(total, call(builder, MULTIPLY_BYTES, words, *both))

    slots = _starts(builder, first, limits, words, lanes * STEP, QUANTIZED_VECTORS["words"])
    _add_up(builder, tile, steps, points, slots, lanes, add)
    ones = ir.Constant(words, [1] * words.count)
    sums = [[call(builder, MULTIPLY_WORDS, longs, builder.load(slot), ones) for slot in row] for row in slots]
    bound = splat(builder, least, longs)
    larger = functools.partial(call, builder, f"llvm.smax.v{lanes}i32", longs)
    largest = functools.reduce(larger, [vector for row in sums for vector in row])

    def near(vector: Value) -> Value:
        return builder.icmp_signed(">=", vector, bound)

    _add_bits(builder, sums, bits(builder, near(largest)), near, shift, masks)


def _in_longs(builder: Builder, tile: Value, first: Value, steps: Value, points: list[Value],
              limits: list[Value], least: Value, shift: Value, masks: list[Value]) -> None:  # fmt: skip
    """Filter some vectors of a tile with sums in 32 bits."""
    lanes = LANES["longs"]
    longs = ir.VectorType(I32, lanes)
    add = functools.partial(call, builder, f"{MULTIPLY_ADD}.{lanes * 32}", longs)
    limits = [builder.add(limit, least) for limit in limits]
    slots = _starts(builder, first, limits, longs, lanes * STEP, QUANTIZED_VECTORS["longs"])
    _add_up(builder, tile, steps, points, slots, lanes, add)
    sums = [[builder.load(slot) for slot in row] for row in slots]
    zero = ir.Constant(longs, [0] * lanes)

    def near(vector: Value) -> Value:
        return builder.icmp_signed(">=", vector, zero)

    # a sum's sign bit is its verdict, so one AND over all sums shows that no point is near
    together = functools.reduce(builder.and_, [vector for row in sums for vector in row])
    _add_bits(builder, sums, bits(builder, near(together)), near, shift, masks)


def _filter(way: str) -> Any:
    """Return the filter for this kind of sums: see `WAYS`."""
    some = {"words": _in_words, "longs": _in_longs}[way]

    @intrinsic
    def quantized_filter(typingctx: TypingContext, tile: NumbaType, first: NumbaType, steps: NumbaType,
                         rows: NumbaType, take: NumbaType, i0: NumbaType, i1: NumbaType, i2: NumbaType,
                         i3: NumbaType, least: NumbaType, passing: NumbaType,
                         out: NumbaType) -> Intrinsic:  # fmt: skip
        """Test 4 queries: is first - take + <A, b>, or the sum of its 16-bit halves, at least `least`?

        `tile`, `first`, `rows`, `take` and `out` are addresses.  `tile` has the points' bytes [steps][64][4],
        and `first` 64 int32, or pairs of int16.  `rows` has the bytes [steps][4] of all queries, and `take`
        their int32, or pairs of int16.  `i0..i3` number the 4 queries.  `passing` is the mask of points that
        always pass.  Returns the union of the four masks.  If that is not 0, the masks are written at `out`.
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
            number = LANES[way] * QUANTIZED_VECTORS[way]
            for begin in range(0, TILE, number):
                here = builder.add(tile, const(begin * STEP)), builder.add(first, const(begin * STEP))
                some(builder, *here, steps, points, limits, least, const(begin), masks)
            found = [builder.load(mask) for mask in masks]
            union = functools.reduce(builder.or_, found)
            with builder.if_then(builder.icmp_unsigned("!=", union, const(0)), likely=False):
                for q, mask in enumerate(found):
                    store(builder, mask, builder.add(out, const(8 * q)), 8)
            return union

        return sig, codegen

    return quantized_filter


FILTERS = {way: _filter(way) for way in WAYS}
