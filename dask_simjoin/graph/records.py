"""Record what the tasks of joins did, for reports, log lines and progress displays.

A task in this process records to `RUNS`. A task on a worker of a cluster logs an event;
the client that planned the join has subscribed to these events.
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

from dask_simjoin.engine.process import forkable
from dask_simjoin.graph.workers import is_worker
from dask_simjoin.reports.facts import BlockReport
from dask_simjoin.reports.run import MAKE_ROWS, RunReport, StepRecord
from dask_simjoin.request.options import current_client
from dask_simjoin.sizes import KEPT

LOG = logging.getLogger("dask_simjoin")

TOPIC = "dask_simjoin"
"""Topic of the events that workers log."""

BRIEF = 1e-3
"""A task that makes no part of the result is recorded only if it takes at least this
many seconds; most are shorter.
"""


@dataclass(frozen=True)
class Named:
    """Name and title of a join, and a function that makes the report of its plan."""

    name: str
    title: str
    report: Callable[[Any], BlockReport]


@dataclass(frozen=True)
class RunName:
    """The name of a run, as an operand of expressions whose tasks are recorded for the
    run.

    Dask's token of an expression does not depend on the name, so joins in one graph can
    share their chunks. The tasks of shared chunks are recorded for the first of these
    joins.
    """

    name: str = ""

    def __dask_tokenize__(self) -> str:
        return "dask_simjoin.RunName"


NO_RUN = RunName()


@dataclass(frozen=True)
class Recorded:
    """Wraps a function, so that each call is recorded as a task of a run."""

    function: Callable[..., Any]
    run: str
    step: str
    # identifies the task within its step; None: each call counts as a separate task
    place: Any = None
    # number of tasks that make the result; 0 if this task makes no part of the result
    of: int = 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        begin, before = time.time(), _read_bytes()
        found = self.function(*args, **options)
        end = time.time()
        # a worker's event may contain only plain values, so the place becomes text
        place = str(begin if self.place is None else self.place)
        record = StepRecord(
            self.step,
            place,
            self.of,
            begin,
            end,
            _rows(found, self.step),
            threading.get_ident(),
            before,
            _read_bytes(),
        )
        if not self.of and end - begin < BRIEF:
            return found
        if is_worker():
            worker = get_worker()
            worker.log_event(
                TOPIC,
                (self.run, record._replace(thread=f"{worker.address} {record.thread}")),
            )
        else:
            RUNS.add(self.run, record)
        return found


def _read_bytes() -> int:
    """Return how many bytes of spilled data this worker has read back so far; 0 outside
    of workers.
    """
    metrics = (
        getattr(get_worker().data, "cumulative_metrics", {}) if is_worker() else {}
    )
    return int(metrics.get(("disk-read", "bytes"), 0))


def _rows(found: Any, step: str) -> int | None:
    """Return how many rows of the result a task has made or counted; None if it does
    neither.
    """
    if step in MAKE_ROWS:
        return len(found)
    return int(found) if isinstance(found, numbers.Integral) else None


def _log(line: Callable[[], str | None]) -> None:
    """Log the text that `line` returns, if it is not None. `line` is called only if the
    logger is enabled.
    """
    if LOG.isEnabledFor(logging.INFO) and (text := line()) is not None:
        LOG.info("%s", text)


class Runs:
    """The records of the last joins."""

    def __init__(self) -> None:
        self._lock = forkable(threading.Lock())
        self._runs: OrderedDict[str, RunReport] = OrderedDict()
        self._results: OrderedDict[str, str] = OrderedDict()
        self._clients: weakref.WeakSet[Client] = weakref.WeakSet()

    def planned(self, join: Named, plan: BlockReport, seconds: float) -> None:
        """Add a join that was planned, with the report of its plan."""
        client = current_client()
        if (
            client is not None
            and not client.asynchronous
            and client not in self._clients
        ):
            client.subscribe_topic(TOPIC, self._event)
            self._clients.add(client)
        report, run = RunReport(join.title, plan, seconds), join.name
        with self._lock:
            self._runs.pop(run, None)
            self._runs[run] = report
            while len(self._runs) > KEPT:
                self._runs.popitem(last=False)
        _log(report.planned_line)
        _log(report.slower_line)

    def find(self, run: str) -> RunReport | None:
        """Return the report of a run; None if the join was not planned here, or its
        records were dropped.
        """
        with self._lock:
            return self._runs.get(run)

    def name_result(self, name: str, run: str) -> None:
        """Store that the run `run` makes a result. `name`: the name in the task keys of
        this result. Persisted partitions keep these keys.
        """
        with self._lock:
            self._results[name] = run
            while len(self._results) > KEPT:
                self._results.popitem(last=False)

    def last(self) -> RunReport | None:
        """Return the report of the join that was planned last."""
        with self._lock:
            return next(reversed(self._runs.values()), None)

    def with_rows(self, rows: int) -> list[RunReport]:
        """List the finished joins with this number of rows."""
        with self._lock:
            return [
                report
                for report in self._runs.values()
                if report.done and report.rows == rows
            ]

    def of_keys(self, name: str) -> list[RunReport]:
        """List the reports of joins whose results may have this name in their task
        keys.

        Dask may fuse later steps with the tasks of a join. The keys of the fused tasks
        then have another name, which begins like the name of the join.
        """
        with self._lock:
            if name in self._results:
                runs = {self._results[name]}
            else:
                label = name.partition("-")[0]
                runs = {
                    run
                    for one, run in self._results.items()
                    if one.partition("-")[0] == label
                }
                named = label.removesuffix("_rows")
                runs |= {
                    run
                    for run, one in self._runs.items()
                    if f"simjoin_{one.verb}" == named
                }
            return [self._runs[run] for run in runs if run in self._runs]

    def begin(self, run: str) -> None:
        """Start recording another run of a planned join."""
        report = self.find(run)
        if report is not None:
            report.begin()

    def expect(self, run: str, tasks: int) -> None:
        """Take the rows of the run's step `RESULT`, which has this many tasks, as the
        rows of the result.
        """
        report = self.find(run)
        if report is not None:
            report.expect(tasks)

    def add(self, run: str, record: StepRecord) -> None:
        """Add the record of a task to the report of its run."""
        with self._lock:
            report = self._runs.get(run)
            if report is None:
                return
            was_done = report.done
            report.add(record)
            done = report.done and not was_done
        if done:
            _log(report.done_line)

    def _event(self, event: tuple[float, tuple[str, StepRecord]]) -> None:
        run, record = event[1]
        # the event was sent as plain data, so it contains a tuple
        self.add(run, StepRecord(*record))


RUNS = Runs()
