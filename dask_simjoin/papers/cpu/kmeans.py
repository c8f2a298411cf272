"""Find pairs by k-means clusters on CPUs: see `dask_simjoin.papers.cluster_index`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np

from dask_simjoin.catalog import Tiles
from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu import sinks, tiles
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term, kind_of
from dask_simjoin.engine.cpu.sinks import Sink
from dask_simjoin.engine.index.cpu_tiles import TilesLayout
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.papers.cluster_index import (
    KMeansLayout,
    Windows,
    make_kmeans_layout,
)
from dask_simjoin.papers.cpu import nested
from dask_simjoin.papers.cpu.nested import end as end
from dask_simjoin.papers.cpu.nested import points as points
from dask_simjoin.papers.lists import KMeans


@device_function
def total_to(
    row: Array, center: Array, before: float, scale: float, norm: Kind
) -> float:
    """Return the total between a row and a center, in the units of `Windows`."""
    total = 0.0
    for k in range(row.size):
        total = add_term(total, (row[k] * before - center[k] * before) * scale, norm)
    return total


@kernel
def label_rows(
    x: Array,
    centers: Array,
    before: float,
    scale: float,
    norm: Kind,
    labels: Array,
    totals: Array,
) -> None:
    """Find the nearest center of each row. Write its number to `labels`, and the total
    between both to `totals`.

    If several centers are equally near, the first of them is written.
    """
    for p in range(len(x)):
        label, min_total = 0, np.inf
        for c in range(len(centers)):
            total = total_to(x[p], centers[c], before, scale, norm)
            if total < min_total:
                label, min_total = c, total
        labels[p], totals[p] = label, min_total


@kernel
def rows_near(
    y: Array,
    totals: Array,
    starts: Array,
    centers: Array,
    j: int,
    last: int,
    windows: Windows,
    root: float,
    norm: Kind,
    out: Array,
) -> int:
    """Write to `out` the rows of other clusters that are in the window of cluster j;
    return their number.

    Only clusters before `last` are searched. `y`: rows sorted by cluster; `starts`:
    start of each cluster. `totals`: total from each row to its own center. `root`:
    exponent that converts totals to distances, or 0 to compare squared distances. Rows
    with NaN are written, too.
    """
    before, scale, gap, slack, tiny = windows
    n = 0
    for i in range(last):
        if i == j or starts[i] == starts[i + 1]:
            continue
        apart = (
            np.sqrt(total_to(centers[i], centers[j], before, scale, norm))
            * (1.0 + slack)
            + tiny
        )
        for p in range(starts[i], starts[i + 1]):
            other, own = total_to(y[p], centers[j], before, scale, norm), totals[p]
            if root == 0.0:
                limit = (
                    2.0 * gap * apart
                    + 3.0 * slack * (other + own)
                    + 4.0 * slack * gap * gap
                    + tiny
                )
            else:
                other, own = other**root, own**root
                limit = (
                    2.0 * gap + 3.0 * slack * (other + own) + 4.0 * slack * gap + tiny
                )
            if not other - own > limit:
                out[n] = p
                n += 1
    return n


PairCallback = Callable[[np.ndarray, np.ndarray], None]
"""Function that gets the left and right positions of pairs.

It must not keep these arrays, because the caller overwrites them.
"""

BLOCK = 128
"""Number of rows per block, in the nested loop's schedule ROTATION."""


@dataclass
class ClusterScanStats:
    """Counters of a join: number of copied rows, and number of compared pairs of rows."""

    copies: int = 0
    compared: int = 0


def near(
    index: Index, layout: KMeansLayout, cluster: int, last: int, share: float
) -> np.ndarray:
    """Return the rows of other clusters that may have pairs with `cluster`, as
    positions in the index.

    These are the rows in the window of `cluster`. Only clusters with numbers below
    `last` are searched. `share`: width of the window, divided by eps.
    """
    w, y = layout.windows, index["y"]
    out = np.empty(len(y), np.int32)
    root = (
        0.0
        if layout.norm == 2
        else 1.0 / (1.0 if layout.norm == np.inf else layout.norm)
    )
    n = rows_near(
        y,
        index["totals"],
        index["starts"],
        layout.centers,
        cluster,
        last,
        w._replace(gap=w.gap * share),
        root,
        kind_of(layout.norm),
        out,
    )
    return out[:n]


