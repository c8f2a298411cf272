"""Choose the scheduler of a command, show its plan, and ask before large runs."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import click
import dask
from dask.callbacks import Callback
from dask.system import CPU_COUNT
from dask.utils import format_bytes, format_time
from distributed import Client, LocalCluster, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_simjoin.catalog.libraries import HOME
from dask_simjoin.request.inputs import optional

LARGE_BYTES, LARGE_SECONDS = 4 * 2**30, 300.0
"""What a result may need of memory, and a join of time, before somebody is asked."""


class Declined(click.ClickException):
    """Say that a large plan was not agreed to."""

    exit_code = 5


def agree(plan: Any, yes: bool, pairs: bool) -> None:
    """Ask about a plan that is large; without anybody to ask it is declined.

    `pairs`: whether the pairs are the result, and do not only tell something of rows.
    """
    size, seconds = plan.result_bytes if pairs else 0, getattr(plan, "seconds", 0.0)
    seconds += getattr(plan, "writing_seconds", 0.0)
    if yes or (size <= LARGE_BYTES and seconds <= LARGE_SECONDS):
        return
    large = f"This takes about {format_time(seconds)}{f' and makes about {format_bytes(size)}' * pairs}"
    if not sys.stdin.isatty():
        raise Declined(f"{large}: add --yes to compute it, or ask for less.")
    if not click.confirm(f"{large}. Go on?", err=True):
        raise Declined("Nothing was computed.")


THREADS, ALONE, CLUSTER = SCHEDULERS = ("threads", "synchronous", "cluster")


@contextlib.contextmanager
def computing(
    scheduler: str, workers: int | None, memory_limit: str | None, backend: str
) -> Iterator[Client | None]:
    """Compute in this way within it; gives the client of a cluster.

    Who leaves it early, as by Ctrl-C, leaves it when no task runs any more.
    """
    if scheduler == THREADS and memory_limit is not None:
        scheduler = CLUSTER  # threads of one process have one memory
    if backend != HOME:
        optional("dask_cudf", "'dask-simjoin[cuda13]'", "Frames on GPUs")
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"dataframe.backend": backend}))
        if scheduler in (THREADS, ALONE):
            threads = workers or CPU_COUNT
            pool = ThreadPoolExecutor(threads)
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.enter_context(dask.config.set(scheduler=scheduler, pool=pool, num_workers=threads))
            yield None
            return
        address: Any = scheduler
        if scheduler == CLUSTER:
            # what workers log would run through the progress
            options: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": logging.ERROR}
            if workers is not None:
                options["n_workers"] = workers
            if memory_limit is not None:
                options["memory_limit"] = memory_limit
            # on a busy machine a worker that dies is not back within Dask's 15 s
            stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "2 minutes"}))
            address = stack.enter_context(_cluster(backend)(**options))
        yield stack.enter_context(Client(address))


def _cluster(backend: str) -> Any:
    if backend == HOME:
        return LocalCluster
    return optional("dask_cuda", "dask-cuda", "Clusters of GPUs").LocalCUDACluster


TOGETHER = 5.0
"""Seconds in which several signals are one."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Take signals, of which the first stops the program.

    Attributes
    ----------
    number : int
        The signal that stopped it, or 0.
    """

    def __init__(self) -> None:
        self.number, self._finishing, self._since = 0, False, -TOGETHER

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stop, unless the output gets its name now, or files that were begun are removed.

        A closed terminal sends several signals, which are one; Ctrl-C again ends the wait for running tasks.
        """
        now = time.monotonic()
        if self._finishing or (now - self._since < TOGETHER and number != signal.SIGINT):
            return
        self.number, self._since = self.number or number, now
        raise KeyboardInterrupt

    def finish(self) -> None:
        """Do the rest without being stopped."""
        self._finishing = True


_current = Stop()


def finish() -> None:
    """Ignore signals until the program ends, which is soon: what is done now must be done as a whole."""
    _current.finish()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Handle signals meanwhile, except ignored ones (``nohup``), and exit with 128 + the signal's number."""
    global _current
    _current = stop = Stop()
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {one: signal.getsignal(one) for one in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        stop.finish()
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.number:
            sys.exit(128 + stop.number)


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


LINES_EVERY = 10.0
"""Seconds between two lines of a stage."""

Found = Callable[[], int | None]
"""Rows of the result that there are so far; None: not known."""


class Lines:
    """Tell of a stage by lines, few of them."""

    def __init__(self, title: str, found: Found) -> None:
        self._title, self._found = title, found
        self._begin = self._last = time.monotonic()

    def tell(self, done: int, total: int) -> None:
        """Take in that so many of all tasks are done."""
        now = time.monotonic()
        if now - self._last >= LINES_EVERY:
            self._last, passed = now, now - self._begin
            left = format_time(passed / done * (total - done)) if done else "unknown"
            said = f"{self._title}: {done:,} of {total:,} tasks{found_so_far(self._found(), passed)}"
            click.echo(f"{said}, {format_time(passed)} gone, about {left} left", err=True)

    def close(self) -> None:
        """Say nothing more."""


class Bar:
    """Tell of a stage by a bar of rich, which also moves its clock while no task ends."""

    def __init__(self, title: str, found: Found) -> None:
        rich = optional("rich.progress", "rich", "Progress bars")
        text = optional("rich.text", "rich", "Progress bars").Text
        begin = time.monotonic()

        class Rows(rich.ProgressColumn):  # type: ignore[name-defined]
            def render(self, task: Any) -> Any:
                passed = task.finished_time or time.monotonic() - begin
                return text(found_so_far(found(), passed).lstrip(", "))

        self._bar = rich.Progress(
            rich.TextColumn("{task.description:>8}"), rich.BarColumn(bar_width=30), rich.TaskProgressColumn(),
            rich.TextColumn("{task.completed:,.0f}/{task.total:,.0f} tasks"), Rows(),
            rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn(),
            console=optional("rich.console", "rich", "Progress bars").Console(stderr=True),
        )  # fmt: skip
        self._task = self._bar.add_task(title, total=0)
        self._bar.start()

    def tell(self, done: int, total: int) -> None:
        """Take in that so many of all tasks are done."""
        self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


class Silence:
    """Tell nothing."""

    def tell(self, done: int, total: int) -> None:
        """Take in nothing."""

    def close(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def stage(title: str, client: Client | None, quiet: bool, found: Found = lambda: None) -> Iterator[None]:
    """Tell of what is computed within it."""
    told = Silence() if quiet else Bar(title, found) if _live() else Lines(title, found)
    try:
        with watched(client, told.tell):
            yield
    finally:
        told.close()


def _live() -> bool:
    return sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


def found_so_far(rows: int | None, seconds: float) -> str:
    """Rows so far, and how many a second."""
    return "" if rows is None else f", {rows:,} rows, {rows / max(seconds, 1e-9):,.0f}/s"
