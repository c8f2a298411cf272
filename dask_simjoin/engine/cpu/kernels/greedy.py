"""Choose rows one after the other, none of which is near another."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.types import Array


@kernel
def drop_near(earlier: Array, later: Array, dropped: Array) -> None:
    """Drop the later row of each pair whose earlier one stays; pairs are in the order of their earlier rows.

    All pairs in which a row is the later one have been met before the first in which it is the earlier one,
    so that by then it is told whether it stays.
    """
    for n in range(earlier.size):
        if not dropped[earlier[n]]:
            dropped[later[n]] = True
