"""Layouts of joins by lists in Z-order, and of nested loops.

See `dask_simjoin.papers.lists`. A list is the order of rows by their keys. A key interleaves the bits of
the cell of each coordinate, from the highest bit on:
``floor(((x - low) / extent + shift) * 2**(bits - 1))``.

These operations are monotone, also after rounding and after truncation of the key. So if no coordinate of a
point is smaller than another point's, its key is not smaller either (LSS, lemma 4.1). It follows that the
keys of all points in a box lie between the keys of its lower and upper corners (lemma 4.2). Cells outside
the range are replaced by the nearest cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.protocols import MethodSearch
from dask_simjoin.metrics.norms import Norm, reach
from dask_simjoin.papers.lists import NestedLoop, ZOrder


@dataclass(frozen=True)
class NestedLayout:
    """The layout of a join by nested loops.

    Attributes
    ----------
    threshold : float
        Threshold of the float64 decision.
    options : NestedLoop
        Options of the method.
    dims : int
        Dimensions of points.
    norm : int or float
        Norm of the totals that are compared.
    bounds : Bounds or None
        Bounds of the float32 filter; on GPUs only.
    """

    threshold: float
    options: NestedLoop
    dims: int
    norm: Norm = 2
    bounds: Bounds | None = None

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return "nested_loop"

    @property
    def grain(self) -> int:
        """Return a number of points: queries can be cut at its multiples."""
        return self.options.block

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe the layout for a plan; `names` returns names of dimensions."""
        words = [f"nested loops, {self.options.schedule} of blocks of {self.options.block} rows"]
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def compared(rows: int, dims: int) -> dict[str, float]:
    """Return the counters of two nested loops over rows."""
    pairs = rows * (rows - 1) // 2
    return {"candidates": pairs, "comparisons": pairs, "terms": pairs * dims}


WORD = 64
"""Bits per word of a key."""

MAX_BITS = 20
"""Maximum bits per coordinate."""


