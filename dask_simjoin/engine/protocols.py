"""Interfaces of a frame library's engine: `Frames`, `Joiner`, `Searcher`, `Spanner`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np

from dask_simjoin.catalog import Method
from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.engine.index.screen import Drawn
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
"""Converts totals to distances."""

Rows = tuple[int, int]
"""Start and stop of consecutive places."""

Kept = Sequence[Sequence[Array]]
"""Values of the left and right rows to gather, each in its chunk's index order."""


class Pairs(NamedTuple):
    """Pairs of two chunks.

    Attributes
    ----------
    left, right : array (pairs,), int32 or int64
        The rows of the left and of the right chunk: positions, or labels.
    distance : array (pairs,), float64, or None
        Distances of the pairs.
    decided, refused : int
        Number of pairs decided in float64, and number of those refused.
    kept : list of array (pairs,)
        Gathered values of the left and of the right rows.
    """

    left: Array
    right: Array
    distance: Array | None
    decided: int
    refused: int
    kept: Sequence[Array] = ()


class Layout(Protocol):
    """Index settings of one join, the same for all its chunks, so that any two can be compared."""

    @property
    def method(self) -> str:
        """The name of the method that joins the chunks."""

    @property
    def norm(self) -> Norm:
        """Norm of the totals that the decision compares."""

    @property
    def threshold(self) -> float:
        """Threshold of the float64 decision."""

    @property
    def grain(self) -> int:
        """Queries are cut into parts at multiples of this number of points."""

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Return a description for plans; `names` maps dimensions to column names."""


class SearchLayout(Protocol):
    """Index settings of one nearest-neighbor search, the same for all its chunks."""

    @property
    def method(self) -> str:
        """The name of the method that searches the chunks."""

    @property
    def norm(self) -> Norm:
        """Norm of the totals that order neighbors."""

    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Return a description for plans; `names` maps dimensions to column names."""


class MethodSearch(ABC):
    """Layout of a search by a method's own module, a `SearchMethod`, instead of tiles."""

    @property
    @abstractmethod
    def method(self) -> str:
        """The name of the method."""

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """Norm of the totals that order neighbors."""

    @abstractmethod
    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Return a description for plans; `names` maps dimensions to column names."""


class SearchMethod(Protocol):
    """The functions of a method's module that searches nearest neighbors: see `Method.has_search`."""

    def search_layout(self, options: Any, lower: np.ndarray, upper: np.ndarray, variance: np.ndarray,
                      norm: Norm, approximate: bool) -> MethodSearch:  # fmt: skip
        """Choose the layout of all chunks from the moments (d,) of all points.

        `approximate`: whether the search may miss neighbors.
        """

    def build_nearest(self, x: Array) -> Index:
        """Return the index of a chunk's points (n, d)."""

    def nearest(self, q: Index, d: Index, layout: Any, best_d2: Array, best_name: Array, *,
                is_self_join: bool, bound2: float = ...) -> None:  # fmt: skip
        """Improve the known neighbors of the queries `q` by the rows of `d`: see `Searcher`."""


