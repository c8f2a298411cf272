"""A checksum of bytes, as fast as memory.  It detects accidental changes, not forgery.

Each 64-bit word is increased by its position times `KEY`.  The checksum is the sum of these words and of the
products of their halves.  This is NH (Black et al. 1999, "UMAC") with keys computed from positions.  A change
within one half of a word always changes the checksum.  Other changes go undetected with a probability of
2**-32.  Zlib's CRC takes ten times as long.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import long_at, mask_at, word_at

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
