"""What lies at an address: for loops in which arrays would cost the counting of references."""

from __future__ import annotations

from typing import Any

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
from dask_simjoin.engine.cpu.kernels.vectors import F32, F64, I32, I64, const, load, store


def _where(builder: Builder, args: Values, size: int) -> Value:
    """Find number `args[1]` of those of so many bytes each at the address `args[0]`."""
    return builder.add(args[0], builder.mul(args[1], const(size)))


def _reader(number: NumbaType, kind: LLVMType, size: int) -> Any:
    """Make what reads number `place` of those of a kind at an address; integers become 64 bits wide."""

    def read(typingctx: TypingContext, address: NumbaType, place: NumbaType) -> Intrinsic:
        def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
            value = load(builder, _where(builder, args, size), kind, size)
            return builder.sext(value, I64) if kind == I32 else value

        return number(types.int64, types.int64), codegen

    return intrinsic(read)


def _writer(number: NumbaType, kind: LLVMType, size: int) -> Any:
    """Make what writes number `place` of those of a kind at an address."""

    def write(typingctx: TypingContext, address: NumbaType, place: NumbaType, value: NumbaType) -> Intrinsic:
        def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
            value = builder.trunc(args[2], I32) if kind == I32 else args[2]
            store(builder, value, _where(builder, args, size), size)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, number), codegen

    return intrinsic(write)


mask_at, put_mask = _reader(types.uint64, I64, 8), _writer(types.uint64, I64, 8)
long_at, put_long = _reader(types.int64, I64, 8), _writer(types.int64, I64, 8)
word_at = _reader(types.uint64, I64, 1)
"""The eight bytes at an address from byte number `place` on, which need not be a multiple of eight."""

int32_at, put_int32 = _reader(types.int64, I32, 4), _writer(types.int64, I32, 4)
float32_at, float64_at = _reader(types.float32, F32, 4), _reader(types.float64, F64, 8)


@intrinsic
def add_long(typingctx: TypingContext, address: NumbaType, place: NumbaType, value: NumbaType) -> Intrinsic:
    """Add to number `place` of the int64 at an address."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        where = _where(builder, args, 8)
        store(builder, builder.add(load(builder, where, I64, 8), args[2]), where, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def number_at(typingctx: TypingContext, address: NumbaType, place: NumbaType, like: NumbaType) -> Intrinsic:
    """Number `place` of those at an address, of the type of `like`, as float64."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        kind, size = (F32, 4) if signature.args[2] == types.float32 else (F64, 8)
        value = load(builder, _where(builder, args, size), kind, size)
        return builder.fpext(value, F64) if kind == F32 else value

    return types.float64(types.int64, types.int64, like), codegen