class Frames(Protocol):
    """Reads and makes the data frames of one library."""

    xp: ArrayModule
    """The array module of the frames' columns."""

    def coordinates(self, frame: Frame, columns: tuple[Hashable, ...], buffer: Array | None = None) -> Array:
        """Return columns as an array (n, d) of float64, NaN for missing values.

        The columns hold numbers, or one column holds lists of d numbers; otherwise it raises `ListError`.
        `buffer`: memory for at least n * d float64, used for the result if possible.
        """

    def result(self, columns: dict[Any, Values], rows: int) -> Frame:
        """Return a data frame of these columns. It has `rows` rows, even without columns."""

    def values(self, frame: Frame, name: Hashable, places: Array) -> Values:
        """Return the values of a column at some places, as `result` takes them."""

    def ids(self, ids: Ids, positions: Array) -> Values:
        """Return the ids at some positions, as `result` takes them."""

    def plain(self, frame: Frame, name: Hashable) -> Array | None:
        """Return a column as an array (n,) that `Joiner.pairs` can gather; None: it has no such form."""

    def stacked(self, frames: list[Frame]) -> Frame:
        """Return the concatenation of frames with the same columns, with a new index from 0."""

    def optional(self, dtype: DType) -> DType:
        """Return the dtype for values of `dtype` that may be missing."""

    def missing(self, dtype: DType, rows: int) -> Values:
        """Return `rows` missing values of an optional dtype, as `result` takes them."""

    def series(self, values: Array, index: Ids, name: Hashable) -> Series:
        """Return a Series of the library."""

    def rows(self, values: Array, index: Ids, example: Frame) -> Frame:
        """Return a Series of values (n,), or a data frame of values (n, k), like an example.

        All values are int64; values of other 8-byte types are passed as their bits.
        """

    def index(self, values: Values) -> Ids:
        """Return an index of the library."""

    def to_arrow(self, frame: Frame) -> ArrowTable:
        """Return the columns of a frame, named by strings, as a table on the host, without its index."""

    def from_arrow(self, table: ArrowTable, dtypes: Mapping[str, str]) -> Frame:
        """Return a frame of a table.

        `dtypes`: dtype names by column, for libraries with several dtypes per type.
        """

    def memory(self) -> int | None:
        """Return the bytes of device memory; None: arrays lie on the host. Clusters report their memory."""


