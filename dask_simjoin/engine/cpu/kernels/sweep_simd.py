"""Explicit SIMD of the row sweep: one point against a window of points."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.annotations import (
    Builder,
    Intrinsic,
    LLVMType,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
)
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
    store_compressed,
)


def _sweep_mask(builder: Builder, j: Value, stop: Value, dims: int, base: Value, stride: Value, point: Value,
                threshold: Value, kind: LLVMType, norm: NumbaType) -> Value:  # fmt: skip
    """Which of the points j, j+1, ... < stop are near the point: the float64 decision.

    One rounding for each difference, product and sum, dimensions in order: LLVM never
    contracts a product and a sum into a fused multiply-add unless a flag allows it.
    """
    vector = ir.VectorType(F64, SWEEP_LANES)
    address = builder.add(base, builder.mul(j, const(8)))
    total = None
    for k in range(dims):
        difference = builder.fsub(load(builder, address, vector, 8), point[k])
        (term,) = terms(builder, kind, norm, [difference])
        total = term if total is None else plus(builder, kind, total, term)
        address = builder.add(address, stride)
    lanes = ir.VectorType(I64, SWEEP_LANES)
    iota = ir.Constant(lanes, list(range(SWEEP_LANES)))
    inside = builder.icmp_signed("<", iota, splat(builder, builder.sub(stop, j), lanes))
    return builder.and_(builder.fcmp_ordered("<=", total, splat(builder, threshold, vector)), inside)


def _sweep_loop(
    builder: Builder, kind: NumbaType, args: Values, body: Callable[[Value, Value, Value], Value]
) -> Value:
    """For d = 1, 2, 3, 4: run `body(mask, j, n) -> n` over the window; the last n."""
    dims, base, stride, start, stop, point_at, point_stride, threshold, norm, n0 = args
    vector = ir.VectorType(F64, SWEEP_LANES)
    done = builder.append_basic_block("sweep.done")
    blocks = [builder.append_basic_block(f"sweep.dims{d}") for d in (1, 2, 3, 4)]
    switch = builder.switch(dims, blocks[3])
    for d in (1, 2, 3):
        switch.add_case(const(d), blocks[d - 1])
    results = []
    for d, block in zip((1, 2, 3, 4), blocks, strict=True):
        builder.position_at_end(block)
        point, address = [], point_at
        for _ in range(d):
            point.append(splat(builder, load(builder, address, F64, 8), vector))
            address = builder.add(address, point_stride)
        head = builder.append_basic_block("sweep.head")
        work = builder.append_basic_block("sweep.work")
        before = builder.block
        builder.branch(head)
        builder.position_at_end(head)
        j, n = builder.phi(I64), builder.phi(I64)
        j.add_incoming(start, before)
        n.add_incoming(n0, before)
        results.append((n, builder.block))
        builder.cbranch(builder.icmp_signed("<", j, stop), work, done)
        builder.position_at_end(work)
        mask = _sweep_mask(builder, j, stop, d, base, stride, point, threshold, kind, norm)
        n_next = body(mask, j, n)
        j.add_incoming(builder.add(j, const(SWEEP_LANES)), builder.block)
        n.add_incoming(n_next, builder.block)
        builder.branch(head)
    builder.position_at_end(done)
    last = builder.phi(I64)
    for value, block in results:
        last.add_incoming(value, block)
    return last


@intrinsic
def sweep_pairs(typingctx: TypingContext, dims: NumbaType, base: NumbaType, stride: NumbaType,
                start: NumbaType, stop: NumbaType, point: NumbaType, point_stride: NumbaType,
                threshold: NumbaType, norm: NumbaType, names: NumbaType, name: NumbaType, same: NumbaType,
                left: NumbaType, right: NumbaType, n: NumbaType) -> Intrinsic:  # fmt: skip
    """Append the pairs of one point with the points start <= j < stop; the new number of pairs.

    `base`: address of column 0 (float64), `stride` bytes from one column to the next;
    `point`: address of the point's first coordinate, `point_stride` bytes to its next;
    `names`: address of the points' int32 names, `name` the point's; `same`: name the smaller
    one first.
    """
    sig = types.int64(*(types.int64,) * 7, types.float64, norm, *(types.int64,) * 6)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        *scan, names_at, name_, same_, left_at, right_at, n0 = args
        ids = ir.VectorType(I32, SWEEP_LANES)
        mine = splat(builder, builder.trunc(name_, I32), ids)
        is_same = builder.icmp_signed("!=", same_, const(0))

        def body(mask: Value, j: Value, n: Value) -> Value:
            other = load(builder, builder.add(names_at, builder.mul(j, const(4))), ids, 4)
            swap = builder.icmp_signed("<", other, mine)
            swap = builder.and_(swap, splat(builder, is_same, swap.type))
            at = builder.mul(n, const(4))
            for target, first, second in ((left_at, other, mine), (right_at, mine, other)):
                value = builder.select(swap, first, second)
                store_compressed(builder, value, mask, builder.add(target, at))
            return builder.add(n, builder.ctpop(bits(builder, mask)))

        return _sweep_loop(builder, norm, (*scan, n0), body)

    return sig, codegen


@intrinsic
def sweep_counts(typingctx: TypingContext, dims: NumbaType, base: NumbaType, stride: NumbaType,
                 start: NumbaType, stop: NumbaType, point: NumbaType, point_stride: NumbaType,
                 threshold: NumbaType, norm: NumbaType, counts: NumbaType) -> Intrinsic:  # fmt: skip
    """Number of points start <= j < stop near one point; adds 1 to each one's count.

    `counts`: address of the points' int64 counts; the rest as in `sweep_pairs`.
    """
    sig = types.int64(*(types.int64,) * 7, types.float64, norm, types.int64)

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        *scan, counts_at = args
        kind = ir.VectorType(I64, SWEEP_LANES)

        def body(mask: Value, j: Value, n: Value) -> Value:
            address = builder.add(counts_at, builder.mul(j, const(8)))
            before = load(builder, address, kind, 8)
            store(builder, builder.add(before, builder.zext(mask, kind)), address, 8)
            return builder.add(n, builder.ctpop(bits(builder, mask)))

        return _sweep_loop(builder, norm, (*scan, const(0)), body)

    return sig, codegen
