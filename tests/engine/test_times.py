"""Times, dates and time spans as integers, in the unit of their dtype."""

import datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dask_simjoin.engine.times import holds_times, times_of, unit_of_times
from dask_simjoin.errors import ColumnError

EPOCH = datetime.date(1970, 1, 1)


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [
        (np.dtype("M8[s]"), "ms"),
        (np.dtype("m8[us]"), "us"),
        (pd.DatetimeTZDtype("ns", "UTC"), "ns"),
        (pd.ArrowDtype(pa.date32()), "ms"),
        (np.dtype(object), "ms"),
    ],
)
def test_units(dtype, unit):
    assert unit_of_times(dtype) == unit


def test_values_and_missing_values():
    dates = pd.Series([EPOCH, None, EPOCH + datetime.timedelta(1)], dtype=object)
    for column in (dates, pd.to_datetime(dates), dates.astype("date32[pyarrow]")):
        assert holds_times(column)
        times, missing = times_of(column, "ms", "keep")
        assert missing.tolist() == [False, True, False]
        assert times[[0, 2]].tolist() == [0, 86_400_000]


def test_other_columns():
    lists = pd.Series([[1.0], [2.0]], dtype=object)
    assert not holds_times(lists) and not holds_times(pd.Series([1]))
    with pytest.raises(ColumnError, match="keep= names 'a' of dtype object"):
        times_of(lists.rename("a"), "ms", "keep")
    zones = pd.Series([pd.Timestamp(0, tz=zone) for zone in ("UTC", "Europe/Berlin")])
    with pytest.raises(ColumnError, match=r"several time zones.*utc=True"):
        times_of(zones.rename("a"), "ms", "keep")
    late = pd.Series([2**62], dtype="datetime64[s]")
    with pytest.raises(ColumnError, match="beyond the range of the unit 'ms'"):
        times_of(late, "ms", "keep")
