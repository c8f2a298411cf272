"""Search nearest neighbors on the GPU; needs CuPy, but no cuDF."""

from __future__ import annotations

import math
from typing import Any

import cupy
import numpy as np

from dask_simjoin.catalog import AUTO, Method
from dask_simjoin.engine.base import method_module, search_layout_of
from dask_simjoin.engine.filters import float16 as half
from dask_simjoin.engine.gpu import arrays, load, row_search
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.pairs import LIBRARY
from dask_simjoin.engine.gpu.sources import FANOUT, norm_constant
from dask_simjoin.engine.index import gpu as device_nearest
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.engine.index.gpu import (
    NearestDeviceLayout,
    make_nearest_device_layout,
)
from dask_simjoin.engine.protocols import MethodSearch, SearchMethod
from dask_simjoin.metrics.inverse import roots
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.sizes import BUFFER_SHARE

WARPS, TENSOR_WARPS = 4, 8

BLOCKS = 2
"""Number of thread blocks that must fit into a multiprocessor's shared memory.

Otherwise lists of neighbors are not kept in shared memory.
"""

PART = FANOUT * half.TILE
"""Parts of queries begin at multiples of this number of points.

There, a group of tiles begins for either tile size.
"""


def _convert_some() -> None:
    """Run the array operations that follow a search on little data, to load their
    kernels early.
    """
    totals, names = GpuSearcher.fresh(2, 2)
    last = totals[:, 1]
    cupy.where(cupy.isinf(last), last, roots(last.copy(), cupy, None))
    int(names.max()), int(names.min())
    names[:2] = cupy.arange(2)[:, None]


def build(x: Array, layout: NearestDeviceLayout) -> Index:
    """Return the index of a chunk's points (n, d), float64, for searches."""
    # compile while the index is built: guess that lists fit into shared memory, as in
    # most searches
    if layout.has_boxes:
        load.begin(_program(layout, lists=True), arrays.program("fill_8"))
    else:
        load.begin(*row_search.programs(layout), arrays.program("fill_8"))
    return device_nearest.build_nearest(x, layout, BUILDER)


def _program(layout: NearestDeviceLayout, lists: bool) -> load.Program:
    """Return the program of a search; `lists`: whether neighbors are kept in shared
    memory.
    """
    constants = {"DIMS": layout.dims, "LISTS": lists}
    if layout.engine == "float16":
        more = {"EXACT": False, "WIDTH": half.width(layout.dims), "ROWS": 32}
        return "nearest_tensor", "search_tensor", constants | more
    more = {"EXACT": layout.engine == "float64", "ROWS": TILE}
    return "nearest", "search_tiles", constants | more | norm_constant(layout.norm)


