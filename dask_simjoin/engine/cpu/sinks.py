"""Sinks, which receive the pairs that CPU kernels write; and the interface of a
method's CPU module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.columns import GrowingColumns
from dask_simjoin.engine.compat import BITS
from dask_simjoin.engine.cpu.kernels import components
from dask_simjoin.engine.cpu.kernels import totals as finish
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import SQUARES, Kind, scratch
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Kept, Layout, Measured, Rows
from dask_simjoin.metrics.norms import DType, Index, Norm
from dask_simjoin.sizes import MIN_PART

NO_TOTALS = np.empty(0)

NO_PAIRS, NO_COUNTS = (np.empty(0, np.int32),) * 2, (np.empty(0, np.int64),) * 2
"""Empty output arrays, for calls of kernels that write no pairs or no counts."""


class Sink(Protocol):
    """Receives pairs. A kernel writes them to the arrays `left`, `right` and `totals`,
    from their start.
    """

    left: np.ndarray
    right: np.ndarray
    # totals of the pairs; an empty array if the sink does not need them
    totals: np.ndarray
    capacity: int  # number of pairs that fit into the arrays

    def full(self, n: int, min_capacity: int) -> None:
        """Consume the first `n` pairs of the arrays, and provide space for at least
        `min_capacity` pairs.
        """

    def end(self, n: int) -> None:
        """Consume the first `n` pairs of the arrays. They are the last pairs of the
        join.
        """


def fill(sink: Sink, write: Callable[[], tuple[int, int]]) -> None:
    """Call a kernel until it has written all pairs to a sink.

    `write`: calls the kernel, which writes from the start of the sink's arrays. It
    returns the number of pairs written, and the capacity that the kernel needs to
    continue, or 0 if all pairs are written.
    """
    while True:
        n, least = write()
        if not least:
            sink.end(n)
            return
        sink.full(n, least)


class NamedPairs:
    """A sink that keeps the names of pairs as the kernel writes them, int32 or int64.

    A name is a position or a label. `capacity`: initial capacity in pairs. `distance`:
    function that converts totals to distances; if it is given, distances are kept as
    well.
    """

    def __init__(
        self, capacity: int, dtype: DType, distance: Measured | None = None
    ) -> None:
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
            for first in range(0, n, MIN_PART):
                some = self.totals[first : min(first + MIN_PART, n)]
                some[:] = self._distance(some)

    def full(self, n: int, min_capacity: int) -> None:
        self._measure(n)
        self._columns.advance(n, min_capacity)
        self._expose()

    def end(self, n: int) -> None:
        self._measure(n)
        self._columns.advance(n)
        self._expose()

    def take_columns(self) -> tuple[np.ndarray, ...]:
        """Return the columns of all pairs. Do not use the sink afterwards."""
        del self.left, self.right, self.totals
        return self._columns.end()


class _PlaceBuffer:
    """Base class of sinks that get places (int32) instead of names from kernels. `end`
    consumes them.
    """

    totals = NO_TOTALS

    def __init__(self) -> None:
        self._allocate(MIN_PART)

    def _allocate(self, capacity: int) -> None:
        self.capacity = capacity
        # kernels write whole vectors, so they may write past the capacity
        self.left, self.right = (
            np.empty(capacity + SWEEP_LANES, np.int32) for _ in range(2)
        )

    def full(self, n: int, min_capacity: int) -> None:
        self.end(n)
        if min_capacity > self.capacity:
            self._allocate(min_capacity)

    def end(self, n: int) -> None:
        raise NotImplementedError


class LabelColumns(_PlaceBuffer):
    """A sink that gets places from a kernel, and keeps the labels of these rows.

    It can keep other columns, too.

    Parameters
    ----------
    capacity : int
        Initial capacity in pairs.
    dtypes : pair of dtypes
        Dtypes of the labels: integers.
    is_self_join : bool
        Whether both indexes are from one chunk, so that the row with the smaller
        position is on the left.
    distance : callable or None
        Function that converts totals of `norm` to distances. If it is given, distances
        are kept as well.
    kept : pair of lists of arrays
        Columns to gather for the left rows and for the right rows, each in the order of
        the whole index.
    with_totals : bool
        Whether the kernel also writes the totals of pairs.
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Sequence[np.dtype[Any]],
        *,
        is_self_join: bool,
        distance: Measured | None,
        norm: Kind = SQUARES,
        kept: Kept = ((), ()),
        with_totals: bool = False,
    ) -> None:
        self._with_totals = with_totals and distance is not None
        columns = (*dtypes, *(np.float64,) * (distance is not None))
        columns = (*columns, *(values.dtype for side in kept for values in side))
        self._columns = GrowingColumns(columns, capacity)
        self._narrow = any(dtype != np.int64 for dtype in dtypes)
        self._is_self_join, self._distance, self._norm = is_self_join, distance, norm
        self._kept = kept
        super().__init__()

    def compare(self, sides: Any, firsts: Rows) -> None:
        """Begin to receive places of two indexes.

        `sides`: for each index, coordinates (n, d), positions (n,) and integer labels
        (n,), all in index order. `firsts`: for each index, the place of its first row
        in the whole index, if it is a part of one.
        """
        # labels are converted to 8 bytes, so that kernels are compiled for one dtype
        # only
        self._sides = [
            (y, order, labels.astype(np.int64, copy=False))
            for y, order, labels in sides
        ]
        self._firsts = firsts

    def _allocate(self, capacity: int) -> None:
        super()._allocate(capacity)
        self._wide = np.empty((2, capacity * self._narrow), np.int64)
        if self._with_totals:
            self.totals = np.empty(capacity)

    def end(self, n: int) -> None:
        self._columns.advance(0, n)
        out = [column[:n] for column in self._columns.free()]
        (q_y, q_order, q_labels), (d_y, d_order, d_labels) = self._sides
        places = self.left[:n], self.right[:n]
        names = [wide[:n] for wide in self._wide] if self._narrow else out[:2]
        finish.label(
            q_order, q_labels, d_order, d_labels, self._is_self_join, *places, *names
        )
        if self._narrow:
            out[0][:], out[1][:] = names
        if self._distance is not None:
            if self._with_totals:
                out[2][:] = self.totals[:n]
            else:
                finish.measure(q_y, d_y, *places, self._norm, out[2])
            out[2][:] = self._distance(out[2])
        if any(self._kept):
            self._keep(places, n, iter(out[len(out) - sum(map(len, self._kept)) :]))
        self._columns.advance(n)

    def _keep(
        self, places: tuple[np.ndarray, np.ndarray], n: int, out: Iterator[np.ndarray]
    ) -> None:
        (_, q_order, _), (_, d_order, _) = self._sides
        oriented = np.empty((2, n), np.int32)
        finish.orient(
            q_order, d_order, self._is_self_join, *places, *self._firsts, *oriented
        )
        for side, rows in zip(self._kept, oriented, strict=True):
            # viewed as unsigned integers, so that one kernel serves all dtypes of the
            # same size
            for values in side:
                finish.gather(
                    values.view(BITS[values.itemsize]),
                    rows,
                    next(out).view(BITS[values.itemsize]),
                )

    def take_columns(self) -> tuple[np.ndarray, ...]:
        """Return the columns of all pairs. Do not use the sink afterwards."""
        return self._columns.end()


