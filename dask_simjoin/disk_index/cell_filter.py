"""Drop old rows and row groups that are far from all new rows.

The reach is the largest difference that two coordinates of a pair can have. At most
three dimensions are cut into cells. In these dimensions, the new rows span the largest
multiples of the reach. Each new row marks all cells within its reach, so an old row in
an unmarked cell is in no pair. The cell of a coordinate is computed by a subtraction, a
multiplication, a clip and a floor. Each of these steps is monotone, even with rounding.
So the cell of a coordinate within reach of a new row is always marked, and no pair is
lost.

The distance between a row and a box is summed like the distance of a pair, by the same
operations. The dimensions have the same order, too. Rounding is monotone, and no term
is negative. So the computed distance to a box is never larger than the distance to a
row in it. This holds even if it is summed over some dimensions only. No pair is lost,
not even at distance eps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.index.cpu_tiles import FAN_OUT
from dask_simjoin.engine.index.kdtree import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Array, Norm, box_gap, reach
from dask_simjoin.sizes import BATCH, FEW, SAMPLED

CELLS = 1 << 22
"""Maximum number of cells. A cell takes one byte, so most lookups are served from a CPU
cache.
"""

MAX_DIMS = 3
"""At most this many dimensions are cut into cells. In three dimensions, a row already
marks 27 cells.
"""

MARGIN = 2
"""Each dimension has this many unmarked cells at both ends.

Rows beyond an end fall into the outermost cell.
"""


class CellFilter(NamedTuple):
    """A grid of cells. A cell is marked if a new row is near it."""

    dims: tuple[int, ...]  # dimensions that are cut into cells
    low: tuple[float, ...]  # for each of them, the lower end of the first cell
    scale: tuple[float, ...]  # for each of them, the number of cells per unit of length
    cells: tuple[int, ...]  # for each of them, the number of cells
    # (cells,), bool: whether each cell is marked; the index of the last dimension
    # varies fastest
    table: Array


def make_cell_filter(x: Array, norm: Norm, threshold: float) -> CellFilter | None:
    """Mark the cells near rows with embedded coordinates `x` (n, d). Return None if
    this would drop few old rows.
    """
    xp = module_of(x)
    far = math.nextafter(reach(norm, threshold), math.inf)
    if not len(x) or not math.isfinite(far):
        return None
    lower, upper = x.min(axis=0), x.max(axis=0)
    with np.errstate(over="ignore"):
        width = np.asarray((upper - lower).tolist()) + 2 * far
        fit = width / max(far, 2.0**-1000)
    order = [
        k
        for k in np.argsort(-fit, kind="stable").tolist()
        if fit[k] >= FEW and width[k] < math.inf
    ]
    dims = tuple(order[:MAX_DIMS])
    cells = _cells(fit[list(dims)])
    if not dims or max(cells) < FEW:
        return None
    axes = [
        _axis(float(lower[k]) - far, float(width[k]), number)
        for k, number in zip(dims, cells, strict=True)
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
        for (first, last, _), step, number in zip(
            ends, steps, found.cells, strict=True
        ):
            place = place * number + xp.minimum(first + step, last)
        table[place] = True
    return found._replace(table=table)


def _cells(fit: np.ndarray) -> list[int]:
    """Return the number of cells in each dimension; the product is at most `CELLS`.

    `fit`: the width of each dimension in multiples of the reach. It is also the maximum
    number of cells.
    """
    found = np.maximum(fit, 1.0)
    # each pass: if a dimension needs fewer cells than its share, the others get more
    for _ in range(len(fit)):
        max_cells = _even(found)
        found = np.minimum(found, max_cells)
    return [max(1, int(n)) for n in found.tolist()]


def _even(fit: np.ndarray) -> float:
    """Return a limit for the cells of each dimension. It keeps the whole grid within
    `CELLS` cells.
    """
    ordered = np.sort(fit)
    capacity = float(CELLS)
    for number, own in enumerate(ordered.tolist()):
        rest = capacity ** (1 / (len(ordered) - number))
        if own >= rest:
            return rest
        capacity /= own
    return math.inf


def _axis(low: float, width: float, cells: int) -> tuple[float, float]:
    """Return the lower end of an axis, including its margin, and the number of cells
    per unit of length.

    Without the margin, the axis begins at `low` and has `cells` cells over `width`.
    """
    each = width / cells
    return low - MARGIN * each, 1 / each if each > 0 else math.inf


def _cell(cell_filter: CellFilter, number: int, values: Array) -> Array:
    """Return the index of the cell that each value falls into, in one dimension (n,),
    int64.
    """
    xp = module_of(values)
    with np.errstate(over="ignore", invalid="ignore"):
        at = (values - cell_filter.low[number]) * cell_filter.scale[number]
    return xp.clip(at, 0, cell_filter.cells[number] - 1).astype(np.int64)


def rows_in_cells(cell_filter: CellFilter, columns: Sequence[Array]) -> Array:
    """Return the positions (k,) of the rows in marked cells. All other rows are in no
    pair with a new row.

    `columns`: embedded coordinates of the rows, one float64 array for each dimension
    that is cut.
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
    given = [
        np.ascontiguousarray(values).view()
        for values in [*columns, *[columns[0]] * rest]
    ]
    # pass read-only arrays, because the kernel would be compiled again for writable
    # ones
    for values in given:
        values.flags.writeable = False
    low, scale = (
        np.array([*values, *[0.0] * rest])
        for values in (cell_filter.low, cell_filter.scale)
    )
    cells = np.array([*cell_filter.cells, *[1.0] * rest])
    out = np.empty(len(given[0]) + 1, np.int64)
    found = host_kernels("pack").find_near(
        *given, low, scale, cells, cell_filter.table.view(np.uint8), out
    )
    return out[:found]


