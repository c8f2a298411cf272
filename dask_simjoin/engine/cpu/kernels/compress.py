"""Writes the lanes of a vector that a mask selects side by side."""

from __future__ import annotations

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.annotations import Builder, Value
from dask_simjoin.engine.cpu.kernels.vectors import (
    FEATURES,
    I8,
    I32,
    I64,
    call,
    const,
    load,
    store,
    suffix,
)

_BYTES = {"avx512vl": 64, "avx2": 32, "other": 64}
"""Of a vector that is compressed at once, by each way: an instruction of AVX-512, a table of permutations of
AVX2, or whatever LLVM makes of it."""

WAYS = tuple(way for way in _BYTES if way == "other" or way in FEATURES)
"""Those that there are on this machine, the fastest first."""

_IS_GENERIC = llvmlite.binding.llvm_version_info[0] >= 20


def store_compressed(builder: Builder, value: Value, mask: Value, address: Value,
                     way: str = WAYS[0]) -> None:  # fmt: skip
    """Write the lanes of `value` that `mask`, an integer of 64 bits, selects side by side at `address`.

    May write anything behind them, up to the vector's full width.  `way`: one of `WAYS`.
    """
    size = 4 if value.type.element == I32 else 8
    width = min(_BYTES[way] // size, value.type.count)
    for first in range(0, value.type.count, width):
        some = builder.and_(builder.lshr(mask, const(first)), const((1 << width) - 1))
        part = _lanes(builder, value, first, width)
        if way == "avx2" and width * size == _BYTES[way]:
            store(builder, _permuted(builder, part, some), address, 4)
        else:
            _store_part(builder, part, some, address)
        address = builder.add(address, builder.mul(builder.ctpop(some), const(size)))


def _lanes(builder: Builder, value: Value, first: int, width: int) -> Value:
    numbers = ir.Constant(ir.VectorType(I32, width), list(range(first, first + width)))
    return builder.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), numbers)


def _store_part(builder: Builder, part: Value, some: Value, address: Value) -> None:
    kind, width = suffix(part.type), part.type.count
    mask = builder.bitcast(builder.trunc(some, ir.IntType(width)), ir.VectorType(ir.IntType(1), width))
    if _IS_GENERIC:
        name = f"llvm.experimental.vector.compress.{kind}"
        packed = call(builder, name, part.type, part, mask, ir.Constant(part.type, ir.Undefined))
        store(builder, packed, address, 4)
        return
    pointer = builder.inttoptr(address, part.type.element.as_pointer())
    signature = ir.FunctionType(ir.VoidType(), [part.type, pointer.type, mask.type])
    write = cgutils.get_or_insert_function(builder.module, signature, f"llvm.masked.compressstore.{kind}")
    builder.call(write, [part, pointer, mask])


def _permuted(builder: Builder, part: Value, some: Value) -> Value:
    """The lanes of 32 bytes that are selected first, by a table of where 8 longs come from."""
    longs = ir.VectorType(I32, 8)
    table = _table(builder, part.type.count)
    row = builder.add(builder.ptrtoint(table, I64), builder.mul(some, const(8)))
    places = builder.zext(load(builder, row, ir.VectorType(I8, 8), 8), longs)
    moved = call(builder, "llvm.x86.avx2.permd", longs, builder.bitcast(part, longs), places)
    return builder.bitcast(moved, part.type)


def _table(builder: Builder, width: int) -> Value:
    """Where the longs of each selection of so many lanes come from: 8 bytes for each of 2**width masks."""
    name = f"simjoin.compress.{width}"
    if name in builder.module.globals:
        return builder.module.globals[name]
    each = 8 // width
    numbers = []
    for mask in range(1 << width):
        lanes = [lane for lane in range(width) if mask >> lane & 1]
        longs = [lane * each + part for lane in lanes for part in range(each)]
        numbers += longs + [0] * (8 - len(longs))
    table = cgutils.global_constant(
        builder.module, name, ir.Constant(ir.ArrayType(I8, len(numbers)), numbers)
    )
    table.align = 64
    return table
