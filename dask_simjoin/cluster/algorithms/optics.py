"""Order rows by OPTICS, and extract clusters from the order.

Mode "edges" orders rows by all edges within `max_eps`. So all edges are stored in
memory, and one task orders the rows. Among rows with equal
reachability, the first row in the frame comes first.

Mode "forest" stores only the minimum spanning forest of the core rows. The weight of an
edge is the mutual reachability: the largest of the distance and both core distances.
DBSCAN connects two rows if this weight is at most `eps`. So the forest gives the
clusters of core rows for each distance up to `max_eps`. See Campello, Moulavi & Sander
(2013), "Density-based clustering based on hierarchical density estimates", definition
4. Weights are totals, which are sums before the root of the metric; at the end they
become distances. Row numbers break ties between edges, so the forest does not depend on
chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.cluster.algorithms.condensed_tree import numbers_of
from dask_simjoin.cluster.algorithms.dbscan import NO_LABEL as NOWHERE
from dask_simjoin.cluster.algorithms.edges import (
    CoreEdges,
    edges_of_block,
    gather_edges,
    order_of,
)
from dask_simjoin.engine.base import frames_for, host_kernels
from dask_simjoin.engine.compat import module_of, to_host, values_of
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Array, Frame, Ids, Series
from dask_simjoin.request.columns import optional
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PAIRS_AT_ONCE
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import PREDECESSOR, RowNumbers, row_numbers
from dask_simjoin.tasks.left_out import (
    filled,
    kept_rows,
    mask_like,
    positions_in_frame,
)
from dask_simjoin.tasks.matches import BlockPair

COLUMNS = {
    "ordering": np.int64,
    "reachability": np.float64,
    "core_distance": np.float64,
    PREDECESSOR: np.int64,
}
"""Columns of the result, with their dtypes."""

FILL = {
    "ordering": -1,
    "reachability": np.inf,
    "core_distance": np.inf,
    PREDECESSOR: -1,
}
"""The result for rows that `dropna` leaves out."""

FILL_BITS = [
    int(np.array(value, COLUMNS[name]).view(np.int64)) for name, value in FILL.items()
]
"""The same, with floats as bit patterns."""

FOREST = "forest"
"""Value of `mode` that stores only a spanning forest instead of all edges."""


def order_rows(numbers: list[Array | int], parts: list[CoreEdges]) -> list[np.ndarray]:
    """Order all rows; return the columns of the result for the rows of each chunk, see
    `table_of`.

    `numbers`: for each chunk, the row numbers of its rows, ascending; or any int if
    chunks are in frame order. `parts`: the edges of each chunk. Nodes number the rows
    of all chunks consecutively.
    """
    sizes = [len(part.core) for part in parts]
    firsts = np.cumsum([0, *sizes])
    n = int(firsts[-1])
    if all(isinstance(own, int) for own in numbers):
        by_rank = np.arange(n, dtype=np.int32)
    else:
        by_rank = np.argsort(np.concatenate([to_host(own) for own in numbers])).astype(
            np.int32
        )
    rank = np.empty(n, np.int32)
    rank[by_rank] = np.arange(n, dtype=np.int32)
    nodes_at, weights_at = np.empty(n, np.int64), np.empty(n, np.int64)
    kept = []  # the kernel gets only addresses, so this list must keep the arrays alive
    for part, first, size in zip(parts, firsts, sizes, strict=False):
        kept += [part.others, part.reach]
        begin = np.cumsum(part.degree, dtype=np.int64) - part.degree
        nodes_at[first : first + size] = part.others.ctypes.data + 4 * begin
        weights_at[first : first + size] = part.reach.ctypes.data + 8 * begin
    core = np.concatenate([part.core for part in parts]) if parts else np.zeros(0)
    degree = (
        np.concatenate([part.degree for part in parts])
        if parts
        else np.zeros(0, np.int32)
    )
    found = visit_in_order(
        rank, by_rank, np.isfinite(core), degree, nodes_at, weights_at
    )
    table = table_of(found[0], found[1], core, found[2])
    return [table[a : a + size] for a, size in zip(firsts, sizes, strict=False)]


def table_of(
    place: np.ndarray, reach: np.ndarray, core: np.ndarray, predecessor: np.ndarray
) -> np.ndarray:
    """Stack the columns of the result in one array (n, 4), int64, with floats as bit
    patterns.
    """
    return np.stack(
        [place, reach.view(np.int64), core.view(np.int64), predecessor], axis=1
    )


def visit_in_order(
    rank: np.ndarray,
    by_rank: np.ndarray,
    expands: np.ndarray,
    degree: np.ndarray,
    nodes_at: np.ndarray,
    weights_at: np.ndarray,
    edges_of: Callable[[int], tuple[np.ndarray, np.ndarray]] | None = None,
) -> tuple[np.ndarray, ...]:
    """For each node, return its position in the order, its reachability, and the rank
    of its predecessor (-1: none).

    `nodes_at`, `weights_at` (n,), int64: for each node, two addresses in memory. At the
    first address are the nodes that it reaches, int32. At the second address is the
    reachability of these nodes, float64. `degree` (n,), int32: number of these nodes. If
    it is negative, ``edges_of(node)`` returns the nodes and their reachability once
    they are needed.
    """
    n = len(rank)
    reach, before, place = (
        np.full(n, np.inf),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int64),
    )
    scratch = np.empty(n, np.int32), np.empty(n, np.int32)
    kernels = host_kernels("optics")
    state = np.array([0, 0, 0, -1])
    while state[kernels.DONE] < n:
        kernels.order(
            rank,
            by_rank,
            expands,
            degree,
            nodes_at,
            weights_at,
            reach,
            before,
            place,
            *scratch,
            state,
        )
        node = int(state[kernels.PAUSED])
        if state[kernels.DONE] < n:
            # a name keeps the arrays alive until the kernel has read them
            assert edges_of is not None
            nodes, weights = edges_of(node)
            degree[node] = len(nodes)
            nodes_at[node], weights_at[node] = nodes.ctypes.data, weights.ctypes.data
    predecessor = np.full(n, -1, np.int64)
    predecessor[before >= 0] = rank[before[before >= 0]]
    return place, reach, predecessor


def optics_of_chunk(
    block_pair: BlockPair, max_eps: float, min_samples: int
) -> np.ndarray:
    """Order the rows of a single chunk by all edges; return the columns of the result,
    see `table_of`.
    """
    n = len(block_pair.query["ids"])
    runs = edges_of_block(block_pair, PAIRS_AT_ONCE)[0]
    part = gather_edges(n, max_eps, min_samples, [0], PAIRS_AT_ONCE, runs)
    return order_rows([n], [part])[0]


DENSE_SHARE = 64
"""Edges are computed again instead of stored if at least 1 / DENSE_SHARE of all pairs
of rows are edges. Then comparing a row with all others is not slower. Up to
`PAIRS_AT_ONCE` edges are always stored.
"""


def is_dense(block_pair: BlockPair, pairs: float) -> bool:
    """Return whether `optics_of_dense_chunk` needs less memory, and is not slower.
    `pairs`: estimated number of pairs of rows within `max_eps`.
    """
    rows, edges = len(block_pair.query["ids"]), 2 * pairs
    return (
        block_pair.xp is np and edges > PAIRS_AT_ONCE and edges * DENSE_SHARE > rows**2
    )


def optics_of_dense_chunk(
    block_pair: BlockPair, max_eps: float, min_samples: int
) -> np.ndarray:
    """Return the same as `optics_of_chunk`, but store no edges: compare each row with
    all rows twice.
    """
    joiner: Any = block_pair.joiner  # the joiner for GPUs has no `totals_from`
    index, _, layout = block_pair.operands
    rows_at = order_of(block_pair.query)
    n = len(rows_at)
    core = np.full(n, np.inf)
    step = max(1, 2**20 // max(n, 1))
    for start in range(0, n, step):
        places = np.arange(start, min(start + step, n))
        totals = joiner.totals_from(index, layout, places, n)
        ends, far = n * np.arange(len(places) + 1), np.full(len(places), np.inf)
        # for equal values, `numpy.partition` takes quadratic time
        host_kernels("optics").kth_smallest(
            ends, totals.reshape(-1), min_samples - 1, far, np.empty(n)
        )
        far = np.sqrt(far)
        core[rows_at[places]] = np.round(np.where(far <= max_eps, far, np.inf), 15)
    place_of = np.empty(n, np.int64)
    place_of[rows_at] = np.arange(n)

    def edges_of(row: int) -> tuple[np.ndarray, np.ndarray]:
        place = place_of[row : row + 1]
        squared = joiner.totals_from(index, layout, place, n)[0]
        near = np.flatnonzero(squared <= max_eps * max_eps)
        reach = np.round(np.maximum(np.sqrt(squared[near]), core[row]), 15)
        return rows_at[near], reach

    rank = np.arange(n, dtype=np.int32)
    missing = np.full(n, -1, np.int32)
    at = np.zeros(n, np.int64), np.zeros(n, np.int64)
    found = visit_in_order(rank, rank, np.isfinite(core), missing, *at, edges_of)
    return table_of(found[0], found[1], core, found[2])


def order_of_all_rows(table: Array, frame: Frame, spec: JoinSpec) -> tuple[Array, Ids]:
    """Return the columns of the result for all rows of a plain frame, and the index
    labels of the rows. `table`: see `table_of`; its rows are those that `dropna` keeps.
    """
    if len(table) == len(frame):
        return table, frame.index
    kept = kept_rows(frame, spec)
    columns = [filled(table[:, k], kept, bits) for k, bits in enumerate(FILL_BITS)]
    xp = module_of(table)
    places = xp.flatnonzero(~mask_like(kept, table))
    columns[-1] = positions_in_frame(columns[-1], places)
    return xp.stack(columns, axis=1), frame.index


def with_positions(result: Frame, left_out: Array) -> Frame:
    """Convert predecessors to positions in the whole frame. `left_out`: positions of the
    rows that `dropna` leaves out.
    """
    frames = frames_for(result)
    column = positions_in_frame(
        values_of(result[PREDECESSOR]), frames.xp.asarray(left_out)
    )
    return result.assign(**{PREDECESSOR: column})


def at_distance(
    order: np.ndarray, reach: np.ndarray, core: np.ndarray, eps: float
) -> np.ndarray:
    """Label rows as DBSCAN at distance `eps` (n,): Ankerst et al. (1999), figure 19.
    `order`: the rows, sorted.
    """
    labels = np.empty(len(order), np.int64)
    far, near = reach > eps, core <= eps
    labels[order] = np.cumsum((far & near)[order]) - 1
    labels[far & ~near] = -1
    return labels


def steep_clusters() -> Any:
    return optional(
        "sklearn.cluster", "scikit-learn", "Clusters by steepness"
    ).cluster_optics_xi


def by_steepness(
    order: np.ndarray,
    reach: np.ndarray,
    predecessor: np.ndarray,
    options: dict[str, Any],
) -> np.ndarray:
    """Label rows by steep parts of the reachability plot (n,), with scikit-learn.

    See Ankerst et al. (1999), section 4.3.2.
    """
    if not len(order):
        return order
    for name in ("min_samples", "min_cluster_size"):
        number = options.get(name)
        if number is not None and number > len(order):
            raise OptionError(
                f"{name}={number} is not allowed for {len(order)} rows; use a smaller "
                "number, or "
                "cluster_optics_dbscan() with eps=."
            )
    known = {"reachability": reach, "predecessor": predecessor, "ordering": order}
    found: np.ndarray = steep_clusters()(**known, **options)[0]
    return found.astype(np.int64)


def columns_for(eps: float | None) -> list[str]:
    """List the columns of an OPTICS result that the labels are made from. `eps`: see
    `labels_of`.
    """
    return [name for name in COLUMNS if eps is None or name != PREDECESSOR]


class Extraction(NamedTuple):
    """How labels are extracted from a result of OPTICS."""

    eps: float | None  # see `labels_of`
    options: dict[str, Any]
    example: Series


def labels_of(
    parts: Sequence[Frame], eps: float | None, options: dict[str, Any]
) -> np.ndarray:
    """Label the rows of a complete OPTICS result. `eps`: distance of clusters; None:
    find clusters by steepness.
    """
    place, reach, core, *predecessor = (
        np.concatenate(
            [numbers_of(part, name, COLUMNS[name], "optics()") for part in parts]
        )
        for name in columns_for(eps)
    )
    there = place != FILL["ordering"]  # not left out by `dropna`
    labels = np.full(len(place), -1, np.int64)
    place, reach, core = place[there], reach[there], core[there]
    number = len(place)
    if place.min(initial=0) < 0 or (np.bincount(place, minlength=number) != 1).any():
        raise ColumnError(
            f"The column 'ordering' must have each number from 0 to {number - 1:,} "
            "once, apart from -1 for rows that dropna leaves out. Pass all rows of one "
            "result of optics()."
        )
    order = np.empty(number, np.int64)
    order[place] = np.arange(number)
    if eps is not None:
        labels[there] = at_distance(order, reach, core, eps)
        return labels
    before = predecessor[0][there]
    if number < len(there):  # scikit-learn gets only the rows with coordinates
        rows = np.cumsum(there) - 1
        before = np.where(before < 0, before, rows[before])
    labels[there] = by_steepness(order, reach, before, options)
    return labels


def labels_series(labels: np.ndarray, frame: Frame, name: str) -> Series:
    frames = frames_for(frame)
    return frames.series(frames.xp.asarray(labels), frame.index, name)


Edges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Edges: weights, and row numbers of both ends, the smaller first."""

