"""Workers of a cluster: their memory and disks, and computations that stall.

Dask pauses a worker at 80 % of its memory limit. If the worker's disk is full, its data
stay in memory. So it stays paused, and its tasks wait forever. A worker that notices
this logs an event. Once all workers are stuck like this, a plugin of the scheduler
fails the tasks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import logging
import os
import pickle
import shutil
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import psutil
import pyarrow as pa
from distributed import (
    Client,
    LocalCluster,
    Scheduler,
    Status,
    Worker,
    get_worker,
    rejoin,
    secede,
)
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_simjoin.errors import LARGER_DISK, PlanningError, ScratchError
from dask_simjoin.graph.dask_private import key_split
from dask_simjoin.planning.resources import WorkerDisk, check_disks
from dask_simjoin.request.messages import size_text

Spill = tuple[str, int, str, int, int | None]
"""The disk of a worker: host, device, folder, free bytes, and the most bytes that Dask
spills (None: no limit).
"""


def check_worker_disks(needed: float, client: Client | None) -> None:
    """Raise an error if a join needs more bytes than are free on the disks of the
    workers.
    """
    if needed > 0 and client is not None and not client.asynchronous:
        check_disks(needed, by_disk(client.run(_spill_of, on_error="ignore").values()))


def _spill_of(dask_worker: Worker) -> Spill:
    directory = dask_worker.local_directory
    most = getattr(dask_worker.memory_manager, "max_spill", None) or None
    return (
        socket.gethostname(),
        os.stat(directory).st_dev,
        directory,
        shutil.disk_usage(directory).free,
        most,
    )


def by_disk(spills: Iterable[Spill]) -> list[WorkerDisk]:
    """Group the disks of workers: workers on the same device of a host share one disk."""
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
"""Seconds that tasks wait for a worker to appear before they fail."""

SHUFFLE_BUFFER = 16
"""A shuffle has a buffer for sending and one for writing. Each may take 1 /
SHUFFLE_BUFFER of a worker's memory.

With Dask's default limits of 1 GiB and 100 MiB, workers with 700 MB ran out of
memory."""

KEPT_SHARE = 32
"""The system's allocator in a worker keeps freed memory of at most 1 / KEPT_SHARE of a
thread's memory.
"""

KEPT_BYTES = 1 << 26, 1 << 29
"""Smallest and largest number of bytes that are kept for a thread."""

PIECE_SHARE = 16
"""Freed allocations of at least 1 / PIECE_SHARE of the kept bytes are returned at once.
"""

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

CHECK_SECONDS = 0.5
"""Seconds between two checks of a worker's memory."""

RETURN_SHARE = 0.5
"""A worker returns freed memory to the system while it uses more than this share of its
memory limit.
"""

MAX_PAUSE_SHARE = 0.92
"""`let_go_on` raises a worker's pause threshold, a share of its memory limit, at most
to this; at 95 % Dask kills the worker.
"""

PATIENCE = 10
"""A worker is resumed after this many consecutive checks found it paused and idle."""

LARGE_BYTES = 1 << 20
"""An allocation of this many bytes is too large to be served from small freed
allocations.
"""

INNER = pa.default_memory_pool()
"""The memory pool that Arrow uses internally to read and write files, even if another
pool is set as default.
"""


