"""Choose the scheduler of a command, ask before large runs, handle signals and show
progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.resource_tracker import ensure_running
from types import FrameType
from typing import Any

import click
import dask
from dask.callbacks import Callback
from dask.system import CPU_COUNT
from dask.utils import format_time
from distributed import Client, LocalCluster, Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import IOLoop

from dask_simjoin.catalog import HOME
from dask_simjoin.request.columns import optional
from dask_simjoin.request.messages import size_text
from dask_simjoin.sizes import (
    MOMENT,
    TRIES,
)

FAILED, USAGE, REFUSED, TOO_LARGE, DECLINED = 1, 2, 3, 4, 5
"""Exit codes of the program; `main.CODES` has their meanings."""

LARGE_BYTES, LARGE_SECONDS = 4 * 2**30, 300.0
"""Ask for confirmation if the estimated bytes of the result, or seconds of the join,
exceed these numbers.
"""


class Declined(click.ClickException):
    """Raised if the user does not confirm a large plan."""

    exit_code = 5


def confirm_large(plan: Any, yes: bool, pairs: bool) -> None:
    """Ask the user to confirm a large plan; without a terminal, refuse it.

    `pairs`: whether the result has pairs. Only then its size is checked, because other
    results are small.
    """
    size, seconds = plan.result_bytes if pairs else 0, getattr(plan, "seconds", 0.0)
    seconds += getattr(plan, "writing_seconds", 0.0)
    if yes or (size <= LARGE_BYTES and seconds <= LARGE_SECONDS):
        return
    large = f"This takes about {format_time(seconds)}{f' and makes about {size_text(size)}' * pairs}"
    if not sys.stdin.isatty():
        raise Declined(f"{large}. Add --yes to compute it, or reduce the result.")
    if not click.confirm(f"{large}. Continue?", err=True):
        raise Declined("Nothing was computed.")


THREADS, SYNCHRONOUS, CLUSTER = SCHEDULERS = ("threads", "synchronous", "cluster")


def starts_workers(
    scheduler: str, workers: int | None, memory_limit: str | None
) -> bool:
    """Return whether `computing` starts a cluster, which takes some seconds."""
    is_of_processes = workers is not None or memory_limit is not None
    return scheduler == CLUSTER or (scheduler == THREADS and is_of_processes)


@contextlib.contextmanager
def computing(
    scheduler: str,
    workers: int | None,
    memory_limit: str | None,
    threads: int | None,
    backend: str,
) -> Iterator[Client | None]:
    """Set the scheduler within a block; yield the client of a cluster, or None without
    a cluster.

    When the block ends, no task is running any more, even if Ctrl-C ended it.
    """
    if starts_workers(scheduler, workers, memory_limit):
        scheduler = CLUSTER
    if backend != HOME:
        optional("dask_cudf", "'dask-simjoin[cuda13]'", "Frames on GPUs")
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"dataframe.backend": backend}))
        if scheduler in (THREADS, SYNCHRONOUS):
            threads = threads or CPU_COUNT
            pool = ThreadPoolExecutor(threads)
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.enter_context(
                dask.config.set(scheduler=scheduler, pool=pool, num_workers=threads)
            )
            yield None
            return
        try:
            address: Any = scheduler
            if scheduler == CLUSTER:
                address = _own_cluster(stack, workers, memory_limit, threads, backend)
            yield stack.enter_context(Client(address))
        except KeyboardInterrupt:
            for name in STOPPED_LOGGERS:
                logging.getLogger(name).setLevel(logging.CRITICAL)
            raise


STOPPED_LOGGERS = ("asyncio", "distributed", "distributed.scheduler")
"""After Ctrl-C, these would log every connection that closes."""


def _own_cluster(
    stack: contextlib.ExitStack,
    workers: int | None,
    memory_limit: str | None,
    threads: int | None,
    backend: str,
) -> Any:
    """Start a cluster of worker processes, which ends with the stack."""
    # log lines of workers would break the progress bar
    options: dict[str, Any] = {
        "dashboard_address": ":0",
        "silence_logs": logging.ERROR,
    }
    if workers is not None:
        options["n_workers"] = workers
    if memory_limit is not None:
        options["memory_limit"] = memory_limit
    if threads is not None:
        options["threads_per_worker"] = threads
    # by default the cluster gives up a worker after 15 s, but restarting it can take
    # longer on a busy machine
    stack.enter_context(
        dask.config.set({"distributed.deploy.lost-worker-timeout": "2 minutes"})
    )
    loop = stack.enter_context(_loop_without_interrupts())
    # a cluster that has only half started cannot be closed
    with _current.held():
        return stack.enter_context(_cluster(backend)(loop=loop, **options))


@contextlib.contextmanager
def _loop_without_interrupts() -> Iterator[IOLoop]:
    """Yield an event loop in a thread that blocks Ctrl-C.

    Processes that it starts inherit this. A terminal sends Ctrl-C to all processes, but
    the program stops its workers itself.
    """
    started: Future[tuple[IOLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        stopped = asyncio.Event()
        started.set_result((IOLoop.current(), stopped))
        await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    ensure_running()  # it would unblock signals in the thread that starts it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    loop, stopped = started.result()
    try:
        yield loop
    finally:
        loop.add_callback(stopped.set)
        thread.join()


def _cluster(backend: str) -> Any:
    if backend == HOME:
        return LocalCluster
    return optional("dask_cuda", "dask-cuda", "Clusters of GPUs").LocalCUDACluster


SIGNAL_SECONDS = TRIES * MOMENT
"""A signal that follows another within this many seconds is ignored: a closing terminal
sends several.
"""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """Signal handler that stops the program. `number`: number of the first signal; 0 if
    none has arrived.
    """

    def __init__(self) -> None:
        self.number, self._finishing, self._since = 0, False, -SIGNAL_SECONDS
        self._held = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Stop the program, unless it is renaming the output or removing temporary
        files.

        A closed terminal sends several signals, so signals that soon follow the first
        one are ignored. Ctrl-C is never ignored: after the first one, the program waits
        for running tasks, and a second one ends the wait.
        """
        now = time.monotonic()
        if self._finishing or (
            now - self._since < SIGNAL_SECONDS and number != signal.SIGINT
        ):
            return
        is_first = not self.number
        self.number, self._since = self.number or number, now
        if not (self._held and is_first):
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let a first signal stop the program only after a block."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        self.check()

    def check(self) -> None:
        """Stop the program if a signal has arrived, but a library has suppressed it."""
        if self.number:
            raise KeyboardInterrupt

    def finish(self) -> None:
        self._finishing = True


