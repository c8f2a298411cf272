"""Choose the scheduler of a command, ask before large runs, handle signals and show progress."""

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

from dask_simjoin.catalog import HOME
from dask_simjoin.request.columns import optional

LARGE_BYTES, LARGE_SECONDS = 4 * 2**30, 300.0
"""The user is asked to confirm a join if its result has more bytes, or if it takes more seconds."""


class Declined(click.ClickException):
    """A large plan was not confirmed."""

    exit_code = 5


def agree(plan: Any, yes: bool, pairs: bool) -> None:
    """Ask the user to confirm a large plan; without a terminal, refuse it.

    `pairs`: whether the result has pairs, and not one value per row.  Only pairs can take much memory.
    """
    size, seconds = plan.result_bytes if pairs else 0, getattr(plan, "seconds", 0.0)
    seconds += getattr(plan, "writing_seconds", 0.0)
    if yes or (size <= LARGE_BYTES and seconds <= LARGE_SECONDS):
        return
    large = f"This takes about {format_time(seconds)}{f' and makes about {format_bytes(size)}' * pairs}"
    if not sys.stdin.isatty():
        raise Declined(f"{large}. Add --yes to compute it, or reduce the result.")
    if not click.confirm(f"{large}. Continue?", err=True):
        raise Declined("Nothing was computed.")


THREADS, SYNCHRONOUS, CLUSTER = SCHEDULERS = ("threads", "synchronous", "cluster")


@contextlib.contextmanager
def computing(
    scheduler: str, workers: int | None, memory_limit: str | None, backend: str
) -> Iterator[Client | None]:
    """Set the scheduler for a block, and yield the client of a cluster or None.

    After the block no task runs, even if Ctrl-C ended the block.
    """
    if scheduler == THREADS and memory_limit is not None:
        scheduler = CLUSTER  # threads of one process share memory, which cannot be limited
    if backend != HOME:
        optional("dask_cudf", "'dask-simjoin[cuda13]'", "Frames on GPUs")
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"dataframe.backend": backend}))
        if scheduler in (THREADS, SYNCHRONOUS):
            threads = workers or CPU_COUNT
            pool = ThreadPoolExecutor(threads)
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.enter_context(dask.config.set(scheduler=scheduler, pool=pool, num_workers=threads))
            yield None
            return
        address: Any = scheduler
        if scheduler == CLUSTER:
            # log lines of workers would spoil the display of progress
            options: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": logging.ERROR}
            if workers is not None:
                options["n_workers"] = workers
            if memory_limit is not None:
                options["memory_limit"] = memory_limit
            # on a busy machine the restart of a worker takes longer than Dask's 15 s
            stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "2 minutes"}))
            address = stack.enter_context(_cluster(backend)(**options))
        yield stack.enter_context(Client(address))


def _cluster(backend: str) -> Any:
    if backend == HOME:
        return LocalCluster
    return optional("dask_cuda", "dask-cuda", "Clusters of GPUs").LocalCUDACluster


SIGNAL_SECONDS = 5.0
"""Signals within this many seconds count as one."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Signal handler that stops the program; `number`: number of the first signal, 0 if there was none."""

    def __init__(self) -> None:
        self.number, self._finishing, self._since = 0, False, -SIGNAL_SECONDS

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stop the program, except while it renames the output or removes temporary files.

        A closed terminal sends several signals, which count as one.  After a first Ctrl-C the program waits
        for running tasks; a second one ends this wait.
        """
        now = time.monotonic()
        if self._finishing or (now - self._since < SIGNAL_SECONDS and number != signal.SIGINT):
            return
        self.number, self._since = self.number or number, now
        raise KeyboardInterrupt

    def finish(self) -> None:
        """Ignore further signals."""
        self._finishing = True


_current = Stop()


def finish() -> None:
    """Ignore signals until the program ends: the remaining steps are short and must complete."""
    _current.finish()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Handle signals within a block, and exit with 128 + the signal's number.

    Ignored signals (``nohup``) stay ignored.
    """
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


Progress = Callable[[int, int], None]
"""A function that receives the number of finished tasks and of all tasks."""

