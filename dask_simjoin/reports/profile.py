"""Reports of profiles: what one run of a join counted, and the seconds of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pandas as pd

from dask_simjoin.engine.base import ABOUT, Counters
from dask_simjoin.reports.facts import PicturedReport
from dask_simjoin.reports.svg import Bars

COUNTED = (
    "lookups", "found", "tile_pairs", "near_queries", "candidates", "comparisons", "decided", "refused",
    "pairs", "neighbours",
)  # fmt: skip
"""Numbers that the picture compares."""

SHARES = ("compared_ratio", "recall", "recall_low", "recall_high", "warp_efficiency", "warp_efficiency_model")


@dataclass(frozen=True, repr=False, eq=False)
class ProfileReport(PicturedReport):
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

    _facts = (("engine", lambda r: r.engine), ("rows", lambda r: f"{r.rows:,}"))
    _exported = ("title", "method", "engine", "rows", "numbers", "seconds")

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

    def _further_facts(self) -> list[tuple[str, str]]:
        steps = [(f"seconds, {step}", f"{time:.4g}") for step, time in self.seconds.items()]
        return [*((name, text) for name, _, text in self._shown(self.numbers)), *steps]

    def _picture(self) -> Bars:
        return Bars(self._shown(name for name in self.numbers if name in self.counted))

    def _caption(self) -> str:
        return f"Profile of {self.rows:,} rows, {self.method}"

    def _shown(self, names: Iterable[str]) -> list[tuple[str, float, str]]:
        """For each number its name and itself, and how it is shown."""
        numbers = self.numbers
        return [(name.replace("_", " "), numbers[name], shown_number(name, numbers[name])) for name in names]


class NearestProfile(ProfileReport):
    """What one search for the nearest rows of a frame's rows did; see `ProfileReport`."""

    title: ClassVar[str] = "Profile of a join with nearest neighbors"


def shown_number(name: str, value: float) -> str:
    """Return a number of a profile as text."""
    if name in SHARES:
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
