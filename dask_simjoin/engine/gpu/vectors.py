"""The float16 vectors of a GPU's index: those of `dask_simjoin.engine.filters.float16` in one kernel."""

from __future__ import annotations

import cupy
import numpy as np

from dask_simjoin.engine.filters import float16
from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.metrics.types import Array, Index

THREADS = 256


def _vectors(y: Array, bounds: Bounds, results: dict[str, Array], *, nearest: bool) -> Index:
    """Launch the kernel: it writes ``vectors``, and those of its results that it is given."""
    n, dims = y.shape
    width = float16.width(dims)
    vectors = cupy.empty((float16.rows(n), width), cupy.float16)
    sizes = (np.int32(size) for size in (n, dims, width))
    centre = cupy.asarray(bounds.centre, cupy.float64)
    numbers = (np.float64(some) for some in (bounds.scale, bounds.outer, bounds.inner))
    names = ("vectors_sure", "norm", "error", "most_error")
    told = (results.get(name, np.uint64(0)) for name in names)
    function = load.kernel("vectors", "make_vectors", DIMS=1, EXACT=True, NEAREST=nearest)
    blocks = (len(vectors) // float16.TILE,)
    function(blocks, (THREADS,), (y, *sizes, centre, *numbers, vectors, *told))
    return {"vectors": vectors} | results


def make_vectors(y: Array, bounds: Bounds) -> Index:
    """Return what joins compare of the points (n, d), float64; see the host's."""
    results = {"vectors_sure": cupy.empty(float16.rows(len(y)), cupy.float32)}
    return _vectors(y, bounds, results, nearest=False)


def make_nearest_vectors(y: Array, bounds: Bounds) -> Index:
    """Return what searches compare of the points (n, d), float64; see the host's."""
    results = {name: cupy.empty(len(y)) for name in ("norm", "error")}
    results["most_error"] = cupy.zeros(1)
    return _vectors(y, bounds, results, nearest=True)