@dataclass(frozen=True)
class ZOrderLayout:
    """The layout of a join by lists in Z-order, shared by all its chunks.

    Attributes
    ----------
    threshold : float
        Threshold of the float64 decision.
    options : ZOrder
        Options of the method.
    dims : int
        Dimensions of points.
    columns : tuple of int
        Dimensions in the keys, largest variance first: all, or as many as a key has bits.
    bits : int
        Bits per dimension of a key; one bit is for the shift.
    low : tuple of float
        Minimum of each dimension in `columns`, times `scale`.
    extent : float
        Extent of the widest dimension, times `scale`.
    scale : float
        Power of two that keeps differences of coordinates finite.
    shifts : tuple of float
        Shift of each list, as a fraction of the extent.
    norm : int or float
        Norm of the totals that are compared.
    bounds : Bounds or None
        Bounds of the float32 filter; on GPUs only.
    """

    threshold: float
    options: ZOrder
    dims: int
    columns: tuple[int, ...]
    bits: int
    low: tuple[float, ...]
    extent: float
    scale: float
    shifts: tuple[float, ...]
    norm: Norm = 2
    bounds: Bounds | None = None

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return "zorder"

    @property
    def grain(self) -> int:
        """Return a number of points: queries can be cut at its multiples."""
        return 1

    @property
    def corner(self) -> float:
        """Return the distance from a point to the corners of its box in each dimension.

        A rounded difference of a pair is at most the norm's reach, so it is smaller than this distance.
        Rounding is monotone. So the rounded sum of this distance and a coordinate of one point is at least
        the coordinate of the other.
        """
        return math.nextafter(reach(self.norm, self.threshold), math.inf)

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe the layout for a plan; `names` returns names of dimensions."""
        options, number = self.options, len(self.shifts)
        words = [f"{number} list{'s' * (number != 1)} in Z-order, {options.shifts} shifts"]
        words.append(f"{self.bits} bit{'s' * (self.bits != 1)} of {len(self.columns)} of {self.dims} columns")
        words.append(f"walk {options.walk}")
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def lists_of(options: ZOrder, dims: int) -> int:
    """Return the number of lists; "auto" needs a sample, and is "log" without one.

    With an odd number of lists, even shifts never coincide with the shifts of larger cells (LSS, lemma 4.4).
    """
    if isinstance(options.lists, int):
        return options.lists
    number = dims + 1 if options.lists == "d+1" else dims.bit_length()
    return number + 1 - number % 2


def shifts_of(options: ZOrder, dims: int) -> tuple[float, ...]:
    """Return the shift of each list, as a fraction of the extent."""
    number = lists_of(options, dims)
    if options.shifts == "even":
        return tuple(j / number for j in range(number))
    return tuple(np.random.default_rng(options.seed).uniform(size=number).tolist())


def make_zorder_layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray,
                       threshold: float, norm: Norm = 2) -> ZOrderLayout:  # fmt: skip
    """Choose keys for points in the box [lower, upper] with variances (d,)."""
    dims = len(lower)
    order = sorted(range(dims), key=lambda k: (-float(variance[k]), k))[: WORD * options.words]
    bits = min(MAX_BITS, max(1, WORD * options.words // dims))
    span = max(float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True))
    scale = 1.0 if span < 2.0**1020 else 0.25
    extent = span * (4 * scale) or 1.0  # avoid overflow of four times the span
    low = tuple(float(lower[k]) * scale for k in order)
    shifts = shifts_of(options, dims)
    return ZOrderLayout(threshold, options, dims, tuple(order), bits, low, extent, scale, shifts, norm)


CHOICES = (1, 3, 5, 9, 17, 33, 65)
"""Numbers of lists to try, besides "d+1"; all are odd, see `lists_of`."""

QUERIES, POINTS = 512, 4096
"""Number of sampled queries whose intervals are measured, and number of sampled points in the lists."""

FULL_SHARE = 0.9
"""Measured cost of a row in a full interval, relative to a half interval: earlier rows are only skipped."""

MeanLength = Callable[[np.ndarray, np.ndarray, ZOrderLayout], float]
"""Returns the mean number of points in the interval of a query."""


class ListCosts(NamedTuple):
    """Measured costs of lists, in nanoseconds.

    Attributes
    ----------
    entry, column : float
        Cost per row of a list, and per column of such a row: keys of the row and of its corners, sorting, and
        two searches.
    row, term : float
        Cost per row in an interval, and per column of such a row.
    search : float
        Cost of choosing the number of lists by a sample. A join that costs less takes the default number.
    """

    entry: float
    column: float
    row: float
    term: float
    search: float


def fitted(options: ZOrder, layout: ZOrderLayout, drawn: Drawn | None, mean_length: MeanLength,
           costs: ListCosts) -> ZOrder:  # fmt: skip
    """Return the options with the number of lists that is cheapest on a sample, in place of "auto".

    More lists make intervals shorter, and cost more to build. The search ends when the lists alone cost more
    than the best choice.
    """
    if options.lists != "auto" or drawn is None or not len(drawn.queries) or not len(drawn.points):
        return options
    is_self_join = drawn.queries is drawn.points
    step = max(2, -(-len(drawn.queries) // QUERIES))
    queries, points = drawn.queries[::step], drawn.points
    if is_self_join:  # no row is its own neighbor
        points = points[np.arange(len(points)) % step != 0]
    points = points[:: max(1, -(-len(points) // POINTS))]
    if not len(points):
        return options

    def walking(number: int) -> float:
        tried = replace(options, lists=number, walk="full")
        trial = replace(layout, options=tried, shifts=shifts_of(tried, layout.dims))
        share = mean_length(queries, points, trial) / len(points)
        return share * drawn.rows * (costs.row + costs.term * layout.dims) * FULL_SHARE

    if costs.search and drawn.rows * walking(lists_of(options, layout.dims)) < costs.search:
        return options
    best, min_cost = options, math.inf
    for number in sorted({*CHOICES, lists_of(replace(options, lists="d+1"), layout.dims)}):
        lists = number * (costs.entry + costs.column * layout.dims)
        if lists >= min_cost:
            break
        cost = lists + walking(number)
        if cost < min_cost:
            best, min_cost = replace(options, lists=number), cost
    return best


MAX_LISTS = 5
"""Maximum number of lists of a search for "auto", which is the number of dimensions plus one, made odd."""


@dataclass(frozen=True)
class ZOrderSearch(MethodSearch):
    """Constants of a nearest-neighbor search.

    Attributes
    ----------
    keys : ZOrderLayout
        Layout of the lists, without a threshold.
    approximate : bool
        Whether to compare only the rows next to a query in each list.
    """

    keys: ZOrderLayout
    approximate: bool

    @property
    def dims(self) -> int:
        """Return the dimensions of points."""
        return self.keys.dims

    @property
    def norm(self) -> Norm:
        """Return the norm of the totals."""
        return self.keys.norm

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return "zorder"

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe the layout for a plan; `names` returns names of dimensions."""
        words = self.keys.in_words(names).partition("; walk")[0]
        return f"{words}; {'adjacent rows only' if self.approximate else 'then intervals'}"


def search_layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, norm: Norm,
                  approximate: bool) -> ZOrderSearch:  # fmt: skip
    """Choose keys and lists for points in the box [lower, upper] with variances (d,)."""
    if options.lists == "auto":
        dims = len(lower)
        options = replace(options, lists=min(MAX_LISTS, dims + 1 + dims % 2))
    return ZOrderSearch(make_zorder_layout(options, lower, upper, variance, 0.0, norm), approximate)