BorderEdges = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Edges to the border rows of a chunk, the best one for each: border row, weight, core
row.
"""

NO_EDGES: Edges = (np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64))


def smallest_of_block(block_pair: BlockPair, number: int) -> list[np.ndarray]:
    """For each row of both chunks, find its `number` smallest squared distances to rows
    of the other chunk.

    Return one array (n, number) per chunk.

    The remaining columns of a row with fewer neighbors are infinity.
    """
    best = [np.full((len(side["ids"]), number), np.inf) for side in block_pair.chunks]

    def visitor(left: Array, right: Array, squared: Array) -> None:
        away = to_host(squared)
        for some, rows in ((best[0], left), (best[-1], right)):
            host_kernels("optics").keep_smallest(some, to_host(rows), away)

    block_pair.joiner.visit(
        *block_pair.operands, visitor, is_self_join=block_pair.is_self_join
    )
    return best


def core_distances(chunk: Chunk, number: int, *found: np.ndarray) -> np.ndarray:
    """Return the squared core distance of each row (n,); infinity if the row is not a
    core row. `found`: results of `smallest_of_block`.
    """
    smallest = np.full((len(chunk["ids"]), number), np.inf)
    for some in found:
        smallest = np.sort(np.concatenate([smallest, some], axis=1), axis=1)[:, :number]
    return smallest[:, -1].copy()


def _forest(nodes: int, weight: np.ndarray, low: np.ndarray, high: np.ndarray) -> Edges:
    """Find the minimum spanning forest by Kruskal's algorithm. Nodes are numbered in
    the order of row numbers.
    """
    order = np.argsort(weight)
    host_kernels("optics").sort_ties(order, weight, low * np.int64(nodes) + high)
    kept = np.empty(nodes, np.int64)
    number = host_kernels("optics").spanning(
        low[order], high[order], np.arange(nodes), kept
    )
    chosen = order[kept[:number]]
    return weight[chosen], low[chosen], high[chosen]


class _Block:
    """Collects the edges between two chunks, or within one. If they become many,
    reduces them to a forest.
    """

    def __init__(
        self,
        core: Sequence[np.ndarray],
        numbers: Sequence[np.ndarray],
        is_self_join: bool,
    ) -> None:
        self._core, self._is_self_join = core, is_self_join
        self._numbers = np.sort(numbers[0] if is_self_join else np.concatenate(numbers))
        self._nodes = [np.searchsorted(self._numbers, own) for own in numbers]
        self._best = [np.full(len(c), np.inf) for c in core]
        self._stem = [np.full(len(c), NOWHERE) for c in core]
        if is_self_join:
            self._best[1], self._stem[1] = self._best[0], self._stem[0]
        self._forest: Edges = NO_EDGES
        self._waiting: list[Edges] = []
        # collect at least this many edges before they are reduced to a forest
        self._number, self._capacity = 0, max(2**21, 4 * len(self._numbers))

    def visitor(self, left: Array, right: Array, squared: Array) -> None:
        rows, away = (to_host(left), to_host(right)), to_host(squared)
        core = [c[i] for c, i in zip(self._core, rows, strict=True)]
        taking = [np.isfinite(c) for c in core]
        weight = np.maximum(np.maximum(*core), away)
        both = taking[0] & taking[1]
        one, other = (node[i[both]] for node, i in zip(self._nodes, rows, strict=True))
        self._waiting.append(
            (weight[both], np.minimum(one, other), np.maximum(one, other))
        )
        for side in (0, 1):
            some = taking[1 - side] & ~taking[side]
            stems = self._nodes[1 - side][rows[1 - side][some]]
            reach = np.maximum(core[1 - side][some], away[some])
            host_kernels("optics").attach(
                rows[side][some], stems, reach, self._best[side], self._stem[side]
            )
        self._number += len(one)
        if self._number >= self._capacity:
            self._compress()

    def _compress(self) -> None:
        every = (
            np.concatenate(column)
            for column in zip(self._forest, *self._waiting, strict=True)
        )
        self._forest = _forest(len(self._numbers), *every)
        self._waiting, self._number = [], 0

    def finish(self) -> tuple[Edges, list[BorderEdges]]:
        """Return the forest, and the best edge from a core row to each border row. Ends
        of edges are row numbers.
        """
        self._compress()
        weight, low, high = self._forest
        attached: list[BorderEdges] = []
        for best, stem in list(zip(self._best, self._stem, strict=True))[
            : 1 if self._is_self_join else 2
        ]:
            rows = np.flatnonzero(best < np.inf)
            attached.append((rows, best[rows], self._numbers[stem[rows]]))
        return (weight, self._numbers[low], self._numbers[high]), attached


def forest_of_block(
    block_pair: BlockPair, core: Sequence[np.ndarray], numbers: Sequence[np.ndarray]
) -> tuple[Edges, list[BorderEdges]]:
    """Find the minimum spanning forest of two chunks, or of one. Also find the best
    edge from a core row to each border row.

    `core`: for each chunk, squared core distances; infinity: not a core row. `numbers`:
    row numbers of each chunk.
    """
    block = _Block(core, numbers, block_pair.is_self_join)
    block_pair.joiner.visit(
        *block_pair.operands, block.visitor, is_self_join=block_pair.is_self_join
    )
    return block.finish()


def numbers_of_rows(chunk: Chunk, own: RowNumbers) -> np.ndarray:
    """Return the row number of each row in a chunk. `own`: the number of the chunk, or
    these row numbers.
    """
    rows = np.arange(len(chunk["ids"]))
    return to_host(row_numbers(rows, own if isinstance(own, int) else to_host(own)))


def merge_forests(*parts: Edges) -> Edges:
    """Merge forests one after the other, so that only two of them are copied at a time."""
    forest: Edges = NO_EDGES
    for part in parts:
        weight, low, high = (
            np.concatenate(column) for column in zip(forest, part, strict=True)
        )
        names, places = np.unique(np.concatenate([low, high]), return_inverse=True)
        low, high = np.split(places, 2)
        weight, low, high = _forest(len(names), weight, low, high)
        forest = weight, names[low], names[high]
    return forest


def merge_border_edges(core: np.ndarray, *parts: BorderEdges) -> BorderEdges:
    """For each border row of a chunk, select the edge with the smallest weight.

    `core` (n,): core distances of the rows. `parts`: the edges that each block pair
    with this chunk has found.
    """
    best, near = np.full(len(core), np.inf), np.full(len(core), NOWHERE)
    for where, weight, name in parts:
        host_kernels("optics").attach(where, name, weight, best, near)
    found = np.flatnonzero(best < np.inf)
    return found, best[found], near[found]


def order_forest(
    numbers: list[np.ndarray],
    cores: list[np.ndarray],
    attached: list[BorderEdges],
    forest: Edges,
    metric: Metric,
) -> list[np.ndarray]:
    """Order all rows: each tree of the forest by Prim's algorithm, from its first row.

    `numbers`: row numbers of each chunk. The result is as in `order_rows`, except for
    the distances. Here the reachability of a row is the smallest eps that makes DBSCAN
    connect it to earlier rows of its tree. The core distance is the smallest eps that
    makes it a core row.
    """
    every = np.sort(np.concatenate([np.zeros(0, np.int64), *numbers]))
    n = len(every)
    core = np.empty(n)
    places = [np.searchsorted(every, own) for own in numbers]
    for place, some in zip(places, cores, strict=True):
        core[place] = some
    weight, low, high = forest
    a, b = np.searchsorted(every, low), np.searchsorted(every, high)
    leaves = [place[rows] for place, (rows, _, _) in zip(places, attached, strict=True)]
    stems = [np.searchsorted(every, name) for _, _, name in attached]
    left = np.concatenate([a, b, *stems]).astype(np.int32)
    right = np.concatenate([b, a, *leaves]).astype(np.int32)
    weights = metric.distance(
        np.concatenate([weight, weight, *(some for _, some, _ in attached)]), np
    )
    ends, nodes, away = (
        np.zeros(n + 1, np.int64),
        np.empty(len(left), np.int32),
        np.empty(len(left)),
    )
    host_kernels("optics").by_row(left, right, weights, ends, nodes, away)
    rank = np.arange(n, dtype=np.int32)
    at = (nodes.ctypes.data + 4 * ends[:-1], away.ctypes.data + 8 * ends[:-1])
    place, reach, before = visit_in_order(
        rank, rank, np.isfinite(core), np.diff(ends).astype(np.int32), *at
    )
    table = table_of(place, reach, metric.distance(core, np), before)
    return [table[some] for some in places]


def forest_of_chunk(
    block_pair: BlockPair, min_samples: int, metric: Metric
) -> np.ndarray:
    """Order the rows of a single chunk by a forest; return the columns of the result,
    see `table_of`.
    """
    rows = np.arange(len(block_pair.query["ids"]))
    number = max(1, min(min_samples - 1, len(rows)))
    core = core_distances(
        block_pair.query, number, *smallest_of_block(block_pair, number)
    )
    forest, attached = forest_of_block(block_pair, (core, core), (rows, rows))
    return order_forest([rows], [core], attached, forest, metric)[0]
