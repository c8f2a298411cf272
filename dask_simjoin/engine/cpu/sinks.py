"""Write pairs from CPU kernels in one pass, and run a method's kernels into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.columns import GrowingColumns
from dask_simjoin.engine.compat import BITS
from dask_simjoin.engine.cpu.kernels import components
from dask_simjoin.engine.cpu.kernels import totals as finish
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import SQUARES, Kind, decide, scratch
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.protocols import Kept, Layout, Measured, Rows
from dask_simjoin.metrics.norms import DType, Index, Norm

MAX_ROOM = 1 << 27
"""Pairs for which memory is reserved at first at most."""

SCRATCH = 1 << 16
"""Pairs that are labeled at a time: they stay in a core's own cache."""


NO_TOTALS = np.empty(0)

NO_PAIRS, NO_COUNTS = (np.empty(0, np.int32),) * 2, (np.empty(0, np.int64),) * 2
"""What kernels are given that only count, or only write."""


class Sink(Protocol):
    """What a kernel's driver writes to: two int32 arrays, emptied when they are full."""

    left: np.ndarray
    right: np.ndarray
    totals: np.ndarray
    room: int

    def full(self, n: int, least: int) -> None:
        """The arrays hold `n` pairs; make room for at least `least`."""

    def end(self, n: int) -> None:
        """The arrays hold the last `n` pairs."""


def fill(sink: Sink, write: Callable[[], tuple[int, int]]) -> None:
    """Call a kernel until all is written.

    `write`: writes from the start of the sink's arrays, as they are then; returns the number of pairs, and
    how much room it lacks to go on (0: that was all).
    """
    while True:
        n, least = write()
        if not least:
            sink.end(n)
            return
        sink.full(n, least)


class NamedPairs:
    """Keeps names that a kernel writes, and distances made of totals if asked for.

    Parameters
    ----------
    room : int
        Pairs for which memory is reserved at first.
    dtype : dtype
        Of the names: int32 or int64.
    distance : callable or None
        Makes distances of totals.
    """

    def __init__(self, room: int, dtype: DType, distance: Measured | None = None) -> None:
        dtypes = (dtype, dtype) + (np.float64,) * (distance is not None)
        self._columns = GrowingColumns(dtypes, room, SWEEP_LANES)
        self._distance = distance
        self._expose()

    def _expose(self) -> None:
        self.left, self.right, *more = self._columns.free()
        self.totals = more[0] if more else NO_TOTALS
        self.room = self._columns.room

    def _measure(self, n: int) -> None:
        if self._distance is not None:
            for first in range(0, n, SCRATCH):
                some = self.totals[first : min(first + SCRATCH, n)]
                some[:] = self._distance(some)

    def full(self, n: int, least: int) -> None:
        self._measure(n)
        self._columns.advance(n, least)
        self._expose()

    def end(self, n: int) -> None:
        self._measure(n)
        self._columns.advance(n)

    def whole(self) -> tuple[np.ndarray, ...]:
        """All that was written: nothing can be written any more."""
        del self.left, self.right, self.totals
        return self._columns.end()


