"""Boruvka's rounds on the GPU: the rows that search in each round, and their order.

All searches of a round share one array with an upper bound of the weight of each
component's lightest edge. See `dask_simjoin.engine.gpu.sides` for the searches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cupy
import numpy as np

from dask_simjoin.engine.columns import MAX_CAPACITY
from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu import boruvka, load, sides
from dask_simjoin.engine.gpu.arrays import (
    copied,
    count,
    full,
    joined,
    numbers,
    places_of,
    take,
)
from dask_simjoin.engine.gpu.build import BUILDER
from dask_simjoin.engine.gpu.sides import (
    TileSide,
    make_side,
    program,
)
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.engine.index.gpu import NearestDeviceLayout
from dask_simjoin.engine.protocols import ALONE, Found, Part, Progress
from dask_simjoin.metrics.norms import Array, Index

EVERY, MANY = 16, 1 << 17
"""If at least `MANY` rows search, every `EVERY`-th of them searches first: its result
prunes the others.
"""

Nearest = tuple[Array, Array, Array]
"""Known nearest rows of each row: see `Nearest` in `engine.cpu.rounds`. The arrays are
on the GPU.
"""


def _in_turn(places: Array, most: int) -> Iterator[Array]:
    """Yield batches of at most `most` places; if there are many, every `EVERY`-th place
    comes first.
    """
    if len(places) >= MANY:
        first = cupy.arange(len(places)) % EVERY == 0
        yield from _in_turn(places[first], most)
        places = places[~first]
    for start in range(0, len(places), most):
        yield places[start : start + most]


def search_some() -> None:
    """Run CuPy's kernels of a round on a few rows, so that they are loaded in advance."""
    nodes, flags = numbers(0, TILE), cupy.asarray(np.arange(TILE) % 2 == 0)
    places = places_of(take(flags, nodes))
    BUILDER.rows(cupy.zeros((TILE, 2)), places)
    boruvka.least_of_boxes(full(TILE, 0.0), np.array([0, 1, 2]), TILE)
    boruvka.least_names(nodes, TILE)


