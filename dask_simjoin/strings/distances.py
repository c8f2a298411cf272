"""Compute edit distances of strings of codes up to a limit.

For two strings of any length and alphabet, see Ukkonen (1985) and Landau and Vishkin
(1989). Take the table of distances between all pairs of prefixes. For e = 0, 1, ...
edits, find the last cell with distance e on each diagonal. One edit leads there from
the last cell with e - 1 edits, on this diagonal or on a neighboring one; then follow
equal codes. Only diagonals that can still reach the end are visited. So the work is
about limit**2 plus the number of equal codes. A transposition of adjacent codes starts
in the last cell with e - 1 edits. From an earlier cell, it would get no farther than a
substitution does.

To compare one short string with several others of equal length, bit vectors and vector
instructions are used. Each step takes one code of each other string, and computes one
column of its table. Bits hold the differences of adjacent cells, as in Myers (1999), in
the form of Hyyro (2003), section 3. Transpositions are from section 4.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.jit import device_function
from dask_simjoin.engine.cpu.kernels.simd import (
    I64,
    SWEEP_LANES,
    Builder,
    Intrinsic,
    NumbaType,
    Signature,
    TargetContext,
    TypingContext,
    Value,
    Values,
    bits,
    call,
    const,
    load,
    splat,
    store,
)
from dask_simjoin.metrics.norms import Array

NOWHERE = int(np.iinfo(np.int32).min)
"""Marks a diagonal that has not been reached."""


@device_function
def distance_within(
    one: Array,
    a: int,
    n: int,
    other: Array,
    b: int,
    m: int,
    limit: int,
    swaps: bool,
    reached: Array,
    state: Array,
) -> int:
    """Return the distance between `one[a : a + n]` and `other[b : b + m]`; or limit + 1
    if it is above `limit`.

    `swaps`: whether a transposition of adjacent codes is one edit. `reached`: scratch
    with at least 2 * limit + 5 elements. `state`: if another thread sets `state[1]`, the
    function ends soon, and its result is wrong.
    """
    end, middle = m - n, limit + 2
    if abs(end) > limit:
        return limit + 1
    reached[middle] = -1
    reached[middle - 1] = reached[middle + 1] = NOWHERE
    for e in range(limit + 1):
        if e & 63 == 63 and state[1]:
            break
        if e:
            reached[middle - e] = reached[middle + e] = NOWHERE
            reached[middle - e - 1] = reached[middle + e + 1] = NOWHERE
        low, high = max(-e, end - (limit - e)), min(e, end + (limit - e))
        before = reached[middle + low - 1]
        for d in range(low, high + 1):
            own = reached[middle + d]
            far = max(own + 1, before, reached[middle + d + 1] + 1)
            if (
                swaps
                and e
                and own >= 0
                and own + 1 < n
                and own + d + 1 < m
                and own + d >= 0
                and one[a + own] == other[b + own + d + 1]
                and one[a + own + 1] == other[b + own + d]
            ):
                far = max(far, own + 2)
            far = min(far, n, m - d)
            while far < n and far + d < m and one[a + far] == other[b + far + d]:
                far += 1
            if d == end and far == n:
                return e
            before = own
            reached[middle + d] = far
    return limit + 1


MAX_SHORT = 64
"""The short string has at most this many codes, because one word of bits must hold a
column of the table.
"""

VECTOR = ir.VectorType(I64, SWEEP_LANES)


def _constant(value: int) -> ir.Constant:
    return ir.Constant(VECTOR, [value] * SWEEP_LANES)


@intrinsic
def _walk(
    typingctx: TypingContext,
    rows: NumbaType,
    steps: NumbaType,
    n: NumbaType,
    swaps: NumbaType,
    out: NumbaType,
) -> Intrinsic:
    """Compute the distances between one string of n > 0 codes and `SWEEP_LANES` other
    strings, and write them to address `out`.

    The other strings have `steps` codes each. `rows`: address of an array (steps,
    SWEEP_LANES). For each code of the other strings, it has a mask of the positions of this
    code in the one string: see `set_matches`. `swaps`: whether a transposition of
    adjacent codes is one edit.
    """

    def codegen(
        context: TargetContext, builder: Builder, sig: Signature, args: Values
    ) -> Value:
        rows_, steps_, n_, swaps_, out_ = args
        with builder.if_else(swaps_) as (then, otherwise):
            with then:
                _emit(builder, rows_, steps_, n_, out_, swaps=True)
            with otherwise:
                _emit(builder, rows_, steps_, n_, out_, swaps=False)
        return context.get_dummy_value()

    return types.void(
        types.int64, types.int64, types.int64, types.boolean, types.int64
    ), codegen


def _emit(
    builder: Builder, rows: Value, steps: Value, n: Value, out: Value, swaps: bool
) -> None:
    """Emit the loop that computes the tables, one column per step."""
    ones = _constant(1)
    top = splat(builder, builder.sub(n, const(1)), VECTOR)
    increases, decreases, found, diagonal, previous = (
        cgutils.alloca_once(builder, VECTOR) for _ in range(5)
    )
    builder.store(_constant(-1), increases)
    builder.store(splat(builder, n, VECTOR), found)
    for slot in (decreases, diagonal, previous):
        builder.store(_constant(0), slot)
    with cgutils.for_range_slice(builder, const(0), steps, const(1)) as (p, _):
        same = load(
            builder,
            builder.add(rows, builder.mul(p, const(8 * SWEEP_LANES))),
            VECTOR,
            8,
        )
        up, down = builder.load(increases), builder.load(decreases)
        carried = builder.xor(builder.add(builder.and_(same, up), up), up)
        equal = builder.or_(builder.or_(carried, same), down)
        if swaps:
            open_ = builder.shl(
                builder.and_(builder.not_(builder.load(diagonal)), same), ones
            )
            equal = builder.or_(equal, builder.and_(open_, builder.load(previous)))
            builder.store(equal, diagonal)
            builder.store(same, previous)
        more = builder.or_(down, builder.not_(builder.or_(equal, up)))
        less = builder.and_(equal, up)
        grown = builder.and_(builder.lshr(more, top), ones)
        shrunk = builder.and_(builder.lshr(less, top), ones)
        builder.store(
            builder.sub(builder.add(builder.load(found), grown), shrunk), found
        )
        more = builder.or_(builder.shl(more, ones), ones)
        less = builder.shl(less, ones)
        builder.store(
            builder.or_(less, builder.not_(builder.or_(equal, more))), increases
        )
        builder.store(builder.and_(more, equal), decreases)
    store(builder, builder.load(found), out, 8)


@intrinsic
def similar_signatures(
    typingctx: TypingContext, signature: NumbaType, others: NumbaType, limit: NumbaType
) -> Intrinsic:
    """Return a mask of those `SWEEP_LANES` signatures at address `others` that are similar to
    `signature`.

    Two signatures are similar if each has at most `limit` bits that the other does not
    have.
    """

    def codegen(
        context: TargetContext, builder: Builder, sig: Signature, args: Values
    ) -> Value:
        own, there = splat(builder, args[0], VECTOR), load(builder, args[1], VECTOR, 8)
        most = splat(builder, args[2], VECTOR)
        differ = builder.xor(own, there)
        one_sided = [builder.and_(differ, one) for one in (own, there)]
        counts = [
            call(builder, f"llvm.ctpop.v{SWEEP_LANES}i64", VECTOR, some)
            for some in one_sided
        ]
        within = [builder.icmp_signed("<=", count, most) for count in counts]
        return bits(builder, builder.and_(*within))

    return types.int64(*(types.int64,) * 3), codegen


@device_function
def set_matches(tokens: Array, start: int, length: int, matches: Array) -> None:
    """For each position p of a string, set bit p in `matches[c]`, where c is the code
    at p.

    The string has at most `MAX_SHORT` codes.
    """
    for p in range(length):
        matches[tokens[start + p]] |= 1 << p


@device_function
def clear_matches(tokens: Array, start: int, length: int, matches: Array) -> None:
    """Undo `set_matches`: the numbers that it has changed in `matches` become 0 again."""
    for p in range(length):
        matches[tokens[start + p]] = 0


@device_function
def lane_distances(
    matches: Array,
    n: int,
    tokens: Array,
    starts: Array,
    strings: Array,
    count: int,
    length: int,
    swaps: bool,
    rows: Array,
    out: Array,
) -> None:
    """Write the distances between one string of n > 0 codes and `count` strings of
    equal length.

    `matches`: the positions of each code in the one string, see `set_matches`.
    `strings`: numbers of the other strings, at most `SWEEP_LANES`. `starts`: where each
    string begins in `tokens`. `rows`: scratch (length * SWEEP_LANES,). `out` (SWEEP_LANES,): the
    distances.
    """
    for s in range(count):
        start = starts[strings[s]]
        for p in range(length):
            rows[p * SWEEP_LANES + s] = matches[tokens[start + p]]
    _walk(rows.ctypes.data, length, n, swaps, out.ctypes.data)
