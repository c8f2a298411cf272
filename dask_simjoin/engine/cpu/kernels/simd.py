"""Helpers that emit LLVM vector instructions for Numba intrinsics.

LLVM splits vectors that are wider than the machine's registers, so the same code serves
AVX-512, AVX2 and NEON. A function here emits code and returns an LLVM value. Docstrings
of the form "The ..." describe this value at run time.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import llvmlite.binding
from llvmlite import ir
from llvmlite.ir import IRBuilder as Builder
from llvmlite.ir import Type as LLVMType
from llvmlite.ir import Value as Value
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.types import Type as NumbaType

from dask_simjoin.metrics.norms import Array

TargetContext: TypeAlias = Any
TypingContext: TypeAlias = Any
Signature: TypeAlias = Any
"""Any, because Numba does not document these classes."""

Values = Sequence[Value]
"""Arguments of a call, as LLVM values."""

Intrinsic = tuple[Signature, Callable[..., Any]]
"""Numba's signature of a call, and the function that emits its code."""

Terms = tuple[Any, ...]
"""Data of one index that kernels compare: arrays, or tuples of addresses (see
`scan.terms_of`).
"""

Tree = tuple[Array, Array, Array]
"""A tree of boxes: their lower bounds, their upper bounds, and the first group of boxes
of each level.
"""

__all__ = [
    "Builder",
    "Intrinsic",
    "LLVMType",
    "NumbaType",
    "Signature",
    "TargetContext",
    "Terms",
    "Tree",
    "TypingContext",
    "Value",
    "Values",
]


LANES = 8
"""Number of float64 per vector, in sums over rows or dimensions."""

SWEEP_LANES = 16
"""The row sweep compares this many points at once. So its arrays end with this many
items of padding.
"""

I1, I8, I32, I64 = ir.IntType(1), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()


def _features() -> frozenset[str]:
    """Return LLVM's names for the features of the target processor.

    Numba's environment variables set them; by default they are the features of this
    machine.
    """
    if config.CPU_FEATURES is not None:
        return frozenset(
            name[1:] for name in config.CPU_FEATURES.split(",") if name.startswith("+")
        )
    return frozenset(
        name for name, has in llvmlite.binding.get_host_cpu_features().items() if has
    )


FEATURES = _features()