_current = Stop()


def commit() -> None:
    """Stop if a signal has arrived. Otherwise ignore signals from now on: see `finish`."""
    _current.check()
    _current.finish()


def finish() -> None:
    """Ignore signals until the program ends, because its last steps are short and must
    complete.
    """
    _current.finish()


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Handle signals within a block; exit with 128 plus the signal's number.

    Signals that were ignored before (``nohup``) stay ignored.
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
"""A function that takes two numbers: finished tasks, and all tasks."""


class TaskCounter(Callback):
    """Counts the tasks of Dask's threaded and synchronous schedulers."""

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
    """Plugin for a cluster's scheduler: counts the tasks of one client, and sends it
    the counts as events.
    """

    def __init__(self, client: str, topic: str) -> None:
        self.name, self._client, self._topic = topic, client, topic
        self._requested: set[Any] = set()
        self._done: set[Any] = set()
        self._last = 0.0
        self._scheduler: Any = None

    async def start(self, scheduler: Scheduler) -> None:
        """Keep a reference to the scheduler, because `transition` needs it to send
        events.
        """
        self._scheduler = scheduler

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: list[Any], **_: Any
    ) -> None:
        if client == self._client:
            self._requested.update(tasks)

    def transition(self, key: Any, start: str, finish: str, *_: Any, **__: Any) -> None:
        if finish == "memory" and key in self._requested:
            self._done.add(key)
            now = time.monotonic()
            if now - self._last > MOMENT or len(self._done) == len(self._requested):
                self._last = now
                self._scheduler.log_event(
                    self._topic, (len(self._done), len(self._requested))
                )


