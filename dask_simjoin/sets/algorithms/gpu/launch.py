"""Starts the kernels of set joins."""

from __future__ import annotations

from typing import Any

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.sets.algorithms.gpu.kernels.sources import SOURCES

THREADS = 256
"""Of a block, where nothing else is asked for."""

MOST_BLOCKS = 1 << 16
"""Of kernels whose threads go on with the next items: more would not keep a GPU busier."""

SHARED_BYTES = 48 << 10
"""Of shared memory that every GPU gives a block without being asked."""


def over(items: int, name: str, function: str, arguments: tuple[Any, ...], **constants: int) -> None:
    """Start a kernel whose threads take items in a loop."""
    blocks = max(1, min(-(-items // THREADS), MOST_BLOCKS))
    load.kernel(SOURCES[name], function, **constants)((blocks,), (THREADS,), arguments)


def blocks(number: int, threads: int, name: str, function: str, arguments: tuple[Any, ...], shared: int = 0,
           **constants: int) -> None:  # fmt: skip
    """Start so many blocks of a kernel, of so many threads and bytes of shared memory."""
    load.kernel(SOURCES[name], function, **constants)((number,), (threads,), arguments, shared_mem=shared)
