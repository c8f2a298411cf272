"""Find the density clusters of one chunk by grid cells.

Most cells are so small that all their points are near each other.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
from collections.abc import Callable

import numpy as np

from dask_simjoin.engine.cpu.kernels import cells as kernels
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sweep import build_grid, column_bounds
from dask_simjoin.engine.index import grids
from dask_simjoin.engine.index.grids import REACH, CellLayout, make_cells, runs, serves
from dask_simjoin.engine.process import shared_out, threads_for, together
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Index, reach
from dask_simjoin.sizes import IN_CACHE, MIN_PART

NO_LABEL = np.iinfo(np.int64).max
"""Label of a point that is not near any core point."""


def build(x: np.ndarray, layout: CellLayout, threads: int = 1) -> Index:
    """Index points (n, d), n > 0, as `index.grids.build` does, but each row of the grid
    is one cell.
    """
    x = np.asfortranarray(x)
    bounds = column_bounds(x, range(x.shape[1]), threads)
    grid = make_cells(bounds[0], bounds[1], layout)
    return build_grid(x, grid, bounds, threads) | {"bounds": bounds}


FILLED = (0.1, 0.1, 0.1, 0.05)
"""Clusters are found by cells if there are at most this many non-empty cells per point.

This limit holds for any `min_samples`. The four values are for 1 to 4 dimensions. They
were measured with 300,000 points, like `FILLED_BY_CORES`.
"""

FILLED_BY_CORES = (0.1, 0.25, 0.46, 0.15)
"""Used instead of `FILLED` if the cell of an average point has at least `min_samples` /
4.5 points.
"""


def layout_of(
    x: np.ndarray, joined: Layout, min_samples: int, threads: int
) -> CellLayout | None:
    """Return the settings of cells for points `x` (n, d); None: the join `joined` is
    faster.
    """
    layout = CellLayout(joined.threshold, joined.norm)
    return layout if worthwhile(x, layout, min_samples, threads) else None


def worthwhile(
    x: np.ndarray, layout: CellLayout, min_samples: int, threads: int = 1
) -> bool:
    """Estimate whether finding clusters of points (n, d) by cells is faster than
    finding them by a join.

    The sample consists of whole cells, with all their points, so it shows how full the
    cells are.
    """
    n, dims = x.shape
    if not n or not serves(dims, layout.norm):
        return False
    x = np.asfortranarray(x)
    lower, upper = column_bounds(x, range(dims), threads)
    grid = make_cells(lower, upper, layout)
    # sample at most half of the cells, with about `MIN_PART` points
    bits = max(1, (n // MIN_PART).bit_length())
    rows = [
        np.array(part) for part in (grid.dims, grid.origin, grid.width, grid.strides)
    ]

    def sample(start: int, stop: int) -> np.ndarray:
        found = np.empty((stop - start >> bits) * 4 + 64, np.int64)
        keys = np.empty(IN_CACHE, np.int64)
        number = kernels.sample_cells(
            x, *rows, grid.scale, bits, start, stop, keys, found
        )
        return found[:number]

    keys = np.concatenate(shared_out(sample, n, threads))
    number, sizes = len(keys), np.unique(keys, return_counts=True)[1]
    # if cells have many points, neighboring cells decide most points without distances
    filled = min_samples * number <= 4.5 * float(sizes @ sizes)
    return len(sizes) <= (FILLED_BY_CORES if filled else FILLED)[dims - 1] * number


class DensityClusters:
    """Find density clusters in three steps, in this order: `cores`, `components`,
    `borders`.

    All arrays are in index order. `index`: see `build`; `threads`: number of threads
    that share the work.
    """

    def __init__(self, index: Index, layout: CellLayout, threads: int = 1) -> None:
        self._all = index
        self._grid = make_cells(index["bounds"][0], index["bounds"][1], layout)
        self._near = float(layout.threshold), kind_of(layout.norm)
        self._reach = float(reach(layout.norm, layout.threshold))
        self._offsets, _ = runs(self._grid, half=False)
        cells = len(index["keys"])
        n = len(index["order"]) - SWEEP_LANES
        self._threads = threads_for(n, threads, MIN_PART)
        # 8 parts per thread, because some take longer than others
        points = max(MIN_PART, n // (self._threads * 8))
        cuts = np.searchsorted(index["starts"], np.arange(points, n, points))
        self._parts = [
            (a, b)
            for a, b in itertools.pairwise(np.unique([0, *cuts, cells]).tolist())
            if b > a
        ]
        self._boxes = self._bounds(index)

    def cores(self, min_samples: int) -> np.ndarray:
        """Return a mask of core points (n,). A core point has `min_samples` near
        points, counting itself.
        """
        index, n = self._all, len(self._all["order"]) - SWEEP_LANES
        counts, core = np.empty(n, np.int32), np.empty(n, bool)
        enough = min(min_samples, n + 1)
        self._share(
            lambda begin, end: kernels.find_cores(
                self._cells(index),
                self._boxes,
                self._runs(begin, self._offsets),
                *self._near,
                enough,
                begin,
                end,
                counts,
                core,
            )
        )
        self._set_cores(core)
        return core

    def components(self) -> np.ndarray:
        """Return the smallest place in the component of each core point (n,), int32.

        A point that is not a core point gets its own place.
        """
        index, places, boxes = self._core_index, self._places, self._core_boxes
        all_near, starts = boxes[2], index["starts"]
        parent = np.empty(len(places), np.int32)
        self._share(
            lambda begin, end: kernels.tie_cells(
                index["cols"], starts, all_near, *self._near, begin, end, parent
            )
        )
        offsets, nearest = runs(self._grid, half=True)
        roots = np.arange(len(index["keys"]), dtype=np.int32)

        def connect(some: np.ndarray, begin: int, end: int) -> None:
            kernels.connect(
                self._cells(index),
                boxes,
                self._grid.sweep,
                self._runs(begin, some),
                self._reach,
                *self._near,
                begin,
                end,
                roots,
                parent,
            )

        for some in (offsets[:nearest], offsets[nearest:]):
            self._share(functools.partial(connect, some))
            self._share(
                lambda begin, end: kernels.roots_of_cells(
                    starts, parent, begin, end, roots
                )
            )
        out = np.arange(len(self._all["order"]) - SWEEP_LANES, dtype=np.int32)
        self._share(
            lambda begin, end: kernels.roots_of_points(
                starts, all_near, parent, places, begin, end, out
            )
        )
        return out

    def borders(self, labels: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Return the places of border points, ascending, and for each the lowest label
        of the core points near it.

        The result is empty if there are no border points.

        A border point is near a core point, but is not a core point. `labels` (n,),
        int64: labels of core points, and -1 for other points.
        """
        if len(self._places) in (0, len(labels)):
            return ()
        found, own = np.empty_like(labels), np.empty(len(self._places), np.int64)
        index, core = self._core_index, self._core
        lowest = np.empty(len(index["keys"]), np.int64)
        starts, every = index["starts"], self._all["starts"]
        parts = dict[int, np.ndarray]()

        def label_cells(begin: int, end: int) -> None:
            some = slice(starts[begin], starts[end])
            own[some] = labels[self._places[some]]
            kernels.lowest_labels(starts, own, begin, end, lowest)

        def label_borders(begin: int, end: int) -> None:
            first, last = every[begin], every[end]
            found[first:last] = NO_LABEL
            kernels.lower(
                self._cells(self._all),
                core,
                self._cells(index),
                self._core_boxes,
                own,
                lowest,
                self._runs(begin, self._offsets),
                *self._near,
                begin,
                end,
                found,
            )
            parts[begin] = np.flatnonzero(found[first:last] < NO_LABEL) + first

        self._share(label_cells)
        self._share(label_borders)
        places = np.concatenate([parts[begin] for begin in sorted(parts)])
        return ((places, found[places]),)

    def _set_cores(self, core: np.ndarray) -> None:
        self._core, self._core_index, self._core_boxes = core, self._all, self._boxes
        if core.all():
            self._places = np.arange(len(core), dtype=np.int32)
            return
        self._places = np.flatnonzero(core).astype(np.int32)
        self._core_index = grids.chosen(
            self._all, self._places, SWEEP_LANES, self._threads
        )
        self._core_boxes = self._bounds(self._core_index)

    def _cells(self, index: Index) -> kernels.Cells:
        return kernels.Cells(index["cols"], index["keys"], index["starts"])

    def _bounds(self, index: Index) -> kernels.CellBoxes:
        cells = len(index["keys"])
        low, high = np.empty((2, cells, len(index["cols"])))
        all_near = np.empty(cells, bool)
        self._share(
            lambda begin, end: kernels.bound(
                index["cols"],
                index["starts"],
                *self._near,
                begin,
                end,
                low,
                high,
                all_near,
            )
        )
        return kernels.CellBoxes(low, high, all_near)

    def _runs(self, begin: int, offsets: np.ndarray) -> kernels.Runs:
        """Return the runs of the cells from `begin` on."""
        keys = self._all["keys"]
        first = np.searchsorted(keys, keys[begin] + offsets - REACH)
        return kernels.Runs(offsets, first)

    def _share(self, work: Callable[[int, int], object]) -> None:
        """Run `work(begin, end)` for all parts of the cells.

        A thread that has finished a part takes the next one.
        """
        parts = collections.deque(self._parts)

        def some() -> None:
            # raised by `popleft` when no part is left
            with contextlib.suppress(IndexError):
                while True:
                    work(*parts.popleft())

        together([some] * min(self._threads, len(self._parts)))
