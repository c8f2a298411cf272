"""Read distances with units: "500 m", "1 arcsec"."""

from __future__ import annotations

import math
import re

from dask_simjoin.errors import OptionError
from dask_simjoin.metrics.distances import Cosine, Metric
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.options.messages import did_you_mean, shown

LENGTHS = {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3, "ft": 0.3048, "mi": 1609.344, "nmi": 1852.0}
"""Metres."""

ANGLES = {"rad": 1.0, "deg": math.pi / 180, "arcmin": math.pi / 10_800, "arcsec": math.pi / 648_000,
          "mas": math.pi / 648_000_000}  # fmt: skip
"""Radians."""

WORDS = {
    "meter": "m", "meters": "m", "metre": "m", "metres": "m", "kilometer": "km", "kilometers": "km",
    "kilometre": "km", "kilometres": "km", "foot": "ft", "feet": "ft", "mile": "mi", "miles": "mi",
    "degree": "deg", "degrees": "deg", "°": "deg", "arcminute": "arcmin", "arcminutes": "arcmin",
    "'": "arcmin", "arcsecond": "arcsec", "arcseconds": "arcsec", '"': "arcsec", "radian": "rad",
    "radians": "rad",
}  # fmt: skip
"""What else units are called."""

WITH_UNIT = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([^\W\d_]+|[°'\"])\s*")


def parsed(text: object) -> tuple[float, str] | None:
    """The number and the unit of a text, if it is of such a form.

    Examples
    --------
    >>> parsed("1.5 kilometres"), parsed("radius")
    ((1.5, 'km'), None)
    """
    found = WITH_UNIT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    unit = found[2] if found[2] in LENGTHS or found[2] in ANGLES else found[2].lower()
    return float(found[1]), WORDS.get(unit, unit)


def metres(text: object, name: str) -> float | None:
    """Metres of a text with a unit of length; None: it is no such text, or of an angle."""
    found = parsed(text)
    if found is None or found[1] in ANGLES:
        return None
    number, unit = found
    if unit not in LENGTHS:
        raise _unknown(text, unit, name, [*LENGTHS, *ANGLES])
    return number * LENGTHS[unit]


def without_unit(eps: object, metric: Metric, name: str) -> object:
    """A distance as a number of the metric's unit, if it is text with a unit; all else as it is.

    Of "haversine" lengths, or angles seen from the Earth's centre; of "cosine" angles between rows.

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
    angular = metric.name == Cosine.name
    units = list(ANGLES) if angular else [*LENGTHS, *ANGLES] if metric.unit else []
    if not units:
        raise OptionError(
            f"{name}={shown(eps)} has a unit, and metric={metric.name!r} has that of the columns; use a "
            "plain number in it, or metric='haversine' of latitudes and longitudes in degrees."
        )
    if unit not in units:
        raise _unknown(eps, unit, name, units)
    if number < 0:
        raise OptionError(f"{name}={shown(eps)} is not allowed; use a distance >= 0.")
    if angular:
        return 2 * math.sin(min(number * ANGLES[unit], math.pi) / 2) ** 2
    return number * LENGTHS[unit] if unit in LENGTHS else number * ANGLES[unit] * RADIUS


def _unknown(eps: object, unit: str, name: str, units: list[str]) -> OptionError:
    return OptionError(
        f"{name}={shown(eps)} is in {unit!r}, which is no unit here{did_you_mean(unit, units)}; use a "
        f"number, or one of {', '.join(map(repr, units))}."
    )