def compare(
    layout: KMeansLayout,
    q_y: np.ndarray,
    q_places: np.ndarray,
    d_y: np.ndarray,
    d_places: np.ndarray,
    is_self_join: bool,
    emit: PairCallback,
) -> None:
    """Emit the pairs between two sets of rows, or within the first set if
    `is_self_join`.

    `q_places`, `d_places`: positions of the rows in their indexes. Pairs are emitted as
    these positions.
    """
    if not len(q_y) or not len(d_y):
        return

    def placed(left: np.ndarray, right: np.ndarray) -> None:
        emit(q_places[left], d_places[right])

    if layout.options.inner == "tiles":
        by = cast(TilesLayout, layout.tiles)
        q = tiles.build(q_y, by)
        d = q if is_self_join else tiles.build(d_y, by)
        tiles.pairs(
            q,
            d,
            by,
            is_self_join,
            [q["order"], d["order"]],
            sinks.CallbackSink(placed),
            False,
        )
        return
    kind = nested.ROTATION if is_self_join else nested.ACROSS
    rows = [np.arange(len(y), dtype=np.int32) for y in (q_y, d_y)]
    nested.compare(
        q_y, d_y, layout, kind, BLOCK, False, rows, sinks.CallbackSink(placed)
    )


def comparisons(
    q: Index, d: Index, layout: KMeansLayout, is_self_join: bool, emit: PairCallback
) -> ClusterScanStats:
    """Emit all pairs of two indexes, or within one index, as positions in the indexes;
    return counters.

    A self-join emits each pair once, with its rows in any order.
    """
    counters = ClusterScanStats()
    if is_self_join and layout.copies and layout.options.windows != "one-sided":
        _two_sided(q, layout, emit, counters)
        return counters
    places = [np.arange(len(side["y"]), dtype=np.int32) for side in (q, d)]
    for cluster, (start, stop) in _ranges(d):
        own = slice(start, stop)
        if is_self_join:
            compare(
                layout,
                d["y"][own],
                places[1][own],
                d["y"][own],
                places[1][own],
                True,
                emit,
            )
            counters.compared += (stop - start) * (stop - start - 1) // 2
        last = (
            (cluster if is_self_join else len(layout.centers)) if layout.copies else 0
        )
        copied = near(q, layout, cluster, last, 1.0)
        # with two indexes, rows of `q` in the cluster itself are compared as well
        if not is_self_join:
            copied = np.concatenate(
                [places[0][slice(*q["starts"][cluster : cluster + 2])], copied]
            )
        counters.copies += len(copied)
        counters.compared += len(copied) * (stop - start)
        compare(
            layout, q["y"][copied], copied, d["y"][own], places[1][own], False, emit
        )
    return counters


