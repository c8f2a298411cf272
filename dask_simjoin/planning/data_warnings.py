"""What data tell of options that are mistaken, as far as planning knows them: units, and columns."""

from __future__ import annotations

import inspect
import math
import numbers
import warnings
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from dask.utils import format_bytes

from dask_simjoin.catalog.methods import LOSSY_NEAREST, name_of
from dask_simjoin.errors import (
    ApproximateWarning,
    BudgetError,
    ColumnsWarning,
    Remedy,
    SimJoinWarning,
    UnitsWarning,
)
from dask_simjoin.metrics.distances import Cosine, Haversine
from dask_simjoin.metrics.norms import Frame, add
from dask_simjoin.planning.budget import enough_result, fewer_pairs, verbs_without_pairs
from dask_simjoin.planning.statistics.estimate import Estimate
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.columns import is_identifier, latitude_and_longitude
from dask_simjoin.request.messages import listed
from dask_simjoin.request.spec import JoinSpec

LEAST_ROWS = 500
"""Rows below which data tell nothing: tables by hand may all be near each other."""

LARGE = 0.5
"""Share of all pairs that nobody wants."""

SIMILAR = 0.1
"""The same of an `eps` that is usual as a similarity."""

FAR = 300
"""How many times `eps` neighbours are away where kilometres may have been meant for metres."""

PROBED = 64
"""Points of the sample whose nearest ones are looked at, and least points of one that tells something."""

WIDE = 100
"""How many times as wide as all others a column is spread that is none of theirs."""

DEAR = 2 << 30
"""Bytes of a result from which on most of all pairs are refused."""

ENDS = "; other names of the columns end this warning"

MOST_MISSING = 1000
"""Rows of a column of objects that are looked at for one that is not missing."""

OUTSIDE = ("dask_simjoin", "dask", "distributed", "functools", "contextlib")
"""Packages whose lines no warning is about."""


class DataWarning(NamedTuple):
    """A warning; `if_none`: it is in place only if the join finds no pair."""

    warning: SimJoinWarning
    if_none: bool = False


def raise_warnings(data_warnings: Iterable[DataWarning], found: int | None = 0) -> None:
    """Warn, at the caller's line; `found`: pairs, if they are known; None: they will be."""
    for data_warning in data_warnings:
        if not data_warning.if_none or found == 0:
            warnings.warn(data_warning.warning, stacklevel=_outside())


def check_share(
    data_warnings: Iterable[DataWarning], share: float, rows: float, row_bytes: float, spec: JoinSpec
) -> None:
    """Refuse most of all pairs of many rows, unless a limit that was set allows them.

    `share`: of all pairs that rows could be; `rows`: of the result, at least.
    """
    size = rows * row_bytes
    if share < LARGE or size < DEAR or spec.settings.result is not None:
        return
    causes = [str(d.warning).replace(ENDS, "") for d in data_warnings if isinstance(d.warning, UnitsWarning)]
    likely = " ".join(causes) or f"These are at least {share:.0%} of all pairs of rows."
    raise BudgetError(
        f"{spec.asked} gives at least {rows:,.0f} rows, estimated from a sample, which take "
        f"{format_bytes(int(size))}. {likely} Use {fewer_pairs(spec.asked)}; or, if all of these pairs are "
        f"wanted, allow them: dask.config.set({enough_result(size)}).",
        remedies=[Remedy(config=enough_result(size)), *verbs_without_pairs(spec.asked)],
    )


def raise_if_none(data_warnings: Iterable[DataWarning], found: Any) -> None:
    """Warn of what is in doubt once no pair is found; the rest has been said."""
    raise_warnings([data_warning for data_warning in data_warnings if data_warning.if_none], int(found))


def _outside() -> int:
    """How far above the caller of this the first line outside of such packages is."""
    level, frame = 1, inspect.currentframe()
    frame = frame.f_back if frame is not None else None
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] in OUTSIDE:
        frame, level = frame.f_back, level + 1
    return level


def warnings_of_data(*sides: TableSummary) -> tuple[DataWarning, ...]:
    """What the points of some tables tell by themselves."""
    each = (_approximate, _radians, _degrees, _swapped, _columns)
    found = [data_warning for side in sides for told in each for data_warning in told(side)]
    return tuple(
        {str(data_warning.warning): data_warning for data_warning in found}.values()
    )  # of two tables it may be the same


