"""Explicit SIMD of the nearest neighbours' float32 filter: some queries against a tile of 64.

It is that of `tile_simd` with three differences.  Queries lie in rows, so that each one's coordinates
share few cache lines.  More queries go through at a time: with 8 sums AVX2's two multipliers, which take
four cycles, would just be busy, with 12 they are.  And the query's term is compared with the sum instead
of beginning it, for which the bound of `index.filter` holds as well: a partial sum of start_j and
products is at most N_j/2 + |z_i||z_j| <= N_j + N_i/2 in size, so all roundings together err by at most
g(N_j + N_i/2); comparing errs by nothing; and for a pair Q is at least (g + u - u**2)(N_i + N_j).
"""

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
from dask_simjoin.engine.cpu.kernels.tile_simd import REGISTER
from dask_simjoin.engine.cpu.kernels.vectors import (
    F32,
    I32,
    I64,
    bits,
    call,
    const,
    load,
    splat,
    store,
    suffix,
)
from dask_simjoin.engine.index.tiles import TILE

QUERIES = 6
"""Queries that go through a tile together."""

VECTORS = 4 if REGISTER == 64 else 2
"""Vectors of the tile at a time: 24 sums in the 32 registers of AVX-512, 12 in the 16 of AVX2."""

PARTS = TILE * 4 // (VECTORS * REGISTER)
"""Parts of a tile: each stays in a core's first cache while all queries go through it."""

UNROLL = 2


@intrinsic
def part_products(typingctx: TypingContext, tile: NumbaType, start: NumbaType, dims: NumbaType,
                  rows: NumbaType, step: NumbaType, lanes: NumbaType, limits: NumbaType, part: NumbaType,
                  masks: NumbaType) -> Intrinsic:  # fmt: skip
    """For 6 queries p add to their masks the points of a tile's part with start + <z, p> >= limit; if any.

    `tile`: address of float32 [dims][64]; `start`: of 64 float32; `rows`: of the queries' coordinates,
    `step` bytes from one query's to the next; `lanes`: of the 6 int64 numbers of queries; `limits`,
    `masks`: of all queries' float32 limits and masks; `part`: which part of the tile.
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
        # as integers, whose sign bits one instruction collects; booleans would first be packed
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
