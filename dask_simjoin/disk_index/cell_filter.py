"""Drop old rows and row groups that are far from all new rows.

The reach is the largest difference between two coordinates of a pair. Space is cut into cells in the few
dimensions where the new rows extend over the most reaches. Each new row marks all cells within reach of it,
so an old row in an unmarked cell is in no pair. The cell of a coordinate is computed by a subtraction, a
multiplication, a clip and a floor. Each of these steps is monotone, also when rounded. So a coordinate within
reach of a new row lies in one of the cells that the row marks, and no pair is lost.

The distance between a row and a box is summed like the distance of a pair: same operations, same order of
dimensions. Rounding is monotone and no term is negative. So the distance to a box, even if summed over some
dimensions only, is never larger than the distance to a row in it. No pair is lost, not even at distance eps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.index.kdtree import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Array, Norm, box_gap, reach

CELLS = 1 << 22
"""Maximum cells. Each takes one byte, so most lookups hit a CPU cache."""

MAX_DIMS = 3
"""Maximum dimensions to cut into cells: in three dimensions a row marks 27 cells already."""

MIN_CELLS = 8
"""Minimum cells per dimension; with fewer, too few rows would be dropped."""

MARGIN = 2
"""Unmarked cells at both ends of a dimension. Rows beyond an end fall into its outermost cell."""


class CellFilter(NamedTuple):
    """A grid of cells, marked if a new row is near."""

    dims: tuple[int, ...]  # dimensions that are cut
    low: tuple[float, ...]  # lower end of the first cell, per dimension
    scale: tuple[float, ...]  # cells per unit of length, per dimension
    cells: tuple[int, ...]  # number of cells, per dimension
    table: Array  # (cells,), bool: marked cells in row-major order, the first dimension varying slowest


def make_cell_filter(x: Array, norm: Norm, threshold: float) -> CellFilter | None:
    """Mark the cells near rows with the embedded coordinates `x` (n, d); None if this would drop few rows."""
    xp = module_of(x)
    far = math.nextafter(reach(norm, threshold), math.inf)
    if not len(x) or not math.isfinite(far):
        return None
    lower, upper = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore"):
        width = np.asarray((upper - lower).tolist()) + 2 * far
        fit = width / max(far, 2.0**-1000)
    order = [
        k for k in np.argsort(-fit, kind="stable").tolist() if fit[k] >= MIN_CELLS and width[k] < math.inf
    ]
    dims = tuple(order[:MAX_DIMS])
    cells = _cells(fit[list(dims)])
    if not dims or max(cells) < MIN_CELLS:
        return None
    axes = [
        _axis(float(lower[k]) - far, float(width[k]), number) for k, number in zip(dims, cells, strict=True)
    ]
    if not all(0 < scale < math.inf and math.isfinite(low) for low, scale in axes):
        return None
    low, scale = zip(*axes, strict=True)
    found = CellFilter(dims, low, scale, tuple(n + 2 * MARGIN for n in cells), x[:0])
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
    """Return the number of cells in each dimension, at most `CELLS` in all.

    `fit`: width of each dimension in multiples of the reach, which is also its maximum number of cells.
    """
    found = np.maximum(fit, 1.0)
    for _ in range(len(fit)):  # if a dimension needs few cells, the others get more
        max_cells = _even(found)
        found = np.minimum(found, max_cells)
    return [max(1, int(n)) for n in found.tolist()]


def _even(fit: np.ndarray) -> float:
    """Return the limit for the cells of each dimension that keeps the grid within `CELLS` cells."""
    ordered = np.sort(fit)
    capacity = float(CELLS)
    for number, own in enumerate(ordered.tolist()):
        rest = capacity ** (1 / (len(ordered) - number))
        if own >= rest:
            return rest
        capacity /= own
    return math.inf


def _axis(low: float, width: float, cells: int) -> tuple[float, float]:
    """Return the lower end of an axis with its margin, and its cells per unit of length.

    Without the margin, the axis begins at `low` and has `cells` cells over `width`.
    """
    each = width / cells
    return low - MARGIN * each, 1 / each if each > 0 else math.inf


def _cell(cell_filter: CellFilter, number: int, values: Array) -> Array:
    """Return the index of each value's cell in one dimension (n,), int64."""
    xp = module_of(values)
    with np.errstate(over="ignore", invalid="ignore"):
        at = (values - cell_filter.low[number]) * cell_filter.scale[number]
    return xp.clip(at, 0, cell_filter.cells[number] - 1).astype(np.int64)


def rows_in_cells(cell_filter: CellFilter, columns: Sequence[Array]) -> Array:
    """Return the positions (k,) of the rows in marked cells; other rows are in no pair with a new row.

    `columns`: embedded coordinates of the rows in the dimensions of the cells, one float64 array each.
    """
    xp = module_of(columns[0])
    if xp is np:
        return _near_on_host(cell_filter, columns)
    place = 0
    for number, values in enumerate(columns):
        place = place * cell_filter.cells[number] + _cell(cell_filter, number, values)
    return xp.flatnonzero(cell_filter.table[place])


