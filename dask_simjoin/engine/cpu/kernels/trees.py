"""Trees of rows as edges in order, the lightest first: two are merged in one pass."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.types import Array


@device_function
def top(above: Array, i: int) -> int:
    """The root of a node; `above`: 1 + the node that each is tied to, 0: none.

    So room for it is zeros, which take no memory before nodes are met.
    """
    while above[i] > 0:
        up = above[i] - 1
        if above[up] > 0:
            above[i] = above[up]
        i = up
    return i


@kernel
def merge(a_weight: Array, a_low: Array, a_high: Array, b_weight: Array, b_low: Array, b_high: Array,
          above: Array, weight: Array, low: Array, high: Array) -> int:  # fmt: skip
    """Merge two forests, leaving out edges that close a circle: the number of those that are left.

    Edges are in the order of (weight, low, high); `above`: zeros for all rows; `weight`, `low`, `high`: room.
    """
    i, j, number = 0, 0, 0
    many, others = a_weight.size, b_weight.size
    while i < many or j < others:
        first = j >= others
        if i < many and not first:
            first = a_weight[i] < b_weight[j]
            if a_weight[i] == b_weight[j]:
                first = a_low[i] < b_low[j] or (a_low[i] == b_low[j] and a_high[i] < b_high[j])
        if first:
            w, one, other = a_weight[i], a_low[i], a_high[i]
            i += 1
        else:
            w, one, other = b_weight[j], b_low[j], b_high[j]
            j += 1
        p, q = top(above, one), top(above, other)
        if p != q:
            above[max(p, q)] = min(p, q) + 1
            weight[number], low[number], high[number] = w, one, other
            number += 1
    return number
