"""Bitmaps of sets: each token turns one bit over."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.types import Array


@kernel
def set_bits(offsets: Array, tokens: Array, bits: Array) -> None:
    """Turn bits of zeros (n, words): two sets differ in at least as many tokens as their bitmaps in bits.

    Which bit a token turns is told by the last bits of its number: the most frequent tokens, whose numbers
    follow each other, each have their own.
    """
    last = 64 * bits.shape[1] - 1
    for k in range(offsets.size - 1):
        for p in range(offsets[k], offsets[k + 1]):
            bit = tokens[p] & last
            bits[k, bit >> 6] ^= 1 << (bit & 63)
