"""Select pairs such that each row is in at most one of them."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.norms import Array


@kernel
def select(
    order: Array,
    left: Array,
    right: Array,
    left_taken: Array,
    right_taken: Array,
    chosen: Array,
) -> int:
    """Take the pairs in the given order, unless one of their rows is taken already.
    Write their numbers to `chosen`, and return how many they are.

    `left`, `right` (pairs,): rows. `left_taken`, `right_taken` (rows,): False.
    """
    number = 0
    for n in range(order.size):
        pair = order[n]
        if not left_taken[left[pair]] and not right_taken[right[pair]]:
            left_taken[left[pair]] = right_taken[right[pair]] = True
            chosen[number] = pair
            number += 1
    return number
