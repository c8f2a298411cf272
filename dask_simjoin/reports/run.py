"""Reports of runs: the work of a join so far, from records of its tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.engine.base import ABOUT, Counters
from dask_simjoin.planning.left_out import left_out_in_words
from dask_simjoin.reports.facts import BlockReport, PicturedReport, Report
from dask_simjoin.reports.svg import Bars
from dask_simjoin.request.messages import counted

RESULT = "result"
"""Step that makes the rows of the result from the rows of the join."""

MAKE_ROWS = ("pairs", "nearest_rows", "best", RESULT)
"""Steps whose tasks make rows of the result."""


class StepRecord(NamedTuple):
    # step: name of the step; key: identifies the task within the step
    step: str
    key: str
    # number of tasks that make rows of the result, including this one; 0 if this task
    # makes none
    result_tasks: int
    # start and end in seconds since the epoch
    begin: float
    end: float
    # number of rows or pairs that the task made or counted; None if it did neither
    rows: int | None
    thread: Any
    # bytes of spilled data that the worker had read back since its start, before and
    # after the task
    read_before: int = 0
    read_after: int = 0


class RunReport(Report):
    """The work of a lazy join so far. Print it, or use its numbers.

    Attributes
    ----------
    title : str
        Description of the join.
    plan : PlanReport, NearestPlanReport or SetPlanReport
        The plan of the join.
    planning : float
        Seconds of planning.
    read_again : int
        Bytes of spilled data that the workers of a cluster read again from their disks
        during the join. If they computed something else at the same time, its data
        count as well.
    table_reads : float or None
        Bytes read / bytes of the table: 1.0 if nothing was read again. The plan has the
        expected number. It is None for joins of sets.
    """

    _facts = (
        (
            "state",
            lambda r: (
                "done"
                if r.done
                else "not done, or only a part of the result was computed"
            ),
        ),
        ("found", lambda r: r._found()),
        ("left out", lambda r: left_out_in_words(r.plan.plan.tables.left_out)),
        (
            "partitions",
            lambda r: (
                f"{r.partitions:,}" + (f" of {r._result_tasks:,}" if r._made else "")
            ),
        ),
        ("planning", lambda r: f"{r.planning:.2f} s"),
        ("joining", lambda r: f"{r.seconds:.2f} s, by {counted(r.threads, 'thread')}"),
        ("bytes read", lambda r: r._bytes_read()),
    )
    _exported = (
        "title",
        "planning",
        "seconds",
        "rows",
        "rows_left_out",
        "left_out",
        "bytes",
        "partitions",
        "done",
        "threads",
        "candidates",
        "read_again",
        "table_reads",
    )

    title = ""  # replaced by `__init__`

    def __init__(self, title: str, plan: BlockReport, planning: float) -> None:
        self.title, self.plan, self.planning = title, plan, planning
        self._steps: dict[tuple[str, str], StepRecord] = {}
        self._is_new_run = False
        self._made = self._result_tasks = self._expected = 0

    @property
    def verb(self) -> str:
        """Return the verb of the join, which also names its tasks."""
        return self.title.partition(",")[0]

    def begin(self) -> None:
        """Prepare for another run. The first record of this run replaces the records of
        earlier runs.
        """
        self._is_new_run, self._expected = True, 0

    def expect(self, tasks: int) -> None:
        """Count only the rows of the step `RESULT`, which has this many tasks."""
        self._expected = tasks

    def add(self, record: StepRecord) -> None:
        if self._is_new_run or self.done:
            self._steps, self._is_new_run, self._made = {}, False, 0
        if self._expected and record.step != RESULT:
            record = record._replace(result_tasks=0)
        self._made += (
            bool(record.result_tasks) and (record.step, record.key) not in self._steps
        )
        self._result_tasks = record.result_tasks or self._result_tasks
        self._steps[record.step, record.key] = record

    @property
    def _results(self) -> list[StepRecord]:
        return [record for record in list(self._steps.values()) if record.result_tasks]

    @property
    def partitions(self) -> int:
        """Return the number of finished partitions of the result; a result that is a
        number counts as one.
        """
        return self._made

    @property
    def done(self) -> bool:
        """Return whether the whole result is computed."""
        return 0 < self._result_tasks <= self._made

    @property
    def rows(self) -> int | None:
        """Return the number of rows of the result so far; if the result is a count of
        pairs, that count. None: the result has rows or values of the table.
        """
        results = self._results
        counted = [
            record.rows
            for record in (
                results if results or self._expected else [*self._steps.values()]
            )
            if record.rows is not None
        ]
        return sum(counted) if counted else None

    @property
    def rows_left_out(self) -> int:
        """Return the number of rows of all tables that cannot be compared."""
        return self.plan.rows_left_out

    @property
    def left_out(self) -> list[dict[str, Any]]:
        """Return for each table the rows that cannot be compared, with the reasons."""
        return self.plan.left_out

    def list_left_out(self) -> pd.DataFrame:
        """List the rows that cannot be compared: see `PlanReport.list_left_out`."""
        return self.plan.list_left_out()

    @property
    def bytes(self) -> int:
        """Return the memory of the result so far, estimated by the plan's bytes per
        row; 0 for a number.
        """
        made = sum(
            record.rows or 0 for record in self._results if record.step in MAKE_ROWS
        )
        return round(made * self.plan.pair_bytes)

    @property
    def seconds(self) -> float:
        """Return the seconds from the first task to the last."""
        steps = list(self._steps.values())
        return max((record.end for record in steps), default=0.0) - min(
            (record.begin for record in steps), default=0.0
        )

    @property
    def threads(self) -> int:
        """Return the number of threads that ran tasks."""
        return len({record.thread for record in list(self._steps.values())})

    @property
    def candidates(self) -> float | None:
        """Return the number of pairs of rows of all compared chunks; None: unknown.

        Indexes exclude most of these pairs without a comparison.
        """
        blocks = self.plan.to_frame()
        return float(blocks["candidates"].sum()) if "candidates" in blocks else None

    @property
    def read_again(self) -> int:
        """Return the bytes of spilled data that workers read during the join."""
        before: dict[str, int] = {}
        after: dict[str, int] = {}
        for record in list(self._steps.values()):
            worker = str(record.thread).partition(" ")[0]
            before[worker] = min(
                record.read_before, before.get(worker, record.read_before)
            )
            after[worker] = max(record.read_after, after.get(worker, 0))
        return sum(after.values()) - sum(before.values())

    @property
    def table_reads(self) -> float | None:
        """Return the bytes read, divided by the bytes of the table; None if the table's
        size is unknown.
        """
        # joins of sets do not know the bytes of the table
        table = getattr(self.plan, "table_bytes", None)
        return 1 + self.read_again / table if table else None

    def to_frame(self) -> pd.DataFrame:
        """Return one row per step.

        Returns
        -------
        pandas.DataFrame
            ``tasks``: number of tasks that took a millisecond or more; ``seconds``: the
            sum of their seconds; ``longest``: the seconds of the longest task.
        """
        steps = pd.DataFrame(list(self._steps.values()), columns=StepRecord._fields)
        each = steps.assign(seconds=(steps["end"] - steps["begin"]).astype("float64"))
        return each.groupby("step", sort=False).agg(
            tasks=("step", "size"),
            seconds=("seconds", "sum"),
            longest=("seconds", "max"),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the values of the report by name, for JSON, with tasks and seconds of
        each step.
        """
        return super().to_dict() | {"steps": self.to_frame().to_dict("index")}

    def planned_line(self) -> str:
        plan = self.plan
        size = f"about {plan.pairs:,.0f} pairs, {format_bytes(plan.result_bytes)}"
        # plans of joins of sets do not estimate seconds
        seconds = getattr(plan, "seconds", None)
        time = "" if seconds is None else f", about {seconds:.2g} s"
        left_out = left_out_in_words(plan.plan.tables.left_out)
        return (
            f"planned {self.title}: {plan.rows:,} rows, {plan.block_pairs:,} block "
            f"pairs, {size}{time}; "
            f"in {self.planning:.2f} s" + (f"; left out {left_out}" if left_out else "")
        )

    def slower_line(self) -> str | None:
        """Say that the join is faster without the cluster; None if it is not."""
        faster = getattr(self.plan, "faster_in_one_process", None)
        return None if faster is None else f"planned {self.title}: {faster}"

    def done_line(self) -> str:
        found = self._found()
        return (
            f"done {self.title}: {found + ', ' if found else ''}in {self.seconds:.2f} s"
        )

    def _heading(self) -> str:
        if self._steps:
            return f"Report of {self.title}"
        return f"{self.planned_line()}; not run here yet"

    def _lines(self) -> list[tuple[str, str]]:
        return super()._lines() if self._steps else []

    def _further_facts(self) -> Iterable[tuple[str, str]]:
        for step in self.to_frame().itertuples():
            tasks = counted(step.tasks, "task")
            yield (
                step.Index,
                f"{tasks}, {step.seconds:.2f} s, longest {step.longest:.2f} s",
            )

    def _found(self) -> str | None:
        if self.rows is None:
            return None
        return (
            f"{self.rows:,} rows{f', {format_bytes(self.bytes)}' if self.bytes else ''}"
        )

    def _bytes_read(self) -> str | None:
        """Describe the spilled data that workers read back; None if there were none."""
        reads, again = self.table_reads, self.read_again
        if reads is None or not again:
            return None
        return f"{reads:.2g} times the bytes of the table ({format_bytes(again)} were spilled and read again)"


