"""Bounds, means and squares of columns on the host, in one compiled pass."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels import moments
from dask_simjoin.metrics.types import Spread

LONG_ROWS = 16
"""Coordinates from which NumPy is faster row by row than columns are copied."""


def bounds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest coordinates (d,) of points (n, d), n > 0, NaN where one is."""
    if x.shape[1] < LONG_ROWS:  # along short rows, NumPy takes several times as long as the copy does
        x = np.asfortranarray(x)
    return x.min(axis=0), x.max(axis=0)


def spread(x: np.ndarray) -> Spread | None:
    """Bounds, means and sums of squared deviations (d,) of points (n, d), n > 0.

    None where rows are long and do not lie column by column, and where one of these is no finite number.
    """
    if x.dtype != np.float64:
        return None
    if not x.flags.f_contiguous:
        if x.shape[1] >= LONG_ROWS:
            return None
        x = np.asfortranarray(x)
    found = np.empty((4, x.shape[1]))
    bounds, (mean, squares) = found[:2].reshape(-1, 2), found[2:]
    moments.spread(x.T, bounds, mean, squares)
    return (*bounds.T.copy(), mean, squares) if np.isfinite(found).all() else None
