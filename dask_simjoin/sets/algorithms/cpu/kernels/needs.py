"""What sizes and overlaps match, for kernels: see `Limits`."""

from __future__ import annotations

import math

from dask_simjoin.engine.cpu.kernels.jit import device_function
from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.kinds import NEVER, NONE, PRODUCT

Numbers = tuple[int, int, int, bool, bool, bool]
"""The fields of `Limits`."""


@device_function
def least(kind: int, n: int, d: int, above: bool, a: int, b: int) -> int:
    """Return the least overlap o with o * d >= n * (a+b), or o**2 * d >= n * a * b, or o * d >= n."""
    if kind == PRODUCT:
        top = n * a * b + above
        o = int(math.sqrt(top / d))
        while o * o * d >= top:
            o -= 1
        while o * o * d < top:
            o += 1
        return o
    top = (n if kind == NONE else n * (a + b)) + above
    return (top + d - 1) // d


@device_function
def need(limits: Numbers, a: int, b: int) -> int:
    """Return the least overlap of sets of these sizes that may match."""
    return least(limits[0], limits[1], limits[2], limits[3], a, b)


@device_function
def beyond(limits: Numbers, a: int, b: int) -> int:
    """Return the least overlap that is too much."""
    if limits[4]:
        return least(limits[0], limits[1], limits[2], limits[5], a, b)
    return NEVER


@device_function
def set_rows(limits: Numbers, a: int, lo: int, hi: int, kinds: Array, rows: Array) -> tuple[int, int]:
    """Return which `kinds` of sizes, lo ... hi-1, may match a size, and tell what they need.

    `lo` and `hi` are those of a smaller size, or 0.  At each of these sizes `rows[0]` gets the least overlap,
    and `rows[1]` how many tokens at most are in one set only, of pairs up to that size.
    """
    while lo < kinds.size and need(limits, a, kinds[lo]) > kinds[lo]:
        lo += 1
    while hi < kinds.size and need(limits, a, kinds[hi]) <= a:
        hi += 1
    differ = 0
    for kind in range(lo, hi):
        b = kinds[kind]
        rows[0, b] = need(limits, a, b)
        differ = max(differ, a + b - 2 * rows[0, b])
        rows[1, b] = differ
    return lo, hi
