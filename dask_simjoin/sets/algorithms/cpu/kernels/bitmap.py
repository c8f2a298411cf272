"""Compare bitmaps of all pairs of sets of admissible sizes, and the tokens of those that are left."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import count_bits, lowest_bit
from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.cpu.kernels.bits_simd import LANES, similar_bits
from dask_simjoin.sets.algorithms.cpu.kernels.merge import common
from dask_simjoin.sets.algorithms.cpu.kernels.needs import Numbers, beyond, set_rows
from dask_simjoin.sets.algorithms.cpu.kernels.sides import (
    CANDIDATES,
    DONE,
    LISTED,
    NEXT,
    PAIRS,
    TOTAL,
    VERIFIED,
    Out,
    Side,
)


@kernel
def join(q: Side, d: Side, same: bool, limits: Numbers, q_bits: Array, d_words: Array, kinds: Array,
         starts: Array, rows: Array, state: Array, enough: int, out: Out, tally: Array) -> None:  # fmt: skip
    """Join sets `q` with sets `d`, or with those before each of them (`same`), from `state[NEXT]` on.

    It ends at the set with which pairs are `enough`, or before the one with which they do not fit: then
    `state[NEXT]` is the one to go on with, else -1.  `kinds`: the sizes in `d`; `starts`: the first set of
    each, and how many sets there are.
    """
    q_offsets, q_tokens, q_weights = q
    d_offsets, d_tokens, d_weights = d
    left, right, overlaps, q_counts, d_counts = out
    room, counting = left.size, q_counts.size > 0
    words, stride, base = d_words.shape[0], d_words.strides[0], d_words.ctypes.data
    lo, hi, size = np.int64(0), np.int64(0), 0  # literals would be compiled for themselves
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
                least = rows[0, over - there]
                found = common(q_tokens, begin, end, d_tokens, there, over, 0, least)
                if found >= least and (not limits[4] or found < beyond(limits, size, over - there)):
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
    tally[LISTED] += listed
    tally[CANDIDATES] += candidates
    tally[VERIFIED] += candidates
    tally[PAIRS] += pairs
