"""Where the sweep of some dimensions writes candidates: all dimensions decide, and pairs go on to a sink."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.decide import decide, scratch
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods.sinks import NO_TOTALS, SCRATCH, Sink
from dask_simjoin.metrics.types import Index


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
