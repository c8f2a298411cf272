"""The boxes of a GPU's index: `dask_simjoin.engine.index.gpu.boxed` in few kernels."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import FANOUT
from dask_simjoin.metrics.types import Array, Index


def boxed(y: Array, bounds: Bounds | None, tile: int, tiled: bool) -> Index:
    """The tree of the boxes of the points (n, d), float64, in kd order; see the host's."""
    n, dims = y.shape
    kind = cupy.float64 if bounds is None else cupy.float32
    groups = [-(-n // (tile * FANOUT))]
    while groups[-1] > 1:
        groups.append(-(-groups[-1] // FANOUT))
    levels = np.concatenate([[0], np.cumsum(groups)])
    lower, upper = (cupy.empty((int(levels[-1]), dims, FANOUT), kind) for _ in range(2))
    z = cupy.empty((-(-n // tile), dims, tile), kind) if tiled else None

    def run(name: str, boxes: int, *arguments: Any) -> None:
        function = load.kernel("boxes", name, DIMS=1, EXACT=bounds is None)
        warps = boxes * FANOUT * dims
        function(*load.shape_of(warps * 32), arguments)

    centre = y if bounds is None else cupy.asarray(bounds.centre, cupy.float64)
    scale = np.float64(1 if bounds is None else bounds.scale)
    sizes = (np.int32(n), np.int32(dims))
    points = np.uint64(0) if z is None else z
    shape = np.int32(tile), np.int32(groups[0])
    run("tile_boxes", groups[0], y, *sizes, centre, scale, *shape, points, lower, upper)
    for level, above in enumerate(groups[1:]):
        numbers = (levels[level], groups[level], levels[level + 1], above)
        run("group_boxes", above, np.int32(dims), *(np.int32(some) for some in numbers), lower, upper)
    index = {"lower": lower, "upper": upper, "levels": cupy.asarray(levels)}
    return index if z is None else index | {"z": z}