class Joiner(Protocol):
    """Indexes chunks of one kind of arrays, and finds their pairs.

    `layout` arguments come from this joiner's own `layout`.
    """

    xp: ArrayModule
    """The module of the arrays."""

    def layout(self, method: str | Method, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, threshold: float, norm: Norm = 2,
               drawn: Drawn | None = None) -> Layout:  # fmt: skip
        """Choose the layout of chunks from moments (d,) of all points, the threshold and the norm.

        `drawn`: a sample of the points, if there is one.
        """

    def build(self, x: Array, layout: Layout | SearchLayout, threads: int = 1) -> Index:
        """Return the index of a chunk for joins or searches.

        `threads`: number of threads that share the work.
        """

    def points(self, index: Index, layout: Layout) -> Array:
        """Return the coordinates (n, d), float64, of an index's points, in its order."""

    def pairs(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool,
              distance: Measured | None = None, labels: tuple[Array, Array] | None = None,
              rows: Rows | None = None, kept: Kept | None = None) -> Pairs:  # fmt: skip
        """Return all pairs of two indexes, or of one with itself.

        `is_self_join`: `q` and `d` are one index; each pair comes once, with the smaller position first.
        `distance`: converts totals (pairs,) float64 to distances, in place if possible. `labels`: names of
        the rows of both sides (n,) in index order: int64, on the host any integers; None: positions. `kept`:
        with labels, arrays (n,) for the left and the right rows, in index order, to gather. `rows`: return
        only the pairs that `weights` counts for these places of the first side. Start and stop are multiples
        of the layout's `grain`; stop may also be the number of places.
        """

    def visit(self, q: Index, d: Index, layout: Layout, visitor: Visitor, *, is_self_join: bool,
              rows: Rows | None = None) -> None:  # fmt: skip
        """Pass all pairs of two indexes, or of one with itself, to `visitor` in batches.

        The visitor gets positions (int32) in the first and the second index, and totals (float64). It must
        not keep these arrays. `rows`: see `pairs`.
        """

    def connect(self, q: Index, d: Index, layout: Layout, parent: Array, taking: tuple[Array, Array],
                offset: int, *, is_self_join: bool, rows: Rows | None = None) -> None:  # fmt: skip
        """Unite the sets of both rows of each pair of two indexes (or of one), if both rows take part.

        `parent`: the parent of each node (int32 or int64) in a disjoint-set forest; the smallest node of a
        set is its root. A row's node is its position, plus `offset` on the second side. `taking`: mask (bool)
        of the rows that take part, by position, for each side. `rows`: see `pairs`.
        """

    def link(self, parent: Array, left: Array, right: Array) -> None:
        """Unite the sets of both ends of each edge between nodes: see `connect`."""

    def roots(self, parent: Array) -> None:
        """Make every node's parent the root of its set."""

    def numbers(self, parent: Array, rows: tuple[Array, Array] | None = None, threads: int = 1) -> Array:
        """Number sets from 0 in the order of their smallest rows; return each node's set number (n,), int64.

        `parent`: the result of `roots`. `rows`: a mask (n,) bool of the nodes that take part, and the row of
        each node (n,) int32. Other nodes get -1. None: all nodes take part, and each is its own row.
        """

    def least_rows(self, parent: Array, order: Array, threads: int = 1) -> Array:
        """Return the smallest row of each set at its root (n,) int32; other entries are undefined.

        `parent`: the result of `roots`; `order`: the row of each node (n,) int32.
        """

    def foresee(self, layout: Layout, *, shown: bool = False, counted: bool = False,
                connected: bool = False) -> None:  # fmt: skip
        """Start to compile the kernels of later calls in the background.

        `shown`: `visit`; `counted`: `counts`; `connected`: `connect` and `lowest`.
        """

    def lowest(self, q: Index, d: Index, layout: Layout, labels: tuple[Array, Array],
               low: tuple[Array, Array], *, is_self_join: bool,
               rows: Rows | None = None) -> None:  # fmt: skip
        """Lower entries of `low` for rows without a label (-1) to the labels of their neighbors.

        All arrays are int64 by position, one per side; for one index both are the same array. `rows`: see
        `pairs`.
        """

    def counts(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool,
               enough: int | None = None, rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Return the number of neighbors (int64) of the rows of both chunks, by position.

        `enough`: counts from this value on need not be exact, but are at least `enough`. `rows`: only the
        pairs for these places of the first side. The counts for all parts of the places sum to the result.
        """

    def weights(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool,
                rows: Rows | None = None) -> Array:  # fmt: skip
        """Return for each place of the first side the number of its pairs in `pairs` (int64), in index order.

        `rows`: only for these places.
        """

    def tally(self, q: Index, d: Index, layout: Layout, limits: np.ndarray, *, is_self_join: bool,
              by_row: bool, rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Count pairs within each of several ascending limits; the last one is the layout's threshold.

        It returns int64 counts of the neighbors of both chunks' rows, by position (n, limits), as `counts`
        does. Unless `by_row` it returns the counts of all pairs (1, limits). `rows`: see `pairs`.
        """

    def work(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool) -> np.ndarray:
        """Estimate the relative work in `pairs` of equal parts of the first side's places, in index order.

        The numbers lie on the host, and only their ratios count. A single number means equal work.
        """

    def regions(self, x: Array, regions: Regions, reach: float, threshold: float, norm: Norm = 2, *,
                everywhere: bool = False) -> tuple[Array, Array, Array]:  # fmt: skip
        """Return the region of each point (n,), and pairs of a point and another region that needs the point.

        A region needs a point within reach if the region's number is below the one of the point's region.
        `everywhere`: all regions within reach need the point, its own region included.
        """


class Searcher(Protocol):
    """Searches chunks for the nearest neighbors of other chunks' rows."""

    grain: int
    """Queries are cut into parts at multiples of this number of places."""

    def layout(self, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
               sample: np.ndarray, norm: Norm = 2, method: str | Method = ...,
               approximate: bool = ...) -> SearchLayout:  # fmt: skip
        """Choose the layout of chunks for `Joiner.build` from moments (d,) of all points and a sample.

        `method`: a value of `NEAREST` that runs on the library; `approximate`: whether it may miss neighbors.
        """

    def prepare(self) -> None:
        """Start to compile the steps after a search, where this can overlap with searches."""

    def renamed(self, index: Index, names: Array | int) -> Index:
        """Return the index with new names: int64 (n,), or one number to add to each row number."""

    def fresh(self, rows: int, k: int) -> tuple[Array, Array]:
        """Return the state before any search: totals and names of neighbors (rows, k)."""

    def nearest(self, q: Index, d: Index, layout: SearchLayout, best_d2: Array, best_name: Array, *,
                is_self_join: bool, bound2: float = ...) -> None:  # fmt: skip
        """Improve the neighbors of the queries `q` by the rows of `d`, in place: see `engine.cpu.nearest`.

        On the CPU, the argument `least2` is the smallest total that a neighbor can have.
        """

    def part(self, index: Index, start: int, stop: int) -> Index:
        """Return the places start ... stop-1 of an index as queries; start is a multiple of `grain`."""

    def at_once(self, k: int) -> int:
        """Return the number of queries per batch that limits memory, for `k` neighbors."""


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Host arrays: weights (n,) of edges, and the names of both ends, the smaller name first."""

Clusters = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Cluster hierarchy as five host arrays: two for rows, three for clusters.

For each row: the cluster that it falls out of (int32), and 1 / distance there (float64). For each cluster:
its parent (int32), 1 / distance where the parent splits (float64), and its number of rows (int32). Cluster 0
has all rows. The others are numbered by their last merges, the last merge first.
"""


ALONE = 64
"""Do not share a round if active rows times parts are fewer than all rows / ALONE.

Coordination would cost more than it saves.
"""

Part = tuple[int, int]
"""The index of a part, and the count of all parts."""

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Edges that a part of a round's searches found: weights (n,) and both nodes, on the host.

There is at most one edge per component. All workers that share the rounds get all edges.
"""


class Progress(TypedDict):
    """State of a spanning tree after some rounds, by node: a dict, so that Dask can spill it.

    Each worker that shares the rounds computes the same state. See `dask_simjoin.engine.cpu.kernels.boruvka`
    for `least` and `to`.
    """

    component: Array
    sizes: Array
    """Rows of each component; the array may be longer than the number of components."""
    least: Array
    to: Array
    beyond: Array
    """The last array of `Nearest` in `dask_simjoin.engine.cpu.rounds`."""
    found: list[tuple[Array, ...]]
    """Edges of the tree by round: weights, and both nodes."""
    offered: NotRequired[tuple[Array, ...]]
    """Best edge of each component before the search, if kept."""
    order: NotRequired[Array]
    """Nodes in search order on GPUs, if it differs from the index order."""


class Spanner(Protocol):
    """Finds minimum spanning trees of mutual reachability; chunks are indexed as by a `Searcher`.

    Arrays of rows lie on the same device as the chunks.
    """

    def prepare(self, layout: SearchLayout, *more: Callable[[], object]) -> None:
        """Start to compile kernels for trees and clusters, where this can overlap with searches.

        `more`: further functions that compile kernels by a tiny run; pass the same function each time.
        """

    def tree_of(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
                progress: Progress | None = None) -> Edges:  # fmt: skip
        """Return the tree of the points of an index, by their names: see `engine.cpu.spanning`.

        `progress`: the state after earlier shared rounds; None: no earlier rounds.
        """

    def begin(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              parts: int) -> Progress:  # fmt: skip
        """Run all rounds before the first one that is worth sharing between `parts` parts."""

    def share(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              progress: Progress, part: Part) -> Found:  # fmt: skip
        """Run one part of the searches of the next round, concurrently with the other parts.

        The result does not depend on the worker. There must be more than one component.
        """

    def join(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
             progress: Progress, parts: Sequence[Found]) -> Progress:  # fmt: skip
        """Finish a round with the edges of all parts, then run rounds that are not worth sharing.

        The given progress is not changed.
        """

    def edges_between(self, sides: Sequence[Index], layout: SearchLayout, cores: Sequence[Array],
                      trees: Sequence[Edges]) -> Edges:  # fmt: skip
        """Return the edges between two indexes in their common tree; `trees`: the tree of each index."""

    def merge(self, rows: int, *parts: Edges) -> Edges:
        """Return the forest of the edges of several sorted forests; `rows`: larger than all names."""

    def condense(self, start: np.ndarray, end: np.ndarray, away: np.ndarray, min_rows: int) -> Clusters:
        """Return the clusters of at least `min_rows` rows of a tree with at least two rows.

        `start`, `end`: rows that edges join, in ascending order of their distances `away`.
        """
