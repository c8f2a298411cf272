"""What rounds of trees search on the GPU: tiles of an index, or of its rows put together by component."""

from __future__ import annotations

import cupy
import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu import boruvka
from dask_simjoin.engine.gpu.arrays import full, numbers, take
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.index.gpu_nearest import NearestDeviceLayout
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.types import Array, Index

WARPS = 4
"""Of a block of threads of `spanning.cu`."""

NOWHERE = np.uint64(0)
"""The address of what a kernel does not use."""


class Side:
    """One index, as what is searched in, and from: its float32 tiles are made if it has none.

    Attributes
    ----------
    rows, first : int
        How many rows, and the first node.
    y : array (rows, d), float64
        The points, in the index's order.
    nodes, points, core, names : array
        What is searched, in tiles: rows' nodes, their points, core distances and names.
    """

    def __init__(self, index: Index, layout: NearestDeviceLayout, first: int) -> None:
        self.rows, self.first, self.y = len(index["names"]), first, index["y"]
        self._bounds = layout.bounds
        self.nodes = numbers(first, self.rows)
        self._boxes = index if "z" in index else {}

    def arrange(self, core: Array, names: Array) -> None:
        """Make what is searched; `core`, `names`: of nodes."""
        if not self.rows:
            return
        self.points = self.y
        if not self._boxes:
            self.points = BUILDER.rows(self.y, self.nodes - self.first if self.first else self.nodes)
            self._boxes = BUILDER.boxed(self.points, self._bounds, TILE, True)
        self.core, self.names = take(core, self.nodes), take(names, self.nodes)
        self.levels = to_host(self._boxes["levels"])
        self.cores = boruvka.least_of_boxes(self.core, self.levels, TILE)
        self.least = boruvka.least_names(self.names, TILE)
        self.tags = full(int(self.levels[-1]) * TILE, -1, cupy.int32)
        self._balls = self._make_balls()

    def _make_balls(self) -> tuple[Array | np.uint64, Array | np.uint64]:
        """Make middles and radii of tiles, where there is a filter."""
        if self._bounds is None:
            return NOWHERE, NOWHERE
        z = self._boxes["z"]
        tiles, dims, _ = z.shape
        middle, radius = cupy.empty((tiles, dims), cupy.float32), cupy.empty(tiles, cupy.float32)
        function = load.kernel("spanning", "tile_balls", DIMS=dims, EXACT=False)
        blocks = min(-(-tiles // WARPS), 1 << 16)
        function((blocks,), (32 * WARPS,), (z, np.int32(tiles), middle, radius))
        return middle, radius

    def group(self, component: Array, core: Array) -> None:
        """Put rows of one component together, those of small core distances first."""
        nodes = take(self.nodes, cupy.argsort(take(core, self.nodes)))
        self.take(take(nodes, cupy.argsort(take(component, nodes), kind="stable")))

    def take(self, nodes: Array) -> None:
        """Take all rows in an order of their own: they are to be arranged anew."""
        self.nodes, self._boxes = nodes, {}

    def tagged(self, component: Array) -> Array:
        """Tell boxes what components are below them; those of the points."""
        own = take(component, self.nodes)
        boruvka.tag_boxes(own, self.levels, TILE, self.tags)
        return own

    def searched(self, component: Array) -> list[Array | np.generic]:
        """List what kernels are given of it; `component`: of the points."""
        boxes = (self._boxes[name] for name in ("z", "lower", "upper", "levels"))
        z, *tree = boxes
        return [
            z, self.points, *tree, np.int32(len(self.levels) - 1), self.least, self.tags, self.cores,
            component, self.core, self.names, self.nodes, np.int32(self.rows), *self._balls,
        ]  # fmt: skip
