"""Where a join of tiles finds what it needs: addresses, bytes and numbers.

With arrays in their place it takes half as long again to compile, as references to each are counted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.scan import STATES
from dask_simjoin.metrics.types import Index

STACK = 64 * 8


class Points(NamedTuple):
    """A side's tiles: their boxes `low` and `high` (tiles, dims), and `names` (points,) int32.

    `z`: of the vectors by which they are tested against boxes, `z_step` bytes a tile; `first`: of those that
    are read first when tiles are compared, `step` bytes a tile.
    """

    points: int
    low: int
    high: int
    names: int
    z: int
    z_step: int
    first: int
    step: int


class Boxes(NamedTuple):
    """The tree of a side's boxes: `lower` and `upper` (groups, dims, 64), where each of its levels begins.

    `size`: bytes of a bound; `height`: number of levels, of which the first is of `tiles`.
    """

    tiles: int
    dims: int
    size: int
    lower: int
    upper: int
    levels: int
    height: int


class Out(NamedTuple):
    """Where pairs of names are written, int32, and how many there is room for."""

    left: int
    right: int
    cap: int


class Room(NamedTuple):
    """Where a join works: the tiles it found, masks of points, and a stack of boxes with their levels."""

    found: int
    masks: int
    stack: int
    depth: int


def room(tiles: int) -> tuple[np.ndarray, ...]:
    """The arrays of a `Room` for a join with so many tiles."""
    return (
        np.empty(tiles, np.int64), np.zeros(STATES, np.uint64), np.empty(STACK, np.int64),
        np.empty(STACK, np.int64),
    )  # fmt: skip


def points_of(index: Index, names: np.ndarray, first: tuple[int, int]) -> Points:
    """What a join is told of a side, while its arrays live; `first`: as there."""
    z = index["z"]
    assert names.dtype == np.int32
    return Points(
        len(index["y"]), index["low"].ctypes.data, index["high"].ctypes.data, names.ctypes.data,
        z.ctypes.data, z.strides[0], *first,
    )  # fmt: skip


def boxes_of(index: Index) -> Boxes:
    """What a join is told of the boxes of a side, while its arrays live."""
    low, (lower, upper, levels) = index["low"], (index[name] for name in ("lower", "upper", "levels"))
    return Boxes(
        len(low), low.shape[1], low.itemsize, lower.ctypes.data, upper.ctypes.data, levels.ctypes.data,
        len(levels) - 1,
    )  # fmt: skip