class CallbackSink(_PlaceBuffer):
    """A sink that passes the left and the right places (int32) of pairs to a function,
    and keeps nothing. `with_totals`: it also passes their totals.
    """

    def __init__(
        self, function: Callable[..., None], with_totals: bool = False
    ) -> None:
        self._function, self._with_totals = function, with_totals
        super().__init__()

    def _allocate(self, capacity: int) -> None:
        super()._allocate(capacity)
        if self._with_totals:
            self.totals = np.empty(capacity)

    def end(self, n: int) -> None:
        if n:
            totals = [self.totals[:n]] if self._with_totals else []
            self._function(self.left[:n], self.right[:n], *totals)


Decided = tuple[np.ndarray, np.ndarray]
"""The candidates that are pairs, as indexes (n,), int32; and their totals (n,)."""


class Deciding(_PlaceBuffer):
    """A sink that gets candidates from a kernel, decides which are pairs, and passes
    these to another sink.

    `sides`: the indexes. `names`: for each index, the name of each row, in index order.
    The other sink gets these names. `decide`: decides candidates, given as left and
    right places. `orient_by_position`: whether the row with the smaller position is on
    the left.
    """

    def __init__(
        self,
        sink: Sink,
        sides: tuple[Index, Index],
        names: list[np.ndarray],
        decide: Callable[[np.ndarray, np.ndarray], Decided],
        orient_by_position: bool,
    ) -> None:
        self._sink, self._sides, self._names = sink, sides, names
        self._decide, self._orient_by_position = decide, orient_by_position
        self._used = self.decided = self.refused = 0
        super().__init__()

    def full(self, n: int, min_capacity: int) -> None:
        """Decide the first `n` candidates of the arrays."""
        q, d = self._sides
        places = self.left[:n], self.right[:n]
        near, totals = self._decide(*places)
        found = len(near)
        self.decided, self.refused = self.decided + n, self.refused + n - found
        i, j = (some.take(near) for some in places)
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
            sink.totals[some] = totals
        self._used += found
        if min_capacity > self.capacity:
            self._allocate(min_capacity)

    def end(self, n: int) -> None:
        """Decide the first `n` candidates of the arrays. They are the last candidates
        of the join.
        """
        self.full(n, 0)
        self._sink.end(self._used)


