"""Sort 64-bit keys with several threads: deal them to ranges of keys, then sort each."""

from __future__ import annotations

import functools
import itertools

import numpy as np

from dask_simjoin.engine.cpu.kernels import sorting as kernels
from dask_simjoin.engine.process import shared_out, threads_for, together
from dask_simjoin.sizes import MIN_PART

MAX_PARTS = np.iinfo(np.uint8).max + 1
"""Keys are dealt to at most this many ranges, whose numbers are stored in a byte."""


def threads_to_sort(keys: int, threads: int) -> int:
    """Return how many of the threads it pays to use for a number of keys."""
    return min(threads_for(keys, threads, MIN_PART), MAX_PARTS)


def dealt(keys: np.ndarray, bits: int, parts: int) -> tuple[np.ndarray, list[int]]:
    """Reorder keys (n,), uint64, into ascending ranges of about equal size.

    Return the keys, and the boundaries of the ranges. Keys that differ only in their
    lowest `bits` bits are in one range.
    """
    n = len(keys)
    if parts == 1:
        return keys, [0, n]
    some = np.sort(keys[:: -(-n // 4096)])
    upper = some[np.arange(1, parts) * len(some) // parts]
    upper = upper >> np.uint64(bits) << np.uint64(bits)
    if not upper[-1]:
        return keys, [0, n]
    limits = np.full(1 << (parts - 1).bit_length(), np.iinfo(np.uint64).max, np.uint64)
    limits[: parts - 1] = upper
    part = np.empty(n, np.uint8)

    def count(start: int, stop: int) -> tuple[int, int, np.ndarray]:
        numbers = np.zeros(parts, np.int64)
        kernels.count_parts(keys, start, stop, limits, part, numbers)
        return start, stop, numbers

    counted = shared_out(count, n, parts)
    numbers = np.array([found for _, _, found in counted])
    ends = np.concatenate([[0], np.cumsum(numbers.sum(axis=0))])
    at = ends[:-1] + np.cumsum(numbers, axis=0) - numbers
    out = np.empty_like(keys)
    together(
        [
            functools.partial(kernels.deal_keys, keys, start, stop, part, own, out)
            for (start, stop, _), own in zip(counted, at, strict=True)
        ]
    )
    return out, ends.tolist()


def sort_keys(keys: np.ndarray, low_bit: int, spare: np.ndarray, threads: int) -> None:
    """Sort different keys (n,), uint64, which differ in the bits from `low_bit` on or
    are in the order of the lower bits. The memory of `spare` (n,), 8 bytes a key, may
    be overwritten.

    `threads`: number of threads that sort other keys at the same time. If it is 1, keys
    are sorted by digits: NumPy takes several times as long on processors whose vectors
    it does not use. Several threads are faster with NumPy's sort: see decision 22.
    """
    if threads > 1:
        keys.sort()
        return
    kernels.sort_keys(
        keys, low_bit, kernels.empty_counts(low_bit), spare.view(np.uint64)
    )


def divided(keys: np.ndarray, part: int, threads: int) -> np.ndarray:
    """Reorder different keys (n,), uint64, so that each run of `part` keys has smaller
    keys than the next run. The memory of `keys` may be reused.
    """
    keys, ends = dealt(keys, 0, threads_to_sort(len(keys), threads))

    def divide(start: int, stop: int) -> None:
        first, last = start // part + 1, -(-stop // part)
        if first < last:
            middle = (first + last) // 2 * part
            keys[start:stop].partition(middle - start)
            divide(start, middle)
            divide(middle, stop)

    together([functools.partial(divide, *some) for some in itertools.pairwise(ends)])
    return keys
