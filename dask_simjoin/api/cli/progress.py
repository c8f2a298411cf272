"""Tell how far planning and joining are: a live bar where people look on, lines where a file is written."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
from dask.utils import format_time
from distributed import Client

from dask_simjoin.api.cli.watching import watched
from dask_simjoin.options.optional import optional

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
