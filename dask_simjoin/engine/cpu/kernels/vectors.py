"""Helpers that emit LLVM vector instructions, for the Numba intrinsics of the hot loops.

LLVM splits a vector that is wider than the machine's registers, so one source serves AVX-512,
AVX2 and NEON.
"""

from __future__ import annotations

import llvmlite.binding
from llvmlite import ir
from numba import config
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.annotations import Builder, Value

SWEEP_LANES = 16
"""Points that the row sweep evaluates at once; its arrays are padded by this."""

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()


def _features() -> frozenset[str]:
    """What the machine that code is made for can do, in LLVM's words: this one, or as Numba is told."""
    if config.CPU_FEATURES is not None:
        return frozenset(name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+"))
    return frozenset(name for name, has in llvmlite.binding.get_host_cpu_features().items() if has)


FEATURES = _features()


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
    names = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
    return f"v{vector.count}{names[str(vector.element)]}"


def bits(builder: Builder, mask: Value) -> Value:
    """A vector of booleans as the low bits of a 64-bit integer."""
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I64)
