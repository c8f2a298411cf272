"""How a GPU's chunks are indexed for nearest neighbours; written once for NumPy and CuPy.

As for joins (`dask_simjoin.engine.index.gpu`), but no distance is known beforehand: each query has its own,
which shrinks, so filters' bounds are functions of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.filters.bounds import Bounds, make_bounds
from dask_simjoin.engine.index.gpu import ENGINES, ENOUGH, HOST, Builder, TilesOnDevice, begin
from dask_simjoin.engine.index.kdorder import dims_to_cut
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array, ArrayModule, Index

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


@dataclass(frozen=True, kw_only=True)
class NearestDeviceLayout(TilesOnDevice):
    """How the chunks of one search are indexed on GPUs.

    Of `bounds` centre, scale and rho count.  Squares of scaled distances of points are at most 2**15.
    """


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
    return NearestDeviceLayout(
        dims=dims,
        engine=engine,
        bounds=bounds if ENGINES[engine].filters else None,
        cut=dims_to_cut(variance, sample),
        norm=norm,
    )


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


def build(x: Array, layout: NearestDeviceLayout, builder: Builder = HOST) -> Index:
    """Index of one chunk.

    Parameters
    ----------
    x : array (n, d), float64
    layout : NearestDeviceLayout
    builder : Builder

    Returns
    -------
    dict of arrays
        ``order``, ``y``, ``lower``, ``upper``, ``levels`` and ``z`` as of
        `dask_simjoin.engine.index.gpu.build`, or instead of ``z``: ``vectors``, ``norm``, ``error`` (see
        `dask_simjoin.engine.filters.float16`) and ``most_error`` (1,), the largest error.
    """
    index = begin(x, layout, builder)
    if len(x) and ENGINES[layout.engine].tensor and layout.bounds is not None:
        index |= builder.nearest_vectors(index["y"], layout.bounds)
    return index


def part(index: Index, start: int, stop: int) -> Index:
    """The places start ... stop-1 of an index, as queries: nothing is copied.

    `start`: a multiple of the points in a group of boxes.
    """
    tile = TILE if "z" in index else half.TILE
    found = {name: index[name][start:stop] for name in ("order", "names", "y")}
    group = start // (tile * index["lower"].shape[2])
    found |= {name: index[name][group:] for name in ("lower", "upper")}
    if "z" in index:
        return found | {"z": index["z"][start // tile : -(-stop // tile)]}
    found |= {name: index[name][start:stop] for name in ("norm", "error")}
    return found | {"vectors": index["vectors"][start : start + half.rows(stop - start)]}


def relabelled(index: Index, names: Array | int, xp: ArrayModule = np) -> Index:
    """The index, its rows named by numbers (n,) int64, or by their places and a number more.

    Adds ``names`` (n,), in the index's order, and ``least``, the smallest name of each tile of 64.
    """
    if isinstance(names, int):
        own = index["order"].astype(xp.int64)
        own = own + names if names else own
    else:
        own = xp.ascontiguousarray(xp.asarray(names, xp.int64)[index["order"]])
    number = -(-len(own) // TILE)
    padded = xp.full(number * TILE, np.iinfo(np.int64).max, xp.int64)
    padded[: len(own)] = own
    return index | {"names": own, "least": padded.reshape(number, TILE).min(axis=1)}
