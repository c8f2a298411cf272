"""Memory for arrays of CuPy, where the caller has not set up a pool of RMM.

cuDF lets CuPy take memory from RMM's resource. By default this resource asks the driver
for each array, and the driver waits for all kernels before it frees one. A join makes
dozens of arrays, so small joins took several times as long as their kernels. A pool of
the driver (`cudaMallocAsync`) hands memory on in the order of the kernels instead.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import cupy
import rmm
from rmm.allocators.cupy import rmm_cupy_allocator
from rmm.pylibrmm.stream import Stream

from dask_simjoin.engine.gpu import load
from dask_simjoin.sizes import BUFFER_SHARE

Allocator = Callable[[int], Any]


@functools.cache
def _allocator(device: int) -> Allocator | None:
    """Return an allocator with a pool of its own; None if the driver has no pools."""
    try:
        pool = rmm.mr.CudaAsyncMemoryResource(
            # kept between two calls
            release_threshold=load.memory() // BUFFER_SHARE
        )
    except RuntimeError:
        return None

    def allocate(size: int) -> Any:
        # like RMM's own allocator for CuPy, but for the memory resource
        stream = Stream(obj=cupy.cuda.get_current_stream())
        buffer = rmm.DeviceBuffer(size=size, stream=stream, mr=pool)
        own = device if not buffer.ptr else -1
        memory = cupy.cuda.UnownedMemory(buffer.ptr, buffer.size, buffer, own)
        return cupy.cuda.MemoryPointer(memory, 0)

    return allocate


def _asks_driver() -> bool:
    """Return whether each array of CuPy is allocated by a call to the driver."""
    resource = rmm.mr.get_current_device_resource()
    plain = type(resource) is rmm.mr.CudaMemoryResource
    return plain and cupy.cuda.get_allocator() is rmm_cupy_allocator


@contextlib.contextmanager
def pooled() -> Iterator[None]:
    """Take the memory of arrays that this thread allocates from a pool, unless the
    caller has chosen how memory is allocated.
    """
    found = _allocator(cupy.cuda.runtime.getDevice()) if _asks_driver() else None
    if found is None:
        yield
        return
    with cupy.cuda.using_allocator(found):
        yield
