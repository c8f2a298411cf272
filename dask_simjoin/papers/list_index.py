"""Layouts of joins by lists in Z-order, and of nested loops.

See `dask_simjoin.papers.lists`.  A list is the order of rows by their keys.  A key has the cell of each
coordinate, ``floor(((x - low) / extent + shift) * 2**(bits - 1))``, its bits interleaved from the highest on.
All these operations are monotone, as rounded, and so is cutting a key after its first words: a point whose
coordinates all are at least another's has at least its key (LSS, lemma 4.1).  So all points of a box have
keys from that of its lower to that of its upper corner (lemma 4.2); what lies outside is moved to the edge.
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
    """How chunks are compared by nested loops.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    options : NestedLoop
    dims : int
        Dimensions of points.
    norm : int or float
        Of the totals that the decision compares.
    bounds : Bounds or None
        Of the float32 filter, where there is one: on GPUs.
    """

    threshold: float
    options: NestedLoop
    dims: int
    norm: Norm = 2
    bounds: Bounds | None = None

    @property
    def method(self) -> str:
        """The method's name."""
        return "nested_loop"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return self.options.block

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        words = [f"nested loops, {self.options.schedule} of blocks of {self.options.block} rows"]
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def compared(rows: int, dims: int) -> dict[str, float]:
    """Return what two loops over rows look at, which no run need count."""
    pairs = rows * (rows - 1) // 2
    return {"candidates": pairs, "comparisons": pairs, "terms": pairs * dims}


WORD = 64
"""Bits of a word of a key."""

MAX_BITS = 20
"""Of a coordinate."""


@dataclass(frozen=True)
class ZOrderLayout:
    """How the chunks of one join are sorted in Z-order: alike, so that any two can meet.

    Attributes
    ----------
    threshold : float
        Of the float64 decision.
    options : ZOrder
    dims : int
        Dimensions of points.
    columns : tuple of int
        The dimensions of keys, of largest variance first: all, or as many as there are bits.
    bits : int
        Of each of them in a key, one of which the shift needs.
    low : tuple of float
        Where each of them begins, times `scale`.
    extent : float
        Of the widest one, times `scale`.
    scale : float
        Power of two that keeps differences of coordinates finite.
    shifts : tuple of float
        Of the lists, as parts of the extent.
    norm : int or float
        Of the totals that the decision compares.
    bounds : Bounds or None
        Of the float32 filter, where there is one: on GPUs.
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
        """The method's name."""
        return "zorder"

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""
        return 1

    @property
    def corner(self) -> float:
        """How far from a point, at least, the corners of its box are in each dimension.

        A pair's difference as rounded is at most the norm's reach, so it is at most this, and the sum of this
        and a coordinate, as rounded, is at least the other one: rounding is monotone.
        """
        return math.nextafter(reach(self.norm, self.threshold), math.inf)

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        asked, number = self.options, len(self.shifts)
        words = [f"{number} list{'s' * (number != 1)} in Z-order, {asked.shifts} shifts"]
        words.append(f"{self.bits} bit{'s' * (self.bits != 1)} of {len(self.columns)} of {self.dims} columns")
        words.append(f"walk {asked.walk}")
        return "; ".join(words + ["float32"] * (self.bounds is not None))


def lists_of(options: ZOrder, dims: int) -> int:
    """Return the number of lists; "auto" is decided where there is a sample, and else is "log".

    Even shifts of an odd number of lists never are those of larger cells (LSS, lemma 4.4).
    """
    if isinstance(options.lists, int):
        return options.lists
    number = dims + 1 if options.lists == "d+1" else dims.bit_length()
    return number + 1 - number % 2


def shifts_of(options: ZOrder, dims: int) -> tuple[float, ...]:
    """Return by which part of the extent each list is shifted."""
    number = lists_of(options, dims)
    if options.shifts == "even":
        return tuple(j / number for j in range(number))
    return tuple(np.random.default_rng(options.seed).uniform(size=number).tolist())


