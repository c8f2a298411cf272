"""The one place where the engine of a join is chosen.

The row sweep compares 1.7 to 1.9 candidates per pair in 2 dimensions, but its neighbourhoods
triple with every gridded dimension.  Tiles prune worse in few dimensions and serve any number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.filters.float32 import Filter, make_filter
from dask_simjoin.engine.filters.int8 import Quantized, make_quantized
from dask_simjoin.engine.index.kdorder import MAX_CUT_DIMS
from dask_simjoin.engine.index.sweep import Grid, make_grid
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm, reach

SWEEP_MAX_DIMS = 4
"""Most dimensions that the row sweep serves."""

SWEEP_AUTO_DIMS = 3
"""Most dimensions in which it is chosen."""

WIDE_FAN_OUT_DIMS = 8
"""Up to here blocks are cut into four parts a level: half of the sorts, boxes as good."""

METHODS = ("auto", "sweep", "tiles")


@dataclass(frozen=True)
class Layout:
    """How the chunks of one join are indexed: all chunks alike, so that any two can meet.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    norm : int or float
        Of the totals that it compares.
    grid : Grid or None
        For the row sweep.
    filter : Filter or None
        For tiles: the float32 filter of squares, or None where all is decided in float64.
    quantized : Quantized or None
        For tiles with that: the filter before it.
    cut : tuple of int
        For tiles: the dimensions by which points are put in order.
    fan_out : int
        For tiles: parts into which blocks are cut at a time.
    """

    threshold: float
    norm: Norm = 2
    grid: Grid | None = None
    filter: Filter | None = None
    quantized: Quantized | None = None
    cut: tuple[int, ...] = ()
    fan_out: int = 2

    @property
    def method(self) -> str:
        """The engine's name."""
        return "tiles" if self.grid is None else "sweep"

    @property
    def grain(self) -> int:
        """Points at whose multiples an index can be cut."""
        return TILE if self.grid is None else 1


def make_layout(
    method: str,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm = 2,
) -> Layout:
    """Choose the engine and what it needs to know of all the data.

    Parameters
    ----------
    method : {"auto", "sweep", "tiles"}
    lower, upper, mean, variance : array (d,), float64
        Of all points.
    threshold, norm : float
        Of the float64 decision.
    """
    dims = len(lower)
    if method == "sweep" or (method == "auto" and dims <= SWEEP_AUTO_DIMS):
        return Layout(threshold, norm, grid=make_grid(lower, upper, variance, reach(norm, threshold)))
    cut = sorted(range(dims), key=lambda k: (-float(variance[k]), k))[:MAX_CUT_DIMS]
    chosen = make_filter(lower, upper, mean, variance, threshold) if norm == 2 else None
    return Layout(
        threshold,
        norm,
        filter=chosen,
        quantized=None if chosen is None else make_quantized(lower, upper, mean, variance, threshold),
        cut=tuple(cut),
        fan_out=4 if dims <= WIDE_FAN_OUT_DIMS else 2,
    )
