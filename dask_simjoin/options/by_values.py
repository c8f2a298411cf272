"""Values that `by` compares: which of two dtypes can be equal, and the number of each group."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.engine.ids import decoded, joined, listed_values, rounded_together
from dask_simjoin.engine.lists import arrow_type
from dask_simjoin.errors import TABLES, ColumnError
from dask_simjoin.metrics.types import Array, DType, Frame, Ids, Series
from dask_simjoin.options.columns import kind_of_number
from dask_simjoin.options.messages import shown

MOST = 2.0**1000
"""Largest number of a group, as a coordinate: finite, with room to spare."""

NUMBERS, TEXTS, OBJECTS = "numbers", "texts", "objects"

OF_ARROW = {
    "bytes": (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary),
    "dates": (pa.types.is_date,),
    "times of day": (pa.types.is_time,),
    "decimal numbers": (pa.types.is_decimal,),
    TEXTS: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
}
"""Kinds of Arrow's values that are objects in Python."""

ALSO_OBJECTS = {OBJECTS, *OF_ARROW}
"""Kinds of which an object of Python may be equal to a value."""


def kind_of(dtype: DType) -> str:
    """Name what values of a dtype are; values of two kinds are never equal, but for objects."""
    categories = getattr(dtype, "categories", None)
    if categories is not None:
        return kind_of(categories.dtype)
    arrow = arrow_type(dtype)
    if arrow is not None and pa.types.is_dictionary(arrow):
        return kind_of(pd.ArrowDtype(arrow.value_type))
    for kind, tests in OF_ARROW.items():
        if arrow is not None and any(is_kind(arrow) for is_kind in tests):
            return kind
    if kind_of_number(dtype):
        return NUMBERS
    if isinstance(dtype, pd.StringDtype):
        return TEXTS
    if isinstance(dtype, pd.IntervalDtype):
        return f"intervals closed on {dtype.closed} of {kind_of(dtype.subtype)}"
    if getattr(dtype, "kind", "") == "M":
        zone = getattr(dtype, "tz", None) if arrow is None else arrow.tz
        return "times without a time zone" if zone is None else "times with a time zone"
    if getattr(dtype, "kind", "") == "m":
        return "time spans"
    return OBJECTS if isinstance(dtype, np.dtype) and dtype.kind == "O" else str(dtype)


def check_kinds(name: Hashable, dtypes: list[DType]) -> None:
    """Refuse columns of two tables whose values are never equal."""
    kinds = set(map(kind_of, dtypes))
    if len(kinds) > 1 and not (OBJECTS in kinds and kinds <= ALSO_OBJECTS):
        raise _never_equal(name, [f"of dtype {dtype}" for dtype in dtypes])


def _never_equal(name: Hashable, held: list[str]) -> ColumnError:
    sides = [f"{what} in the {table} table" for what, table in zip(held, TABLES, strict=True)]
    return ColumnError(
        f"by= names {name!r}, which is {' and '.join(sides)}: no value of one is equal to one of the other; "
        "convert one of them."
    )


def _check_values(name: Hashable, parts: list[Ids]) -> None:
    """Refuse distinct values of two tables that by their dtypes, or by what objects are, are never equal."""
    if len(parts) < 2 or not all(map(len, parts)):
        return
    dtypes = [part.dtype for part in parts]
    check_kinds(name, dtypes)
    if set(map(kind_of, dtypes)) != {OBJECTS, TEXTS}:
        return
    objects = parts[[kind_of(dtype) for dtype in dtypes].index(OBJECTS)]
    if not any(isinstance(value, str) for value in objects):
        some = f"objects, such as {shown(objects[0])},"
        raise _never_equal(name, [some if part is objects else "texts" for part in parts])


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
    dtypes = {str(some.dtype): some.dtype for some in (own, *parts)}
    kinds = set(map(kind_of, dtypes.values()))
    if len(dtypes) == 1 or (len(kinds) == 1 and kinds <= {NUMBERS, TEXTS} and not rounded_together(*parts)):
        every = joined(parts).drop_duplicates()
        return every.get_indexer(own), len(every)
    places: dict[Any, int] = {}
    for part in parts:
        for value in listed_values(part):
            places.setdefault(value, len(places))
    return np.array([places.get(value, -1) for value in listed_values(own)], np.int64), len(places)
