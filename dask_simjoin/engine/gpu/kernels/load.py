"""Compiles the kernels and keeps them."""

from __future__ import annotations

import functools
from typing import Any

import cupy

from dask_simjoin.engine.gpu.kernels.sources import options, source


@functools.cache
def _compiled(name: str, function: str, device: int, constants: tuple[tuple[str, int], ...]) -> Any:
    module = cupy.RawModule(code=source(name), options=options(**dict(constants)))
    return module.get_function(function)


def kernel(name: str, function: str, **constants: int) -> Any:
    """A kernel for the current device; compiled once, and kept on disk by CuPy."""
    device = cupy.cuda.runtime.getDevice()
    return _compiled(name, function, device, tuple(sorted(constants.items())))


@functools.cache
def grid_size(function: Any, threads: int, shared: int = 0) -> int:
    """Blocks that fill the current device."""
    driver = cupy.cuda.driver
    number = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.kernel.ptr, threads, shared)
    processors = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.runtime.getDevice())["multiProcessorCount"]
    return max(1, number) * processors
