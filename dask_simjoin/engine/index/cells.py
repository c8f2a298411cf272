"""The grid of cells whose points are usually all near each other, in 1 to 4 dimensions."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.index.sweep import KEY_BITS, MAX_CELL_BITS, WIDEN, SweepGrid
from dask_simjoin.metrics.norms import Norm, reach

REACH = 2
"""Near points are at most this number of cells apart in each dimension."""

MAX_DIMS = 4


@dataclass(frozen=True)
class CellLayout:
    """How one chunk is indexed for density clusters.  It is compared with no other chunk.

    Attributes
    ----------
    threshold : float
        Threshold of the float64 decision.
    norm : int or float
        Norm of the totals that the decision compares.
    """

    threshold: float
    norm: Norm = 2

    @property
    def method(self) -> str:
        """The name of this layout; it is not a method that users can choose."""
        return "cells"


def serves(dims: int, norm: Norm) -> bool:
    """Return whether cells of at least eps / 2 in width can have a diagonal of at most eps."""
    return dims <= MAX_DIMS and _share(dims, norm) >= 0.5


def _share(dims: int, norm: Norm) -> float:
    """Return the width of a cell whose diagonal is 1."""
    return 1.0 if norm == math.inf else float(dims ** (-1 / norm))


def make_cells(lower: np.ndarray, upper: np.ndarray, layout: CellLayout) -> SweepGrid:
    """Choose the cells for points within the box [lower, upper]; cells of the swept dimension have stride 1.

    Near points lie at most `REACH` cells apart.  Let t = (x - origin) / width, and r the largest difference
    of a coordinate.  Without rounding, both t differ by at most r / width <= 2 / WIDEN < 2 - 2**-18.  Three
    roundings change each t by at most 3 * 2**-53 * 2**30 < 2**-20.  So their floors differ by at most 2.

    Cells of a dimension are numbered from 1, as in `index.sweep`, with numbers for 4 more cells.  So a
    neighbor beyond the last cell, or before the first, never has the key of another cell.
    """
    d = len(lower)
    half = [float(upper[k]) * 0.5 - float(lower[k]) * 0.5 for k in range(d)]
    sweep = max(range(d), key=lambda k: (half[k], -k))
    dims = (*(k for k in range(d) if k != sweep), sweep)
    scale = 1.0 if max(half) < 2.0**1021 else 0.25
    span = [half[k] * 2 * scale for k in dims] if scale == 1.0 else [half[k] * 0.5 for k in dims]
    bits = min(MAX_CELL_BITS, KEY_BITS // d - 1)
    least = reach(layout.norm, layout.threshold) * scale * max(0.5 * WIDEN, _share(d, layout.norm))
    width = [max(least, s * 2.0**-bits, 2.0**-1000) for s in span]
    cells = [int(s / w) + 5 if w < math.inf else 5 for s, w in zip(span, width, strict=True)]
    strides = tuple(math.prod(cells[k + 1 :]) for k in range(d))
    origin = tuple(float(lower[k]) * scale for k in dims)
    return SweepGrid(sweep, dims, origin, tuple(width), strides, scale)


def runs(grid: SweepGrid, *, half: bool) -> tuple[np.ndarray, int]:
    """Return the key offsets of runs of neighbor cells, the nearest first, and the number of adjacent runs.

    `half`: only runs with cells that come later than the cell itself.
    """
    steps = itertools.product(range(-REACH, REACH + 1), repeat=len(grid.dims) - 1)
    away = sorted((sum(abs(s) for s in step), step) for step in steps)
    found = [(sum(s * t for s, t in zip(step, grid.strides, strict=False)), far) for far, step in away]
    kept = [(key, far) for key, far in found if key >= 0 or not half]
    return np.array([key for key, _ in kept], np.int64), sum(far <= 1 for _, far in kept)
