"""Grids of cells in 1 to 4 dimensions: of the row sweep, and of density clusters.

The row sweep's index orders points by grid row, and by one coordinate within a row. GPU-Join indexes the
non-empty cells of an eps-grid (Gowanlock & Karsin, "Accelerating the similarity self-join using the GPU",
section IV). Here, the last indexed dimension is swept instead of cut into cells. The code is written once for
NumPy and CuPy (`xp` is either module).

Density clusters use smaller cells, whose points are usually all near each other.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from dask_simjoin.engine.index.screen import Drawn, dims_to_sweep
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm, reach

KEY_BITS = 62
"""Bits of an int64 row key, which the cell numbers of all gridded dimensions share."""

MAX_CELL_BITS = 30
"""Bits of the number of a cell in one dimension, which float64 can compute without error."""

UNCHECKED = {"numpy": {"mode": "clip"}}
"""Options of `take` for positions that are known to be right: to check them, NumPy would copy the result."""

MIN_VALUE_BITS = 16
"""Minimum number of bits of a fixed-point value: with fewer bits, most points would share their value."""

MAX_SHARED = 0.1
"""Maximum share of points with the same row key and fixed-point value as the point before."""

WIDEN = 1 + 2.0**-18
"""Cells are wider than necessary by this factor, to allow for rounding: see `make_grid`."""


@dataclass(frozen=True)
class SweepGrid:
    """The grid that all chunks of one join share: a swept dimension, and cells in the other dimensions.

    Attributes
    ----------
    sweep : int
        The dimension that orders points within a row: the dimension of largest variance.
    dims : tuple of int
        The gridded dimensions.
    origin, width : tuple of float
        For each gridded dimension, the start of cell 0, and the cells' width in units of `scale`.
    strides : tuple of int
        Difference of the row keys of adjacent cells in each gridded dimension.
    scale : float
        Power of two that keeps differences of coordinates finite.
    """

    sweep: int
    dims: tuple[int, ...]
    origin: tuple[float, ...]
    width: tuple[float, ...]
    strides: tuple[int, ...]
    scale: float

    def offsets(self, *, half: bool) -> np.ndarray:
        """Return the keys of neighbor rows minus the row's key, ascending; `half`: only from 0 on."""
        steps = itertools.product((-1, 0, 1), repeat=len(self.dims))
        keys = sorted(sum(s * t for s, t in zip(step, self.strides, strict=True)) for step in steps)
        return np.array([key for key in keys if key >= 0 or not half], np.int64)


