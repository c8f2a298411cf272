"""Layouts of joins by lists in Z-order, and of joins by nested loops: see
`dask_simjoin.papers.lists`.

A list has all rows of a table, sorted by key. A coordinate x has a cell number of at
most ``bits`` bits: ``floor(((x - low) / extent + shift) * 2**(bits - 1))``. The key of
a row interleaves the bits of its cell numbers, highest bits first.

If point p is not smaller than point q in any coordinate, p's key is not smaller than
q's key (LSS, lemma 4.1). Rounding and truncation do not change this, because they are
monotone. So the keys of all points in a box lie between the keys of its lower and its
upper corner (lemma 4.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import MethodSearch
from dask_simjoin.metrics.norms import Norm, reach
from dask_simjoin.papers.lists import NestedLoop, ZOrder


@dataclass(frozen=True)
class NestedLayout:
    """The layout of a join by nested loops; see `Layout`."""

    method: ClassVar[str] = "nested_loop"

    threshold: float
    options: NestedLoop
    dims: int  # number of dimensions of the points
    norm: Norm = 2
    bounds: Bounds | None = None  # bounds of the float32 filter; on GPUs only

    @property
    def grain(self) -> int:
        return self.options.block

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        words = [
            f"nested loops, {self.options.schedule} of blocks of {self.options.block} "
            "rows"
        ]
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def compared(rows: int, dims: int) -> dict[str, float]:
    """Return the counters of a self-join that compares every row with every other row."""
    pairs = rows * (rows - 1) // 2
    return {"candidates": pairs, "comparisons": pairs, "terms": pairs * dims}


WORD = np.iinfo(np.uint64).bits
"""Number of bits per word of a key."""

MAX_BITS = 20
"""Maximum number of bits per coordinate in a key."""


@dataclass(frozen=True)
class ZOrderLayout:
    """The layout of a join by lists in Z-order, shared by all its chunks; see `Layout`."""

    method: ClassVar[str] = "zorder"
    grain: ClassVar[int] = 1

    threshold: float
    options: ZOrder
    dims: int  # number of dimensions of the points
    # the dimensions that keys use, largest variance first; at most as many as a key has
    # bits
    columns: tuple[int, ...]
    bits: int  # bits per dimension in a key; one of them is for the shift
    low: tuple[float, ...]  # minimum of each dimension in `columns`, times `scale`
    extent: float  # extent of the widest dimension, times `scale`
    scale: float  # power of two that keeps differences of coordinates finite
    # for each list, the shift that is added to coordinates, as a fraction of the extent
    shifts: tuple[float, ...]
    norm: Norm = 2
    bounds: Bounds | None = None  # bounds of the float32 filter; on GPUs only

    @property
    def corner(self) -> float:
        """Half the width of the box around a point, in each dimension.

        It is larger than any computed difference of one coordinate in a pair. Rounding
        is monotone, so the box of one point of a pair contains the other point,
        although coordinates of the corners are rounded.
        """
        return math.nextafter(reach(self.norm, self.threshold), math.inf)

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        options, number = self.options, len(self.shifts)
        words = [
            f"{number} list{'s' * (number != 1)} in Z-order, {options.shifts} shifts"
        ]
        words.append(
            f"{self.bits} bit{'s' * (self.bits != 1)} of {len(self.columns)} of "
            f"{self.dims} columns"
        )
        words.append(f"walk {options.walk}")
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def lists_of(options: ZOrder, dims: int) -> int:
    """Return the number of lists for the option `lists`.

    "auto" is treated as "log", unless `fitted` has replaced it.

    The number is odd, unless the user gives an even one. With an odd number, evenly
    spaced shifts never coincide with the borders of larger cells (LSS, lemma 4.4).
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


