"""Estimate from some pairs of sets what bitmaps leave, and how many entries the lists of prefixes show."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import count_bits
from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.cpu.kernels.needs import Numbers, set_rows
from dask_simjoin.sets.algorithms.cpu.kernels.sides import Side

PARTNERS = 31
"""Sets that each set of the sample is compared with, or a few more."""

ADMISSIBLE, COMPARED, LOOKUPS, ENTRIES, LEFT = range(5)
"""What is told: pairs of admissible sizes; those that were compared; tokens of prefixes; entries of their
lists, of such sizes; and, from `LEFT` on, how many of the compared ones bitmaps of 1, 2 ... words leave."""


@kernel
def sample(q: Side, d: Side, same: bool, limits: Numbers, prefixes: Array, lists: Array, kinds: Array,
           starts: Array, rows: Array, step: int, bits: Array, told: Array) -> None:  # fmt: skip
    """Look at every `step`-th set of `q`, and compare some of `d`, before it if they are the same.

    `bits`: memory for the words of the largest bitmap; the smaller ones are its halves' xor, and so on.
    `told`: float64.
    """
    q_offsets, q_tokens, _ = q
    d_offsets, d_tokens, _ = d
    lo, hi, size = np.int64(0), np.int64(0), 0  # literals would be compiled for themselves
    mask, most = lists.shape[0] - 1, bits.size
    for k in range(step // 2, q_offsets.size - 1, step):
        begin, end = q_offsets[k], q_offsets[k + 1]
        if end - begin != size:
            size = end - begin
            lo, hi = set_rows(limits, size, lo, hi, kinds, rows)
        first, last = starts[lo], starts[hi]
        if same:
            last = min(last, k)
        if first >= last:
            continue
        told[ADMISSIBLE] += last - first
        share = (last - first) / (d_offsets.size - 1)
        for p in range(begin, begin + prefixes[size]):
            bucket = q_tokens[p] & mask
            told[LOOKUPS] += 1
            if bucket < mask:  # where the last list ends is not told
                told[ENTRIES] += share * (lists[bucket + 1, 0] - lists[bucket, 0])
        stride = max((last - first) // PARTNERS, 1)
        for other in range(first + k % stride, last, stride):
            there, over = d_offsets[other], d_offsets[other + 1]
            for w in range(most):
                bits[w] = 0
            for p in range(begin, end):
                bit = q_tokens[p] & (64 * most - 1)
                bits[bit >> 6] ^= 1 << (bit & 63)
            for p in range(there, over):
                bit = d_tokens[p] & (64 * most - 1)
                bits[bit >> 6] ^= 1 << (bit & 63)
            told[COMPARED] += 1
            words, place = most, told.size - 1
            while words > 0:
                differ = 0
                for w in range(words):
                    differ += count_bits(bits[w])
                told[place] += differ <= size + over - there - 2 * rows[0, over - there]
                words //= 2
                place -= 1
                for w in range(words):
                    bits[w] ^= bits[w + words]
