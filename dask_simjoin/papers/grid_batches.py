"""Batches of queries on a GPU, and counters of a run, both as in the papers about grid
joins.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np

from dask_simjoin.engine.index.gpu import WARP
from dask_simjoin.metrics.norms import Index
from dask_simjoin.papers.grid import GridLayout
from dask_simjoin.papers.lists import BatchedMethod

ALPHA = 0.05
"""Safety margin of the estimated number of pairs, as a fraction. The value is from the
first paper's code.
"""

MIN_CAPACITY = 1 << 10
"""Minimum capacity of a buffer in pairs, unless the option `buffer` is smaller."""


@dataclass(frozen=True)
class Batch:
    """A batch of `number` queries: those at `first`, `first + step`, `first + 2 *
    step`, and so on.
    """

    first: int
    step: int
    number: int

    def halves(self) -> tuple[Batch, Batch]:
        """Return the two halves of the batch.

        If the batch takes every n-th query, both halves take every 2n-th query.
        """
        half = self.number // 2
        if self.step == 1:
            return Batch(self.first, 1, self.number - half), Batch(
                self.first + self.number - half, 1, half
            )
        wide = 2 * self.step
        return Batch(self.first, wide, self.number - half), Batch(
            self.first + self.step, wide, half
        )


def sample(options: BatchedMethod, queries: int) -> Batch:
    """Return the sample of queries that the estimate of pairs uses: every n-th query,
    or the first ones.

    If batches have consecutive queries, the sample has the first queries (second paper,
    III-D).
    """
    if options.consecutive:
        return Batch(0, 1, math.ceil(queries * options.sample))
    step = max(1, min(queries, round(1 / options.sample)))
    return Batch(0, step, -(-queries // step))


def batches(
    options: BatchedMethod, queries: int, estimate: float, max_pairs: int
) -> tuple[list[Batch], int]:
    """Return batches, and the capacity of a buffer in pairs, at most `max_pairs`.

    `queries`: number of queries; `estimate`: estimated number of all pairs. The rules
    are from the papers (first paper, 3.2.2; second paper, II-C2) and their code.
    """
    min_batches, capacity = options.batches, float(max_pairs)
    if estimate < min_batches * capacity:
        capacity = estimate * (1 + 3 * ALPHA) / min_batches
    capacity = min(max(capacity, MIN_CAPACITY), max_pairs)
    number = min(
        max(math.ceil((1 + ALPHA) * estimate / capacity), min_batches), max(queries, 1)
    )
    if options.consecutive:
        bounds = [queries * n // number for n in range(number + 1)]
        made = [Batch(a, 1, b - a) for a, b in itertools.pairwise(bounds)]
    else:
        made = [Batch(n, number, len(range(n, queries, number))) for n in range(number)]
    return [batch for batch in made if batch.number], math.ceil(capacity)


class Lane(Protocol):
    """A stream with its own buffer for `capacity` pairs."""

    capacity: int

    def launch(self, batch: Batch) -> None:
        """Start to run a batch."""

    def wait(self) -> int:
        """Wait until the batch is done, and return its number of pairs.

        At most `capacity` of them have been written.
        """

    def grow(self, capacity: int) -> None:
        """Replace the buffer by a larger one."""

    def release(self) -> None:
        """Allow the next batch to overwrite the buffer as soon as the queued GPU work
        is done.
        """


L = TypeVar("L", bound=Lane)


@dataclass
class Flow(Generic[L]):
    """Runs batches on all lanes at the same time.

    If a batch overflows its buffer, its two halves run instead.
    """

    lanes: Sequence[L]
    repeated: int = 0  # number of repeated batches so far
    largest: int = 0  # number of pairs of the largest batch so far

    def run(self, batches: Iterable[Batch]) -> Iterator[tuple[L, int, int]]:
        """For each finished batch, yield its lane, its number of pairs, and the number
        of queries left.
        """
        waiting, free, running = (
            deque(batches),
            deque(self.lanes),
            deque[tuple[L, Batch]](),
        )
        while waiting or running:
            while waiting and free:
                lane, batch = free.popleft(), waiting.popleft()
                lane.launch(batch)
                running.append((lane, batch))
            lane, batch = running.popleft()
            pairs = lane.wait()
            if pairs <= lane.capacity:
                self.largest = max(self.largest, pairs)
                left = sum(batch.number for batch in waiting) + sum(
                    batch.number for _, batch in running
                )
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


def warp_efficiency(work: np.ndarray, threads: int) -> tuple[float, float]:
    """Return the steps of all lanes of a batch, and the steps of lanes that have work
    (second paper, IV-B).

    `work`: number of candidates of each query, in the order of processing. A warp has
    32/threads consecutive queries. All its lanes run until its query with the most
    candidates is done.
    """
    together = WARP // threads
    padded = np.zeros((-(-len(work) // together), together))
    padded.reshape(-1)[: len(work)] = work
    return float(padded.max(axis=1).sum()) * together, float(padded.sum())


def facts(
    index: Index,
    layout: GridLayout,
    places: np.ndarray,
    work: np.ndarray,
    pairs: float,
    comparisons: float,
) -> dict[str, float]:
    """Return counters of a grid, and of the batches that a GPU would run.

    `places`: all queries in order, as positions in the index; `work`: number of
    candidates of a query in each cell; `pairs`: estimated number of pairs;
    `comparisons`: number of compared points.
    """
    n, cells, options = len(places), len(index["keys"]), layout.options
    made, _ = batches(options, n, pairs, options.buffer)
    cell = np.searchsorted(index["starts"], places, side="right") - 1
    lanes = active = 0.0
    for batch in made:
        some = work[
            cell[batch.first : batch.first + batch.number * batch.step : batch.step]
        ]
        more, used = warp_efficiency(some, options.threads)
        lanes, active = lanes + more, active + used
    sizes = np.diff(index["starts"])
    return {
        "cells": cells,
        "grid_cells": float(math.prod(layout.cells.number)),
        "largest_cell": int(sizes.max(initial=0)),
        "search_ops": n
        * 3.0 ** len(layout.cells.dims)
        * max(1.0, math.log2(max(cells, 1))),
        "compare_ops": layout.dims * float(comparisons),
        "batches": len(made),
        "warp_efficiency_model": active / lanes if lanes else 1.0,
    }
