"""Interfaces of a frame library's engine: `Frames`, `Joiner`, `Searcher`, `Spanner`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np

from dask_simjoin.catalog import Method
from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.metrics.norms import (
    Array,
    ArrayModule,
    Index,
    Norm,
)

Visitor = Callable[[Array, Array, Array], None]
"""Receives a batch of pairs: positions on both sides, and totals. See `Joiner.visit`."""

Measured = Callable[[Array], Array]
"""Converts totals to distances."""

Rows = tuple[int, int]
"""Start and stop of consecutive places: positions in the order of an index."""

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


class SearchLayout(Protocol):
    """Index settings of one nearest-neighbor search, the same for all its chunks."""

    @property
    @abstractmethod
    def method(self) -> str:
        """The name of the method that searches the chunks."""

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """Norm of the totals that order neighbors."""

    @abstractmethod
    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Return a description for plans; `names` maps dimensions to column names."""


class Layout(SearchLayout, Protocol):
    """Index settings of one join, the same for all its chunks, so that any two can be compared.

    `norm` is the norm of the totals that the decision compares.
    """

    @property
    @abstractmethod
    def threshold(self) -> float:
        """Threshold of the float64 decision."""

    @property
    @abstractmethod
    def grain(self) -> int:
        """Queries are cut into parts at multiples of this number of points."""


