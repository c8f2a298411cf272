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

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import (
    F64,
    I32,
    Builder,
    Value,
    const,
    llvm_function,
    load,
    long_at,
    mask_at,
    splat,
    store,
    word_at,
)
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term, larger
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array

CACHED = 2048
"""Numbers of a column at a time: they are read for their sum, and again from a cache for squared
deviations."""

LANES = 8
"""Number of partial sums, which are added to at once."""

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


@llvm_function(types.float64, types.int64, types.int64, types.int64)
def summed(builder: Builder, address: Value, rows: Value, bounds: Value) -> Value:
    """The sum of float64 at an address; writes the smallest and the largest to `bounds`."""
    parts = [(_plus, 0.0), (_smaller, np.inf), (larger, -np.inf)]
    total, *found = _reduced(builder, address, rows, parts, lambda value: value)
    for n, (value, (reduce, _)) in enumerate(zip(found, parts[1:], strict=True)):
        at = builder.add(bounds, const(8 * n))
        store(builder, reduce(builder, value, load(builder, at, F64, 8)), at, 8)
    return total


@llvm_function(types.float64, types.int64, types.int64, types.float64)
def summed_squares(builder: Builder, address: Value, rows: Value, middle: Value) -> Value:
    """The sum of squared differences between float64 at an address and a number."""

    def term(value: Value) -> Value:
        about = splat(builder, middle, EIGHT) if value.type == EIGHT else middle
        away = builder.fsub(value, about)
        return builder.fmul(away, away)

    return _reduced(builder, address, rows, [(_plus, 0.0)], term)[0]


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


@kernel
def count_windows(
    x: Array, keys: Array, starts: Array, offsets: Array, reach: float, counters: Array
) -> None:
    """Count rows of cells that the sweep looks up, those that exist, and points in its windows.

    `counters` (3,): the three counters; `x`: the swept coordinate (n or more,); `offsets`: differences of
    keys between a row and its neighbor rows, 0 first.
    """
    for r in range(keys.size):
        for o in range(offsets.size):
            counters[0] += 1
            p = np.searchsorted(keys, keys[r] + offsets[o])
            if p == keys.size or keys[p] != keys[r] + offsets[o]:
                continue
            counters[1] += 1
            lo, stop = starts[p], starts[p + 1]
            hi = lo
            for i in range(starts[r], starts[r + 1]):
                if offsets[o] == 0:
                    lo = i + 1
                while lo < stop and x[i] - x[lo] > reach:
                    lo += 1
                hi = max(hi, lo)
                while hi < stop and x[hi] - x[i] <= reach:
                    hi += 1
                counters[2] += hi - lo


@kernel
def count_tiles(
    low: Array, high: Array, z: Array, points: int, reach: float, norm: Kind, counters: Array
) -> None:
    """Count pairs of tiles whose boxes are near, queries near a tile's box, and their candidates.

    `counters` (3,): the three counters; `low`, `high` (tiles, k): the boxes; `z` (tiles, k, 64): the points.
    """
    number, k = low.shape
    for a in range(number):
        for b in range(a, number):
            total = 0.0
            for m in range(k):
                gap = max(np.float64(low[b, m]) - high[a, m], np.float64(low[a, m]) - high[b, m])
                total = add_term(total, max(gap, 0.0), norm)
                if total > reach:
                    break
            if total > reach:
                continue
            counters[0] += 1
            for t in range(min(TILE, points - a * TILE)):
                total = 0.0
                for m in range(k):
                    at = np.float64(z[a, m, t])
                    gap = max(low[b, m] - at, at - high[b, m])
                    total = add_term(total, max(gap, 0.0), norm)
                if total <= reach:
                    counters[1] += 1
                    counters[2] += min(TILE, points - b * TILE) - (t + 1 if a == b else 0)