EVENT_SECONDS = 0.2
"""A cluster's scheduler logs progress about once in this many seconds."""


class TaskCounter(Callback):
    """Count tasks of Dask's own schedulers."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(start_state=self._begun, posttask=self._ended)
        self._progress, self._done, self._total = progress, 0, 0

    def _begun(self, dsk: Any, state: Any) -> None:
        self._total += sum(len(state[kind]) for kind in ("ready", "waiting", "running"))
        self._progress(self._done, self._total)

    def _ended(self, *_: Any) -> None:
        self._done += 1
        self._progress(self._done, self._total)


class ClusterTaskCounter(SchedulerPlugin):
    """Plugin of a cluster's scheduler that counts the tasks of a client, and logs the counts as events."""

    def __init__(self, client: str, topic: str) -> None:
        self.name, self._client, self._topic = topic, client, topic
        self._requested: set[Any] = set()
        self._done: set[Any] = set()
        self._last = 0.0
        self._scheduler: Any = None

    async def start(self, scheduler: Scheduler) -> None:
        """Keep a reference to the scheduler, which logs the events."""
        self._scheduler = scheduler

    def update_graph(self, scheduler: Scheduler, *, client: str, tasks: list[Any], **_: Any) -> None:
        """Add the tasks that the client requests."""
        if client == self._client:
            self._requested.update(tasks)

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        """Count a finished task."""
        if finish == "memory" and key in self._requested:
            self._done.add(key)
            now = time.monotonic()
            if now - self._last > EVENT_SECONDS or len(self._done) == len(self._requested):
                self._last = now
                self._scheduler.log_event(self._topic, (len(self._done), len(self._requested)))


@contextlib.contextmanager
def watched(client: Client | None, progress: Progress) -> Iterator[None]:
    """Report finished tasks within a block; `client`: the client of the cluster, or None."""
    if client is None:
        with TaskCounter(progress):
            yield
        return
    topic = f"dask_simjoin-progress-{uuid.uuid4().hex[:8]}"
    client.subscribe_topic(topic, lambda event: progress(*event[1]))
    client.register_plugin(ClusterTaskCounter(client.id, topic), name=topic)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the cluster may be gone
            client.unregister_scheduler_plugin(topic)
            client.unsubscribe_topic(topic)


LINE_SECONDS = 10.0
"""Minimum seconds between two lines of progress."""

Found = Callable[[], int | None]
"""A function that returns the rows of the result so far; None if unknown."""


class Display:
    """Show the progress of a stage; this base class shows nothing."""

    def show(self, done: int, total: int) -> None:
        """Show the number of finished tasks."""

    def close(self) -> None:
        """End the display; its last state stays visible."""


class Lines(Display):
    """Show the progress of a stage as a line every few seconds."""

    def __init__(self, title: str, found: Found) -> None:
        self._title, self._found = title, found
        self._begin = self._last = time.monotonic()

    def show(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._last >= LINE_SECONDS:
            self._last, passed = now, now - self._begin
            left = format_time(passed / done * (total - done)) if done else "unknown"
            line = f"{self._title}: {done:,} of {total:,} tasks{found_so_far(self._found(), passed)}"
            click.echo(f"{line}, {format_time(passed)} elapsed, about {left} left", err=True)


class Bar(Display):
    """Show the progress of a stage as a bar; its clock also runs while no task finishes."""

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

    def show(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def stage(title: str, client: Client | None, quiet: bool, found: Found = lambda: None) -> Iterator[None]:
    """Show the progress of the work within a block."""
    display = Display() if quiet else Bar(title, found) if _live() else Lines(title, found)
    try:
        with watched(client, display.show):
            yield
    finally:
        display.close()


def _live() -> bool:
    return sys.stderr.isatty() and importlib.util.find_spec("rich") is not None


def found_so_far(rows: int | None, seconds: float) -> str:
    """Format the number of rows so far, and the rows per second."""
    return "" if rows is None else f", {rows:,} rows, {rows / max(seconds, 1e-9):,.0f}/s"
