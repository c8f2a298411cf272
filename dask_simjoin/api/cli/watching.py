"""Count the tasks that end: by Dask's callbacks in this process, by a scheduler's plugin on a cluster."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from dask.callbacks import Callback
from distributed import Client, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

Tell = Callable[[int, int], None]
"""Takes the number of tasks that are done, and of all."""

EVERY = 0.2
"""Seconds between two events of a scheduler."""


class Counted(Callback):
    """Count the tasks of Dask's own schedulers."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(start_state=self._begun, posttask=self._ended)
        self._tell, self._done, self._total = tell, 0, 0

    def _begun(self, dsk: Any, state: Any) -> None:
        self._total += sum(len(state[kind]) for kind in ("ready", "waiting", "running"))
        self._tell(self._done, self._total)

    def _ended(self, *_: Any) -> None:
        self._done += 1
        self._tell(self._done, self._total)


class CountedThere(SchedulerPlugin):
    """Count the tasks of a client on its cluster's scheduler, and log them there as events of a topic."""

    def __init__(self, client: str, topic: str) -> None:
        self.name, self._client, self._topic = topic, client, topic
        self._wanted: set[Any] = set()
        self._done: set[Any] = set()
        self._last = 0.0
        self._scheduler: Any = None

    async def start(self, scheduler: Scheduler) -> None:
        """Keep the scheduler, by which events are logged."""
        self._scheduler = scheduler

    def update_graph(self, scheduler: Scheduler, *, client: str, tasks: list[Any], **_: Any) -> None:
        """Take in the tasks that the client asks for."""
        if client == self._client:
            self._wanted.update(tasks)

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Take in that a task is done."""
        if finish == "memory" and key in self._wanted:
            self._done.add(key)
            now = time.monotonic()
            if now - self._last > EVERY or len(self._done) == len(self._wanted):
                self._last = now
                self._scheduler.log_event(self._topic, (len(self._done), len(self._wanted)))


@contextlib.contextmanager
def watched(client: Client | None, tell: Tell) -> Iterator[None]:
    """Tell how many tasks are done while it lasts, on a cluster if there is a client of one."""
    if client is None:
        with Counted(tell):
            yield
        return
    topic = f"dask_simjoin-progress-{uuid.uuid4().hex[:8]}"
    client.subscribe_topic(topic, lambda event: tell(*event[1]))
    client.register_plugin(CountedThere(client.id, topic), name=topic)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the cluster may be gone
            client.unregister_scheduler_plugin(topic)
            client.unsubscribe_topic(topic)
