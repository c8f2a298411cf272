"""Indexes with grids of cells in 1 to 4 dimensions, for the sweep and for density
clusters.

The index of the sweep orders points by grid row, and by one coordinate within a row.
GPU-Join indexes the non-empty cells of an eps-grid (Gowanlock & Karsin, "Accelerating
the similarity self-join using the GPU", section IV). The sweep differs from GPU-Join's
index in one dimension: points are sorted by this dimension, which is not cut into
cells. The same code runs with NumPy and CuPy; `xp` is either module.

Density clusters use smaller cells, so that usually all points of a cell are within eps
of each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.index.screen import JoinSample, dims_to_sweep
from dask_simjoin.engine.process import shared_out
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm, reach

KEY_BITS = 62
"""Usable bits of an int64 row key. A row key combines the cell numbers of all gridded
dimensions.
"""

MAX_CELL_BITS = 30
"""Maximum bits of a cell number in one dimension.

With more bits, rounding could change it: see `make_grid`.
"""

NO_CHECK = {"numpy": {"mode": "clip"}}
"""Options of `take` for positions that are surely valid. Without "clip", NumPy would
buffer the result.
"""

MIN_VALUE_BITS = 16
"""Minimum bits of a fixed-point value. With fewer bits, too many points would have
equal values.
"""

CELL_MARGIN = 1 + 2.0**-18
"""Factor by that cells are wider than necessary.

