"""Compare the bitmap of one set with those of many, some at a time, at addresses."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.annotations import Builder as Builder
from dask_simjoin.engine.cpu.kernels.annotations import (
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
)
from dask_simjoin.engine.cpu.kernels.vectors import I64, bits, call, const, load, splat

LANES = 16
"""Bitmaps that are compared at once: rows of them are padded by this."""

VECTOR = ir.VectorType(I64, LANES)


@intrinsic
def similar_bits(typingctx: TypingContext, base: NumbaType, stride: NumbaType, words: NumbaType,
                 probe: NumbaType, most: NumbaType) -> Intrinsic:  # fmt: skip
    """Tell, as the low bits of a number, which of the bitmaps that lie at `base` differ in few bits.

    Their first words lie one behind the other, their second ones `stride` bytes further, and so on; those of
    the bitmap at `probe` one behind the other.  Few: at most `most`.
    """

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        base_, stride_, words_, probe_, most_ = args
        slot = cgutils.alloca_once_value(builder, ir.Constant(VECTOR, [0] * LANES))
        with cgutils.for_range_slice(builder, const(0), words_, const(1)) as (w, _):
            those = load(builder, builder.add(base_, builder.mul(w, stride_)), VECTOR, 8)
            own = load(builder, builder.add(probe_, builder.mul(w, const(8))), I64, 8)
            differ = builder.xor(those, splat(builder, own, VECTOR))
            count = call(builder, f"llvm.ctpop.v{LANES}i64", VECTOR, differ)
            builder.store(builder.add(builder.load(slot), count), slot)
        near = builder.icmp_signed("<=", builder.load(slot), splat(builder, most_, VECTOR))
        return bits(builder, near)

    return types.int64(*(types.int64,) * 5), codegen
