"""Helpers that emit LLVM vector instructions, for the Numba intrinsics of the hot loops.

LLVM splits a vector that is wider than the machine's registers, so one source serves AVX-512,
AVX2 and NEON.
"""

from __future__ import annotations

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.annotations import Builder, Value

SWEEP_LANES = 8
"""Points that the row sweep evaluates at once; its arrays are padded by this."""

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()

_COMPRESS_IS_GENERIC = llvmlite.binding.llvm_version_info[0] >= 20


def const(value: int) -> ir.Constant:
    """A 64-bit integer."""
    return ir.Constant(I64, value)


def splat(builder: Builder, value: Value, vector: ir.VectorType) -> Value:
    """`value` in every lane."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(I32, 0))
    zeros = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def load(builder: Builder, address: Value, kind: ir.Type, align: int) -> Value:
    """What lies at an address (an integer), `align` bytes aligned."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def store(builder: Builder, value: Value, address: Value, align: int) -> None:
    """Write `value` at an address (an integer), `align` bytes aligned."""
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=align)


def call(builder: Builder, name: str, kind: ir.Type, *args: Value) -> Value:
    """Call an LLVM function that returns `kind`."""
    signature = ir.FunctionType(kind, [a.type for a in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), args)


def suffix(vector: ir.VectorType) -> str:
    """What LLVM's names say of a vector's type."""
    names = {"float": "f32", "double": "f64", "i32": "i32"}
    return f"v{vector.count}{names[str(vector.element)]}"


def store_compressed(builder: Builder, value: Value, mask: Value, address: Value) -> None:
    """Write the lanes of `value` that `mask` selects side by side at `address`.

    May write anything behind them, up to the vector's full width.
    """
    kind = suffix(value.type)
    if _COMPRESS_IS_GENERIC:
        packed = call(
            builder,
            f"llvm.experimental.vector.compress.{kind}",
            value.type,
            value,
            mask,
            ir.Constant(value.type, ir.Undefined),
        )
        store(builder, packed, address, 4)
        return
    pointer = builder.inttoptr(address, value.type.element.as_pointer())
    signature = ir.FunctionType(ir.VoidType(), [value.type, pointer.type, mask.type])
    write = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.compressstore.{kind}")
    builder.call(write, [value, pointer, mask])


def bits(builder: Builder, mask: Value) -> Value:
    """A vector of booleans as the low bits of a 64-bit integer."""
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I64)
