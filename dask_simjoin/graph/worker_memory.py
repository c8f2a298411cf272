"""Keep the memory of workers within their limits."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from typing import Any

import psutil
import pyarrow as pa
from distributed import (
    Status,
    Worker,
)

from dask_simjoin.graph.standstill import Standstill
from dask_simjoin.sizes import (
    BUFFER_SHARE,
    CACHE_SHARE,
    HELD_SHARE,
    MOMENT,
    PARSED_BYTES,
    TRIES,
)

KEPT_BYTES = 1 << 26, 1 << 29
"""Smallest and largest number of bytes that are kept for a thread."""

KEPT_PIECE = 1 << 25
"""Larger freed allocations are returned in any case; the C library permits no higher
limit.
"""

MIN_KEEPING_LIMIT = 1 << 31
"""A worker whose memory limit is lower, in bytes, keeps no freed memory: see
`keep_freed_memory`.
"""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Values of the constants M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in the C header
`malloc.h`.
"""

MAX_PAUSE_SHARE = 0.92
"""`let_go_on` raises a worker's pause threshold, a share of its memory limit, at most
to this; at 95 % Dask kills the worker.
"""

INNER = pa.default_memory_pool()
"""The memory pool that Arrow uses internally to read and write files, even if another
pool is set as default.
"""


def guard_memory(worker: Worker) -> None:
    """Configure a worker to stay within its memory limit, and watch its memory."""
    limit = worker.memory_manager.memory_limit
    if not limit:
        return
    use_system_allocator()
    keep_freed_memory(limit, worker.state.nthreads)
    some = weakref.ref(worker), HELD_SHARE * limit
    threading.Thread(
        target=_keep_free, args=some, name="simjoin-memory", daemon=True
    ).start()
    bound_shuffles(worker.extensions.get("shuffle"), limit // CACHE_SHARE)


def bound_shuffles(plugin: Any, max_bytes: int) -> None:
    """Make the shuffles of a worker wait while a buffer has `max_bytes`, or Dask's
    limit if that is lower.
    """
    for name in ("memory_limiter_comms", "memory_limiter_disk"):
        limiter = getattr(plugin, name, None)
        if limiter is not None and limiter.limit is not None:
            limiter.limit = min(limiter.limit, max_bytes)


def use_system_allocator() -> None:
    """Make Arrow use the system's allocator, which returns freed memory to the system.

    Arrow's own allocator keeps freed memory, and the worker counts it as used: 225 MB
    on workers with 700 MB. At 80 % of its limit a worker pauses, and a shuffle that
    needs it waits forever. Dask's nannies configure the system's allocator so that it
    returns freed memory.
    """
    pa.default_memory_pool().release_unused()
    pa.set_memory_pool(pa.system_memory_pool())


def keep_freed_memory(limit: int, threads: int) -> None:
    """Make the system's allocator keep some freed memory on a worker with a high memory
    limit.

    Dask's nannies make the allocator return each freed allocation of at least 64 kB. So
    memory for large arrays is requested from the system again and again, and the system
    fills it with zeros. Indexing rows of six columns spent a third of its time on that.
    `dbscan` of 8 million rows spent 0.8 of 3.6 s on it while only arrays below 4 MB
    were kept.
    """
    if limit < MIN_KEEPING_LIMIT:
        return
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        kept = min(max(limit // threads // BUFFER_SHARE, KEPT_BYTES[0]), KEPT_BYTES[1])
        change(MMAP_THRESHOLD, min(kept // CACHE_SHARE, KEPT_PIECE))
        change(TRIM_THRESHOLD, kept)


def _keep_free(worker: weakref.ref[Worker], max_used: float) -> None:
    """Watch the memory of a worker in a separate thread, until the worker is gone.

    If more than `max_used` bytes are in use, return freed memory to the system.  The
    system's allocator returns small allocations only on request: workers kept 90 MB of
    them while they sent partitions to 79 blocks. Also resume the worker if it is paused
    but idle, and report if it is stuck.
    """
    process, idle, before, standstill = psutil.Process(), 0, 0, Standstill()
    while (there := worker()) is not None and there.status not in (
        Status.closed,
        Status.failed,
    ):
        used = process.memory_info().rss
        if used > max_used:
            pa.system_memory_pool().release_unused()
            _return_freed()
        # results that could still be spilled to disk
        in_memory = len(getattr(there.data, "fast", ()))
        is_idle = (
            there.status == Status.paused
            and not there.state.executing_count
            and not in_memory
        )
        idle = idle + 1 if used >= before and is_idle else 0
        if idle >= TRIES:
            let_go_on(there, process.memory_info().rss)
            idle = 0
        standstill.look(there, used)
        before = used
        del there
        time.sleep(MOMENT)


def _return_freed() -> None:
    """Make Arrow's own allocator return memory that has been free for at least a
    second.

    The allocator, mimalloc, returns such memory only when a large allocation is freed.
    Without this, it kept 50 MB after a task that wrote a result.
    """
    if INNER.backend_name != "system":
        pa.allocate_buffer(PARSED_BYTES, memory_pool=INNER)


def let_go_on(worker: Worker, used: int) -> None:
    """Resume a paused, idle worker that uses `used` bytes, by raising its pause
    threshold.

    Dask pauses a worker at 80 % of its memory until it uses less. But once a paused
    worker has spilled all data, it cannot use less: libraries, tasks and allocators
    take the rest. Two workers with 700 MB waited forever at 534 of 667 MiB.
    """
    manager = worker.memory_manager
    if manager.memory_limit and manager.memory_pause_fraction:
        share = min(used / manager.memory_limit + 0.04, MAX_PAUSE_SHARE)
        manager.memory_pause_fraction = max(manager.memory_pause_fraction, share)
