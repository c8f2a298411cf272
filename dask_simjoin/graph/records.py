"""Record what the tasks of joins did, for reports, log lines and progress.

A task of this process tells it here; one of a cluster's worker logs an event there, which the client that
planned the join subscribes to.
"""

from __future__ import annotations

import logging
import numbers
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from distributed import Client, get_worker

from dask_simjoin.graph.workers import is_worker
from dask_simjoin.reports.block_pairs import BlockReport
from dask_simjoin.reports.run import MAKE_ROWS, RunReport, StepRecord
from dask_simjoin.request.options import current_client

LOG = logging.getLogger("dask_simjoin")

TOPIC = "dask_simjoin"
"""Under which workers log what tasks did."""

BRIEF = 1e-3
"""Seconds under which a task that makes none of the result is not told of."""

MOST_RUNS = 16
"""Joins that are remembered."""


@dataclass(frozen=True)
class Named:
    """What a join is called here, and how its plan is told.

    Attributes
    ----------
    name : str
    title : str
        What is asked for, in a few words.
    report : callable
        Makes a report of a plan.
    """

    name: str
    title: str
    report: Callable[[Any], BlockReport]


@dataclass(frozen=True)
class RunName:
    """Name what tasks are recorded for, where what they make may be of use to other joins of a graph, too.

    It tells no expressions apart: of those that are the same otherwise the first one's name counts.
    """

    name: str = ""

    def __dask_tokenize__(self) -> str:
        return "dask_simjoin.RunName"


NO_RUN = RunName()


@dataclass(frozen=True)
class Recorded:
    """Call a function, and record that.

    Attributes
    ----------
    function : callable
    run : str
        Which join it is for.
    step : str
        What it is called.
    place : object
        Which of the tasks of its step it is; None: each call is another.
    of : int
        Of how many tasks that make the result it is one; 0: it makes none of it.
    """

    function: Callable[..., Any]
    run: str
    step: str
    place: Any = None
    of: int = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        begin = time.time()
        found = self.function(*args, **options)
        end = time.time()
        place = str(begin if self.place is None else self.place)  # events hold plain values only
        told = StepRecord(
            self.step, place, self.of, begin, end, _rows(found, self.step), threading.get_ident()
        )
        if not self.of and end - begin < BRIEF:
            return found
        if is_worker():
            worker = get_worker()
            worker.log_event(TOPIC, (self.run, told._replace(thread=f"{worker.address} {told.thread}")))
        else:
            RUNS.add(self.run, told)
        return found


def _rows(found: Any, step: str) -> int | None:
    """Rows that a task found, or their number, if it tells of rows."""
    if step in MAKE_ROWS:
        return len(found)
    return int(found) if isinstance(found, numbers.Integral) else None


def _log(line: Callable[[], str]) -> None:
    """Log a line, which is made only if somebody reads it."""
    if LOG.isEnabledFor(logging.INFO):
        LOG.info("%s", line())


class Runs:
    """Remember what the last joins did."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, RunReport] = OrderedDict()
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()

    def planned(self, join: Named, plan: BlockReport, seconds: float) -> None:
        """Take in that a join is planned, and what it will tell."""
        client = current_client()
        if client is not None and not client.asynchronous and client not in self._clients:
            client.subscribe_topic(TOPIC, self._event)
            self._clients.add(client)
        report, run = RunReport(join.title, plan, seconds), join.name
        with self._lock:
            self._runs.pop(run, None)
            self._runs[run] = report
            while len(self._runs) > MOST_RUNS:
                self._runs.popitem(last=False)
        _log(report.planned_line)

    def find(self, run: str) -> RunReport | None:
        """What is known of a join; None: it was not planned here, or is forgotten."""
        with self._lock:
            return self._runs.get(run)

    def begin(self, run: str) -> None:
        """Take in that tasks of a join are made anew."""
        report = self.find(run)
        if report is not None:
            report.begin()

    def add(self, run: str, told: StepRecord) -> None:
        """Take in what a task did."""
        with self._lock:
            report = self._runs.get(run)
            if report is None:
                return
            was_done = report.done
            report.add(told)
            done = report.done and not was_done
        if done:
            _log(report.done_line)

    def _event(self, event: tuple[float, tuple[str, StepRecord]]) -> None:
        run, told = event[1]
        self.add(run, StepRecord(*told))  # which is a plain tuple by now


RUNS = Runs()
