"""Tell whether a worker runs a task, keep within its memory, and wait for none for ever."""

from __future__ import annotations

import ctypes
import functools
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import psutil
import pyarrow as pa
from distributed import Client, LocalCluster, Status, Worker, get_worker

from dask_simjoin.errors import PlanningError
from dask_simjoin.expressions.standstill import Standstill, watch

NO_WORKERS = 300.0
"""Seconds for which a task waits for a worker that runs."""

SHUFFLE_BUFFER = 16
"""A worker's memory in units of what a shuffle may hold at most that is to be sent, or to be written.

Dask's own limits, 1 GiB and 100 MiB, are for any worker: those of 700 MB died of them."""


KEPT, KEPT_PIECE, KEEPS_LIMIT = 1 << 26, 1 << 22, 1 << 31
"""Freed memory beyond all that is used that a worker keeps at most; pieces that are never kept, as they get
new memory in large pages; and the limit that a worker has at least for that: see `keep_some`."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""What `malloc.h` calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""

EVERY = 0.5
"""Seconds between two looks at a worker's memory."""

MUCH = 0.5
"""Share of a worker's memory from which what is free in it is returned."""

MOST = 0.92
"""Share of it up to which a worker that has paused is let go on; Dask ends those of 95 %."""

PATIENCE = 10
"""Looks at a worker, one after the other, at which it is paused and nothing happens, before that."""

LARGE = 1 << 20
"""Bytes of a piece that allocators do not take from among small ones."""

INNER = pa.default_memory_pool()
"""What Arrow's own code takes memory from when it reads and writes files, whatever pool is set."""


@functools.cache
def prepare_worker() -> None:
    """Let this process, if it is a worker, keep within its memory: see the functions that this calls."""
    try:
        worker = get_worker()
    except ValueError:  # this is none
        return
    limit = worker.memory_manager.memory_limit
    if limit:
        give_memory_back()
        keep_some(limit)
        some = weakref.ref(worker), MUCH * limit
        threading.Thread(target=_keep_free, args=some, name="simjoin-memory", daemon=True).start()
        bound_shuffles(worker.extensions.get("shuffle"), limit // SHUFFLE_BUFFER)


def bound_shuffles(plugin: Any, most: int) -> None:
    """Let shuffles of a worker wait when they hold so many bytes, unless Dask's configuration has less."""
    for name in ("memory_limiter_comms", "memory_limiter_disk"):
        limiter = getattr(plugin, name, None)
        if limiter is not None and limiter.limit is not None:
            limiter.limit = min(limiter.limit, most)


def give_memory_back() -> None:
    """Let Arrow return what it frees to the system.

    Its own allocator keeps freed memory.  A worker counts that as used, and pauses at 80 % of its
    limit; paused, it runs nothing that would make it smaller, and a shuffle waits for ever (seen with
    workers of 700 MB that held 225 MB so).  The system's allocator returns it, as Dask's nannies set
    it to.
    """
    pa.default_memory_pool().release_unused()
    pa.set_memory_pool(pa.system_memory_pool())


def keep_some(limit: int) -> None:
    """Let the system's allocator keep some of what is freed, as it does elsewhere, on a worker of this limit.

    Dask's nannies have it return all from 64 kB on, and then it takes arrays from 128 kB on anew each time:
    to wait for new memory was a third of the time in which workers indexed rows of six columns.
    """
    if limit < KEEPS_LIMIT:
        return
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(MMAP_THRESHOLD, KEPT_PIECE)
        change(TRIM_THRESHOLD, KEPT)


def _keep_free(worker: weakref.ref[Worker], much: float) -> None:
    """Return free memory between used memory whenever much is used, until the worker is gone.

    The system's allocator returns large pieces itself, and those between small ones that are used when it is
    told to: workers held 90 MB in these where partitions were sent to 79 blocks.  A worker that has paused
    for them runs no task that could tell it, so a thread does.
    """
    process, idle, before, standstill = psutil.Process(), 0, 0, Standstill()
    while (there := worker()) is not None and there.status not in (Status.closed, Status.failed):
        used = process.memory_info().rss
        if used > much:
            pa.system_memory_pool().release_unused()
            _return_freed()
        idle = idle + 1 if used >= before and _waits(there) else 0
        if idle >= PATIENCE:
            let_go_on(there, process.memory_info().rss)
            idle = 0
        standstill.look(there, used)
        before = used
        del there
        time.sleep(EVERY)


def _return_freed() -> None:
    """Let Arrow's own allocator return what has been free for a second, in whichever thread.

    mimalloc does so as another large piece is freed: a task that had written a result left 50 MB and more.
    """
    if INNER.backend_name != "system":
        pa.allocate_buffer(LARGE, memory_pool=INNER)


def _waits(worker: Worker) -> bool:
    """Tell whether a worker has paused, runs nothing, and has nothing in memory that goes to disk."""
    in_memory = getattr(worker.data, "fast", ())
    return worker.status == Status.paused and not worker.state.executing_count and not len(in_memory)


def let_go_on(worker: Worker, used: int) -> None:
    """Let a worker go on that has paused, runs nothing and uses so many bytes, if there is room for more.

    Dask's workers pause at 80 % of their memory until they are smaller.  One that runs nothing, and whose
    data Dask has written to disk at 70 %, gets no smaller: what is left are libraries, tasks and what
    allocators keep.  Two workers of 700 MB waited so for ever, at 534 of 667 MiB.
    """
    manager = worker.memory_manager
    if manager.memory_limit and manager.memory_pause_fraction:
        share = min(used / manager.memory_limit + 0.04, MOST)
        manager.memory_pause_fraction = max(manager.memory_pause_fraction, share)


def end_without_workers(client: Client | None) -> None:
    """Let tasks fail for which a cluster has had no worker that runs for long: of this process, see below.

    It gives up a worker that dies and is not back in time (`distributed.deploy.lost-worker-timeout`, 15 s, in
    which a busy machine starts none), and starts no other: once all were given up, a program waited for ever.
    Clusters elsewhere may get workers at any time, so they are left alone; so is what Dask's configuration
    says of `distributed.scheduler.no-workers-timeout`.  Of any cluster whose workers all stand still tasks
    fail too.
    """
    watch(client)
    cluster = getattr(client, "cluster", None)
    if isinstance(cluster, LocalCluster) and cluster.scheduler.no_workers_timeout is None:
        cluster.scheduler.no_workers_timeout = NO_WORKERS


def is_worker() -> bool:
    """Tell whether this is run by a worker of a cluster."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def check_sending(method: str) -> None:
    """Refuse, in a task, a shuffle by workers where there are none.

    What `compute(scheduler=...)` names, Dask tells nobody before tasks run.
    """
    if method == "p2p" and not is_worker():
        raise PlanningError(
            "The join was planned on a cluster, whose workers would shuffle its rows with 'p2p', and its "
            "tasks run without one, as compute(scheduler=...) asks for. Build and compute it within "
            "dask.config.set(scheduler='threads'), or build it within "
            "dask.config.set({'dataframe.shuffle.method': 'tasks'}), or leave out scheduler=."
        )


def on_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function, on a worker that keeps within its memory."""
    prepare_worker()
    return function(*args)
