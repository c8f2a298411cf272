"""Interfaces of a frame library's engine: `Frames`, `Joiner`, `Searcher`, `Spanner`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np

from dask_simjoin.engine.index.regions import Regions
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.methods import Method
from dask_simjoin.metrics.norms import (
    Array,
    ArrayModule,
    ArrowTable,
    DType,
    Frame,
    Ids,
    Index,
    Norm,
    Series,
    Values,
)

Visitor = Callable[[Array, Array, Array], None]

Measured = Callable[[Array], Array]
"""Makes distances of totals."""

Rows = tuple[int, int]
"""The first of some places that follow each other, and the one behind the last."""

Kept = Sequence[Sequence[Array]]
"""Values of the left and of the right rows, in the order of their chunk's index."""


class Pairs(NamedTuple):
    """Pairs of two chunks.

    Attributes
    ----------
    left, right : array (pairs,), int32 or int64
        The rows of the left and of the right chunk: positions, or labels.
    distance : array (pairs,), float64, or None
        What `distance` made of the pairs' totals.
    decided, refused : int
        How many pairs only the float64 decision could tell, and how many of them it refused.
    kept : list of array (pairs,)
        What `kept` has of the left and of the right rows.
    """

    left: Array
    right: Array
    distance: Array | None
    decided: int
    refused: int
    kept: Sequence[Array] = ()


class Layout(Protocol):
    """How all chunks of one join are indexed: alike, so that any two can meet."""

    @property
    def method(self) -> str:
        """The name of the method that joins them."""

    @property
    def norm(self) -> Norm:
        """Of the totals that the decision compares."""

    @property
    def threshold(self) -> float:
        """Of the float64 decision."""

    @property
    def grain(self) -> int:
        """Points at whose multiples queries can be cut."""

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""


class SearchLayout(Protocol):
    """How all chunks of one search for nearest neighbors are indexed."""

    @property
    def method(self) -> str:
        """The name of the method that searches them."""

    @property
    def norm(self) -> Norm:
        """Of the totals that say what is near."""

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""


class MethodSearch(ABC):
    """The layout of a search by a method's own module, a `SearchMethod`, and not by tiles."""

    @property
    @abstractmethod
    def method(self) -> str:
        """The name of the method."""

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """Of the totals that say what is near."""

    @abstractmethod
    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Describe it in a plan; `names` calls dimensions by name."""


class SearchMethod(Protocol):
    """The functions of a method's module that searches nearest neighbors: see `Method.has_search`."""

    def search_layout(self, options: Any, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray,
                      norm: Norm, approximate: bool) -> MethodSearch:  # fmt: skip
        """Choose how to index all chunks, from moments (d,) of all points.

        `approximate`: whether the search may miss neighbors.
        """

    def build_nearest(self, x: Array) -> Index:
        """Index the points (n, d) of a chunk."""

    def nearest(self, q: Index, d: Index, layout: Any, best_d2: Array, best_name: Array, *,
                same: bool, bound2: float = ...) -> None:  # fmt: skip
        """Improve the known neighbors of the rows of `q` by those of `d`: see `Searcher`."""


