"""Joins chunks of CuPy arrays: CUDA kernels; needs no cuDF."""

from __future__ import annotations

import threading
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu import launch as gpu_engine
from dask_simjoin.engine.gpu import pairs as gpu_pairs
from dask_simjoin.engine.gpu.kdorder import kd_order
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import norm_constant
from dask_simjoin.engine.gpu.pairs import finish, shape_of
from dask_simjoin.engine.index import gpu as device
from dask_simjoin.engine.index import gpu_nearest as device_nearest
from dask_simjoin.engine.index.gpu import MAX_DIMS, DeviceLayout, make_device_layout
from dask_simjoin.engine.index.gpu_nearest import NearestDeviceLayout
from dask_simjoin.engine.index.regions import Regions
from dask_simjoin.engine.protocols import Measured, Pairs, Visitor
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Index

VISITED = 1 << 24
"""Pairs that are shown to a visitor at a time, at most."""


def _components(parent: Any, function: str) -> Any:
    wide = parent.dtype == cupy.int64
    return load.kernel("components", function, DIMS=1, EXACT=True, NODES_64=wide)


class GpuJoiner:
    """See `Joiner`.

    Attributes
    ----------
    built : int
        How many indexes this process has built: each chunk's is built once, whatever tasks meet it.
    """

    xp = cupy
    methods: tuple[str, ...] = ("auto", "tiles")
    max_dims: int | None = MAX_DIMS

    def __init__(self) -> None:
        self.built = 0
        self._lock = threading.Lock()

    def layout(self, method: str, lower: Any, upper: Any, mean: Any, variance: Any,
               threshold: float, norm: Norm = 2) -> DeviceLayout:  # fmt: skip
        # of this process's GPU; all of a cluster's are taken to be alike
        shared = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
        return make_device_layout(lower, upper, mean, variance, threshold, shared=shared, norm=norm)

    def build(self, x: Any, layout: DeviceLayout | NearestDeviceLayout) -> Index:
        with self._lock:
            self.built += 1
        if isinstance(layout, NearestDeviceLayout):
            return device_nearest.build(x, layout, cupy, kd_order)
        return device.build(x, layout, cupy, kd_order)

    def pairs(self, q: Index, d: Index, layout: DeviceLayout, *, same: bool, distance: Measured | None = None,
              labels: tuple[Any, Any] | None = None,
              rows: tuple[int, int] | None = None, kept: Any = None) -> Pairs:  # fmt: skip
        return gpu_pairs.labelled_pairs(
            q, d, layout, same=same, distance=distance, labels=labels, rows=rows, kept=kept
        )

    def visit(self, q: Index, d: Index, layout: DeviceLayout, visitor: Visitor, *, same: bool,
              rows: tuple[int, int] | None = None) -> None:  # fmt: skip
        function = finish(layout, "measure_pairs", labels=False)
        for found in gpu_engine.batches(q, d, layout, same=same, rows=rows, most=VISITED):
            n = len(found.places)
            if n:
                away = cupy.empty(n)
                function(*shape_of(n), (found.places, np.uint64(n), q["y"], d["y"], away))
                visitor(q["order"][found.places[:, 0]], d["order"][found.places[:, 1]], away)

    def connect(self, q: Index, d: Index, layout: DeviceLayout, parent: Any, taking: tuple[Any, Any],
                offset: int, *, same: bool) -> None:  # fmt: skip
        arguments = [*taking, parent, offset]
        wide = parent.dtype == cupy.int64
        gpu_engine.pass_to(gpu_engine.LINK, q, d, layout, arguments, same=same, nodes_64=wide)

    def link(self, parent: Any, left: Any, right: Any) -> None:
        if len(left):
            sides = (cupy.ascontiguousarray(side, cupy.int64) for side in (left, right))
            _components(parent, "link_edges")(*shape_of(len(left)), (*sides, np.int64(len(left)), parent))

    def roots(self, parent: Any) -> None:
        if len(parent):
            _components(parent, "tie_to_roots")(*shape_of(len(parent)), (parent, np.int64(len(parent))))

    def lowest(self, q: Index, d: Index, layout: DeviceLayout, labels: tuple[Any, Any],
               low: tuple[Any, Any], *, same: bool) -> None:  # fmt: skip
        gpu_engine.pass_to(gpu_engine.LOWEST, q, d, layout, [*labels, *low], same=same)

    def counts(self, q: Index, d: Index, layout: DeviceLayout, *, same: bool) -> Any:
        by_position = []
        found = gpu_engine.count(q, d, layout, same=same)
        for side, count in zip((q, d), found, strict=False):
            out = cupy.empty_like(count)
            out[side["order"]] = count
            by_position.append(out)
        return by_position

    def weights(self, q: Index, d: Index, layout: DeviceLayout, *, same: bool) -> Any:
        return gpu_engine.count(q, d, layout, same=same, both=False)[0]

    def regions(self, x: Any, regions: Regions, reach: float, threshold: float,
                norm: Norm = 2, *, everywhere: bool = False) -> tuple[Any, Any, Any]:  # fmt: skip
        x = cupy.asfortranarray(x)
        n = len(x)
        own = cupy.empty(n, cupy.int64)
        if not n:
            return own, own, own
        dim, split, child, middle, lower, upper = (cupy.asarray(a) for a in regions.arrays)
        shape = shape_of(n)
        points = (x, np.int64(n), np.int64(n), dim, split, child)
        constants = {"DIMS": x.shape[1], "EXACT": True, "DEPTH": regions.depth + 2} | norm_constant(norm)
        load.kernel("regions", "own_regions", **constants)(*shape, (*points, np.int64(len(dim)), own))
        halo = load.kernel("regions", "halo_regions", **constants)
        if everywhere and len(regions) == 1:  # whose tree has no node to start from
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
