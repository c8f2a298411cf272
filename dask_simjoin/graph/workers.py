"""Memory and disks of workers, and shared work that one worker does for each key."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import psutil
import pyarrow as pa
from distributed import Client, LocalCluster, Scheduler, Status, Worker, get_worker
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph.standstill import Standstill, watch
from dask_simjoin.planning.disk import WorkerDisk, check_disks
from dask_simjoin.request.options import current_client

ON = "worker "
"""Prefix of the place in a task's key, if the task is for one worker."""


def on_worker_of(worker: int, *place: Any) -> tuple[Any, ...]:
    """Return the place of a task for the worker of this number."""
    return f"{ON}{worker}", *place


def worker_of(key: Hashable) -> int | None:
    """Return the number of the worker that a key names, if any."""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], tuple) and key[1]:
        first = key[1][0]
        if isinstance(first, str) and first.startswith(ON):
            return int(first.removeprefix(ON))
    return None


class SharedWork(SchedulerPlugin):
    """Run each worker's part of shared work on that worker, as long as there are workers.

    By default Dask estimates how long a task takes from earlier tasks of the same name.  After a run of few
    rows, a part seems shorter than sending a chunk.  Then one worker does all parts one after the other.
    """

    name = "simjoin-shared-work"
    idempotent = True

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Any], **other: Any) -> None:
        """Choose the workers of new tasks before any is assigned."""
        there = sorted(worker.address for worker in scheduler.running)
        own = {key: worker for key in tasks if (worker := worker_of(key)) is not None}
        # the first worker makes the original of a copied chunk
        firsts = {(name, *place[1:]) for name, place in own}
        own |= {key: 0 for key in tasks if isinstance(key, tuple) and key in firsts}
        for key, worker in own.items() if there else ():
            task = scheduler.tasks[key]
            task.worker_restrictions, task.loose_restrictions = {there[worker % len(there)]}, True


_registered: weakref.WeakSet[Client] = weakref.WeakSet()


def share_work() -> None:
    """Register the plugin `SharedWork` with the current cluster, if any."""
    client: Client | None = current_client()
    if client is not None and not client.asynchronous and client not in _registered:
        client.register_plugin(SharedWork())
        _registered.add(client)


Spill = tuple[str, int, str, int, int | None]
"""A worker's disk: host, device, folder, free bytes, and the bytes that Dask lets it write, if limited."""


def check_worker_disks(needed: float, client: Client | None) -> None:
    """Refuse a join that needs more bytes than the workers' disks have."""
    if needed > 0 and client is not None and not client.asynchronous:
        check_disks(needed, by_disk(client.run(_spill_of, on_error="ignore").values()))


def _spill_of(dask_worker: Worker) -> Spill:
    directory = dask_worker.local_directory
    most = getattr(dask_worker.memory_manager, "max_spill", None) or None
    return socket.gethostname(), os.stat(directory).st_dev, directory, shutil.disk_usage(directory).free, most


def by_disk(spills: Iterable[Spill]) -> list[WorkerDisk]:
    """Group workers that share a disk."""
    found: dict[tuple[str, int], list[Spill]] = {}
    for spill in spills:
        found.setdefault(spill[:2], []).append(spill)
    disks = []
    for (host, _), some in found.items():
        free = min(spill[3] for spill in some)
        allowed = sum(free if spill[4] is None else spill[4] for spill in some)
        disks.append(WorkerDisk(host, some[0][2], len(some), min(free, allowed)))
    return disks


NO_WORKERS = 300.0
"""Seconds that a task waits for a running worker."""

SHUFFLE_BUFFER = 16
"""A shuffle's send buffer and write buffer are at most a worker's memory divided by this.

Dask's limits, 1 GiB and 100 MiB, do not depend on the worker: workers of 700 MB ran out of memory."""

KEPT_BYTES = 1 << 26
"""Largest number of freed bytes that a worker keeps."""

KEPT_PIECE = 1 << 22
"""Allocations of this many bytes and more are never kept: the system serves them with large pages."""

MIN_KEEPING_LIMIT = 1 << 31
"""Smallest memory limit of a worker that keeps freed memory: see `keep_freed_memory`."""

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The constants M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of `malloc.h`."""

CHECK_SECONDS = 0.5
"""Seconds between two checks of a worker's memory."""

RETURN_SHARE = 0.5
"""Freed memory is returned once a worker uses this share of its memory limit."""

MAX_PAUSE_SHARE = 0.92
"""Highest share that `let_go_on` raises a worker's pause threshold to; Dask ends a worker at 95 %."""

PATIENCE = 10
"""Consecutive checks that must find a worker paused and idle before it may go on."""

LARGE_BYTES = 1 << 20
"""Allocators serve allocations of this many bytes and more separately from small ones."""

INNER = pa.default_memory_pool()
"""The memory pool that Arrow itself uses to read and write files, whatever pool is set."""


