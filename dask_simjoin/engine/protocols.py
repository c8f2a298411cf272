"""Interfaces that an engine implements for one data frame library: `Joiner`,
`Searcher`, `Spanner`.

A place is the number of a row in the order of its chunk's index. A position is its
number in the chunk itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import (
    Any,
    NamedTuple,
    NotRequired,
    Protocol,
    TypedDict,
    runtime_checkable,
)

import numpy as np

from dask_simjoin.catalog import Method
from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.metrics.norms import Array, ArrayModule, Index, Norm

Visitor = Callable[[Array, Array, Array], None]
"""Function that is called with batches of pairs: left positions, right positions, and
totals.

See `Joiner.visit`.
"""

Measured = Callable[[Array], Array]
"""Function that converts totals to distances."""

Rows = tuple[int, int]
"""Start and stop of a range of places in an index."""

Kept = Sequence[Sequence[Array]]
"""Two lists of columns, in index order.

For each pair, values of its left row are gathered from the first list, and of its right
row from the second.
"""


class Pairs(NamedTuple):
    """Pairs of rows from two chunks, or from one."""

    # (pairs,), int32 or int64: the left and the right row of each pair: positions, or
    # labels if `Joiner.pairs` got labels
    left: Array
    right: Array
    distance: Array | None  # (pairs,), float64: distances of the pairs
    # number of candidates that the filter left to float64, and how many of them are not
    # pairs
    decided: int
    refused: int
    # (pairs,): gathered columns: first the columns of the left rows, then of the right
    # rows
    kept: Sequence[Array] = ()


class SearchLayout(Protocol):
    """Settings for indexing and searching the chunks of one nearest-neighbor search.

    All chunks share them.
    """

    @property
    @abstractmethod
    def method(self) -> str:
        """Name of the method that searches the chunks."""

    @property
    @abstractmethod
    def norm(self) -> Norm:
        """Norm of the totals that order the neighbors."""

    @abstractmethod
    def in_words(self, names: Callable[[Iterable[int]], str]) -> str:
        """Return a description for plans; `names` maps dimensions to column names."""


class Layout(SearchLayout, Protocol):
    """Settings for indexing the chunks of one join. All chunks share them, so any two
    chunks can be compared.

    `norm`: norm of the totals that are compared with `threshold`.
    """

    @property
    @abstractmethod
    def threshold(self) -> float:
        """Largest total of a pair, computed in float64."""

    @property
    @abstractmethod
    def grain(self) -> int:
        """A part of an index begins at a multiple of this number of places."""


class MethodSearch(SearchLayout):
    """Layout of a search that a `SearchMethod` runs instead of the search by tiles."""


class SearchMethod(Protocol):
    """Functions that a method's module has if the method can search neighbors: see
    `Method.has_search`.
    """

    def search_layout(
        self,
        options: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        variance: np.ndarray,
        norm: Norm,
        approximate: bool,
    ) -> MethodSearch:
        """Choose the layout of all chunks from the bounds and variances (d,) of all
        points.

        `approximate`: whether the search may miss neighbors.
        """

    def build_nearest(self, x: Array) -> Index:
        """Index the points (n, d) of a chunk."""

    def nearest(
        self,
        q: Index,
        d: Index,
        layout: Any,
        best_d2: Array,
        best_name: Array,
        *,
        is_self_join: bool,
        bound2: float = ...,
    ) -> None:
        """Update the neighbors of the queries `q` with nearer rows of `d`: see
        `Searcher.nearest`.
        """


@runtime_checkable
class Ranged(Protocol):
    """A method that can count, connect and label the rows of one index in ranges, which
    several threads share.

    `one_sided`: whether it takes no longer to count the pairs of some rows alone than to
    count each pair once, for both of its rows.
    """

    one_sided: bool
    steps: int  # see `connect_of`

    def weights_of(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        rows: Rows,
        found: np.ndarray,
        *,
        is_self_join: bool,
        enough: int | None = None,
    ) -> None:
        """Add to `found` (rows,), int64, the number of pairs of each row of `q` at the
        places `rows` with rows of `d`.

        In a self-join, `q` is `d`, and only pairs with later places count. Counts of at
        least `enough` need not be exact.
        """

    def counts_of(
        self,
        index: Index,
        layout: Layout,
        rows: Rows,
        counts: np.ndarray,
        enough: int | None = None,
    ) -> None:
        """Add the number of pairs of each row at the places `rows` to `counts` (n,),
        int64.

        Counts of at least `enough` need not be exact.
        """

    def shared_to_connect(
        self, index: Index, taking: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return the argument `shared` of `connect_of`.

        `taking` (n,): whether a row takes part.
        """

    def connect_of(
        self,
        index: Index,
        layout: Layout,
        rows: Rows,
        shared: tuple[np.ndarray, ...],
        parent: np.ndarray,
        step: int,
    ) -> None:
        """Do one of `steps` steps to unite the sets of the two rows of each pair.

        Both rows must take part. The earlier place of the pair must be in `rows`.
        `shared`: arrays that all ranges and steps share. `parent` (n,), int32: the
        disjoint-set forest, which several threads may change. It is faster if all
        ranges have done a step before the next step begins.
        """

    def shared_to_label(self, labels: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the argument `shared` of `lowest_of`."""

    def lowest_of(
        self,
        index: Index,
        layout: Layout,
        rows: Rows,
        labels: np.ndarray,
        low: np.ndarray,
        shared: tuple[np.ndarray, ...],
    ) -> None:
        """Lower `low` of each row at the places `rows` that has no label (-1) to the
        lowest label near it.

        `labels`, `low` (n,): int64. `shared`: arrays that all ranges share.
        """


class Joiner(Protocol):
    """Indexes chunks of NumPy or CuPy arrays, and finds their pairs.

    An argument `layout` is a result of the method `layout`. The arguments `q` and `d`
    are the indexes of the first chunk (the queries) and of the second chunk (the data).
    In a self-join, `q` is `d`.
    """

    xp: ArrayModule  # module of the arrays: NumPy or CuPy

    def layout(
        self,
        method: str | Method,
        lower: np.ndarray,
        upper: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        threshold: float,
        norm: Norm = 2,
        sample: JoinSample | None = None,
    ) -> Layout:
        """Choose the layout of all chunks.

        `lower`, `upper`, `mean`, `variance` (d,): moments of all points. `sample`: a
        sample of the points, if there is one.
        """

    def build(self, x: Array, layout: Layout | SearchLayout, threads: int = 1) -> Index:
        """Index the points (n, d), float64, of a chunk.

        On GPUs, they may also be narrow points: see `engine.compat`.

        `threads`: number of threads that share the work.
        """

    def points(self, index: Index, layout: Layout) -> Array:
        """Return the points in index order: float64 (n, d), or narrow points if the
        index has these.

        `build` accepts the result, and any rows of it: see
        `dask_simjoin.engine.compat`.
        """

    def pairs(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        *,
        is_self_join: bool,
        distance: Measured | None = None,
        labels: tuple[Array, Array] | None = None,
        rows: Rows | None = None,
        kept: Kept | None = None,
    ) -> Pairs:
        """Find all pairs of a row of `q` and a row of `d`.

        Parameters
        ----------
        q, d : dict
            The indexes of the first and the second chunk.
        layout : Layout
        is_self_join : bool
            Whether `q` is `d`. Each pair is then returned once, with the smaller
            position on the left.
        distance : callable, optional
            Converts totals (pairs,), float64, to distances, in place if possible.
            Without it, no distances are returned.
        labels : pair of array (n,), optional
            For each chunk, the labels of its rows, in index order. They are returned in
            place of positions. The dtype is int64, or on the host any integer dtype.
        rows : pair of int, optional
            Return only the pairs that `weights` counts for these places of `q`. Start
            and stop are multiples of the layout's `grain`. Stop may also be the number
            of places.
        kept : pair of sequences of array (n,), optional
            Columns of both chunks to gather for each pair, in index order. They need
            `labels`.
        """

    def visit(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        visitor: Visitor,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        """Call `visitor` with all pairs, in batches.

        Its arguments are positions in the first chunk and in the second chunk (int32),
        and totals (float64). It must not keep these arrays, because their memory is
        reused. `rows`: see `pairs`.
        """

    def connect(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        parent: Array,
        taking: tuple[Array, Array],
        offset: int,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        """Unite the sets of the two rows of each pair, if both rows take part.

        `parent`: parent of each node in a disjoint-set forest, int32 or int64. The root
        of a set is its smallest node. The node of a row is its position, plus `offset`
        for rows of the second chunk. `taking`: for each chunk, a mask of the rows that
        take part, by position. `rows`: see `pairs`.
        """

    def link(self, parent: Array, left: Array, right: Array) -> None:
        """Unite the sets of the nodes `left[i]` and `right[i]` for each edge i: see
        `connect`.
        """

    def roots(self, parent: Array, threads: int = ...) -> None:
        """Replace the parent of every node by the root of its set. `threads`: number of
        threads of the host to use.
        """

    def numbers(
        self, parent: Array, rows: tuple[Array, Array] | None = None, threads: int = 1
    ) -> Array:
        """Number the sets from 0, in the order of their smallest rows; return the
        number of each node's set.

        `parent` (n,): roots, as `roots` computes them. `rows`: a mask (n,) of the nodes
        that take part, and the row of each node (n,), int32; other nodes get -1. None:
        all nodes take part, and node i is row i. The result is an array (n,), int64.
        """

    def least_rows(self, parent: Array, order: Array, threads: int = 1) -> Array:
        """Return the smallest row of each set, at the index of the set's root (n,),
        int32.

        `parent`: roots, as `roots` computes them. `order`: the row of each node (n,),
        int32. Entries of nodes that are not roots are undefined.
        """

    def foresee(
        self,
        layout: Layout,
        *,
        shown: bool = False,
        counted: bool = False,
        connected: bool = False,
    ) -> None:
        """Start to compile kernels in the background, for later calls of these
        functions.

        `shown` stands for `visit`, `counted` for `counts`, and `connected` for
        `connect` and `lowest`.
        """

    def lowest(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        labels: tuple[Array, Array],
        low: tuple[Array, Array],
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        """For each row without a label (-1), lower its entry in `low` to the smallest
        label of a neighbor.

        `labels`, `low`: one array for each chunk, by position, int64; in a self-join
        both are the same array. `rows`: see `pairs`.
        """

    def ranged(self, layout: Layout) -> Ranged | None:
        """Return the functions whose work on one index several threads can share; None:
        there are none. `lowest` of a self-join with `rows` then changes only their
        entries in `low`.
        """

    def counts(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        *,
        is_self_join: bool,
        enough: int | None = None,
        rows: Rows | None = None,
    ) -> list[Array]:
        """Count the neighbors of each row; return one array for each chunk, by
        position, int64.

        `enough`: a count of at least `enough` need not be exact, but the result is then
        at least `enough`. `rows`: see `pairs`. Counts of several calls can be added: if
        their ranges `rows` cover each place once, the sum is the result without `rows`.
        """

    def weights(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        *,
        is_self_join: bool,
        enough: int | None = None,
        rows: Rows | None = None,
    ) -> Array:
        """Count the pairs that `pairs` returns for each place of `q`, int64.

        In a self-join, a pair counts at the earlier of its places. `enough`: as in
        `counts`. `rows`: return counts for these places only.
        """

    def tally(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        limits: np.ndarray,
        *,
        is_self_join: bool,
        by_row: bool,
        rows: Rows | None = None,
    ) -> list[Array]:
        """For each of several thresholds, count the pairs whose total is at most this
        threshold.

        `limits`: ascending thresholds; the last one is the layout's. `by_row`: count
        the neighbors of each row, and return an array (n, limits) for each chunk, by
        position. Otherwise return the numbers of all pairs (1, limits). Results are
        int64. `rows`: see `pairs`.
        """

    def work(
        self, q: Index, d: Index, layout: Layout, *, is_self_join: bool
    ) -> np.ndarray:
        """Estimate the relative work of `pairs` for each part of `q`. Parts are equal
        ranges of places.

        The result is an array on the host with one number for each part. A single
        number means equal work.
        """

    def regions(
        self,
        x: Array,
        regions: Regions,
        reach: float,
        threshold: float,
        norm: Norm = 2,
        *,
        everywhere: bool = False,
        mutual: bool = False,
    ) -> tuple[Array, Array, Array]:
        """Return the region of each point (n,), and the points that other regions need,
        each with its region.

        A region needs the points within `reach` that are in regions with larger
        numbers. `everywhere`: it needs all points within `reach`, its own points
        included. `mutual`: it needs all points within `reach` that are in other
        regions.
        """


class Searcher(Protocol):
    """Finds the nearest neighbors of the rows of one chunk among the rows of another."""

    grain: int  # a part of the queries begins at a multiple of this number of places

    def layout(
        self,
        lower: np.ndarray,
        upper: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        sample: np.ndarray,
        norm: Norm = 2,
        method: str | Method = ...,
        approximate: bool = ...,
    ) -> SearchLayout:
        """Choose the layout of all chunks, for `Joiner.build`.

        `lower`, `upper`, `mean`, `variance` (d,): moments of all points; `sample`: some
        points. `method`: a value of `NEAREST` that the library supports. `approximate`:
        whether the search may miss neighbors.
        """

    def prepare(self) -> None:
        """Start to compile the kernels that run after a search, if compiling can
        overlap with searches.
        """

    def renamed(self, index: Index, names: Array | int) -> Index:
        """Return the index with other row ids. Searches then return these ids.

        `names`: the new ids by position (n,), int64; or a number to add to the
        positions.
        """

    def fresh(self, rows: int, k: int, threads: int = 1) -> tuple[Array, Array]:
        """Return the arrays `best_d2` and `best_name` (rows, k) for the first search,
        without neighbors. `threads`: number of threads that fill them on the host.
        """

    def nearest(
        self,
        q: Index,
        d: Index,
        layout: SearchLayout,
        best_d2: Array,
        best_name: Array,
        *,
        is_self_join: bool,
        bound2: float = ...,
    ) -> None:
        """Update the k nearest neighbors of the queries `q` with nearer rows of `d`, in
        place.

        `best_d2`, `best_name` (queries, k): totals and ids of the neighbors so far.
        `bound2`: largest total of a neighbor. The CPU engine has a further argument
        `least2`: the smallest total of a neighbor. See `engine.cpu.nearest`.
        """

    def part(self, index: Index, start: int, stop: int) -> Index:
        """Return the queries at places start ... stop-1 of an index; start is a
        multiple of `grain`.
        """

    def at_once(self, k: int) -> int:
        """Return the number of queries per batch. It limits the memory for `k`
        neighbors of each query.
        """


Edges = tuple[Array, Array, Array]
"""Edges as three arrays (n,): weights, and the row ids of both ends, the smaller id
first.
"""

Clusters = tuple[Array, Array, np.ndarray, np.ndarray, np.ndarray]
"""Cluster hierarchy as five arrays: two for rows, on the device of the edges, and three
for clusters, on the host.

For each row: the smallest cluster that contains it (int32), and 1 / distance where it
leaves this cluster (float64). For each cluster: its parent (int32), 1 / distance where
the parent splits (float64), and its number of rows (int32). Cluster 0 contains all
rows. Other clusters are numbered by their last merges, the last merge first.
"""

RowMeasures = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What the rows that leave a cluster tell about it, as three arrays with one value per
cluster, on the host.

The first of these rows (int64; -1 if none leaves it), their part of the cluster's
stability (float64), and their largest 1 / distance (float64; 0 if none leaves it).
"""

Chosen = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]
"""Chosen clusters: see `ChosenClusters` in
`dask_simjoin.cluster.algorithms.condensed_tree`.
"""

