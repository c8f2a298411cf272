"""Kernels that sort 64-bit keys: see `engine.cpu.sorting`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.norms import Array

DIGIT = 8
"""Bits of a digit of a radix sort. With 11 bits, a million keys take half as long
again.
"""

BITS = np.iinfo(np.uint64).bits


@device_function
def _count_digits(keys: Array, low_bit: int, counts: Array) -> None:
    """Count the keys with each digit. `counts` (digits, 2**DIGIT): output."""
    counts[:] = 0
    mask = np.uint64((1 << DIGIT) - 1)
    for i in range(keys.size):
        key = keys[i] >> np.uint64(low_bit)
        for place in range(counts.shape[0]):
            counts[place, np.int64(key & mask)] += 1
            key >>= np.uint64(DIGIT)


@device_function
def _sort_by_digit(keys: Array, shift: int, counts: Array, out: Array) -> None:
    """Copy keys to `out`, in the order of one digit. `counts` (2**DIGIT,): the number
    of keys with each digit; overwritten.
    """
    mask, before = np.uint64((1 << DIGIT) - 1), 0
    for digit in range(counts.size):
        number = counts[digit]
        counts[digit] = before
        before += number
    for i in range(keys.size):
        own = np.int64((keys[i] >> np.uint64(shift)) & mask)
        out[counts[own]] = keys[i]
        counts[own] += 1


@kernel
def sort_keys(keys: Array, low_bit: int, counts: Array, spare: Array) -> None:
    """Sort keys (n,), uint64, by their bits from `low_bit` on. Keys with the same bits
    stay in their order.

    Scratch: `spare` (n,), uint64; `counts`, int64, see `empty_counts`.
    """
    _count_digits(keys, low_bit, counts)
    mask, turned = np.uint64((1 << DIGIT) - 1), False
    for place in range(counts.shape[0]):
        shift = low_bit + place * DIGIT
        if keys.size and (
            counts[place, np.int64((keys[0] >> np.uint64(shift)) & mask)] == keys.size
        ):
            continue  # all keys have the same digit
        if turned:
            _sort_by_digit(spare, shift, counts[place], keys)
        else:
            _sort_by_digit(keys, shift, counts[place], spare)
        turned = not turned
    if turned:
        for i in range(keys.size):
            keys[i] = spare[i]


def empty_counts(low_bit: int) -> np.ndarray:
    """Return the scratch array of `sort_keys`."""
    return np.empty((-(-(BITS - low_bit) // DIGIT), 1 << DIGIT), np.int64)


@kernel
def count_parts(
    packed: Array, begin: int, end: int, limits: Array, part: Array, numbers: Array
) -> None:
    """Find the part of each of the numbers `begin` ... `end` - 1, and count the numbers
    of each part.

    `limits`: for each part, an upper limit of its numbers; their number is a power of
    two. `part` (n,), uint8: output.
    """
    for i in range(begin, end):
        step, at = limits.size >> 1, 0
        while step > 0:  # without a branch that depends on the number
            at += step * (packed[i] >= limits[at + step - 1])
            step >>= 1
        at = min(at, numbers.size - 1)
        part[i] = at
        numbers[at] += 1


@kernel
def deal_keys(
    packed: Array, begin: int, end: int, part: Array, at: Array, out: Array
) -> None:
    """Copy the numbers `begin` ... `end` - 1 to parts. `part`: see `count_parts`. `at`:
    index in `out` of each part's next number.
    """
    for i in range(begin, end):
        to = at[part[i]]
        out[to] = packed[i]
        at[part[i]] = to + 1
