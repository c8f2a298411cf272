"""Sinks, which take the pairs that CPU kernels write, and the functions of a method's CPU module."""

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
"""Largest initial capacity in pairs."""

SCRATCH = 1 << 16
"""Pairs processed at a time, so that they stay in a core's own cache."""

NO_TOTALS = np.empty(0)

NO_PAIRS, NO_COUNTS = (np.empty(0, np.int32),) * 2, (np.empty(0, np.int64),) * 2
"""Empty outputs, for kernels that write no pairs or no counts."""


class Sink(Protocol):
    """Takes pairs that a kernel writes to the start of its arrays: `left` and `right`, and totals if kept."""

    left: np.ndarray
    right: np.ndarray
    totals: np.ndarray
    capacity: int

    def full(self, n: int, min_capacity: int) -> None:
        """Take the `n` pairs in the arrays, and make room for at least `min_capacity` pairs."""

    def end(self, n: int) -> None:
        """Take the last `n` pairs in the arrays."""


def fill(sink: Sink, write: Callable[[], tuple[int, int]]) -> None:
    """Call a kernel until it has written all pairs to a sink.

    `write`: writes from the start of the sink's arrays. It returns the number of pairs, and the capacity that
    it needs to continue (0: it is complete).
    """
    while True:
        n, least = write()
        if not least:
            sink.end(n)
            return
        sink.full(n, least)


class NamedPairs:
    """A sink that keeps the names (int32 or int64) that a kernel writes, and optionally distances.

    `capacity`: initial capacity in pairs; `distance`: converts totals to distances.
    """

    def __init__(self, capacity: int, dtype: DType, distance: Measured | None = None) -> None:
        dtypes = (dtype, dtype) + (np.float64,) * (distance is not None)
        self._columns = GrowingColumns(dtypes, capacity, SWEEP_LANES)
        self._distance = distance
        self._expose()

    def _expose(self) -> None:
        self.left, self.right, *more = self._columns.free()
        self.totals = more[0] if more else NO_TOTALS
        self.capacity = self._columns.capacity

    def _measure(self, n: int) -> None:
        if self._distance is not None:
            for first in range(0, n, SCRATCH):
                some = self.totals[first : min(first + SCRATCH, n)]
                some[:] = self._distance(some)

    def full(self, n: int, min_capacity: int) -> None:
        self._measure(n)
        self._columns.advance(n, min_capacity)
        self._expose()

    def end(self, n: int) -> None:
        self._measure(n)
        self._columns.advance(n)

    def whole(self) -> tuple[np.ndarray, ...]:
        """Return the written columns; the sink must not be used afterwards."""
        del self.left, self.right, self.totals
        return self._columns.end()


class _PlaceBuffer:
    """A sink of places (int32); a derived class takes them in `end`."""

    totals = NO_TOTALS

    def __init__(self) -> None:
        self._allocate(SCRATCH)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        # kernels write whole vectors, which may end behind the capacity
        self.left, self.right = (np.empty(capacity + SWEEP_LANES, np.int32) for _ in range(2))

    def full(self, n: int, min_capacity: int) -> None:
        self.end(n)
        if min_capacity > self.capacity:
            self._allocate(min_capacity)

    def end(self, n: int) -> None:
        raise NotImplementedError


class LabelColumns(_PlaceBuffer):
    """A sink of places in two indexes that keeps the rows' labels, and optionally distances and values.

    Parameters
    ----------
    capacity : int
        Initial capacity in pairs.
    sides : pair of tuples
        For each side: coordinates (n, d), positions (n,) and integer labels (n,), all in index order.
    is_self_join : bool
        Whether both sides are one chunk, so that the row with the smaller position is the left row.
    distance : callable or None
        Converts totals of this `norm` to distances.
    kept : pair of lists of arrays
        Further values of the left and the right rows to gather, by place in the whole index.
    firsts : pair of int
        Place of each side's first row in the whole index.
    """

    def __init__(self, capacity: int, sides: Any, *, is_self_join: bool, distance: Measured | None,
                 norm: Kind = SQUARES, kept: Kept = ((), ()),
                 firsts: tuple[int, int] = (0, 0)) -> None:  # fmt: skip
        names = [labels.dtype for _, _, labels in sides]
        dtypes = (*names, *(np.float64,) * (distance is not None))
        dtypes = (*dtypes, *(values.dtype for side in kept for values in side))
        self._columns = GrowingColumns(dtypes, capacity)
        # labels always have 8 bytes, so that few kernels are compiled
        self._sides = [(y, order, labels.astype(np.int64, copy=False)) for y, order, labels in sides]
        self._narrow = any(dtype != np.int64 for dtype in names)
        self._is_self_join, self._distance, self._norm = is_self_join, distance, norm
        self._kept, self._firsts = kept, firsts
        super().__init__()

    def _allocate(self, capacity: int) -> None:
        super()._allocate(capacity)
        self._wide = np.empty((2, capacity * self._narrow), np.int64)

    def end(self, n: int) -> None:
        self._columns.advance(0, n)
        out = [column[:n] for column in self._columns.free()]
        (q_y, q_order, q_labels), (d_y, d_order, d_labels) = self._sides
        places = self.left[:n], self.right[:n]
        names = [wide[:n] for wide in self._wide] if self._narrow else out[:2]
        finish.label(q_order, q_labels, d_order, d_labels, self._is_self_join, *places, *names)
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
        finish.orient(q_order, d_order, self._is_self_join, *places, *self._firsts, *whole)
        for side, rows in zip(self._kept, whole, strict=True):
            for values in side:  # as bits, so that one kernel serves all dtypes of a size
                finish.gather(values.view(BITS[values.itemsize]), rows, next(out).view(BITS[values.itemsize]))

    def whole(self) -> tuple[np.ndarray, ...]:
        """Return the written columns; the sink must not be used afterwards."""
        return self._columns.end()