COUNTED = (
    "lookups",
    "found",
    "tile_pairs",
    "near_queries",
    "listed",
    "candidates",
    "comparisons",
    "decided",
    "refused",
    "distinct_pairs",
    "pairs",
    "neighbors",
)
"""Names of the counters that the picture of a profile shows."""

SHARES = (
    "compared_ratio",
    "recall",
    "recall_low",
    "recall_high",
    "warp_efficiency",
    "warp_efficiency_model",
)


@dataclass(frozen=True, repr=False, eq=False)
class ProfileReport(PicturedReport):
    """Counters and times of one self-join or nearest-neighbor search.

    Print it for a summary; a notebook shows a table and a picture of its numbers.

    Attributes
    ----------
    method : str
        Name of the method.
    engine : str
        Description of how rows are searched.
    rows : int
        Rows that took part.
    counters : Counters
        Counters by name, and seconds of each step.
    join : str
        Kind of the join.
    """

    method: str
    engine: str
    rows: int
    counters: Counters
    join: str = "self-join"

    _facts = (("engine", lambda r: r.engine), ("rows", lambda r: f"{r.rows:,}"))
    _exported = ("title", "method", "engine", "rows", "numbers", "seconds")

    @property
    def title(self) -> str:
        return f"Profile of a {self.join}"

    @property
    def numbers(self) -> dict[str, float]:
        """Return the counters that the method has, by name."""
        numbers = self.counters.numbers
        return {name: numbers[name] for name in ABOUT if name in numbers}

    @property
    def seconds(self) -> dict[str, float]:
        return dict(self.counters.seconds)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per counter, and one row per step.

        Returns
        -------
        pandas.DataFrame
            ``value``, and its description ``about``. Rows of steps have seconds as
            values; their labels begin with "seconds:".
        """
        steps = [
            (f"seconds: {step}", time, "seconds of this step")
            for step, time in self.seconds.items()
        ]
        lines = [
            *((name, value, ABOUT[name]) for name, value in self.numbers.items()),
            *steps,
        ]
        return pd.DataFrame(
            {
                "value": [float(line[1]) for line in lines],
                "about": [line[2] for line in lines],
            },
            index=pd.Index([line[0] for line in lines], name="number"),
        )

    def _further_facts(self) -> list[tuple[str, str]]:
        steps = [
            (f"seconds, {step}", f"{time:.4g}") for step, time in self.seconds.items()
        ]
        return [*((name, text) for name, _, text in self._shown(self.numbers)), *steps]

    def _picture(self) -> Bars:
        return Bars(self._shown(name for name in self.numbers if name in COUNTED))

    def _caption(self) -> str:
        return f"Profile of {self.rows:,} rows, {self.method}"

    def _shown(self, names: Iterable[str]) -> list[tuple[str, float, str]]:
        numbers = self.numbers
        return [
            (name.replace("_", " "), numbers[name], shown_number(name, numbers[name]))
            for name in names
        ]


def shown_number(name: str, value: float) -> str:
    if name in SHARES:
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