def make_zorder_layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray,
                       threshold: float, norm: Norm = 2) -> ZOrderLayout:  # fmt: skip
    """Choose keys for points within the box [lower, upper], of this variance (d,)."""
    dims = len(lower)
    order = sorted(range(dims), key=lambda k: (-float(variance[k]), k))[: WORD * options.words]
    bits = min(MAX_BITS, max(1, WORD * options.words // dims))
    span = max(float(u) * 0.25 - float(v) * 0.25 for u, v in zip(upper, lower, strict=True))
    scale = 1.0 if span < 2.0**1020 else 0.25
    extent = span * (4 * scale) or 1.0  # four times the span alone may be infinite
    low = tuple(float(lower[k]) * scale for k in order)
    shifts = shifts_of(options, dims)
    return ZOrderLayout(threshold, options, dims, tuple(order), bits, low, extent, scale, shifts, norm)


CHOICES = (1, 3, 5, 9, 17, 33, 65)
"""Numbers of lists that are tried, and that of the theory: odd ones, see `lists_of`."""

QUERIES, POINTS = 512, 4096
"""Points of the sample that look their intervals up, and among how many."""

FULL_SHARE = 0.9
"""What a row of a full interval costs of one of a half, as measured: earlier ones are only looked at."""

MeanLength = Callable[[np.ndarray, np.ndarray, ZOrderLayout], float]
"""How many of some points lie in the interval of a query, on average."""


class ListCosts(NamedTuple):
    """What lists cost, in nanoseconds, as measured.

    Attributes
    ----------
    entry, column : float
        Of a row in a list: keys of it and of its corners, sorting and two searches; what each column adds.
    row, term : float
        Of a row that is walked past, and each column of it.
    search : float
        Of all this choosing: below it the number of lists that a sample is not needed for is taken.
    """

    entry: float
    column: float
    row: float
    term: float
    search: float


def fitted(options: ZOrder, layout: ZOrderLayout, drawn: Drawn | None, mean_length: MeanLength,
           costs: ListCosts) -> ZOrder:  # fmt: skip
    """Return the options with a number of lists instead of "auto": that of least cost on a sample.

    More lists only make intervals shorter, and cost more to make: the search ends once they alone cost more
    than the best.
    """
    if options.lists != "auto" or drawn is None or not len(drawn.queries) or not len(drawn.points):
        return options
    same = drawn.queries is drawn.points
    step = max(2, -(-len(drawn.queries) // QUERIES))
    queries, points = drawn.queries[::step], drawn.points
    if same:  # no row is its own neighbour
        points = points[np.arange(len(points)) % step != 0]
    points = points[:: max(1, -(-len(points) // POINTS))]
    if not len(points):
        return options

    def walking(number: int) -> float:
        tried = replace(options, lists=number, walk="full")
        of_so_many = replace(layout, options=tried, shifts=shifts_of(tried, layout.dims))
        share = mean_length(queries, points, of_so_many) / len(points)
        return share * drawn.rows * (costs.row + costs.term * layout.dims) * FULL_SHARE

    if costs.search and drawn.rows * walking(lists_of(options, layout.dims)) < costs.search:
        return options
    best, least = options, math.inf
    for number in sorted({*CHOICES, lists_of(replace(options, lists="d+1"), layout.dims)}):
        lists = number * (costs.entry + costs.column * layout.dims)
        if lists >= least:
            break
        cost = lists + walking(number)
        if cost < least:
            best, least = replace(options, lists=number), cost
    return best


LISTS = 5
"""Lists of which as many are made as there are dimensions and one more, at most, unless a number is given."""


@dataclass(frozen=True)
class ZOrderSearch(MethodSearch):
    """Constants of one search.

    Attributes
    ----------
    keys : ZOrderLayout
        How rows are sorted, of no threshold.
    approximate : bool
        Whether only rows next to a query in each list are looked at.
    """

    keys: ZOrderLayout
    approximate: bool

    @property
    def dims(self) -> int:
        """Dimensions of points."""
        return self.keys.dims

    @property
    def norm(self) -> Norm:
        """Of what is computed."""
        return self.keys.norm

    @property
    def method(self) -> str:
        """The method's name."""
        return "zorder"

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""
        words = self.keys.in_words(names).partition("; walk")[0]
        return f"{words}; {'neighbours in them only' if self.approximate else 'then intervals'}"


def search_layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, norm: Norm,
                  approximate: bool) -> ZOrderSearch:  # fmt: skip
    """Choose keys and lists for points within the box [lower, upper], of this variance (d,)."""
    if options.lists == "auto":
        dims = len(lower)
        options = replace(options, lists=min(LISTS, dims + 1 + dims % 2))
    return ZOrderSearch(make_zorder_layout(options, lower, upper, variance, 0.0, norm), approximate)
