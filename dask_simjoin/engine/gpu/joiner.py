"""Join chunks of CuPy arrays with CUDA kernels, and measure such joins; needs no cuDF."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from dask_simjoin.catalog import Method, choose, options_of
from dask_simjoin.engine.base import Counters, compared_ratio, method_module
from dask_simjoin.engine.compat import count_up
from dask_simjoin.engine.gated import GatedLayout, every_column
from dask_simjoin.engine.gpu import components, dense_boxes, load, nearest, tiles
from dask_simjoin.engine.gpu import pairs as gpu_pairs
from dask_simjoin.engine.gpu.gated import method_for
from dask_simjoin.engine.gpu.pairs import (
    AT_ONCE,
    LIBRARY,
    GpuLayout,
    LayoutStats,
    Profiled,
    count_batches,
    finish,
    finishing,
    method_of,
)
from dask_simjoin.engine.gpu.sources import Sink, norm_constant
from dask_simjoin.engine.index.gpu import DeviceLayout, NearestDeviceLayout
from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import (
    Kept,
    Measured,
    MethodSearch,
    Pairs,
    Rows,
    SearchMethod,
    Visitor,
)
from dask_simjoin.metrics.norms import Array, Index, Norm


class GpuJoiner:
    """See `Joiner`.

    Attributes
    ----------
    built : int
        Number of indexes that this process has built. Tests check that it is one per
        chunk, even if many tasks use the index.
    """

    xp = cupy

    def __init__(self) -> None:
        self.built = 0
        self._lock = threading.Lock()

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
    ) -> GpuLayout:
        name = choose(method, len(lower), LIBRARY)
        options = options_of(method, name)
        return method_of(name).layout(
            options, lower, upper, mean, variance, threshold, norm, sample
        )

    def build(
        self,
        x: Array,
        layout: GpuLayout | NearestDeviceLayout | MethodSearch | dense_boxes.BoxLayout,
        threads: int = 1,
    ) -> Index:
        with self._lock:
            self.built += 1
        if isinstance(layout, MethodSearch):
            search: SearchMethod = method_module(layout.method, LIBRARY)
            return search.build_nearest(x)
        if isinstance(layout, NearestDeviceLayout):
            return nearest.build(x, layout)
        if isinstance(layout, dense_boxes.BoxLayout):
            return dense_boxes.build(x, layout)
        # compiles in another thread while the index is built
        load.begin(finishing(layout, "name_pairs", x, labels=True))
        return method_for(layout).build(x, layout)

    def points(self, index: Index, layout: GpuLayout) -> Array:
        if isinstance(layout, GatedLayout):
            return every_column(index["y"], index["values"])
        return index["y"]

    def pairs(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        *,
        is_self_join: bool,
        distance: Measured | None = None,
        labels: tuple[Array, Array] | None = None,
        rows: Rows | None = None,
        kept: Kept | None = None,
    ) -> Pairs:
        return gpu_pairs.labelled_pairs(
            method_for(layout),
            q,
            d,
            layout,
            is_self_join=is_self_join,
            distance=distance,
            labels=labels,
            rows=rows,
            kept=kept,
        )

    def visit(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        visitor: Visitor,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        for found in method_for(layout).batches(
            q, d, layout, is_self_join=is_self_join, rows=rows, max_pairs=AT_ONCE
        ):
            n = len(found.places)
            if n and found.totals is not None:
                left, right = found.places.T
                visitor(q["order"][left], d["order"][right], found.totals)
            elif n:
                shown = (
                    cupy.empty(n, cupy.int32),
                    cupy.empty(n, cupy.int32),
                    cupy.empty(n),
                )
                sides = q["order"], d["order"], q["y"], d["y"]
                finish(layout, "measure_pairs", q["y"], labels=False)(
                    *load.shape_of(n), (found.places, np.uint64(n), *sides, *shown)
                )
                visitor(*shown)

    def connect(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        parent: Array,
        taking: tuple[Array, Array],
        offset: int,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        method_for(layout).pass_to(
            Sink.LINK,
            q,
            d,
            layout,
            [*taking, parent, offset],
            is_self_join=is_self_join,
            nodes_64=parent.dtype == cupy.int64,
            rows=rows,
        )

    def link(self, parent: Array, left: Array, right: Array) -> None:
        components.link(parent, left, right)

    def roots(self, parent: Array, threads: int = 1) -> None:
        n = len(parent)
        if n:
            components.run(parent, "tie_to_roots", n, parent, np.int64(n))

    def numbers(
        self, parent: Array, rows: tuple[Array, Array] | None = None, threads: int = 1
    ) -> Array:
        n = len(parent)
        found, none = cupy.empty(n, cupy.int64), np.uint64(0)
        if not n:
            return found
        taking = least = none
        if rows is not None:
            taking, order = (cupy.ascontiguousarray(some) for some in rows)
            least = self.least_rows(parent, order)
        marks, rows_of_sets = cupy.zeros(n, cupy.int64), (parent, taking, least)
        components.run(parent, "mark_sets", n, *rows_of_sets, np.int64(n), marks)
        ends = cupy.cumsum(marks), np.int64(n)
        components.run(parent, "number_sets", n, *rows_of_sets, *ends, found)
        return found

    def least_rows(self, parent: Array, order: Array, threads: int = 1) -> Array:
        order = cupy.ascontiguousarray(order)
        n, least = len(order), cupy.empty_like(order)
        if n:
            least.data.copy_from_device_async(order.data, order.nbytes)
            components.run(parent, "least_rows", n, parent, order, np.int64(n), least)
        return least

    def foresee(
        self,
        layout: GpuLayout,
        *,
        shown: bool = False,
        counted: bool = False,
        connected: bool = False,
    ) -> None:
        if shown:
            load.begin(finishing(layout, "measure_pairs", labels=False))
        if connected:
            load.begin(components.program("mark_sets"))
        if isinstance(layout, DeviceLayout):
            tiles.foresee(layout, counted, connected)

    def ranged(self, layout: GpuLayout) -> None:
        return None

    def lowest(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        labels: tuple[Array, Array],
        low: tuple[Array, Array],
        *,
        is_self_join: bool,
        rows: Rows | None = None,
    ) -> None:
        method_for(layout).pass_to(
            Sink.LOWEST,
            q,
            d,
            layout,
            [*labels, *low],
            is_self_join=is_self_join,
            rows=rows,
        )

    def counts(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        *,
        is_self_join: bool,
        enough: int | None = None,
        rows: Rows | None = None,
    ) -> list[Array]:
        by_position = []
        found = method_for(layout).count(
            q, d, layout, is_self_join=is_self_join, rows=rows
        )
        for side, count in zip((q, d), found, strict=False):
            out = cupy.empty_like(count)
            out[side["order"]] = count
            by_position.append(out)
        return by_position

    def weights(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        *,
        is_self_join: bool,
        enough: int | None = None,
        rows: Rows | None = None,
    ) -> Array:
        found = method_for(layout).count(
            q, d, layout, is_self_join=is_self_join, both=False, rows=rows
        )[0]
        return found if rows is None else found[slice(*rows)]

    def tally(
        self,
        q: Index,
        d: Index,
        layout: GpuLayout,
        limits: np.ndarray,
        *,
        is_self_join: bool,
        by_row: bool,
        rows: Rows | None = None,
    ) -> list[Array]:
        many, device = len(limits), cupy.asarray(limits)
        sides = (q,) if is_self_join else (q, d)
        sizes = [len(side["order"]) for side in sides] if by_row else [1]
        found = [cupy.zeros(n * many, cupy.int64) for n in sizes]

        def add(left: Array, right: Array, totals: Array) -> None:
            # for each pair, the smallest limit that its total does not exceed
            steps = cupy.searchsorted(device, totals)
            if not by_row:
                count_up(found[0], steps)
                return
            for places, numbers in ((left, found[0]), (right, found[-1])):
                count_up(numbers, places.astype(cupy.int64) * many + steps)

        self.visit(q, d, layout, add, is_self_join=is_self_join, rows=rows)
        return [cupy.cumsum(numbers.reshape(-1, many), axis=1) for numbers in found]

    def work(
        self, q: Index, d: Index, layout: GpuLayout, *, is_self_join: bool
    ) -> np.ndarray:
        # all parts have equal work, because kernels spread the pairs of a self-join
        # evenly over the queries
        return np.ones(1)

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
        if mutual:
            own, rows, needing = self.regions(
                x, regions, reach, threshold, norm, everywhere=True
            )
            others = own[rows] != needing
            return own, rows[others], needing[others]
        x = cupy.asfortranarray(x)
        n = len(x)
        own = cupy.empty(n, cupy.int64)
        if not n:
            return own, own, own
        dim, split, child, middle, lower, upper = (
            cupy.asarray(a) for a in regions.arrays
        )
        shape = load.shape_of(n)
        points = (x, np.int64(n), np.int64(n), dim, split, child)
        # round up to a multiple of 8, so that few kernels are compiled
        depth = -(-(regions.depth + 2) // 8) * 8
        constants = {"DIMS": x.shape[1], "EXACT": True, "DEPTH": depth} | norm_constant(
            norm
        )
        load.kernel("regions", "own_regions", **constants)(
            *shape, (*points, np.int64(len(dim)), own)
        )
        halo = load.kernel("regions", "halo_regions", **constants)
        if everywhere and len(regions) == 1:  # a single region has no tree to descend
            return own, cupy.arange(n), own
        until = cupy.full(n, len(regions), cupy.int64) if everywhere else own
        limits = (middle, lower, upper, until, np.float64(reach), np.float64(threshold))
        begin = cupy.empty(n, cupy.int64)
        none = np.uint64(0)
        halo(*shape, (*points, *limits, begin, none, none))
        ends = cupy.cumsum(begin)
        begin = ends - begin
        rows, needing = (cupy.empty(int(ends[-1]), cupy.int64) for _ in range(2))
        if len(rows):
            halo(*shape, (*points, *limits, begin, rows, needing))
        return own, rows, needing


JOINER = GpuJoiner()


class _Steps:
    """Measures the time of each step, in seconds, and waits for its kernels to end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def time(self, name: str, step: Callable[[], Any]) -> Any:
        cupy.cuda.get_current_stream().synchronize()
        begin = time.perf_counter()
        done = step()
        cupy.cuda.get_current_stream().synchronize()
        self.seconds[name] = time.perf_counter() - begin
        return done


class GpuProfiler:
    """See `Profiler`."""

    def profile(self, x: Array, layout: GpuLayout) -> Counters:
        if not len(x):
            return Counters({"pairs": 0.0}, {})
        # compiles all kernels, so that the second run measures only the join
        # a first join of few points compiles the kernels, and is not timed
        self._run(x[:1000], layout)
        return self._run(x, layout)

    def _run(self, x: Array, layout: GpuLayout) -> Counters:
        steps, method = _Steps(), method_of(layout.method)
        index = steps.time("index", lambda: method.build(x, layout))
        if isinstance(method, Profiled):
            numbers = method.profile_join(index, layout, steps.time)
        else:
            numbers = steps.time(
                "join",
                lambda: count_batches(
                    method.batches(index, index, layout, is_self_join=True)
                ),
            )
        if isinstance(method, LayoutStats):
            numbers |= method.layout_stats(index, layout)
        numbers["selectivity"] = 2 * numbers["pairs"] / len(x)
        return Counters(numbers | compared_ratio(numbers, len(x)), steps.seconds)


PROFILER = GpuProfiler()
