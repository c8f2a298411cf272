"""The rounds of minimum spanning trees on the CPU: see `spanning`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dask_simjoin.engine.cpu.kernels import boruvka, spanning
from dask_simjoin.engine.cpu.kernels.best_edges import (
    Best,
    ends_of,
    no_edges,
    with_locks,
)
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.index import cpu_tiles
from dask_simjoin.engine.index.cpu_tiles import NearestLayout
from dask_simjoin.engine.process import shared_out
from dask_simjoin.engine.protocols import ALONE, Found, Part, Progress
from dask_simjoin.metrics.norms import Index
from dask_simjoin.sizes import PARTS_PER_THREAD

Nearest = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Known nearest rows of each row of an index, in index order: places, totals and
bounds.

Places (n, k): int32, with -1 for rows of another index. Totals (n, k). Or (n, 0) if no
total exceeds the core distances, because the core distances are then the weights.
Bounds (n,), float32: a lower bound of the totals to all rows that are not listed, or -1
if unknown.
"""

NO_NODES = np.empty(0), np.empty(0, np.int32)
"""`least` and `to` before they are needed, to save memory: see `kernels.boruvka`."""

SEARCHED = (
    "z",
    "start",
    "half_norm",
    "y",
    "norm",
    "low",
    "high",
    "lower",
    "upper",
    "levels",
    "least",
)
"""The arrays of an index that rounds read. All other arrays can be freed during the
rounds.
"""

MIN_SEARCHED_TILES, MIN_OFFERED = 128, 1 << 15
"""Minimum number of tiles that a thread searches from in a round, and of nodes whose
known edges it offers.
"""


