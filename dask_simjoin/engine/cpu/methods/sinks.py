"""Where the CPU kernels write pairs: one pass over the data, however many pairs it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from dask_simjoin.engine.compat import BITS
from dask_simjoin.engine.cpu.kernels import finish
from dask_simjoin.engine.cpu.kernels.totals import SQUARES, Kind
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.protocols import Kept, Measured

MAX_ROOM = 1 << 27
"""Pairs for which a first segment is reserved at most."""

SCRATCH = 1 << 16
"""Pairs that are labelled at a time: they stay in a core's own cache."""


NO_TOTALS = np.empty(0)

NO_PAIRS, NO_COUNTS = (np.empty(0, np.int32),) * 2, (np.empty(0, np.int64),) * 2
"""What kernels are given that only count, or only write."""


class Segments:
    """Columns of one length that grow, without counting first and mostly without copying.

    Memory that is not written costs nothing, so a segment is reserved generously: one is the
    rule, and what it does not use is given back.
    """

    def __init__(self, dtypes: tuple[Any, ...], room: int) -> None:
        self._dtypes = dtypes
        self._closed: list[tuple[np.ndarray, ...]] = []
        self._open(room)

    def _open(self, room: int) -> None:
        self.room = room
        self.columns = tuple(np.empty(room + SWEEP_LANES, dtype) for dtype in self._dtypes)

    def close(self, used: int) -> None:
        """Keep the first `used` numbers of each column."""
        for column in self.columns:
            # shrinking gives the pages behind back without copying those before
            column.resize(used, refcheck=False)
        self._closed.append(self.columns)

    def follow(self, used: int, least: int) -> None:
        """Close the segment and open one for at least `least` numbers."""
        self.close(used)
        self._open(max(2 * self.room, least))

    @property
    def whole(self) -> tuple[np.ndarray, ...]:
        """All columns of the closed segments."""
        if len(self._closed) == 1:
            return self._closed[0]
        return tuple(np.concatenate(parts) for parts in zip(*self._closed, strict=True))


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


class Positions:
    """Keeps what the kernels write."""

    totals = NO_TOTALS

    def __init__(self, room: int) -> None:
        self.segments = Segments((np.int32, np.int32), room)
        self._expose()

    def _expose(self) -> None:
        self.left, self.right = self.segments.columns
        self.room = self.segments.room

    def full(self, n: int, least: int) -> None:
        self.segments.follow(n, least)
        self._expose()

    def end(self, n: int) -> None:
        self.segments.close(n)


class Named:
    """Keeps names, int64, that a kernel writes, and distances made of totals if asked for.

    Parameters
    ----------
    room : int
        Pairs for which memory is reserved at first.
    distance : callable or None
        Makes distances of totals.
    """

    def __init__(self, room: int, distance: Measured | None) -> None:
        self.segments = Segments((np.int64, np.int64) + (np.float64,) * (distance is not None), room)
        self._distance = distance
        self._expose()

    def _expose(self) -> None:
        self.left, self.right, *more = self.segments.columns
        self.totals = more[0] if more else NO_TOTALS
        self.room = self.segments.room

    def _measure(self, n: int) -> None:
        if self._distance is not None:
            for first in range(0, n, SCRATCH):
                some = self.totals[first : min(first + SCRATCH, n)]
                some[:] = self._distance(some)

    def full(self, n: int, least: int) -> None:
        self._measure(n)
        self.segments.follow(n, least)
        self._expose()

    def end(self, n: int) -> None:
        self._measure(n)
        self.segments.close(n)


class Labels:
    """Takes places in two indexes; keeps the rows' labels, left first, and distances if asked for.

    Parameters
    ----------
    room : int
        Pairs for which memory is reserved at first.
    sides : pair of tuples
        For each side: coordinates (n, d), positions (n,) and labels (n,) int64, all in the
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
        dtypes = (np.int64, np.int64) + (np.float64,) * (distance is not None)
        self.segments = Segments((*dtypes, *(values.dtype for side in kept for values in side)), room)
        self._sides, self._same, self._distance, self._norm = sides, same, distance, norm
        self._kept, self._firsts = kept, firsts
        self._used = 0
        self._scratch(SCRATCH)

    def _scratch(self, room: int) -> None:
        self.room = room
        self.left = np.empty(room + SWEEP_LANES, np.int32)
        self.right = np.empty(room + SWEEP_LANES, np.int32)

    def _flush(self, n: int) -> None:
        if self.segments.room - self._used < n:
            self.segments.follow(self._used, n)
            self._used = 0
        out = [column[self._used : self._used + n] for column in self.segments.columns]
        (q_y, q_order, q_labels), (d_y, d_order, d_labels) = self._sides
        places = self.left[:n], self.right[:n]
        finish.label(q_order, q_labels, d_order, d_labels, self._same, *places, *out[:2])
        if self._distance is not None:
            finish.measure(q_y, d_y, *places, self._norm, out[2])
            out[2][:] = self._distance(out[2])
        if any(self._kept):
            self._keep(places, n, iter(out[len(out) - sum(map(len, self._kept)) :]))
        self._used += n

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
        self.segments.close(self._used)


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
