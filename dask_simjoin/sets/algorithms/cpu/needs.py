"""The least overlaps of pairs that match, for kernels: see `Limits`."""

from __future__ import annotations

import math

from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.sets.predicate import NEVER, NONE, PRODUCT


@kernel
def least(kind, n, d, above, a, b):  # type: ignore[no-untyped-def]
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


@kernel
def need(limits, a, b):  # type: ignore[no-untyped-def]
    """Return the least overlap of sets of these sizes that may match."""
    return least(limits[0], limits[1], limits[2], limits[3], a, b)


@kernel
def beyond(limits, a, b):  # type: ignore[no-untyped-def]
    """Return the least overlap that is too much."""
    if limits[4]:
        return least(limits[0], limits[1], limits[2], limits[5], a, b)
    return int(NEVER)