def _approximate(side: TableSummary) -> list[DataWarning]:
    if not side.spec.approximate:
        return []
    if name_of(side.spec.method) in LOSSY_NEAREST:
        return [DataWarning(ApproximateWarning(
            "approximate=True tells rows that are near, and may miss nearer ones. profile(k=...) with the "
            "same options measures how many it finds; approximate=False finds the nearest."
        ))]  # fmt: skip
    text = (
        "approximate=True leaves out pairs of rows of two clusters. profile() with the same options measures "
        "how many are left, and plan() expects them from a sample; approximate=False finds all."
    )
    return [DataWarning(ApproximateWarning(text))]


def _radians(side: TableSummary) -> list[DataWarning]:
    every, spec = side.every, side.spec
    if spec.metric != Haversine.name or every.rows < LEAST_ROWS:
        return []
    # degrees of as many radians: on the sphere that is a patch around its axis x
    lat, lon = math.radians(math.pi / 2), math.radians(math.pi)
    low, high = every.lower, every.upper
    near = max(-low[1], high[1]) <= math.sin(lon) and max(-low[2], high[2]) <= math.sin(lat) and low[0] > 0
    if not near:
        return []
    named = " and ".join(repr(name) for name in spec.on)
    return [_units(
        f"All {every.rows:,} values of {named} lie within pi/2 and pi of 0, as radians do, and "
        f"metric={spec.metric!r} takes degrees: near 0 degrees of both is the open sea. If these are "
        "radians, convert them, for example with numpy.degrees."
    )]  # fmt: skip


def _degrees(side: TableSummary) -> list[DataWarning]:
    """Latitude and longitude by their names and values, compared as if they were of a plane."""
    every, spec = side.every, side.spec
    places = latitude_and_longitude(spec.on) if len(spec.on) == 2 else None
    # OPTICS has no metric that takes degrees
    if places is None or spec.measure.embeds or spec.bound == "max_eps" or every.rows < LEAST_ROWS:
        return []
    reach = np.maximum(np.abs(every.lower), np.abs(every.upper))
    lat, lon = places
    if reach[lat] > 90 or reach[lon] > 360 or every.lower[lon] < -180:
        return []
    named = listed([spec.on[lat], spec.on[lon]])
    return [_units(
        f"{named} are degrees by their names and values, and metric={spec.metric!r} takes those of longitude "
        f"to be as long as those of latitude, with eps= in degrees. metric='haversine' with on=[{named}] "
        f"takes degrees, with eps= in metres{ENDS}."
    )]  # fmt: skip


def _swapped(side: TableSummary) -> list[DataWarning]:
    """x before y, which is latitude before longitude in no map."""
    spec = side.spec
    if spec.metric != Haversine.name or side.every.rows < LEAST_ROWS:
        return []
    first, second = spec.on[:2]
    if (str(first).lower(), str(second).lower()) != ("x", "y"):
        return []
    return [_units(
        f"metric={spec.metric!r} takes latitude first, and on= names {first!r} first, which by its name is "
        f"the longitude: on=[{listed([second, first])}] if so{ENDS}."
    )]  # fmt: skip


def _columns(side: TableSummary) -> list[DataWarning]:
    """Integers that are no coordinates, where nobody said which columns are."""
    every, spec, points = side.every, side.spec, side.points
    if not spec.chosen or spec.measure.embeds or every.rows < PROBED:
        return []
    spread = np.sqrt(every.variance)
    others = max(float(s) for s, name in zip(spread, spec.on, strict=True) if name not in spec.chosen)
    data_warnings = []
    for name in spec.chosen:
        k = spec.on.index(name)
        steps = np.diff(points.x[:, k])
        if len(steps) >= PROBED and bool((steps > 0).all()):
            what = "counts the rows"
        elif spread[k] > WIDE * others > 0:
            what = f"is spread {spread[k] / others:,.0f} times as wide as the widest of the others"
        else:
            continue
        data_warnings.append(DataWarning(ColumnsWarning(
            f"Without on= the coordinates are all numeric columns, {listed(spec.on)}, of which {name!r} "
            f"holds integers and {what}. Name the coordinates with on=[...]; this warning is gone then."
        )))  # fmt: skip
    return data_warnings


def warnings_of_left_out(frame: Frame, spec: JoinSpec) -> tuple[DataWarning, ...]:
    """Numbers as objects, such as Decimal, that are no coordinates where nobody said which columns are."""
    if spec.chosen is None or not isinstance(frame, pd.DataFrame):
        return ()
    used = {*spec.on, spec.id, *spec.by, *spec.keep}
    others = [name for name in frame.columns if name not in used and not is_identifier(name, "i")]
    found = {name: _a_number(frame[name]) for name in others if frame[name].dtype == object}
    if spec.id_dtype is None:  # ids that were named are not known any more, and may be such
        found = {name: kind for name, kind in found.items() if kind != "int"}
    return tuple(
        DataWarning(ColumnsWarning(
            f"Without on= the coordinates are all numeric columns, {listed(spec.on)}. {name!r} is of dtype "
            f"object, holds numbers ({kind}), and is left out: df.astype({{{name!r}: 'float64'}}) makes it "
            "one of them, on=[...] ends this warning."
        ))
        for name, kind in found.items() if kind
    )  # fmt: skip


