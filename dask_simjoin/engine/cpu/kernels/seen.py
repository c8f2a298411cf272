"""What joins of an index with itself look at, counted apart from them: for profiles."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array

TILE = 64


@kernel
def windows(x: Array, keys: Array, starts: Array, offsets: Array, reach: float, told: Array) -> None:
    """Count the rows of cells that the sweep looks for and finds, and the points in its windows, in `told`.

    `x`: the swept coordinate (n or more,); `offsets`: of neighbour rows, the own one first.
    """
    for r in range(keys.size):
        for o in range(offsets.size):
            told[0] += 1
            p = np.searchsorted(keys, keys[r] + offsets[o])
            if p == keys.size or keys[p] != keys[r] + offsets[o]:
                continue
            told[1] += 1
            lo, stop = starts[p], starts[p + 1]
            hi = lo
            for i in range(starts[r], starts[r + 1]):
                if offsets[o] == 0:
                    lo = i + 1
                while lo < stop and x[i] - x[lo] > reach:
                    lo += 1
                hi = max(hi, lo)
                while hi < stop and x[hi] - x[i] <= reach:
                    hi += 1
                told[2] += hi - lo


@kernel
def tiles(low: Array, high: Array, z: Array, points: int, reach: float, norm: Kind, told: Array) -> None:
    """Count pairs of tiles whose boxes are near, queries near a tile's box, and their candidates, in `told`.

    `low`, `high` (tiles, k): the boxes; `z` (tiles, k, 64): the points.
    """
    number, k = low.shape
    for a in range(number):
        for b in range(a, number):
            total = 0.0
            for m in range(k):
                gap = max(np.float64(low[b, m]) - high[a, m], np.float64(low[a, m]) - high[b, m])
                total = add_term(total, max(gap, 0.0), norm)
                if total > reach:
                    break
            if total > reach:
                continue
            told[0] += 1
            for t in range(min(TILE, points - a * TILE)):
                total = 0.0
                for m in range(k):
                    at = np.float64(z[a, m, t])
                    gap = max(low[b, m] - at, at - high[b, m])
                    total = add_term(total, max(gap, 0.0), norm)
                if total <= reach:
                    told[1] += 1
                    told[2] += min(TILE, points - b * TILE) - (t + 1 if a == b else 0)
