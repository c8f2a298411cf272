"""Bounds, means and squares of columns on a GPU, in two passes at the speed of its memory."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.metrics.types import Array, Spread

THREADS = 256
BLOCKS = 2048
"""Blocks of all columns together, about: enough to read as fast as memory can be read."""


def _columns(x: Array, name: str, values: int, *arguments: Any) -> np.ndarray:
    """What the blocks of each column tell, on the host: (values, d, blocks)."""
    n, d = x.shape
    blocks = max(1, min(-(-n // THREADS), BLOCKS // d))
    found = cupy.empty((values, d, blocks))
    function = load.kernel("moments", name, DIMS=1, EXACT=True)
    function((blocks, d), (THREADS,), (x, np.uint64(n), *arguments, found))
    return cupy.asnumpy(found)


def bounds(x: Array) -> tuple[np.ndarray, np.ndarray] | None:
    """Smallest and largest coordinates (d,) of points (n, d), n > 0; None where `spread` gives none."""
    found = _sums(x)
    return found and found[:2]


def spread(x: Array) -> Spread | None:
    """Bounds, means and sums of squared deviations (d,) of points (n, d), n > 0.

    None where columns do not lie one after the other, and where a value or a sum is no finite number.
    """
    found = _sums(x)
    if found is None:
        return None
    lower, upper, sums = found
    mean = sums / len(x)
    squares = _columns(x, "column_squares", 1, cupy.asarray(mean))[0].sum(axis=1)
    return lower, upper, mean, squares


def _read_some() -> None:
    """Do what follows for whatever is joined: points are sampled, and places become numbers."""
    places = cupy.asarray(np.arange(2))
    cupy.empty((4, 2), order="F")[places]
    places.astype(cupy.int32).astype(cupy.int64)


def _sums(x: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    if x.dtype != np.float64 or not x.flags.f_contiguous:
        return None
    load.rehearse(_read_some)  # while the kernels here are compiled
    lower, upper, sums = _columns(x, "column_sums", 3)
    with np.errstate(over="ignore", invalid="ignore"):
        found = lower.min(axis=1), upper.max(axis=1), sums.sum(axis=1)
    return found if np.isfinite(found).all() else None