class Frames(Protocol):
    """Reads and makes the data frames of one library."""

    xp: ArrayModule
    """The module of the arrays that they hold."""

    def coordinates(self, frame: Frame, columns: tuple[Hashable, ...], room: Array | None = None) -> Array:
        """The columns as an array (n, d) of float64, NaN where a value is missing.

        They are columns of numbers, or one of lists of d numbers; raises `ListError` where it is not.
        `room`: memory of at least n * d float64 that they may be written to.
        """

    def result(self, columns: dict[Any, Values], rows: int) -> Frame:
        """A data frame of these columns; it has rows even without columns."""

    def values(self, frame: Frame, name: Hashable, places: Array) -> Values:
        """The values of a column at some places, as `result` takes them."""

    def ids(self, ids: Ids, positions: Array) -> Values:
        """The ids at some positions, as `result` takes them."""

    def plain(self, frame: Frame, name: Hashable) -> Array | None:
        """A column as an array (n,) that `Joiner.pairs` can keep, or None if it is no such."""

    def stacked(self, frames: list[Frame]) -> Frame:
        """Frames of the same columns one after the other, numbered anew."""

    def optional(self, dtype: DType) -> DType:
        """The dtype of values like those, some of which may be missing."""

    def missing(self, dtype: DType, rows: int) -> Values:
        """The given number of missing values of an optional dtype, as `result` takes them."""

    def series(self, values: Array, index: Ids, name: Hashable) -> Series:
        """A series of that library."""

    def rows(self, values: Array, index: Ids, example: Frame) -> Frame:
        """A Series of values (n,), or a data frame of values (n, k), like an example.

        All are int64; what is of other types, of 8 bytes too, is given as its bits.
        """

    def index(self, values: Values) -> Ids:
        """An index of that library."""

    def to_arrow(self, frame: Frame) -> ArrowTable:
        """The columns of a frame, named by strings, as a table on the host, without its index."""

    def from_arrow(self, table: ArrowTable, dtypes: Mapping[str, str]) -> Frame:
        """A frame of a table; `dtypes`: what its columns' dtypes are called, where pandas has others too."""

    def memory(self) -> int | None:
        """Bytes of memory that only this kind of arrays has, where no cluster tells; None: no such."""