ALONE = 64
"""One worker runs a round alone if (rows that search) * parts <= (all rows) / ALONE.

Coordination would then take more time than it saves.
"""

Part = tuple[int, int]
"""Number of this part, from 0, and number of all parts."""

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Edges that one part of a round found, at most one per component.

These are host arrays (n,): weights, start nodes and end nodes. Every worker that shares
the rounds gets the edges of all parts.
"""


class Progress(TypedDict):
    """State of a spanning tree after some rounds. It is a dict of arrays, so that Dask
    can spill it.

    Each worker that shares the rounds computes the same state. See
    `dask_simjoin.engine.cpu.kernels.boruvka` for `least` and `to`.
    """

    component: Array  # component of each node
    # number of rows in each component; the array may be longer than the number of
    # components
    sizes: Array
    least: Array
    to: Array
    beyond: Array
    """Bounds of each node: the last array of `Nearest` in
    `dask_simjoin.engine.cpu.rounds`.
    """
    # edges of the tree so far, in batches that begin with the weights
    found: list[tuple[Array, ...]]
    # best known edge of each component before the next search
    offered: NotRequired[tuple[Array, ...]]
    # on GPUs: nodes in search order, if this is not the index order
    order: NotRequired[Array]


class Spanner(Protocol):
    """Finds minimum spanning trees of mutual reachability.

    Indexes are made as for a `Searcher`. Arguments `core` are core distances, as
    totals, and `nearest` known neighbors: see `Nearest` in
    `dask_simjoin.engine.cpu.rounds`. Both are on the same device as the index.
    """

    def prepare(self, layout: SearchLayout, *more: Callable[[], object]) -> None:
        """Start to compile the kernels of trees and clusters, if compiling can overlap
        with searches.

        `more`: functions that compile other kernels by a tiny run. Each function runs
        once per process.
        """

    def tree_of(
        self,
        index: Index,
        layout: SearchLayout,
        core: Array,
        nearest: tuple[Array, ...],
        progress: Progress | None = None,
        threads: int = ...,
    ) -> Edges:
        """Return the edges of the tree of an index's points, on the device of the index:
        see `engine.cpu.spanning`. Edges that other methods take or return are on the
        host.

        `progress`: the state after earlier rounds that workers shared, if there were
        any. `threads`: number of threads of the host to use.
        """

    def begin(
        self,
        index: Index,
        layout: SearchLayout,
        core: Array,
        nearest: tuple[Array, ...],
        parts: int,
    ) -> Progress:
        """Run rounds until the next one is worth splitting into `parts` parts; return
        the state.
        """

    def share(
        self,
        index: Index,
        layout: SearchLayout,
        core: Array,
        nearest: tuple[Array, ...],
        progress: Progress,
        part: Part,
    ) -> Found:
        """Run one part of the next round's searches; other workers run the other parts.

        The result depends on the part, not on the worker. There must be at least two
        components.
        """

    def join(
        self,
        index: Index,
        layout: SearchLayout,
        core: Array,
        nearest: tuple[Array, ...],
        progress: Progress,
        parts: Sequence[Found],
    ) -> Progress:
        """Finish a round with the edges that all parts found. Then run rounds until one
        is worth sharing.

        Return the new state; `progress` is not changed.
        """

    def edges_between(
        self,
        sides: Sequence[Index],
        layout: SearchLayout,
        cores: Sequence[Array],
        trees: Sequence[Edges],
    ) -> Edges:
        """Return the edges that connect two indexes in the tree of all their points.

        `trees`: the tree of each index by itself.
        """

    def merge(self, rows: int, *parts: Edges) -> Edges:
        """Return the minimum spanning forest of the union of several forests.

        `parts`: the forests, each in ascending order of weight. `rows`: a number above
        all row ids.
        """

    def is_ordered(self, start: Array, end: Array, away: Array) -> bool:
        """Return whether edges are sorted by (length, start, end).

        `away`: lengths, ascending. All arrays are on the device of the library.
        """

    def condense(
        self,
        start: Array,
        end: Array,
        away: Array,
        min_rows: int,
        threads: int = 1,
    ) -> Clusters:
        """Condense a tree with at least two rows to the hierarchy of clusters of at
        least `min_rows` rows. The edges may be on either device.

        `start`, `end`: the two rows of each edge. `away`: the length of each edge,
        ascending. `threads`: number of threads on the host.
        """

    def measure_rows(
        self, row_parent: Array, row_lambda: Array, birth: np.ndarray
    ) -> RowMeasures:
        """Measure the rows that leave each cluster. The arguments are as in `Clusters`."""

    def label_rows(
        self,
        row_parent: Array,
        row_lambda: Array,
        chosen: Chosen,
        threads: int = 1,
    ) -> tuple[Array, Array, Array]:
        """Return label (int64), probability and outlier score of rows.

        `row_parent`, `row_lambda`: the first two arrays of `Clusters`, on the device of
        the library.
        """
