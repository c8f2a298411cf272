"""Values that `by` compares: which of two dtypes can be equal, and the number of each group."""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.engine.ids import decoded, joined, listed_values, rounded_together
from dask_simjoin.engine.lists import arrow_type
from dask_simjoin.errors import TABLES, ColumnError
from dask_simjoin.metrics.types import Array, Frame, Ids, Series
from dask_simjoin.options.columns import kind_of_number
from dask_simjoin.options.messages import shown

MOST = 2.0**1000
"""Largest number of a group, as a coordinate: finite, with room to spare."""

NUMBERS, DECIMALS, TEXTS, OBJECTS = "numbers", "decimal numbers", "texts", "objects"

OF_ARROW = {
    "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    "dates": (pa.types.is_date,),
    "times of day": (pa.types.is_time,),
    DECIMALS: (pa.types.is_decimal,),
    TEXTS: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
}
"""Kinds of Arrow's values that are objects in Python."""

FAMILIES = ((numbers.Number, np.bool_), str, bytes, datetime.datetime, datetime.date, datetime.time,
            datetime.timedelta, pd.Period, pd.Interval, tuple)  # fmt: skip
"""Classes of objects: those of two of them are never equal. The first counts of which an object is."""


def kind_of(values: Series | Ids) -> str:
    """Name what values are; those of two kinds are never equal, but for objects and decimal numbers."""
    dtype = decoded(values.iloc[:0] if hasattr(values, "iloc") else values[:0]).dtype
    arrow = arrow_type(dtype)
    for kind, tests in OF_ARROW.items():
        if arrow is not None and any(is_kind(arrow) for is_kind in tests):
            return kind
    if kind_of_number(dtype):
        return NUMBERS
    if isinstance(dtype, pd.StringDtype):
        return TEXTS
    if isinstance(dtype, pd.IntervalDtype):
        return f"intervals closed on {dtype.closed}"
    if getattr(dtype, "kind", "") == "M":
        zone = getattr(dtype, "tz", None) if arrow is None else arrow.tz
        return "times without a time zone" if zone is None else "times with a time zone"
    if getattr(dtype, "kind", "") == "m":
        return "time spans"
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return TEXTS if on_gpu(values) else OBJECTS
    return str(dtype)


def check_kinds(name: Hashable, sides: Sequence[Series | Ids]) -> None:
    """Refuse columns of two tables whose dtypes have no value in common."""
    kinds = set(map(kind_of, sides))
    if len(kinds) > 1 and OBJECTS not in kinds and kinds != {NUMBERS, DECIMALS}:
        raise _never_equal(name, sides, "")


def _check_values(name: Hashable, parts: list[Ids]) -> None:
    """Refuse distinct values of two tables of which no object of the one can be equal to one of the other."""
    if len(parts) < 2 or not all(map(len, parts)):
        return
    check_kinds(name, parts)
    if OBJECTS not in map(kind_of, parts):
        return
    one, other = ({_family(kind) for kind in set(map(type, part))} for part in parts)
    if None not in one | other and not one & other:
        raise _never_equal(name, parts, f" ({shown(parts[0][0])} and {shown(parts[1][0])})")


def _family(kind: type) -> object:
    return next((family for family in FAMILIES if issubclass(kind, family)), None)


def _never_equal(name: Hashable, sides: Sequence[Series | Ids], such: str) -> ColumnError:
    held = [f"of dtype {side.dtype} in the {table} table" for side, table in zip(sides, TABLES, strict=True)]
    return ColumnError(
        f"by= names {name!r}, which is {held[0]} and {held[1].replace(' table', ' one')}: no value of one is "
        f"equal to one of the other{such}; convert one of them."
    )


def distinct(column: Series) -> Series:
    """The distinct values of a column in their order, where they have one, without missing ones."""
    try:
        values = decoded(column).dropna().drop_duplicates()
        if values.dtype.kind == "O" and not on_gpu(values):
            values.map(hash)  # which pandas asks for only where it looks for values in no order
    except (TypeError, NotImplementedError):  # of lists, or of what else cannot be looked up
        some = f", such as {shown(column.iloc[0])}" if len(column) else ""
        raise ColumnError(
            f"by= names {column.name!r}, of dtype {column.dtype}, whose values are no single ones{some}; use "
            "columns of numbers, texts, dates or categories."
        ) from None
    try:
        return values.sort_values()
    except TypeError:
        return values


def group_codes(rows: Frame, names: list[Hashable], scale: float, sides: int, *values: Frame) -> Series:
    """Number the groups of rows, as coordinates (n,) float64; NaN where a value is missing.

    `values`: the distinct ones of each column, of each of so many tables, as frames of one column.
    """
    frames = frames_for(rows)
    xp = frames.xp
    code, missing, groups = xp.zeros(len(rows), np.int64), xp.zeros(len(rows), bool), 1
    for k, name in enumerate(names):
        parts = [_keys(some["value"]) for some in values[k * sides : (k + 1) * sides]]
        _check_values(name, parts)
        place, number = _places(_keys(decoded(rows[name])), parts)
        place = xp.asarray(place)
        groups *= max(number, 1)
        if groups * scale > MOST or groups >= 2**53:
            raise ColumnError(f"by= names columns that make {groups:,} groups; use a smaller distance.")
        code, missing = code * number + place, missing | (place < 0)
    coordinate = code * scale
    coordinate[missing] = np.nan
    return frames.series(coordinate, rows.index, None)


def _keys(column: Series) -> Ids:
    """An index of values; there is none of 16-bit floats."""
    if getattr(column.dtype, "kind", "") == "f" and getattr(column.dtype, "itemsize", 8) == 2:
        column = column.astype("Float32" if arrow_type(column.dtype) else "float32")
    return frames_for(column).index(column)


def _places(own: Ids, parts: list[Ids]) -> tuple[Array, int]:
    """Tell the place of each value (n,) among those of all parts, -1: it is missing; and their number."""
    dtypes, kinds = {some.dtype for some in (own, *parts)}, set(map(kind_of, (own, *parts)))
    if len(dtypes) == 1 or (len(kinds) == 1 and kinds <= {NUMBERS, TEXTS} and not rounded_together(*parts)):
        every = joined(parts).drop_duplicates()
        return every.get_indexer(own), len(every)
    places: dict[Any, int] = {}
    for part in parts:
        for value in listed_values(part):
            places.setdefault(value, len(places))
    return np.array([places.get(value, -1) for value in listed_values(own)], np.int64), len(places)
