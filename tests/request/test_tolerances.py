"""Tolerances are parsed exactly, and others are refused with what to use."""

import datetime
import math

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError, OptionTypeError
from dask_simjoin.metrics.gates import NUMBERS, OPEN, RELATIVE, TIMES, Gate
from dask_simjoin.request.tolerances import (
    check_within,
    rule_of_numbers,
    rule_of_times,
)


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (0, Gate(NUMBERS, 0.0, 0.0)),
        (0.5, Gate(NUMBERS, -0.5, 0.5)),
        (np.float32(2), Gate(NUMBERS, -2.0, 2.0)),
        ((-1, 0.5), Gate(NUMBERS, -1.0, 0.5)),
        ((None, 0.5), Gate(NUMBERS, -math.inf, 0.5)),
        ([0, None], Gate(NUMBERS, 0.0, math.inf)),
        ("5 %", Gate(RELATIVE, high=0.05)),
        (" .1%", Gate(RELATIVE, high=0.001)),
    ],
)
def test_numbers(value, rule):
    assert rule_of_numbers("price", value) == rule


@pytest.mark.parametrize(
    ("value", "unit", "bounds"),
    [
        ("10 min", "ms", (-600_000, 600_000)),
        ("1.5 us", "us", (-1, 1)),
        (("-1 h", "0 h"), "ms", (-3_600_000, 0)),
        (("-1.5 us", "1.5 us"), "us", (-1, 1)),
        (("0.5 us", "2.5 us"), "us", (1, 2)),
        (pd.Timedelta("1 s"), "ns", (-(10**9), 10**9)),
        (datetime.timedelta(days=1), "ms", (-86_400_000, 86_400_000)),
        (np.timedelta64(3, "ns"), "ns", (-3, 3)),
        ("00:00:02", "ms", (-2000, 2000)),
        (("-1 d", "1d 2 h"), "s", (-86_400, 93_600)),
        ((None, "-1 ns"), "s", (-OPEN, -1)),
        (("1 ns", None), "ns", (1, OPEN)),
    ],
)
def test_durations(value, unit, bounds):
    assert rule_of_times("t", value, unit) == Gate(TIMES, *bounds)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1, "a tolerance >= 0. For a range, use a pair"),
        ("10 min", "Column 'c' holds numbers: use a finite number"),
        (math.nan, "use a finite number, such as 0.5, or a percentage"),
        ("100 %", "Use less than 100 %"),
        ((1, 0), "is an empty range; name the smaller bound first"),
        ((1, 2, 3), "a range is a pair"),
        ((None, None), "allows all values; name at least one bound, or leave out 'c'"),
        (("-5 %", "5 %"), "A range takes numbers, not percentages"),
        (True, "use a finite number"),
    ],
)
def test_other_tolerances_of_numbers(value, text):
    with pytest.raises(OptionError) as caught:
        rule_of_numbers("c", value)
    assert "within={'c': " in str(caught.value) and text in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [
        5,
        "5",
        "5 %",
        "1 parsec",
        "1000 years",
        ("1 h", 3),
        None,
        "NaT",
        pd.Timedelta.max,
    ],
)
def test_other_tolerances_of_times(value):
    with pytest.raises(OptionError, match=r"holds times: use a duration of less than"):
        rule_of_times("c", value, "ns")


@pytest.mark.parametrize("value", ["10 min", ["time"], 5, {"time"}])
def test_tolerances_without_a_dict(value):
    with pytest.raises(OptionTypeError, match=r"use a dict with a tolerance for each"):
        check_within(value)
    with pytest.raises(OptionError, match="names no column"):
        check_within({})
