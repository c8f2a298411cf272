"""Reductions: the moments of columns, a checksum of bytes, and counters of the
candidates of a join.

The checksum detects accidental changes, not forgery. Each 64-bit word is increased by
its position times `KEY`. The checksum is the sum of these words, and of the product of
the two halves of each word. This is NH (Black et al. 1999, "UMAC") with keys computed
from positions. A change within one half of a word always changes the checksum. Other
changes go undetected with a probability of 2**-32. We do not use zlib's CRC-32, because
it takes ten times as long.
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
    LANES,
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
from dask_simjoin.sizes import IN_CACHE

EIGHT = ir.VectorType(F64, LANES)

Reduce = Callable[[Builder, Value, Value], Value]


def _plus(builder: Builder, a: Value, b: Value) -> Value:
    return builder.fadd(a, b)


def _smaller(builder: Builder, a: Value, b: Value) -> Value:
    """The smaller of two values in each lane; `b` if one of them is NaN."""
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


def _reduced(
    builder: Builder,
    address: Value,
    rows: Value,
    parts: Sequence[tuple[Reduce, float]],
    term: Callable[[Value], Value],
) -> list[Value]:
    """Reduce float64 numbers at an address by several operations in one pass.

    `parts`: the operations, each with its initial value. `term(value)`: emits the
    number that replaces each value.
    """
    slots = [cgutils.alloca_once(builder, EIGHT) for _ in parts]
    for slot, (_, begin) in zip(slots, parts, strict=True):
        builder.store(ir.Constant(EIGHT, [begin] * LANES), slot)
    whole = builder.and_(rows, const(-LANES))

    def take_in(slots: list[Value], kind: ir.Type, place: Value) -> None:
        value = term(
            load(builder, builder.add(address, builder.mul(place, const(8))), kind, 8)
        )
        for slot, (reduce, _) in zip(slots, parts, strict=True):
            builder.store(reduce(builder, value, builder.load(slot)), slot)

    with cgutils.for_range_slice(builder, const(0), whole, const(LANES)) as (place, _):
        take_in(slots, EIGHT, place)
    ends = [cgutils.alloca_once(builder, F64) for _ in parts]
    for slot, end, (reduce, _) in zip(slots, ends, parts, strict=True):
        vector = builder.load(slot)
        lanes = [
            builder.extract_element(vector, ir.Constant(I32, lane))
            for lane in range(LANES)
        ]
        while len(lanes) > 1:
            lanes = [
                reduce(builder, a, b)
                for a, b in zip(lanes[::2], lanes[1::2], strict=True)
            ]
        builder.store(lanes[0], end)
    with cgutils.for_range_slice(builder, whole, rows, const(1)) as (place, _):
        take_in(ends, F64, place)
    return [builder.load(end) for end in ends]


@llvm_function(types.float64, types.int64, types.int64, types.int64)
def summed(builder: Builder, address: Value, rows: Value, bounds: Value) -> Value:
    """The sum of float64 numbers at an address. It also updates their minimum and
    maximum in `bounds`.
    """
    parts = [(_plus, 0.0), (_smaller, np.inf), (larger, -np.inf)]
    total, *found = _reduced(builder, address, rows, parts, lambda value: value)
    for n, (value, (reduce, _)) in enumerate(zip(found, parts[1:], strict=True)):
        at = builder.add(bounds, const(8 * n))
        store(builder, reduce(builder, value, load(builder, at, F64, 8)), at, 8)
    return total


@llvm_function(types.float64, types.int64, types.int64, types.float64)
def summed_squares(
    builder: Builder, address: Value, rows: Value, middle: Value
) -> Value:
    """The sum of squared differences between float64 numbers at an address and
    `middle`.
    """

    def term(value: Value) -> Value:
        about = splat(builder, middle, EIGHT) if value.type == EIGHT else middle
        away = builder.fsub(value, about)
        return builder.fmul(away, away)

    return _reduced(builder, address, rows, [(_plus, 0.0)], term)[0]


@kernel
def column_moments(
    column: int, step: int, n: int, bounds: Array, mean: Array, squares: Array
) -> None:
    """Compute the moments of `n` float64 numbers of each of some columns, n > 0.

    `column`: address of the first number; `step`: bytes from one column to the next.
    Output: `mean` (d,); `squares` (d,), sums of squared deviations; `bounds` (d, 2),
    smallest and largest values. If a value of a column is not finite, or if its sum
    overflows, its mean is not finite. Its other results are then undefined. Parts are
    combined by the pairwise update of Chan, Golub & LeVeque 1979.
    """
    bound = bounds.ctypes.data
    for k in range(mean.size):
        bounds[k, 0], bounds[k, 1] = np.inf, -np.inf
        before, middle, away = 0, 0.0, 0.0
        while before < n:
            rows = n - before if n - before < IN_CACHE else IN_CACHE
            here = summed(column + 8 * before, rows, bound) / rows
            delta, together = here - middle, before + rows
            here_away = summed_squares(column + 8 * before, rows, here)
            away += here_away + delta * delta * (float(before) * rows / together)
            middle += delta * (rows / together)
            before = together
        mean[k], squares[k] = middle, away
        column += step
        bound += 16


KEY = np.uint64(0x9E3779B97F4A7C15)
"""2**64 / the golden ratio."""

HALF, LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


@device_function
def sum_of(address: int, size: int) -> int:
    """Return the checksum of `size` bytes at an address; `size`: at least eight."""
    total = np.uint64(0)
    for n in range(size // 8):
        word = word_at(address, 8 * n) + np.uint64(n) * KEY
        total += word + (word & LOW) * (word >> HALF)
    # the last eight bytes; some of them may be in an earlier word already
    word = word_at(address, size - 8) + np.uint64(size) * KEY
    return total + word + (word & LOW) * (word >> HALF)


@kernel
def checksum(address: int, size: int) -> int:
    """Return the checksum, a uint64, of `size` bytes at an address; `size`: at least
    eight.
    """
    return sum_of(address, size)


@kernel
def are_intact(address: int, starts: int, sums: int, first: int, last: int) -> bool:
    """Return whether runs, which are consecutive byte ranges, have the expected
    checksums.

    `address`: where the bytes of run `first` begin; runs `first` ... `last` - 1 are
    checked. `starts`: address of the offsets of the runs in their file, int64 (runs +
    1,). `sums`: address of the expected checksums, uint64 (runs,).
    """
    begin = long_at(starts, first)
    for n in range(first, last):
        start = long_at(starts, n)
        if sum_of(address + start - begin, long_at(starts, n + 1) - start) != mask_at(
            sums, n
        ):
            return False
    return True


@kernel
def count_windows(
    x: Array, keys: Array, starts: Array, offsets: Array, reach: float, counters: Array
) -> None:
    """Count the grid rows that a sweep looks up, the rows among them that exist, and
    the candidates.

    `counters` (3,): output. `x` (n or more,): the swept coordinate. `offsets`: key of
    each neighbor row minus the key of a row, 0 first.
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
    low: Array,
    high: Array,
    z: Array,
    points: int,
    reach: float,
    norm: Kind,
    counters: Array,
) -> None:
    """Count the pairs of near tiles, the pairs of a query and a near tile, and the
    candidates.

    `counters` (3,): output. `low`, `high` (tiles, k): the boxes. `z` (tiles, k, 64):
    the points.
    """
    number, k = low.shape
    for a in range(number):
        for b in range(a, number):
            total = 0.0
            for m in range(k):
                gap = max(
                    np.float64(low[b, m]) - high[a, m],
                    np.float64(low[a, m]) - high[b, m],
                )
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
                    counters[2] += min(TILE, points - b * TILE) - (
                        t + 1 if a == b else 0
                    )
