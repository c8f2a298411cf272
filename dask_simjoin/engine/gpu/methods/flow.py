"""Runs a join on a GPU as batches of queries, several at a time, each into a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import cupy
import numpy as np

from dask_simjoin.engine.gpu.methods.method import Found
from dask_simjoin.engine.index.grid_batches import Batch, Cut, Flow
from dask_simjoin.engine.index.grid_batches import batches as cut
from dask_simjoin.engine.index.grid_batches import sample as sampled
from dask_simjoin.metrics.types import Array

BATCH_SHARE = 32
"""Part of a GPU's memory that the buffers of all streams may take."""

TOLD = 11
"""Numbers that a kernel keeps at most, of which the first are: pairs, what hands out queries, pairs that only
float64 could tell, and those of them that it refused."""


class Launch(Protocol):
    """One join of two indexes, or of one with itself, of whose queries any can be asked for."""

    @property
    def asked(self) -> Cut:
        """How queries are cut into batches."""

    @property
    def queries(self) -> int:
        """How many there are."""

    def run(self, batch: Batch, room: int, out: Array | np.uint64, counts: tuple[Any, Any],
            state: Array) -> None:  # fmt: skip
        """Launch a batch on the current stream; `state`: zeros, and afterwards what the kernel tells."""


class Stream:
    """A stream of the GPU with a buffer of pairs of its own: a `Lane`.

    Parameters
    ----------
    join : Launch
    room : int
        Pairs of the buffer.
    """

    def __init__(self, join: Launch, room: int) -> None:
        self._join, self.room = join, room
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.out = cupy.empty((room, 2), cupy.int32)
        self._state = cupy.zeros(TOLD, cupy.uint64)
        self.told = cupy.cuda.alloc_pinned_memory(8 * TOLD)
        self.numbers = np.frombuffer(self.told, np.uint64, TOLD)
        self.release()

    def launch(self, batch: Batch) -> None:
        """Begin a batch."""
        with self.stream:
            self._state.fill(0)
            none = np.uint64(0)
            self._join.run(batch, self.room, self.out, (none, none), self._state)
            self._state.get(stream=self.stream, out=self.numbers, blocking=False)

    def wait(self) -> int:
        """Return the number of its pairs once it is done."""
        self.stream.synchronize()
        return int(self.numbers[0])

    def grow(self, room: int) -> None:
        """Make the buffer larger."""
        self.out, self.room = cupy.empty((room, 2), cupy.int32), room
        self.release()

    def release(self) -> None:
        """Let what comes next wait for all that was asked of the current stream so far."""
        self.stream.wait_event(cupy.cuda.get_current_stream().record())


def estimate(join: Launch) -> float:
    """Estimate the pairs from some queries, as the grid's papers do: their kernel, which writes none."""
    some, state = sampled(join.asked, join.queries), cupy.zeros(TOLD, cupy.uint64)
    join.run(some, 0, np.uint64(0), (np.uint64(0), np.uint64(0)), state)
    return int(state[0]) * join.queries / some.number


def flow(join: Launch, estimated: float, most: int | None = None) -> tuple[Flow[Stream], list[Batch]]:
    """Make the batches of a join of about so many pairs, and what runs them; `most`: pairs of a batch."""
    asked = join.asked
    memory = int(cupy.cuda.Device().mem_info[1]) // BATCH_SHARE // 8 // asked.streams
    made, room = cut(asked, join.queries, estimated, min(asked.buffer, memory, most or memory))
    return Flow([Stream(join, room) for _ in range(min(asked.streams, len(made)))]), made


def found_by(running: Flow[Stream], made: list[Batch], queries: int) -> Iterator[Found]:
    """Run batches of so many queries in all, and give what each finds."""
    decided = refused = written = 0
    try:
        for lane, pairs, left in running.run(made):
            _, _, new, no = lane.numbers[:4].tolist()
            decided, refused, written = decided + new, refused + no, written + pairs
            expected = int(written * left / max(1, queries - left))
            yield Found(lane.out[:pairs], decided, refused, expected)
    finally:  # what is still running writes to the buffers
        for lane in running.lanes:
            lane.stream.synchronize()


def at_once(join: Launch, out: Array | np.uint64, counts: tuple[Any, Any]) -> None:
    """Do all queries in one batch, whose pairs are not written."""
    state = cupy.zeros(TOLD, cupy.uint64)
    join.run(Batch(0, 1, join.queries), 0, out, counts, state)
