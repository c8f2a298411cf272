"""Find pairs by k-means clusters on GPUs: see `dask_simjoin.papers.cluster_index`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import cupy
import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.load import NOWHERE, THREADS
from dask_simjoin.engine.gpu.pairs import PairBatch
from dask_simjoin.engine.gpu.sources import Sink, norm_constant
from dask_simjoin.engine.index.gpu import CUTS
from dask_simjoin.engine.index.kdtree import KdCuts, dims_to_cut
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.papers.cluster_index import (
    SIDE,
    KMeansLayout,
    Parts,
    cut,
    make_kmeans_layout,
)
from dask_simjoin.papers.gpu.flow import (
    OneKernel,
    bounds_for,
    filtered,
    is_none,
    limits,
)
from dask_simjoin.papers.grid_batches import Batch
from dask_simjoin.papers.lists import KMeans
from dask_simjoin.sizes import BUFFER_SHARE


class Near(NamedTuple):
    """The rows in the windows of consecutive clusters."""

    first: int  # the first of these clusters
    # positions of the rows in the index, ascending for each cluster, int32
    places: Array
    starts: Array  # start of each cluster in `places` (clusters + 1,), int64


def _run(layout: KMeansLayout, function: str, rows: int, *arguments: Any) -> None:
    """Launch a function of `clusters.cu` with one block per `SIDE` rows."""
    constants = {"DIMS": layout.dims, "EXACT": True} | norm_constant(layout.norm)
    load.kernel("papers/clusters", function, **constants)(
        (-(-rows // SIDE),), (THREADS,), arguments
    )


def _units(layout: KMeansLayout) -> tuple[np.float64, np.float64]:
    return np.float64(layout.windows.before), np.float64(layout.windows.scale)


def labelled(y: Array, layout: KMeansLayout) -> tuple[Array, Array]:
    """Return the nearest center of each row, and the total between the row and this
    center.

    If several centers are equally near, the first of them is returned.
    """
    labels, totals = cupy.empty(len(y), cupy.int32), cupy.empty(len(y))
    if len(y):
        centers = cupy.asarray(layout.centers)
        arguments = (
            np.int32(len(y)),
            centers,
            np.int32(len(centers)),
            *_units(layout),
            labels,
            totals,
        )
        _run(layout, "label_rows", len(y), y, *arguments)
    return labels, totals


class Borders:
    """Finds, for each cluster, the rows of other clusters that are in its window.

    These rows are the near rows of the cluster.

    `share`: width of the window, divided by eps. `after`: whether to ignore clusters
    with lower numbers than the row's own cluster.
    """

    def __init__(
        self, index: Index, layout: KMeansLayout, share: float, *, after: bool
    ) -> None:
        self._index, self._layout, self._share, self._after = (
            index,
            layout,
            share,
            after,
        )
        self._centers = cupy.asarray(layout.centers)
        number, w = len(self._centers), layout.windows
        self._apart = cupy.empty((number, number) if layout.norm == 2 else (1, 1))
        if layout.norm == 2:
            slack = np.float64(w.slack), np.float64(w.tiny)
            arguments = (
                self._centers,
                np.int32(number),
                *_units(layout),
                *slack,
                self._apart,
            )
            _run(layout, "center_distances", number, *arguments)

    def _bits(
        self, first: int, last: int, by_row: Array | np.uint64
    ) -> tuple[Array, Array]:
        """Return a bit mask of each cluster's near rows (clusters, words), and the
        number of bits set in each word.

        The clusters are `first` ... `last` - 1. If `by_row` is an array, masks of the
        clusters near each row are written to it: see the method `by_row`.
        """
        index, w, norm = self._index, self._layout.windows, self._layout.norm
        rows = len(index["y"])
        inside = cupy.zeros((last - first, -(-rows // SIDE)), cupy.uint64)
        sizes = cupy.zeros(inside.shape, cupy.int32)
        root = 0.0 if norm == 2 else 1.0 / (1.0 if norm == np.inf else norm)
        limits = (w.gap * self._share, w.slack, w.tiny, root)
        _run(
            self._layout,
            "near_clusters",
            rows,
            index["y"],
            np.int32(rows),
            index["labels"],
            index["totals"],
            self._centers,
            np.int32(len(self._centers)),
            np.int32(first),
            np.int32(last),
            np.int32(self._after),
            self._apart,
            *map(np.float64, limits),
            *_units(self._layout),
            inside,
            sizes,
            by_row,
        )
        return inside, sizes

    def by_row(self) -> Array:
        """For each row, return a bit mask of the clusters that have the row in their
        window: (rows, words), uint64.
        """
        number = len(self._centers)
        found = cupy.zeros((len(self._index["y"]), -(-number // SIDE)), cupy.uint64)
        for first, last in self._ranges():
            self._bits(first, last, found)
        return found

    def _ranges(self) -> list[tuple[int, int]]:
        """Divide the clusters into ranges, so that lists of each range's near rows fit
        into memory.
        """
        memory = int(cupy.cuda.Device().mem_info[1]) // BUFFER_SHARE
        some = (
            max(1, min(memory, 2**31 - 1) // (4 * SIDE) // len(self._index["y"])) * SIDE
        )
        number = len(self._centers)
        return [(first, min(first + some, number)) for first in range(0, number, some)]

    def near(self) -> Iterator[Near]:
        """Yield the near rows of clusters, for one range of clusters after the other."""
        for first, last in self._ranges():
            inside, sizes = self._bits(first, last, np.uint64(0))
            ends = cupy.cumsum(sizes.reshape(-1), dtype=cupy.int64)
            places = cupy.empty(int(ends[-1]), cupy.int32)
            clusters, blocks = inside.shape
            function = load.kernel(
                "papers/clusters",
                "list_members",
                **{"DIMS": self._layout.dims, "EXACT": True},
            )
            arguments = (
                inside,
                ends,
                sizes,
                np.int64(ends.size),
                np.int64(blocks),
                places,
            )
            function((-(-ends.size // THREADS),), (THREADS,), arguments)
            starts = cupy.zeros(clusters + 1, cupy.int64)
            starts[1:] = ends.reshape(clusters, blocks)[:, -1]
            yield Near(first, places, starts)


KD_PARTS = 2, 3
"""Number of parts per cut of a block, and maximum number of halvings: see
`TilesOnDevice.parts`.
"""


@dataclass(frozen=True)
class ListsOnGpu:
    """Lists of queries for consecutive clusters, and the rows ("members") that each
    list is compared with.
    """

    # positions of the queries, list after list, int32; None: list i has the positions
    # starts[i] ... starts[i+1]-1
    items: Array | None
    starts: Array  # start of each list in `items` (lists + 1,), int64
    members: Array | None  # positions of the members, like `items`
    member_starts: Array
    first: int  # number of the cluster of the first list
    # whether a query is compared only with members whose positions are after its own
    later: bool
    # bit mask of each row's clusters, if a pair must be found only in the last cluster
    # that contains both rows
    by_row: Array | None = None


def _queries_in(items: Array, starts: Array, rows: Rows | None) -> tuple[Array, Array]:
    """Keep only the queries whose positions are in the range `rows`. Return the new
    `items` and `starts`.
    """
    if rows is None:
        return items, starts
    kept = (items >= rows[0]) & (items < rows[1])
    before = cupy.zeros(len(items) + 1, cupy.int64)
    before[1:] = cupy.cumsum(kept)
    return items[kept], before[starts]


def lists(
    q: Index,
    d: Index,
    layout: KMeansLayout,
    is_self_join: bool,
    rows: Rows | None = None,
) -> Iterator[ListsOnGpu]:
    """Yield the lists of a join, for one range of clusters after the other.

    `rows`: range of positions of the requested queries.
    """
    one_sided = layout.options.windows == "one-sided"
    if not layout.copies or (is_self_join and one_sided):
        own = q["starts"] if rows is None else q["starts"].clip(*rows)
        yield ListsOnGpu(None, own, None, d["starts"], 0, is_self_join)
    if not layout.copies:
        return
    share = 0.5 if is_self_join and layout.options.windows == "two-sided" else 1.0
    borders = Borders(q, layout, share, after=is_self_join and one_sided)
    by_row = borders.by_row() if is_self_join and not one_sided else None
    for first, places, starts in borders.near():
        items, item_starts = _queries_in(places, starts, rows)
        if by_row is not None:
            yield ListsOnGpu(items, item_starts, places, starts, first, True, by_row)
        else:
            yield ListsOnGpu(
                items,
                item_starts,
                None,
                d["starts"][first : first + len(starts)],
                first,
                False,
            )


def _kernel(layout: KMeansLayout, function: str, **constants: int) -> Any:
    shape = {
        "DIMS": layout.dims,
        "EXACT": layout.bounds is None,
        "BOXES": layout.tiles is not None,
    }
    return load.kernel(
        "papers/members", function, **shape, **constants, **norm_constant(layout.norm)
    )


def _boxes(
    items: Array | None, parts: Parts, z: Array, layout: KMeansLayout
) -> tuple[Any, Any]:
    """Return bounds (d, parts) of the boxes of parts; null pointers if the join uses no
    boxes.
    """
    number = len(parts.begins)
    if layout.tiles is None or not number:
        return NOWHERE, NOWHERE
    lower, upper = (cupy.empty((layout.dims, number), z.dtype) for _ in range(2))
    given = (
        NOWHERE if items is None else items,
        parts.begins,
        parts.ends,
        np.int64(number),
        z,
        lower,
        upper,
    )
    _kernel(layout, "member_boxes", COUNTING=0)((number,), (THREADS,), given)
    return lower, upper


@dataclass(frozen=True)
class KMeansLaunch:
    """A `Launch` of a join of lists. Its units of work, `jobs`, are parts of the lists
    of queries.
    """

    q: Index
    d: Index
    layout: KMeansLayout
    given: ListsOnGpu
    jobs: Parts
    tiles: Parts
    boxes: tuple[Any, ...]
    constants: dict[str, int]

    @classmethod
    def of(
        cls,
        given: ListsOnGpu,
        q: Index,
        d: Index,
        layout: KMeansLayout,
        is_self_join: bool,
        rows: Rows | None = None,
        **constants: int,
    ) -> KMeansLaunch:
        jobs, tiles = (
            cut(starts, SIDE, cupy) for starts in (given.starts, given.member_starts)
        )
        boxes = (
            *_boxes(given.items, jobs, _compared(q, layout), layout),
            *_boxes(given.members, tiles, _compared(d, layout), layout),
        )
        return cls(q, d, layout, given, jobs, tiles, boxes, constants)

    @property
    def queries(self) -> int:
        return len(self.jobs.begins)

    def run(
        self,
        batch: Batch,
        capacity: int,
        out: Array | np.uint64,
        counts: tuple[Any, Any],
        state: Array,
    ) -> None:
        layout, given, jobs, tiles = self.layout, self.given, self.jobs, self.tiles
        by_row = given.by_row
        sides = [
            NOWHERE if some is None else some
            for some in (given.items, given.members, by_row)
        ]
        arguments = (
            np.int64(batch.first),
            np.int64(batch.step),
            sides[0],
            jobs.begins,
            jobs.ends,
            jobs.lists,
            *self.boxes[:2],
            np.int64(self.queries),
            sides[1],
            tiles.begins,
            tiles.ends,
            tiles.first,
            *self.boxes[2:],
            np.int64(len(tiles.begins)),
            np.int32(given.later),
            sides[2],
            np.int32(0 if by_row is None else by_row.shape[1]),
            np.int32(given.first),
            _compared(self.q, layout),
            self.q["y"],
            _compared(self.d, layout),
            self.d["y"],
            *limits(layout.threshold, layout.bounds),
            np.uint64(capacity),
            out,
            *counts,
            state,
        )
        kernel = _kernel(layout, "join_members", **{"COUNTING": 0} | self.constants)
        kernel((batch.number,), (THREADS,), arguments)


def _compared(index: Index, layout: KMeansLayout) -> Array:
    return index["y" if layout.bounds is None else "z"]


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
    bounds = bounds_for(options.precision, lower, upper, mean, threshold, norm)
    cuts = dims_to_cut(variance) if options.inner == "tiles" else None
    return replace(
        make_kmeans_layout(options, lower, upper, mean, threshold, norm, sample, cuts),
        bounds=bounds,
    )


def build(x: Array, layout: KMeansLayout) -> Index:
    """Return the index of a chunk's rows `x` (n, d), sorted by cluster, and by kd order
    in a cluster.

    The index has ``order`` (n,), int32, the positions of the rows, and ``y`` (n, d),
    the rows. With a filter, ``z`` has the rows in its precision. ``labels`` (n,) has
    the cluster of each row, and ``totals`` (n,) the total from the row to its center.
    ``starts`` (k + 1,), int64, has the start of each cluster.
    """
    order = cupy.arange(len(x), dtype=cupy.int32)
    if layout.tiles is not None and len(x):
        order = BUILDER.order(
            x, cast(KdCuts, layout.tiles).first(len(x), SIDE, CUTS), SIDE, *KD_PARTS
        )
    y = cupy.ascontiguousarray(x[order])
    labels, totals = labelled(y, layout)
    places = cupy.argsort(labels.astype(cupy.int64) * len(x) + cupy.arange(len(x)))
    labels, numbers = (
        labels[places],
        cupy.arange(len(layout.centers) + 1, dtype=cupy.int32),
    )
    index = {
        "order": order[places].astype(cupy.int32),
        "y": cupy.ascontiguousarray(y[places]),
        "labels": labels,
        "totals": totals[places],
        "starts": cupy.searchsorted(labels, numbers).astype(cupy.int64),
    }
    if layout.bounds is None:
        return index
    return index | {"z": cupy.ascontiguousarray(filtered(index["y"], layout.bounds))}


def _kernels(
    q: Index, d: Index, layout: KMeansLayout, is_self_join: bool, rows: Rows | None
) -> Iterator[OneKernel]:
    """Yield one kernel for each result of `lists`."""
    if is_none(q, d, rows):
        return
    for given in lists(q, d, layout, is_self_join, rows):
        if given.items is None or len(given.items):
            yield OneKernel(partial(KMeansLaunch.of, given))


def batches(
    q: Index,
    d: Index,
    layout: KMeansLayout,
    *,
    is_self_join: bool,
    rows: Rows | None = None,
    max_pairs: int | None = None,
) -> Iterator[PairBatch]:
    decided = refused = 0
    for kernel in _kernels(q, d, layout, is_self_join, rows):
        earlier = decided, refused
        for found in kernel.batches(
            q, d, layout, is_self_join=is_self_join, rows=rows, max_pairs=max_pairs
        ):
            decided, refused = earlier[0] + found.decided, earlier[1] + found.refused
            yield replace(found, decided=decided, refused=refused)


def count(
    q: Index,
    d: Index,
    layout: KMeansLayout,
    *,
    is_self_join: bool,
    both: bool = True,
    rows: Rows | None = None,
) -> list[Array]:
    counts = [
        cupy.zeros(len(side["y"]), cupy.int64)
        for side in ((q,) if is_self_join else (q, d))
    ]
    for kernel in _kernels(q, d, layout, is_self_join, rows):
        more = kernel.count(
            q, d, layout, is_self_join=is_self_join, both=both, rows=rows
        )
        counts = [one + other for one, other in zip(counts, more, strict=True)]
    return counts


def pass_to(
    sink: Sink,
    q: Index,
    d: Index,
    layout: KMeansLayout,
    arguments: Sequence[Array | int],
    *,
    is_self_join: bool,
    nodes_64: bool = False,
    rows: Rows | None = None,
) -> None:
    for kernel in _kernels(q, d, layout, is_self_join, rows):
        kernel.pass_to(
            sink,
            q,
            d,
            layout,
            arguments,
            is_self_join=is_self_join,
            nodes_64=nodes_64,
            rows=rows,
        )


def layout_stats(index: Index, layout: KMeansLayout) -> Numbers:
    """Return the counters of a self-join. They have the same values as on CPUs."""
    own = (index["starts"][1:] - index["starts"][:-1]).get()
    compared = copies = 0
    for given in lists(index, index, layout, True):
        sizes = (given.starts[1:] - given.starts[:-1]).get()
        met = (given.member_starts[1:] - given.member_starts[:-1]).get()
        compared += int(
            (sizes * (sizes - 1) // 2 if given.later else sizes * met).sum()
        )
        copies += int(sizes.sum()) if given.items is not None else 0
        if given.by_row is not None:
            copies -= int(own[given.first : given.first + len(sizes)].sum())
    return {
        "candidates": compared,
        "copies": copies,
        "clusters": int(np.count_nonzero(own)),
        "largest_cluster": int(own.max()),
    }
