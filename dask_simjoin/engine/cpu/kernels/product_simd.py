"""Vector code that compares queries with a tile, for two filters: float32 for neighbor
searches, and 8-bit.

This float32 filter differs from the filter for joins in `tile_simd` in three ways:

- Queries are stored by row, so reading the coordinates of one query touches few cache
  lines.
- It compares 6 queries at a time instead of 4. AVX2 has two multipliers, each with a
  latency of four cycles: 12 independent sums keep them busy, but 8 barely do.
- The query's term is not added to the start of the sum. Instead, the complete sum is
  compared with it.

The bound of `filters.quantization` also holds for this order of operations. A partial
sum of start_j and products is at most N_j/2 + |z_i||z_j| <= N_j + N_i/2 in absolute
value. So the error of all roundings is at most g(N_j + N_i/2), and the comparison is
exact. For a pair, Q is at least (g + u - u**2)(N_i + N_j).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.jit import inline_source
from dask_simjoin.engine.cpu.kernels.simd import (
    F32,
    FEATURES,
    I8,
    I32,
    I64,
    Builder,
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
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    NONE,
    ONE,
    REGISTER,
    accumulate,
    lowest_bit,
)
from dask_simjoin.engine.filters.quantization import STEP
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array

QUERIES = 6
"""Number of queries that are compared with a tile at a time."""

VECTORS = 4 if REGISTER == 64 else 2
"""Number of vectors of the tile that are compared at a time.

With 6 queries this gives 24 sums for the 32 registers of AVX-512, or 12 sums for the 16
registers of AVX2.
"""


@llvm_function(types.boolean, *(types.int64,) * 9)
def part_products(
    builder: Builder,
    tile: Value,
    start: Value,
    dims: Value,
    rows: Value,
    step: Value,
    lanes: Value,
    limits: Value,
    part: Value,
    masks: Value,
) -> Value:
    """Filter one part of a tile for 6 queries. Add the points that pass to the queries'
    masks.

    A point z passes for query p if start + <z, p> >= limit. Return whether any point
    passes.

    `tile`: address of float32 [dims][64], the points. `start`: address of their float32
    [64] terms. `rows`: address of the queries' coordinates, `step` bytes apart.
    `lanes`: address of the 6 queries' numbers in their tile, int64. `limits`, `masks`:
    addresses of float32 and uint64 items, one for each query of the tile. `part`:
    number of the part.
    """
    vector = ir.VectorType(F32, REGISTER // 4)
    groups = range(VECTORS)
    begin = builder.mul(part, const(VECTORS * REGISTER))
    tile, start = builder.add(tile, begin), builder.add(start, begin)
    numbers = [
        load(builder, builder.add(lanes, const(8 * n)), I64, 8) for n in range(QUERIES)
    ]
    points = [builder.add(rows, builder.mul(number, step)) for number in numbers]
    slots = [[cgutils.alloca_once(builder, vector) for _ in groups] for _ in numbers]
    for g in groups:
        first = load(builder, builder.add(start, const(g * REGISTER)), vector, 4)
        for row in slots:
            builder.store(first, row[g])

    def add(k: Value) -> None:
        at = builder.add(tile, builder.mul(k, const(TILE * 4)))
        z = [
            load(builder, builder.add(at, const(g * REGISTER)), vector, 4)
            for g in groups
        ]
        offset = builder.mul(k, const(4))
        for point, row in zip(points, slots, strict=True):
            p = splat(
                builder, load(builder, builder.add(point, offset), F32, 4), vector
            )
            for g, slot in enumerate(row):
                builder.store(multiply_add(builder, z[g], p, builder.load(slot)), slot)

    accumulate(builder, dims, add, 2)
    near = []
    for number, row in zip(numbers, slots, strict=True):
        limit = load(
            builder, builder.add(limits, builder.mul(number, const(4))), F32, 4
        )
        least = splat(builder, limit, vector)
        near.append(
            [builder.fcmp_ordered(">=", builder.load(slot), least) for slot in row]
        )
    # extended to integers, because one instruction collects their sign bits; booleans
    # would need packing first
    wide = ir.VectorType(I32, vector.count)
    together = functools.reduce(
        builder.or_, [builder.sext(found, wide) for row in near for found in row]
    )
    signs = builder.icmp_signed("<", together, ir.Constant(wide, [0] * vector.count))
    some = builder.icmp_unsigned("!=", bits(builder, signs), const(0))
    with builder.if_then(some, likely=False):
        shift = builder.mul(part, const(VECTORS * vector.count))
        for number, row in zip(numbers, near, strict=True):
            at = builder.add(masks, builder.mul(number, const(8)))
            mask = load(builder, at, I64, 8)
            for g, found in enumerate(row):
                more = builder.shl(bits(builder, found), const(g * vector.count))
                mask = builder.or_(mask, builder.shl(more, shift))
            store(builder, mask, at, 8)
    return some


@inline_source
def filter_tile(
    z: Array,
    start: Array,
    b: int,
    wanted: np.uint64,
    points: Array,
    picked: Array,
    limit: Array,
    masks: Array,
) -> bool:
    """Run the float32 filter on tile `b` for each `wanted` query; fill `masks` with the
    points that pass.

    Return whether any point passes. `z`, `start`: see `scan.FilterScan`. `points`,
    `limit`: coordinates and limits of the queries, from `nearest_scan.begin` and
    `nearest_scan.limit_filter`. `picked`: scratch.
    """
    tile = z.ctypes.data + b * z.strides[0]
    begins = start.ctypes.data + b * start.strides[0]
    n = 0
    left = wanted
    while left != NONE:
        picked[n] = lowest_bit(left)
        left &= left - ONE
        n += 1
    while n % QUERIES > 0:
        # fill up with dummy queries to a multiple of `QUERIES`; no point passes for a
        # dummy
        picked[n] = TILE
        n += 1
    for t in range(masks.size):
        masks[t] = NONE
    some = False
    # a part of the tile stays in the first-level cache while all queries are compared
    for part in range(TILE * 4 // (VECTORS * REGISTER)):
        for group in range(0, n, QUERIES):
            some |= part_products(
                tile,
                begins,
                z.shape[1],
                points.ctypes.data,
                points.strides[0],
                picked.ctypes.data + group * 8,
                limit.ctypes.data,
                part,
                masks.ctypes.data,
            )
    return some


WAYS = tuple(
    way
    for way, features in (("longs", ("avx512vnni", "avxvnni")), ("words", ("avx2",)))
    if any(feature in FEATURES for feature in features)
)
"""The ways to sum products of bytes that this machine supports, the fastest first.

