"""Finds pairs in k-means clusters: see `dask_simjoin.engine.kmeans`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels import windows
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods import tiles
from dask_simjoin.engine.cpu.methods.clusters import Shown, comparisons
from dask_simjoin.engine.cpu.methods.sinks import Sink
from dask_simjoin.engine.cpu.methods.unsorted import end as end
from dask_simjoin.engine.cpu.methods.unsorted import points as points
from dask_simjoin.engine.index.clusters import KMeansLayout, make_kmeans_layout
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.kmeans import KMeans
from dask_simjoin.engine.methods import Tiles
from dask_simjoin.engine.profile import Numbers
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Index

writes_names = False


def layout(options: KMeans, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> KMeansLayout:  # fmt: skip
    inner = None
    if options.inner == "tiles":
        inner = tiles.layout(Tiles(), lower, upper, mean, variance, threshold, norm, drawn)
    return make_kmeans_layout(options, lower, upper, mean, threshold, norm, drawn, inner)


def build(x: np.ndarray, layout: KMeansLayout, threads: int = 1) -> Index:
    """Put rows in the order of their clusters.

    Returns
    -------
    dict of arrays
        ``order`` (n + lanes, int32): positions of the rows; ``y`` (n, d): the rows; ``totals`` (n,): of them
        and their centres; ``starts`` (k + 1, int64): where clusters begin.
    """
    x, w, n = np.ascontiguousarray(x), layout.windows, len(x)
    labels, totals = np.empty(n, np.int32), np.empty(n)
    windows.nearest(x, layout.centres, w.before, w.scale, kind_of(layout.norm), labels, totals)
    positions = np.argsort(labels, kind="stable")
    order = np.zeros(n + SWEEP_LANES, np.int32)
    order[:n] = positions
    starts = np.searchsorted(labels[positions], np.arange(len(layout.centres) + 1))
    return {"order": order, "y": x[positions], "totals": totals[positions], "starts": starts.astype(np.int64)}


def part(index: Index, start: int, stop: int) -> Index:
    return {
        "order": index["order"][start : stop + SWEEP_LANES],
        "y": index["y"][start:stop],
        "totals": index["totals"][start:stop],
        "starts": index["starts"].clip(start, stop) - start,
    }


def _earlier_first(show: Shown) -> Shown:
    """Turn the pairs of one index so that the earlier place is the left one."""

    def turned(left: np.ndarray, right: np.ndarray) -> None:
        show(np.minimum(left, right), np.maximum(left, right))

    return turned


def pairs(q: Index, d: Index, layout: KMeansLayout, same: bool, names: list[np.ndarray],
          sink: Sink, turn: bool) -> tuple[int, int]:  # fmt: skip
    """Write all pairs of two indexes to a sink; what tiles' filters left to float64 is not told."""
    n = 0

    def write(left: np.ndarray, right: np.ndarray) -> None:
        nonlocal n
        one, other = names[0][left], names[1][right]
        if same:
            one, other = np.minimum(one, other), np.maximum(one, other)
        if n + len(one) > sink.room:
            sink.full(n, len(one))
            n = 0
        sink.left[n : n + len(one)], sink.right[n : n + len(one)] = one, other
        n += len(one)

    comparisons(q, d, layout, same, write)
    sink.end(n)
    return 0, 0


def counts(q: Index, d: Index, layout: KMeansLayout, same: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    """Add up the pairs of each place of both sides."""

    def add(left: np.ndarray, right: np.ndarray) -> None:
        np.add.at(q_counts, left, 1)
        np.add.at(d_counts, right, 1)

    comparisons(q, d, layout, same, _earlier_first(add) if same else add)


def tell(index: Index, layout: KMeansLayout) -> Numbers:
    """Count what a join of an index with itself does, in one more."""
    told = comparisons(index, index, layout, True, lambda left, right: None)
    sizes = np.diff(index["starts"])
    return {
        "candidates": told.compared, "copies": told.copies, "clusters": int(np.count_nonzero(sizes)),
        "largest_cluster": int(sizes.max()),
    }  # fmt: skip


def work(q: Index, d: Index, layout: KMeansLayout, same: bool) -> np.ndarray:
    return np.ones(1)  # clusters are of unlike sizes, in no order
