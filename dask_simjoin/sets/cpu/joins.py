"""Join sets by comparing bitmaps, or with an index of prefixes: AllPairs, PPJoin and
GroupJoin.

Without an index, the bitmaps of all pairs of sets with admissible sizes are compared
(Sandes, Teodoro & Melo 2020). AllPairs is by Bayardo, Ma & Srikant (2007). PPJoin also
rejects pairs by the positions of tokens (Xiao, Wang, Lin & Yu 2008). Positions also
give tighter bounds of sizes (Mann & Augsten 2014). GroupJoin treats sets with equal
sizes and prefixes as one unit (Bouros, Ge & Mamoulis 2012).

Each entry of the index has the bitmap of its set. Entries are read in sequence, so
reading the bitmaps adds little cost. A pair is verified when it is first found; the
merge begins after the first common token.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_function,
    kernel,
)
from dask_simjoin.engine.cpu.kernels.simd import (
    I64,
    SWEEP_LANES,
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
)
from dask_simjoin.engine.cpu.kernels.simd import Builder as Builder
from dask_simjoin.engine.cpu.kernels.tile_simd import count_bits, lowest_bit
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sets.cpu.candidates import (
    CANDIDATES,
    COMPARISONS,
    DISTINCT_PAIRS,
    DONE,
    FILLED,
    NEXT,
    STAMP,
    STOP,
    TALLY_LISTED,
    TOTAL,
    Numbers,
    Out,
    Side,
    beyond,
    common,
    need,
    set_rows,
)


@kernel
def set_bits(offsets: Array, tokens: Array, bits: Array) -> None:
    """Write the bitmaps of sets to `bits` (n, words), which must be zeros. Each token
    of a set flips one bit.

    If two bitmaps differ in b bits, their sets differ in at least b tokens. The low
    bits of a token's number choose the bit. Frequent tokens have consecutive numbers,
    so they flip different bits.
    """
    last = 64 * bits.shape[1] - 1
    for k in range(offsets.size - 1):
        for p in range(offsets[k], offsets[k + 1]):
            bit = tokens[p] & last
            bits[k, bit >> 6] ^= 1 << (bit & 63)


VECTOR = ir.VectorType(I64, SWEEP_LANES)


@intrinsic
def similar_bits(
    typingctx: TypingContext,
    base: NumbaType,
    stride: NumbaType,
    words: NumbaType,
    probe: NumbaType,
    max_bits: NumbaType,
) -> Intrinsic:
    """Compare `SWEEP_LANES` bitmaps with the bitmap of the probe. Return a mask of the
    bitmaps that differ in at most `max_bits` bits.

    At `base` the first words of all bitmaps are adjacent. Their second words are
    `stride` bytes further on, and so on. At `probe` the words of one bitmap are
    adjacent.
    """

    def codegen(
        context: TargetContext, builder: Builder, sig: Signature, args: Values
    ) -> Value:
        base_, stride_, words_, probe_, most_ = args
        slot = cgutils.alloca_once_value(
            builder, ir.Constant(VECTOR, [0] * SWEEP_LANES)
        )
        with cgutils.for_range_slice(builder, const(0), words_, const(1)) as (w, _):
            those = load(
                builder, builder.add(base_, builder.mul(w, stride_)), VECTOR, 8
            )
            own = load(builder, builder.add(probe_, builder.mul(w, const(8))), I64, 8)
            differ = builder.xor(those, splat(builder, own, VECTOR))
            count = call(builder, f"llvm.ctpop.v{SWEEP_LANES}i64", VECTOR, differ)
            builder.store(builder.add(builder.load(slot), count), slot)
        near = builder.icmp_signed(
            "<=", builder.load(slot), splat(builder, most_, VECTOR)
        )
        return bits(builder, near)

    return types.int64(*(types.int64,) * 5), codegen


class Sizes(NamedTuple):
    """The distinct sizes of sets in a block, and where the sets of each size start; at
    the end, the number of sets.
    """

    distinct: Array
    starts: Array


Tally = tuple[int, int, int, int, int]


@inline_function
def copied(tally: Array) -> Tally:
    return tally[0], tally[1], tally[2], tally[3], tally[4]


@inline_function
def add_pair(
    q: Side, d: Side, one: int, two: int, found: int, out: Out, done: int, tally: Array
) -> int:
    """Count a pair with `found` common tokens, and write it if there is space in `out`.
    Return the number of pairs for `out` so far.
    """
    left, right, overlaps, q_counts, d_counts = out
    weight, other_weight = q[2][one], d[2][two]
    tally[DISTINCT_PAIRS] += 1
    tally[TOTAL] += weight * other_weight
    if q_counts.size > 0:
        q_counts[one] += other_weight
        d_counts[two] += weight
    if done < left.size:
        left[done], right[done], overlaps[done] = one, two, found
    return done + (left.size > 0)


@kernel
def join_bitmaps(
    q: Side,
    d: Side,
    is_self_join: bool,
    limits: Numbers,
    bits_of: tuple[Array, Array],
    sizes: Sizes,
    scratch: tuple[Array],
    state: Array,
    out: Out,
    tally: Array,
) -> None:
    """Join the sets `q`, from set `state[NEXT]` on, with the sets `d`. In a self-join,
    join each with earlier sets only.

    If the pairs of a set do not fit in `out`, the kernel stops before this set, and
    writes its number to `state[NEXT]`. After the last set, the kernel writes -1. It also
    stops soon after another thread has set `state[STOP]`.

    `bits_of`: bitmaps of `q` (sets, words), and of `d` (words, sets or more). `sizes`:
    the sizes in `d`. `scratch`: see `set_rows`.
    """
    q_bits, d_words = bits_of
    distinct, starts = sizes
    (rows,) = scratch
    q_offsets, q_tokens, q_weights = q
    d_offsets, d_tokens, _ = d
    words, stride, base = d_words.shape[0], d_words.strides[0], d_words.ctypes.data
    # np.int64, because Numba would compile another version of the function for int
    # literals
    lo, hi, size = np.int64(0), np.int64(0), 0
    first, last = 0, 0
    done = 0
    k = state[NEXT]
    while k < q_weights.size and state[STOP] == 0:
        begun, before = done, copied(tally)
        begin, end = q_offsets[k], q_offsets[k + 1]
        if end - begin != size:
            size = end - begin
            lo, hi = set_rows(limits, size, lo, hi, distinct, rows)
            first, last = starts[lo], starts[hi]
        stop = min(k, last) if is_self_join else last
        probe = q_bits.ctypes.data + 8 * words * k
        tally[TALLY_LISTED] += max(stop - first, 0)
        place = first
        while place < stop:
            tail = min(place + SWEEP_LANES, stop)
            largest = d_offsets[tail] - d_offsets[tail - 1]
            near = similar_bits(
                base + 8 * place, stride, words, probe, rows[1, largest]
            )
            near &= (1 << (tail - place)) - 1
            tally[CANDIDATES] += count_bits(near)
            while near != 0:
                other = place + lowest_bit(near)
                near &= near - 1
                there, over = d_offsets[other], d_offsets[other + 1]
                min_overlap = rows[0, over - there]
                found = common(
                    q_tokens, begin, end, d_tokens, there, over, 0, min_overlap
                )
                if found >= min_overlap and (
                    not limits[4] or found < beyond(limits, size, over - there)
                ):
                    done = add_pair(q, d, k, other, found, out, done, tally)
            place += SWEEP_LANES
        if done > out[0].size:
            done = begun
            tally[0], tally[1], tally[2], tally[3], tally[4] = before
            break
        k += 1
    state[NEXT] = k if k < q_weights.size else -1
    state[DONE] = done
    tally[COMPARISONS] = tally[CANDIDATES]


Index = tuple[Array, Array, Array, Array, Array, Array, Array, Array]
"""An index: units and prefix lengths (by size) of both blocks, bounds of the token
lists, and the arrays of entries.

