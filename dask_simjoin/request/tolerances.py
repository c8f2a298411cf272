"""Parse the tolerances of ``within=``: numbers, durations, percentages and ranges."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dask_simjoin.catalog import NANOSECONDS
from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.gates import NUMBERS, OPEN, RELATIVE, TIMES, Gate
from dask_simjoin.request.messages import shown
from dask_simjoin.request.units import duration, is_number

PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\s*")

Tolerance = Any
"""A value of `within`: a number, a duration, a text, or a pair of them."""


class Range(NamedTuple):
    """How far the right row's value may be above the left row's value: numbers, or
    nanoseconds. A side is infinite if it is open.
    """

    low: Any
    high: Any


def check_within(within: object) -> Mapping[Hashable, Tolerance]:
    """Return the option `within`; raise an error if it is not a dict of tolerances."""
    if not isinstance(within, Mapping):
        raise OptionTypeError(
            f"within={shown(within)} is not allowed; use a dict with a tolerance for "
            "each column, such as within={'time': '10 min', 'price': '5 %'}."
        )
    if not within:
        raise OptionError(
            "within={} names no column; name at least one, or leave out within=."
        )
    return within


def is_of_numbers(value: Tolerance) -> bool:
    """Return whether a tolerance can only be for numbers."""
    sides = value if isinstance(value, (tuple, list)) else [value]
    return any(
        is_number(one)
        or isinstance(one, Decimal)
        or (isinstance(one, str) and PERCENT.fullmatch(one) is not None)
        for one in sides
    )


def rule_of_numbers(name: Hashable, value: Tolerance) -> Gate:
    """Return the gate for the tolerance of a column of numbers."""
    share = PERCENT.fullmatch(value) if isinstance(value, str) else None
    if share is not None:
        part = float(Fraction(share[1]) / 100)
        if part >= 1:
            raise OptionError(
                f"{_given(name, value)} is not allowed: with 100 % or more, numbers "
                "of the same sign are never too far apart. Use less than 100 %."
            )
        return Gate(RELATIVE, high=part)
    return Gate(NUMBERS, *_range(name, value, _number))


def rule_of_times(name: Hashable, value: Tolerance, unit: str) -> Gate:
    """Return the gate for the tolerance of a column of times. `unit`: their unit."""
    low, high = _range(name, value, _nanoseconds)
    size = NANOSECONDS[unit]
    return Gate(
        TIMES,
        -OPEN if low == -math.inf else -(-low // size),
        OPEN if high == math.inf else high // size,
    )


def _given(name: Hashable, value: object) -> str:
    return f"within={{{name!r}: {shown(value)}}}"


def _range(name: Hashable, value: Tolerance, parse: Any) -> Range:
    if not isinstance(value, (tuple, list)):
        high = parse(name, value, value)
        if high < 0:
            raise OptionError(
                f"{_given(name, value)} is not allowed; use a tolerance >= 0. For a "
                "range, use a pair such as ('-1 h', '0 h'): how far the right row may "
                "be above the left one."
            )
        return Range(-high, high)
    if len(value) != 2:
        raise OptionError(
            f"{_given(name, value)} is not allowed; a range is a pair, such as "
            "('-1 h', '0 h')."
        )
    if all(one is None for one in value):
        raise OptionError(
            f"{_given(name, value)} allows all values; name at least one bound, or "
            f"leave out {name!r}."
        )
    low, high = (
        side * math.inf if one is None else parse(name, value, one)
        for side, one in zip((-1, 1), value, strict=True)
    )
    if low > high:
        raise OptionError(
            f"{_given(name, value)} is an empty range; name the smaller bound first."
        )
    return Range(low, high)


def _number(name: Hashable, value: Tolerance, one: Any) -> float:
    if not is_number(one) or not math.isfinite(float(one)):
        percent = isinstance(one, str) and PERCENT.fullmatch(one.lstrip(" -+"))
        use = (
            "A range takes numbers, not percentages."
            if percent
            else f"Column {name!r} holds numbers: use a finite number, such as 0.5, or "
            "a percentage, such as '5 %'."
        )
        raise OptionError(f"{_given(name, value)} is not allowed. {use}")
    return float(one)


def _nanoseconds(name: Hashable, value: Tolerance, one: Any) -> int:
    """Return a duration in nanoseconds."""
    is_duration = isinstance(one, (datetime.timedelta, np.timedelta64))
    # pandas takes a text without a unit for nanoseconds
    has_unit = isinstance(one, str) and re.search("[a-zA-Z:]", one) is not None
    if is_duration or has_unit:
        try:
            found = duration(one).as_unit("ns")
        except (ValueError, OverflowError, TypeError):
            found = pd.NaT
        if found is not pd.NaT and abs(found.value) < OPEN:
            return int(found.value)
    raise OptionError(
        f"{_given(name, value)} is not allowed. Column {name!r} holds times: use a "
        "duration of less than 292 years, such as '10 min' or '1.5 s'."
    )
