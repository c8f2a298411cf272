"""How many tiles of points will be near each other, from a sample."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm, box_gap

MOST = 1 << 14
"""Points of the sample that are looked at."""

TRIED = 64
"""Tiles that are compared with all others."""


def near_share(x: np.ndarray, rows: int, threshold: float, norm: Norm) -> tuple[float, float]:
    """Estimate the share of pairs of tiles of `rows` points whose boxes are within the threshold.

    Tiles of a sample `x` (m, d) are larger than those of all points: each of their d sides is made as much
    smaller as there are more points.  The second number is of a quarter of the points.  Only how work is cut
    goes by it.
    """
    if len(x) > MOST:
        x = x[np.sort(np.random.default_rng(len(x)).choice(len(x), MOST, replace=False))]
    m, dims = x.shape
    number = m // TILE
    if number < 2:
        return 1.0, 1.0
    order = kd_order(x, dims_to_cut(x.var(axis=0)), TILE, 2)
    boxed = x[order[: number * TILE]].reshape(number, TILE, dims)
    low, high = boxed.min(axis=1), boxed.max(axis=1)
    some = np.unique(np.linspace(0, number - 1, TRIED).astype(np.int64))

    def share(points: float) -> float:
        inner = half * (m / max(points, m)) ** (1 / dims)
        lower, upper = middle - inner, middle + inner
        near = [box_gap(norm, lower[t], upper[t], lower, upper) <= threshold for t in some]
        return float(np.mean(near))

    with np.errstate(over="ignore", invalid="ignore"):
        middle, half = low / 2 + high / 2, high / 2 - low / 2
        return share(rows), share(rows / 4)
