"""Computations that full disks of workers end.

Dask pauses a worker at 80 % of its memory limit. If the worker's disk is full, its data
stay in memory. So it stays paused, and its tasks wait forever. A worker that notices
this logs an event. Once all workers are stuck like this, a plugin of the scheduler
fails the tasks.

Dask's p2p shuffle writes rows to files in any case, and raises an error of its own if a
disk is full. The plugin replaces it by an error that names the worker and the remedies.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import pickle
import shutil
import time
import weakref
from collections.abc import Iterable
from typing import Any

from distributed import (
    Client,
    Scheduler,
    Status,
    Worker,
)
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_simjoin.errors import LARGER_DISK, ScratchError
from dask_simjoin.graph.dask_private import key_split
from dask_simjoin.planning.resources import BY_ORDER, BY_TASKS
from dask_simjoin.request.messages import size_text
from dask_simjoin.sizes import TRIES

LOG = logging.getLogger("dask_simjoin")

OURS = "simjoin_"
"""Prefix of the keys of all tasks in joins."""

TOPIC = "simjoin-standstill"
"""Topic of the events that workers log when they are stuck."""

FULL = "P2POutOfDiskError"
"""The error of Dask's p2p shuffle if the disk of a worker is full."""

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
        if not self._looks or self._looks % TRIES:
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
    """Fails the tasks of a cluster once all its workers are stuck, and explains the
    errors of shuffles whose disk is full.
    """

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
            if worker in scheduler.workers and now - event[0] <= WAIT
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

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, **other: Any
    ) -> None:
        """Replace the error of a shuffle whose disk is full, before the tasks that
        depend on it report it.
        """
        scheduler = self._scheduler
        full = finish == "erred" and str(other.get("exception_text")).startswith(FULL)
        if full and scheduler is not None:
            task, worker = scheduler.tasks[key], other.get("worker")
            if _of_this_package([task]):
                there = scheduler.workers.get(worker)
                error = ScratchError(
                    full_message(worker, there and there.local_directory),
                    remedies=[BY_ORDER, BY_TASKS],
                )
                task.exception, task.exception_text = pickle.dumps(error), repr(error)


def full_message(worker: str | None, directory: str | None) -> str:
    """Return a message for a shuffle that could not write its rows. `directory`: the
    folder of the worker.
    """
    return (
        f"The disk of the worker {worker} is full. Its folder is {directory!r}. Dask's "
        f"p2p shuffle writes rows to files there. {LARGER_DISK} Or use "
        "partitioning='entity', which does not shuffle. Or shuffle in memory: "
        f"dask.config.set({BY_TASKS.config})."
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