def make_zorder_layout(
    options: ZOrder,
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm = 2,
) -> ZOrderLayout:
    """Choose keys for points in the box [lower, upper] with variances (d,)."""
    dims = len(lower)
    order = sorted(range(dims), key=lambda k: (-float(variance[k]), k))[
        : WORD * options.words
    ]
    bits = min(MAX_BITS, max(1, WORD * options.words // dims))
    span = max(
        float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True)
    )
    scale = 1.0 if span < 2.0**1020 else 0.25
    # multiplied by `4 * scale` at once, because four times the span could overflow
    extent = span * (4 * scale) or 1.0
    low = tuple(float(lower[k]) * scale for k in order)
    shifts = shifts_of(options, dims)
    return ZOrderLayout(
        threshold, options, dims, tuple(order), bits, low, extent, scale, shifts, norm
    )


CHOICES = (1, 3, 5, 9, 17, 33, 65)
"""Numbers of lists that "auto" tries, in addition to the number that `lists="d+1"`
gives.

All are odd: see `lists_of`.
"""

QUERIES, POINTS = 512, 4096
"""For "auto": maximum number of sampled queries whose intervals are measured, and of
sampled points in the lists."""

MeanLength = Callable[[np.ndarray, np.ndarray, ZOrderLayout], float]
"""Function of queries, points and a layout.

It returns the mean number of points in the queries' intervals.
"""


class ListCosts(NamedTuple):
    """Measured costs of lists, in nanoseconds."""

    # per row of a list, for: its key, the keys of both corners, sorting, and two binary
    # searches
    entry: float
    column: float  # in addition to `entry`, per row of a list and per column
    row: float  # per row in an interval
    term: float  # in addition to `row`, per row in an interval and per column
    # for choosing the number of lists on a sample; a join that costs less than this
    # uses the default number
    search: float


def fitted(
    options: ZOrder,
    layout: ZOrderLayout,
    sample: JoinSample | None,
    mean_length: MeanLength,
    costs: ListCosts,
) -> ZOrder:
    """Replace "auto" by the number of lists that is cheapest on a sample; return the
    options.

    More lists make intervals shorter, but cost more to build. Ascending numbers are
    tried, until building the lists alone costs more than the best number so far.
    """
    if (
        options.lists != "auto"
        or sample is None
        or not len(sample.queries)
        or not len(sample.points)
    ):
        return options
    is_self_join = sample.queries is sample.points
    step = max(2, -(-len(sample.queries) // QUERIES))
    queries, points = sample.queries[::step], sample.points
    if is_self_join:  # leave out the queries, because a row is not its own candidate
        points = points[np.arange(len(points)) % step != 0]
    points = points[:: max(1, -(-len(points) // POINTS))]
    if not len(points):
        return options

    def walking(number: int) -> float:
        tried = replace(options, lists=number, walk="full")
        trial = replace(layout, options=tried, shifts=shifts_of(tried, layout.dims))
        share = mean_length(queries, points, trial) / len(points)
        return share * sample.rows * (costs.row + costs.term * layout.dims)

    if (
        costs.search
        and sample.rows * walking(lists_of(options, layout.dims)) < costs.search
    ):
        return options
    best, min_cost = options, math.inf
    for number in sorted(
        {*CHOICES, lists_of(replace(options, lists="d+1"), layout.dims)}
    ):
        lists = number * (costs.entry + costs.column * layout.dims)
        if lists >= min_cost:
            break
        cost = lists + walking(number)
        if cost < min_cost:
            best, min_cost = replace(options, lists=number), cost
    return best


MAX_LISTS = 5
"""Maximum number of lists for "auto" in a nearest-neighbor search. Up to it, "auto"
means "d+1" there.
"""


@dataclass(frozen=True)
class ZOrderSearch(MethodSearch):
    """The layout of a nearest-neighbor search; see `MethodSearch`."""

    method = "zorder"

    keys: ZOrderLayout  # layout of the lists, without a threshold
    # whether to compare only the rows that are adjacent to a query in a list
    approximate: bool

    @property
    def norm(self) -> Norm:
        return self.keys.norm

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        words = self.keys.in_words(names).partition("; walk")[0]
        return (
            f"{words}; {'adjacent rows only' if self.approximate else 'then intervals'}"
        )


def search_layout(
    options: ZOrder,
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    norm: Norm,
    approximate: bool,
) -> ZOrderSearch:
    """Choose keys and lists for points in the box [lower, upper] with variances (d,)."""
    if options.lists == "auto":
        dims = len(lower)
        options = replace(options, lists=min(MAX_LISTS, dims + 1 + dims % 2))
    return ZOrderSearch(
        make_zorder_layout(options, lower, upper, variance, 0.0, norm), approximate
    )
