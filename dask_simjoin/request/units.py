"""Parse distances with units, and check single options."""

from __future__ import annotations

import math
import numbers
import re
import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pandas as pd

from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from dask_simjoin.metrics.distances import METRICS, Cosine, Metric, make_metric
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.request.messages import (
    CONDITIONED,
    FUNCTIONS,
    NO_CHOICES,
    NO_METRICS,
    TIMES_ALONE,
    check_comma,
    did_you_mean,
    elsewhere,
    instead_of_distance,
    listed,
    shown,
)
from dask_simjoin.request.messages import METRICS as SYNONYMS
from dask_simjoin.request.spec import DistanceUnit, JoinSpec

LENGTHS = {
    "mm": 1e-3,
    "cm": 1e-2,
    "m": 1.0,
    "km": 1e3,
    "ft": 0.3048,
    "mi": 1609.344,
    "nmi": 1852.0,
}
"""Unit of length -> size in meters."""

ANGLES = {
    "rad": 1.0,
    "deg": math.pi / 180,
    "arcmin": math.pi / 10_800,
    "arcsec": math.pi / 648_000,
    "mas": math.pi / 648_000_000,
}
"""Unit of angle -> size in radians."""

WORDS = {
    "meter": "m",
    "meters": "m",
    "metre": "m",
    "metres": "m",
    "kilometer": "km",
    "kilometers": "km",
    "kilometre": "km",
    "kilometres": "km",
    "foot": "ft",
    "feet": "ft",
    "mile": "mi",
    "miles": "mi",
    "degree": "deg",
    "degrees": "deg",
    "°": "deg",
    "arcminute": "arcmin",
    "arcminutes": "arcmin",
    "'": "arcmin",
    "arcsecond": "arcsec",
    "arcseconds": "arcsec",
    '"': "arcsec",
    "radian": "rad",
    "radians": "rad",
}
"""Other name of a unit -> short name."""

WITH_UNIT = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\W\d_]+|[°'\"])\s*"
)


def parsed(text: object) -> tuple[float, str] | None:
    """Split a text such as "2 km" into number and unit; None if it has another form.

    Examples
    --------
    >>> parsed("1.5 kilometres"), parsed("radius")
    ((1.5, 'km'), None)
    """
    found = WITH_UNIT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    return float(found[1]), unit_name(found[2])


def unit_name(name: str) -> str:
    """Return the short name of a unit: "km" for "Kilometers"."""
    unit = name if name in LENGTHS or name in ANGLES else name.lower()
    return WORDS.get(unit, unit)


def meters(text: object, name: str) -> float | None:
    """Convert a length with a unit, such as "2 km", to meters. Return None for angles
    and other values.
    """
    found = parsed(text)
    if found is None or found[1] in ANGLES:
        return None
    number, unit = found
    if unit not in LENGTHS:
        raise _unknown(text, unit, name, [*LENGTHS, *ANGLES])
    return number * LENGTHS[unit]


def without_unit(eps: object, metric: Metric, name: str) -> object:
    """Convert a distance with a unit to the unit of the metric; return other values
    unchanged.

    "haversine" takes lengths, or angles at the center of the Earth. "cosine" takes
    angles.

    Examples
    --------
    >>> from dask_simjoin.metrics import make_metric
    >>> without_unit("2 km", make_metric("haversine"), "eps")
    2000.0
    >>> round(without_unit("60 deg", make_metric("cosine"), "eps"), 12)
    0.5
    """
    found = parsed(eps)
    if found is None:
        return eps
    number, unit = found
    units = units_of(metric)
    if not units:
        written = cast(re.Match[str], WITH_UNIT.fullmatch(str(eps)))[2]
        advice = (
            " For latitudes and longitudes in degrees, use metric='haversine'."
            if unit in LENGTHS or unit in ANGLES
            else " For a tolerance in time, use within= with the column of times, and "
            f"other columns as coordinates. {TIMES_ALONE}"
            if _is_duration(str(eps))
            else ""
        )
        raise OptionError(
            f"{name}={shown(eps)} has a unit, but with metric={metric.name!r} "
            "distances are in the unit of the columns. Use a plain number, such as "
            f"{name}={number:g} if the columns are in {written}.{advice}"
        )
    if unit not in units:
        raise _unknown(eps, unit, name, units)
    if number < 0:
        raise OptionError(f"{name}={shown(eps)} is not allowed; use a distance >= 0.")
    return metric.from_unit(number, _distance_unit(unit, metric).size)


