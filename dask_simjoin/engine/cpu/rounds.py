"""The rounds of minimum spanning trees on the CPU: see `spanning`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_simjoin.engine.cpu.kernels import boruvka, spanning
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.index import cpu_tiles
from dask_simjoin.engine.index.cpu_tiles import NearestLayout
from dask_simjoin.engine.protocols import ALONE, Found, Part, Progress
from dask_simjoin.metrics.norms import Index

FEW = 2
"""Times the median component's rows that one has which still searches."""

RUN = 4
"""Tiles with rows that ask that one of several searches takes in turn: rows near each other know of each
other."""

Nearest = tuple[np.ndarray, np.ndarray, np.ndarray]
"""What is known of the nearest rows of the rows of one index, in the order of its places: their places (n, k)
int32, -1 where they are of another index, or int16: how far behind the row's own place they are, 0 where that
is not told; their totals (n, k), or (n, 0) if these are at most core distances; and what totals of all other
rows are at least (n,) float32, or -1 where nothing is known."""

NO_NODES = np.empty(0), np.empty(0, np.int32)
"""What is known of edges of nodes while their nearest rows tell as much: see `boruvka`."""

ALL = np.empty(0, np.bool_)
"""Components that search: all."""

SEARCHED = "z", "start", "half_norm", "y", "norm", "low", "high", "lower", "upper", "levels", "least"
"""What rounds look at of an index: they let go of what else there is."""

Best = tuple[np.ndarray, ...]
"""Of components the weights of the best edges that are known, and their nodes; and all nodes' names."""