def const(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def splat(builder: Builder, value: Value, vector: ir.VectorType) -> Value:
    """A vector with `value` in every lane."""
    one = builder.insert_element(
        ir.Constant(vector, ir.Undefined), value, ir.Constant(I32, 0)
    )
    zeros = ir.Constant(ir.VectorType(I32, vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def load(builder: Builder, address: Value, kind: ir.Type, align: int) -> Value:
    """Load the value at an address (an integer), which is a multiple of `align` bytes."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)


def store(builder: Builder, value: Value, address: Value, align: int) -> None:
    """Write `value` at an address (an integer), which is a multiple of `align` bytes."""
    builder.store(
        value, builder.inttoptr(address, value.type.as_pointer()), align=align
    )


def call(builder: Builder, name: str, kind: ir.Type, *args: Value) -> Value:
    signature = ir.FunctionType(kind, [a.type for a in args])
    return builder.call(
        cgutils.get_or_insert_function(builder.module, signature, name), args
    )


def multiply_add(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, rounded once or twice, whichever is faster.

    Only filters may use it: decisions must be exact.
    """
    return call(builder, f"llvm.fmuladd.{suffix(a.type)}", a.type, a, b, c)


def suffix(vector: ir.VectorType) -> str:
    """Return the suffix that names of LLVM functions have for this vector type."""
    names = {"float": "f32", "double": "f64", "i32": "i32", "i64": "i64"}
    return f"v{vector.count}{names[str(vector.element)]}"


def bits(builder: Builder, mask: Value) -> Value:
    """A 64-bit integer whose low bits are the booleans of a vector."""
    return builder.zext(builder.bitcast(mask, ir.IntType(mask.type.count)), I64)


_BYTES = {"avx512vl": 64, "avx2": 32, "other": 64}
"""Way to compress a vector -> bytes that `store_compressed` handles at once.

The ways are an instruction of AVX-512, a table of permutations for AVX2, and LLVM's
generic code.
"""

WAYS = tuple(way for way in _BYTES if way == "other" or way in FEATURES)
"""The ways to compress a vector that this machine supports, the fastest first."""

_IS_GENERIC = llvmlite.binding.llvm_version_info[0] >= 20


def store_compressed(
    builder: Builder, value: Value, mask: Value, address: Value, way: str = WAYS[0]
) -> None:
    """Write the selected lanes of `value` side by side at `address`; `mask` (64 bits)
    selects them.

    The memory behind the written lanes may be overwritten, up to the full width of the
    vector. `way`: one of `WAYS`.
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
    mask = builder.bitcast(
        builder.trunc(some, ir.IntType(width)), ir.VectorType(ir.IntType(1), width)
    )
    if _IS_GENERIC:
        name = f"llvm.experimental.vector.compress.{kind}"
        packed = call(
            builder, name, part.type, part, mask, ir.Constant(part.type, ir.Undefined)
        )
        store(builder, packed, address, 4)
        return
    pointer = builder.inttoptr(address, part.type.element.as_pointer())
    signature = ir.FunctionType(ir.VoidType(), [part.type, pointer.type, mask.type])
    write = cgutils.get_or_insert_function(
        builder.module, signature, f"llvm.masked.compressstore.{kind}"
    )
    builder.call(write, [part, pointer, mask])


def _permuted(builder: Builder, part: Value, some: Value) -> Value:
    """In a vector of 32 bytes, move the selected lanes to the front.

    The permutation for each mask of lanes is in a table.
    """
    longs = ir.VectorType(I32, 8)
    table = _table(builder, part.type.count)
    row = builder.add(builder.ptrtoint(table, I64), builder.mul(some, const(8)))
    places = builder.zext(load(builder, row, ir.VectorType(I8, 8), 8), longs)
    moved = call(
        builder, "llvm.x86.avx2.permd", longs, builder.bitcast(part, longs), places
    )
    return builder.bitcast(moved, part.type)


def _table(builder: Builder, width: int) -> Value:
    """Build the table of permutations of `width` lanes.

    For each of 2**width masks, the table has 8 indexes, each of a part of 32 bits. Each
    index takes one byte.
    """
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


class NormValue(NamedTuple):
    """A norm while code is emitted: its class in `totals`, and the LLVM value of its
    tuple.
    """

    kind: Any
    value: Value


def llvm_function(
    result: NumbaType, *arguments: NumbaType | None
) -> Callable[[Callable[..., Any]], Any]:
    """Convert a function that emits LLVM code to a function that kernels can call.

    `result`: Numba type of the new function's result. `arguments`: Numba types of its
    arguments; None: any type. The decorated function gets an LLVM builder and the LLVM
    value of each argument. For a norm, it gets a `NormValue`.
    """

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(typingctx: TypingContext, *given: NumbaType) -> Intrinsic:
            kinds = [own or some for own, some in zip(arguments, given, strict=True)]

            def codegen(
                context: TargetContext,
                builder: Builder,
                signature: Signature,
                args: Values,
            ) -> Value:
                pairs = zip(kinds, args, strict=True)
                value = emit(
                    builder,
                    *(
                        NormValue(kind.instance_class, arg)
                        if isinstance(kind, types.NamedUniTuple)
                        else arg
                        for kind, arg in pairs
                    ),
                )
                return context.get_dummy_value() if value is None else value

            return result(*kinds), codegen

        functools.update_wrapper(typed, emit)
        own = inspect.signature(emit)
        first, *others = own.parameters.values()
        typed.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[first.replace(name="typingctx"), *others]
        )
        return intrinsic(typed)

    return decorate


def _where(builder: Builder, address: Value, place: Value, size: int) -> Value:
    """The address of item `place` of an array whose items have `size` bytes."""
    return builder.add(address, builder.mul(place, const(size)))


def item_of(builder: Builder, array: Value, place: Value, kind: ir.IntType) -> Value:
    """A pointer to item `place` of an array of integers, which begins at an address."""
    where = _where(builder, array, place, kind.width // 8)
    return builder.inttoptr(where, kind.as_pointer())


def _reader(number: NumbaType, kind: LLVMType, size: int) -> Any:
    """Make a function that reads item `place` of the array at an address, and widens
    int32 to int64.
    """

    @llvm_function(number, types.int64, types.int64)
    def read(builder: Builder, address: Value, place: Value) -> Value:
        value = load(builder, _where(builder, address, place, size), kind, size)
        return builder.sext(value, I64) if kind == I32 else value

    return read


def _writer(number: NumbaType, kind: LLVMType, size: int) -> Any:
    """Make a function that writes item `place` of the array at an address."""

    @llvm_function(types.void, types.int64, types.int64, number)
    def write(builder: Builder, address: Value, place: Value, value: Value) -> None:
        item = builder.trunc(value, I32) if kind == I32 else value
        store(builder, item, _where(builder, address, place, size), size)

    return write


mask_at, put_mask = _reader(types.uint64, I64, 8), _writer(types.uint64, I64, 8)
long_at, put_long = _reader(types.int64, I64, 8), _writer(types.int64, I64, 8)
word_at = _reader(types.uint64, I64, 1)
"""Reads eight bytes from byte `place` on; `place` need not be a multiple of eight."""

int32_at, put_int32 = _reader(types.int64, I32, 4), _writer(types.int64, I32, 4)
float32_at, float64_at = _reader(types.float32, F32, 4), _reader(types.float64, F64, 8)


@llvm_function(types.void, types.int64, types.int64, types.int64)
def add_long(builder: Builder, address: Value, place: Value, value: Value) -> None:
    """Add `value` to item `place` of the int64 array at an address."""
    where = _where(builder, address, place, 8)
    store(builder, builder.add(load(builder, where, I64, 8), value), where, 8)


@llvm_function(types.float64, types.int64, types.int64, None)
def number_at(builder: Builder, address: Value, place: Value, like: Value) -> Value:
    """Item `place` of the array at an address, as float64. The array has the type of
    `like`.
    """
    kind, size = (F32, 4) if like.type == F32 else (F64, 8)
    value = load(builder, _where(builder, address, place, size), kind, size)
    return builder.fpext(value, F64) if kind == F32 else value
