"""The common tokens of two sets, by merging them without branches that a core would guess wrong."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import inline_source
from dask_simjoin.metrics.types import Array

STEPS = 8
"""How many steps are done before it is asked whether the rest can still decide."""


@inline_source
def common(x: Array, i: int, i_end: int, y: Array, j: int, j_end: int, found: int, least: int) -> int:
    """Return `found` and how many tokens are in both ranges, or less than `least` if it is less."""
    while True:
        rest = min(i_end - i, j_end - j)
        if found + rest < least:
            return found
        if rest < STEPS:
            break
        for _ in range(STEPS):
            s, t = x[i], y[j]
            found += s == t
            i += s <= t
            j += t <= s
    while i < i_end and j < j_end:
        s, t = x[i], y[j]
        found += s == t
        i += s <= t
        j += t <= s
    return found
