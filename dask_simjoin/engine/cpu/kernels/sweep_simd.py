"""Explicit SIMD of the row sweep: one point against 16 points of a row."""

from __future__ import annotations

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
from dask_simjoin.engine.cpu.kernels.compress import store_compressed
from dask_simjoin.engine.cpu.kernels.totals import plus, terms
from dask_simjoin.engine.cpu.kernels.vectors import (
    F64,
    I32,
    I64,
    SWEEP_LANES,
    bits,
    const,
    load,
    splat,
    store,
)

DIMS = (1, 2, 3, 4)
"""For which there is code."""

_NUMBERS = ir.VectorType(F64, SWEEP_LANES)


@intrinsic
def first_within(typingctx: TypingContext, numbers: NumbaType, x: NumbaType, reach: NumbaType) -> Intrinsic:
    """How many of 16 ascending numbers at an address come before the first y with x - y <= reach."""
    sig = types.int64(types.int64, types.float64, types.float64)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        at, x, most = args
        away = builder.fsub(splat(builder, x, _NUMBERS), load(builder, at, _NUMBERS, 8))
        within = bits(builder, builder.fcmp_unordered("<=", away, splat(builder, most, _NUMBERS)))
        within = builder.or_(within, const(1 << SWEEP_LANES))
        return builder.cttz(within, ir.Constant(ir.IntType(1), 1))

    return sig, codegen


@intrinsic
def sweep_near(typingctx: TypingContext, dims: NumbaType, base: NumbaType, stride: NumbaType, j: NumbaType,
               stop: NumbaType, point: NumbaType, point_stride: NumbaType, threshold: NumbaType,
               norm: NumbaType, totals: NumbaType) -> Intrinsic:  # fmt: skip
    """Mask of those of the points j ... j+15, before `stop`, near a point: the float64 decision.

    One rounding for each difference, product and sum, dimensions in order: LLVM never
    contracts a product and a sum into a fused multiply-add unless a flag allows it.
    `base`: address of column 0 (float64), `stride` bytes from one column to the next;
    `point`: address of the point's first coordinate, `point_stride` bytes to its next;
    `totals`: where to write the 16 totals, or 0.
    """
    sig = types.uint64(*(types.int64,) * 7, types.float64, norm, types.int64)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        dims, base, stride, j, stop, point, point_stride, threshold, norm_, totals = args
        first = builder.add(base, builder.mul(j, const(8)))
        done = builder.append_basic_block("near.done")
        blocks = [builder.append_basic_block(f"near.dims{d}") for d in DIMS]
        switch = builder.switch(dims, blocks[-1])
        for d, block in zip(DIMS[:-1], blocks, strict=False):
            switch.add_case(const(d), block)
        results = []
        for d, block in zip(DIMS, blocks, strict=True):
            builder.position_at_end(block)
            total, at, own = None, first, point
            for _ in range(d):
                p = splat(builder, load(builder, own, F64, 8), _NUMBERS)
                difference = builder.fsub(load(builder, at, _NUMBERS, 8), p)
                (term,) = terms(builder, norm, norm_, [difference])
                total = term if total is None else plus(builder, norm, total, term)
                at, own = builder.add(at, stride), builder.add(own, point_stride)
            results.append((total, builder.block))
            builder.branch(done)
        builder.position_at_end(done)
        total = builder.phi(_NUMBERS)
        for value, block in results:
            total.add_incoming(value, block)
        with builder.if_then(builder.icmp_signed("!=", totals, const(0)), likely=False):
            store(builder, total, totals, 8)
        near = bits(builder, builder.fcmp_ordered("<=", total, splat(builder, threshold, _NUMBERS)))
        left = builder.sub(stop, j)
        few = builder.icmp_signed("<", left, const(SWEEP_LANES))
        inside = builder.sub(builder.shl(const(1), builder.select(few, left, const(0))), const(1))
        return builder.and_(near, builder.select(few, inside, const((1 << SWEEP_LANES) - 1)))

    return sig, codegen


@intrinsic
def within_limit(typingctx: TypingContext, totals: NumbaType, limit: NumbaType) -> Intrinsic:
    """Mask of those of 16 float64 at an address that are at most a limit."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        at, limit = args
        return bits(builder, builder.fcmp_ordered("<=", load(builder, at, _NUMBERS, 8),
                                                  splat(builder, limit, _NUMBERS)))  # fmt: skip

    return types.uint64(types.int64, types.float64), codegen


@intrinsic
def sweep_write(typingctx: TypingContext, mask: NumbaType, j: NumbaType, order: NumbaType, mine: NumbaType,
                names: NumbaType, name: NumbaType, turn: NumbaType, left: NumbaType,
                right: NumbaType) -> Intrinsic:  # fmt: skip
    """Write the names of a point and of those of the points j ... j+15 that a mask selects side by side.

    `names`: address of the points' names, of the type of `name`, which is the point's; `left`, `right`: where
    to write.  `order`: address of the points' int32 positions, `mine` the point's; `turn`: the point of the
    smaller position is the left one.
    """
    sig = types.void(types.uint64, *(types.int64,) * 4, name, *(types.int64,) * 3)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        mask, j, order, mine, names_at, name_, turn, left_at, right_at = args
        kind, size = (I32, 4) if sig.args[5] == types.int32 else (I64, 8)
        vector, longs = ir.VectorType(kind, SWEEP_LANES), ir.VectorType(I32, SWEEP_LANES)
        other = load(builder, builder.add(names_at, builder.mul(j, const(size))), vector, size)
        own = splat(builder, name_, vector)
        pair = [cgutils.alloca_once_value(builder, value) for value in (own, other)]
        with builder.if_then(builder.icmp_signed("!=", turn, const(0)), likely=True):
            positions = load(builder, builder.add(order, builder.mul(j, const(4))), longs, 4)
            earlier = builder.icmp_signed("<", positions, splat(builder, builder.trunc(mine, I32), longs))
            builder.store(builder.select(earlier, other, own), pair[0])
            builder.store(builder.select(earlier, own, other), pair[1])
        for slot, address in zip(pair, (left_at, right_at), strict=True):
            store_compressed(builder, builder.load(slot), mask, address)
        return context.get_dummy_value()

    return sig, codegen


@intrinsic
def keep_totals(typingctx: TypingContext, mask: NumbaType, totals: NumbaType, out: NumbaType) -> Intrinsic:
    """Write those of 16 float64 at an address that a mask selects side by side."""
    sig = types.void(types.uint64, types.int64, types.int64)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        mask, totals, out = args
        store_compressed(builder, load(builder, totals, _NUMBERS, 8), mask, out)
        return context.get_dummy_value()

    return sig, codegen