def _shared() -> int:
    """Return the shared memory in bytes that one block can use."""
    return int(cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def _tiles_bytes(layout: NearestDeviceLayout, levels: int, listed: int) -> int:
    """Return the shared memory in bytes of a block of `nearest.cu`.

    `levels`: levels of the tree of boxes; `listed`: number of neighbors per query in
    shared memory.
    """
    size = 8 if layout.engine == "float64" else 4
    # 16 candidates per query wait before they enter the list of neighbors
    return WARPS * TILE * (levels * (size + 4) + 16 * 4 + listed * 16)


class GpuSearcher:
    """See `Searcher`."""

    grain = PART

    @staticmethod
    def layout(
        lower: Array,
        upper: Array,
        mean: Array,
        variance: Array,
        sample: Array,
        norm: Norm = 2,
        method: str | Method = AUTO,
        approximate: bool = False,
    ) -> NearestDeviceLayout | MethodSearch:
        """Choose the layout from moments (d,) of all points and a sample, all on the
        host.
        """
        own = search_layout_of(
            method, LIBRARY, lower, upper, variance, norm, approximate
        )
        if own is not None:
            return own
        return make_nearest_device_layout(
            lower, upper, mean, variance, sample, shared=_shared(), norm=norm
        )

    @staticmethod
    def renamed(index: Index, names: Array | int) -> Index:
        """Return the index with other row ids: see `engine.index.gpu.relabelled`."""
        return device_nearest.relabelled(index, names, cupy)

    @staticmethod
    def prepare() -> None:
        """Start to load the kernels of the steps after searches: see `Searcher`."""
        load.rehearse(_convert_some)

    @staticmethod
    def fresh(rows: int, k: int, threads: int = 1) -> tuple[Array, Array]:
        """Return the neighbors of queries before any search: totals inf and ids -1,
        both (rows, k).
        """
        size = rows * k
        totals, names = arrays.full(size, np.inf), arrays.full(size, -1, np.int64)
        return totals.reshape(rows, k), names.reshape(rows, k)

    @staticmethod
    def at_once(k: int) -> int:
        """Return the maximum number of queries of one search for k neighbors, a
        multiple of `PART`.
        """
        # a neighbor takes 16 bytes, so one search takes 2 GiB at most
        return max(1, 2**27 // max(k, 1) // PART) * PART

    @staticmethod
    def part(index: Index, start: int, stop: int) -> Index:
        """Return the points start ... stop-1 of an index as queries; `start`: a
        multiple of `PART`.
        """
        return device_nearest.part(index, start, stop)

    @staticmethod
    def nearest(
        q: Index,
        d: Index,
        layout: NearestDeviceLayout | MethodSearch,
        best_d2: Array,
        best_name: Array,
        *,
        is_self_join: bool,
        bound2: float = math.inf,
    ) -> None:
        """Update the neighbors of the rows of `q` with the rows of `d`, in place: see
        `engine.cpu.nearest`.

        `best_d2`, `best_name`: C-contiguous arrays (rows, k) of totals and ids.
        """
        if isinstance(layout, MethodSearch):
            module: SearchMethod = method_module(layout.method, LIBRARY)
            module.nearest(
                q,
                d,
                layout,
                best_d2,
                best_name,
                is_self_join=is_self_join,
                bound2=bound2,
            )
            return
        k = best_d2.shape[1]
        if not (len(q["names"]) and len(d["names"]) and k):
            return
        tree = row_search.tree_of(d, layout, k)
        if tree is not None:
            state = best_d2, best_name
            row_search.search(q, d, tree, layout, *state, is_self_join, bound2)
            return
        own, data = q["y"] is d["y"], device_nearest.with_tiles(d, layout, BUILDER)
        q = data if q is d else device_nearest.with_tiles(q, layout, BUILDER)
        search = _tensor if layout.engine == "float16" else _tiles
        bounds = layout.bounds
        scale2, rho = (1.0, 0.0) if bounds is None else (bounds.scale**2, bounds.rho)
        limits = [np.float64(bound2), np.float64(scale2), np.float64(rho), np.int32(k)]
        found = [best_d2, best_name, cupy.zeros(1, cupy.uint32)]
        rest = [np.int32(is_self_join), np.int32(own), *limits, *found]
        search(q, data, layout, k, rest)


def _room(k: int) -> int:
    """Return the capacity of a query's list in scratch memory.

    It must agree with `room_of` in `nearest.cuh`.
    """
    return 2 * k + 32


def _launch(
    function: Any,
    warps: int,
    rows: int,
    units: int,
    shared: int,
    listed: int,
    arguments: list[Any],
) -> None:
    """Launch a search with as many blocks as the GPU can run, the work needs, and the
    memory allows.

    `rows`: queries per warp. `units`: number of query blocks to search. `listed`:
    capacity of each query's list in scratch memory, 0 if lists are in shared memory.
    """
    function.max_dynamic_shared_size_bytes = shared
    blocks = min(load.grid_size(function, 32 * warps, shared), units)
    size = warps * rows * listed * 16
    if listed:
        blocks = max(1, min(blocks, load.memory() // BUFFER_SHARE // size))
    scratch = cupy.empty(blocks * size // 8 if listed else 1)
    function((blocks,), (32 * warps,), (*arguments, scratch), shared_mem=shared)


def _tiles(
    q: Index, d: Index, layout: NearestDeviceLayout, k: int, rest: list[Any]
) -> None:
    """Search without tensor cores."""
    levels = len(d["levels"]) - 1
    lists = _tiles_bytes(layout, levels, k) <= _shared() // BLOCKS
    shared = _tiles_bytes(layout, levels, k if lists else 0)
    name, search, constants = _program(layout, lists)
    function = load.kernel(name, search, **constants)
    sides = [
        q["z"],
        q["y"],
        q["lower"],
        q["upper"],
        q["order"],
        q["names"],
        np.int32(len(q["y"])),
        d["z"],
        d["y"],
        d["lower"],
        d["upper"],
        d["levels"],
        np.int32(levels),
        d["least"],
        d["names"],
        np.int32(len(d["y"])),
    ]
    units = -(-len(q["y"]) // (TILE * WARPS))
    _launch(
        function, WARPS, TILE, units, shared, 0 if lists else _room(k), [*sides, *rest]
    )


def _tensor(
    q: Index, d: Index, layout: NearestDeviceLayout, k: int, rest: list[Any]
) -> None:
    # up to this width, two blocks run per multiprocessor: see `BLOCKS` in
    # nearest_tensor.cu
    blocks = BLOCKS if half.width(layout.dims) <= 48 else 1
    lists = half.shared_in_search(layout.dims, k) <= _shared() // blocks
    shared = half.search_bytes(layout.dims, k if lists else 0)
    name, search, constants = _program(layout, lists)
    function = load.kernel(name, search, **constants)
    sides = [
        q["vectors"],
        q["norm"],
        q["error"],
        q["y"],
        q["lower"],
        q["upper"],
        q["order"],
        q["names"],
        np.int32(len(q["y"])),
        d["vectors"],
        d["most_error"],
        d["y"],
        d["lower"],
        d["upper"],
        d["names"],
        np.int32(len(d["y"])),
    ]
    units = -(-len(q["y"]) // (2 * half.TILE))
    _launch(
        function,
        TENSOR_WARPS,
        32,
        units,
        shared,
        0 if lists else _room(k),
        [*sides, *rest],
    )


SEARCHER = GpuSearcher()
