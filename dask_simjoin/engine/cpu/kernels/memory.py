"""What lies at an address: for loops in which arrays would cost the counting of references."""

from __future__ import annotations

from numba import types
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
from dask_simjoin.engine.cpu.kernels.vectors import F32, F64, I32, I64, const, load, store


@intrinsic
def mask_at(typingctx: TypingContext, address: NumbaType, i: NumbaType) -> Intrinsic:
    """Number `i` of the uint64 at an address."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        return load(builder, builder.add(args[0], builder.mul(args[1], const(8))), I64, 8)

    return types.uint64(types.int64, types.int64), codegen


@intrinsic
def put_mask(typingctx: TypingContext, address: NumbaType, i: NumbaType, mask: NumbaType) -> Intrinsic:
    """Write number `i` of the uint64 at an address."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        store(builder, args[2], builder.add(args[0], builder.mul(args[1], const(8))), 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.uint64), codegen


@intrinsic
def float32_at(typingctx: TypingContext, address: NumbaType, i: NumbaType) -> Intrinsic:
    """Number `i` of the float32 at an address."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        return load(builder, builder.add(args[0], builder.mul(args[1], const(4))), F32, 4)

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def int32_at(typingctx: TypingContext, address: NumbaType, place: NumbaType) -> Intrinsic:
    """Number `place` of the int32 at an address, as a 64-bit integer."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        where = builder.add(args[0], builder.mul(args[1], const(4)))
        return builder.sext(load(builder, where, I32, 4), I64)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def float64_at(typingctx: TypingContext, address: NumbaType, place: NumbaType) -> Intrinsic:
    """Number `place` of the float64 at an address."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        return load(builder, builder.add(args[0], builder.mul(args[1], const(8))), F64, 8)

    return types.float64(types.int64, types.int64), codegen


@intrinsic
def put_int32(typingctx: TypingContext, address: NumbaType, place: NumbaType, value: NumbaType) -> Intrinsic:
    """Write number `place` of the int32 at an address."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        where = builder.add(args[0], builder.mul(args[1], const(4)))
        store(builder, builder.trunc(args[2], I32), where, 4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def long_at(typingctx: TypingContext, address: NumbaType, place: NumbaType) -> Intrinsic:
    """Number `place` of the int64 at an address."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        return load(builder, builder.add(args[0], builder.mul(args[1], const(8))), I64, 8)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def put_long(typingctx: TypingContext, address: NumbaType, place: NumbaType, value: NumbaType) -> Intrinsic:
    """Write number `place` of the int64 at an address."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        store(builder, args[2], builder.add(args[0], builder.mul(args[1], const(8))), 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def add_long(typingctx: TypingContext, address: NumbaType, place: NumbaType, value: NumbaType) -> Intrinsic:
    """Add to number `place` of the int64 at an address."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        where = builder.add(args[0], builder.mul(args[1], const(8)))
        store(builder, builder.add(load(builder, where, I64, 8), args[2]), where, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def number_at(typingctx: TypingContext, address: NumbaType, place: NumbaType, like: NumbaType) -> Intrinsic:
    """Number `place` of those at an address, of the type of `like`, as float64."""

    def codegen(context: TargetContext, builder: Builder, signature: Signature, args: Values) -> Value:
        kind, size = (F32, 4) if signature.args[2] == types.float32 else (F64, 8)
        value = load(builder, builder.add(args[0], builder.mul(args[1], const(size))), kind, size)
        return builder.fpext(value, F64) if kind == F32 else value

    return types.float64(types.int64, types.int64, like), codegen
