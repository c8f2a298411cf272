"""Make the tree of an index's boxes without Python's lock, so that threads can make
trees at the same time.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels import pack
from dask_simjoin.engine.index.cpu_tiles import TILE, aligned_empty


def box_tree(
    low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return what `cpu_tiles.box_tree` returns."""
    (boxes, d), kind = low.shape, low.dtype
    groups: list[int] = []
    while not groups or groups[-1] > 1:
        boxes = -(-boxes // TILE)
        groups.append(boxes)
    levels = np.cumsum([0, *groups])
    lower, upper = (aligned_empty((int(levels[-1]), d, TILE), kind) for _ in range(2))
    for first, number in zip(levels.tolist(), groups, strict=False):
        some = slice(first, first + number)
        above = np.empty((number, d), kind), np.empty((number, d), kind)
        pack.group_boxes(low, high, lower[some], upper[some], *above)
        low, high = above
    return lower, upper, levels
