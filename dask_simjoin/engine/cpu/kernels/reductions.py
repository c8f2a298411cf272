"""Reductions: the moments of columns, and a checksum of bytes, in one pass and without the GIL.

The checksum detects accidental changes, not forgery. Each 64-bit word is increased by its position times
`KEY`. The checksum is the sum of these words and of the products of their halves. This is NH (Black et al.
1999, "UMAC") with keys computed from positions. A change within one half of a word always changes the
checksum. Other changes go undetected with a probability of 2**-32. CRC-32 of zlib takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import (
    F64,
    I32,
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
    const,
    load,
    long_at,
    mask_at,
    splat,
    store,
    word_at,
)
from dask_simjoin.engine.cpu.kernels.totals import larger
from dask_simjoin.metrics.norms import Array

CACHED = 2048
"""Numbers of a column that are read twice while cached: for their sum, then for squares about their mean."""

LANES = 8
"""Count of partial sums: a processor adds this many numbers at once."""

EIGHT = ir.VectorType(F64, LANES)

Reduce = Callable[[Builder, Value, Value], Value]


def _plus(builder: Builder, a: Value, b: Value) -> Value:
    return builder.fadd(a, b)


def _smaller(builder: Builder, a: Value, b: Value) -> Value:
    """The smaller of two values in each lane; `b` if one of them is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _reduced(builder: Builder, address: Value, rows: Value, parts: Sequence[tuple[Reduce, float]],
             term: Callable[[Value], Value]) -> list[Value]:  # fmt: skip
    """Reduce the terms of the float64 numbers at an address by several operations with initial values."""
    slots = [cgutils.alloca_once(builder, EIGHT) for _ in parts]
    for slot, (_, begin) in zip(slots, parts, strict=True):
        builder.store(ir.Constant(EIGHT, [begin] * LANES), slot)
    whole = builder.and_(rows, const(-LANES))

    def take_in(slots: list[Value], kind: ir.Type, place: Value) -> None:
        value = term(load(builder, builder.add(address, builder.mul(place, const(8))), kind, 8))
        for slot, (reduce, _) in zip(slots, parts, strict=True):
            builder.store(reduce(builder, value, builder.load(slot)), slot)

    with cgutils.for_range_slice(builder, const(0), whole, const(LANES)) as (place, _):
        take_in(slots, EIGHT, place)
    ends = [cgutils.alloca_once(builder, F64) for _ in parts]
    for slot, end, (reduce, _) in zip(slots, ends, parts, strict=True):
        vector = builder.load(slot)
        lanes = [builder.extract_element(vector, ir.Constant(I32, lane)) for lane in range(LANES)]
        while len(lanes) > 1:
            lanes = [reduce(builder, a, b) for a, b in zip(lanes[::2], lanes[1::2], strict=True)]
        builder.store(lanes[0], end)
    with cgutils.for_range_slice(builder, whole, rows, const(1)) as (place, _):
        take_in(ends, F64, place)
    return [builder.load(end) for end in ends]


@intrinsic
def summed(typingctx: TypingContext, address: NumbaType, rows: NumbaType, bounds: NumbaType) -> Intrinsic:
    """The sum of float64 at an address; writes the smallest and the largest to `bounds`."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        column, rows_, bounds_ = args
        parts = [(_plus, 0.0), (_smaller, np.inf), (larger, -np.inf)]
        total, *found = _reduced(builder, column, rows_, parts, lambda value: value)
        for n, (value, (reduce, _)) in enumerate(zip(found, parts[1:], strict=True)):
            at = builder.add(bounds_, const(8 * n))
            store(builder, reduce(builder, value, load(builder, at, F64, 8)), at, 8)
        return total

    return types.float64(types.int64, types.int64, types.int64), codegen


@intrinsic
def summed_squares(typingctx: TypingContext, address: NumbaType, rows: NumbaType,
                   middle: NumbaType) -> Intrinsic:  # fmt: skip
    """The sum of squared differences between float64 at an address and a number."""

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        def term(value: Value) -> Value:
            middle = splat(builder, args[2], EIGHT) if value.type == EIGHT else args[2]
            away = builder.fsub(value, middle)
            return builder.fmul(away, away)

        return _reduced(builder, args[0], args[1], [(_plus, 0.0)], term)[0]

    return types.float64(types.int64, types.int64, types.float64), codegen


@kernel
def column_moments(columns: Array, bounds: Array, mean: Array, squares: Array) -> None:
    """Fill `mean` and `squares` (d,), and `bounds` (d, 2), with the moments of the `columns` (d, n), n > 0.

    A mean is not finite if a value of its column is not, or if a sum overflows.  The other results of that
    column are then undefined.  Parts are combined by the pairwise update of Chan, Golub & LeVeque 1979.
    """
    d, n = columns.shape
    column, bound = columns.ctypes.data, bounds.ctypes.data
    for k in range(d):
        bounds[k, 0], bounds[k, 1] = np.inf, -np.inf
        before, middle, away = 0, 0.0, 0.0
        while before < n:
            rows = n - before if n - before < CACHED else CACHED
            here = summed(column + 8 * before, rows, bound) / rows
            delta, together = here - middle, before + rows
            here_away = summed_squares(column + 8 * before, rows, here)
            away += here_away + delta * delta * (float(before) * rows / together)
            middle += delta * (rows / together)
            before = together
        mean[k], squares[k] = middle, away
        column += 8 * n
        bound += 16


KEY = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio, as a fraction of 2**64."""

HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@device_function
def sum_of(address: int, size: int) -> int:
    """Return the checksum of `size` (at least eight) bytes at an address."""
    total = np.uint64(0)
    for n in range(size // 8):
        word = word_at(address, 8 * n) + np.uint64(n) * KEY
        total += word + (word & LOW) * (word >> HALF)
    word = word_at(address, size - 8) + np.uint64(size) * KEY  # the rest, read with part of the previous word
    return total + word + (word & LOW) * (word >> HALF)


@kernel
def checksum(address: int, size: int) -> int:
    """Return the checksum, a uint64, of `size` (at least eight) bytes at an address."""
    return sum_of(address, size)


@kernel
def are_whole(address: int, starts: int, sums: int, first: int, last: int) -> bool:
    """Return whether consecutive runs of bytes at an address have the expected checksums.

    `starts`: address of int64 (runs + 1,), the offsets of runs in their file.  `sums`: address of the
    expected checksums, uint64 (runs,).
    """
    begin = long_at(starts, first)
    for n in range(first, last):
        start = long_at(starts, n)
        if sum_of(address + start - begin, long_at(starts, n + 1) - start) != mask_at(sums, n):
            return False
    return True