class Shown(_PlaceBuffer):
    """A sink that passes pairs to a function as two int32 arrays, and keeps none."""

    def __init__(self, function: Callable[[np.ndarray, np.ndarray], None]) -> None:
        super().__init__()
        self._function = function

    def end(self, n: int) -> None:
        if n:
            self._function(self.left[:n], self.right[:n])


class Deciding(_PlaceBuffer):
    """A sink of candidates, by the places of both sides, that passes pairs on to another sink.

    `q`, `d`: the indexes, with the coordinates "x" (d, n or more) by place; `names`: names of both sides'
    rows by place, for the other sink; `orient_by_position`: whether the row with the smaller position comes
    first.
    """

    def __init__(self, sink: Sink, q: Index, d: Index, names: list[np.ndarray], threshold: float, norm: Kind,
                 orient_by_position: bool) -> None:  # fmt: skip
        self._sink, self._sides, self._names = sink, (q, d), names
        self._threshold, self._norm, self._orient_by_position = threshold, norm, orient_by_position
        self._used = self.decided = self.refused = 0
        self._scratch = scratch()
        super().__init__()

    def full(self, n: int, min_capacity: int) -> None:
        """Decide `n` candidates. The arrays are larger than any `min_capacity` that kernels request."""
        q, d = self._sides
        places, near, totals = (self.left[:n], self.right[:n]), np.empty(n, np.int32), np.empty(n)
        found = decide(q["x"], d["x"], *places, self._threshold, self._norm, near, totals, *self._scratch)
        self.decided, self.refused = self.decided + n, self.refused + n - found
        i, j = (some.take(near[:found]) for some in places)
        left, right = self._names[0].take(i), self._names[1].take(j)
        if self._orient_by_position:
            later = q["order"].take(i) > d["order"].take(j)
            left, right = np.where(later, right, left), np.where(later, left, right)
        sink = self._sink
        if self._used + found > sink.capacity:
            sink.full(self._used, found)
            self._used = 0
        some = slice(self._used, self._used + found)
        sink.left[some], sink.right[some] = left, right
        if len(sink.totals):
            sink.totals[some] = totals[:found]
        self._used += found

    def end(self, n: int) -> None:
        """Decide the last `n` candidates."""
        self.full(n, 0)
        self._sink.end(self._used)


Sides = tuple[np.ndarray, np.ndarray]
"""One array per side, by place; the same array twice if both are one index."""


