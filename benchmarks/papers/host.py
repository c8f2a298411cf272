"""The first paper's pipeline to the host (sections 3.2.2 and 4.5): streams, pinned
buffers, neighbor table.

The benchmark needs a GPU.  Pairs go to the host batch by batch.  There a table is made:
pairs sorted by query, with the first position of each query.  The GPU sorts, as in the
paper.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import cupy
import numpy as np

from benchmarks.harness.repeats import summaries
from benchmarks.papers.data import points
from dask_simjoin.methods import Grid
from dask_simjoin.papers.gpu import grid
from dask_simjoin.papers.gpu.flow import estimate, flow, found_by
from dask_simjoin.planning.sample import moments


class Table:
    """The neighbors of queries: the values of each batch, and where each query's own
    begin.
    """

    def __init__(self) -> None:
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Add a batch, sorted by key."""
        firsts = (
            np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
            if len(keys)
            else keys
        )
        self.parts.append((keys[firsts], firsts, values.copy()))

    @property
    def pairs(self) -> int:
        """Pairs of all batches."""
        return sum(len(values) for _, _, values in self.parts)


def to_host(
    rows: int, eps: float, streams: int, pinned: bool, repeat: int
) -> dict[str, Any]:
    """Join Syn16D into a table on the host; seconds in all and of the kernels alone,
    all runs.
    """
    x = points("Syn16D", rows)
    m = moments(x)
    method = replace(Grid.gpu_join(), streams=streams)
    layout = grid.layout(method, m.lower, m.upper, m.mean, m.variance, eps * eps, 2)
    index = grid.build(cupy.asarray(x), layout)
    join = grid.GridLaunch.of(index, index, layout, True)
    expected = estimate(join)
    # the first run compiles everything, which must not be timed
    _drained(*flow(join, expected), len(join.places))
    runs, pairs, batches = [], 0, 0
    for turn in range(repeat + 1):
        running, made = flow(join, expected)
        kernels = _drained(running, made, len(join.places))
        running, made = flow(join, expected)
        total, table = _table(running, made, pinned)
        pairs, batches = table.pairs, len(made)
        if turn:  # the first turn loads the sort, so it is not timed
            runs.append(
                {
                    "kernels": kernels,
                    "total": total,
                    "overhead": (total - kernels) / total,
                }
            )
    return {
        "streams": streams,
        "pinned": pinned,
        "pairs": pairs,
        "batches": batches,
        **summaries(runs),
    }


def _table(running: Any, made: Any, pinned: bool) -> tuple[float, Table]:
    """Run the batches, and put their pairs into a table on the host; seconds, and the
    table.
    """
    buffers = {}
    for lane in running.lanes:
        size = 8 * lane.capacity
        memory = cupy.cuda.alloc_pinned_memory(size) if pinned else bytearray(size)
        buffers[id(lane)] = np.frombuffer(memory, np.int32, 2 * lane.capacity).reshape(
            2, lane.capacity
        )
    table = Table()
    cupy.cuda.Device().synchronize()
    begin = time.perf_counter()
    for lane, pairs, _ in running.run(made):
        buffer = buffers.get(id(lane))
        if buffer is None or buffer.shape[1] < pairs:
            buffer = buffers[id(lane)] = np.empty((2, pairs), np.int32)
        with lane.stream:
            order = cupy.argsort(lane.out[:pairs, 0])
            for k in range(2):
                column = cupy.ascontiguousarray(lane.out[:pairs, k][order])
                column.get(stream=lane.stream, out=buffer[k, :pairs], blocking=False)
        lane.stream.synchronize()
        table.add(buffer[0, :pairs], buffer[1, :pairs])
    return time.perf_counter() - begin, table


def _drained(running: Any, made: Any, queries: int) -> float:
    """Run the batches and drop their pairs; seconds."""
    cupy.cuda.Device().synchronize()
    begin = time.perf_counter()
    for _ in found_by(running, made, queries):
        pass
    cupy.cuda.Device().synchronize()
    return time.perf_counter() - begin
