"""A pool of GPU memory that counts allocations."""

from __future__ import annotations

from typing import Any

import rmm


def counted_pool(size: int) -> Any:
    """Let RMM allocate from a pool of `size` bytes that grows; return what counts."""
    pool = rmm.mr.PoolMemoryResource(
        rmm.mr.CudaMemoryResource(), initial_pool_size=size
    )
    memory = rmm.mr.StatisticsResourceAdaptor(pool)
    rmm.mr.set_current_device_resource(memory)
    return memory
