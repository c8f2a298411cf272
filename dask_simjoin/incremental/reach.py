"""Tell which groups of old rows some new rows can form pairs with, from the groups' boxes alone.

A gap to a box is computed as totals are, with their operations and in their order of dimensions.  Rounding is
monotone and no term is negative, so the gap of some of the dimensions is never larger than the total of a
pair: what is left out here holds no pair, and at ties nothing is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Norm, box_gap

TILE = 64
"""Rows whose box stands for them at first."""

AS_THEY_LIE = 1 << 10
"""The same of rows that are not put in order first."""

MOST_TILES = 1 << 12
"""Tiles from which on they are made larger: each is compared with each group."""

AT_ONCE = 1 << 19
"""Boxes that are compared at a time, so that what is computed on the way stays in a cache."""

FAN_OUT = 4
"""Parts into which rows are cut a level, to find those that lie together."""


class Boxes(NamedTuple):
    """The boxes of some groups of rows.

    Attributes
    ----------
    dims : array (k,), int64
        The dimensions that they are told of, ascending.
    lower, upper : array (groups, k), float64
        Of a group without rows `lower` is inf.
    """

    dims: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def some(self, groups: np.ndarray) -> Boxes:
        """Return those of some groups."""
        return Boxes(self.dims, self.lower[groups], self.upper[groups])


class Tiled(NamedTuple):
    """Rows in an order in which neighbours lie together, and the boxes of as many of them each.

    Attributes
    ----------
    x : array (n, k), float64
        The dimensions that boxes are told of.
    order : array (n,), int64
        Which rows they are.
    size : int
        Rows of a tile; the last one has what is left.
    lower, upper : array (tiles, k), float64
    """

    x: np.ndarray
    order: np.ndarray
    size: int
    lower: np.ndarray
    upper: np.ndarray


def tiled(x: np.ndarray, dims: np.ndarray) -> Tiled:
    """Cut rows (n, d), embedded, into tiles."""
    some = np.ascontiguousarray(x[:, dims])
    size = TILE
    while size * MOST_TILES < len(some):
        size *= 2
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(np.nan_to_num(some.var(axis=0)) if len(some) else np.zeros(len(dims)))
    order = kd_order(some, cuts, size, FAN_OUT)
    return _boxed(some[order], order, size)


def tiled_as_they_lie(x: np.ndarray, dims: np.ndarray) -> Tiled:
    """Cut rows (n, d), embedded, into tiles without putting them in order: they were written in one."""
    return _boxed(np.ascontiguousarray(x[:, dims]), np.arange(len(x)), AS_THEY_LIE)


def _boxed(some: np.ndarray, order: np.ndarray, size: int) -> Tiled:
    starts = np.arange(0, len(some), size)
    lower, upper = (
        np.minimum.reduceat(some, starts), np.maximum.reduceat(some, starts)
    ) if len(some) else (some, some)  # fmt: skip
    return Tiled(some, order, size, lower, upper)


def near_tiles(rows: Tiled, boxes: Boxes, norm: Norm, threshold: float) -> np.ndarray:
    """Tell which tiles' boxes are within reach of which groups' (tiles, groups), bool."""
    tiles, groups = len(rows.lower), len(boxes.lower)
    near = np.zeros((tiles, groups), bool)
    step = max(1, AT_ONCE // max(groups, 1))
    for start in range(0, tiles, step):
        some = slice(start, start + step)
        sides = rows.lower[some, None], rows.upper[some, None], boxes.lower[None], boxes.upper[None]
        near[some] = box_gap(norm, *sides) <= threshold
    return near


def touched(rows: Tiled, near: np.ndarray, boxes: Boxes, norm: Norm, threshold: float) -> np.ndarray:
    """Tell which groups have a row within reach of their box (groups,), bool; `near`: of tiles.

    Tiles are looked at one of each group, then two more, four more: most groups are told by the first.
    """
    found = np.zeros(len(boxes.lower), bool)
    group, tile = np.nonzero(near.T)
    first = np.searchsorted(group, np.arange(len(found)))
    rank = np.arange(len(group)) - first[group]
    done, width = 0, 1
    while len(group):
        now = (rank < done + width) & ~found[group]
        _look(rows, tile[now], group[now], boxes, norm, threshold, found)
        left = (rank >= done + width) & ~found[group]
        group, tile, rank = group[left], tile[left], rank[left]
        done, width = done + width, 2 * width
    return found


def _look(rows: Tiled, tile: np.ndarray, group: np.ndarray, boxes: Boxes, norm: Norm, threshold: float,
          found: np.ndarray) -> None:  # fmt: skip
    """Note in `found` groups that have a row of a tile within reach."""
    step = max(1, AT_ONCE // rows.size)
    for start in range(0, len(tile), step):
        some, of = tile[start : start + step], group[start : start + step]
        places = np.minimum(some[:, None] * rows.size + np.arange(rows.size), len(rows.x) - 1)
        x = rows.x[places]  # what follows the last row is that row again
        gap = box_gap(norm, x, x, boxes.lower[of, None], boxes.upper[of, None])
        found[of[(gap <= threshold).any(axis=1)]] = True