class Joiner(Protocol):
    """Indexes chunks of one kind of arrays, and finds their pairs.

    A layout is what this joiner's `layout` made: it says how all chunks of a join are indexed.
    """

    xp: ArrayModule
    """The module of the arrays."""

    max_dims: int | None
    """Dimensions that it serves; None: any number."""

    def layout(self, method: str | Method, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, threshold: float, norm: Norm = 2,
               drawn: Drawn | None = None) -> Layout:  # fmt: skip
        """How to index chunks, from moments (d,) of all points and the decision's threshold and norm.

        `drawn`: some of the points, if there are any to tell more from.
        """

    def build(self, x: Array, layout: Layout | SearchLayout, threads: int = 1) -> Index:
        """Index of a chunk, for joins or for searches, as its layout says; `threads`: to share the work."""

    def points(self, index: Index, layout: Layout) -> Array:
        """Coordinates (n, d), float64, of an index's points, in its order."""

    def pairs(self, q: Index, d: Index, layout: Layout, *, same: bool, distance: Measured | None = None,
              labels: tuple[Array, Array] | None = None, rows: Rows | None = None,
              kept: Kept | None = None) -> Pairs:  # fmt: skip
        """All pairs of two indexes, or of one with itself (`same`: each once, smaller position first).

        `distance`: makes distances of totals (pairs,) float64, in their memory if it likes.
        `labels`: what to name the rows of both sides (n,), in their index's order, int64, on the host any
        integers; None: their positions.  `kept`: with labels, lists of arrays (n,) of which to give the
        left and the right rows' values, in the order of the left and of the right chunk's index.
        `rows`: only what `weights` counts for the first side's places start ...
        stop-1, multiples of the layout's `grain` or its end.
        """

    def visit(self, q: Index, d: Index, layout: Layout, visitor: Visitor, *, same: bool,
              rows: Rows | None = None) -> None:  # fmt: skip
        """Show all pairs of two indexes, or of one with itself, to `visitor`, some at a time.

        It gets positions (int32) in the first and in the second, and totals (float64);
        arrays that it must not keep.  `rows`: as of `pairs`.
        """

    def connect(self, q: Index, d: Index, layout: Layout, parent: Array, taking: tuple[Array, Array],
                offset: int, *, same: bool, rows: Rows | None = None) -> None:  # fmt: skip
        """Join the sets of all pairs of two indexes (or of one) of which both rows take part.

        `parent`: of each node (int32 or int64), in a disjoint-set forest in which roots are their sets'
        smallest nodes; a row's node is its position, on the second side plus `offset`.  `taking`: which
        rows of both sides take part (bool), by position.  `rows`: as of `pairs`.
        """

    def link(self, parent: Array, left: Array, right: Array) -> None:
        """Join the sets of both ends of edges between nodes: see `connect`."""

    def roots(self, parent: Array) -> None:
        """Make every node's parent the root of its set."""

    def numbers(self, parent: Array, rows: tuple[Array, Array] | None = None, threads: int = 1) -> Array:
        """Number sets from 0, by their least rows: of each node its set's number (n,), int64.

        `parent`: what `roots` made; `rows`: which nodes take part (n,) bool, by themselves or with others
        that do, the rest having -1, and the row of each node (n,) int32; None: all of them, and each is its
        own row.
        """

    def least_rows(self, parent: Array, order: Array, threads: int = 1) -> Array:
        """Find at the root of each set of nodes its least row; elsewhere there is anything: (n,) int32.

        `parent`: what `roots` made; `order`: the row of each node (n,) int32.
        """

    def foresee(self, layout: Layout, *, shown: bool = False, counted: bool = False,
                connected: bool = False) -> None:  # fmt: skip
        """Begin to prepare what will be called, while other work goes on.

        `shown`: `visit`; `counted`: `counts`; `connected`: `connect` and `lowest`.
        """

    def lowest(self, q: Index, d: Index, layout: Layout, labels: tuple[Array, Array],
               low: tuple[Array, Array], *, same: bool, rows: Rows | None = None) -> None:  # fmt: skip
        """Lower what rows without a label (-1) have in `low` to the labels of their neighbors.

        All by position, int64, of both sides; of one index with itself twice the same.  `rows`: as of
        `pairs`.
        """

    def counts(self, q: Index, d: Index, layout: Layout, *, same: bool,
               enough: int | None = None, rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Numbers of neighbors (int64) of the rows of both chunks, by position.

        `enough`: from there on a number need not be right, but for being at least that.
        `rows`: only a part of them; of places that are cut into parts, those add up to the numbers.
        """

    def weights(self, q: Index, d: Index, layout: Layout, *, same: bool,
                rows: Rows | None = None) -> Array:  # fmt: skip
        """Numbers of pairs (int64) that the places of the first side give in `pairs`, in their order.

        `rows`: of those places.
        """

    def tally(self, q: Index, d: Index, layout: Layout, limits: np.ndarray, *, same: bool, by_row: bool,
              rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Count pairs within each of some limits of totals, ascending, the last one the layout's threshold.

        Gives numbers (int64): of neighbors of the rows of both chunks, by position (n, limits), as `counts`
        does; or, unless `by_row`, of all pairs (1, limits).  `rows`: as of `pairs`.
        """

    def work(self, q: Index, d: Index, layout: Layout, *, same: bool) -> np.ndarray:
        """Estimate how much work equal parts of the first side's places give in `pairs`, in their order.

        Some numbers, on the host, of which only the ratios count; one: there is nothing to choose by.
        """

    def regions(self, x: Array, regions: Regions, reach: float, threshold: float, norm: Norm = 2, *,
                everywhere: bool = False) -> tuple[Array, Array, Array]:  # fmt: skip
        """The region of each point (n,), and pairs of points and other regions that need them.

        Those are regions of lower numbers than the point's; `everywhere`: all that are within reach of it,
        its own included.
        """


class Searcher(Protocol):
    """Searches chunks for the nearest neighbors of others' rows."""

    grain: int
    """Places at whose multiples the queries of a search can be cut."""

    def layout(self, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
               sample: np.ndarray, norm: Norm = 2, method: str | Method = ...,
               approximate: bool = ...) -> SearchLayout:  # fmt: skip
        """How to index chunks, from moments (d,) of all points and some of them; for `Joiner.build`.

        `method`: one of `NEAREST` that serves the library; `approximate`: whether it may miss neighbors.
        """

    def prepare(self) -> None:
        """Begin to compile what makes rows of neighbors, where that can be done beside searches."""

    def renamed(self, index: Index, names: Array | int) -> Index:
        """The index, its rows named by numbers (n,) int64, or by their places and a number more."""

    def fresh(self, rows: int, k: int) -> tuple[Array, Array]:
        """What is known of rows that met nothing: totals of the norm and names, (rows, k)."""

    def nearest(self, q: Index, d: Index, layout: SearchLayout, best_d2: Array, best_name: Array, *,
                same: bool, bound2: float = ...) -> None:  # fmt: skip
        """Improve what is known of the rows of `q` by those of `d`; see the CPU's."""

    def part(self, index: Index, start: int, stop: int) -> Index:
        """The places start ... stop-1 of an index, as queries: a start that is a multiple of `at_once`."""

    def at_once(self, k: int) -> int:
        """Queries of which so many neighbors are sought at a time where little memory is to be taken."""


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Weights (n,) of edges, and the names of both ends, the smaller first: on the host, wherever chunks lie."""

Clusters = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Of rows (n,) the cluster that each falls out of (int32), and at which 1 / distance (float64); and of
clusters, of which the first is that of all rows and others are numbered by their last merges, the last one
first, that which each splits from (int32), at which 1 / distance (float64), and their rows (int32): on the
host."""


ALONE = 64
"""A round is not shared if fewer rows ask, times the parts that there would be, than all rows by this: each
does less alone then than a hundredth of a part of a round in which all ask, and waits for nobody."""

Part = tuple[int, int]
"""The number of a part of the work, and of how many."""

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Weights (n,) of the edges that a part of a round's searches found, one of a component at most, and both
nodes: on the host, since they go to all who share the rounds."""


class Progress(TypedDict):
    """Hold what is known of a tree after some rounds, of each node of an index: a dict, so that it spills.

    Each worker that shares the rounds makes its own, which is the same.  See
    `dask_simjoin.engine.cpu.kernels.boruvka` for `least` and `to`.
    """

    component: Array
    sizes: Array
    """Rows of each component; there may be more than there are components."""
    least: Array
    to: Array
    beyond: Array
    """The last of `Nearest`."""
    found: list[tuple[Array, ...]]
    """The tree's edges, of each round: weights, and both nodes."""
    offered: NotRequired[tuple[Array, ...]]
    """Of components the best edges that nodes know before they search, where these are kept."""
    order: NotRequired[Array]
    """Nodes in the order in which GPUs search them, where that is not the index's."""


class Spanner(Protocol):
    """Finds minimum spanning trees of mutual reachability; chunks are indexed as by a `Searcher`.

    What it is given of rows lies where they do.
    """

    def prepare(self, layout: SearchLayout, *more: Callable[[], object]) -> None:
        """Begin to compile what trees and clusters take, where that can be done beside searches.

        `more`: what else is done with next to nothing so that it is compiled; the same function each time.
        """

    def tree_of(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
                progress: Progress | None = None) -> Edges:  # fmt: skip
        """The tree of the points of an index, by their names; see the CPU's.

        `progress`: of rounds that were shared by others before; None: there were none.
        """

    def begin(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              parts: int) -> Progress:  # fmt: skip
        """Do all rounds before the first one that is worth being shared by so many."""

    def share(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              progress: Progress, part: Part) -> Found:  # fmt: skip
        """Do one part of the searches of the next round: others do the other parts at the same time.

        The edges that it found are the same, whoever does it.  There is more than one component.
        """

    def join(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
             progress: Progress, parts: Sequence[Found]) -> Progress:  # fmt: skip
        """Finish that round by what was found in all parts, and do others that are not worth being shared.

        What was known before is left as it is.
        """

    def edges_between(self, sides: Sequence[Index], layout: SearchLayout, cores: Sequence[Array],
                      trees: Sequence[Edges]) -> Edges:  # fmt: skip
        """The edges between two indexes that are in the tree of both; `trees`: of each of them."""

    def merge(self, rows: int, *parts: Edges) -> Edges:
        """The forest of the edges of several forests, which are in order; `rows`: more than any name."""

    def condense(self, start: np.ndarray, end: np.ndarray, away: np.ndarray, least: int) -> Clusters:
        """The clusters of at least `least` rows of a tree of two rows or more.

        `start`, `end`: rows that edges join, those of the smallest distance, `away`, first.
        """
