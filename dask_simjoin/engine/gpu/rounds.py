"""Boruvka rounds on the GPU: what each round searches, and in what order.

Searching rows are gathered into tiles of their own, in order, so that all lanes of a warp search. All warps
share the bounds of components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cupy
import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu import boruvka
from dask_simjoin.engine.gpu.arrays import copied, count, full, joined, numbers, places_of, take
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import norm_constant
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.engine.index.gpu import NearestDeviceLayout
from dask_simjoin.engine.protocols import ALONE, Found, Part, Progress
from dask_simjoin.metrics.norms import Array, Index

WARPS = 4
"""Warps per block of `spanning.cu`."""

NOWHERE = np.uint64(0)
"""The address of an unused kernel argument."""


class SearchSide:
    """One index, arranged for searches; float32 tiles are made if the index has none.

    Attributes
    ----------
    rows, first : int
        Number of rows, and the first node.
    y : array (rows, d), float64
        The points, in the index's order.
    nodes, points, core, names : array
        The searched rows, in tiles: their nodes, points, core distances and names.
    """

    def __init__(self, index: Index, layout: NearestDeviceLayout, first: int) -> None:
        self.rows, self.first, self.y = len(index["names"]), first, index["y"]
        self._bounds = layout.bounds
        self.nodes = numbers(first, self.rows)
        self._boxes = index if "z" in index else {}

    def arrange(self, core: Array, names: Array) -> None:
        """Prepare the index for searches; `core`, `names`: by node."""
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
        """Return middles and radii of tiles, if there is a filter."""
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
        """Sort rows by component, then by core distance."""
        nodes = take(self.nodes, cupy.argsort(take(core, self.nodes)))
        self.take(take(nodes, cupy.argsort(take(component, nodes), kind="stable")))

    def take(self, nodes: Array) -> None:
        """Take all rows in another order; call `arrange` afterwards."""
        self.nodes, self._boxes = nodes, {}

    def tagged(self, component: Array) -> Array:
        """Write the component that all points of each box share; return the components of the points."""
        own = take(component, self.nodes)
        boruvka.tag_boxes(own, self.levels, TILE, self.tags)
        return own

    def searched(self, component: Array) -> list[Array | np.generic]:
        """Return the kernel arguments of the index; `component`: of the points."""
        boxes = (self._boxes[name] for name in ("z", "lower", "upper", "levels"))
        z, *tree = boxes
        return [
            z, self.points, *tree, np.int32(len(self.levels) - 1), self.least, self.tags, self.cores,
            component, self.core, self.names, self.nodes, np.int32(self.rows), *self._balls,
        ]  # fmt: skip


BLOCKS = 1 << 12
"""Maximum number of blocks of a search, more than run at a time; each takes tiles until none are left."""

WORK = 1 << 13
"""Up to this number of pieces, several warps share a tile, so that all warps of a GPU have work."""

EVERY, MANY = 16, 1 << 17
"""From `MANY` active queries on, search from every `EVERY`-th first: the results prune the others."""

AT_ONCE = 1 << 27
"""Maximum number of coordinates of searching rows that are gathered at a time."""

GROUPED_DIMS = 5
"""From this number of dimensions on, rows are grouped by component, once components have a tile on average.

In that many dimensions, boxes of neighboring rows are large anyway, so grouping costs little.
"""

RUN = 4 * TILE
"""Consecutive queries per work item of a shared search: queries that are neighbors share bounds."""

Nearest = tuple[Array, Array, Array]
"""`Nearest` of the CPU's rounds, on the GPU."""