def _near_on_host(cell_filter: CellFilter, columns: Sequence[np.ndarray]) -> np.ndarray:
    rest = MAX_DIMS - len(columns)
    given = [np.ascontiguousarray(values).view() for values in [*columns, *[columns[0]] * rest]]
    for values in given:  # read-only, because the kernel would be compiled again for writable arrays
        values.flags.writeable = False
    low, scale = (np.array([*values, *[0.0] * rest]) for values in (cell_filter.low, cell_filter.scale))
    cells = np.array([*cell_filter.cells, *[1.0] * rest])
    out = np.empty(len(given[0]) + 1, np.int64)
    found = host_kernels("pack").find_near(*given, low, scale, cells, cell_filter.table.view(np.uint8), out)
    return out[:found]


TILE, UNORDERED_TILE = 64, 1 << 10
"""Rows per tile: for rows that are ordered in space, and for rows in the order of their file."""

MAX_TILES = 1 << 12
"""Maximum tiles: each is compared with each row group, so more rows get larger tiles."""

AT_ONCE = 1 << 19
"""Comparisons with boxes per call, so that temporary arrays stay in a CPU cache."""

FAN_OUT = 4
"""Parts into which each level of the kd order cuts rows."""


class CellBoxes(NamedTuple):
    """The bounding boxes of groups of rows: row groups, or tiles."""

    dims: np.ndarray  # the k dimensions of the boxes, ascending
    lower: np.ndarray  # (groups, k), float64; infinity for a group without rows
    upper: np.ndarray  # (groups, k), float64

    def some(self, groups: np.ndarray) -> CellBoxes:
        return CellBoxes(self.dims, self.lower[groups], self.upper[groups])


class Tiled(NamedTuple):
    """Rows, sorted so that neighbors are close, and cut into tiles of consecutive rows with a box each."""

    x: np.ndarray  # (n, k), float64: coordinates in the dimensions of the boxes
    order: np.ndarray  # (n,), int64: positions of the rows before they were sorted
    size: int  # rows per tile; the last tile may have fewer
    lower: np.ndarray  # (tiles, k), float64: boxes of the tiles
    upper: np.ndarray


def tiled(x: np.ndarray, dims: np.ndarray) -> Tiled:
    """Sort rows in space, and cut them into tiles. `x` (n, d): embedded coordinates."""
    some = np.ascontiguousarray(x[:, dims])
    size = TILE
    while size * MAX_TILES < len(some):
        size *= 2
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(np.nan_to_num(some.var(axis=0)) if len(some) else np.zeros(len(dims)))
    order = kd_order(some, cuts, size, FAN_OUT)
    return _boxed(some[order], order, size)


def tiled_in_file_order(x: np.ndarray, dims: np.ndarray) -> Tiled:
    """Cut rows into tiles without sorting them, because files are nearly sorted. `x`: see `tiled`."""
    return _boxed(np.ascontiguousarray(x[:, dims]), np.arange(len(x)), UNORDERED_TILE)


def _boxed(some: np.ndarray, order: np.ndarray, size: int) -> Tiled:
    if not len(some):
        return Tiled(some, order, size, some, some)
    starts = np.arange(0, len(some), size)
    return Tiled(some, order, size, np.minimum.reduceat(some, starts), np.maximum.reduceat(some, starts))


def near_tiles(rows: Tiled, boxes: CellBoxes, norm: Norm, threshold: float) -> np.ndarray:
    """Return whether each tile's box is within reach of each group's box (tiles, groups), bool."""
    tiles, groups = len(rows.lower), len(boxes.lower)
    near = np.zeros((tiles, groups), bool)
    step = max(1, AT_ONCE // max(groups, 1))
    for start in range(0, tiles, step):
        some = slice(start, start + step)
        sides = rows.lower[some, None], rows.upper[some, None], boxes.lower[None], boxes.upper[None]
        near[some] = box_gap(norm, *sides) <= threshold
    return near


def touched(rows: Tiled, near: np.ndarray, boxes: CellBoxes, norm: Norm, threshold: float) -> np.ndarray:
    """Return a mask (groups,) of the groups whose box is within reach of a row.

    `near`: the result of `near_tiles`. Each box is compared with the rows of one near tile, then of two more,
    then of four more, until a row is within reach. For most groups the first tile has such a row.
    """
    found = np.zeros(len(boxes.lower), bool)
    group, tile = np.nonzero(near.T)
    first = np.searchsorted(group, np.arange(len(found)))
    rank = np.arange(len(group)) - first[group]
    done, width = 0, 1
    while len(group):
        now = (rank < done + width) & ~found[group]
        _mark_touched(rows, tile[now], group[now], boxes, norm, threshold, found)
        left = (rank >= done + width) & ~found[group]
        group, tile, rank = group[left], tile[left], rank[left]
        done, width = done + width, 2 * width
    return found


def _mark_touched(rows: Tiled, tile: np.ndarray, group: np.ndarray, boxes: CellBoxes, norm: Norm,
                  threshold: float, found: np.ndarray) -> None:  # fmt: skip
    """Set `found` for groups with a row within reach: compare each box `group[i]` with tile `tile[i]`."""
    step = max(1, AT_ONCE // rows.size)
    for start in range(0, len(tile), step):
        some, of = tile[start : start + step], group[start : start + step]
        places = np.minimum(some[:, None] * rows.size + np.arange(rows.size), len(rows.x) - 1)
        x = rows.x[places]  # positions past the end repeat the last row
        gap = box_gap(norm, x, x, boxes.lower[of, None], boxes.upper[of, None])
        found[of[(gap <= threshold).any(axis=1)]] = True