@functools.cache
def prepare_worker() -> None:
    """If this process is a worker, make it stay within its memory limit."""
    try:
        worker = get_worker()
    except ValueError:  # not a worker
        return
    limit = worker.memory_manager.memory_limit
    if limit:
        use_system_allocator()
        keep_freed_memory(limit)
        some = weakref.ref(worker), RETURN_SHARE * limit
        threading.Thread(target=_keep_free, args=some, name="simjoin-memory", daemon=True).start()
        bound_shuffles(worker.extensions.get("shuffle"), limit // SHUFFLE_BUFFER)


def bound_shuffles(plugin: Any, max_bytes: int) -> None:
    """Make a worker's shuffles wait while they hold `max_bytes`, or Dask's limit if it is lower."""
    for name in ("memory_limiter_comms", "memory_limiter_disk"):
        limiter = getattr(plugin, name, None)
        if limiter is not None and limiter.limit is not None:
            limiter.limit = min(limiter.limit, max_bytes)


def use_system_allocator() -> None:
    """Make Arrow return freed memory to the system.

    Its own allocator keeps freed memory, which a worker counts as used.  At 80 % of its limit the worker
    pauses, runs nothing that could free memory, and a shuffle waits for ever.  Workers of 700 MB kept 225 MB
    in this way.  The system's allocator returns freed memory, as Dask's nannies configure it.
    """
    pa.default_memory_pool().release_unused()
    pa.set_memory_pool(pa.system_memory_pool())


def keep_freed_memory(limit: int) -> None:
    """Make the system's allocator keep some freed memory on a worker with a high memory limit.

    Dask's nannies make the allocator return freed memory from 64 kB on.  Then it requests each array of
    128 kB and more from the system.  Indexing rows of six columns waited for memory a third of the time.
    """
    if limit < MIN_KEEPING_LIMIT:
        return
    change = getattr(ctypes.CDLL(None), "mallopt", None)
    if change is not None:
        change(MMAP_THRESHOLD, KEPT_PIECE)
        change(TRIM_THRESHOLD, KEPT_BYTES)


def _keep_free(worker: weakref.ref[Worker], max_used: float) -> None:
    """Return free memory to the system whenever more than `max_used` is in use, until the worker is gone.

    The system's allocator returns large allocations itself, but fragments only on request.  Workers kept
    90 MB of fragments while sending partitions to 79 blocks.  A thread requests it, because a paused worker
    does not run tasks.
    """
    process, idle, before, standstill = psutil.Process(), 0, 0, Standstill()
    while (there := worker()) is not None and there.status not in (Status.closed, Status.failed):
        used = process.memory_info().rss
        if used > max_used:
            pa.system_memory_pool().release_unused()
            _return_freed()
        idle = idle + 1 if used >= before and _waits(there) else 0
        if idle >= PATIENCE:
            let_go_on(there, process.memory_info().rss)
            idle = 0
        standstill.look(there, used)
        before = used
        del there
        time.sleep(CHECK_SECONDS)


def _return_freed() -> None:
    """Make Arrow's own allocator return memory of all threads that has been free for a second.

    mimalloc returns such memory only when it frees another large allocation.  A task that wrote a result had
    left 50 MB.
    """
    if INNER.backend_name != "system":
        pa.allocate_buffer(LARGE_BYTES, memory_pool=INNER)


def _waits(worker: Worker) -> bool:
    """Return whether a worker is paused, runs no task, and has no data in memory to write to disk."""
    in_memory = getattr(worker.data, "fast", ())
    return worker.status == Status.paused and not worker.state.executing_count and not len(in_memory)


def let_go_on(worker: Worker, used: int) -> None:
    """Resume a paused, idle worker that uses this many bytes, if its limit leaves room.

    Dask's workers pause at 80 % of their memory until they use less.  Dask writes data to disk from 70 % on.
    So an idle worker holds only libraries, tasks and allocators' memory, and never gets below 80 %.  Two
    workers of 700 MB waited for ever, at 534 of 667 MiB.
    """
    manager = worker.memory_manager
    if manager.memory_limit and manager.memory_pause_fraction:
        share = min(used / manager.memory_limit + 0.04, MAX_PAUSE_SHARE)
        manager.memory_pause_fraction = max(manager.memory_pause_fraction, share)


def end_without_workers(client: Client | None) -> None:
    """Fail the tasks of a local cluster without running workers for long, and of any that stands still.

    A local cluster gives up a dead worker that does not restart within 15 s
    (`distributed.deploy.lost-worker-timeout`), and does not start another.  On a busy machine it can give up
    all workers, and a program waited for ever.  Other clusters may get workers at any time, so they are left
    alone.  An explicit `distributed.scheduler.no-workers-timeout` is respected.
    """
    watch(client)
    cluster = getattr(client, "cluster", None)
    if isinstance(cluster, LocalCluster) and cluster.scheduler.no_workers_timeout is None:
        cluster.scheduler.no_workers_timeout = NO_WORKERS


def is_worker() -> bool:
    """Return whether a worker of a cluster runs this code."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def check_sending(method: str) -> None:
    """Refuse, in a task, a shuffle by workers if there are none.

    The scheduler of `compute(scheduler=...)` is not known before tasks run.
    """
    if method == "p2p" and not is_worker():
        raise PlanningError(
            "The join was planned for a cluster, with the shuffle 'p2p', but compute(scheduler=...) runs its "
            "tasks without a cluster. Build and compute it within dask.config.set(scheduler='threads'), or "
            "build it within dask.config.set({'dataframe.shuffle.method': 'tasks'}), or leave out scheduler=."
        )


def on_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function, after `prepare_worker`."""
    prepare_worker()
    return function(*args)