@contextlib.contextmanager
def counting_tasks(client: Client | None, progress: Progress) -> Iterator[None]:
    """Call `progress` whenever tasks finish within a block. `client`: the client of the
    cluster, or None.
    """
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
        with contextlib.suppress(Exception):  # the cluster may be gone already
            client.unregister_scheduler_plugin(topic)
            client.unsubscribe_topic(topic)


FIRST_SECONDS, LINE_SECONDS = 2.0, 10.0
"""Minimum seconds before the first line of progress, and between two lines."""

RowsSoFar = Callable[[], int | None]
"""A function that returns how many rows of the result are finished; None if unknown."""


class Display:
    """Shows the progress of a stage. This base class shows nothing."""

    def show(self, done: int, total: int) -> None:
        pass

    def close(self) -> None:
        """End the display, but leave its last state visible."""


class Lines(Display):
    """Prints a line of progress every few seconds, also while no task finishes."""

    def __init__(self, title: str, rows_found: RowsSoFar) -> None:
        self._title, self._found = title, rows_found
        self._begin = time.monotonic()
        self._next = self._begin + min(FIRST_SECONDS, LINE_SECONDS)
        self._tasks, self._lock, self._closed = (
            (0, 0),
            threading.Lock(),
            threading.Event(),
        )
        threading.Thread(target=self._repeat, daemon=True).start()

    def _repeat(self) -> None:
        while not self._closed.wait(1.0):
            self.show(*self._tasks)

    def close(self) -> None:
        self._closed.set()

    def show(self, done: int, total: int) -> None:
        with self._lock:
            self._tasks, now = (done, total), time.monotonic()
            if self._closed.is_set() or now < self._next:
                return
            self._next, passed = now + LINE_SECONDS, now - self._begin
            # the first lines may come before the first task
            tasks = f"{done:,} of {total:,} tasks" if total else "preparing"
            line = f"{self._title}: {tasks}{rows_so_far(self._found(), passed)}"
            line += f", {format_time(passed)} elapsed"
            if done < total:
                rest = passed / done * (total - done) if done else 0
                line += f", about {format_time(rest) if done else 'unknown'} left"
            click.echo(line, err=True)


class Bar(Display):
    """Shows a bar of progress; the clock in it also advances while no task finishes."""

    def __init__(self, title: str, rows_found: RowsSoFar) -> None:
        rich = optional("rich.progress", "rich", "Progress bars")
        text = optional("rich.text", "rich", "Progress bars").Text
        begin = time.monotonic()

        class Rows(rich.ProgressColumn):  # type: ignore[name-defined]
            def render(self, task: Any) -> Any:
                passed = task.finished_time or time.monotonic() - begin
                return text(rows_so_far(rows_found(), passed).lstrip(", "))

        self._bar = rich.Progress(
            rich.TextColumn("{task.description:>8}"),
            rich.BarColumn(bar_width=30),
            rich.TaskProgressColumn(),
            rich.TextColumn("{task.completed:,.0f}/{task.total:,.0f} tasks"),
            Rows(),
            rich.TimeElapsedColumn(),
            rich.TextColumn("left"),
            rich.TimeRemainingColumn(),
            console=optional("rich.console", "rich", "Progress bars").Console(
                stderr=True
            ),
        )
        self._task = self._bar.add_task(title, total=0)
        self._bar.start()

    def show(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def close(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def stage(
    title: str, client: Client | None, quiet: bool, rows_found: RowsSoFar = lambda: None
) -> Iterator[None]:
    display = (
        Display()
        if quiet
        else Bar(title, rows_found)
        if _live()
        else Lines(title, rows_found)
    )
    try:
        with counting_tasks(client, display.show):
            yield
    finally:
        display.close()


def on_terminal() -> bool:
    """Return whether messages go to a terminal, not to a log."""
    return sys.stderr.isatty()


def _live() -> bool:
    return on_terminal() and importlib.util.find_spec("rich") is not None


def rows_so_far(rows: int | None, seconds: float) -> str:
    return (
        "" if rows is None else f", {rows:,} rows, {rows / max(seconds, 1e-9):,.0f}/s"
    )