@dataclass(frozen=True)
class SweepLayout:
    """Index settings of one join for the row sweep, the same for all chunks, so that any two can be compared.

    Attributes
    ----------
    threshold : float
        Threshold of the float64 decision.
    grid : SweepGrid
        The rows.
    norm : int or float
        Norm of the totals that the decision compares.
    dims : tuple of int or None
        The dimensions that find candidates, ascending; then all dimensions decide.  None: the sweep compares
        all dimensions, so its candidates need no further decision.
    """

    threshold: float
    grid: SweepGrid
    norm: Norm = 2
    dims: tuple[int, ...] | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return "sweep"

    @property
    def swept(self) -> int:
        """The position of the swept dimension among `dims`."""
        return self.grid.sweep if self.dims is None else self.dims.index(self.grid.sweep)

    @property
    def swept_dims(self) -> int:
        """Number of swept dimensions."""
        return 1 + len(self.grid.dims)

    @property
    def grain(self) -> int:
        """Queries are cut into parts at multiples of this number of points."""
        return 1

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Return a description for plans; `names` maps dimensions to column names."""
        cells = f" in cells of {names(self.grid.dims)}" if self.grid.dims else ""
        decided = "" if self.dims is None else ", then all columns"
        return f"sweep along {names([self.grid.sweep])}{cells}{decided}"


def make_sweep_layout(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, threshold: float,
                      norm: Norm = 2) -> SweepLayout:  # fmt: skip
    """Choose the rows for points within the box [lower, upper], of this variance (d,)."""
    return SweepLayout(threshold, make_grid(lower, upper, variance, reach(norm, threshold)), norm)


def make_screened_layout(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, threshold: float,
                         norm: Norm, drawn: Drawn) -> SweepLayout | None:  # fmt: skip
    """Choose a sweep of a few dimensions that leaves few candidates; None: there is no such sweep."""
    dims = dims_to_sweep(variance, threshold, norm, drawn)
    if dims is None:
        return None
    some = list(dims)
    found = make_grid(lower[some], upper[some], variance[some], reach(norm, threshold))
    gridded = tuple(dims[k] for k in found.dims)
    return SweepLayout(threshold, replace(found, sweep=dims[found.sweep], dims=gridded), norm, dims)


def make_grid(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, max_difference: float) -> SweepGrid:
    """Choose the swept dimension and the cells for points within the box [lower, upper].

    `max_difference`: the largest computed difference of one coordinate that a pair can have.

    Two points of a pair lie at most one cell apart.  Let t = (x - origin) / width.  Without rounding, both t
    differ by at most max_difference / width <= 1 / WIDEN < 1 - 2**-19.  Three roundings change each t by at
    most 3 * 2**-53 * 2**30 < 2**-20.  So their floors differ by 1 at most.
    """
    order = sorted(range(len(lower)), key=lambda k: (-float(variance[k]), k))
    sweep, dims = order[0], tuple(order[1:])
    span = [float(upper[k]) * 0.25 - float(lower[k]) * 0.25 for k in dims]
    scale = 1.0 if max(span, default=0.0) < 2.0**1020 else 0.25
    span = [s * 4 * scale for s in span]
    bits = min(MAX_CELL_BITS, KEY_BITS // max(1, len(dims)) - 1)
    least = max_difference * scale * WIDEN
    width = [max(least, s * 2.0**-bits, 2.0**-1000) for s in span]
    cells = [int(s / w) + 3 if w < math.inf else 3 for s, w in zip(span, width, strict=True)]
    strides = [math.prod(cells[k + 1 :]) for k in range(len(cells))]
    origin = tuple(float(lower[k]) * scale for k in dims)
    return SweepGrid(sweep, dims, origin, tuple(width), tuple(strides), scale)


def row_keys(x: Array, grid: SweepGrid, xp: ArrayModule) -> Array:
    """Return the row key of each point (int64); cells are numbered from 1, so neighbors have keys >= 0."""
    keys = None
    for k, origin, width, stride in zip(grid.dims, grid.origin, grid.width, grid.strides, strict=True):
        column = x[:, k] if grid.scale == 1.0 else x[:, k] * grid.scale
        place = column - origin
        place /= width
        cell = place.astype(xp.int64)
        cell += 1
        cell *= stride
        keys = cell if keys is None else xp.add(keys, cell, out=keys)
    return xp.zeros(len(x), xp.int64) if keys is None else keys


# The functions below overwrite their arguments: using new memory would take as long as the work on it.


def _sort_packed(key: Array, position_bits: int, xp: ArrayModule) -> tuple[Array, Array]:
    """Sort `key` (int64, >= 0) in place, with positions in its low bits; return keys and positions."""
    key <<= position_bits
    key |= xp.arange(len(key))
    key.view(xp.uint64).sort()
    positions = key & ((1 << position_bits) - 1)
    key >>= position_bits
    return key, positions


def _fixed_point(x: Array, bits: int, xp: ArrayModule) -> Array | None:
    """Return the values as int64 numbers of `bits` bits; None: their range is 0 or too large."""
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
    """Sort by row key, then by value; return positions and keys in that order. `keys` is overwritten.

    It sorts numbers of 64 bits (key, fixed-point value, position), and then the points that share a key and a
    fixed-point value.  If there are too many such points, or keys take too many bits, it sorts by value, and
    then by key with a stable sort.
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
        if len(shared) <= len(x) * MAX_SHARED:
            if len(shared):
                places = xp.unique(xp.concatenate([shared, shared + 1]))
                some, group = positions[places], packed[places]
                groups = xp.cumsum(xp.concatenate([group[:1] * 0, group[1:] != group[:-1]]))
                positions[places] = some[xp.lexsort(xp.stack([x[some], groups.astype(float)]))]
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
    """Return the index of a chunk's points `x` (n, d), float64; arrays have `pad` more points at their ends.

    "order" (n + pad, int32) has the positions of points by row and then by the swept coordinate. "cols" (d,
    n + pad) has coordinates in this order. "keys" (rows, int64) and "starts" (rows + 1, int64) describe the
    rows that are not empty.
    """
    n, d = x.shape
    columns = [xp.ascontiguousarray(x[:, k]) for k in range(d)]
    keys = row_keys(x, grid, xp)
    positions, keys = _order(columns[grid.sweep], keys, xp) if n else (keys, keys)
    cols = xp.zeros((d, n + pad))
    for column, out in zip(columns, cols, strict=True):
        column.take(positions, out=out[:n], **UNCHECKED.get(xp.__name__, {}))
    order = xp.zeros(n + pad, xp.int32)
    order[:n] = positions
    one = xp.ones(1, bool)
    starts = xp.flatnonzero(xp.concatenate([one[:n], keys[1:] != keys[:-1], one]))
    return {"order": order, "cols": cols, "keys": keys[starts[:-1]], "starts": starts}


def part(index: Index, start: int, stop: int, pad: int, xp: ArrayModule = np, copied: bool = True) -> Index:
    """Return the index of the points at places start ... stop-1 of an index, with unchanged positions."""
    keys, starts = _rows(index, start, stop, xp)
    cols = index["cols"][:, start : stop + pad]
    return {
        "order": index["order"][start : stop + pad],
        "cols": xp.ascontiguousarray(cols) if copied else cols,
        "keys": keys,
        "starts": starts - start,
    }


