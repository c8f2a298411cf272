"""Random options `within` and `different`, and which rows they allow, by the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tests.support.random_frames import WHEN, WORDS

CONDITIONED = (
    "self_join",
    "join",
    "knn_join",
    "neighbor_counts",
    "count_pairs",
    "dbscan",
    "optics",
    "near_duplicated",
    "neighbor_graph",
    "connected_components",
)
"""Verbs that take `within` and `different`."""

ONE_SIDED = ("self_join", "join", "knn_join", "neighbor_counts", "count_pairs")
"""Verbs that take ranges that are not the same in both directions."""


FORMULAS = ("hamming", "canberra", "braycurtis")
"""Metrics of these verbs that are no norms."""


def metric_of(seed: int, case: int, verb: str, drawn: str) -> str:
    """Replace some Euclidean metrics. Numbers of their own, so that other choices of a
    case stay as they are.
    """
    rng = np.random.default_rng([seed, case, 63])
    chosen = verb in CONDITIONED and drawn == "euclidean" and rng.random() < 0.25
    return FORMULAS[int(rng.integers(len(FORMULAS)))] if chosen else drawn


def listed(names: Any) -> list[Any]:
    """Return a list of names as it is, and one name as a list."""
    return names if isinstance(names, list) else [names]


class Conditions(NamedTuple):
    """The options, and the columns with a tolerance; `one_sided`: whether it matters
    which row is the left one.
    """

    options: dict[str, Any]
    within: tuple[Any, ...] = ()
    one_sided: bool = False

    @property
    def unlike(self) -> list[Any]:
        """The columns that must differ."""
        return listed(self.options.get("different", []))

    def allowed(self, left: pd.DataFrame, right: pd.DataFrame) -> np.ndarray:
        """Return which pairs of rows of two tables are allowed (n, m)."""
        found = np.ones((len(left), len(right)), bool)
        for name, tolerance in self.options.get("within", {}).items():
            found &= is_within(left[name], right[name], tolerance)
        if self.unlike:
            first, second = ([*rows_of(side, self.unlike)] for side in (left, right))
            same = [[one == other for other in second] for one in first]
            found &= ~np.array(same, bool).reshape(found.shape)
        return found


NO_CONDITIONS = Conditions({})


def rows_of(frame: pd.DataFrame, names: list[Any]) -> Any:
    """Return the values of each row; missing values are equal."""
    columns = [
        [None if pd.isna(value) else value for value in frame[name].tolist()]
        for name in names
    ]
    return zip(*columns, strict=True)


def is_within(left: pd.Series, right: pd.Series, tolerance: Any) -> np.ndarray:
    """Return which values of two columns are within a tolerance (n, m)."""
    if left.dtype.kind == "M":
        nanoseconds = [
            np.array([value.value for value in side], object).reshape(-1)
            for side in (left.astype("datetime64[ns]"), right.astype("datetime64[ns]"))
        ]
        apart = np.subtract.outer(nanoseconds[1], nanoseconds[0]).T
        bounds = tolerance if isinstance(tolerance, tuple) else ("0 s", tolerance)
        low, high = (
            side * 2.0**70 if one is None else pd.Timedelta(one).as_unit("ns").value
            for side, one in zip((-1, 1), bounds, strict=True)
        )
        low = low if isinstance(tolerance, tuple) else -high
        return np.array((apart >= low) & (apart <= high), bool)
    a, b = (side.to_numpy(float)[:, None] for side in (left, right))
    with np.errstate(over="ignore", invalid="ignore"):
        apart = b.T - a
        if isinstance(tolerance, str):
            share = float(tolerance.strip(" %")) / 100
            return np.abs(apart) <= share * np.maximum(np.abs(b.T), np.abs(a))
        low, high = (
            tolerance if isinstance(tolerance, tuple) else (-tolerance, tolerance)
        )
        low, high = -np.inf if low is None else low, np.inf if high is None else high
        return (apart >= low) & (apart <= high)


def conditions_of(seed: int, case: int, verb: str, on: list[Any], dropna: bool) -> Any:
    """Draw the options of a case, most often none. Numbers of their own, so that other
    choices of a case stay as they are.
    """
    rng = np.random.default_rng([seed, case, 62])

    def one(options: Any) -> Any:
        return options[int(rng.integers(len(options)))]

    if verb not in CONDITIONED or rng.random() < 0.65:
        return NO_CONDITIONS
    sided = verb in ONE_SIDED and rng.random() < 0.3
    symmetric: list[tuple[Any, Callable[[], Any]]] = [
        ("r", lambda: one([0, 0.5, 0.25, 1])),
        ("g", lambda: one([1, 0, "40 %", 2.5])),
        ("key", lambda: one([30, 90, "20 %", "2.5 %", 0])),
        (on[0], lambda: one([0.5, 3.0, "50 %"])),
    ]
    ranges: list[tuple[Any, Callable[[], Any]]] = [
        ("key", lambda: one([(-60, 0), (1, 200), (None, 90)])),
        ("r", lambda: one([(0, 0.5), (-1, -0.5)])),
    ]
    if dropna:
        symmetric += [(WHEN, lambda: one(["2 min", "61 s", "0 s", "1 h"]))] * 3
        ranges += [(WHEN, lambda: one([("-2 min", "0 s"), ("1 min", None)]))] * 2
    options: dict[str, Any] = {}
    some = ranges if sided else symmetric
    if sided or rng.random() < 0.75:
        within = [one(some)] + ([one(symmetric)] if rng.random() < 0.3 else [])
        options["within"] = {name: draw() for name, draw in within}
    if "within" not in options or rng.random() < 0.3:
        options["different"] = one(["g", "s", WORDS, ["g", "r"], ["s"]])
    names = tuple(options.get("within", {}))
    directed = any(isinstance(t, tuple) for t in options.get("within", {}).values())
    return Conditions(options, names, directed)
