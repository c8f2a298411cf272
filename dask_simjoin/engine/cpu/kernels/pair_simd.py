"""Sums of squares of two points whose coordinates lie side by side, at addresses."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
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
from dask_simjoin.engine.cpu.kernels.vectors import F64, const, load

LANES = 8
"""Coordinates that are added at a time."""


@intrinsic
def total_of(typingctx: TypingContext, one: NumbaType, other: NumbaType, dims: NumbaType) -> Intrinsic:
    """The float64 total of squares of two points whose coordinates lie at addresses, added one by one."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        one_, other_, dims_ = args
        slot = cgutils.alloca_once_value(builder, ir.Constant(F64, 0.0))
        with cgutils.for_range_slice(builder, const(0), dims_, const(1)) as (k, _):
            at = builder.mul(k, const(8))
            a, b = (load(builder, builder.add(side, at), F64, 8) for side in (one_, other_))
            t = builder.fsub(a, b)
            builder.store(builder.fadd(builder.load(slot), builder.fmul(t, t)), slot)
        return builder.load(slot)

    return types.float64(*(types.int64,) * 3), codegen


@intrinsic
def squares(typingctx: TypingContext, one: NumbaType, other: NumbaType, dims: NumbaType) -> Intrinsic:
    """Sum of squares of the differences of two rows of float64 at addresses, in an order that is fast."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        one_, other_, dims_ = args
        vector = ir.VectorType(F64, LANES)
        slots = [cgutils.alloca_once_value(builder, ir.Constant(kind, zero))
                 for kind, zero in ((vector, [0.0] * LANES), (F64, 0.0))]  # fmt: skip

        def add(k: Value, slot: Value, kind: LLVMType) -> None:
            at = builder.mul(k, const(8))
            a, b = (load(builder, builder.add(side, at), kind, 8) for side in (one_, other_))
            t = builder.fsub(a, b)
            builder.store(builder.fadd(builder.load(slot), builder.fmul(t, t)), slot)

        whole = builder.and_(dims_, const(-LANES))
        with cgutils.for_range_slice(builder, const(0), whole, const(LANES)) as (k, _):
            add(k, slots[0], vector)
        with cgutils.for_range_slice(builder, whole, dims_, const(1)) as (k, _):
            add(k, slots[1], F64)
        signature = ir.FunctionType(F64, [F64, vector])
        reduce = cgutils.get_or_insert_function(
            builder.module, signature, f"llvm.vector.reduce.fadd.v{LANES}f64"
        )
        return builder.call(reduce, [builder.load(slots[1]), builder.load(slots[0])], fastmath=["reassoc"])

    return types.float64(*(types.int64,) * 3), codegen
