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
"""What the place of a task that is one worker's begins with, in its key."""


def on_worker_of(worker: int, *place: Any) -> tuple[Any, ...]:
    """Name the place of a task that is done by the worker of this number, whichever that is."""
    return f"{ON}{worker}", *place


def worker_of(key: Hashable) -> int | None:
    """Tell the number of the worker that a key says; None: it says none."""
    if isinstance(key, tuple) and len(key) == 2 and isinstance(key[1], tuple) and key[1]:
        first = key[1][0]
        if isinstance(first, str) and first.startswith(ON):
            return int(first.removeprefix(ON))
    return None


class SharedWork(SchedulerPlugin):
    """Lets each worker do its own part, as long as there are such workers.

    Left to itself, Dask goes by how long tasks of a name took before: after a run of few rows it takes parts
    to be shorter than what it takes to send a chunk, and one worker does them all, one after the other.
    """

    name = "simjoin-shared-work"
    idempotent = True

    def update_graph(self, scheduler: Scheduler, *, tasks: list[Any], **other: Any) -> None:
        """Choose the workers of new tasks, before any of them is given to one."""
        there = sorted(worker.address for worker in scheduler.running)
        own = {key: worker for key in tasks if (worker := worker_of(key)) is not None}
        # what has copies for other workers is the first one's
        firsts = {(name, *place[1:]) for name, place in own}
        own |= {key: 0 for key in tasks if isinstance(key, tuple) and key in firsts}
        for key, worker in own.items() if there else ():
            task = scheduler.tasks[key]
            task.worker_restrictions, task.loose_restrictions = {there[worker % len(there)]}, True


_told: weakref.WeakSet[Client] = weakref.WeakSet()


def share_work() -> None:
    """Let the cluster that computes now, if there is one, know of shared work."""
    client: Client | None = current_client()
    if client is not None and not client.asynchronous and client not in _told:
        client.register_plugin(SharedWork())
        _told.add(client)


Spill = tuple[str, int, str, int, int | None]
"""Where a worker spills: host, device, folder, free bytes there, and the most that Dask lets it write."""


def check_worker_disks(needed: float, client: Client | None) -> None:
    """Refuse what needs so many bytes on the workers' disks, if these have no room."""
    if needed > 0 and client is not None and not client.asynchronous:
        check_disks(needed, by_disk(client.run(_spill_of, on_error="ignore").values()))


def _spill_of(dask_worker: Worker) -> Spill:
    directory = dask_worker.local_directory
    most = getattr(dask_worker.memory_manager, "max_spill", None) or None
    return socket.gethostname(), os.stat(directory).st_dev, directory, shutil.disk_usage(directory).free, most


def by_disk(spills: Iterable[Spill]) -> list[WorkerDisk]:
    """Put together workers that share a disk."""
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
