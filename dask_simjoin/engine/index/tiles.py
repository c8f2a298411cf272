"""The tile index of any number of dimensions: points in kd order, 64 to a tile, under a tree of boxes."""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.types import Array, ArrayModule, DType, Index

TILE = 64
"""Points of a tile, boxes of a group: the bits of a mask."""

ALIGNED = "z", "start", "lower", "upper"
"""What of an index searches read as vectors."""


def aligned_empty(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Uninitialised NumPy array that begins on a cache line, so that vectors do not straddle two."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    return raw[begin : begin + size].view(dtype).reshape(shape)


def aligned(array: np.ndarray) -> np.ndarray:
    """`array`, or a copy that begins on a cache line (what was unpickled may not)."""
    if array.ctypes.data % 64 == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_index(index: Index) -> Index:
    """Let what searches read of an index as vectors begin on cache lines."""
    return index | {name: aligned(index[name]) for name in ALIGNED if name in index}


def box_tree(low: Array, high: Array, xp: ArrayModule = np) -> tuple[Array, Array, Array]:
    """The boxes in groups of 64, the groups' boxes in groups of 64, and so on up to one group.

    Parameters
    ----------
    low, high : array (boxes, d)
        Bounds of the boxes.

    Returns
    -------
    lower, upper : array (groups, d, 64)
        Bounds, level after level.  Places that are left over hold empty boxes.
    levels : array (levels + 1,), int64
        The group at which each level begins.
    """
    lower, upper, levels = [], [], [0]
    while True:
        boxes, d = low.shape
        groups = -(-boxes // TILE)
        padded = []
        for bounds, empty in ((low, xp.inf), (high, -xp.inf)):
            full = xp.full((groups * TILE, d), empty, low.dtype)
            full[:boxes] = bounds
            padded.append(full.reshape(groups, TILE, d))
        lower.append(xp.ascontiguousarray(padded[0].transpose(0, 2, 1)))
        upper.append(xp.ascontiguousarray(padded[1].transpose(0, 2, 1)))
        levels.append(levels[-1] + groups)
        if groups == 1:
            return xp.concatenate(lower), xp.concatenate(upper), xp.array(levels, xp.int64)
        low, high = padded[0].min(axis=1), padded[1].max(axis=1)