@functools.cache
def prepare_worker() -> None:
    """If this process is a worker, configure it to stay within its memory limit."""
    if not is_worker():
        return
    worker = get_worker()
    limit = worker.memory_manager.memory_limit
    if limit:
        use_system_allocator()
        keep_freed_memory(limit, worker.state.nthreads)
        some = weakref.ref(worker), RETURN_SHARE * limit
        threading.Thread(
            target=_keep_free, args=some, name="simjoin-memory", daemon=True
        ).start()
        bound_shuffles(worker.extensions.get("shuffle"), limit // SHUFFLE_BUFFER)


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
        kept = min(max(limit // threads // KEPT_SHARE, KEPT_BYTES[0]), KEPT_BYTES[1])
        change(MMAP_THRESHOLD, min(kept // PIECE_SHARE, KEPT_PIECE))
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
        if idle >= PATIENCE:
            let_go_on(there, process.memory_info().rss)
            idle = 0
        standstill.look(there, used)
        before = used
        del there
        time.sleep(CHECK_SECONDS)


def _return_freed() -> None:
    """Make Arrow's own allocator return memory that has been free for at least a
    second.

    The allocator, mimalloc, returns such memory only when a large allocation is freed.
    Without this, it kept 50 MB after a task that wrote a result.
    """
    if INNER.backend_name != "system":
        pa.allocate_buffer(LARGE_BYTES, memory_pool=INNER)


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


def end_without_workers(client: Client | None) -> None:
    """Make tasks fail on a local cluster that has lost all workers, and on any cluster
    whose workers are all stuck.

    A local cluster gives up a dead worker that does not restart within 15 s
    (`distributed.deploy.lost-worker-timeout`). On a busy machine it can give up all
    workers, and a program would wait forever. Other clusters are not changed, because
    they may get workers at any time. The value of
    `distributed.scheduler.no-workers-timeout` is respected if you set it.
    """
    watch(client)
    cluster = getattr(client, "cluster", None)
    if (
        isinstance(cluster, LocalCluster)
        and cluster.scheduler.no_workers_timeout is None
    ):
        cluster.scheduler.no_workers_timeout = NO_WORKERS


def is_worker() -> bool:
    """Return whether a worker of a cluster runs this code."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def check_sending(method: str) -> None:
    """Raise an error if the shuffle needs workers of a cluster, but the calling task
    runs on none.

    Planning cannot check this, because `compute(scheduler=...)` may choose another
    scheduler later.
    """
    if method == "p2p" and not is_worker():
        raise PlanningError(
            "The join was planned for a cluster, with the shuffle 'p2p', but "
            "compute(scheduler=...) runs its "
            "tasks without a cluster. Build and compute it within "
            "dask.config.set(scheduler='threads'), or "
            "build it within dask.config.set({'dataframe.shuffle.method': 'tasks'}), "
            "or leave out scheduler=."
        )


@contextlib.contextmanager
def outside_pool() -> Iterator[None]:
    """Let the worker run other tasks while a task waits for them inside the `with`
    block. Elsewhere, do nothing.
    """
    seceded = False
    if is_worker():
        with contextlib.suppress(KeyError):  # the task may have left the pool already
            secede()
            seceded = True
    try:
        yield
    finally:
        if seceded:
            rejoin()


def on_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call `prepare_worker`, which configures a worker once, and then the function."""
    prepare_worker()
    return function(*args)


LOG = logging.getLogger("dask_simjoin")

TOPIC = "simjoin-standstill"
"""Topic of the events that workers log when they are stuck."""

OURS = "simjoin"
"""Prefix of the names of this package's tasks."""

LOOKS = 10
"""A worker counts as stuck if this many consecutive checks find it paused and
unchanged.
"""

FRESH = 15.0
"""After this many seconds, a worker's last event no longer shows that it is stuck."""

WAIT = 20.0
"""Tasks fail after all workers have been stuck for this many seconds."""


class Standstill:
    """Detects whether a worker is stuck: it is paused, runs no task, and spills
    nothing.
    """

    def __init__(self) -> None:
        self._looks, self._before = 0, (0, 0)

    def look(self, worker: Worker, used: int) -> bool:
        """Check a worker once. Return True if this check logs the event that the worker
        is stuck.
        """
        if worker.status != Status.paused or worker.state.executing_count:
            self._looks = 0
            return False
        fast = getattr(worker.data, "fast", ())
        state = len(worker.data), len(fast)
        self._looks = self._looks + 1 if state == self._before else 0
        self._before = state
        if not self._looks or self._looks % LOOKS:
            return False
        worker.log_event(TOPIC, _described(worker, used, len(fast)))
        return True


def _described(worker: Worker, used: int, unwritten: int) -> dict[str, Any]:
    """Describe a stuck worker by plain values, because an event cannot have other
    values.
    """
    manager, free = worker.memory_manager, 0
    with contextlib.suppress(OSError):  # the worker's folder may be gone
        free = shutil.disk_usage(worker.local_directory).free
    return {
        "worker": worker.address,
        "used": used,
        "limit": manager.memory_limit,
        "unwritten": unwritten,
        "directory": worker.local_directory,
        "free": free,
        "max_spill": manager.max_spill or None,
    }


class StandstillPlugin(SchedulerPlugin):
    """Fails the tasks of a cluster once all its workers are stuck."""

    name = "simjoin-standstill"
    idempotent = True

    def __init__(self) -> None:
        self._events: dict[str, tuple[float, dict[str, Any]]] = {}
        self._since, self._progress = 0.0, -1
        self._scheduler: Scheduler | None = None

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def log_event(self, topic: str, msg: Any) -> None:
        """Handle an event of a worker that is stuck. If all workers have been stuck for
        `WAIT` seconds, fail the tasks.
        """
        scheduler = self._scheduler
        if topic != TOPIC or scheduler is None:
            return
        now = time.monotonic()
        self._events[msg["worker"]] = now, msg
        self._events = {
            worker: event
            for worker, event in self._events.items()
            if worker in scheduler.workers and now - event[0] <= FRESH
        }
        busy = any(
            ws.processing and ws.address not in self._events
            for ws in scheduler.workers.values()
        )
        if busy or self._progress != scheduler.transition_counter:
            self._since, self._progress = now, scheduler.transition_counter
        elif now - self._since >= WAIT:
            self._since = now
            # delayed until the scheduler has handled this event
            scheduler.loop.add_callback(
                fail_tasks, scheduler, [event for _, event in self._events.values()]
            )


def fail_tasks(scheduler: Scheduler, events: list[dict[str, Any]]) -> None:
    """Fail the tasks that run or are ready to run in computations that include tasks of
    this package.
    """
    running = itertools.chain.from_iterable(
        ws.processing for ws in scheduler.workers.values()
    )
    error = ScratchError(standstill_message(events))
    how = {"exception": pickle.dumps(error), "exception_text": repr(error)}
    stimulus = f"simjoin-standstill-{time.time()}"
    then: dict[Any, Any] = {}
    for task in _of_this_package([*running, *scheduler.queued, *scheduler.unrunnable]):
        worker = task.processing_on
        # the scheduler fails a running task only if the task's worker is given
        own = how if worker is None else {**how, "worker": worker.address}
        then |= scheduler.transition(task.key, "erred", stimulus, cause=task.key, **own)
    scheduler.transitions(then, stimulus)


def _of_this_package(tasks: Iterable[Any]) -> list[Any]:
    """Select the tasks that depend on a task of this package, or that such a task
    depends on.
    """
    chosen, seen = [], set()
    for task in (tasks := list(tasks)):
        if task in seen:
            continue
        connected, found = [task], {task}
        while connected:
            one = connected.pop()
            more = (one.dependents | one.dependencies) - found
            found |= more
            connected.extend(more)
        seen |= found
        if any(key_split(one.key).startswith(OURS) for one in found):
            chosen += [one for one in tasks if one in found]
    return chosen


def standstill_message(events: list[dict[str, Any]]) -> str:
    """Return a message that names the stuck workers, and says why they are stuck and
    how to avoid it.
    """
    return (
        f"The computation stood still for {WAIT:.0f} s, because workers are paused and "
        "have no free memory: "
        f"{'; '.join(map(_worker_in_words, events))}. {LARGER_DISK}"
    )


def _worker_in_words(event: dict[str, Any]) -> str:
    text = f"{event['worker']} uses {size_text(event['used'], event['limit'])} of {size_text(event['limit'])}"
    if not event["unwritten"]:
        return f"{text} and has nothing that it could write to disk"
    text += (
        f" and cannot write {event['unwritten']:,} results to {event['directory']!r}, "
        "where "
        f"{size_text(event['free'])} are free"
    )
    if event["max_spill"] is None:
        return text
    limit = size_text(event["max_spill"])
    return (
        f"{text} and Dask may use at most {limit} (distributed.worker.memory.max-spill)"
    )


_watched: weakref.WeakSet[Client] = weakref.WeakSet()


def watch(client: Client | None) -> None:
    """Register the plugin that fails tasks when all workers of a cluster are stuck."""
    if client is None or client.asynchronous or client in _watched:
        return
    _watched.add(client)
    try:
        client.register_plugin(StandstillPlugin())
    except Exception:  # if the scheduler lacks this package, it cannot load the plugin, but still computes
        LOG.info(
            "The scheduler accepts no plugin that ends stalled computations",
            exc_info=True,
        )