class CpuMethod(Protocol):
    """The functions of a method's CPU module.

    An index has "order" (n + lanes, int32): the positions of its points, in the order of its places.
    """

    writes_names: bool
    """Whether `pairs` can write int64 names, and totals if the sink has an array for them."""

    def layout(self, options: Any, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, threshold: float, norm: Norm,
               drawn: Drawn | None = None) -> Layout:  # fmt: skip
        """Choose the layout of all chunks from moments (d,) of all points, the threshold and a sample.

        `options`: the method as an object of its class in `METHODS`.
        """

    def build(self, x: np.ndarray, layout: Layout, threads: int = 1) -> Index:
        """Index the points (n, d) of a chunk; `threads`: number of threads that share the work."""

    def part(self, index: Index, start: int, stop: int) -> Index:
        """Return the index of the points at places start ... stop-1, with their positions in the chunk."""

    def points(self, index: Index) -> np.ndarray:
        """Return the coordinates (n or more, d) of an index's points, by place."""

    def pairs(self, q: Index, d: Index, layout: Layout, is_self_join: bool, names: list[np.ndarray],
              sink: Sink, orient_by_position: bool) -> tuple[int, int]:  # fmt: skip
        """Write all pairs to a sink; `names`: names of both sides' rows, by place.

        `orient_by_position`: whether the row with the smaller position is the left row, if the method
        supports it. Return how many candidates float64 decided, and how many of them it refused.
        """

    def counts(self, q: Index, d: Index, layout: Layout, is_self_join: bool, q_counts: np.ndarray,
               d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
        """Add the number of pairs of each place to the counts of both sides.

        With `is_self_join` both counts are one array, or only the first array is filled. From `enough` on,
        counts need not be exact.
        """

    def layout_stats(self, index: Index, layout: Layout) -> Numbers:
        """Return counters of a join of an index with itself, for its profile."""

    def work(self, q: Index, d: Index, layout: Layout, is_self_join: bool) -> np.ndarray:
        """Estimate the relative work of equal parts of the first side's places: see `Joiner.work`."""

    def end(self, index: Index, stop: int, layout: Layout) -> int:
        """Return a place whose later points are all far from the points before the place `stop`."""


@runtime_checkable
class OneSided(Protocol):
    """A method that counts neighbors of one side as fast as neighbors of both sides."""

    def one_sided(self, q: Index, d: Index, layout: Layout, q_counts: np.ndarray,
                  rows: Rows | None = None, *, later: bool = False) -> None:  # fmt: skip
        """Add to `q_counts` the number of points of `d` near each place of `q`; a point is near itself.

        `rows`: only these places. `later`: both are one index, and only later places count.
        """


@runtime_checkable
class Tallying(Protocol):
    """A method that can count pairs within several limits without keeping any."""

    def tallies(self, q: Index, d: Index, layout: Layout, limits: np.ndarray) -> bool:
        """Return whether counting these pairs takes less time than finding each of them."""

    def tally(self, q: Index, d: Index, layout: Layout, limits: np.ndarray, is_self_join: bool, by_row: bool,
              q_found: np.ndarray, d_found: np.ndarray) -> None:  # fmt: skip
        """Add the number of pairs within each of some ascending limits: see `Joiner.tally`.

        `by_row`: to the arrays (places, limits) of both sides, which are one array if `is_self_join`.
        Otherwise all pairs count in the first array (1, limits).
        """


@runtime_checkable
class Choosing(Protocol):
    """A method whose `connect` and `lowest` copy only the points that are compared."""

    def loose_part(self, index: Index, start: int, stop: int) -> Index:
        """Return a `part` without copies, for `connect` and `lowest` only."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """A method that connects rows without finding each pair; arguments of `Sides` are by place."""

    def connect(self, q: Index, d: Index, layout: Layout, is_self_join: bool, nodes: Sides,
                parent: np.ndarray) -> None:  # fmt: skip
        """Join the sets of both ends of pairs in a forest of nodes: see `Joiner.connect`.

        `nodes`: the node of each place (int64), or -1 if it takes no part.
        """

    def lowest(
        self, q: Index, d: Index, layout: Layout, is_self_join: bool, labels: Sides, low: Sides
    ) -> None:
        """Lower entries of `low` as `Joiner.lowest` does; `labels` and `low` are int64."""


@runtime_checkable
class Ranged(Protocol):
    """A method that counts and labels some places of one index, while other threads do other places."""

    def counts_of(
        self, index: Index, layout: Layout, rows: Rows, counts: np.ndarray, enough: int | None = None
    ) -> None:
        """Add all pairs of the places `rows` to their counts, which need not be exact from `enough` on."""

    def lowest_of(
        self, index: Index, layout: Layout, rows: Rows, labels: np.ndarray, low: np.ndarray
    ) -> None:
        """Lower `low` of the places `rows` as `ManyAtOnce.lowest` does."""


def places_of(*sides: Index) -> list[np.ndarray]:
    """Return the places of each index, to be written by a kernel in place of names."""
    return [np.arange(len(side["order"]), dtype=np.int32) for side in sides]


def connect(method: CpuMethod, q: Index, d: Index, layout: Layout, is_self_join: bool, nodes: Sides,
            parent: np.ndarray) -> None:  # fmt: skip
    """Connect pairs one by one: see `ManyAtOnce.connect`."""

    def link(left: np.ndarray, right: np.ndarray) -> None:
        components.link(parent, left, right, *nodes)

    method.pairs(q, d, layout, is_self_join, places_of(q, d), Shown(link), False)


def lowest(
    method: CpuMethod, q: Index, d: Index, layout: Layout, is_self_join: bool, labels: Sides, low: Sides
) -> None:
    """Lower labels pair by pair: see `ManyAtOnce.lowest`."""

    def lower(left: np.ndarray, right: np.ndarray) -> None:
        components.lowest(left, right, *labels, *low)

    method.pairs(q, d, layout, is_self_join, places_of(q, d), Shown(lower), False)