So despite rounding, the points of a pair are in the same cell or in neighbor cells.
"""


@dataclass(frozen=True)
class SweepGrid:
    """The grid that all chunks of one join share: a swept dimension, and cells in the
    other dimensions.
    """

    # the dimension that orders points within a row, which has the largest variance
    sweep: int
    dims: tuple[int, ...]  # the gridded dimensions
    # for each gridded dimension, the start of cell 0 and the width of cells, both
    # multiplied by `scale`
    origin: tuple[float, ...]
    width: tuple[float, ...]
    # for each gridded dimension, the difference between row keys of adjacent cells
    strides: tuple[int, ...]
    scale: float  # power of two that keeps differences of coordinates finite

    def offsets(self, *, half: bool) -> np.ndarray:
        """Return the differences between a row's key and its neighbor rows' keys,
        ascending.

        `half`: whether to return only differences that are not negative.
        """
        steps = itertools.product((-1, 0, 1), repeat=len(self.dims))
        keys = sorted(
            sum(s * t for s, t in zip(step, self.strides, strict=True))
            for step in steps
        )
        return np.array([key for key in keys if key >= 0 or not half], np.int64)


@dataclass(frozen=True)
class SweepLayout:
    """Index settings of one join by sweep. All chunks use the same settings, so any two
    can be compared.
    """

    threshold: float  # threshold of the float64 decision
    grid: SweepGrid  # the swept dimension and the grid rows
    norm: Norm = 2  # norm of the distances
    # the dimensions that the sweep compares, ascending; then all dimensions decide its
    # candidates. None: the sweep compares all dimensions, so its candidates are pairs
    dims: tuple[int, ...] | None = None

    @property
    def method(self) -> str:
        return "sweep"

    @property
    def swept(self) -> int:
        """The position of the swept dimension among `dims`."""
        return (
            self.grid.sweep if self.dims is None else self.dims.index(self.grid.sweep)
        )

    @property
    def swept_dims(self) -> int:
        """Number of dimensions of the grid, including the swept dimension."""
        return 1 + len(self.grid.dims)

    @property
    def grain(self) -> int:
        return 1

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        cells = f" in cells of {names(self.grid.dims)}" if self.grid.dims else ""
        decided = "" if self.dims is None else ", then all columns"
        return f"sweep along {names([self.grid.sweep])}{cells}{decided}"


def make_sweep_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm = 2,
) -> SweepLayout:
    return SweepLayout(
        threshold, make_grid(lower, upper, variance, reach(norm, threshold)), norm
    )


def make_screened_layout(
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample,
) -> SweepLayout | None:
    """Choose a sweep of a few dimensions that leaves few candidates; None if all
    choices leave too many.
    """
    dims = dims_to_sweep(variance, threshold, norm, sample)
    if dims is None:
        return None
    some = list(dims)
    found = make_grid(lower[some], upper[some], variance[some], reach(norm, threshold))
    gridded = tuple(dims[k] for k in found.dims)
    return SweepLayout(
        threshold, replace(found, sweep=dims[found.sweep], dims=gridded), norm, dims
    )


def make_grid(
    lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, max_difference: float
) -> SweepGrid:
    """Choose the swept dimension and the cells for points within the box [lower,
    upper].

    `max_difference`: the largest computed difference of one coordinate that a pair can
    have.

    Two points of a pair lie at most one cell apart, for the following reason. A point
    has the cell number floor(t) with t = (x - origin) / width. Without rounding, the t
    of the two points differ by at most max_difference / width <= 1 / CELL_MARGIN < 1 -
    2**-19. Three roundings change each t by at most 3 * 2**-53 * 2**30 < 2**-20. So
    their floors differ by at most 1.
    """
    order = sorted(range(len(lower)), key=lambda k: (-float(variance[k]), k))
    sweep, dims = order[0], tuple(order[1:])
    span = [float(upper[k]) * 0.25 - float(lower[k]) * 0.25 for k in dims]
    scale = 1.0 if max(span, default=0.0) < 2.0**1020 else 0.25
    span = [s * 4 * scale for s in span]
    bits = min(MAX_CELL_BITS, KEY_BITS // max(1, len(dims)) - 1)
    least = max_difference * scale * CELL_MARGIN
    width = [max(least, s * 2.0**-bits, 2.0**-1000) for s in span]
    cells = [
        int(s / w) + 3 if w < math.inf else 3 for s, w in zip(span, width, strict=True)
    ]
    strides = [math.prod(cells[k + 1 :]) for k in range(len(cells))]
    origin = tuple(float(lower[k]) * scale for k in dims)
    return SweepGrid(sweep, dims, origin, tuple(width), tuple(strides), scale)


def row_keys(x: Array, grid: SweepGrid, xp: ArrayModule) -> Array:
    """Return the row keys of points (n,), int64.

    Cells are numbered from 1, so that the keys of neighbors are >= 0.
    """
    keys = None
    for k, origin, width, stride in zip(
        grid.dims, grid.origin, grid.width, grid.strides, strict=True
    ):
        column = x[:, k] if grid.scale == 1.0 else x[:, k] * grid.scale
        place = column - origin
        place /= width
        cell = place.astype(xp.int64)
        cell += 1
        cell *= stride
        keys = cell if keys is None else xp.add(keys, cell, out=keys)
    return xp.zeros(len(x), xp.int64) if keys is None else keys


# The functions below overwrite their arguments, because allocating new memory would
# double their time.


def _sort_packed(
    key: Array, position_bits: int, xp: ArrayModule
) -> tuple[Array, Array]:
    """Sort `key` (int64, >= 0) in place; return the sorted keys and their former
    positions.

    Each key and its position are packed into one number, with the position in the low
    bits. Sorting single numbers is faster than sorting with `argsort`.
    """
    key <<= position_bits
    key |= xp.arange(len(key))
    key.view(xp.uint64).sort()
    positions = key & ((1 << position_bits) - 1)
    key >>= position_bits
    return key, positions


def _fixed_point(x: Array, bits: int, xp: ArrayModule) -> Array | None:
    """Convert values to fixed-point numbers of `bits` bits, int64; None if their range
    is 0 or infinite.
    """
    low, high = float(x.min()), float(x.max())
    if not 0 < high - low < math.inf:
        return None
    factor = 2.0**bits * (1 - 2.0**-40) / (high - low)
    if not factor < math.inf:
        return None
    shifted = x - low
    shifted *= factor
    return shifted.astype(xp.int64)


def _order(x: Array, keys: Array, xp: ArrayModule) -> tuple[Array, Array]:
    """Sort points by row key and then by value; return positions and keys in that
    order. Overwrites `keys`.

    Key, fixed-point value and position are packed into 64 bits, and these numbers are
    sorted. Points with equal keys and fixed-point values are then sorted by exact
    values. If there are too many such points, or if keys take too many bits, points are
    sorted by value first, and then stably by key.
    """
    position_bits = max(1, (len(x) - 1).bit_length())
    least = keys.min()
    keys -= least
    key_bits = int(keys.max()).bit_length()
    value_bits = min(52, 63 - position_bits - key_bits)
    values = _fixed_point(x, value_bits, xp) if value_bits >= MIN_VALUE_BITS else None
    if values is not None:
        values |= keys << value_bits
        packed, positions = _sort_packed(values, position_bits, xp)
        shared = xp.flatnonzero(packed[1:] == packed[:-1])
        # few points have the same row key and fixed-point value as the previous one
        if len(shared) <= len(x) * 0.1:
            if len(shared):
                places = xp.unique(xp.concatenate([shared, shared + 1]))
                some, group = positions[places], packed[places]
                groups = xp.cumsum(
                    xp.concatenate([group[:1] * 0, group[1:] != group[:-1]])
                )
                positions[places] = some[
                    xp.lexsort(xp.stack([x[some], groups.astype(float)]))
                ]
            packed >>= value_bits
            packed += least
            return positions, packed
    by_value = xp.argsort(x)
    ranks = keys
    if key_bits + position_bits > 63:
        ranks = xp.unique(keys, return_inverse=True)[1].reshape(-1)
    positions = by_value[_sort_packed(ranks[by_value], position_bits, xp)[1]]
    keys += least
    return positions, keys[positions]


def build(x: Array, grid: SweepGrid, pad: int, xp: ArrayModule = np) -> Index:
    """Return the index of a chunk's points `x` (n, d), float64.

    "order" (n + pad,), int32: positions of the points, sorted by grid row and then by
    the swept coordinate. "cols" (d, n + pad), float64: coordinates in this order.
    "keys" (rows,), int64: row keys of the grid rows that are not empty. "starts" (rows
    + 1,), int64: where each of these rows starts in the order. `pad`: number of zeros
    at the ends of "order" and "cols".
    """
    n, d = x.shape
    columns = [xp.ascontiguousarray(x[:, k]) for k in range(d)]
    keys = row_keys(x, grid, xp)
    positions, keys = _order(columns[grid.sweep], keys, xp) if n else (keys, keys)
    cols = xp.zeros((d, n + pad))
    for column, out in zip(columns, cols, strict=True):
        column.take(positions, out=out[:n], **NO_CHECK.get(xp.__name__, {}))
    order = xp.zeros(n + pad, xp.int32)
    order[:n] = positions
    one = xp.ones(1, bool)
    starts = xp.flatnonzero(xp.concatenate([one[:n], keys[1:] != keys[:-1], one]))
    return {"order": order, "cols": cols, "keys": keys[starts[:-1]], "starts": starts}


def part(
    index: Index,
    start: int,
    stop: int,
    pad: int,
    xp: ArrayModule = np,
    copied: bool = True,
) -> Index:
    """Return an index of only the points start ... stop-1 in index order. Positions do
    not change.
    """
    keys, starts = _rows(index, start, stop, xp)
    cols = index["cols"][:, start : stop + pad]
    return {
        "order": index["order"][start : stop + pad],
        "cols": xp.ascontiguousarray(cols) if copied else cols,
        "keys": keys,
        "starts": starts - start,
    }


def queries(index: Index, start: int, stop: int, xp: ArrayModule = np) -> Index:
    """Return the grid rows of the points start ... stop-1 as queries.

    The result shares arrays with the index.
    """
    keys, starts = _rows(index, start, stop, xp)
    return index | {"keys": keys, "starts": starts}


def _rows(index: Index, start: int, stop: int, xp: ArrayModule) -> tuple[Array, Array]:
    """Return keys and starts of the grid rows of the points start ... stop-1 in index
    order.
    """
    starts = index["starts"]
    first = int(xp.searchsorted(starts, start, side="right")) - 1
    last = max(int(xp.searchsorted(starts, stop, side="left")), first)
    return index["keys"][first:last], starts[first : last + 1].clip(start, stop)


def chosen(index: Index, places: np.ndarray, pad: int, threads: int = 1) -> Index:
    """Return an index of the points at `places`, ascending.

    Its "order" has these places instead of positions.
    """
    n = len(places)
    order = np.empty(n + pad, np.int32)
    cols = np.empty((len(index["cols"]), n + pad))
    order[n:], cols[:, n:] = 0, 0

    def take(start: int, stop: int) -> None:
        order[start:stop] = places[start:stop]
        for column, out in zip(index["cols"], cols, strict=True):
            column.take(places[start:stop], out=out[start:stop], **NO_CHECK["numpy"])

    shared_out(take, n, threads)
    return {
        "order": order,
        "cols": cols,
        "keys": index["keys"],
        "starts": np.searchsorted(places, index["starts"]),
    }


REACH = 2
"""The cell numbers of points within eps differ by at most this in each dimension."""

MAX_DIMS = 4
"""Maximum dimensions for density clusters by cells."""


@dataclass(frozen=True)
class CellLayout:
    """Index settings of one chunk for density clusters. Such an index is never compared
    with another one.

    `threshold`: the largest total of a pair. `norm`: norm of the distances.
    """

    threshold: float
    norm: Norm = 2

    @property
    def method(self) -> str:
        """Name of this layout. Users cannot choose it as a method."""
        return "cells"


def serves(dims: int, norm: Norm) -> bool:
    """Return whether cells whose diagonal is eps are at least eps / 2 wide."""
    return dims <= MAX_DIMS and _share(dims, norm) >= 0.5


def _share(dims: int, norm: Norm) -> float:
    return 1.0 if norm == math.inf else float(dims ** (-1 / norm))


def make_cells(lower: np.ndarray, upper: np.ndarray, layout: CellLayout) -> SweepGrid:
    """Choose the cells for points within the box [lower, upper]. The stride of the
    swept dimension is 1.

    Points within eps lie at most `REACH` cells apart, for the following reason. Let r
    be the largest difference of one of their coordinates. A point has the cell number
    floor(t) with t = (x - origin) / width. Without rounding, the t of two points differ
    by at most r / width <= 2 / CELL_MARGIN < 2 - 2**-18. Three roundings change each t
    by at most 3 * 2**-53 * 2**30 < 2**-20. So their floors differ by at most 2.

    In each dimension, numbers are reserved for 4 cells beyond the first and last cell.
    Otherwise neighbors of border cells could have the keys of other cells.
    """
    d = len(lower)
    half = [float(upper[k]) * 0.5 - float(lower[k]) * 0.5 for k in range(d)]
    sweep = max(range(d), key=lambda k: (half[k], -k))
    dims = (*(k for k in range(d) if k != sweep), sweep)
    scale = 1.0 if max(half) < 2.0**1021 else 0.25
    span = (
        [half[k] * 2 * scale for k in dims]
        if scale == 1.0
        else [half[k] * 0.5 for k in dims]
    )
    bits = min(MAX_CELL_BITS, KEY_BITS // d - 1)
    least = (
        reach(layout.norm, layout.threshold)
        * scale
        * max(0.5 * CELL_MARGIN, _share(d, layout.norm))
    )
    width = [max(least, s * 2.0**-bits, 2.0**-1000) for s in span]
    cells = [
        int(s / w) + 5 if w < math.inf else 5 for s, w in zip(span, width, strict=True)
    ]
    strides = tuple(math.prod(cells[k + 1 :]) for k in range(d))
    origin = tuple(float(lower[k]) * scale for k in dims)
    return SweepGrid(sweep, dims, origin, tuple(width), strides, scale)


def runs(grid: SweepGrid, *, half: bool) -> tuple[np.ndarray, int]:
    """Return the key offsets of runs of neighbor cells, nearest first, and the number
    of adjacent runs.

    A run holds the cells that differ only in the swept dimension. `half`: whether to
    return only offsets that are not negative.
    """
    steps = itertools.product(range(-REACH, REACH + 1), repeat=len(grid.dims) - 1)
    away = sorted((sum(abs(s) for s in step), step) for step in steps)
    found = [
        (sum(s * t for s, t in zip(step, grid.strides, strict=False)), far)
        for far, step in away
    ]
    kept = [(key, far) for key, far in found if key >= 0 or not half]
    return np.array([key for key, _ in kept], np.int64), sum(
        far <= 1 for _, far in kept
    )