def _part_of(wanted: np.ndarray, part: Part) -> np.ndarray:
    """Return the masks of searching nodes for one part of a search; see `_wanted`."""
    tiles, found = np.flatnonzero(wanted), np.zeros_like(wanted)
    # parts take turns in getting 4 consecutive tiles: an edge found from one tile also
    # shortens the searches from the next
    own = tiles[np.arange(len(tiles)) // 4 % part[1] == part[0]]
    found[own] = wanted[own]
    return found


def _edges_of(
    weights: np.ndarray, nodes: np.ndarray, parts: Sequence[tuple[int, int, int]]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return batches of edges, as `BoruvkaRounds.found`. The memory of both arrays is
    reused.

    `parts`: where edges are in the arrays. Each part begins with edges whose weight is
    the larger core distance of their ends. If these are at least half of all edges,
    they become a batch without weights, to save memory.
    """
    bare = sum(middle - start for start, middle, _ in parts)
    if 2 * bare < sum(stop - start for start, _, stop in parts):
        every = [slice(start, stop) for start, _, stop in parts]
        return [(_moved_together(weights, every), _moved_together(nodes, every))]
    rest = [slice(middle, stop) for _, middle, stop in parts]
    others = (
        np.concatenate([weights[some] for some in rest]),
        np.concatenate([nodes[some] for some in rest]),
    )
    first = [slice(start, middle) for start, middle, _ in parts]
    return [(NO_NODES[0], _moved_together(nodes, first)), others]


def _moved_together(column: np.ndarray, parts: Sequence[slice]) -> np.ndarray:
    """Move parts of an array, which ascend, to its front, and shrink it without a copy."""
    at = 0
    for part in parts:
        to = slice(at, at + part.stop - part.start)
        if to != part:
            column[to] = column[part]
        at = to.stop
    column.resize(at, refcheck=False)
    return column


class _RoundSide:
    """An index prepared for searches, as queries and as data. `first`: first node of
    the index.
    """

    def __init__(self, index: Index, first: int) -> None:
        self.index = cpu_tiles.aligned_index(
            {name: index[name] for name in SEARCHED if name in index}
        )
        self.rows = len(index["names"])
        self.first, self.last = (
            first,
            first + -(-self.rows // cpu_tiles.TILE) * cpu_tiles.TILE,
        )
        if self.rows:
            self.tags = np.empty(index["least"].shape, np.int32)
            self.cores = np.empty(index["least"].shape)

    def terms(self, queries: bool) -> tuple[np.ndarray, ...]:
        """Return the arrays of coordinates and filter terms that kernels compare."""
        if "y" not in self.index:
            return (self.index["z"],)
        return (
            self.index["z"],
            self.index["half_norm" if queries else "start"],
            self.index["y"],
        )


class BoruvkaRounds:
    """Find the spanning tree of one index, or the edges between two indexes.

    `progress`: the state after earlier rounds; it is not changed. `read_only`: only
    `share` will be called. It does not change the state, so the arrays of `progress`
    are not copied. `threads`: number of threads that search in a round.
    """

    def __init__(
        self,
        sides: Sequence[Index],
        layout: NearestLayout,
        cores: Sequence[np.ndarray],
        nearest: Nearest | None = None,
        progress: Progress | None = None,
        read_only: bool = False,
        threads: int = 1,
    ) -> None:
        self.layout, self.threads = layout, threads
        self.sides: list[_RoundSide] = []
        for index in sides:
            self.sides.append(
                _RoundSide(index, self.sides[-1].last if self.sides else 0)
            )
        nodes = self.sides[-1].last
        self.rows = sum(side.rows for side in self.sides)
        self.component = np.full(nodes if progress is None else 0, -1, np.int32)
        self.names = np.zeros(nodes if len(sides) > 1 else self.rows, np.int32)
        # with one index, whose core distances are already padded, no copy is needed
        self.core = (
            cores[0]
            if len(cores) == 1 and len(cores[0]) == nodes
            else np.full(nodes, np.nan)
        )
        known = 0
        for side, index, core in zip(self.sides, sides, cores, strict=True):
            own = slice(side.first, side.first + side.rows)
            if progress is None:
                self.component[own] = np.arange(
                    known, known + side.rows, dtype=np.int32
                )
            self.names[own] = index["names"]
            if self.core is not core:
                self.core[own] = core[: side.rows]
            known += side.rows
            if side.rows:
                boruvka.min_core_distances(
                    self.core[side.first : side.last], side.index["levels"], side.cores
                )
        self.least, self.to = NO_NODES
        if nearest is None:
            self.near, self.away = np.empty((nodes, 0), np.int32), np.empty((nodes, 0))
            self.beyond = np.full(nodes, -1.0, np.float32)
        else:
            self.near, self.away = nearest[:2]
            self.beyond = nearest[2]
            if progress is None:
                self.beyond = np.full(nodes, -1.0, np.float32)
                self.beyond[: self.rows] = nearest[2]
        self.sizes, self.components = np.broadcast_to(np.int32(1), self.rows), self.rows
        # batches of edges: weights and nodes. If a batch has no weights, the weight of
        # an edge is the larger core distance of its ends
        self.found: list[tuple[np.ndarray, np.ndarray]] = []
        if progress is not None:
            self.component, self.least, self.to, self.beyond = (
                # read-only arrays are copied too, because Numba would compile kernels
                # again for them
                known if read_only and known.flags.writeable else known.copy()
                for known in (
                    progress[name] for name in ("component", "least", "to", "beyond")
                )
            )
            self.sizes = progress["sizes"].copy()
            self.found = list(progress["found"])
            self.components = len(self.sizes)

    @property
    def progress(self) -> Progress:
        """The state between two rounds, with the best edge of each component before the
        next search.
        """
        self._allocate_nodes()
        offered = self._offers()[:2]
        return {
            "component": self.component,
            "sizes": self.sizes,
            "least": self.least,
            "to": self.to,
            "beyond": self.beyond,
            "found": self.found,
            "offered": offered,
        }

    def _allocate_nodes(self) -> None:
        if len(self.to) < len(self.component):
            nodes = len(self.component)
            self.least, self.to = np.empty(nodes), np.empty(nodes, np.int32)

            def clear(start: int, stop: int) -> None:
                self.least[start:stop], self.to[start:stop] = -1.0, -1

            shared_out(clear, nodes, self.threads)

    def _idle(self) -> np.ndarray:
        """Return a mask of the components that do not search in this round. At least
        half of all components search.
        """
        number = self.components
        if number == self.rows:
            return np.zeros(0, np.bool_)
        # components of up to twice the median size search in this round
        half = (number - 1) // 2
        idle = self.sizes > 2 * np.partition(self.sizes, half)[half]
        if number > 1 and not idle.any():
            idle[np.argmax(self.sizes)] = True
        return idle

    def _offers(self) -> Best:
        """Return the best edge of each component that is known without a search.

        The weight is -inf if a component does not search in this round, so that no edge
        is better.
        """
        best = no_edges(self.components, self.names, self.threads)
        idle = self._idle()
        best[0][: len(idle)][idle] = -np.inf
        nearest = self.near, self.away, self.beyond
        known = self.component, self.core, self.names, *nearest, self.least, self.to

        def offer(start: int, stop: int) -> None:
            boruvka.offer_listed(*known, best, start, stop)

        tiles = len(self.component) // cpu_tiles.TILE
        self._shared_out(offer, tiles, MIN_OFFERED // cpu_tiles.TILE)
        return best

    def _shared_out(
        self, step: Callable[[int, int], None], n: int, least: int, turns: int = 1
    ) -> None:
        shared_out(step, n, self.threads, min_items=least, turns=turns)

    def _wanted(self, weights: np.ndarray) -> np.ndarray:
        """Return the nodes that must search, as one 64-bit mask per tile.

        A node must search if it may have an edge as light as its component's best known
        edge, or lighter. `weights`: the weights of these edges.
        """
        wanted = np.empty(self.sides[-1].last // cpu_tiles.TILE, np.uint64)
        known = self.component, self.core, self.least, self.to, self.beyond

        def mark(start: int, stop: int) -> None:
            boruvka.who_searches(*known, weights, wanted, start, stop)

        self._shared_out(mark, len(wanted), MIN_OFFERED // cpu_tiles.TILE)
        return wanted

    def _search(self, wanted: np.ndarray, best: Best) -> None:
        """Search from the nodes in `wanted`, and replace edges in `best` by better
        ones.
        """
        if not wanted.any():
            return
        for side in self.sides:
            if side.rows:
                self._tag(side)
        for q, d in zip(self.sides, self.sides[::-1], strict=True):
            if q.rows and d.rows:
                self._search_side(q, d, wanted, best)

    def _tag(self, side: _RoundSide) -> None:
        """Find the boxes of an index whose points are all in one component."""
        own, levels = self.component[side.first : side.last], side.index["levels"]
        self._shared_out(
            lambda *groups: boruvka.tag_tiles(own, side.tags, *groups),
            int(levels[1]),
            max(1, MIN_OFFERED // cpu_tiles.TILE**2),
        )
        boruvka.tag_boxes(len(own), levels, side.tags)

    def _settle(self, wanted: np.ndarray, best: Best) -> None:
        """Raise the bounds of the nodes that searched; `best`: best edges of components
        after the search.
        """
        across = self.sides[-1].first
        if not len(self.to):
            return

        def settle(start: int, stop: int) -> None:
            bounds = self.least, self.to
            boruvka.raise_bounds(
                self.component, wanted, best, across, *bounds, start, stop
            )

        self._shared_out(settle, len(wanted), MIN_OFFERED // cpu_tiles.TILE)

    def _join(self, best: Best) -> None:
        """Join the components that searched along their best edges, and number the
        components anew.
        """
        many, alone = (
            self.components,
            len(self.sides) == 1 and self.components == self.rows,
        )
        # in the first round of one index each node is a component, so `component` can
        # be the output
        parent = self.component[:many] if alone else np.arange(many, dtype=np.int32)
        weights, nodes = best[:2]

        def join(start: int, stop: int) -> tuple[int, int, int]:
            number = boruvka.join_components(self.component, best, parent, start, stop)
            own, bare = slice(start, start + number), 0
            if alone:
                bare = boruvka.part_edges(self.core, weights[own], nodes[own])
            return start, start + bare, start + number

        parts = shared_out(join, many, self.threads)
        before = self.sizes if many < self.rows else np.empty(0, np.int32)
        sizes = np.zeros(many, np.int32)
        left = boruvka.number_components(parent, before, sizes)
        # every component that searched has found an edge, so at least two have been
        # joined
        assert left < many
        self.sizes, self.components = sizes[:left].copy(), left
        if not alone:
            self._shared_out(
                lambda *some: boruvka.number_nodes(self.component, parent, *some),
                len(self.component),
                MIN_OFFERED,
            )
        self.found += _edges_of(weights, nodes, parts)

    def _search_side(
        self, q: _RoundSide, d: _RoundSide, wanted: np.ndarray, best: Best
    ) -> None:
        f, dims = self.layout.filter, self.layout.dims
        terms = (0.0,) * 5
        if f is not None:
            largest = float(max(q.index["norm"], d.index["norm"]))
            terms = f.scale * f.scale, f.kappa, dims * 2.0**-140, 8.0 * dims, largest
        rows = tuple(
            (
                *(
                    column[side.first : side.last]
                    for column in (self.component, self.core, self.names)
                ),
                side.first,
            )
            for side in (q, d)
        )
        own = d.index
        wanted = wanted[q.first // cpu_tiles.TILE : q.last // cpu_tiles.TILE]
        tiles = np.flatnonzero(wanted)
        queries = spanning.Queries(q.index["low"], q.index["high"], wanted)
        tree = own["lower"], own["upper"], own["levels"]
        data = spanning.Data(
            own["low"], own["high"], tree, own["least"], d.tags, d.cores
        )

        def search(start: int, stop: int) -> None:
            spanning.search_others(
                q.terms(True),
                d.terms(False),
                queries,
                data,
                terms,
                q is d,
                kind_of(self.layout.norm),
                int(tiles[start]),
                int(tiles[stop - 1]) + 1,
                rows,
                best,
                spanning.scratch(
                    len(own["low"]), len(own["lower"]), dims, own["lower"].dtype
                ),
            )

        if len(tiles):
            self._shared_out(search, len(tiles), MIN_SEARCHED_TILES, PARTS_PER_THREAD)

    def run(
        self, known: tuple[np.ndarray, ...] | None = None
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Run rounds until one component is left; return the edges of the tree in
        batches, as in `found`.

        `known`: weights, start nodes and end nodes of further edges that may be in the
        tree.
        """
        if known is not None or not self.near.shape[1] or self.components < self.rows:
            self._allocate_nodes()
        while self.components > 1:
            best = self._offers()
            if known is not None:
                kept = boruvka.offer_edges(self.component, self.names, *known, best)
                known = tuple(column[:kept] for column in known)
            wanted = self._wanted(best[0])
            self._search(wanted, best)
            self._settle(wanted, best)
            self._join(best)
            del best
            self._allocate_nodes()
        return self.found

    def share(self, offered: Sequence[np.ndarray], part: Part) -> Found:
        """Run one part of a round's searches; there must be one index. See
        `Spanner.share`.
        """
        best = with_locks(offered[0].copy(), offered[1].copy(), self.names)
        wanted = self._wanted(best[0])
        self._search(_part_of(wanted, part), best)
        better = best[1] != offered[1]
        return best[0][better], *ends_of(best[1][better])

    def join(self, offered: Sequence[np.ndarray], parts: Sequence[Found]) -> None:
        """Finish a round with the edges of all parts: see `Spanner.join`."""
        best = with_locks(offered[0].copy(), offered[1].copy(), self.names)
        wanted = self._wanted(best[0])
        for weight, start, end in parts:
            # copies, because `offer_edges` overwrites its arguments
            found = weight.copy(), start.copy(), end.copy()
            boruvka.offer_edges(self.component, self.names, *found, best)
        self._settle(wanted, best)
        self._join(best)

    def go_on(self, parts: int) -> Progress:
        """Run rounds until the next one is worth splitting into `parts` parts; return
        the state.
        """
        progress = self.progress
        while self.components > 1:
            offered = progress["offered"]
            wanted = self._wanted(offered[0])
            if np.unpackbits(wanted.view(np.uint8)).sum() * parts > self.rows // ALONE:
                break
            self.join(offered, [self.share(offered, (0, 1))])
            progress = self.progress
        return progress