class MethodSearch(SearchLayout):
    """Layout of a search by a method's own module, a `SearchMethod`, instead of tiles."""


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

        Parameters
        ----------
        q, d : dict
            The indexes of the first and the second side.
        layout : Layout
        is_self_join : bool
            Whether both sides are one index. Each pair then comes once, with the smaller position first.
        distance : callable, optional
            Converts totals (pairs,) float64 to distances, in place if possible.
        labels : pair of array (n,), optional
            Names of the rows of both sides in index order: int64, on the host any integers; default:
            positions.
        rows : pair of int, optional
            Return only the pairs that `weights` counts for these places of the first side. Start and stop
            are multiples of the layout's `grain`; stop may also be the number of places.
        kept : pair of sequences of array (n,), optional
            With labels: values of the left and the right rows to gather, in index order.
        """

    def visit(self, q: Index, d: Index, layout: Layout, visitor: Visitor, *, is_self_join: bool,
              rows: Rows | None = None) -> None:  # fmt: skip
        """Pass all pairs of two indexes, or of one with itself, to `visitor` in batches.

        The visitor gets positions (int32) on the first and the second side, and totals (float64). The memory
        of these arrays is reused, so it must not keep them. `rows`: see `pairs`.
        """

    def connect(self, q: Index, d: Index, layout: Layout, parent: Array, taking: tuple[Array, Array],
                offset: int, *, is_self_join: bool, rows: Rows | None = None) -> None:  # fmt: skip
        """Unite the sets of both rows of each pair in `pairs`, if both rows take part.

        `parent`: the parent of each node (int32 or int64) in a disjoint-set forest; the smallest node of a
        set is its root. A row's node is its position, plus `offset` on the second side. `taking`: for each
        side a mask (bool) of the rows that take part, by position. `rows`: see `pairs`.
        """

    def link(self, parent: Array, left: Array, right: Array) -> None:
        """Unite the sets of both ends of each edge between nodes: see `connect`."""

    def roots(self, parent: Array) -> None:
        """Make every node's parent the root of its set."""

    def numbers(self, parent: Array, rows: tuple[Array, Array] | None = None, threads: int = 1) -> Array:
        """Number sets from 0 in the order of their smallest rows; return each node's set number (n,), int64.

        `parent`: the result of `roots`. `rows`: a mask (n,) bool of the nodes that take part, and the row of
        each node (n,) int32; other nodes get -1. None: all nodes take part, and the row of node i is i.
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
        """Lower the entries in `low` of rows without a label (-1) to the labels of their neighbors.

        Arrays are int64 by position, one per side; for one index they are one array. `rows`: see `pairs`.
        """

    def counts(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool,
               enough: int | None = None, rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Return the number of neighbors (int64) of the rows of both chunks, by position.

        `enough`: counts from this value on need not be exact, but are at least `enough`. `rows`: see `pairs`;
        the counts for all parts of the places sum to the counts without `rows`.
        """

    def weights(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool,
                rows: Rows | None = None) -> Array:  # fmt: skip
        """Return the number of pairs (int64) that `pairs` returns for each place of the first side.

        `rows`: only for these places.
        """

    def tally(self, q: Index, d: Index, layout: Layout, limits: np.ndarray, *, is_self_join: bool,
              by_row: bool, rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """Count pairs within each of several ascending limits; the last limit is the layout's threshold.

        With `by_row` return the neighbors of both chunks' rows, by position (n, limits), int64, as `counts`
        does; else the numbers of all pairs (1, limits). `rows`: see `pairs`.
        """

    def work(self, q: Index, d: Index, layout: Layout, *, is_self_join: bool) -> np.ndarray:
        """Estimate the work of `pairs` for equal parts of the first side's places, in index order.

        Only the ratios of the numbers count, which lie on the host. A single number means equal work.
        """

    def regions(self, x: Array, regions: Regions, reach: float, threshold: float, norm: Norm = 2, *,
                everywhere: bool = False) -> tuple[Array, Array, Array]:  # fmt: skip
        """Return the region of each point (n,), and pairs of a point and another region that needs the point.

        A region needs the points within its reach whose own regions have larger numbers. `everywhere`: a
        region needs all points within its reach, its own points included.
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
        """Start to compile the kernels that follow a search, if this can overlap with searches."""

    def renamed(self, index: Index, names: Array | int) -> Index:
        """Return the index with new names of its rows: int64 (n,), or a number to add to row numbers."""

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
        """Return the number of queries per batch, which limits the memory of `k` neighbors each."""


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Host arrays: weights (n,) of edges, and the names of both ends, the smaller name first."""

Clusters = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Cluster hierarchy as five host arrays: two for rows, three for clusters.

For each row: the last cluster that has it (int32), and 1 / distance where it leaves this cluster (float64).
For each cluster: its parent (int32), 1 / distance where the parent splits (float64), and its number of rows
(int32). Cluster 0 has all rows. The others are numbered by their last merges, the last merge first.
"""

ALONE = 64
"""A round is not shared if active rows times parts are fewer than all rows / ALONE: coordination would cost
more than it saves."""

Part = tuple[int, int]
"""The index of a part, and the count of all parts."""

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Edges that a part of a round's searches found, at most one per component: weights (n,) and both nodes, on
the host. All workers that share the rounds get all edges."""


class Progress(TypedDict):
    """State of a spanning tree after some rounds: a dict of arrays by node, so that Dask can spill it.

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
        """Start to compile the kernels of trees and clusters, if this can overlap with searches.

        `more`: further functions that compile kernels by a tiny run; each function runs only once.
        """

    def tree_of(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
                progress: Progress | None = None) -> Edges:  # fmt: skip
        """Return the tree of the points of an index, by their names: see `engine.cpu.spanning`.

        `progress`: the state after earlier shared rounds, if there are any.
        """

    def begin(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              parts: int) -> Progress:  # fmt: skip
        """Run the rounds before the first round that is worth sharing between `parts` parts."""

    def share(self, index: Index, layout: SearchLayout, core: Array, nearest: tuple[Array, ...],
              progress: Progress, part: Part) -> Found:  # fmt: skip
        """Run one part of the searches of the next round; other workers run the other parts.

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
        """Return the spanning forest of the edges of sorted forests; `rows`: larger than all names."""

    def condense(self, start: np.ndarray, end: np.ndarray, away: np.ndarray, min_rows: int) -> Clusters:
        """Return the clusters of at least `min_rows` rows of a tree with at least two rows.

        `start`, `end`: rows that edges join, in ascending order of their distances `away`.
        """
