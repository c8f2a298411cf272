"""Filter old rows and row groups that are far from all new rows.

Space is cut into cells in the few dimensions in which it is widest beside the reach of a pair.  Each new row
marks the cells of its box, as wide as the reach on either side; an old row in a cell without a mark is in no
pair.  The cell of a number is the same function of it for all rows, a difference, a product, a floor and
limits, each of which is monotone however it is rounded: so a number between two others lies in one of the
cells between theirs, and no pair is lost.

A gap to a box is computed as totals are, with their operations and in their order of dimensions.  Rounding is
monotone and no term is negative, so the gap of some of the dimensions is never larger than the total of a
pair: what is left out here holds no pair, and at ties nothing is lost.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Array, Norm, box_gap, reach

CELLS = 1 << 22
"""Cells in all: a byte each, so that most of what is looked up lies in a cache."""

MOST_DIMS = 3
"""Dimensions that are cut: each row marks three cells of each, or 27."""

LEAST = 8
"""Cells of a dimension that make it worth being looked at."""

MARGIN = 2
"""Cells on either side of all marks: what lies farther out is put there, where there is no mark."""


class Marks(NamedTuple):
    """Cells with new rows near them.

    Attributes
    ----------
    dims : tuple of int
    low, scale : tuple of float
        Of each dimension: where cells begin, and how many there are in a unit.
    cells : tuple of int
        Of each dimension.
    table : array (cells,), bool
        The first dimension's cells are those that lie furthest apart.
    """

    dims: tuple[int, ...]
    low: tuple[float, ...]
    scale: tuple[float, ...]
    cells: tuple[int, ...]
    table: Array


def mark(x: Array, norm: Norm, threshold: float) -> Marks | None:
    """Mark the neighbourhood of rows (n, d), embedded; None: that would tell next to nothing."""
    xp = module_of(x)
    far = math.nextafter(reach(norm, threshold), math.inf)
    if not len(x) or not math.isfinite(far):
        return None
    lower, upper = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore"):
        width = np.asarray((upper - lower).tolist()) + 2 * far
        fit = width / max(far, 2.0**-1000)
    order = [k for k in np.argsort(-fit, kind="stable").tolist() if fit[k] >= LEAST and width[k] < math.inf]
    dims = tuple(order[:MOST_DIMS])
    cells = _cells(fit[list(dims)])
    if not dims or max(cells) < LEAST:
        return None
    axes = [
        _axis(float(lower[k]) - far, float(width[k]), number) for k, number in zip(dims, cells, strict=True)
    ]
    if not all(0 < scale < math.inf and math.isfinite(low) for low, scale in axes):
        return None
    low, scale = zip(*axes, strict=True)
    found = Marks(dims, low, scale, tuple(n + 2 * MARGIN for n in cells), x[:0])
    table = xp.zeros(math.prod(found.cells), bool)
    ends = []
    for number, k in enumerate(dims):
        first = _cell(found, number, xp.nextafter(x[:, k] - far, -math.inf))
        last = _cell(found, number, xp.nextafter(x[:, k] + far, math.inf))
        ends.append((first, last, range(int((last - first).max()) + 1)))
    for steps in itertools.product(*(offsets for *_, offsets in ends)):
        place = 0
        for (first, last, _), step, number in zip(ends, steps, found.cells, strict=True):
            place = place * number + xp.minimum(first + step, last)
        table[place] = True
    return found._replace(table=table)


def _cells(fit: np.ndarray) -> list[int]:
    """Share cells out: no more of a dimension than there are reaches in its width."""
    found = np.maximum(fit, 1.0)
    for _ in range(len(fit)):  # those that have enough of them leave more to the others
        most = _even(found)
        found = np.minimum(found, most)
    return [max(1, int(n)) for n in found.tolist()]


def _even(fit: np.ndarray) -> float:
    """Return the largest number of cells of a dimension with which there are not too many in all."""
    ordered = np.sort(fit)
    room = float(CELLS)
    for number, own in enumerate(ordered.tolist()):
        rest = room ** (1 / (len(ordered) - number))
        if own >= rest:
            return rest
        room /= own
    return math.inf


def _axis(low: float, width: float, cells: int) -> tuple[float, float]:
    """Where cells begin, and how many there are in a unit, of an axis on which so many make a width."""
    each = width / cells
    return low - MARGIN * each, 1 / each if each > 0 else math.inf


def _cell(marks: Marks, number: int, values: Array) -> Array:
    """The cells (n,) int64 of values of one of the dimensions."""
    xp = module_of(values)
    with np.errstate(over="ignore", invalid="ignore"):
        at = (values - marks.low[number]) * marks.scale[number]
    return xp.clip(at, 0, marks.cells[number] - 1).astype(np.int64)


def near_marks(marks: Marks, columns: Sequence[Array]) -> Array:
    """Tell the places (k,) of rows that may be in a pair with one that was marked.

    `columns`: of the rows, float64, embedded, one of each of the marks' dimensions.
    """
    xp = module_of(columns[0])
    if xp is np:
        return _near_on_host(marks, columns)
    place = 0
    for number, values in enumerate(columns):
        place = place * marks.cells[number] + _cell(marks, number, values)
    return xp.flatnonzero(marks.table[place])


def _near_on_host(marks: Marks, columns: Sequence[np.ndarray]) -> np.ndarray:
    rest = MOST_DIMS - len(columns)
    given = [np.ascontiguousarray(values).view() for values in [*columns, *[columns[0]] * rest]]
    for values in given:  # kernels that take arrays which may be written to would be others
        values.flags.writeable = False
    low, scale = (np.array([*values, *[0.0] * rest]) for values in (marks.low, marks.scale))
    cells = np.array([*marks.cells, *[1.0] * rest])
    out = np.empty(len(given[0]) + 1, np.int64)
    found = host_kernels("pack").find_near(*given, low, scale, cells, marks.table.view(np.uint8), out)
    return out[:found]


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


class CellBoxes(NamedTuple):
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

    def some(self, groups: np.ndarray) -> CellBoxes:
        """Return those of some groups."""
        return CellBoxes(self.dims, self.lower[groups], self.upper[groups])


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


def near_tiles(rows: Tiled, boxes: CellBoxes, norm: Norm, threshold: float) -> np.ndarray:
    """Tell which tiles' boxes are within reach of which groups' (tiles, groups), bool."""
    tiles, groups = len(rows.lower), len(boxes.lower)
    near = np.zeros((tiles, groups), bool)
    step = max(1, AT_ONCE // max(groups, 1))
    for start in range(0, tiles, step):
        some = slice(start, start + step)
        sides = rows.lower[some, None], rows.upper[some, None], boxes.lower[None], boxes.upper[None]
        near[some] = box_gap(norm, *sides) <= threshold
    return near


def touched(rows: Tiled, near: np.ndarray, boxes: CellBoxes, norm: Norm, threshold: float) -> np.ndarray:
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


def _look(rows: Tiled, tile: np.ndarray, group: np.ndarray, boxes: CellBoxes, norm: Norm, threshold: float,
          found: np.ndarray) -> None:  # fmt: skip
    """Note in `found` groups that have a row of a tile within reach."""
    step = max(1, AT_ONCE // rows.size)
    for start in range(0, len(tile), step):
        some, of = tile[start : start + step], group[start : start + step]
        places = np.minimum(some[:, None] * rows.size + np.arange(rows.size), len(rows.x) - 1)
        x = rows.x[places]  # what follows the last row is that row again
        gap = box_gap(norm, x, x, boxes.lower[of, None], boxes.upper[of, None])
        found[of[(gap <= threshold).any(axis=1)]] = True
