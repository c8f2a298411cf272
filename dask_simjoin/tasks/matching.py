"""Match rows of two tables one to one, best pairs first.

All pairs are sorted by their total, then by the left row, then by the right row. For
sets the total is the negative similarity, and for texts the distance or its share of the
length. A pair is taken if neither of its rows is in a pair that was taken before.
The order is strict, so the result does not depend on partitions, or on the order of the
given pairs. It is also the only stable matching: for each pair that is not taken, one of
its rows is in an earlier pair.

A pair can lose its rival late in this order, so no task can decide with a part of the
pairs. One task receives them all.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.budget import Cause
from dask_simjoin.planning.checks import check_matching
from dask_simjoin.tasks.closest import NO_PAIRS, RowPairs


def check_numbers(free: int | None, cause: Cause, *numbers: int) -> None:
    """Call `check_matching` for the numbers of pairs of several tasks."""
    check_matching(free, cause, sum(numbers))


def pair_order(pairs: RowPairs) -> np.ndarray:
    """Return the order by total, then by left row, then by right row (pairs,), int64.
    NaN comes last.
    """
    left, right, total = pairs[:3]
    # `lexsort` of all pairs takes nine times as long
    total = np.where(np.isnan(total), np.inf, total)
    order = np.argsort(total)
    same = total[order[1:]] == total[order[:-1]]
    if same.any():
        tied = np.zeros(len(total), bool)
        tied[1:] = same
        tied[:-1] |= same
        rows = order[tied]
        order[tied] = rows[np.lexsort((right[rows], left[rows], total[rows]))]
    return order


def greedy(pairs: RowPairs) -> RowPairs:
    """Return the pairs that are taken, in their order."""
    left, right = pairs[:2]
    if not len(left):
        return pairs
    order, chosen = pair_order(pairs), np.empty(len(left), np.int64)
    taken = (np.zeros(int(side.max()) + 1, bool) for side in (left, right))
    number = host_kernels("matching").select(order, left, right, *taken, chosen)
    return pairs.take(chosen[:number])


def greedy_of_frames(*found: Frame) -> RowPairs:
    """Match the rows of all pairs. `found`: frames with row numbers in the columns
    "left" and "right", and totals in "distance", or similarities in "similarity".
    """
    if not found:
        return NO_PAIRS
    similar = "similarity" in found[0].columns
    left, right, total = (
        np.concatenate([to_host(values_of(one[name])) for one in found])
        for name in ("left", "right", "similarity" if similar else "distance")
    )
    return greedy(RowPairs(left, right, -total if similar else total))