class LabelColumns:
    """Takes places in two indexes; keeps the rows' labels, left first, and distances if asked for.

    Parameters
    ----------
    room : int
        Pairs for which memory is reserved at first.
    sides : pair of tuples
        For each side: coordinates (n, d), positions (n,) and labels (n,) of integers, all in the
        index's order.
    same : bool
        Whether both sides are one chunk: then the row of the smaller position is the left one.
    distance : callable or None
        Makes distances of totals.
    norm : tuple
        Of the totals.
    kept : pair of lists of arrays
        What else is kept of the left and of the right rows, by their places in whole indexes.
    firsts : pair of int
        The places there of the sides' first rows.
    """

    totals = NO_TOTALS

    def __init__(self, room: int, sides: Any, *, same: bool, distance: Measured | None, norm: Kind = SQUARES,
                 kept: Kept = ((), ()), firsts: tuple[int, int] = (0, 0)) -> None:  # fmt: skip
        names = [labels.dtype for _, _, labels in sides]
        dtypes = (*names, *(np.float64,) * (distance is not None))
        dtypes = (*dtypes, *(values.dtype for side in kept for values in side))
        self._columns = GrowingColumns(dtypes, room)
        # few kernels are compiled: they take and give labels of 8 bytes
        self._sides = [(y, order, labels.astype(np.int64, copy=False)) for y, order, labels in sides]
        self._narrow = any(dtype != np.int64 for dtype in names)
        self._same, self._distance, self._norm = same, distance, norm
        self._kept, self._firsts = kept, firsts
        self._scratch(SCRATCH)

    def _scratch(self, room: int) -> None:
        self.room = room
        self.left = np.empty(room + SWEEP_LANES, np.int32)
        self.right = np.empty(room + SWEEP_LANES, np.int32)
        self._wide = np.empty((2, room * self._narrow), np.int64)

    def _flush(self, n: int) -> None:
        self._columns.advance(0, n)
        out = [column[:n] for column in self._columns.free()]
        (q_y, q_order, q_labels), (d_y, d_order, d_labels) = self._sides
        places = self.left[:n], self.right[:n]
        names = [wide[:n] for wide in self._wide] if self._narrow else out[:2]
        finish.label(q_order, q_labels, d_order, d_labels, self._same, *places, *names)
        if self._narrow:
            out[0][:], out[1][:] = names
        if self._distance is not None:
            finish.measure(q_y, d_y, *places, self._norm, out[2])
            out[2][:] = self._distance(out[2])
        if any(self._kept):
            self._keep(places, n, iter(out[len(out) - sum(map(len, self._kept)) :]))
        self._columns.advance(n)

    def _keep(self, places: tuple[np.ndarray, np.ndarray], n: int, out: Iterator[np.ndarray]) -> None:
        (_, q_order, _), (_, d_order, _) = self._sides
        whole = np.empty((2, n), np.int32)
        finish.orient(q_order, d_order, self._same, *places, *self._firsts, *whole)
        for side, rows in zip(self._kept, whole, strict=True):
            for values in side:  # while the places are in the core's cache
                # bits are moved, of whatever they are: few kernels are compiled
                finish.gather(values.view(BITS[values.itemsize]), rows, next(out).view(BITS[values.itemsize]))

    def full(self, n: int, least: int) -> None:
        self._flush(n)
        if least > self.room:
            self._scratch(least)

    def end(self, n: int) -> None:
        self._flush(n)

    def whole(self) -> tuple[np.ndarray, ...]:
        """All that was written: nothing can be written any more."""
        return self._columns.end()


class Shown:
    """Shows pairs to a function, two arrays of int32, and keeps none."""

    totals = NO_TOTALS

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], None]) -> None:
        self._function = function
        self._scratch(SCRATCH)

    def _scratch(self, room: int) -> None:
        self.room = room
        self.left = np.empty(room + SWEEP_LANES, np.int32)
        self.right = np.empty(room + SWEEP_LANES, np.int32)

    def full(self, n: int, least: int) -> None:
        self.end(n)
        if least > self.room:
            self._scratch(least)

    def end(self, n: int) -> None:
        if n:
            self._function(self.left[:n], self.right[:n])


class Deciding:
    """A sink of candidates, by the places of both sides.

    Parameters
    ----------
    sink : Sink
        What pairs are written to.
    q, d : dict of arrays
        The indexes, with the coordinates "x" (d, n or more) by place.
    names : list of arrays
        What pairs are called, by place.
    threshold : float
    norm : tuple
        Of the totals that the decision compares.
    turn : bool
        Whether the row of the smaller position is the left one.
    """

    totals = NO_TOTALS

    def __init__(self, sink: Sink, q: Index, d: Index, names: list[np.ndarray], threshold: float, norm: Kind,
                 turn: bool) -> None:  # fmt: skip
        self._sink, self._sides, self._names = sink, (q, d), names
        self._threshold, self._norm, self._turn = threshold, norm, turn
        self._used = self.decided = self.refused = 0
        self.room, self._scratch = SCRATCH, scratch()
        self.left, self.right = (np.empty(SCRATCH + SWEEP_LANES, np.int32) for _ in range(2))

    def full(self, n: int, least: int) -> None:
        """Decide on `n` candidates; there is room for more than a kernel asks for."""
        q, d = self._sides
        places, near, totals = (self.left[:n], self.right[:n]), np.empty(n, np.int32), np.empty(n)
        found = decide(q["x"], d["x"], *places, self._threshold, self._norm, near, totals, *self._scratch)
        self.decided, self.refused = self.decided + n, self.refused + n - found
        i, j = (some.take(near[:found]) for some in places)
        left, right = self._names[0].take(i), self._names[1].take(j)
        if self._turn:
            later = q["order"].take(i) > d["order"].take(j)
            left, right = np.where(later, right, left), np.where(later, left, right)
        sink, more = self._sink, found
        if self._used + more > sink.room:
            sink.full(self._used, more)
            self._used = 0
        some = slice(self._used, self._used + more)
        sink.left[some], sink.right[some] = left, right
        if len(sink.totals):
            sink.totals[some] = totals[:found]
        self._used += more

    def end(self, n: int) -> None:
        """Decide on the last `n` candidates."""
        self.full(n, 0)
        self._sink.end(self._used)


Sides = tuple[np.ndarray, np.ndarray]
"""An array of each side, by place: one, where both are one index."""