def queries(index: Index, start: int, stop: int, xp: ArrayModule = np) -> Index:
    """Return the places start ... stop-1 of the index as queries, without copying coordinates."""
    keys, starts = _rows(index, start, stop, xp)
    return index | {"keys": keys, "starts": starts}


def _rows(index: Index, start: int, stop: int, xp: ArrayModule) -> tuple[Array, Array]:
    """Return keys and bounds of the rows of the places start ... stop-1."""
    starts = index["starts"]
    first = int(xp.searchsorted(starts, start, side="right")) - 1
    last = max(int(xp.searchsorted(starts, stop, side="left")), first)
    return index["keys"][first:last], starts[first : last + 1].clip(start, stop)


def chosen(index: Index, places: Array, pad: int, xp: ArrayModule = np) -> Index:
    """Return an index of the points at some ascending places of an index, whose "order" has these places."""
    n = len(places)
    order = xp.zeros(n + pad, xp.int32)
    order[:n] = places
    cols = xp.zeros((len(index["cols"]), n + pad))
    for column, out in zip(index["cols"], cols, strict=True):
        column.take(places, out=out[:n], **UNCHECKED.get(xp.__name__, {}))
    return {
        "order": order, "cols": cols, "keys": index["keys"],
        "starts": xp.searchsorted(places, index["starts"]),
    }  # fmt: skip


REACH = 2
"""Near points are at most this number of cells apart in each dimension."""

MAX_DIMS = 4
"""Maximum number of dimensions of cells."""


@dataclass(frozen=True)
class CellLayout:
    """How one chunk is indexed for density clusters; the index is not compared with other chunks.

    `threshold`, `norm`: of the totals that the float64 decision compares.
    """

    threshold: float
    norm: Norm = 2

    @property
    def method(self) -> str:
        """The name of this layout, which users cannot choose as a method."""
        return "cells"


def serves(dims: int, norm: Norm) -> bool:
    """Return whether cells that are at least eps / 2 wide can have a diagonal of at most eps."""
    return dims <= MAX_DIMS and _share(dims, norm) >= 0.5


def _share(dims: int, norm: Norm) -> float:
    """Return the width of a cell whose diagonal is 1."""
    return 1.0 if norm == math.inf else float(dims ** (-1 / norm))


def make_cells(lower: np.ndarray, upper: np.ndarray, layout: CellLayout) -> SweepGrid:
    """Choose the cells for points within the box [lower, upper]; cells of the swept dimension have stride 1.

    Near points lie at most `REACH` cells apart.  Let t = (x - origin) / width, and r the largest difference
    of a coordinate.  Without rounding, both t differ by at most r / width <= 2 / WIDEN < 2 - 2**-18.  Three
    roundings change each t by at most 3 * 2**-53 * 2**30 < 2**-20.  So their floors differ by at most 2.

    A dimension has numbers for 4 more cells, beyond its first and its last cell.  So a neighbor beyond these
    never has the key of another cell.
    """
    d = len(lower)
    half = [float(upper[k]) * 0.5 - float(lower[k]) * 0.5 for k in range(d)]
    sweep = max(range(d), key=lambda k: (half[k], -k))
    dims = (*(k for k in range(d) if k != sweep), sweep)
    scale = 1.0 if max(half) < 2.0**1021 else 0.25
    span = [half[k] * 2 * scale for k in dims] if scale == 1.0 else [half[k] * 0.5 for k in dims]
    bits = min(MAX_CELL_BITS, KEY_BITS // d - 1)
    least = reach(layout.norm, layout.threshold) * scale * max(0.5 * WIDEN, _share(d, layout.norm))
    width = [max(least, s * 2.0**-bits, 2.0**-1000) for s in span]
    cells = [int(s / w) + 5 if w < math.inf else 5 for s, w in zip(span, width, strict=True)]
    strides = tuple(math.prod(cells[k + 1 :]) for k in range(d))
    origin = tuple(float(lower[k]) * scale for k in dims)
    return SweepGrid(sweep, dims, origin, tuple(width), strides, scale)


def runs(grid: SweepGrid, *, half: bool) -> tuple[np.ndarray, int]:
    """Return the key offsets of runs of neighbor cells, the nearest first, and the number of adjacent runs.

    `half`: only runs that begin at or after the cell.
    """
    steps = itertools.product(range(-REACH, REACH + 1), repeat=len(grid.dims) - 1)
    away = sorted((sum(abs(s) for s in step), step) for step in steps)
    found = [(sum(s * t for s, t in zip(step, grid.strides, strict=False)), far) for far, step in away]
    kept = [(key, far) for key, far in found if key >= 0 or not half]
    return np.array([key for key, _ in kept], np.int64), sum(far <= 1 for _, far in kept)