def _two_sided(
    index: Index, layout: KMeansLayout, emit: PairCallback, counters: ClusterScanStats
) -> None:
    """Join an index with itself, with copies in both directions across each border.

    If several clusters contain both rows of a pair, the pair is emitted for the cluster
    with the highest number.
    """
    y, share = index["y"], 0.5 if layout.options.windows == "two-sided" else 1.0
    number = len(layout.centers)
    inside = np.zeros((len(y), -(-number // 8)), np.uint8)
    for cluster, (start, stop) in _ranges(index):
        copied = near(index, layout, cluster, number, share)
        counters.copies += len(copied)
        for members in (np.arange(start, stop, dtype=np.int32), copied):
            inside[members, cluster >> 3] |= np.uint8(1 << (cluster & 7))
    for cluster, _ in _ranges(index):
        byte, bit = cluster >> 3, cluster & 7
        members = np.flatnonzero(inside[:, byte] >> bit & 1).astype(np.int32)
        above = np.uint8((0xFF << (bit + 1)) & 0xFF)

        def highest(
            left: np.ndarray,
            right: np.ndarray,
            byte: int = byte,
            above: np.uint8 = above,
        ) -> None:
            both = inside[left, byte:] & inside[right, byte:]
            both[:, 0] &= above
            mine = ~both.any(axis=1)
            emit(left[mine], right[mine])

        compare(layout, y[members], members, y[members], members, True, highest)
        counters.compared += len(members) * (len(members) - 1) // 2


def _ranges(index: Index) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield for each non-empty cluster its number, and the start and stop of its rows."""
    starts = index["starts"].tolist()
    for cluster, (start, stop) in enumerate(itertools.pairwise(starts)):
        if start < stop:
            yield cluster, (start, stop)


writes_names = False


def layout(
    options: KMeans,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> KMeansLayout:
    inner = None
    if options.inner == "tiles":
        inner = tiles.layout(
            Tiles(), lower, upper, mean, variance, threshold, norm, sample
        )
    return make_kmeans_layout(
        options, lower, upper, mean, threshold, norm, sample, inner
    )


def build(x: np.ndarray, layout: KMeansLayout, threads: int = 1) -> Index:
    """Return the index of a chunk's rows `x` (n, d). It has the rows sorted by cluster.

    The index has ``order`` (n + lanes,), int32, the positions of the rows, and ``y``
    (n, d), the rows. ``totals`` (n,) has the total from each row to its center.
    ``starts`` (k + 1,), int64, has the start of each cluster.
    """
    x, w, n = np.ascontiguousarray(x), layout.windows, len(x)
    labels, totals = np.empty(n, np.int32), np.empty(n)
    label_rows(
        x, layout.centers, w.before, w.scale, kind_of(layout.norm), labels, totals
    )
    positions = np.argsort(labels, kind="stable")
    order = np.zeros(n + SWEEP_LANES, np.int32)
    order[:n] = positions
    starts = np.searchsorted(labels[positions], np.arange(len(layout.centers) + 1))
    return {
        "order": order,
        "y": x[positions],
        "totals": totals[positions],
        "starts": starts.astype(np.int64),
    }


def part(index: Index, start: int, stop: int) -> Index:
    return {
        "order": index["order"][start : stop + SWEEP_LANES],
        "y": index["y"][start:stop],
        "totals": index["totals"][start:stop],
        "starts": index["starts"].clip(start, stop) - start,
    }


def _earlier_first(emit: PairCallback) -> PairCallback:
    """Return a function that calls `emit` with the smaller position of each pair on the
    left.
    """

    def swapped(left: np.ndarray, right: np.ndarray) -> None:
        emit(np.minimum(left, right), np.maximum(left, right))

    return swapped


def pairs(
    q: Index,
    d: Index,
    layout: KMeansLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
) -> tuple[int, int]:
    """Write all pairs of two indexes to a sink. Both returned counters are 0, because
    there is no filter.
    """
    n = 0

    def write(left: np.ndarray, right: np.ndarray) -> None:
        nonlocal n
        one, other = names[0][left], names[1][right]
        if is_self_join:
            one, other = np.minimum(one, other), np.maximum(one, other)
        if n + len(one) > sink.capacity:
            sink.full(n, len(one))
            n = 0
        sink.left[n : n + len(one)], sink.right[n : n + len(one)] = one, other
        n += len(one)

    comparisons(q, d, layout, is_self_join, write)
    sink.end(n)
    return 0, 0


def counts(
    q: Index,
    d: Index,
    layout: KMeansLayout,
    is_self_join: bool,
    q_counts: np.ndarray,
    d_counts: np.ndarray,
    enough: int | None = None,
) -> None:
    def add(left: np.ndarray, right: np.ndarray) -> None:
        np.add.at(q_counts, left, 1)
        np.add.at(d_counts, right, 1)

    comparisons(
        q, d, layout, is_self_join, _earlier_first(add) if is_self_join else add
    )


def layout_stats(index: Index, layout: KMeansLayout) -> Numbers:
    counters = comparisons(index, index, layout, True, lambda left, right: None)
    sizes = np.diff(index["starts"])
    return {
        "candidates": counters.compared,
        "copies": counters.copies,
        "clusters": int(np.count_nonzero(sizes)),
        "largest_cluster": int(sizes.max()),
    }


def work(q: Index, d: Index, layout: KMeansLayout, is_self_join: bool) -> np.ndarray:
    # assume that all parts have equal work, because clusters are not sorted by size
    return np.ones(1)