"longs" adds four products at a time to a 32-bit sum (VNNI). "words" adds two products
to a 16-bit sum (AVX2).
"""

_WIDE = "avx512vnni" in FEATURES and "avx512bw" in FEATURES

LANES = {"longs": 16 if _WIDE else 8, "words": 8}
"""Way -> points per vector. "words" uses vectors of 256 bits, even if the machine has
longer ones.
"""

QUANTIZED_VECTORS = {"longs": 4 if _WIDE else 2, "words": 2}
"""Way -> number of vectors of the tile that are compared at a time.

With 4 queries this gives 8 sums for 16 registers, or 16 sums for 32 registers.
"""

MULTIPLY_BYTES, MULTIPLY_WORDS = "llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"
"""Instructions that multiply two vectors, and add each two neighboring products.

The first multiplies unsigned by signed bytes, and the second multiplies signed words.
"""

MULTIPLY_ADD = "llvm.x86.avx512.vpdpbusd"
"""Instruction that multiplies four unsigned by four signed bytes, and adds the products
to a 32-bit sum.
"""

Slots = list[list[Value]]
"""For each query a list of slots. A slot is a variable for one vector of sums."""


def _starts(
    builder: Builder,
    first: Value,
    limits: list[Value],
    kind: ir.VectorType,
    size: int,
    vectors: int,
) -> Slots:
    """Allocate the sums for some vectors of a tile, and set their initial values."""
    slots = [
        [cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in limits
    ]
    longs = ir.VectorType(I32, size // 4)
    for g in range(vectors):
        start = load(builder, builder.add(first, const(g * size)), kind, size)
        for row, limit in zip(slots, limits, strict=True):
            own = builder.bitcast(splat(builder, limit, longs), kind)
            builder.store(builder.sub(start, own), row[g])
    return slots


def _add_up(
    builder: Builder,
    tile: Value,
    steps: Value,
    points: list[Value],
    slots: Slots,
    lanes: int,
    add: Callable[[Value, Value, Value], Value],
) -> None:
    """Add all products of bytes to the sums; `add(total, z, p)` emits one step, for a
    tile and a query.
    """
    size = lanes * STEP
    loaded = ir.VectorType(I32, lanes)
    with cgutils.for_range_slice(builder, const(0), steps, const(1)) as (k, _):
        at = builder.add(tile, builder.mul(k, const(TILE * STEP)))
        z = [
            load(builder, builder.add(at, const(g * size)), loaded, size)
            for g in range(len(slots[0]))
        ]
        offset = builder.mul(k, const(STEP))
        for point, row in zip(points, slots, strict=True):
            p = splat(
                builder, load(builder, builder.add(point, offset), I32, STEP), loaded
            )
            for vector, slot in zip(z, row, strict=True):
                builder.store(add(builder.load(slot), vector, p), slot)


def _add_bits(
    builder: Builder,
    sums: Slots,
    some: Value,
    near: Callable[[Value], Value],
    shift: Value,
    masks: list[Value],
) -> None:
    """Add the bits of near points to the masks. If `some` is 0 at run time, no point is
    near: skip this.
    """
    with builder.if_then(builder.icmp_unsigned("!=", some, const(0)), likely=False):
        for row, mask in zip(sums, masks, strict=True):
            for g, vector in enumerate(row):
                found = bits(builder, near(vector))
                found = builder.shl(
                    found, builder.add(shift, const(g * vector.type.count))
                )
                builder.store(builder.or_(builder.load(mask), found), mask)


def _in_words(
    builder: Builder,
    tile: Value,
    first: Value,
    steps: Value,
    points: list[Value],
    limits: list[Value],
    least: Value,
    shift: Value,
    masks: list[Value],
) -> None:
    """Run the 8-bit filter on some vectors of a tile, with 16-bit sums."""
    lanes = LANES["words"]
    every, words = (
        ir.VectorType(I8, lanes * STEP),
        ir.VectorType(ir.IntType(16), lanes * STEP // 2),
    )
    longs = ir.VectorType(I32, lanes)

    def add(total: Value, z: Value, p: Value) -> Value:
        both = builder.bitcast(z, every), builder.bitcast(p, every)
        return builder.add(total, call(builder, MULTIPLY_BYTES, words, *both))

    slots = _starts(
        builder, first, limits, words, lanes * STEP, QUANTIZED_VECTORS["words"]
    )
    _add_up(builder, tile, steps, points, slots, lanes, add)
    ones = ir.Constant(words, [1] * words.count)
    sums = [
        [call(builder, MULTIPLY_WORDS, longs, builder.load(slot), ones) for slot in row]
        for row in slots
    ]
    bound = splat(builder, least, longs)
    larger = functools.partial(call, builder, f"llvm.smax.v{lanes}i32", longs)
    largest = functools.reduce(larger, [vector for row in sums for vector in row])

    def near(vector: Value) -> Value:
        return builder.icmp_signed(">=", vector, bound)

    _add_bits(builder, sums, bits(builder, near(largest)), near, shift, masks)


def _in_longs(
    builder: Builder,
    tile: Value,
    first: Value,
    steps: Value,
    points: list[Value],
    limits: list[Value],
    least: Value,
    shift: Value,
    masks: list[Value],
) -> None:
    """Run the 8-bit filter on some vectors of a tile, with 32-bit sums."""
    lanes = LANES["longs"]
    longs = ir.VectorType(I32, lanes)
    add = functools.partial(call, builder, f"{MULTIPLY_ADD}.{lanes * 32}", longs)
    limits = [builder.add(limit, least) for limit in limits]
    slots = _starts(
        builder, first, limits, longs, lanes * STEP, QUANTIZED_VECTORS["longs"]
    )
    _add_up(builder, tile, steps, points, slots, lanes, add)
    sums = [[builder.load(slot) for slot in row] for row in slots]
    zero = ir.Constant(longs, [0] * lanes)

    def near(vector: Value) -> Value:
        return builder.icmp_signed(">=", vector, zero)

    # a near point's sum has no sign bit, so the AND of all sums lacks it in a lane with
    # a near point
    together = functools.reduce(
        builder.and_, [vector for row in sums for vector in row]
    )
    _add_bits(builder, sums, bits(builder, near(together)), near, shift, masks)


def _filter(way: str) -> Any:
    """Make the 8-bit filter that sums in the way `way`: see `WAYS`."""
    some = {"words": _in_words, "longs": _in_longs}[way]

    @llvm_function(
        types.uint64,
        *(types.int64,) * 5,
        types.UniTuple(types.int64, 4),
        types.int32,
        types.uint64,
        types.int64,
    )
    def quantized_filter(
        builder: Builder,
        tile: Value,
        first: Value,
        steps: Value,
        rows: Value,
        take: Value,
        queries: Value,
        least: Value,
        passing: Value,
        out: Value,
    ) -> Value:
        """Find the points of a tile that pass for 4 queries. A point passes if first -
        take + <A, b> >= `least`.

        With 16-bit sums, this is the sum of two halves. Return the union of the four
        masks of points. If it is not 0, write the four masks at the address `out`.

        `tile`: address of the points' bytes [steps][64][4]. `first`: address of their
        terms, 64 int32 or pairs of int16. `rows`: address of all queries' bytes
        [steps][4]. `take`: address of their terms, int32 or pairs of int16. `queries`:
        numbers of the 4 queries. `passing`: mask of points that always pass.
        """
        numbers = cgutils.unpack_tuple(builder, queries, 4)
        step = builder.mul(steps, const(STEP))
        points = [builder.add(rows, builder.mul(i, step)) for i in numbers]
        limits = [
            load(builder, builder.add(take, builder.mul(i, const(4))), I32, 4)
            for i in numbers
        ]
        masks = [cgutils.alloca_once_value(builder, passing) for _ in points]
        number = LANES[way] * QUANTIZED_VECTORS[way]
        for begin in range(0, TILE, number):
            here = (
                builder.add(tile, const(begin * STEP)),
                builder.add(first, const(begin * STEP)),
            )
            some(builder, *here, steps, points, limits, least, const(begin), masks)
        found = [builder.load(mask) for mask in masks]
        union = functools.reduce(builder.or_, found)
        with builder.if_then(
            builder.icmp_unsigned("!=", union, const(0)), likely=False
        ):
            for q, mask in enumerate(found):
                store(builder, mask, builder.add(out, const(8 * q)), 8)
        return union

    return quantized_filter


FILTERS = {way: _filter(way) for way in WAYS}