def warps_of_tile(tiles: int) -> int:
    """Choose the number of warps per tile, a power of two, from the number of searching tiles."""
    return 1 << min(TILE.bit_length() - 1, max(0, (WORK // max(tiles, 1)).bit_length() - 1))


def _in_turn(places: Array, most: int) -> Iterator[Array]:
    """Yield query batches of at most `most`; large sets begin with a 1/`EVERY` subsample."""
    if len(places) >= MANY:
        first = cupy.arange(len(places)) % EVERY == 0
        yield from _in_turn(places[first], most)
        places = places[~first]
    for start in range(0, len(places), most):
        yield places[start : start + most]


def program(function: str, layout: NearestDeviceLayout) -> load.Program:
    """Return the program of a function of `spanning.cu`: all functions have the same constants."""
    constants = {"DIMS": layout.dims, "EXACT": layout.bounds is None}
    return "spanning", function, constants | norm_constant(layout.norm)


def search_some() -> None:
    """Load CuPy's kernels in advance, by gathering a few searching rows and their data as rounds do."""
    nodes, flags = numbers(0, TILE), cupy.asarray(np.arange(TILE) % 2 == 0)
    places = places_of(take(flags, nodes))
    BUILDER.rows(cupy.zeros((TILE, 2)), places)
    boruvka.least_of_boxes(full(TILE, 0.0), np.array([0, 1, 2]), TILE)
    boruvka.least_names(nodes, TILE)


class GpuBoruvkaRounds:
    """Find the tree of one index or the edges between two; `progress`: state after earlier rounds."""

    def __init__(self, sides: Sequence[Index], layout: NearestDeviceLayout, cores: Sequence[Array],
                 nearest: Nearest | None = None, progress: Progress | None = None) -> None:  # fmt: skip
        sizes = [len(index["names"]) for index in sides]
        self.layout, self.rows = layout, sum(sizes)
        self.names = joined([index["names"].astype(cupy.int32) for index in sides])
        self.core = joined([core[:size] for core, size in zip(cores, sizes, strict=True)])
        firsts = np.cumsum([0, *sizes]).tolist()
        self.sides = [SearchSide(index, layout, first) for index, first in zip(sides, firsts, strict=False)]
        self._arranged = self._grouped = False
        if nearest is None:
            unknown = full(self.rows, -1, cupy.float32)
            nearest = cupy.empty((self.rows, 0), cupy.int32), cupy.empty((self.rows, 0)), unknown
        if progress is None:
            self.component, self.sizes = numbers(0, self.rows), full(self.rows, 1.0)
            self.least, self.to = full(self.rows, -1.0), full(self.rows, -1, cupy.int32)
            self.nearest = *nearest[:2], copied([nearest[2]])
            self.found: list[tuple[Array, ...]] = []
        else:
            self.component, self.sizes = progress["component"], progress["sizes"]
            self.least, self.to = copied([progress["least"]]), copied([progress["to"]])
            self.nearest = *nearest[:2], copied([progress["beyond"]])
            self.found = list(progress["found"])
            if (order := progress.get("order")) is not None:
                self.sides[0].take(order)
                self._grouped = True

    @property
    def progress(self) -> Progress:
        """State after some rounds."""
        known: Progress = {
            "component": self.component, "sizes": self.sizes, "least": self.least, "to": self.to,
            "beyond": self.nearest[2], "found": self.found,
        }  # fmt: skip
        return known | {"order": self.sides[0].nodes} if self._grouped else known

    def _launch(self, name: str, blocks: int, threads: int, *arguments: object) -> None:
        file, function, constants = program(name, self.layout)
        load.kernel(file, function, **constants)((blocks,), (threads,), arguments)

    def _offer_beside(self, bounds: Array) -> None:
        """Offer edges between consecutive places of one index to their components."""
        (blocks,), (threads,) = load.shape_of(self.rows)
        known = self.sides[0].y, self.component, self.core, np.int32(self.rows)
        self._launch("offer_beside", blocks, threads, *known, bounds)

    def _offers(self) -> tuple[Array, boruvka.ListedEdges]:
        """Return bounds of components' least edges, as bits, and the known edge of each node."""
        bounds = full(len(self.sizes), boruvka.UNKNOWN, cupy.uint64)
        state = self.component, self.core, self.names
        return bounds, boruvka.list_edges(*state, self.nearest, self.least, self.to)

    def _wanted(self, asked: Array, bounds: Array) -> Array:
        """Find the nodes that may have an edge below the known bound of their component."""
        return boruvka.wanted_nodes(self.component, asked, self.to, self.least, self.core, bounds)

    def _group(self) -> None:
        """Group rows by component, once there are fewer components than tiles.

        Rows are grouped only once: components become larger, and adjacent rows in these are far apart.
        """
        if self.layout.dims >= GROUPED_DIMS and len(self.sizes) * TILE <= self.rows and not self._grouped:
            for side in self.sides:
                side.group(self.component, self.core)
            self._grouped, self._arranged = True, False

    def _arrange(self) -> None:
        """Prepare the indexes for searches."""
        self._group()
        for side in () if self._arranged else self.sides:
            side.arrange(self.core, self.names)
        self._arranged = True

    def _search(self, wanted: Array, bounds: Array, part: Part = (0, 1)) -> list[tuple[Array, ...]]:
        """Find the least edges of one part of the wanted nodes; return nodes, ends and weights."""
        found: list[tuple[Array, ...]] = []
        if not count(wanted):
            return found
        self._arrange()
        step = max(TILE, AT_ONCE // self.layout.dims)
        for q, d in zip(self.sides, self.sides[::-1], strict=True):
            if not (q.rows and d.rows):
                continue
            searched = d.searched(d.tagged(self.component))
            places = places_of(take(wanted, q.nodes))
            if part[1] > 1:
                places = places[cupy.arange(len(places)) // RUN % part[1] == part[0]]
            for some in _in_turn(places, step):
                asking, y = take(q.nodes, some), BUILDER.rows(q.points, some)
                found.append((asking, *self._search_side(y, asking, searched, bounds)))
        return found

    def _settle(self, found: list[tuple[Array, ...]], bounds: Array, listed: boruvka.ListedEdges) -> None:
        """Store the search results of nodes, once all `bounds` are final."""
        _, ends, weights = listed
        state = self.component, bounds, self.least, self.to, ends, weights
        for nodes, end, weight in found:
            boruvka.run("settle_nodes", len(nodes), np.int32(len(nodes)), nodes, end, weight, *state)

    def _join(self, asked: Array, edges: list[boruvka.ListedEdges], bounds: Array) -> None:
        """Join the searching components along their least edges."""
        starts, ends = boruvka.least_edges(self.component, self.names, edges, bounds)
        taken, component, sizes = boruvka.join_components(self.component, asked, starts, ends, self.sizes)
        assert len(sizes) < len(self.sizes)  # each searching component has found an edge
        weights = take(bounds.view(cupy.float64), taken)
        self.found.append((weights, take(starts, taken), take(ends, taken)))
        self.component, self.sizes = component, sizes

    def _search_side(self, y: Array, nodes: Array, searched: list[Array | np.generic],
                     bounds: Array) -> tuple[Array, Array]:  # fmt: skip
        """Find the least edges of some nodes with points `y`; return ends and weights."""
        f, n = self.layout.bounds, len(nodes)
        boxes = BUILDER.boxed(y, f, TILE, True)
        tiles = -(-n // TILE)
        spread = warps_of_tile(tiles)
        weight, end = cupy.empty((spread, n)), cupy.empty((spread, n), cupy.int32)
        scale2, rho = (1.0, 0.0) if f is None else (f.scale**2, f.rho)
        own = take(self.component, nodes), take(self.core, nodes)
        self._launch(
            "search_others", min(-(-tiles * spread // WARPS), BLOCKS), 32 * WARPS,
            boxes["z"], y, boxes["lower"], boxes["upper"], *own, np.int32(n), *searched,
            np.float64(scale2), np.float64(rho), bounds, np.int32(spread),
            weight, end, cupy.zeros(1, cupy.uint32),
        )  # fmt: skip
        weight, end = boruvka.least_of_parts(self.names, weight, end)
        return end, weight

    def run(self, known: tuple[Array, ...] | None = None) -> tuple[Array, ...]:
        """Find the weights and nodes of the tree; `known`: further edges that may join components."""
        load.begin(program("search_others", self.layout))
        while len(self.sizes) > 1:
            bounds, listed = self._offers()
            edges = [listed]
            if known is not None:
                weight, low, high = known
                apart = self.component[low] != self.component[high]
                known = weight, low, high = weight[apart], low[apart], high[apart]
                edges += [(low, high, weight), (high, low, weight)]
            boruvka.offer_edges(self.component, edges, bounds)
            if len(self.sides) == 1:
                self._offer_beside(bounds)
            asked = boruvka.who_asks(self.sizes, self.rows)
            self._settle(self._search(self._wanted(asked, bounds), bounds), bounds, listed)
            self._join(asked, edges, bounds)
        if not self.found:
            return cupy.empty(0), cupy.empty(0, cupy.int32), cupy.empty(0, cupy.int32)
        return tuple(joined(column) for column in zip(*self.found, strict=True))

    def _asked(self) -> tuple[boruvka.ListedEdges, Array, Array, Array]:
        """Return the known edges, their bounds, the searching components, and the bounds for searches."""
        bounds, listed = self._offers()
        boruvka.offer_edges(self.component, [listed], bounds)
        asked, beside = boruvka.who_asks(self.sizes, self.rows), copied([bounds])
        self._offer_beside(beside)
        return listed, bounds, asked, beside

    def share(self, part: Part) -> Found:
        """Do one part of a round's searches, of one index: see `Spanner`."""
        listed, known, asked, bounds = self._asked()
        before = boruvka.least_edges(self.component, self.names, [listed], known)
        found = self._search(self._wanted(asked, bounds), bounds, part)
        starts, ends = boruvka.least_edges(self.component, self.names, [listed, *found], bounds)
        better = cupy.flatnonzero((starts >= 0) & ((starts != before[0]) | (ends != before[1])))
        weights = take(bounds.view(cupy.float64), better)
        return to_host(weights), to_host(take(starts, better)), to_host(take(ends, better))

    def join(self, parts: Sequence[Found]) -> None:
        """Finish a round with the results of all parts: see `Spanner`."""
        listed, bounds, asked, beside = self._asked()
        wanted = self._wanted(asked, beside)
        edges = [listed]
        for weight, start, end in parts:
            edges.append((cupy.asarray(start), cupy.asarray(end), cupy.asarray(weight)))
        boruvka.offer_edges(self.component, edges[1:], bounds)
        state = wanted, self.component, bounds, self.least
        boruvka.run("raise_least", self.rows, np.int32(self.rows), *state)
        self._join(asked, edges, bounds)
        self._group()

    def go_on(self, parts: int) -> Progress:
        """Run rounds that are not worth sharing; return the state."""
        while len(self.sizes) > 1:
            _, _, asked, beside = self._asked()
            if count(self._wanted(asked, beside)) * parts > self.rows // ALONE:
                break
            self.join([self.share((0, 1))])
        return self.progress
