"""Batches of queries of the grid joins on a GPU, and what the papers count of a run."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from dask_simjoin.metrics.norms import Index
from dask_simjoin.papers.grid import GridLayout

ALPHA = 0.05
"""How much larger than estimated results are taken to be (the first paper's authors' code)."""

LEAST_ROOM = 1 << 10
"""Pairs of a buffer at least, if as many are allowed."""


class Cut(Protocol):
    """How queries are cut: the options of a method that say so, as `Grid` explains them."""

    @property
    def order(self) -> str:
        """With "queue" a batch is of queries that follow each other, else of every so-and-so-many-th."""

    @property
    def buffer(self) -> int: ...

    @property
    def batches(self) -> int: ...

    @property
    def streams(self) -> int: ...

    @property
    def sample(self) -> float: ...


@dataclass(frozen=True)
class Batch:
    """Some queries: those at `first`, `first + step`, ... of all that are asked for, so many."""

    first: int
    step: int
    number: int

    def halves(self) -> tuple[Batch, Batch]:
        """Cut it in two of its kind: every other query of a strided batch, the first half of a queue."""
        less = self.number // 2
        if self.step == 1:
            return Batch(self.first, 1, self.number - less), Batch(self.first + self.number - less, 1, less)
        wide = 2 * self.step
        return Batch(self.first, wide, self.number - less), Batch(self.first + self.step, wide, less)


def sample(options: Cut, queries: int) -> Batch:
    """Return the queries that an estimate is made of: one of 100, or a queue's first ones (P2, III-D)."""
    if options.order == "queue":
        return Batch(0, 1, math.ceil(queries * options.sample))
    step = max(1, min(queries, round(1 / options.sample)))
    return Batch(0, step, -(-queries // step))


def batches(options: Cut, queries: int, estimate: float, most: int) -> tuple[list[Batch], int]:
    """Cut queries into batches of at most `most` pairs, if the estimate is right; and the buffers' room.

    The rules are those of the papers (P1 3.2.2, P2 II-C2) and of their code.
    """
    least, room = options.batches, float(most)
    if estimate < least * room:
        room = estimate * (1 + 3 * ALPHA) / least
    room = min(max(room, LEAST_ROOM), most)
    number = min(max(math.ceil((1 + ALPHA) * estimate / room), least), max(queries, 1))
    if options.order == "queue":
        bounds = [queries * n // number for n in range(number + 1)]
        made = [Batch(a, 1, b - a) for a, b in itertools.pairwise(bounds)]
    else:
        made = [Batch(n, number, len(range(n, queries, number))) for n in range(number)]
    return [batch for batch in made if batch.number], math.ceil(room)


class Lane(Protocol):
    """A stream with a buffer of its own."""

    room: int

    def launch(self, batch: Batch) -> None:
        """Begin a batch."""

    def wait(self) -> int:
        """Return the number of its pairs once it is done; those beyond `room` were not written."""

    def grow(self, room: int) -> None:
        """Make the buffer larger."""

    def release(self) -> None:
        """Tell that what it holds is no longer needed, once all that was asked of the GPU so far is done."""


L = TypeVar("L", bound=Lane)


@dataclass
class Flow(Generic[L]):
    """Runs batches, as many at a time as there are lanes; those that overflow again, in two.

    Attributes
    ----------
    repeated : int
        Batches that were done again, so far.
    largest : int
        Pairs of the largest one.
    """

    lanes: Sequence[L]
    repeated: int = 0
    largest: int = 0

    def run(self, asked: Iterable[Batch]) -> Iterator[tuple[L, int, int]]:
        """Give the lane that holds a batch, the number of its pairs, and of the queries left; one by one."""
        waiting, free, flying = deque(asked), deque(self.lanes), deque[tuple[L, Batch]]()
        while waiting or flying:
            while waiting and free:
                lane, batch = free.popleft(), waiting.popleft()
                lane.launch(batch)
                flying.append((lane, batch))
            lane, batch = flying.popleft()
            pairs = lane.wait()
            if pairs <= lane.room:
                self.largest = max(self.largest, pairs)
                left = sum(batch.number for batch in waiting) + sum(batch.number for _, batch in flying)
                yield lane, pairs, left
                lane.release()
            else:
                self.repeated += 1
                if batch.number == 1:
                    lane.grow(pairs)
                    waiting.appendleft(batch)
                else:
                    waiting.extendleft(reversed(batch.halves()))
            free.appendleft(lane)


WARP = 32


def warp_efficiency(work: np.ndarray, threads: int) -> tuple[float, float]:
    """Return the steps of all lanes and those of lanes that have work, of one batch (P2, IV-B).

    `work`: points that each query visits, in the order of the queries.  A warp has 32/threads queries that
    follow each other, and ends with the one that visits most.
    """
    together = WARP // threads
    padded = np.zeros((-(-len(work) // together), together))
    padded.reshape(-1)[: len(work)] = work
    return float(padded.max(axis=1).sum()) * together, float(padded.sum())


def facts(index: Index, layout: GridLayout, places: np.ndarray, work: np.ndarray, pairs: float,
          comparisons: float) -> dict[str, float]:  # fmt: skip
    """Tell of a grid, and of the batches that a GPU would do, if the estimate of their pairs were right.

    `places`: the queries in their order, before they are cut into batches; `work`: of each cell.
    """
    n, cells, asked = len(places), len(index["keys"]), layout.options
    made, _ = batches(asked, n, pairs, asked.buffer)
    cell = np.searchsorted(index["starts"], places, side="right") - 1
    lanes = active = 0.0
    for batch in made:
        some = work[cell[batch.first : batch.first + batch.number * batch.step : batch.step]]
        more, used = warp_efficiency(some, asked.threads)
        lanes, active = lanes + more, active + used
    sizes = np.diff(index["starts"])
    return {
        "cells": cells,
        "grid_cells": float(math.prod(layout.cells.number)),
        "largest_cell": int(sizes.max(initial=0)),
        "search_ops": n * 3.0 ** len(layout.cells.dims) * max(1.0, math.log2(max(cells, 1))),
        "compare_ops": layout.dims * float(comparisons),
        "batches": len(made),
        "warp_efficiency_model": active / lanes if lanes else 1.0,
    }
