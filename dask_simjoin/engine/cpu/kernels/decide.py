"""Decides which candidates are pairs, by all dimensions."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array

BLOCK = 512
"""Candidates that are gone through at a time, some dimensions after others."""

STEP = 4
"""Dimensions after which candidates are dropped whose totals are too large: totals only grow."""


def scratch() -> tuple[np.ndarray, ...]:
    """Arrays that `decide` works with: a block of candidates, and their totals."""
    return (*(np.empty(BLOCK, np.uint32) for _ in range(3)), np.empty(BLOCK))


@kernel
def decide(q_x: Array, d_x: Array, q_places: Array, d_places: Array, threshold: float, norm: Kind,
           near: Array, totals: Array, i: Array, j: Array, number: Array, total: Array) -> int:  # fmt: skip
    """Fill `near` with the numbers of the candidates that are pairs, `totals` with their totals; how many.

    `q_x`, `d_x` (d, n or more): coordinates by place; the last four: see `scratch`.  No branch depends on a
    total: it could not be guessed.
    """
    dims = q_x.shape[0]
    found = 0
    for first in range(0, q_places.size, BLOCK):
        left = min(BLOCK, q_places.size - first)
        for t in range(left):
            i[t], j[t], number[t], total[t] = q_places[first + t], d_places[first + t], t, 0.0
        for begin in range(0, dims, STEP):
            kept = 0
            for t in range(left):
                a, b, sum_ = i[t], j[t], total[t]
                for k in range(begin, min(begin + STEP, dims)):
                    sum_ = add_term(sum_, q_x[k, a] - d_x[k, b], norm)
                i[kept], j[kept], number[kept], total[kept] = a, b, number[t], sum_
                kept += sum_ <= threshold
            left = kept
        for t in range(left):
            near[found + t], totals[found + t] = first + number[t], total[t]
        found += left
    return found
