"""Show the plan of a nearest-neighbor search, and the profile of a run."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.engine.base import ABOUT, Counters
from dask_simjoin.planning.checks import NEED, RANK_BYTES
from dask_simjoin.planning.outputs import describe_tasks, making_tasks
from dask_simjoin.planning.statistics.estimate import UNKNOWN
from dask_simjoin.reports.plan import PlanReport
from dask_simjoin.request.inputs import new_axes
from dask_simjoin.request.messages import shown


@dataclass(frozen=True, repr=False, eq=False)
class NearestReport(PlanReport):
    """The plan of a join with nearest neighbours; see `PlanReport`.

    Attributes
    ----------
    k : int
    bound : float
        The largest total of a neighbour.
    block_pairs : int
        Chunks that are searched, for all chunks of rows.
    pairs, pairs_low, pairs_high : float
        The most rows that the result can have, and the fewest if no largest distance is set.
    """

    k: int = 1
    bound: float = math.inf

    _drawn: ClassVar[str] = "candidates"

    @property
    def block_pairs(self) -> int:
        return sum(map(len, self.plan.searches))

    @property
    def partitions(self) -> int:
        return max(len(self.plan.counted), 1)

    @property
    def pairs(self) -> float:
        return float(self.plan.rows_found(self.k))

    @property
    def pairs_low(self) -> float:
        return 0.0 if self.bound < math.inf else self.pairs

    @property
    def pairs_high(self) -> float:
        return self.pairs

    @property
    def result_bytes(self) -> int:
        return round(self.pairs * self.pair_bytes)

    @property
    def pair_bytes(self) -> float:
        return self.plan.pair_bytes + RANK_BYTES

    def to_frame(self) -> pd.DataFrame:
        """One row for each chunk of rows and each chunk that is searched for their neighbours.

        Returns
        -------
        pandas.DataFrame
            ``query_chunk``, ``data_chunk``, ``query_rows``, ``data_rows``, ``candidates``; in the order of
            the search, the nearest chunks first.
        """
        plan = self.plan
        numbers = np.repeat(np.arange(len(plan.searches)), [len(found) for found in plan.searches])
        found = np.concatenate([np.zeros(0, np.int64), *plan.searches])
        rows = plan.chunks.rows
        return pd.DataFrame({
            "query_chunk": numbers, "data_chunk": found - plan.chunks.first_data, "query_rows": rows[numbers],
            "data_rows": rows[found], "candidates": rows[numbers] * rows[found],
        })  # fmt: skip

    def _title(self) -> str:
        return f"Plan of a join with nearest neighbours, k={shown(self.k)}"

    def _facts(self) -> list[tuple[str, str]]:
        plan, budget, (queries, data) = self.plan, self.plan.budget, self._sides
        largest = float(plan.chunks.rows.max(initial=0.0))
        at_most = "at most " * (self.bound < math.inf)
        every = plan.rows_found(self.k) // max(1, plan.table_rows[0])  # that there are
        fewer = [("neighbours", f"{every:,} of a row at most, which is all: k={shown(self.k)} asks for more")]
        return [
            *self._what(),
            *(fewer if every < self.k else []),
            *([("recall", self._recall())] if self.spec.approximate else []),
            ("block pairs", f"{self.block_pairs:,} visited at most, of {queries * data:,} possible"),
            ("result", f"{at_most}{self.pairs:,.0f} rows, {format_bytes(self.result_bytes)}"),
            ("partitions", f"{self.partitions:,}"),
            ("memory", f"{format_bytes(round(NEED * largest * plan.row_bytes))} for the largest task"),
            ("budget", f"{format_bytes(budget.chunk)} a chunk ({budget.origin})"),
            ("tasks", describe_tasks(self._tasks(), budget.chunk)),
        ]

    def _recall(self) -> str:
        if self.plan.recall is UNKNOWN:
            return (
                f"not told by a sample, in which rows are less dense; profile(k={shown(self.k)}) measures it"
            )
        return self.plan.recall.in_words("neighbours")

    def _tasks(self) -> int:
        return (
            making_tasks(self.plan.chunks, self.plan.sources, self.spec.settings.cluster)
            + 2 * self.block_pairs
            + self.partitions
        )


BAR, TEXT, LINE = 300, 150, 18
"""Pixels of the longest bar, of the names before it, and of a line."""

COUNTED = (
    "lookups", "found", "tile_pairs", "near_queries", "candidates", "comparisons", "decided", "refused",
    "pairs", "neighbours",
)  # fmt: skip
"""Numbers that the picture compares."""

SHARES = ("compared_ratio", "recall", "recall_low", "recall_high", "warp_efficiency", "warp_efficiency_model")


@dataclass(frozen=True, repr=False, eq=False)
class ProfileReport:
    """What one join of a frame with itself did.

    Print it for a summary; a notebook shows a table and a picture of its numbers.

    Attributes
    ----------
    method : str
        The name of the method that ran.
    engine : str
        What it did, in words.
    rows : int
        Rows that took part.
    counters : Counters
        Numbers by name, and seconds of each step.
    """

    method: str
    engine: str
    rows: int
    counters: Counters

    about: ClassVar[Mapping[str, str]] = ABOUT
    """The numbers that are told, and what they count."""

    counted: ClassVar[tuple[str, ...]] = COUNTED
    """Those that the picture compares."""

    title: ClassVar[str] = "Profile of a self-join"

    @property
    def numbers(self) -> dict[str, float]:
        """What was counted, by name; what the method does not tell is not there."""
        told = self.counters.numbers
        return {name: told[name] for name in self.about if name in told}

    @property
    def seconds(self) -> dict[str, float]:
        """Of each step."""
        return dict(self.counters.seconds)

    def to_frame(self) -> pd.DataFrame:
        """One row for each number and each step.

        Returns
        -------
        pandas.DataFrame
            ``value`` and ``about``, what it is; seconds of steps are named "seconds: step".
        """
        steps = [(f"seconds: {step}", time, "of this step") for step, time in self.seconds.items()]
        lines = [*((name, value, self.about[name]) for name, value in self.numbers.items()), *steps]
        return pd.DataFrame(
            {"value": [float(line[1]) for line in lines], "about": [line[2] for line in lines]},
            index=pd.Index([line[0] for line in lines], name="number"),
        )

    def __repr__(self) -> str:
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        lines = (f"  {name:<{width}}  {text}" for name, text in facts)
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for name, text in self._facts()
        )
        return f"<table><caption>{self.title}</caption>{facts}</table>{self.svg()}"

    def _facts(self) -> list[tuple[str, str]]:
        numbers = [
            (name.replace("_", " "), shown_numbers(name, value)) for name, value in self.numbers.items()
        ]
        steps = [(f"seconds, {step}", f"{time:.4g}") for step, time in self.seconds.items()]
        return [("engine", self.engine), ("rows", f"{self.rows:,}"), *numbers, *steps]

    def _bars(self) -> list[tuple[str, float]]:
        return [(name, value) for name, value in self.numbers.items() if name in self.counted]

    def svg(self) -> str:
        """Return a picture of the numbers, as bars on a scale of logarithms, in SVG."""
        bars = self._bars()
        decades = math.log10(1 + max((value for _, value in bars), default=0.0)) or 1.0
        lines = []
        for k, (name, value) in enumerate(bars):
            y, width = k * LINE, round(BAR * math.log10(1 + value) / decades)
            lines.append(
                f'<text x="{TEXT - 6}" y="{y + 13}" text-anchor="end">{name.replace("_", " ")}</text>'
                f'<rect x="{TEXT}" y="{y + 3}" width="{width}" height="{LINE - 6}" fill="#2676b4"/>'
                f'<text x="{TEXT + width + 6}" y="{y + 13}">{shown_numbers(name, value)}</text>'
            )
        size = f'width="{TEXT + BAR + 140}" height="{max(1, len(bars)) * LINE}"'
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">'
            f"{''.join(lines)}</svg>"
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw the numbers with matplotlib, on a scale of logarithms.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw; a new one by default.

        Returns
        -------
        matplotlib.axes.Axes
        """
        ax = new_axes() if ax is None else ax
        bars = self._bars()[::-1]
        ax.barh([name.replace("_", " ") for name, _ in bars], [value for _, value in bars], color="#2676b4")
        ax.set(xscale="symlog", xlabel="number", title=f"Profile of {self.rows:,} rows, {self.method}")
        return ax


class NearestProfile(ProfileReport):
    """What one search for the nearest rows of a frame's rows did; see `ProfileReport`."""

    title: ClassVar[str] = "Profile of a join with nearest neighbours"


def shown_numbers(name: str, value: float) -> str:
    """Return a number of a profile as text."""
    if name in SHARES:
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
