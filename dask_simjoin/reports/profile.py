"""Reports of profiles: counters of one run of a join, and the seconds of its steps."""

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
    "pairs", "neighbors",
)  # fmt: skip
"""Numbers in the picture."""

SHARES = ("compared_ratio", "recall", "recall_low", "recall_high", "warp_efficiency", "warp_efficiency_model")


@dataclass(frozen=True, repr=False, eq=False)
class ProfileReport(PicturedReport):
    """Counters and times of one self-join of a frame.

    Print it for a summary; a notebook shows a table and a picture of its numbers.

    Attributes
    ----------
    method : str
        Name of the method.
    engine : str
        Description of the search.
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
    """Names and descriptions of the numbers."""

    counted: ClassVar[tuple[str, ...]] = COUNTED
    """Names of the numbers in the picture."""

    title: ClassVar[str] = "Profile of a self-join"

    _facts = (("engine", lambda r: r.engine), ("rows", lambda r: f"{r.rows:,}"))
    _exported = ("title", "method", "engine", "rows", "numbers", "seconds")

    @property
    def numbers(self) -> dict[str, float]:
        """Return the counters that the method has, by name."""
        numbers = self.counters.numbers
        return {name: numbers[name] for name in self.about if name in numbers}

    @property
    def seconds(self) -> dict[str, float]:
        """Return the seconds of each step."""
        return dict(self.counters.seconds)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per number and per step.

        Returns
        -------
        pandas.DataFrame
            ``value`` and its description ``about``; the seconds of a step have the label "seconds: step".
        """
        steps = [(f"seconds: {step}", time, "seconds of this step") for step, time in self.seconds.items()]
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
        """Return name, value and text of each number."""
        numbers = self.numbers
        return [(name.replace("_", " "), numbers[name], shown_number(name, numbers[name])) for name in names]


class NearestProfile(ProfileReport):
    """Counters and times of one nearest-neighbor search in a frame; see `ProfileReport`."""

    title: ClassVar[str] = "Profile of a nearest-neighbor join"


def shown_number(name: str, value: float) -> str:
    """Format a number of a profile."""
    if name in SHARES:
        return f"{value:.1%}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
