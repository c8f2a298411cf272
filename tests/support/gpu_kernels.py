"""Kernels of the GPU: compiled side by side, and layouts of points; needs CuPy."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.index.gpu import make_device_layout


def compile_all(wanted):
    """Compile kernels side by side: (file, function, constants) of each."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: load.kernel(one[0], one[1], **one[2]).kernel, wanted))


def layout_for(x, eps, engine="auto"):
    x = x.astype(np.float64)
    if not len(x):
        moments = (np.zeros(x.shape[1]),) * 4
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            moments = x.min(0), x.max(0), x.mean(0), x.var(0)
    if not all(np.isfinite(m).all() for m in moments[2:]):
        moments = (*moments[:2], np.zeros(x.shape[1]), np.full(x.shape[1], np.inf))
    return make_device_layout(*moments, eps * eps, engine)
