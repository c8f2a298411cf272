"""Run a GPU join in batches of queries, so that buffers for pairs have a bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import cupy
import numpy as np

from dask_simjoin.engine.filters.bounds import Bounds, make_bounds
from dask_simjoin.engine.gpu.load import NOWHERE
from dask_simjoin.engine.gpu.pairs import PairBatch
from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index, Norm
from dask_simjoin.papers.grid_batches import Batch, Flow
from dask_simjoin.papers.grid_batches import batches as cut
from dask_simjoin.papers.grid_batches import sample as sampled
from dask_simjoin.sizes import BUFFER_SHARE

STATE_SIZE = 11
"""Maximum number of counters of a kernel.

The first four count pairs, taken queries, candidates that float64 decided, and
candidates that it refused.
"""


class Launch(Protocol):
    """A join of two indexes, or of one index with itself. It can run any batch of its
    queries.
    """

    @property
    def layout(self) -> Any:
        """The layout of the join. Its options determine the batches."""

    @property
    def queries(self) -> int:
        """The number of queries."""

    def run(
        self,
        batch: Batch,
        capacity: int,
        out: Array | np.uint64,
        counts: tuple[Any, Any],
        state: Array,
    ) -> None:
        """Launch a batch on the current stream.

        `capacity`: maximum number of pairs to write to `out`. `counts`: arrays to count
        pairs in. `state`: array of counters; the caller fills it with zeros.
        """


class Stream:
    """A `Lane`: a stream of the GPU with its own buffer for pairs."""

    def __init__(self, join: Launch, capacity: int) -> None:
        self._join, self.capacity = join, capacity
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.out = cupy.empty((capacity, 2), cupy.int32)
        self._state = cupy.zeros(STATE_SIZE, cupy.uint64)
        self._pinned = cupy.cuda.alloc_pinned_memory(8 * STATE_SIZE)
        self.numbers = np.frombuffer(self._pinned, np.uint64, STATE_SIZE)
        self.release()

    def launch(self, batch: Batch) -> None:
        with self.stream:
            self._state.fill(0)
            none = np.uint64(0)
            self._join.run(batch, self.capacity, self.out, (none, none), self._state)
            self._state.get(stream=self.stream, out=self.numbers, blocking=False)

    def wait(self) -> int:
        self.stream.synchronize()
        return int(self.numbers[0])

    def grow(self, capacity: int) -> None:
        self.out, self.capacity = cupy.empty((capacity, 2), cupy.int32), capacity
        self.release()

    def release(self) -> None:
        self.stream.wait_event(cupy.cuda.get_current_stream().record())


def estimate(join: Launch) -> float:
    """Estimate the number of pairs of the join from the pairs of some queries, like the
    papers.
    """
    some, state = (
        sampled(join.layout.options, join.queries),
        cupy.zeros(STATE_SIZE, cupy.uint64),
    )
    join.run(some, 0, np.uint64(0), (np.uint64(0), np.uint64(0)), state)
    return int(state[0]) * join.queries / some.number


def flow(
    join: Launch, estimated: float, max_pairs: int | None = None
) -> tuple[Flow[Stream], list[Batch]]:
    """Return a `Flow` for a join, and the batches to run with it.

    `estimated`: estimated number of pairs of the join; `max_pairs`: maximum number of
    pairs per batch.
    """
    options = join.layout.options
    memory = int(cupy.cuda.Device().mem_info[1]) // BUFFER_SHARE // 8 // options.streams
    made, capacity = cut(
        options,
        join.queries,
        estimated,
        min(options.buffer, memory, max_pairs or memory),
    )
    return Flow(
        [Stream(join, capacity) for _ in range(min(options.streams, len(made)))]
    ), made


def found_by(
    running: Flow[Stream], made: list[Batch], queries: int
) -> Iterator[PairBatch]:
    """Run batches, and yield the pairs of each batch; `queries`: number of queries of
    the whole join.
    """
    decided = refused = written = 0
    try:
        for lane, pairs, left in running.run(made):
            _, _, new, no = lane.numbers[:4].tolist()
            decided, refused, written = decided + new, refused + no, written + pairs
            expected = int(written * left / max(1, queries - left))
            yield PairBatch(lane.out[:pairs], decided, refused, expected)
    finally:  # wait, because the caller may stop early, while batches still write to the buffers
        for lane in running.lanes:
            lane.stream.synchronize()


def at_once(join: Launch, out: Array | np.uint64, counts: tuple[Any, Any]) -> None:
    """Run all queries in one batch that writes no pairs: it counts them, or passes them
    to a sink.
    """
    state = cupy.zeros(STATE_SIZE, cupy.uint64)
    join.run(Batch(0, 1, join.queries), 0, out, counts, state)


def bounds_for(
    precision: str,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    threshold: float,
    norm: Norm,
) -> Bounds | None:
    """Return the error bounds of the float32 filter; None if there is no filter."""
    return (
        make_bounds(lower, upper, mean, threshold)
        if precision == "float32" and norm == 2
        else None
    )


def filtered(y: Array, bounds: Bounds) -> Array:
    """Return the points `y` (n, d) as the filter compares them: centered, scaled, and
    rounded to float32.
    """
    return ((y - cupy.asarray(np.array(bounds.centre))) * bounds.scale).astype(
        cupy.float32
    )


def limits(threshold: float, bounds: Bounds | None) -> tuple[Any, Any, np.float64]:
    """Return three limits for kernels: the largest total of a possible pair, of a sure
    pair, and the threshold.

    A candidate can be a pair if its total is at most the first limit. It surely is a
    pair if its total is at most the second limit. Between both limits, float64 decides
    by the threshold. Without a filter, the first limit is the threshold, and the second
    one is -1.
    """
    decided = np.float64(threshold)
    return (
        (decided, np.float64(-1), decided)
        if bounds is None
        else (bounds.reach, bounds.sure, decided)
    )


class OneKernel:
    """The functions `batches`, `count` and `pass_to` of a `GpuMethod` with a single
    kernel.

    `launch` creates the `Launch` of a join. Its arguments are two indexes, their
    layout, whether it is a self-join, the range of requested queries or None, and
    constants of the kernel.
    """

    def __init__(self, launch: Callable[..., Launch]) -> None:
        self._launch = launch

    def batches(
        self,
        q: Index,
        d: Index,
        layout: Any,
        *,
        is_self_join: bool,
        rows: Rows | None = None,
        max_pairs: int | None = None,
    ) -> Iterator[PairBatch]:
        if is_none(q, d, rows):
            return
        join = self._launch(q, d, layout, is_self_join, rows)
        yield from found_by(*flow(join, estimate(join), max_pairs), join.queries)

    def count(
        self,
        q: Index,
        d: Index,
        layout: Any,
        *,
        is_self_join: bool,
        both: bool = True,
        rows: Rows | None = None,
    ) -> list[Array]:
        """Count the pairs of each row.

        A self-join returns one array. With `both`, it counts each pair for both rows,
        otherwise for one of them.
        """
        counts = [
            cupy.zeros(len(side["y"]), cupy.uint64)
            for side in ((q,) if is_self_join else (q, d))
        ]
        if not is_none(q, d, rows):
            join = self._launch(q, d, layout, is_self_join, rows, COUNTING=1)
            at_once(join, NOWHERE, (counts[0], counts[-1] if both else NOWHERE))
        return [c.view(cupy.int64) for c in counts]

    def pass_to(
        self,
        sink: Sink,
        q: Index,
        d: Index,
        layout: Any,
        arguments: Sequence[Array | int],
        *,
        is_self_join: bool,
        nodes_64: bool = False,
        rows: Rows | None = None,
    ) -> None:
        if is_none(q, d, rows):
            return
        join = self._launch(
            q, d, layout, is_self_join, rows, SINK=sink.value, NODES_64=int(nodes_64)
        )
        given = [q["order"], d["order"], *arguments]
        at = cupy.asarray(
            [a if isinstance(a, int) else a.data.ptr for a in given], np.uint64
        )
        at_once(join, at, (NOWHERE, NOWHERE))


def is_none(q: Index, d: Index, rows: Rows | None) -> bool:
    """Return whether there is nothing to compare, because an index or the range of
    queries is empty.
    """
    return (
        not len(q["y"]) or not len(d["y"]) or (rows is not None and rows[0] >= rows[1])
    )