def duration(value: Any) -> pd.Timedelta:
    """Convert a duration, such as "10 min" or "1 d"; raise `ValueError`,
    `OverflowError` or `TypeError` if it is none.
    """
    if isinstance(value, str):
        # pandas deprecates the small letter
        value = re.sub(r"(?<![a-zA-Z])d(?![a-zA-Z])", "D", value)
    return pd.Timedelta(value)


def _is_duration(text: str) -> bool:
    try:
        return not pd.isna(duration(text))
    except (ValueError, OverflowError):
        return False


def units_of(metric: Metric) -> list[str]:
    """Return the units that distances of a metric can have."""
    return (
        list(ANGLES)
        if metric.name == Cosine.name
        else [*LENGTHS, *ANGLES]
        if metric.unit
        else []
    )


def with_unit(spec: JoinSpec, unit: object, *bounds: object) -> JoinSpec:
    """Set the unit of returned distances to `unit`; if that is None, to the first unit
    in `bounds`.
    """
    if spec.result.distance:
        return in_unit(spec, unit, *bounds)
    if isinstance(unit, str):
        raise OptionError(
            f"distance_unit={shown(unit)} needs distances in the result; use "
            "return_distance=True, or "
            "leave out distance_unit=."
        )
    return spec


def in_unit(spec: JoinSpec, unit: object, *bounds: object) -> JoinSpec:
    """Set the unit of distances for a result that always has distances: see
    `with_unit`.
    """
    if isinstance(unit, DistanceUnit):
        return _returning(spec, unit)
    if unit is None:
        texts = [] if spec.radius is not None else [parsed(bound) for bound in bounds]
        unit = next((text[1] for text in texts if text is not None), None)
        return (
            spec
            if unit is None
            else _returning(spec, _distance_unit(unit, spec.measure))
        )
    units = units_of(spec.measure)
    if not units:
        raise OptionError(
            f"distance_unit={shown(unit)} is not allowed with metric={spec.metric.name!r}, "
            "whose distances have "
            "the unit of the columns; leave out distance_unit=, or use "
            "metric='haversine'."
        )
    if not isinstance(unit, str) or unit_name(unit) not in units:
        raise OptionError(
            f"distance_unit={shown(unit)} is not allowed; use one of "
            f"{', '.join(map(repr, units))}"
            f"{did_you_mean(unit, units)}."
        )
    return _returning(spec, _distance_unit(unit_name(unit), spec.measure))


def _returning(spec: JoinSpec, unit: DistanceUnit) -> JoinSpec:
    return replace(spec, result=spec.result._replace(unit=unit))


def _distance_unit(name: str, metric: Metric) -> DistanceUnit:
    if name in LENGTHS:
        return DistanceUnit(name, LENGTHS[name])
    return DistanceUnit(
        name, ANGLES[name] if metric.name == Cosine.name else ANGLES[name] * RADIUS
    )


def _unknown(eps: object, unit: str, name: str, units: list[str]) -> OptionError:
    return OptionError(
        f"{name}={shown(eps)} is in {unit!r}, which is not a unit "
        f"here{did_you_mean(unit, units)}; use a "
        f"number, or one of {', '.join(map(repr, units))}."
    )


MAX_P = np.iinfo(np.int32).max
"""Largest finite exponent p of a norm."""


def is_number(value: object) -> bool:
    """Return whether a value is a real number, but not a boolean."""
    # NumPy counts timedelta64 among its integers
    return isinstance(value, numbers.Real) and not isinstance(
        value, (bool, np.bool_, np.timedelta64)
    )


def as_number(value: Any) -> float:
    """Convert a value to a float: to inf if it is too large, and to NaN if it is not a
    real number.
    """
    if not is_number(value):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_eps(eps: Any, name: str, by_row: bool = False) -> float:
    """Return a distance as a float; refuse other values.

    `by_row`: whether the option may name a column of distances, for messages.
    """
    if not is_number(eps):
        check_comma(name, eps)
        instead = instead_of_distance(name, eps, by_row)
        raise OptionTypeError(
            f"{name}={shown(eps)} is not a number; use a finite number >= 0{instead}."
        )
    value = as_number(eps)
    # compare `eps`, not `value`, because a tiny negative Fraction becomes -0.0
    if not math.isfinite(value) or eps < 0:
        raise OptionError(
            f"{name}={shown(eps)} is not allowed; use a finite number >= 0."
        )
    return value


