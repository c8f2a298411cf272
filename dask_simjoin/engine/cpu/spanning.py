"""Minimum spanning trees on the CPU: the tree of one index, or the edges between two
indexes.

The weight of an edge is the mutual reachability of its two rows: the largest of their
total and both core distances. Edges are ordered by (weight, smaller id, larger id), so
the tree is unique. It is found by the rounds of Boruvka (1926, "O jistem problemu
minimalnim"). In a round, components search for the lightest edge that leaves them, and
are joined along these edges. Searches from large components cost most, so large
components do not search while many smaller ones are left.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

import numpy as np

from dask_simjoin.engine.cpu import sinks
from dask_simjoin.engine.cpu.kernels import (
    boruvka,
    components,
    edge_order,
    hierarchy,
)
from dask_simjoin.engine.cpu.kernels.best_edges import ends_of
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.rounds import BoruvkaRounds, Nearest
from dask_simjoin.engine.cpu.sinks import CpuMethod, ManyAtOnce
from dask_simjoin.engine.cpu.sorting import dealt, sort_keys, threads_to_sort
from dask_simjoin.engine.index import cpu_tiles
from dask_simjoin.engine.index.cpu_tiles import NearestLayout
from dask_simjoin.engine.process import forkable, shared_out, together
from dask_simjoin.engine.protocols import (
    Chosen,
    Clusters,
    Edges,
    Found,
    Layout,
    Part,
    Progress,
    Ranged,
    RowMeasures,
    Rows,
)
from dask_simjoin.metrics.norms import Index, Norm, box_gap


def _nodes_of(index: Index, first: int, ends: np.ndarray) -> np.ndarray:
    """Convert the row ids at the ends of edges to nodes; `first`: the first node of the
    index.
    """
    names = index["names"].astype(np.int32)
    found, table = (
        np.empty(len(ends), np.int32),
        np.full(1 << (2 * len(names)).bit_length(), -1, np.int32),
    )
    boruvka.nodes_of(names, first, ends, table, found)
    return found


def _boxes(index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Return the box of each tile: its smallest and its largest coordinates (tiles, d)."""
    if "y" not in index:
        return index["low"], index["high"]
    # computed anew, because with a filter "low" and "high" are boxes of scaled points
    y = index["y"]
    starts = np.arange(0, len(y), cpu_tiles.TILE)
    return np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)