A unit is a set, or a group of sets: unit u has the sets units[u] to units[u + 1] - 1.
An entry is for a token in the prefix of a unit. It has the unit, the position of the
token in the unit's sets, and the bitmap of its first set.
"""


@device_function
def add_units(first: int, stop: int, d: Side, d_bits: Array, index: Index) -> int:
    """Add the entries of units to the index. Return the number of units that it has."""
    d_offsets, d_tokens, _ = d
    _, d_units, _, d_prefixes, lists, units, places, words_of = index
    mask = lists.shape[0] - 1
    for unit in range(first, stop):
        begin = d_offsets[d_units[unit]]
        for p in range(d_prefixes[d_offsets[d_units[unit] + 1] - begin]):
            bucket = d_tokens[begin + p] & mask
            entry = lists[bucket, 1]
            lists[bucket, 1] += 1
            units[entry], places[entry] = unit, p
            for w in range(words_of.shape[0]):
                words_of[w, entry] = d_bits[unit, w]
    return max(first, stop)


@inline_function
def join_units(
    q: Side,
    d: Side,
    k: int,
    unit: int,
    index: Index,
    i: int,
    place: int,
    is_self_join: bool,
    overlaps: tuple[int, int],
    out: Out,
    done: int,
    tally: Array,
) -> int:
    """Find the pairs of two units, whose first common tokens are at `i` and at `place`.
    Return the number of pairs for `out` so far.

    `overlaps`: the smallest overlap of a match, and the smallest that is too large.
    """
    q_offsets, q_tokens, _ = q
    d_offsets, d_tokens, _ = d
    q_units, d_units = index[0], index[1]
    x, y = d_units[unit], d_units[unit + 1]
    for one in range(q_units[k], q_units[k + 1]):
        for two in range(x, min(y, one) if is_self_join else y):
            found = common(
                q_tokens,
                q_offsets[one] + i + 1,
                q_offsets[one + 1],
                d_tokens,
                d_offsets[two] + place + 1,
                d_offsets[two + 1],
                1,
                overlaps[0],
            )
            if overlaps[0] <= found < overlaps[1]:
                done = add_pair(q, d, one, two, found, out, done, tally)
    return done


@kernel
def join_lists(
    q: Side,
    d: Side,
    is_self_join: bool,
    limits: Numbers,
    positions: bool,
    bits_of: tuple[Array, Array],
    index: Index,
    sizes: Sizes,
    scratch: tuple[Array, Array],
    state: Array,
    out: Out,
    tally: Array,
) -> None:
    """Join the units `q`, from unit `state[NEXT]` on, with the units `d`. In a
    self-join, join each with earlier units only.

    For the other arguments see `join_bitmaps`. `positions`: whether the positions of
    tokens may reject pairs. `bits_of`: bitmaps of both (sets, words). `scratch`: also
    the number of the last probe that has met each unit of `d`. The index grows as
    probes need it. After the last probe it is complete.
    """
    q_bits, d_bits = bits_of
    distinct, starts = sizes
    rows, last_probe = scratch
    q_offsets, q_tokens, q_weights = q
    d_offsets, d_tokens, _ = d
    q_units, d_units, q_prefixes, _, lists, units, places, words_of = index
    words, stride, base = words_of.shape[0], words_of.strides[0], words_of.ctypes.data
    mask = lists.shape[0] - 1
    # a unit can have several sets, which can match each other
    grouped = q_units.size <= q_weights.size
    # np.int64, because Numba would compile another version of the function for int
    # literals
    lo, hi, size = np.int64(0), np.int64(0), 0
    first, last = 0, 0
    done, filled = 0, state[FILLED]
    k = state[NEXT]
    while k < q_units.size - 1 and state[STOP] == 0:
        begun, before = done, copied(tally)
        state[STAMP] += 1
        visit = state[STAMP]
        begin, end = q_offsets[q_units[k]], q_offsets[q_units[k] + 1]
        if end - begin != size:
            size = end - begin
            lo, hi = set_rows(limits, size, lo, hi, distinct, rows)
            first, last = starts[lo], starts[hi]
        reach = (k + grouped) if is_self_join else d_units.size - 1
        filled = add_units(filled, reach, d, d_bits, index)
        probe = q_bits.ctypes.data + 8 * words * k
        # a complete index also has later units
        kind, behind = hi, min(last, reach)
        for i in range(q_prefixes[size]):
            if positions:
                # skip sizes that need a larger overlap than the remaining tokens can
                # give
                while kind > lo and rows[0, distinct[kind - 1]] > size - i:
                    kind -= 1
                behind = min(starts[kind], reach)
            token = q_tokens[begin + i]
            entry, stop = lists[token & mask, 0], lists[token & mask, 1]
            while entry < stop and units[entry] < first:
                entry += 1
            lists[token & mask, 0] = entry
            while entry < stop and units[entry] < behind:
                tail = min(entry + SWEEP_LANES, stop)
                other = d_units[min(units[tail - 1], behind - 1)]
                differ = rows[1, d_offsets[other + 1] - d_offsets[other]]
                tally[TALLY_LISTED] += tail - entry
                near = similar_bits(base + 8 * entry, stride, words, probe, differ)
                near &= (1 << (tail - entry)) - 1
                while near != 0:
                    at = entry + lowest_bit(near)
                    near &= near - 1
                    unit = units[at]
                    if unit >= behind or last_probe[unit] == visit:
                        continue
                    x, y = d_units[unit], d_units[unit + 1]
                    place = places[at]
                    # several tokens share the list, and this entry is for another token
                    if d_tokens[d_offsets[x] + place] != token:
                        continue
                    last_probe[unit] = visit
                    long = d_offsets[x + 1] - d_offsets[x]
                    min_overlap = rows[0, long]
                    many = (q_units[k + 1] - q_units[k]) * (y - x)
                    if is_self_join and unit == k:
                        many = (y - x) * (y - x - 1) // 2
                    tally[CANDIDATES] += many
                    if positions and min(size - i, long - place) < min_overlap:
                        continue
                    tally[COMPARISONS] += many
                    too_large = beyond(limits, size, long) if limits[4] else long + 1
                    done = join_units(
                        q,
                        d,
                        k,
                        unit,
                        index,
                        i,
                        place,
                        is_self_join,
                        (min_overlap, too_large),
                        out,
                        done,
                        tally,
                    )
                entry += SWEEP_LANES
        if done > out[0].size:
            done = begun
            tally[0], tally[1], tally[2], tally[3], tally[4] = before
            break
        k += 1
    if k == q_units.size - 1:
        filled = add_units(filled, d_units.size - 1, d, d_bits, index)
    state[NEXT] = k if k < q_units.size - 1 else -1
    state[FILLED], state[DONE] = filled, done


@kernel
def set_prefixes(
    limits: Numbers, min_size: int, at_least_own: bool, prefixes: Array
) -> None:
    """Write the length of prefixes for each set size up to `prefixes.size - 1`; 0 if
    sets of this size match no other set.

    `min_size`: smallest size of the other sets. `at_least_own`: whether other sets are
    compared only if they are at least as large.
    """
    # np.int64, because Numba would compile another version of the function for int
    # literals
    low = np.int64(1)
    for a in range(1, prefixes.size):
        # the smallest matching set needs the smallest overlap, and so the longest
        # prefix
        while low < a and need(limits, a, low) > low:
            low += 1
        some = need(limits, a, max(a if at_least_own else low, min_size))
        prefixes[a] = max(a - some + 1, 0)


@kernel
def find_units(offsets: Array, tokens: Array, prefixes: Array, units: Array) -> int:
    """Write where each run of adjacent sets with equal sizes and equal prefixes starts,
    and then the end.

    Return the number of runs.
    """
    found, n = 0, offsets.size - 1
    for k in range(n):
        begin, size = offsets[k], offsets[k + 1] - offsets[k]
        p, shared = 0, 0
        if k > 0 and size == begin - offsets[k - 1]:
            shared = prefixes[size]
            while p < shared and tokens[begin + p] == tokens[begin - size + p]:
                p += 1
        if p < shared or shared == 0:
            units[found] = k
            found += 1
    units[found] = n
    return found


@kernel
def open_lists(
    offsets: Array, tokens: Array, units: Array, prefixes: Array, lists: Array
) -> int:
    """Set `lists[:, 0]` and `lists[:, 1]` to the start of each list. Return the
    capacity of all lists together.

    The list of a token will have the units with this token in their prefixes. Tokens
    whose low bits are equal share a list.
    """
    mask = lists.shape[0] - 1
    for u in range(units.size - 1):
        begin = offsets[units[u]]
        for p in range(begin, begin + prefixes[offsets[units[u] + 1] - begin]):
            lists[tokens[p] & mask, 0] += 1
    total = 0
    for t in range(lists.shape[0]):
        long = lists[t, 0]
        lists[t, 0] = lists[t, 1] = total
        total += long
    return total