def decided_by_totals(
    q: Index, d: Index, threshold: float, norm: Kind
) -> Callable[[np.ndarray, np.ndarray], Decided]:
    """Return a function for `Deciding` that compares totals with a threshold. The
    indexes have coordinates (d, n or more) in "x".
    """
    memory = scratch()

    def decide(left: np.ndarray, right: np.ndarray) -> Decided:
        near, totals = np.empty(len(left), np.int32), np.empty(len(left))
        how = q["x"], d["x"], left, right, threshold, norm, near, totals
        found = finish.decide(*how, *memory)
        return near[:found], totals[:found]

    return decide


Sides = tuple[np.ndarray, np.ndarray]
"""One array for each of two indexes, in index order. In a self-join, both are the same
array.
"""


class CpuMethod(Protocol):
    """The functions of a method's CPU module.

    Each index has "order" (n + lanes), int32: the positions of its points, in index
    order. Arguments `q` and `d` are the indexes of queries and of data.
    """

    writes_names: bool
    """Whether `pairs` can write int64 names and totals. Otherwise it writes only int32
    names.
    """

    def layout(
        self,
        options: Any,
        lower: np.ndarray,
        upper: np.ndarray,
        mean: np.ndarray,
        variance: np.ndarray,
        threshold: float,
        norm: Norm,
        sample: JoinSample | None = None,
    ) -> Layout:
        """Choose the layout of all chunks.

        `options`: the method as an object. `lower`, `upper`, `mean`, `variance` (d,):
        moments of all points. `sample`: a sample of the points, if there is one.
        """

    def build(self, x: np.ndarray, layout: Layout, threads: int = 1) -> Index:
        """Index the points (n, d) of a chunk; `threads`: number of threads that share
        the work.
        """

    def part(self, index: Index, start: int, stop: int) -> Index:
        """Return the index of the points at places start ... stop-1; "order" has
        positions in the chunk.
        """

    def points(self, index: Index) -> np.ndarray:
        """Return the coordinates (n or more, d) of an index's points, in index order."""

    def pairs(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        names: list[np.ndarray],
        sink: Sink,
        orient_by_position: bool,
    ) -> tuple[int, int]:
        """Write all pairs to a sink.

        `names`: for each index, the name of each row, in index order.
        `orient_by_position`: whether the row with the smaller position must be on the
        left. Some methods put it there in any case.

        Return the number of candidates that only float64 could decide, and how many of
        them are not pairs.
        """

    def counts(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        q_counts: np.ndarray,
        d_counts: np.ndarray,
        enough: int | None = None,
    ) -> None:
        """Add the number of pairs of each row to `q_counts` and `d_counts`, in index
        order.

        In a self-join both are usually the same array. If they are two arrays, each
        pair counts in `q_counts` at the earlier of its places, and in `d_counts` at the
        later. Counts of at least `enough` need not be exact.
        """

    def layout_stats(self, index: Index, layout: Layout) -> Numbers:
        """Return the counters of a self-join of an index, for `profile`."""

    def work(
        self, q: Index, d: Index, layout: Layout, is_self_join: bool
    ) -> np.ndarray:
        """Estimate the relative work of `pairs` for equal parts of `q`: see
        `Joiner.work`.
        """

    def end(self, index: Index, stop: int, layout: Layout) -> int:
        """Return a place: no point at this place or later is near a point before the
        place `stop`.
        """