def _lower_bounds_across(
    index: Index, core: np.ndarray, other: Index, other_core: np.ndarray, norm: Norm
) -> np.ndarray:
    """For each point, return a lower bound of the weights of its edges to another index
    (n,).

    No weight is below the gap between the point's tile and the nearest box of the other
    index, or below either core distance. Both indexes must have points.
    """
    (low, high), (far_low, far_high) = _boxes(index), _boxes(other)
    # summarize the tiles by at most 16 boxes
    some = np.arange(0, len(far_low), -(-len(far_low) // 16))
    far_low, far_high = (
        np.minimum.reduceat(far_low, some),
        np.maximum.reduceat(far_high, some),
    )
    far_core, least = (
        np.minimum.reduceat(other_core, some * cpu_tiles.TILE),
        np.empty(len(low)),
    )
    # larger arrays would need new memory from the system for each batch
    step = 256
    for start in range(0, len(low), step):
        own = slice(start, start + step)
        gap = box_gap(
            norm, low[own, None], high[own, None], far_low[None], far_high[None]
        )
        least[own] = np.maximum(gap, far_core).min(axis=1)
    return np.maximum(np.repeat(least, cpu_tiles.TILE)[: len(core)], core)


def contracted(
    sides: Sequence[tuple[Index, int]],
    component: np.ndarray,
    core: np.ndarray,
    trees: Sequence[Edges],
    norm: Norm,
) -> tuple[np.ndarray, np.ndarray, int, tuple[np.ndarray, ...]]:
    """Join nodes along edges of each index's own tree, if the edges must also be in the
    common tree.

    `sides`: both indexes, each with its first node. `component` (nodes,), int32: -1 for
    padding; the other entries are overwritten with the number of the node's component.
    `core` (nodes,): core distances, as totals. `trees`: the tree of each index, with
    row ids.

    Returns
    -------
    tuple
        1. For each node, a lower bound of the weights of its edges to the other index.
        2. The number of nodes in each component.
        3. The number of components.
        4. The remaining edges of both trees, by their nodes. They may be in the common
          tree or not.
    """
    least = np.full(len(component), -1.0)
    own, far = (slice(first, first + len(index["names"])) for index, first in sides)
    if min(len(index["names"]) for index, _ in sides):
        (a, _), (b, _) = sides
        least[own] = _lower_bounds_across(a, core[own], b, core[far], norm)
        least[far] = _lower_bounds_across(b, core[far], a, core[own], norm)
    weight = np.concatenate([tree[0] for tree in trees])
    nodes = [
        _nodes_of(*side, np.concatenate(tree[1:]))
        for side, tree in zip(sides, trees, strict=True)
    ]
    ends = [
        np.concatenate(column)
        for column in zip(*(np.split(both, 2) for both in nodes), strict=True)
    ]
    parent, joined, sizes = (np.empty(len(component), np.int32) for _ in range(3))
    number, kept = boruvka.contract(
        component, least.copy(), weight, *ends, parent, joined, sizes
    )
    return least, sizes, number, tuple(column[:kept] for column in (weight, *ends))


def in_order(
    names: np.ndarray,
    found: list[tuple[np.ndarray, np.ndarray]],
    core: np.ndarray,
    threads: int = 1,
) -> Edges:
    """Convert edges from nodes to row ids, the smaller id first, and sort them by
    weight and ids.

    `names`: row id of each node. `found`: batches of edges, as in `BoruvkaRounds`; the
    list is emptied.
    """
    number, at = sum(len(nodes) for _, nodes in found), 0
    bits = max(1, (number - 1).bit_length())
    edges, packed = np.empty((number, 2), np.int64), np.empty(number, np.uint64)
    weight = edges.view(np.float64)

    def fill(start: int, stop: int) -> None:
        edge_order.pack_edges(
            own, nodes, core, names, start, stop, at, bits, weight, edges, packed
        )

    while found:
        own, nodes = found.pop(0)
        shared_out(fill, len(nodes), threads)
        at += len(nodes)
    packed, ends = dealt(packed, bits, threads_to_sort(number, threads))
    away = np.empty(number)
    low, high = np.empty(number, np.int32), np.empty(number, np.int32)

    def lay_out(start: int, stop: int) -> None:
        sort_keys(packed[start:stop], bits, away[start:stop], len(ends) - 1)
        many = np.empty(((stop - start) // edge_order.MAX_INSERTION, 2), np.int64)
        runs = edge_order.lay_out_edges(
            packed, start, stop, bits, weight, edges, away, low, high, many
        )
        for first, last in many[:runs].tolist():
            run = slice(first, last)
            order = np.lexsort((high[run], low[run], away[run]))
            for column in (away, low, high):
                column[run] = column[run][order]

    together([functools.partial(lay_out, *some) for some in itertools.pairwise(ends)])
    return away, low, high


class CpuSpanner:
    """See `Spanner`."""

    @staticmethod
    def prepare(layout: NearestLayout, *more: Callable[[], object]) -> None:
        """Do nothing: Numba compiles one function at a time, so an early start would
        not help.
        """

    @staticmethod
    def tree_of(
        index: Index,
        layout: NearestLayout,
        core: np.ndarray,
        nearest: Nearest,
        progress: Progress | None = None,
        threads: int = 1,
    ) -> Edges:
        """Find the tree of an index's points. `core`: their core distances as totals,
        in index order.
        """
        rounds = BoruvkaRounds(
            [index], layout, [core], nearest, progress, threads=threads
        )
        # drop these references, so that the rounds can free the arrays
        del index, core, nearest, progress
        found, names, core = rounds.run(), rounds.names, rounds.core
        del rounds
        return in_order(names, found, core, threads)

    @staticmethod
    def begin(
        index: Index,
        layout: NearestLayout,
        core: np.ndarray,
        nearest: Nearest,
        parts: int,
    ) -> Progress:
        return BoruvkaRounds([index], layout, [core], nearest).go_on(parts)

    @staticmethod
    def share(
        index: Index,
        layout: NearestLayout,
        core: np.ndarray,
        nearest: Nearest,
        progress: Progress,
        part: Part,
    ) -> Found:
        rounds = BoruvkaRounds(
            [index], layout, [core], nearest, progress, read_only=True
        )
        return rounds.share(progress["offered"], part)

    @staticmethod
    def join(
        index: Index,
        layout: NearestLayout,
        core: np.ndarray,
        nearest: Nearest,
        progress: Progress,
        parts: Sequence[Found],
    ) -> Progress:
        rounds = BoruvkaRounds([index], layout, [core], nearest, progress)
        rounds.join(progress["offered"], parts)
        return rounds.go_on(len(parts))

    @staticmethod
    def edges_between(
        sides: Sequence[Index],
        layout: NearestLayout,
        cores: Sequence[np.ndarray],
        trees: Sequence[Edges],
    ) -> Edges:
        rounds = BoruvkaRounds(sides, layout, cores)
        across = rounds.sides[1].first
        first = [
            (index, side.first) for index, side in zip(sides, rounds.sides, strict=True)
        ]
        least, sizes, rounds.components, known = contracted(
            first, rounds.component, rounds.core, trees, layout.norm
        )
        rounds.least, rounds.to = least, np.full(len(least), -1, np.int32)
        rounds.sizes = sizes[: rounds.components]
        found = []
        for weight, nodes in rounds.run(known):
            start, end = ends_of(nodes)
            kept = (start < across) != (end < across)
            found.append((weight[kept], nodes[kept]))
        return in_order(rounds.names, found, rounds.core)

    @staticmethod
    def merge(rows: int, *parts: Edges) -> Edges:
        forest = parts[0]
        for part in parts[1:]:
            most = min(len(forest[0]) + len(part[0]), max(0, rows - 1))
            merged = np.empty(most), np.empty(most, np.int32), np.empty(most, np.int32)
            number = hierarchy.merge(*forest, *part, np.zeros(rows, np.int32), *merged)
            forest = merged[0][:number], merged[1][:number], merged[2][:number]
        return forest

    @staticmethod
    def condense(
        start: np.ndarray,
        end: np.ndarray,
        away: np.ndarray,
        min_rows: int,
        threads: int = 1,
    ) -> Clusters:
        n = len(start) + 1
        min_rows = min(min_rows, n)
        most = 2 * (n // min_rows)
        nodes, leaves = np.empty((n, 2), np.int32), np.empty(n - 1, np.int32)

        def begin(start: int, stop: int) -> None:
            nodes[start:stop, 0] = -1
            nodes[start:stop, 1] = np.arange(start, stop)

        shared_out(begin, n, threads)
        last, parent, rows = (np.empty(most, np.int32) for _ in range(3))
        birth = np.empty(most)
        given = hierarchy.condense(
            (
                np.require(start, np.int32, ["C", "W"]),
                np.require(end, np.int32, ["C", "W"]),
                away,
            ),
            min_rows,
            nodes,
            np.empty(n, np.int32),
            leaves,
            last,
            parent,
            birth,
            rows,
            *(np.empty(most, np.int32) for _ in range(2)),
        )
        # clusters are numbered by their last edges, the last one first
        used = np.flatnonzero(last[:given] >= 0)
        used = used[np.argsort(last[used])[::-1]]
        number = np.full(given + 1, -1, np.int32)  # the last one is for no parent
        number[used] = np.arange(len(used), dtype=np.int32)
        row_parent, row_lambda = np.empty(n, np.int32), np.empty(n)

        def leave(start: int, stop: int) -> None:
            hierarchy.leave_clusters(
                nodes, leaves, away, number, start, stop, row_parent, row_lambda
            )

        shared_out(leave, n, threads)
        return row_parent, row_lambda, number[parent[used]], birth[used], rows[used]

    @staticmethod
    def measure_rows(
        row_parent: np.ndarray, row_lambda: np.ndarray, birth: np.ndarray
    ) -> RowMeasures:
        """Measure the rows that leave each cluster: see `Spanner`."""
        number = len(birth)
        first, left = np.empty(number, np.int64), np.empty(number, np.int32)
        run, stability, death = (np.empty(number) for _ in range(3))
        hierarchy.measure_rows(
            row_parent, row_lambda, birth, left, run, first, stability, death
        )
        return first, stability, death

    @staticmethod
    def label_rows(
        row_parent: np.ndarray,
        row_lambda: np.ndarray,
        chosen: Chosen,
        threads: int = 1,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Label rows: see `Spanner`."""
        n = len(row_parent)
        labels = np.empty(n, np.int64), np.empty(n), np.empty(n)

        def label(start: int, stop: int) -> None:
            rows, densities, *found = (
                column[start:stop] for column in (row_parent, row_lambda, *labels)
            )
            hierarchy.label_rows(rows, densities, *chosen, *found)

        shared_out(label, n, threads)
        return labels

    @staticmethod
    def is_ordered(start: np.ndarray, end: np.ndarray, away: np.ndarray) -> bool:
        """Return whether edges are sorted: see `Spanner`."""
        wrong = (start[1:] < start[:-1]) | (
            (start[1:] == start[:-1]) & (end[1:] < end[:-1])
        )
        return not bool(((away[1:] == away[:-1]) & wrong).any())


SPANNER = CpuSpanner()


def rows_of_places(side: Index) -> np.ndarray | slice:
    """Return the positions of an index's rows, in index order.

    If they are consecutive and ascending, return a slice, because indexing by a slice
    makes no copy.
    """
    order = side["order"][: len(side["order"]) - SWEEP_LANES]
    if not len(order):
        return slice(0, 0)
    start, n = int(order[0]), len(order)
    if int(order[-1]) - start == n - 1 and bool((order[1:] > order[:-1]).all()):
        return slice(start, start + n)
    return order


def _nodes(side: Index, taking: np.ndarray, offset: int) -> np.ndarray:
    """Return the node of each row, in index order; -1 if the row takes no part."""
    rows = rows_of_places(side)
    nodes = (
        np.arange(rows.start, rows.stop)
        if isinstance(rows, slice)
        else rows.astype(np.int64)
    )
    if offset:
        nodes += offset
    # -1 where `taking` is False; this takes a fifth of the time of `np.where`
    nodes |= taking[rows].view(np.int8) - np.int8(1)
    return nodes


def connect(
    module: CpuMethod,
    q: Index,
    d: Index,
    layout: Layout,
    parent: np.ndarray,
    taking: tuple[np.ndarray, np.ndarray],
    offset: int,
    is_self_join: bool,
) -> None:
    first = _nodes(q, taking[0], 0)
    sides = first, first if is_self_join else _nodes(d, taking[1], offset)
    if isinstance(module, ManyAtOnce) and parent.dtype == np.int32:
        module.connect(q, d, layout, is_self_join, sides, parent)
    else:
        sinks.connect(module, q, d, layout, is_self_join, sides, parent)


def lowest(
    module: CpuMethod,
    q: Index,
    d: Index,
    layout: Layout,
    labels: tuple[np.ndarray, np.ndarray],
    low: tuple[np.ndarray, np.ndarray],
    is_self_join: bool,
    places: Rows | None = None,
) -> None:
    """Lower `low` for rows without a label: see `Joiner.lowest`.

    `places`: lower it only for rows at these places; needs a self-join of a `Ranged`
    method.
    """
    orders = rows_of_places(q), rows_of_places(d)
    by_place = [
        [
            np.require(some[rows], requirements="W")
            for some, rows in zip(each, orders, strict=True)
        ]
        for each in (labels, low)
    ]
    if is_self_join:
        by_place = [[each[0], each[0]] for each in by_place]
    names, found = ((each[0], each[1]) for each in by_place)
    if places is not None and isinstance(module, Ranged):
        shared = module.shared_to_label(names[0])
        module.lowest_of(q, layout, places, names[0], found[0], shared)
    elif isinstance(module, ManyAtOnce):
        module.lowest(q, d, layout, is_self_join, names, found)
    else:
        sinks.lowest(module, q, d, layout, is_self_join, names, found)
    for some, rows, own in zip(low, orders, found, strict=True):
        if not np.may_share_memory(some, own):
            some[rows] = own


def least_rows(parent: np.ndarray, order: np.ndarray, threads: int) -> np.ndarray:
    """Return the smallest row of each set: see `Joiner.least_rows`."""
    n = len(parent)
    first = np.empty(n, np.int32)

    def begin(start: int, stop: int) -> None:
        first[start:stop] = n

    def lower(start: int, stop: int) -> None:
        components.first_rows(parent, order, start, stop, first)

    shared_out(begin, n, threads)
    shared_out(lower, n, threads)
    return first


def numbers(
    parent: np.ndarray, taking: np.ndarray, order: np.ndarray, threads: int
) -> np.ndarray:
    """Number the sets in the order of their smallest rows: see `Joiner.numbers`."""
    n, first = len(parent), least_rows(parent, order, threads)
    # for each row that is the smallest of its set, the root of the set
    root, number, labels = np.empty(n, np.int32), first, np.empty(n, np.int64)

    def begin(start: int, stop: int) -> None:
        root[start:stop] = -1

    def place(start: int, stop: int) -> None:
        components.roots_by_row(parent, taking, first, start, stop, root)

    def count(start: int, stop: int) -> tuple[int, int, int]:
        return start, stop, int(np.count_nonzero(root[start:stop] >= 0))

    def label(start: int, stop: int) -> None:
        components.labels_of_roots(parent, taking, number, start, stop, labels)

    shared_out(begin, n, threads)
    shared_out(place, n, threads)
    counted, calls = 0, []
    for start, stop, found in shared_out(count, n, threads):
        calls.append(
            functools.partial(
                components.number_roots, root, start, stop, counted, number
            )
        )
        counted += found
    together(calls, threads)
    shared_out(label, n, threads)
    return labels


T = TypeVar("T")


class _Entry(Generic[T]):
    """A cached value, with weak references to one array of each of its two indexes."""

    def __init__(self) -> None:
        self.lock = forkable(threading.Lock())
        self.arrays: tuple[weakref.ref[object], ...] = ()
        self.value: T | None = None


class WeakPairCache(Generic[T]):
    """Cache with one value per pair of indexes. All tasks of a process share it.

    It does not keep indexes alive: when an index is freed, its entries are removed.
    """

    def __init__(self) -> None:
        self._lock = forkable(threading.Lock())
        self._entries: dict[Hashable, _Entry[T]] = {}

    def find(
        self, q: Index, d: Index, settings: Hashable, compute: Callable[[], T]
    ) -> T:
        """Return the cached result of `compute` for two indexes and these settings.

        Concurrent calls with the same arguments wait for the first of them, so
        `compute` runs only once.
        """
        arrays = q["order"], d["order"]
        key = *map(id, arrays), settings
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            # compare the arrays themselves, because a new array can have the `id` of a
            # freed one
            known = len(entry.arrays) == 2 and all(
                ref() is array for ref, array in zip(entry.arrays, arrays, strict=True)
            )
            if not known or entry.value is None:
                entry.value = compute()
                entry.arrays = tuple(
                    weakref.ref(array, lambda _: self._entries.pop(key, None))
                    for array in arrays
                )
            return entry.value
