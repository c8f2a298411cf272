"""Columns of times, dates and time spans as integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.catalog import NANOSECONDS, arrow_type, may_be_times
from dask_simjoin.engine.compat import any_of, on_gpu, values_of
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.norms import Array, DType, Series


def holds_times(column: Series) -> bool:
    """Return whether a column holds times, dates or time spans."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        kind = None if on_gpu(column) else pd.api.types.infer_dtype(column, skipna=True)
        return kind == "date"
    return may_be_times(dtype)


def unit_of_times(dtype: DType) -> str:
    """Return the unit for comparisons of times: "ms", "us" or "ns"."""
    unit = _own_unit(dtype)
    return unit if unit in ("us", "ns") else "ms"


def times_of(column: Series, unit: str, option: str) -> tuple[Array, Array]:
    """Return the times of a column as int64 in a unit, and which of them are missing.

    `option`: the option that names the column, for messages.
    """
    try:
        return (_on_gpu if on_gpu(column) else _on_host)(column, unit)
    except (pa.ArrowInvalid, pd.errors.OutOfBoundsDatetime, OverflowError, ValueError):
        holds = (
            f"other values than times, or times beyond the range of the unit {unit!r}. "
            "Convert the column with pandas.to_datetime()"
        )
        if column.dtype == object and _has_zones(column):
            holds = (
                "times of several time zones. Convert them to one zone with "
                "pandas.to_datetime(..., utc=True)"
            )
        raise ColumnError(
            f"{option}= names {column.name!r} of dtype {column.dtype}. It holds {holds}."
        ) from None


def _has_zones(column: Series) -> bool:
    """Return whether any value of a column of objects is a time with a time zone."""
    return any(getattr(value, "tzinfo", None) is not None for value in column)


def _own_unit(dtype: DType) -> Any:
    """Return the unit of times of this dtype; None if it has none."""
    arrow = arrow_type(dtype)
    if isinstance(dtype, np.dtype) and dtype.kind in "mM":
        return np.datetime_data(dtype)[0]
    return getattr(dtype if arrow is None else arrow, "unit", None)


def _on_host(column: Series, unit: str) -> tuple[np.ndarray, np.ndarray]:
    arrow = arrow_type(column.dtype)
    if arrow is not None:
        values = pa.chunked_array([column.array.__arrow_array__()])
        span = pa.types.is_duration(arrow)
        zone = getattr(arrow, "tz", None)
        kind = pa.duration(unit) if span else pa.timestamp(unit, zone)
        if pa.types.is_date(arrow):
            values = values.cast(pa.timestamp("ms"))
        missing = values.is_null().to_numpy()
        whole = values.cast(kind).cast(pa.int64()).fill_null(0)
        return whole.to_numpy(), missing
    if column.dtype == object:
        if pd.api.types.infer_dtype(column, skipna=True) not in ("date", "empty"):
            raise ValueError
        column = pd.to_datetime(column)
    span = getattr(column.dtype, "kind", "") == "m"
    index = (pd.TimedeltaIndex if span else pd.DatetimeIndex)(column)
    return index.as_unit(unit).asi8, np.asarray(index.isna())


def _on_gpu(column: Series, unit: str) -> tuple[Array, Array]:
    """Do the work of `times_of` on a GPU. cuDF would wrap times beyond the range of a
    unit.
    """
    own = _own_unit(column.dtype)
    if own is None:
        raise ValueError
    missing = values_of(column.isna())
    whole = values_of(column.astype("int64").fillna(0))
    scale = NANOSECONDS[own] // NANOSECONDS[unit]
    if any_of(abs(whole) > (2**63 - 1) // scale):
        raise ValueError
    return whole * scale, missing