class _RoundSide:
    """One index, as what is searched from and in."""

    def __init__(self, index: Index, first: int) -> None:
        self.index = cpu_tiles.aligned_index({name: index[name] for name in SEARCHED if name in index})
        self.rows = len(index["names"])
        self.first, self.last = first, first + -(-self.rows // cpu_tiles.TILE) * cpu_tiles.TILE
        if self.rows:
            self.tags = np.empty(index["least"].shape, np.int32)
            self.cores = np.empty(index["least"].shape)

    def terms(self, queries: bool) -> tuple[np.ndarray, ...]:
        """List what is compared of it."""
        if "y" not in self.index:
            return (self.index["z"],)
        return self.index["z"], self.index["half_norm" if queries else "start"], self.index["y"]


class BoruvkaRounds:
    """Find the tree of one index or the edges between two.

    `progress`: of rounds before, which is left as it is; `looks`: nothing will be changed, so that no copies
    are made.
    """

    def __init__(self, sides: Sequence[Index], layout: NearestLayout, cores: Sequence[np.ndarray],
                 nearest: Nearest | None = None, progress: Progress | None = None,
                 looks: bool = False) -> None:  # fmt: skip
        self.layout = layout
        self.sides: list[_RoundSide] = []
        for index in sides:
            self.sides.append(_RoundSide(index, self.sides[-1].last if self.sides else 0))
        nodes = self.sides[-1].last
        self.rows = sum(side.rows for side in self.sides)
        self.component = np.full(nodes if progress is None else 0, -1, np.int32)
        self.names = np.zeros(nodes if len(sides) > 1 else self.rows, np.int32)
        # a copy of core distances is made only where there are two sides, or no room for what is left over
        self.core = cores[0] if len(cores) == 1 and len(cores[0]) == nodes else np.full(nodes, np.nan)
        known = 0
        for side, index, core in zip(self.sides, sides, cores, strict=True):
            own = slice(side.first, side.first + side.rows)
            if progress is None:
                self.component[own] = np.arange(known, known + side.rows, dtype=np.int32)
            self.names[own] = index["names"]
            if self.core is not core:
                self.core[own] = core[: side.rows]
            known += side.rows
            if side.rows:
                boruvka.least_cores(self.core[side.first : side.last], side.index["levels"], side.cores)
        self.least, self.to = NO_NODES
        if nearest is None:
            self.near, self.away = np.empty((nodes, 0), np.int32), np.empty((nodes, 0))
            self.beyond = np.full(nodes, -1.0, np.float32)
        else:
            self.near, self.away = nearest[:2]
            self.beyond = nearest[2].copy() if progress is None else nearest[2]
        self.sizes, self.components = np.broadcast_to(np.int32(1), self.rows), self.rows
        # in parts; without weights where these are the larger core distances
        self.found: list[tuple[np.ndarray, ...]] = []
        if progress is not None:
            self.component, self.least, self.to, self.beyond = (
                known if looks and known.flags.writeable else known.copy()  # else kernels are compiled anew
                for known in (progress[name] for name in ("component", "least", "to", "beyond"))
            )
            self.sizes, self.found = progress["sizes"], list(progress["found"])
            self.components = len(self.sizes)

    @property
    def progress(self) -> Progress:
        """What is known after some rounds, and what nodes offer in the next one."""
        self._make_room()
        offered = self._offers()[:3]
        return {
            "component": self.component, "sizes": self.sizes, "least": self.least,
            "to": self.to, "beyond": self.beyond, "found": self.found, "offered": offered,
        }  # fmt: skip

    def _nothing(self, number: int) -> Best:
        """Make room for the best edges of so many components: less and less, while there are more edges."""
        ends = (np.full(number, -1, np.int32) for _ in range(2))
        return np.full(number, np.inf), *ends, self.names

    def _make_room(self) -> None:
        """Remember from now on what is known of the edges of nodes."""
        if len(self.to) < len(self.component):
            nodes = len(self.component)
            self.least, self.to = np.full(nodes, -1.0), np.full(nodes, -1, np.int32)

    def _asked(self) -> np.ndarray:
        """Choose the components that search: at least half of them."""
        number = self.components
        if number == self.rows:
            return ALL
        asked = self.sizes <= FEW * np.partition(self.sizes, (number - 1) // 2)[(number - 1) // 2]
        if asked.all() and number > 1:
            asked[np.argmax(self.sizes)] = False
        return asked

    def _offers(self) -> Best:
        """Tell the best edges of components of those that nodes know."""
        best = self._nothing(self.components)
        nearest = self.near, self.away, self.beyond
        boruvka.offer_listed(self.component, self.core, self.names, *nearest, self.least, self.to, best)
        return best

    def _wanted(self, asked: np.ndarray, best: Best) -> np.ndarray:
        """Tell which nodes may have an edge lighter than their component's best, a mask for each tile."""
        wanted = np.empty(self.sides[-1].last // cpu_tiles.TILE, np.uint64)
        known = self.component, self.core, self.least, self.to, self.beyond
        boruvka.who_searches(*known, asked, best[0], wanted)
        return wanted

    def _search(self, wanted: np.ndarray, best: Best) -> None:
        """Improve the best edges of components by those of wanted nodes."""
        if not wanted.any():
            return
        for side in self.sides:
            if side.rows:
                own = self.component[side.first : side.last]
                boruvka.tag_boxes(own, side.index["levels"], side.tags)
        for q, d in zip(self.sides, self.sides[::-1], strict=True):
            if q.rows and d.rows:
                self._search_side(q, d, wanted, best)

    def _settle(self, wanted: np.ndarray, best: Best) -> None:
        """Note what searches have found of nodes, the best edges of all components being known."""
        across = self.sides[-1].first
        if len(self.to):
            boruvka.tell_nodes(self.component, wanted, best, across, self.least, self.to)

    def _join(self, asked: np.ndarray, best: Best) -> None:
        """Join the components that asked along their best edges; those that are taken replace all."""
        many, alone = self.components, len(self.sides) == 1 and self.components == self.rows
        # in the first round components are their nodes, and so the new ones are written in their places
        parent = self.component[:many] if alone else np.empty(many, np.int32)
        number, left = boruvka.join_components(self.component, asked, best, parent, best[:3], 0)
        assert left < many  # each that searched has found an edge
        self.sizes, self.components = np.zeros(left, np.int32), left
        boruvka.number_nodes(self.component, parent[:0] if alone else parent, self.sizes)
        for column in best[:3]:
            column.resize(number, refcheck=False)  # nothing is copied
        self.found += self._without_weights(best[:3]) if alone else [best[:3]]

    def _without_weights(self, edges: tuple[np.ndarray, ...]) -> list[tuple[np.ndarray, ...]]:
        """Leave out weights that are the larger core distance of both ends, if most of them are."""
        number = boruvka.part_edges(self.core, *edges)
        if 2 * number < len(edges[0]):
            return [edges]
        others = tuple(column[number:].copy() for column in edges)
        for column in edges[1:]:
            column.resize(number, refcheck=False)
        return [(NO_NODES[0], *edges[1:]), others]

    def _search_side(self, q: _RoundSide, d: _RoundSide, wanted: np.ndarray, best: Best) -> None:
        f, dims = self.layout.filter, self.layout.dims
        terms = (0.0,) * 5
        if f is not None:
            largest = float(max(q.index["norm"], d.index["norm"]))
            terms = f.scale * f.scale, f.kappa, dims * 2.0**-140, 8.0 * dims, largest
        rows = tuple(
            (
                *(column[side.first : side.last] for column in (self.component, self.core, self.names)),
                side.first,
            )
            for side in (q, d)
        )
        own = d.index
        spanning.search_others(
            q.terms(True), q.index["low"], q.index["high"], d.terms(False), own["low"], own["high"],
            (own["lower"], own["upper"], own["levels"]), (own["least"], d.tags, d.cores), terms, q is d,
            kind_of(self.layout.norm), wanted[q.first // cpu_tiles.TILE : q.last // cpu_tiles.TILE],
            rows, best,
            spanning.room(len(own["low"]), len(own["lower"]), dims, own["lower"].dtype),
        )  # fmt: skip

    def run(self, known: tuple[np.ndarray, ...] | None = None) -> list[tuple[np.ndarray, ...]]:
        """Find edges that join all components, round by round: weights and both nodes.

        `known`: some that are there besides those that are sought.
        """
        if known is not None or not self.near.shape[1] or self.components < self.rows:
            self._make_room()
        while self.components > 1:
            best = self._offers()
            if known is not None:
                kept = boruvka.offer_edges(self.component, self.names, *known, best)
                known = tuple(column[:kept] for column in known)
            asked = self._asked()
            wanted = self._wanted(asked, best)
            self._search(wanted, best)
            self._settle(wanted, best)
            self._join(asked, best)
            del best
            self._make_room()
        return self.found

    def share(self, offered: Best, part: Part) -> Found:
        """Do one part of a round's searches, of one index: see `Spanner`."""
        best = *(column.copy() for column in offered), self.names
        wanted = self._wanted(self._asked(), best)
        tile = np.flatnonzero(wanted)
        wanted[tile[np.arange(len(tile)) // RUN % part[1] != part[0]]] = 0
        self._search(wanted, best)
        better = (best[1] != offered[1]) | (best[2] != offered[2])
        return tuple(column[better] for column in best[:3])

    def join(self, offered: Best, parts: Sequence[Found]) -> None:
        """Finish a round, all parts of which are done: see `Spanner`."""
        best = *(column.copy() for column in offered), self.names
        asked = self._asked()
        wanted = self._wanted(asked, best)
        for weight, start, end in parts:
            found = weight.copy(), start.copy(), end.copy()  # of which only some are kept
            boruvka.offer_edges(self.component, self.names, *found, best)
        self._settle(wanted, best)
        self._join(asked, best)

    def go_on(self, parts: int) -> Progress:
        """Do rounds that are not worth being searched in parts, and tell what is known then."""
        progress = self.progress
        while self.components > 1:
            offered = progress["offered"]
            wanted = self._wanted(self._asked(), (*offered, self.names))
            if np.unpackbits(wanted.view(np.uint8)).sum() * parts > self.rows // ALONE:
                break
            self.join(offered, [self.share(offered, (0, 1))])
            progress = self.progress
        return progress
