"""Compare bitmaps of all pairs of sets of admissible sizes."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.simd import (
    I64,
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
from dask_simjoin.sets.cpu.kernels.candidates import (
    CANDIDATES,
    DONE,
    NEXT,
    PAIRS,
    TALLY_LISTED,
    TOTAL,
    VERIFIED,
    Numbers,
    Out,
    Side,
    beyond,
    common,
    set_rows,
)


@kernel
def set_bits(offsets: Array, tokens: Array, bits: Array) -> None:
    """Fill `bits` (n, words), zeros at first, with bitmaps: each token of a set flips one bit.

    So two sets differ in at least as many tokens as their bitmaps differ in bits.  The last bits of a token's
    number select its bit.  The most frequent tokens have consecutive numbers, so they flip different bits.
    """
    last = 64 * bits.shape[1] - 1
    for k in range(offsets.size - 1):
        for p in range(offsets[k], offsets[k + 1]):
            bit = tokens[p] & last
            bits[k, bit >> 6] ^= 1 << (bit & 63)


LANES = 16
"""Bitmaps that are compared at once; arrays of bitmaps are padded by this number."""

VECTOR = ir.VectorType(I64, LANES)


@intrinsic
def similar_bits(typingctx: TypingContext, base: NumbaType, stride: NumbaType, words: NumbaType,
                 probe: NumbaType, max_bits: NumbaType) -> Intrinsic:  # fmt: skip
    """Return a mask of the bitmaps at `base` that differ in at most `max_bits` bits from the one at `probe`.

    At `base` the first words of all bitmaps are adjacent, their second words follow `stride` bytes further,
    and so on.  At `probe` the words of one bitmap are adjacent.
    """

    def codegen(context: TargetContext, builder: Builder, sig: Signature, args: Values) -> Value:
        base_, stride_, words_, probe_, most_ = args
        slot = cgutils.alloca_once_value(builder, ir.Constant(VECTOR, [0] * LANES))
        with cgutils.for_range_slice(builder, const(0), words_, const(1)) as (w, _):
            those = load(builder, builder.add(base_, builder.mul(w, stride_)), VECTOR, 8)
            own = load(builder, builder.add(probe_, builder.mul(w, const(8))), I64, 8)
            differ = builder.xor(those, splat(builder, own, VECTOR))
            count = call(builder, f"llvm.ctpop.v{LANES}i64", VECTOR, differ)
            builder.store(builder.add(builder.load(slot), count), slot)
        near = builder.icmp_signed("<=", builder.load(slot), splat(builder, most_, VECTOR))
        return bits(builder, near)

    return types.int64(*(types.int64,) * 5), codegen


@kernel
def join(q: Side, d: Side, same: bool, limits: Numbers, q_bits: Array, d_words: Array, kinds: Array,
         starts: Array, rows: Array, state: Array, enough: int, out: Out, tally: Array) -> None:  # fmt: skip
    """Join sets `q` with sets `d`, from `state[NEXT]` on; if `same`, each set with the sets before it.

    The kernel stops after the set that reaches `enough` pairs, or before the first set whose pairs do not
    fit.  Then `state[NEXT]` is the next set; -1: all sets are joined.  `kinds`: distinct sizes in `d`.
    `starts`: first set of each size, and the number of sets.
    """
    q_offsets, q_tokens, q_weights = q
    d_offsets, d_tokens, d_weights = d
    left, right, overlaps, q_counts, d_counts = out
    room, counting = left.size, q_counts.size > 0
    words, stride, base = d_words.shape[0], d_words.strides[0], d_words.ctypes.data
    lo, hi, size = np.int64(0), np.int64(0), 0  # no literals: Numba would compile a version for each
    first, last = 0, 0
    done = 0
    total = listed = candidates = pairs = 0
    k = state[NEXT]
    while k < q_weights.size and (room == 0 or done < enough):
        begun, before = done, (total, listed, candidates, pairs)
        begin, end = q_offsets[k], q_offsets[k + 1]
        if end - begin != size:
            size = end - begin
            lo, hi = set_rows(limits, size, lo, hi, kinds, rows)
            first, last = starts[lo], starts[hi]
        stop = min(k, last) if same else last
        probe = q_bits.ctypes.data + 8 * words * k
        listed += max(stop - first, 0)
        place = first
        while place < stop:
            tail = min(place + LANES, stop)
            largest = d_offsets[tail] - d_offsets[tail - 1]
            near = similar_bits(base + 8 * place, stride, words, probe, rows[1, largest])
            near &= (1 << (tail - place)) - 1
            candidates += count_bits(near)
            while near != 0:
                other = place + lowest_bit(near)
                near &= near - 1
                there, over = d_offsets[other], d_offsets[other + 1]
                min_overlap = rows[0, over - there]
                found = common(q_tokens, begin, end, d_tokens, there, over, 0, min_overlap)
                if found >= min_overlap and (not limits[4] or found < beyond(limits, size, over - there)):
                    pairs += 1
                    total += q_weights[k] * d_weights[other]
                    if counting:
                        q_counts[k] += d_weights[other]
                        d_counts[other] += q_weights[k]
                    if room > 0:
                        if done < room:
                            left[done], right[done], overlaps[done] = k, other, found
                        done += 1
            place += LANES
        if done > room:
            done, (total, listed, candidates, pairs) = begun, before
            break
        k += 1
    state[NEXT] = k if k < q_weights.size else -1
    state[DONE] = done
    tally[TOTAL] += total
    tally[TALLY_LISTED] += listed
    tally[CANDIDATES] += candidates
    tally[VERIFIED] += candidates
    tally[PAIRS] += pairs
