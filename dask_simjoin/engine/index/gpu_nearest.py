"""How a GPU's chunks are indexed for nearest neighbours; written once for NumPy and CuPy.

As for joins (`dask_simjoin.engine.index.gpu`), but no distance is known beforehand: each query has its own,
which shrinks, so filters' bounds are functions of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.filters.bounds import Bounds, make_bounds
from dask_simjoin.engine.index.gpu import ENOUGH, FAN_OUT, boxed, cut_dims, scaled
from dask_simjoin.engine.index.kdorder import MAX_CUT_DIMS, kd_order
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm

FILTER_DIMS = 5
"""Fewest dimensions in which float32 is asked first: in fewer, float64 alone takes as long."""

TENSOR_DIMS = 9
"""Fewest dimensions in which tensor cores are asked first: in fewer, boxes leave most points out."""

SAMPLE = 512
"""Points from whose distances it is told whether a filter can tell neighbours apart."""

CLEAR = {"float16": 16.0, "float32": 4.0}
"""How many times the error of two points' distance their distance must be, typically."""

U16 = 2.0**-12
"""How far off, relatively, the numbers of a float16 vector are, about."""


@dataclass(frozen=True)
class NearestDeviceLayout:
    """How the chunks of one search are indexed on GPUs: all chunks alike, so that any two can meet.

    Attributes
    ----------
    dims : int
    engine : {"float16", "float32", "float64"}
        What candidates are compared with: see `dask_simjoin.engine.index.gpu.DeviceLayout`.
    bounds : Bounds or None
        Of the filter, if there is one: its centre, scale and rho.  Squares of scaled distances of points are
        at most 2**15.
    cut : tuple of int
        The dimensions by which points are put in order, the ones of largest variance first.
    norm : int or float
        Whose totals say what is near.
    """

    dims: int
    engine: str
    bounds: Bounds | None
    cut: tuple[int, ...]
    norm: Norm = 2

    @property
    def method(self) -> str:
        """The engine's name."""
        return "tiles"

    @property
    def tile(self) -> int:
        """Points of a tile."""
        return half.TILE if self.engine == "float16" else TILE


def make_nearest_device_layout(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
                               sample: np.ndarray | None = None, engine: str = "auto",
                               shared: int = ENOUGH, norm: Norm = 2) -> NearestDeviceLayout:  # fmt: skip
    """Choose how to index all chunks.  The results do not depend on it, the speed does.

    Parameters
    ----------
    lower, upper : array (d,), float64
        A box that holds all points, of queries and of data.
    mean, variance : array (d,), float64
        Of all points, about.
    sample : array (m, d), optional
        Some points, from which it is told whether a filter pays; without them it is assumed to.
    engine : {"auto", "float16", "float32", "float64"}
        "auto": the fastest that is useful.  A filter that was asked for is used if its bounds hold.
    shared : int
        Bytes of shared memory that a block of threads can have.
    norm : int or float
        Whose totals say what is near; filters serve only 2.
    """
    dims = len(lower)
    bounds = _bounds(lower, upper, mean) if norm == 2 else None
    tensor = dims <= half.MAX_DIMS and half.shared_in_search(dims) <= shared
    if bounds is None:
        engine = "float64"
    elif engine == "auto":
        blur = _blur(bounds, sample)
        if tensor and dims >= TENSOR_DIMS and blur["float16"] * CLEAR["float16"] <= 1:
            engine = "float16"
        elif dims >= FILTER_DIMS and blur["float32"] * CLEAR["float32"] <= 1:
            engine = "float32"
        else:
            engine = "float64"
    elif engine == "float16" and not tensor:
        engine = "float32"
    cut = sorted(range(dims), key=lambda k: (-float(variance[k]), k))[:MAX_CUT_DIMS]
    return NearestDeviceLayout(dims, engine, None if engine == "float64" else bounds, tuple(cut), norm)


def _bounds(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray) -> Bounds | None:
    """Centre, scale and rho: no scaled point is further than 2**6.5 from the centre."""
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum(upper - mean, mean - lower) * (1 + 2.0**-50)
        # with room for twice their squares there is half of that for each
        return make_bounds(lower, upper, mean, 2 * float(np.einsum("i,i->", most, most)) * (1 + 2.0**-40))


def _blur(bounds: Bounds, sample: np.ndarray | None) -> dict[str, float]:
    """The errors of two points' distance as parts of the distance of neighbours."""
    some = np.zeros((0, 1)) if sample is None else sample[:: -(-len(sample) // SAMPLE) or 1]
    if len(some) < 2:
        return {"float16": 0.0, "float32": 0.0}
    a = (some.astype(np.float64) - np.array(bounds.centre)) * bounds.scale
    norm = np.einsum("ik,ik->i", a, a)
    squared = norm[:, None] + norm[None, :] - 2 * (a @ a.T)
    np.fill_diagonal(squared, np.inf)
    near = float(np.median(np.sqrt(np.maximum(squared.min(axis=1), 0.0))))
    if not near > 2.0**-20:  # below what cancels here, and what the vectors' last numbers can tell
        return {"float16": np.inf, "float32": np.inf}
    norm, rounded = float(np.median(norm)), 3 * half.width(a.shape[1]) * 2.0**-23
    vectors, sums = 2 * U16 * np.sqrt(norm) / near, 2 * rounded * norm / near**2
    return {"float16": max(vectors, sums), "float32": bounds.rho / near}


def build(x: Any, layout: NearestDeviceLayout, xp: Any = np, order_of: Any = kd_order) -> dict[str, Any]:
    """Index of one chunk.

    Parameters
    ----------
    x : array (n, d), float64
    layout : NearestDeviceLayout
    xp : module
        NumPy or CuPy.
    order_of : callable
        `dask_simjoin.engine.index.kdorder.kd_order`, or what does the same.

    Returns
    -------
    dict of arrays
        ``order``, ``y``, ``lower``, ``upper``, ``levels`` and ``z`` as of
        `dask_simjoin.engine.index.gpu.build`, or instead of ``z``: ``vectors``, ``norm``, ``error`` (see
        `dask_simjoin.engine.filters.float16`) and ``most_error`` (1,), the largest error.
    """
    tile, bounds = layout.tile, layout.bounds
    order = order_of(x, cut_dims(layout.cut, len(x), tile), tile, FAN_OUT, xp)
    y = xp.ascontiguousarray(x[order])
    index = {"order": order.astype(xp.int32, copy=False), "y": y}
    if not len(x):
        return index
    z = y
    if bounds is not None:
        a = scaled(y, bounds, xp)
        z = a.astype(xp.float32)
        if layout.engine == "float16":
            index["vectors"], index["norm"], index["error"] = half.make_nearest_vectors(a, xp)
            index["most_error"] = index["error"].max().reshape(1)
    return index | boxed(z, tile, layout.engine != "float16", xp)


def relabelled(index: dict[str, Any], names: Any, xp: Any = np) -> dict[str, Any]:
    """The index, its rows named by numbers (n,) int64, or by their places and a number more.

    Adds ``names`` (n,), in the index's order, and ``least``, the smallest name of each tile of 64.
    """
    if isinstance(names, int):
        own = index["order"].astype(xp.int64) + names
    else:
        own = xp.ascontiguousarray(xp.asarray(names, xp.int64)[index["order"]])
    number = -(-len(own) // TILE)
    padded = xp.full(number * TILE, np.iinfo(np.int64).max, xp.int64)
    padded[: len(own)] = own
    return index | {"names": own, "least": padded.reshape(number, TILE).min(axis=1)}