def _a_number(column: pd.Series) -> str:
    """The type of the first value of a column of objects, if that is a number."""
    some = column[:MOST_MISSING].dropna()
    value = some.iloc[0] if len(some) else None
    plain = isinstance(value, numbers.Number) and not isinstance(value, (bool, np.bool_))
    return type(value).__name__ if plain else ""


def warnings_of_eps(spec: JoinSpec, found: Estimate, candidates: float,
                    sides: tuple[TableSummary, TableSummary]) -> tuple[DataWarning, ...]:  # fmt: skip
    """What the pairs of the samples tell of `eps`; `candidates`: how many pairs rows could be."""
    if spec.bound != "eps" or min(side.every.rows for side in sides) < LEAST_ROWS or not candidates:
        return ()
    # several distances are a histogram's, which may go as far as rows are apart
    large = () if spec.several else _large(spec, found.total_low / candidates, sides)
    return (*large, *_tiny(spec, found, *sides))


def _large(spec: JoinSpec, share: float, sides: tuple[TableSummary, TableSummary]) -> list[DataWarning]:
    eps = f"eps={spec.radius if spec.radius is not None else spec.eps!r}"
    if spec.metric == Cosine.name and spec.radius is None and 0.5 <= spec.eps <= 1 and share >= SIMILAR:
        return [_units(
            f"metric='cosine' is a distance, one minus the cosine, and at least {share:.0%} of all pairs of "
            f"rows are within {eps}. If a similarity of at least {spec.eps:g} is meant, use "
            f"eps={1 - spec.eps:.6g}."
        )]  # fmt: skip
    if share < LARGE:
        return []
    across = ""
    if not spec.measure.embeds and not spec.by:
        lower = np.minimum(*(side.every.lower for side in sides))
        upper = np.maximum(*(side.every.upper for side in sides))
        across = f", whose box is {_total(spec, lower, upper):.4g} across,"
        if not (upper > lower).any():
            return []  # all rows are equal: no units would help
    units = "metres" if spec.metric == Haversine.name else "the units of the metric"
    return [_units(
        f"At least {share:.0%} of all pairs of rows{across} are within {eps}. It is in {units}: check that "
        "the coordinates are, too, or use a smaller eps."
    )]  # fmt: skip


def _total(spec: JoinSpec, lower: np.ndarray, upper: np.ndarray) -> float:
    """The distance of two points."""
    total = np.zeros(1)
    with np.errstate(over="ignore"):
        for k in range(len(lower)):
            total = add(total, np.abs(upper[k : k + 1] - lower[k : k + 1]), spec.norm)
        return float(spec.measure.distance(total, np)[0])


def _tiny(spec: JoinSpec, found: Estimate, left: TableSummary, right: TableSummary) -> list[DataWarning]:
    """Kilometres for metres: nothing is near, and rows are thousands of times as far."""
    points = right.points
    if spec.metric != Haversine.name or spec.radius is not None or found.total or not spec.eps:
        return []
    if min(len(left.points.x), len(points.x)) < PROBED:
        return []
    away = _typical(left.points, points, spec) * math.sqrt(len(points.x) / points.rows)
    if away < FAR * spec.eps:
        return []
    return [DataWarning(UnitsWarning(
        f"No pair is likely within eps={spec.eps!r} metres: the nearest rows are about {away:,.0f} metres "
        f"apart. metric={spec.metric!r} is in metres; if kilometres are meant, use eps={1000 * spec.eps:g}."
    ), if_none=True)]  # fmt: skip


def _typical(left: SamplePoints, right: SamplePoints, spec: JoinSpec) -> float:
    """The median distance of a point of the one sample to the nearest other one of the other sample."""
    some = left.x[np.random.default_rng(len(left.x)).choice(len(left.x), PROBED, replace=False)]
    nearest = np.empty(PROBED)
    for n, x in enumerate(some):
        total = ((right.x - x) ** 2).sum(axis=1)
        nearest[n] = total[total > 0].min(initial=math.inf)
    return float(np.median(spec.measure.distance(np.minimum(nearest, 4.0), np)))


def _units(text: str) -> DataWarning:
    return DataWarning(UnitsWarning(text))
