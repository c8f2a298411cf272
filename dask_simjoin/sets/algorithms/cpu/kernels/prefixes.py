"""Prefixes: two sets that match have a token in common among so many of each one's rarest."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.cpu.kernels.needs import Numbers, need


@kernel
def set_prefixes(limits: Numbers, least: int, at_least_own: bool, prefixes: Array) -> None:
    """Set the length of the prefix of each size up to `prefixes.size - 1`; 0: no such set matches.

    `least`: of the sizes of the sets that it is compared with, which with `at_least_own` are not smaller.
    """
    low = np.int64(1)  # a literal would be compiled for itself
    for a in range(1, prefixes.size):
        # the smallest partner needs the least, and leaves the longest prefix
        while low < a and need(limits, a, low) > low:
            low += 1
        some = need(limits, a, max(a if at_least_own else low, least))
        prefixes[a] = max(a - some + 1, 0)


@kernel
def find_units(offsets: Array, tokens: Array, prefixes: Array, units: Array) -> int:
    """Write where each run of sets of one size and prefix begins, and where the last ends; how many."""
    found, n = 0, offsets.size - 1
    for k in range(n):
        begin, size = offsets[k], offsets[k + 1] - offsets[k]
        p, same = 0, 0
        if k > 0 and size == begin - offsets[k - 1]:
            same = prefixes[size]
            while p < same and tokens[begin + p] == tokens[begin - size + p]:
                p += 1
        if p < same or same == 0:
            units[found] = k
            found += 1
    units[found] = n
    return found


@kernel
def open_lists(offsets: Array, tokens: Array, units: Array, prefixes: Array, lists: Array) -> int:
    """Tell where lists of tokens begin (`lists[:, 0]`) and, as they are empty, end; how long all will be.

    A token's list takes the units in whose prefixes it is; tokens of the same last bits may share one.
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
