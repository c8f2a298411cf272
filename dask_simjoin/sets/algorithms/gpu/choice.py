"""Which method "auto" is on a GPU."""

from __future__ import annotations

import cupy

from dask_simjoin.engine.compat import tally
from dask_simjoin.metrics.types import Array
from dask_simjoin.sets.algorithms.gpu.bitmaps import listed
from dask_simjoin.sets.algorithms.gpu.index import Entries
from dask_simjoin.sets.algorithms.gpu.operands import Operands
from dask_simjoin.sets.algorithms.gpu.prefixes import prefixes
from dask_simjoin.sets.methods import AUTO, METHODS, SetMethod

PAIR, MEETING = 4e-12, 34e-12
"""Seconds that a pair of bitmaps takes, and two prefixes that meet in the index: on an H200, where both
methods take some 2.5 ms besides (benchmarks/results/gpu-sets)."""

WORTH = 1e-3
"""Seconds of all bitmaps that are less than what looking for something better takes."""

TOKENS = 1 << 22
"""Counters of the prefixes' tokens; of a larger universe several tokens share one."""


def options_for(join: Operands, method: str | SetMethod) -> SetMethod:
    """Return the options that were asked for; for "auto" those of the bitmaps, or of the index."""
    if not isinstance(method, str):
        return method
    if method != AUTO:
        return METHODS[method]
    pairs = listed(join)
    dense = pairs * PAIR < WORTH or pairs * PAIR < _meetings(join, pairs) * MEETING
    return METHODS["bitmap" if dense else "ppjoin"]


def _meetings(join: Operands, pairs: int) -> float:
    """Estimate how often prefixes meet, as if tokens were alike in sets of all sizes."""
    lengths = prefixes(join, groups=False)
    left, right = (
        _frequencies(Entries.of(side, each))
        for side, each in ((join.left, lengths.left), (join.right, lengths.right))
    )
    return float((left * right).sum()) * pairs / (len(join.left) * len(join.right))


def _frequencies(entries: Entries) -> Array:
    tokens = (entries.keys >> 32).astype(cupy.int64) & (TOKENS - 1)
    return tally(tokens, TOKENS).astype(cupy.float64)
