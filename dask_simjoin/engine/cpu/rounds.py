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
"""Components up to this multiple of the median size search."""

RUN = 4
"""Consecutive tiles that one part of a shared search gets at a time: neighbors in space share bounds."""

Nearest = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Known nearest rows of each place of an index: places, totals and bounds.

Places (n, k): int32, -1 for rows of another index; or int16 offsets from the row's own place, 0 if unknown.
Totals (n, k), or (n, 0) if they are at most core distances. Bounds (n,), float32: no other row has a smaller
total; -1 if unknown.
"""

NO_NODES = np.empty(0), np.empty(0, np.int32)
"""Bounds and ends of nodes before they are needed: see `boruvka`."""

ALL = np.empty(0, np.bool_)
"""Mask of searching components that stands for all components: see `boruvka`."""

SEARCHED = "z", "start", "half_norm", "y", "norm", "low", "high", "lower", "upper", "levels", "least"
"""Arrays of an index that rounds read, so that others can be freed."""

Best = tuple[np.ndarray, ...]
"""Weights and nodes of the best known edge of each component, and the names of all nodes."""


class _RoundSide:
    """One index as both sides of a search."""

    def __init__(self, index: Index, first: int) -> None:
        self.index = cpu_tiles.aligned_index({name: index[name] for name in SEARCHED if name in index})
        self.rows = len(index["names"])
        self.first, self.last = first, first + -(-self.rows // cpu_tiles.TILE) * cpu_tiles.TILE
        if self.rows:
            self.tags = np.empty(index["least"].shape, np.int32)
            self.cores = np.empty(index["least"].shape)

    def terms(self, queries: bool) -> tuple[np.ndarray, ...]:
        """Return the arrays of the index that kernels compare."""
        if "y" not in self.index:
            return (self.index["z"],)
        return self.index["z"], self.index["half_norm" if queries else "start"], self.index["y"]


class BoruvkaRounds:
    """Find the tree of one index, or the edges between two.

    `progress`: the state after earlier rounds, which is not changed. `looks`: only `share` is called, which
    reads the state, so its arrays are not copied.
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
        # saves a copy if there is one side, and its core distances are padded
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
        # edges by part; a part without weights has the larger core distances as weights
        self.found: list[tuple[np.ndarray, ...]] = []
        if progress is not None:
            self.component, self.least, self.to, self.beyond = (
                # Numba would compile kernels again for read-only arrays, so these are copied, too
                known if looks and known.flags.writeable else known.copy()
                for known in (progress[name] for name in ("component", "least", "to", "beyond"))
            )
            self.sizes, self.found = progress["sizes"], list(progress["found"])
            self.components = len(self.sizes)

    @property
    def progress(self) -> Progress:
        """The state, with the best known edges of components before the next round."""
        self._make_room()
        offered = self._offers()[:3]
        return {
            "component": self.component, "sizes": self.sizes, "least": self.least,
            "to": self.to, "beyond": self.beyond, "found": self.found, "offered": offered,
        }  # fmt: skip

    def _nothing(self, number: int) -> Best:
        """Allocate the best edges of `number` components."""
        ends = (np.full(number, -1, np.int32) for _ in range(2))
        return np.full(number, np.inf), *ends, self.names

    def _make_room(self) -> None:
        """Allocate the bounds and ends of nodes, unless they exist."""
        if len(self.to) < len(self.component):
            nodes = len(self.component)
            self.least, self.to = np.full(nodes, -1.0), np.full(nodes, -1, np.int32)

    def _asked(self) -> np.ndarray:
        """Return a mask of the components that search: at least half of them."""
        number = self.components
        if number == self.rows:
            return ALL
        asked = self.sizes <= FEW * np.partition(self.sizes, (number - 1) // 2)[(number - 1) // 2]
        if asked.all() and number > 1:
            asked[np.argmax(self.sizes)] = False
        return asked

    def _offers(self) -> Best:
        """Return the best known edges of components."""
        best = self._nothing(self.components)
        nearest = self.near, self.away, self.beyond
        boruvka.offer_listed(self.component, self.core, self.names, *nearest, self.least, self.to, best)
        return best

    def _wanted(self, asked: np.ndarray, best: Best) -> np.ndarray:
        """Return a mask per tile of nodes that may have an edge lighter than their component's best."""
        wanted = np.empty(self.sides[-1].last // cpu_tiles.TILE, np.uint64)
        known = self.component, self.core, self.least, self.to, self.beyond
        boruvka.who_searches(*known, asked, best[0], wanted)
        return wanted

    def _search(self, wanted: np.ndarray, best: Best) -> None:
        """Improve the best edges of components by searching from the wanted nodes."""
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
        """Record what the searches proved about each node; `best`: the best edges of all components."""
        across = self.sides[-1].first
        if len(self.to):
            boruvka.tell_nodes(self.component, wanted, best, across, self.least, self.to)

    def _join(self, asked: np.ndarray, best: Best) -> None:
        """Join the searching components along their best edges, and replace the components."""
        many, alone = self.components, len(self.sides) == 1 and self.components == self.rows
        # in the first round of one index, nodes are components, so their array gets the result
        parent = self.component[:many] if alone else np.empty(many, np.int32)
        number, left = boruvka.join_components(self.component, asked, best, parent, best[:3], 0)
        assert left < many  # each searching component has found an edge
        self.sizes, self.components = np.zeros(left, np.int32), left
        boruvka.number_nodes(self.component, parent[:0] if alone else parent, self.sizes)
        for column in best[:3]:
            column.resize(number, refcheck=False)  # without a copy
        self.found += self._without_weights(best[:3]) if alone else [best[:3]]

    def _without_weights(self, edges: tuple[np.ndarray, ...]) -> list[tuple[np.ndarray, ...]]:
        """Leave out weights that equal the larger core distance of both ends, if most weights do."""
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
            spanning.scratch(len(own["low"]), len(own["lower"]), dims, own["lower"].dtype),
        )  # fmt: skip

    def run(self, known: tuple[np.ndarray, ...] | None = None) -> list[tuple[np.ndarray, ...]]:
        """Find edges that join all components, round by round: weights and both nodes.

        `known`: further edges that may join components.
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
        """Run one part of a round's searches in one index: see `Spanner.share`."""
        best = *(column.copy() for column in offered), self.names
        wanted = self._wanted(self._asked(), best)
        tile = np.flatnonzero(wanted)
        wanted[tile[np.arange(len(tile)) // RUN % part[1] != part[0]]] = 0
        self._search(wanted, best)
        better = (best[1] != offered[1]) | (best[2] != offered[2])
        return tuple(column[better] for column in best[:3])

    def join(self, offered: Best, parts: Sequence[Found]) -> None:
        """Finish a round with the edges of all parts: see `Spanner.join`."""
        best = *(column.copy() for column in offered), self.names
        asked = self._asked()
        wanted = self._wanted(asked, best)
        for weight, start, end in parts:
            found = weight.copy(), start.copy(), end.copy()  # `offer_edges` overwrites them
            boruvka.offer_edges(self.component, self.names, *found, best)
        self._settle(wanted, best)
        self._join(asked, best)

    def go_on(self, parts: int) -> Progress:
        """Run rounds until the next round is worth sharing; return the state."""
        progress = self.progress
        while self.components > 1:
            offered = progress["offered"]
            wanted = self._wanted(self._asked(), (*offered, self.names))
            if np.unpackbits(wanted.view(np.uint8)).sum() * parts > self.rows // ALONE:
                break
            self.join(offered, [self.share(offered, (0, 1))])
            progress = self.progress
        return progress