class GpuBoruvkaRounds:
    """Finds the spanning tree of one index, or the edges between two indexes in their
    common tree.

    `cores`: core distances of each index, in kd order; `progress`: state after earlier
    rounds.
    """

    def __init__(
        self,
        sides: Sequence[Index],
        layout: NearestDeviceLayout,
        cores: Sequence[Array],
        nearest: Nearest | None = None,
        progress: Progress | None = None,
    ) -> None:
        sizes = [len(index["names"]) for index in sides]
        self.layout, self.rows = layout, sum(sizes)
        self.names = joined([index["names"].astype(cupy.int32) for index in sides])
        self.core = joined(
            [core[:size] for core, size in zip(cores, sizes, strict=True)]
        )
        firsts = np.cumsum([0, *sizes]).tolist()
        self.sides = [
            make_side(index, layout, first)
            for index, first in zip(sides, firsts, strict=False)
        ]
        self._arranged = self._grouped = False
        if nearest is None:
            unknown = full(self.rows, -1, cupy.float32)
            nearest = (
                cupy.empty((self.rows, 0), cupy.int32),
                cupy.empty((self.rows, 0)),
                unknown,
            )
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
            (side,), order = self.sides, progress.get("order")
            if isinstance(side, TileSide) and order is not None:
                side.take(order)
                self._grouped = True

    @property
    def progress(self) -> Progress:
        """State after the rounds so far, for another process to continue from."""
        known: Progress = {
            "component": self.component,
            "sizes": self.sizes,
            "least": self.least,
            "to": self.to,
            "beyond": self.nearest[2],
            "found": self.found,
        }
        return known | {"order": self.sides[0].nodes} if self._grouped else known

    def _offer_beside(self, bounds: Array) -> None:
        """Lower the bounds of components by the edges between rows that are consecutive
        in kd order.
        """
        file, function, constants = program("offer_beside", self.layout)
        known = self.sides[0].y, self.component, self.core, np.int32(self.rows)
        load.kernel(file, function, **constants)(
            *load.shape_of(self.rows), (*known, bounds)
        )

    def _offers(self) -> tuple[Array, boruvka.ListedEdges]:
        """Return bounds for all components, which are still `UNKNOWN`, and the lightest
        known edge of each node.
        """
        bounds = full(len(self.sizes), boruvka.UNKNOWN, cupy.uint64)
        state = self.component, self.core, self.names
        return bounds, boruvka.list_edges(*state, self.nearest, self.least, self.to)

    def _wanted(self, asked: Array, bounds: Array) -> Array:
        """Return a mask of the nodes that may have a lighter edge than the known bound
        of their component.
        """
        return boruvka.wanted_nodes(
            self.component, asked, self.to, self.least, self.core, bounds
        )

    def _group(self) -> None:
        """Reorder rows by component, once there are fewer components than tiles.

        Rows are reordered only once. Later components are larger, so consecutive rows
        of one component would be far apart.
        """
        # tiles are used in many dimensions, where their boxes in kd order are large: the
        # order by component hardly enlarges them
        tiled = [side for side in self.sides if isinstance(side, TileSide)]
        if tiled and len(self.sizes) * TILE <= self.rows and not self._grouped:
            for side in tiled:
                side.group(self.component, self.core)
            self._grouped, self._arranged = True, False

    def _arrange(self) -> None:
        self._group()
        for side in () if self._arranged else self.sides:
            side.arrange(self)
        self._arranged = True

    def _search(
        self, wanted: Array, bounds: Array, part: Part = (0, 1)
    ) -> list[sides.Found]:
        """Search for the lightest edge of each node in `wanted`, or in a part of it;
        return edges in batches.
        """
        found: list[sides.Found] = []
        if not count(wanted):
            return found
        self._arrange()
        step = max(TILE, MAX_CAPACITY // self.layout.dims)
        for q, d in zip(self.sides, self.sides[::-1], strict=True):
            if not (q.rows and d.rows):
                continue
            d.tag(self.component)
            places = places_of(take(wanted, q.nodes))
            if part[1] > 1:
                # consecutive rows go to the same part: they are near each other, so
                # that results of one row prune the searches of the others
                places = places[
                    cupy.arange(len(places)) // (4 * TILE) % part[1] == part[0]
                ]
            found += [
                d.search(q, some, self, bounds) for some in _in_turn(places, step)
            ]
        return found

    def _settle(
        self, found: list[tuple[Array, ...]], bounds: Array, listed: boruvka.ListedEdges
    ) -> None:
        """Write results of searches to `listed` and to the state of nodes.

        No search may change `bounds` afterwards.
        """
        _, ends, weights = listed
        state = self.component, bounds, self.least, self.to, ends, weights
        for nodes, end, weight in found:
            boruvka.run(
                "settle_nodes",
                len(nodes),
                np.int32(len(nodes)),
                nodes,
                end,
                weight,
                *state,
            )

    def _join(
        self, asked: Array, edges: list[boruvka.ListedEdges], bounds: Array
    ) -> None:
        """Join each component in the mask `asked` along the lightest of its `edges`."""
        starts, ends = boruvka.least_edges(self.component, self.names, edges, bounds)
        taken, component, sizes = boruvka.join_components(
            self.component, asked, starts, ends, self.sizes
        )
        # every component that searched has found an edge, so at least two have been
        # joined
        assert len(sizes) < len(self.sizes)
        weights = take(bounds.view(cupy.float64), taken)
        self.found.append((weights, take(starts, taken), take(ends, taken)))
        self.component, self.sizes = component, sizes

    def run(self, known: tuple[Array, ...] | None = None) -> tuple[Array, ...]:
        """Run all rounds; return weights, start nodes and end nodes of the tree's
        edges.

        `known`: weights, start nodes and end nodes of further edges that may be in the
        tree.
        """
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
            self._settle(
                self._search(self._wanted(asked, bounds), bounds), bounds, listed
            )
            self._join(asked, edges, bounds)
        if not self.found:
            return cupy.empty(0), cupy.empty(0, cupy.int32), cupy.empty(0, cupy.int32)
        return tuple(joined(column) for column in zip(*self.found, strict=True))

    def _asked(self) -> tuple[boruvka.ListedEdges, Array, Array, Array]:
        """Return the state of a round before its searches.

        It consists of: the known edges; the bounds that follow from them; the mask of
        the components that search; and the bounds for the searches. The bounds for the
        searches are lower than the other bounds, because edges between consecutive rows
        are used as well.
        """
        bounds, listed = self._offers()
        boruvka.offer_edges(self.component, [listed], bounds)
        asked, beside = boruvka.who_asks(self.sizes, self.rows), copied([bounds])
        self._offer_beside(beside)
        return listed, bounds, asked, beside

    def share(self, part: Part) -> Found:
        """Run one part of the searches of a round over one index: see `Spanner`."""
        listed, known, asked, bounds = self._asked()
        before = boruvka.least_edges(self.component, self.names, [listed], known)
        found = self._search(self._wanted(asked, bounds), bounds, part)
        starts, ends = boruvka.least_edges(
            self.component, self.names, [listed, *found], bounds
        )
        better = cupy.flatnonzero(
            (starts >= 0) & ((starts != before[0]) | (ends != before[1]))
        )
        weights = take(bounds.view(cupy.float64), better)
        return (
            to_host(weights),
            to_host(take(starts, better)),
            to_host(take(ends, better)),
        )

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
        """Run rounds until the next one is worth splitting into `parts` parts; return
        the state.
        """
        while len(self.sizes) > 1:
            _, _, asked, beside = self._asked()
            if count(self._wanted(asked, beside)) * parts > self.rows // ALONE:
                break
            self.join([self.share((0, 1))])
        return self.progress