@runtime_checkable
class RangedPairs(Protocol):
    """A method that can find the pairs of some places of an index."""

    def pairs_of(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        names: list[np.ndarray],
        sink: Sink,
        orient_by_position: bool,
        rows: Rows,
    ) -> tuple[int, int]:
        """Do the work of `CpuMethod.pairs` for the queries at the places `rows`. In a
        self-join, a pair belongs to the earlier of its two places.
        """


@runtime_checkable
class Tallying(Protocol):
    """A method that can count pairs for several thresholds in one call, without writing
    the pairs.
    """

    def tallies(self, q: Index, d: Index, layout: Layout, limits: np.ndarray) -> bool:
        """Return whether `tally` is faster than finding each pair and comparing its
        total with the limits.
        """

    def tally(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        limits: np.ndarray,
        is_self_join: bool,
        by_row: bool,
        q_found: np.ndarray,
        d_found: np.ndarray,
    ) -> None:
        """Count the pairs whose total is at most each of several ascending limits: see
        `Joiner.tally`.

        `by_row`: add the pairs of each row to `q_found` and `d_found` (rows, limits),
        which are the same array in a self-join. Otherwise add the number of all pairs
        to `q_found` (1, limits).
        """


@runtime_checkable
class Choosing(Protocol):
    """A method whose `connect` and `lowest` copy the points that they compare, and so
    accept views.
    """

    def loose_part(self, index: Index, start: int, stop: int) -> Index:
        """Return what `part` returns, but as views; only `connect` and `lowest` accept
        it.
        """


@runtime_checkable
class ManyAtOnce(Protocol):
    """A method that can do the work of `Joiner.connect` and `Joiner.lowest` without
    finding each pair.
    """

    def connect(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        nodes: Sides,
        parent: np.ndarray,
    ) -> None:
        """Unite the sets of the two rows of each pair: see `Joiner.connect`.

        `nodes`: the node of each row (int64), or -1 if the row takes no part.
        """

    def lowest(
        self,
        q: Index,
        d: Index,
        layout: Layout,
        is_self_join: bool,
        labels: Sides,
        low: Sides,
    ) -> None:
        """Lower `low` for rows without a label: see `Joiner.lowest`. `labels` and `low`
        are int64.
        """


def places_of(*sides: Index) -> list[np.ndarray]:
    """Return the places of each index (0, 1, ...), for kernels that write places
    instead of names.
    """
    return [np.arange(len(side["order"]), dtype=np.int32) for side in sides]


def connect(
    method: CpuMethod,
    q: Index,
    d: Index,
    layout: Layout,
    is_self_join: bool,
    nodes: Sides,
    parent: np.ndarray,
) -> None:
    """Do the work of `ManyAtOnce.connect` for any method, by finding each pair."""

    def link(left: np.ndarray, right: np.ndarray) -> None:
        link_pairs(parent, left, right, *nodes)

    method.pairs(q, d, layout, is_self_join, places_of(q, d), CallbackSink(link), False)


def link_pairs(parent: np.ndarray, *pairs: np.ndarray) -> None:
    """Unite the sets of the two nodes of each pair: see `components.link`.

    If the parents are int32, several threads may do so at the same time.
    """
    if parent.dtype == np.int32:
        components.unite_pairs(parent, *pairs)
    else:
        components.link(parent, *pairs)


def lowest(
    method: CpuMethod,
    q: Index,
    d: Index,
    layout: Layout,
    is_self_join: bool,
    labels: Sides,
    low: Sides,
) -> None:
    """Do the work of `ManyAtOnce.lowest` for any method, by finding each pair."""

    def lower(left: np.ndarray, right: np.ndarray) -> None:
        components.lowest(left, right, *labels, *low)

    method.pairs(
        q, d, layout, is_self_join, places_of(q, d), CallbackSink(lower), False
    )
