"""Give parts of shared work to one worker each: those whose keys say so."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_simjoin.options.settings import current_client

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
