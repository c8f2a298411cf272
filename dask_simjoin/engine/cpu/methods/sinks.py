"""Where the CPU kernels write pairs: one pass over the data, however many pairs it gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from dask_simjoin.engine.compat import BITS
from dask_simjoin.engine.cpu.kernels import finish
from dask_simjoin.engine.cpu.kernels.totals import SQUARES, Kind
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.growing import GrowingColumns
from dask_simjoin.engine.protocols import Kept, Measured
from dask_simjoin.metrics.types import DType

MAX_ROOM = 1 << 27
"""Pairs for which memory is reserved at first at most."""

SCRATCH = 1 << 16
"""Pairs that are labelled at a time: they stay in a core's own cache."""


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


class Named:
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


class Labels:
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