TILE, UNORDERED_TILE = 64, 1 << 10
"""Rows per tile: for rows that are sorted in space, and for rows in the order of their
file.
"""


class CellBoxes(NamedTuple):
    """Bounding boxes of groups of rows. A group is a row group or a tile."""

    dims: np.ndarray  # the k dimensions that the boxes cover, ascending
    # (groups, k), float64: lower ends; infinity for a group without rows
    lower: np.ndarray
    upper: np.ndarray  # (groups, k), float64: upper ends

    def some(self, groups: np.ndarray) -> CellBoxes:
        return CellBoxes(self.dims, self.lower[groups], self.upper[groups])


class Tiled(NamedTuple):
    """Rows that are cut into tiles of consecutive rows. Each tile has a bounding box."""

    # (n, k), float64: coordinates of the rows, in the dimensions that the boxes cover
    x: np.ndarray
    order: np.ndarray  # (n,), int64: position of each row before the rows were sorted
    size: int  # rows per tile; the last tile may have fewer
    lower: np.ndarray  # (tiles, k), float64: lower and upper ends of the tiles' boxes
    upper: np.ndarray


def tiled(x: np.ndarray, dims: np.ndarray) -> Tiled:
    """Sort rows in space, and cut them into tiles. `x` (n, d): embedded coordinates of
    the rows.
    """
    some = np.ascontiguousarray(x[:, dims])
    size = TILE
    while size * SAMPLED < len(some):
        size *= 2
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(
            np.nan_to_num(some.var(axis=0)) if len(some) else np.zeros(len(dims))
        )
    order = kd_order(some, cuts, size, FAN_OUT)
    return _boxed(some[order], order, size)


def tiled_in_file_order(x: np.ndarray, dims: np.ndarray) -> Tiled:
    """Cut rows into tiles without sorting them, because rows in files are nearly
    sorted. `x`: see `tiled`.
    """
    return _boxed(np.ascontiguousarray(x[:, dims]), np.arange(len(x)), UNORDERED_TILE)


def _boxed(some: np.ndarray, order: np.ndarray, size: int) -> Tiled:
    if not len(some):
        return Tiled(some, order, size, some, some)
    starts = np.arange(0, len(some), size)
    return Tiled(
        some,
        order,
        size,
        np.minimum.reduceat(some, starts),
        np.maximum.reduceat(some, starts),
    )


def near_tiles(
    rows: Tiled, boxes: CellBoxes, norm: Norm, threshold: float
) -> np.ndarray:
    """Return for each tile and each group whether their boxes are within reach (tiles,
    groups), bool.
    """
    tiles, groups = len(rows.lower), len(boxes.lower)
    near = np.zeros((tiles, groups), bool)
    step = max(1, BATCH // max(groups, 1))
    for start in range(0, tiles, step):
        some = slice(start, start + step)
        sides = (
            rows.lower[some, None],
            rows.upper[some, None],
            boxes.lower[None],
            boxes.upper[None],
        )
        near[some] = box_gap(norm, *sides) <= threshold
    return near


def touched(
    rows: Tiled, near: np.ndarray, boxes: CellBoxes, norm: Norm, threshold: float
) -> np.ndarray:
    """Return a mask (groups,) of the groups whose boxes are within reach of a row.

    `near`: the result of `near_tiles`. Each box is compared with the rows of one near
    tile, then of two more, then of four more. This ends when a row within reach is
    found. For most groups, it is found in the first tile.
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


def _mark_touched(
    rows: Tiled,
    tile: np.ndarray,
    group: np.ndarray,
    boxes: CellBoxes,
    norm: Norm,
    threshold: float,
    found: np.ndarray,
) -> None:
    """Compare each box `group[i]` with the rows in tile `tile[i]`. Set `found` for
    groups with a row within reach.
    """
    step = max(1, BATCH // rows.size)
    for start in range(0, len(tile), step):
        some, of = tile[start : start + step], group[start : start + step]
        places = np.minimum(
            some[:, None] * rows.size + np.arange(rows.size), len(rows.x) - 1
        )
        x = rows.x[places]  # positions past the last row are replaced by it
        gap = box_gap(norm, x, x, boxes.lower[of, None], boxes.upper[of, None])
        found[of[(gap <= threshold).any(axis=1)]] = True
