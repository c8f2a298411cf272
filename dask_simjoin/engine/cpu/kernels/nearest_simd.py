"""Explicit SIMD for nearest neighbors: totals and gaps of a tile, with a limit per lane.

Masks are ``uint64``: bit ``t`` belongs to lane ``t`` of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.simd import (
    F32,
    F64,
    I32,
    Builder,
    Intrinsic,
    LLVMType,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
    bits,
    const,
    load,
    splat,
    store,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import REGISTER
from dask_simjoin.engine.cpu.kernels.totals import Squares, add_terms, larger, zeros
from dask_simjoin.engine.index.cpu_tiles import TILE

VECTORS = 4
"""Vectors of totals that are kept in registers at a time."""

UNROLLED_DIMS = 4
"""Up to this number of dimensions, the code has no loop over them."""


def _by_dims(builder: Builder, dims: Value, kind: LLVMType, emit: Callable[[int | None], None]) -> None:
    """Run ``emit(d)`` for each number of dimensions with specialized code, and ``emit(None)`` for others."""
    if kind.instance_class is not Squares:
        emit(None)
        return
    done = builder.append_basic_block("dims.done")
    general = builder.append_basic_block("dims.any")
    switch = builder.switch(dims, general)
    for d in range(1, UNROLLED_DIMS + 1):
        block = builder.append_basic_block(f"dims.{d}")
        switch.add_case(const(d), block)
        builder.position_at_end(block)
        emit(d)
        builder.branch(done)
    builder.position_at_end(general)
    emit(None)
    builder.branch(done)
    builder.position_at_end(done)


def _totals(builder: Builder, dims: Value, unrolled: int | None, vector: LLVMType, kind: LLVMType,
            norm: NumbaType,
            differences: Callable[[Value], Callable[[int], Value]]) -> list[Value]:  # fmt: skip
    """Emit totals over the dimensions in order; `differences(k)(n)` emits vector n of dimension k."""
    slots = zeros(builder, vector, VECTORS)

    def step(k: Any) -> None:
        add_terms(builder, kind, norm, slots, differences(k))

    if unrolled is None:
        with cgutils.for_range_slice(builder, const(0), dims, const(1)) as (k, _):
            step(k)
    else:
        for k in range(unrolled):
            step(const(k))
    return [builder.load(slot) for slot in slots]


@intrinsic
def tile_totals(typingctx: TypingContext, tile: NumbaType, dims: NumbaType, point: NumbaType,
                limit: NumbaType, out: NumbaType, norm: NumbaType) -> Intrinsic:  # fmt: skip
    """Write the totals between 64 points and one point, by definition; return a mask of totals up to `limit`.

    `tile`: address of float64 [dims][64].  `point`: address of the point's first coordinate in its tile.
    `out`: address of the 64 float64 to write.
    """
    sig = types.uint64(*(types.int64,) * 3, types.float64, types.int64, norm)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        tile_, dims_, point_, limit_, out_, norm_ = args
        vector = ir.VectorType(F64, REGISTER // 8)
        width = REGISTER
        mask = cgutils.alloca_once_value(builder, const(0))

        def emit(unrolled: int | None) -> None:
            bound = splat(builder, limit_, vector)
            for first in range(0, TILE // vector.count, VECTORS):

                def differences(k: Value, first: int = first) -> Value:
                    offset = builder.mul(k, const(TILE * 8))
                    row = builder.add(tile_, offset)
                    p = splat(builder, load(builder, builder.add(point_, offset), F64, 8), vector)

                    def difference(n: int) -> Value:
                        z = load(builder, builder.add(row, const((first + n) * width)), vector, 8)
                        return builder.fsub(z, p)

                    return difference

                totals = _totals(builder, dims_, unrolled, vector, norm, norm_, differences)
                for g, total in enumerate(totals, first):
                    store(builder, total, builder.add(out_, const(g * width)), 8)
                    near = bits(builder, builder.fcmp_ordered("<=", total, bound))
                    near = builder.shl(near, const(g * vector.count))
                    builder.store(builder.or_(builder.load(mask), near), mask)

        _by_dims(builder, dims_, norm, emit)
        return builder.load(mask)

    return sig, codegen


@intrinsic
def lanes_within(typingctx: TypingContext, numbers: NumbaType, limit: NumbaType) -> Intrinsic:
    """Mask of the numbers, among 64 float64 at an address, that are at most `limit`."""
    sig = types.uint64(types.int64, types.float64)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        vector = ir.VectorType(F64, REGISTER // 8)
        bound = splat(builder, args[1], vector)
        mask: Any = const(0)
        for g in range(TILE // vector.count):
            number = load(builder, builder.add(args[0], const(g * REGISTER)), vector, 8)
            near = bits(builder, builder.fcmp_ordered("<=", number, bound))
            mask = builder.or_(mask, builder.shl(near, const(g * vector.count)))
        return mask

    return sig, codegen


@intrinsic
def lanes_other(typingctx: TypingContext, numbers: NumbaType, number: NumbaType) -> Intrinsic:
    """Mask of the numbers, among 64 int32 at an address, that are not `number`."""
    sig = types.uint64(types.int64, types.int32)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        vector = ir.VectorType(I32, REGISTER // 4)
        own = splat(builder, args[1], vector)
        mask: Any = const(0)
        for g in range(TILE // vector.count):
            some = load(builder, builder.add(args[0], const(g * REGISTER)), vector, 4)
            other = bits(builder, builder.icmp_signed("!=", some, own))
            mask = builder.or_(mask, builder.shl(other, const(g * vector.count)))
        return mask

    return sig, codegen


@intrinsic
def box_gaps(typingctx: TypingContext, lower: NumbaType, upper: NumbaType, dims: NumbaType, low: NumbaType,
             high: NumbaType, limits: NumbaType, out: NumbaType, kind: NumbaType,
             norm: NumbaType) -> Intrinsic:  # fmt: skip
    """Write totals of the gaps of 64 boxes to one box; return a mask of the boxes within their limits.

    `lower`, `upper`: addresses of [dims][64] numbers; for points, both are the same.  `low`, `high`:
    addresses of the one box's bounds.  `limits`: address of 64 limits.  `out`: address of the output, 64
    numbers.  All numbers have the type of `kind`.

    In float64, totals of gaps are computed with the operations of totals, in their order.  Rounding is
    monotone, so they are at most the computed total of any two points of the boxes.
    """
    sig = types.uint64(*(types.int64,) * 7, kind, norm)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        lower_, upper_, dims_, low_, high_, limits_, out_, _, norm_ = args
        number, size = (F32, 4) if sig.args[7] == types.float32 else (F64, 8)
        vector = ir.VectorType(number, REGISTER // size)
        width = REGISTER
        mask = cgutils.alloca_once_value(builder, const(0))
        zero = ir.Constant(vector, [0.0] * vector.count)

        def emit(unrolled: int | None) -> None:
            for first in range(0, TILE // vector.count, VECTORS):

                def gaps(k: Value, first: int = first) -> Value:
                    offset = builder.mul(k, const(size))
                    lo = splat(builder, load(builder, builder.add(low_, offset), number, size), vector)
                    hi = splat(builder, load(builder, builder.add(high_, offset), number, size), vector)
                    row = builder.mul(k, const(TILE * size))

                    def gap(n: int) -> Value:
                        at = builder.add(row, const((first + n) * width))
                        a = builder.fsub(load(builder, builder.add(lower_, at), vector, size), hi)
                        b = builder.fsub(lo, load(builder, builder.add(upper_, at), vector, size))
                        return larger(builder, larger(builder, a, b), zero)

                    return gap

                totals = _totals(builder, dims_, unrolled, vector, norm, norm_, gaps)
                for g, total in enumerate(totals, first):
                    at = const(g * width)
                    store(builder, total, builder.add(out_, at), size)
                    limit = load(builder, builder.add(limits_, at), vector, size)
                    near = bits(builder, builder.fcmp_ordered("<=", total, limit))
                    near = builder.shl(near, const(g * vector.count))
                    builder.store(builder.or_(builder.load(mask), near), mask)

        if number is F32:  # the filter only serves more dimensions than have unrolled code
            emit(None)
        else:
            _by_dims(builder, dims_, norm, emit)
        return builder.load(mask)

    return sig, codegen