def check_distance(eps: Any, metric: Metric, name: str, by_row: bool = False) -> float:
    """Return a distance, which may have a unit, as a float in the unit of the metric.

    Refuse values that are not distances, or that are too large for the metric.
    `by_row`: see `check_eps`.
    """
    value = check_eps(without_unit(eps, metric, name), name, by_row)
    given = shown(eps) if isinstance(eps, str) else repr(value)
    check_threshold(value, metric, f"{name}={given}", name)
    return value


def check_threshold(eps: float, metric: Metric, given: str, name: str) -> None:
    """Refuse a distance whose threshold is infinite, because every two rows would be a
    pair. Refuse one whose power underflows, because farther rows would be pairs.

    `given`, `name`: the option with its value, and its name, in the words of messages.
    """
    threshold = metric.threshold(eps)
    least = sys.float_info.min
    # tiny distances, whose squares underflow too, are as in other metrics
    if metric.name == "minkowski" and threshold < least <= eps * eps:
        raise OptionError(
            f"{given} is too small for metric={metric.name!r} with p={metric.norm:g}, "
            "because its power underflows: farther rows would count as equal. Use "
            f"p=inf, or multiply the coordinates and {name} by the same power of two."
        )
    if math.isfinite(threshold):
        return
    square = "square" if metric.norm == 2 else f"power of {metric.norm}"
    raise OptionError(
        f"{given} is too large for metric={metric.name!r}, because its {square} is "
        f"more than the largest float64. Use at most {metric.largest_eps()!r}, or "
        f"divide the coordinates and {name} by the same power of two, such as "
        f"2.0**{math.frexp(eps)[1]}."
    )


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise an error if a value is not allowed."""
    if not isinstance(value, str) or value not in allowed:
        if len(allowed) == 1:
            choices = f"use {allowed[0]!r}, the only value so far"
        else:
            names = ", ".join(repr(choice) for choice in allowed)
            hint = (
                NO_CHOICES.get(name, {}).get(value.lower())
                if isinstance(value, str)
                else None
            )
            choices = f"use one of {names}{f'. {hint}' if hint else did_you_mean(value, allowed)}"
        raise OptionError(f"{name}={shown(value)} is not allowed; {choices}.")


def check_metric(name: Any, p: object) -> tuple[Metric, Norm]:
    """Return the metric with this name, and `p` as a plain number.

    Raise an error for values that are not allowed.
    """
    if callable(name):
        meant = FUNCTIONS.get(getattr(name, "__name__", ""))
        hint = f" Instead of this function, use {meant!r}." if meant else ""
        raise OptionError(
            f"metric={shown(name)} is a function, and functions are not supported. Use "
            f"one of {', '.join(map(repr, METRICS))}.{hint}"
        )
    if isinstance(name, str) and name not in METRICS:
        raise OptionError(
            f"metric={shown(name)} is not allowed; use one of "
            f"{', '.join(map(repr, METRICS))}"
            f"{_metric_meant(name)}."
        )
    check_choice("metric", name, tuple(METRICS))
    if not is_number(p):
        raise OptionTypeError(
            f"p={shown(p)} is not a number; use a number >= 1, or inf."
        )
    value = as_number(p)
    if (value != math.inf or p != math.inf) and not 1 <= value <= MAX_P:
        raise OptionError(
            f"p={shown(p)} is not allowed; use a number from 1 to {MAX_P:,}, or "
            "float('inf')."
        )
    if name != "minkowski" and p != 2:
        raise OptionError(
            f"p={shown(p)} is only for metric='minkowski', not for metric={name!r}; "
            "use "
            "metric='minkowski', or leave out p."
        )
    norm = int(value) if value.is_integer() else value
    return make_metric(name, norm), norm


def check_is_norm(metric: Metric) -> None:
    """Raise an error for metrics that only verbs with conditions support."""
    if metric.formula:
        norms = [name for name, kind in METRICS.items() if not kind.formula]
        raise OptionError(
            f"metric={metric.name!r} is not supported here, but in {CONDITIONED}, and in "
            f"k_distances(). Use one of {', '.join(map(repr, norms))}."
        )


def _metric_meant(name: str) -> str:
    hint = NO_METRICS.get(name.lower())
    return f". {hint}" if hint else elsewhere(name, SYNONYMS, METRICS)


def box_of(
    box: object, metric: Metric, on: Sequence[Hashable], lists: bool
) -> tuple[float, ...]:
    """Return the lengths of a periodic box for the columns `on`, 0 for open columns;
    empty: there is no box. `lists`: whether `on` is a column of lists.
    """
    if box is None:
        return ()
    given = f"box={shown(box)}"
    if metric.embeds or metric.formula:
        raise OptionError(
            f"{given} is not allowed with metric={metric.name!r}; use a metric of "
            "differences, such as 'euclidean'."
        )
    if lists:
        raise OptionError(
            f"{given} is not allowed for a column of lists. Put the numbers into "
            "columns of their own, and name these with on=[...]."
        )
    lengths = box.tolist() if isinstance(box, np.ndarray) else box
    if isinstance(lengths, dict):
        for name in lengths:
            if name not in on:
                raise ColumnError(
                    f"box= names {name!r}, which is not one of the coordinates "
                    f"{listed(on)}."
                )
        lengths = [lengths.get(name) for name in on]
    if is_number(lengths):
        lengths = [lengths] * len(on)
    if not isinstance(lengths, (list, tuple)) or len(lengths) != len(on):
        raise OptionError(
            f"{given} is not allowed; use a length, a list with a length for each of "
            f"the {len(on)} columns {list(on)!r}, or a dict. Lengths of open columns "
            f"are None in a list, and left out in a dict, such as {{{on[0]!r}: 1.0}}."
        )
    for length in lengths:
        if length is not None and not 0 < as_number(length) < math.inf:
            raise OptionError(
                f"{given} has {shown(length)}; use finite lengths above 0, or None for "
                "a column that is open."
            )
    found = tuple(0.0 if one is None else float(one) for one in lengths)
    return found if any(found) else ()


def several_of(eps: Any, metric: str, p: object) -> tuple[float, ...] | None:
    """Return the distances in a list or an array, in their order; None if `eps` is
    neither of them.

    `metric`, `p`: the options, checked or not. The metric determines which units are
    allowed.
    """
    if isinstance(eps, (set, frozenset, dict)):
        raise OptionTypeError(
            f"eps={shown(eps)} has no order, but the result lists distances in order; "
            "use a list, such as "
            f"eps={shown(sorted(value for value in eps if is_number(value)))}."
        )
    # a Series usually has one distance per row, which needs the name of a column
    one = (
        isinstance(eps, (str, bytes))
        or not isinstance(eps, Iterable)
        or type(eps).__name__ == "Series"
    )
    if one or getattr(eps, "ndim", 1) == 0:
        return None
    if getattr(eps, "ndim", 1) > 1:
        raise OptionTypeError(
            f"eps={shown(eps)} has {eps.ndim} dimensions; use a list of numbers."
        )
    some = eps.tolist() if hasattr(eps, "tolist") else list(eps)
    if not some:
        raise OptionError(
            "eps=[] names no distance; use a number, or a list of at least one number."
        )
    kind, _ = check_metric(metric, p)
    names = [f"eps[{n}]" for n in range(len(some))]
    return tuple(
        check_distance(value, kind, name)
        for value, name in zip(some, names, strict=True)
    )


def within_several(spec: JoinSpec, several: tuple[float, ...] | None) -> JoinSpec:
    """Return a spec that counts within several distances; None: within its own."""
    if several is None:
        return spec

    def threshold(eps: float) -> tuple[float, float]:
        return float(spec.measure.threshold(eps)), eps

    # choose the distance with the largest threshold, which finds all pairs; after
    # rounding, several may have it
    eps = max(several, key=threshold)
    return replace(spec, limit=spec.limit._replace(eps=eps, several=several))


def check_once(several: tuple[float, ...]) -> None:
    """Raise an error if a distance is repeated, because each distance is the name of a
    column.
    """
    twice = [eps for n, eps in enumerate(several) if eps in several[:n]]
    if twice:
        raise OptionError(
            f"eps={shown(list(several))} names {twice[0]} more than once, but the "
            "result has one column per "
            "distance; name each once."
        )
