"""Reports of runs: what a join did, as its tasks recorded it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.reports.block_pairs import BlockReport
from dask_simjoin.reports.facts import Report
from dask_simjoin.request.messages import counted

MAKE_ROWS = ("pairs", "nearest_rows")
"""Steps whose tasks make the rows of a result."""


class StepRecord(NamedTuple):
    """What one task did.

    Attributes
    ----------
    step, place
        What it is called, and which of those tasks it is.
    of : int
        Of how many tasks that make the result it is one; 0: it makes none of it.
    begin, end : float
        Seconds since the epoch.
    rows : int or None
        Of what it found, if it has rows.
    thread : object
        What ran it.
    """

    step: str
    place: str
    of: int
    begin: float
    end: float
    rows: int | None
    thread: Any


class RunReport(Report):
    """What a lazy join has done so far: print it, or take its numbers.

    Attributes
    ----------
    title : str
        What was asked for.
    plan : PlanReport, NearestPlanReport or SetPlanReport
        What was expected.
    planning : float
        Seconds that planning took.
    """

    _facts = (
        ("state", lambda r: "done" if r.done else "not done, or a part of the result was asked for"),
        ("found", lambda r: r._found()),
        ("partitions", lambda r: f"{r.partitions:,}" + (f" of {r._of:,}" if r._made else "")),
        ("candidates", lambda r: r._candidates()),
        ("planning", lambda r: f"{r.planning:.2f} s"),
        ("joining", lambda r: f"{r.seconds:.2f} s, by {counted(r.threads, 'thread')}"),
    )
    _exported = (
        "title", "planning", "seconds", "rows", "bytes", "partitions", "done", "threads", "candidates",
    )  # fmt: skip

    title = ""  # each run has its own

    def __init__(self, title: str, plan: BlockReport, planning: float) -> None:
        self.title, self.plan, self.planning = title, plan, planning
        self._steps: dict[tuple[str, str], StepRecord] = {}
        self._anew = False
        self._made = self._of = 0

    def begin(self) -> None:
        """Note that tasks are made anew: the next record is the first."""
        self._anew = True

    def add(self, record: StepRecord) -> None:
        """Add what a task did."""
        if self._anew or self.done:
            self._steps, self._anew, self._made = {}, False, 0
        self._made += bool(record.of) and (record.step, record.place) not in self._steps
        self._of = record.of or self._of
        self._steps[record.step, record.place] = record

    @property
    def _results(self) -> list[StepRecord]:
        return [record for record in list(self._steps.values()) if record.of]

    @property
    def partitions(self) -> int:
        """Partitions of the result that were made; of a number 1."""
        return self._made

    @property
    def done(self) -> bool:
        """Whether all of the result was made."""
        return 0 < self._of <= self._made

    @property
    def rows(self) -> int | None:
        """Rows of the result that were made so far; of a number of pairs that number."""
        results = self._results
        counted = [record.rows for record in results or list(self._steps.values()) if record.rows is not None]
        return sum(counted) if counted else None

    @property
    def bytes(self) -> int:
        """Memory of those rows, by what the plan says of one; 0: there is but a number."""
        made = sum(record.rows or 0 for record in self._results if record.step in MAKE_ROWS)
        return round(made * self.plan.pair_bytes)

    @property
    def seconds(self) -> float:
        """From the first task to the last."""
        steps = list(self._steps.values())
        return max((record.end for record in steps), default=0.0) - min(
            (record.begin for record in steps), default=0.0
        )

    @property
    def threads(self) -> int:
        """Threads that ran tasks."""
        return len({record.thread for record in list(self._steps.values())})

    @property
    def candidates(self) -> float | None:
        """Pairs of points that chunks which meet have, of which indexes leave out most; None: not known."""
        blocks = self.plan.to_frame()
        return float(blocks["candidates"].sum()) if "candidates" in blocks else None

    def to_frame(self) -> pd.DataFrame:
        """One row for each step.

        Returns
        -------
        pandas.DataFrame
            ``tasks`` of a millisecond and more, ``seconds`` of all of them, ``longest`` of one of them.
        """
        steps = pd.DataFrame(list(self._steps.values()), columns=StepRecord._fields)
        each = steps.assign(seconds=(steps["end"] - steps["begin"]).astype("float64"))
        return each.groupby("step", sort=False).agg(
            tasks=("step", "size"), seconds=("seconds", "sum"), longest=("seconds", "max")
        )

    def to_dict(self) -> dict[str, Any]:
        """Return its numbers by name, as JSON has them; for each step its tasks and seconds."""
        return super().to_dict() | {"steps": self.to_frame().to_dict("index")}

    def planned_line(self) -> str:
        """Return one line of what is planned."""
        plan = self.plan
        size = f"about {plan.pairs:,.0f} pairs, {format_bytes(plan.result_bytes)}"
        seconds = getattr(plan, "seconds", None)  # of joins of sets nobody knows it
        time = "" if seconds is None else f", about {seconds:.2g} s"
        return (
            f"planned {self.title}: {plan.rows:,} rows, {plan.block_pairs:,} block pairs, {size}{time}; "
            f"in {self.planning:.2f} s"
        )

    def done_line(self) -> str:
        """Return one line of what was done."""
        found = self._found()
        return f"done {self.title}: {found + ', ' if found else ''}in {self.seconds:.2f} s"

    def _heading(self) -> str:
        if self._steps:
            return f"Report of {self.title}"
        return f"{self.planned_line()}; nothing has run here since"

    def _lines(self) -> list[tuple[str, str]]:
        return super()._lines() if self._steps else []

    def _further_facts(self) -> Iterable[tuple[str, str]]:
        for step in self.to_frame().itertuples():
            tasks = counted(step.tasks, "task")
            yield step.Index, f"{tasks}, {step.seconds:.2f} s, the longest {step.longest:.2f} s"

    def _found(self) -> str | None:
        """Rows and bytes, if they are known."""
        if self.rows is None:
            return None
        return f"{self.rows:,} rows{f', {format_bytes(self.bytes)}' if self.bytes else ''}"

    def _candidates(self) -> str | None:
        if (number := self.candidates) is None:
            return None
        return f"at most {number:,.0f}, which is all pairs of rows of chunks that met"