class CpuMethod(Protocol):
    """The functions of such a module.

    An index has "order" (n + lanes, int32): the positions of its points, in the order of its places.
    """

    writes_names: bool
    """Whether names may be int64, as the sink's arrays then are, and totals are written where it has room."""

    def layout(self, options: Any, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, threshold: float, norm: Norm,
               drawn: Drawn | None = None) -> Layout:  # fmt: skip
        """Choose how to index all chunks, from moments (d,) of all points, the decision and some points.

        `options`: the method as an object, of the class that `METHODS` has.
        """

    def build(self, x: np.ndarray, layout: Layout, threads: int = 1) -> Index:
        """Index the points (n, d) of a chunk; `threads`: that may share the work."""

    def part(self, index: Index, start: int, stop: int) -> Index:
        """Return the index of the points at places start ... stop-1, with their positions in the whole."""

    def points(self, index: Index) -> np.ndarray:
        """Return the coordinates (n or more, d) of an index's points, by place."""

    def pairs(self, q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
              sink: Sink, turn: bool) -> tuple[int, int]:  # fmt: skip
        """Write all pairs, by these names of the places of both sides, to a sink.

        `turn`: the row of the smaller position is the left one, if the method tells by it.
        Returns how many pairs only float64 could tell, and how many of them it refused.
        """

    def counts(self, q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
               d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
        """Add up the pairs of each place of both sides; of `same` in one array, or the first side's only.

        From `enough` on they need not be right.
        """

    def layout_stats(self, index: Index, layout: Layout) -> Numbers:
        """Count what a join of an index with itself does, or looks at, for its profile."""

    def work(self, q: Index, d: Index, layout: Layout, same: bool) -> np.ndarray:
        """Estimate how much work equal parts of the first side's places give: see `Joiner.work`."""

    def end(self, index: Index, stop: int, layout: Layout) -> int:
        """Return the place after the last one that those before `stop` may be near to."""


@runtime_checkable
class OneSided(Protocol):
    """The function of one that counts the pairs of one side as fast as those of both at once."""

    def one_sided(self, q: Index, d: Index, layout: Layout, q_counts: np.ndarray,
                  rows: Rows | None = None, *, later: bool = False) -> None:  # fmt: skip
        """Add up the points of `d` near each place of `q`, itself included where it is in both.

        `rows`: of those places only.  `later`: both are one index, and only points at later places count.
        """


@runtime_checkable
class Tallying(Protocol):
    """The functions of one that may count pairs within several limits without keeping any."""

    def tallies(self, q: Index, d: Index, layout: Layout, limits: np.ndarray) -> bool:
        """Return whether it does so, and takes less time."""

    def tally(self, q: Index, d: Index, layout: Layout, limits: np.ndarray, same: bool, by_row: bool,
              q_found: np.ndarray, d_found: np.ndarray) -> None:  # fmt: skip
        """Add up the pairs within each of some ascending limits: see `Joiner.tally`.

        `by_row`: of each place (places, limits) of both sides, which are one array if `same`; else of all
        pairs in the first array (1, limits).
        """


@runtime_checkable
class Choosing(Protocol):
    """The function of one whose `connect` and `lowest` copy the points that meet, and no others."""

    def loose_part(self, index: Index, start: int, stop: int) -> Index:
        """Do as `part` does, but copy nothing: only those two take it."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """The functions of one that need not find each pair to tell what pairs connect: else `one_by_one` does.

    Arrays of both sides are by place, and one where both are one index.
    """

    def connect(self, q: Index, d: Index, layout: Layout, same: bool, nodes: Sides,
                parent: np.ndarray) -> None:  # fmt: skip
        """Join the sets of both ends of pairs in a forest of nodes: see `Joiner.connect`.

        `nodes`: int64, of each place, or -1 if it takes no part.
        """

    def lowest(self, q: Index, d: Index, layout: Layout, same: bool, labels: Sides, low: Sides) -> None:
        """Lower what places without a label (-1) have in `low` to their neighbors' labels; all int64."""


def connect(method: CpuMethod, q: Index, d: Index, layout: Any, same: bool, nodes: Sides,
            parent: np.ndarray) -> None:  # fmt: skip
    """Do what `CpuMethod.connect` says."""

    def link(left: np.ndarray, right: np.ndarray) -> None:
        components.link(parent, left, right, *nodes)

    method.pairs(q, d, layout, same, _places(q, d), Shown(link), False)


def lowest(method: CpuMethod, q: Index, d: Index, layout: Any, same: bool, labels: Sides, low: Sides) -> None:
    """Do what `CpuMethod.lowest` says."""

    def lower(left: np.ndarray, right: np.ndarray) -> None:
        components.lowest(left, right, *labels, *low)

    method.pairs(q, d, layout, same, _places(q, d), Shown(lower), False)


def _places(*sides: Index) -> list[np.ndarray]:
    return [np.arange(len(side["order"]), dtype=np.int32) for side in sides]
