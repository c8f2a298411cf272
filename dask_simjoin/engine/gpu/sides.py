"""Indexes that the searches of Boruvka's rounds run over on the GPU; needs CuPy, but no
cuDF.

There are two searches for the lightest edges of rows. In few dimensions each row
descends a binary tree of boxes on its own (`RowSide`). In more dimensions a row would
visit many boxes, and tiles of rows share their visits (`TileSide`). Both find the same
edges.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

import cupy
import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu import boruvka, load, row_search
from dask_simjoin.engine.gpu.arrays import full, numbers, take
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.load import NOWHERE
from dask_simjoin.engine.gpu.sources import LEAF, tree_search
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.engine.index.gpu import ROW_DIMS, NearestDeviceLayout
from dask_simjoin.metrics.norms import Array, Index

WARPS = 4
"""Warps per block of `spanning.cu` and `spanning_rows.cu`."""

Found = tuple[Array, Array, Array]
"""Rows that searched, as nodes, and the end and the weight of each row's lightest edge."""


def program(function: str, layout: NearestDeviceLayout) -> load.Program:
    """Return the program that compiles a function of the search that suits a layout."""
    name, constants = tree_search(layout.dims, layout.bounds is None, layout.norm)
    return name, function, constants


def warps_of_tile(tiles: int) -> int:
    """Return the number of warps that share a tile, a power of two; `tiles`: number of
    tiles that search.
    """
    # with fewer tiles than this, several warps share a tile, so that no warp is idle
    return 1 << min(
        TILE.bit_length() - 1, max(0, (2**13 // max(tiles, 1)).bit_length() - 1)
    )


class Known(Protocol):
    """Component, core distance and id of all nodes."""

    component: Array
    core: Array
    names: Array


class Side:
    """One index, prepared for searches.

    Attributes
    ----------
    rows, first : int
        Number of rows, and number of the first node. Nodes are the rows of both
        indexes, in kd order, numbered consecutively.
    y : array (rows, d), float64
        The points, in kd order.
    nodes : array (rows,), int32
        Node of each row, in the order of the search.
    """

    def __init__(self, index: Index, layout: NearestDeviceLayout, first: int) -> None:
        self.rows, self.first, self.y = len(index["names"]), first, index["y"]
        self.layout = layout
        self.nodes = numbers(first, self.rows)

    def arrange(self, known: Known) -> None:
        """Prepare the index for searches."""
        raise NotImplementedError

    def tag(self, component: Array) -> None:
        """Read the component of each row, and tag each box with the component that all
        its points share.
        """
        raise NotImplementedError

    def search(self, q: Any, places: Array, known: Known, bounds: Array) -> Found:
        """Search for the lightest edge of the rows of `q` at some places.

        `bounds`: bounds of components, as bits, which the search lowers.
        """
        raise NotImplementedError

    def _take(self, known: Known) -> None:
        """Read core distance and id of each row, in the order of `nodes`."""
        self.core = take(known.core, self.nodes)
        self.names = take(known.names, self.nodes)

    def _rows_at(self, nodes: Array) -> Array:
        return BUILDER.rows(self.y, nodes - self.first if self.first else nodes)


class RowSide(Side):
    """An index whose rows search one by one: see `spanning_rows.cu`."""

    def _run(self, name: str, items: int, *arguments: Any) -> None:
        file, function, constants = program(name, self.layout)
        blocks, threads = -(-items // (32 * WARPS)), 32 * WARPS
        load.kernel(file, function, **constants)((blocks,), (threads,), arguments)

    def arrange(self, known: Known) -> None:
        """Prepare the index for searches: order its points, and bound them by boxes."""
        if not self.rows:
            return
        place, rows = row_search.ordered(self.y), np.int32(self.rows)
        self.points = BUILDER.rows(self.y, place)
        self.nodes = place + np.int32(self.first) if self.first else place
        self._take(known)
        sizes = [-(-self.rows // LEAF)]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // 2))
        self._starts = np.cumsum([0, *sizes], dtype=np.int32)
        nodes = int(self._starts[-1])
        boxes, cores = cupy.empty((nodes, 2 * self.layout.dims)), cupy.empty(nodes)
        least, self._tags = (cupy.empty(nodes, cupy.int32) for _ in range(2))
        points = self.points, self.core, self.names, rows, np.int32(sizes[0])
        self._run("bound_leaves", sizes[0], *points, boxes, cores, least)
        self._boxes = boxes, cores, least
        self._climb("bound_nodes", *self._boxes)
        self._levels = cupy.asarray(self._starts), np.int32(len(sizes))

    def _climb(self, name: str, *arguments: Array) -> None:
        """Run a kernel for each level above the leaves, which reads the level below."""
        levels = list(pairwise(self._starts.tolist()))
        for (below, _), (start, stop) in pairwise(levels):
            number = stop - start
            some = np.int32(number), np.int32(start), np.int32(below)
            self._run(name, number, *some, *arguments)

    def tag(self, component: Array) -> None:
        self._own = take(component, self.nodes)
        leaves = int(self._starts[1])
        sizes = np.int32(self.rows), np.int32(leaves)
        self._run("tag_leaves", leaves, self._own, *sizes, self._tags)
        self._climb("tag_nodes", self._tags)

    def search(self, q: Side, places: Array, known: Known, bounds: Array) -> Found:
        """Search for the lightest edge of the rows of `q` at some places."""
        asking, n = take(q.nodes, places), len(places)
        weight, end = cupy.empty(n), cupy.empty(n, cupy.int32)
        asked = np.int32(n), q.y, np.int32(q.first), asking
        own = self.points, self._own, self.core, self.names, self.nodes
        tree = *self._boxes, self._tags, *self._levels
        rows = np.int32(self.rows)
        state = known.component, known.core, *own, rows, *tree, bounds
        self._run("search_others", n, *asked, *state, weight, end)
        return asking, end, weight


class TileSide(Side):
    """An index whose rows search in tiles: see `spanning.cu`.

    Its tiles are built if the index has none.
    """

    def __init__(self, index: Index, layout: NearestDeviceLayout, first: int) -> None:
        super().__init__(index, layout, first)
        self._boxes = index if "z" in index else {}

    def arrange(self, known: Known) -> None:
        """Prepare the index for searches."""
        if not self.rows:
            return
        self._take(known)
        self.points = self.y
        if not self._boxes:
            self.points = self._rows_at(self.nodes)
            self._boxes = BUILDER.boxed(self.points, self.layout.bounds, TILE, True)
        self._levels = to_host(self._boxes["levels"])
        self._cores = boruvka.least_of_boxes(self.core, self._levels, TILE)
        self._least = boruvka.least_names(self.names, TILE)
        self._tags = full(int(self._levels[-1]) * TILE, -1, cupy.int32)
        self._balls = self._make_balls()

    def _launch(self, name: str, blocks: int, *arguments: object) -> None:
        file, function, constants = program(name, self.layout)
        load.kernel(file, function, **constants)((blocks,), (32 * WARPS,), arguments)

    def _make_balls(self) -> tuple[Array | np.uint64, Array | np.uint64]:
        """Return center and radius of a ball around each tile; null pointers if there
        is no filter.
        """
        if self.layout.bounds is None:
            return NOWHERE, NOWHERE
        z = self._boxes["z"]
        tiles, dims, _ = z.shape
        middle = cupy.empty((tiles, dims), cupy.float32)
        radius = cupy.empty(tiles, cupy.float32)
        blocks = min(-(-tiles // WARPS), 1 << 16)
        self._launch("tile_balls", blocks, z, np.int32(tiles), middle, radius)
        return middle, radius

    def group(self, component: Array, core: Array) -> None:
        """Reorder the searched rows by component, then by core distance.

        Call `arrange` before the next search.
        """
        nodes = take(self.nodes, cupy.argsort(take(core, self.nodes)))
        self.take(take(nodes, cupy.argsort(take(component, nodes), kind="stable")))

    def take(self, nodes: Array) -> None:
        """Put the searched rows into the order of `nodes`. Call `arrange` before the
        next search.
        """
        self.nodes, self._boxes = nodes, {}

    def tag(self, component: Array) -> None:
        """Read the component of each row, and tag each box with the component that all
        its points share.
        """
        self._own = take(component, self.nodes)
        boruvka.tag_boxes(self._own, self._levels, TILE, self._tags)

    def search(self, q: TileSide, places: Array, known: Known, bounds: Array) -> Found:
        """Search for the lightest edge of the rows of `q` at some places."""
        asking, y, n = (
            take(q.nodes, places),
            BUILDER.rows(q.points, places),
            len(places),
        )
        f, own = self.layout.bounds, self._boxes
        boxes = BUILDER.boxed(y, f, TILE, True)
        tiles = -(-n // TILE)
        spread = warps_of_tile(tiles)
        weight, end = cupy.empty((spread, n)), cupy.empty((spread, n), cupy.int32)
        scale2, rho = (1.0, 0.0) if f is None else (f.scale**2, f.rho)
        self._launch(
            "search_others",
            # each block takes one tile after the other, so any number suffices
            min(-(-tiles * spread // WARPS), 4096),
            boxes["z"],
            y,
            boxes["lower"],
            boxes["upper"],
            take(known.component, asking),
            take(known.core, asking),
            np.int32(n),
            own["z"],
            self.points,
            own["lower"],
            own["upper"],
            own["levels"],
            np.int32(len(self._levels) - 1),
            self._least,
            self._tags,
            self._cores,
            self._own,
            self.core,
            self.names,
            self.nodes,
            np.int32(self.rows),
            *self._balls,
            np.float64(scale2),
            np.float64(rho),
            bounds,
            np.int32(spread),
            weight,
            end,
            cupy.zeros(1, cupy.uint32),
        )
        weight, end = boruvka.least_of_parts(known.names, weight, end)
        return asking, end, weight


def make_side(index: Index, layout: NearestDeviceLayout, first: int) -> Side:
    """Prepare an index for the search that suits its number of dimensions."""
    kind = RowSide if layout.dims <= ROW_DIMS else TileSide
    return kind(index, layout, first)
