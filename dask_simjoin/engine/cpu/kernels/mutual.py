"""Mutual neighbors, from the lists of neighbors of all rows."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.norms import Array


@kernel
def drop_one_way(numbers: Array, back: Array) -> None:
    """Replace by -1 each neighbor that does not have the row among its own neighbors.

    `numbers` (rows, k) int64: the neighbors of each row, or -1; `back`: the neighbors of each neighbor,
    ascending.
    """
    for row in range(numbers.shape[0]):
        for n in range(numbers.shape[1]):
            other = numbers[row, n]
            if other < 0:
                continue
            at, size = 0, back.shape[1]
            while size > 1:
                half = size >> 1
                at = at + half if back[other, at + half] <= row else at
                size -= half
            if back[other, at] != row:
                numbers[row, n] = -1
