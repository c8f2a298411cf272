"""Run a GPU join as batches of queries, each into a buffer of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import cupy
import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds, make_bounds
from dask_simjoin.engine.gpu.kernels.sources import Sink
from dask_simjoin.engine.gpu.pairs import PairBatch
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.papers.grid_batches import Batch, Cut, Flow
from dask_simjoin.papers.grid_batches import batches as cut
from dask_simjoin.papers.grid_batches import sample as sampled

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


def found_by(running: Flow[Stream], made: list[Batch], queries: int) -> Iterator[PairBatch]:
    """Run batches of so many queries in all, and give what each finds."""
    decided = refused = written = 0
    try:
        for lane, pairs, left in running.run(made):
            _, _, new, no = lane.numbers[:4].tolist()
            decided, refused, written = decided + new, refused + no, written + pairs
            expected = int(written * left / max(1, queries - left))
            yield PairBatch(lane.out[:pairs], decided, refused, expected)
    finally:  # what is still running writes to the buffers
        for lane in running.lanes:
            lane.stream.synchronize()


def at_once(join: Launch, out: Array | np.uint64, counts: tuple[Any, Any]) -> None:
    """Do all queries in one batch, whose pairs are not written."""
    state = cupy.zeros(TOLD, cupy.uint64)
    join.run(Batch(0, 1, join.queries), 0, out, counts, state)


NOWHERE = np.uint64(0)
"""The address of what a kernel does not use."""


def bounds_for(precision: str, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, threshold: float,
               norm: Norm) -> Bounds | None:  # fmt: skip
    """Choose the bounds of the float32 filter; None: there is none."""
    return make_bounds(lower, upper, mean, threshold) if precision == "float32" and norm == 2 else None


def filtered(y: Array, bounds: Bounds) -> Array:
    """Return points (n, d) as the filter sees them, float32."""
    return ((y - cupy.asarray(np.array(bounds.center))) * bounds.scale).astype(cupy.float32)


def limits(threshold: float, bounds: Bounds | None) -> tuple[Any, Any, np.float64]:
    """Return up to which totals of the filter candidates may be pairs, and surely are; and that of float64.

    Where there is no filter the first and the last are one, and nothing is sure.
    """
    decided = np.float64(threshold)
    return (decided, np.float64(-1), decided) if bounds is None else (bounds.reach, bounds.sure, decided)


class OneKernel:
    """Three functions of a `GpuMethod`.

    Parameters
    ----------
    launch : callable
        Makes the launch of a join: of two indexes, their layout, whether they are one, the places of queries
        that are asked for or None, and constants of the kernel by name.
    """

    def __init__(self, launch: Callable[..., Launch]) -> None:
        self._launch = launch

    def batches(self, q: Index, d: Index, layout: Any, *, same: bool, rows: Rows | None = None,
                most: int | None = None) -> Iterator[PairBatch]:  # fmt: skip
        """See `GpuMethod.batches`."""
        if is_none(q, d, rows):
            return
        join = self._launch(q, d, layout, same, rows)
        yield from found_by(*flow(join, estimate(join), most), join.queries)

    def count(self, q: Index, d: Index, layout: Any, *, same: bool, both: bool = True,
              rows: Rows | None = None) -> list[Array]:  # fmt: skip
        """See `GpuMethod.count`.

        Of one index with itself they are one array: pairs of each place, or (not `both`) only those that
        `batches` gives for it.
        """
        counts = [cupy.zeros(len(side["y"]), cupy.uint64) for side in ((q,) if same else (q, d))]
        if not is_none(q, d, rows):
            join = self._launch(q, d, layout, same, rows, COUNTING=1)
            at_once(join, NOWHERE, (counts[0], counts[-1] if both else NOWHERE))
        return [c.view(cupy.int64) for c in counts]

    def pass_to(self, sink: Sink, q: Index, d: Index, layout: Any, arguments: Sequence[Array | int], *,
                same: bool, nodes_64: bool = False, rows: Rows | None = None) -> None:  # fmt: skip
        """See `GpuMethod.pass_to`."""
        if is_none(q, d, rows):
            return
        join = self._launch(q, d, layout, same, rows, SINK=sink.value, NODES_64=int(nodes_64))
        given = [q["order"], d["order"], *arguments]
        at = cupy.asarray([a if isinstance(a, int) else a.data.ptr for a in given], np.uint64)
        at_once(join, at, (NOWHERE, NOWHERE))


def is_none(q: Index, d: Index, rows: Rows | None) -> bool:
    """Tell that there is nothing to compare."""
    return not len(q["y"]) or not len(d["y"]) or (rows is not None and rows[0] >= rows[1])
