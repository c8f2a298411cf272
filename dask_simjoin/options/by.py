"""Join within groups: rows are pairs only where columns that `by` names are equal.

Each group has a number, and a column of these, times a distance that no pair has, is one more coordinate:
see `dask_simjoin.metrics.grouped`.  Numbers are looked up among the distinct values of all partitions, which
are found by a reduction when the join is planned.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from dask.base import is_dask_collection

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.engine.ids import decoded, listed_values, rounded_together
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.grouped import separation
from dask_simjoin.metrics.types import Array, Columns, Frame, Ids, Series
from dask_simjoin.options.columns import (
    as_names,
    check_column_exists,
    check_columns,
    has_column,
    kind_of_number,
)
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.messages import shown
from dask_simjoin.options.several import several_of
from dask_simjoin.options.units import without_unit
from dask_simjoin.options.validate import check_eps, check_metric

BOUNDS = ("eps", "max_eps", "max_distance")
"""Options that are the largest distance of a pair."""

MOST = 2.0**1000
"""Up to which numbers of groups, as coordinates, are finite with room to spare."""


def names_of(by: Columns) -> tuple[Hashable, ...]:
    """The columns that `by` names."""
    return () if by is None else tuple(as_names(by))


def code_column(by: Columns) -> str:
    """Name the column of the numbers of groups."""
    return f"by={','.join(map(str, names_of(by)))}"


def with_groups(frame: Frame, options: Mapping[str, Any]) -> tuple[Frame, dict[str, Any], list[str]]:
    """Add the numbers of groups to a frame, and to the right table among the options, where `by` is given.

    The names of columns that were added come last.
    """
    given, by = dict(options), options.get("by")
    if by is None:
        return frame, given, []
    other = given.get("other")
    tables = [frame] if other is None else [frame, other]
    examples = [example_of(table) for table in tables]
    if isinstance(by, tuple) and all(has_column(example.columns, by) for example in examples):
        given["by"] = by = [by]
    names = names_of(by)
    check_names(names, examples)
    scale, code = _scale(examples[0], given), code_column(by)
    values = {name: [_distinct_of(table[name]) for table in tables] for name in names}
    if not is_dask_collection(frame):  # at once, as all of it
        values = {name: [_held(some) for some in each] for name, each in values.items()}
    coded = [_with_codes(table, list(names), scale, values, code) for table in tables]
    if other is not None:
        given["other"] = coded[1]
    return coded[0], given, [code]


def check_names(names: tuple[Hashable, ...], examples: list[Frame]) -> None:
    """Refuse columns that tables do not have, or that cannot be compared."""
    if not names:
        raise ColumnError("by=[] names no column; name at least one, or leave out by=.")
    for example in examples:
        check_columns(example)
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ColumnError(f"by= names {name!r} more than once; name each column once.")
        for example in examples:
            check_column_exists("by", name, [example])
        numbers = {bool(kind_of_number(example[name].dtype)) for example in examples}
        if len(numbers) > 1:
            raise ColumnError(
                f"by= names {name!r}, which is of dtype {examples[0][name].dtype} in the left table and of "
                f"{examples[1][name].dtype} in the right one; convert one of them."
            )


def _scale(example: Frame, given: Mapping[str, Any]) -> float:
    """How far groups lie apart."""
    bound = next((name for name in BOUNDS if given.get(name) is not None), None)
    if bound is None:
        raise OptionError(
            "by= needs a largest distance, which nearest neighbours in other groups would be beyond; use "
            "max_distance=, however large (eps= of a plan)."
        )
    asked = given[bound]
    if isinstance(asked, str) and has_column(example.columns, asked):
        raise OptionError(
            f"{bound}={asked!r} names a column, which by= does not serve; use one distance for all rows, or "
            "filter the pairs of a join without by= by columns that keep= keeps."
        )
    named = given.get("metric", "euclidean"), given.get("p", 2)
    metric, _ = check_metric(*named)
    several = several_of(asked, *named) if bound == "eps" else None
    each = several or (check_eps(without_unit(asked, metric, bound), bound),)
    scale = max(separation(metric, eps) for eps in each)
    if not math.isfinite(scale) or scale > MOST:
        raise OptionError(
            f"{bound}={shown(asked)} is too large for by=: no number is beyond all "
            "distances; use a smaller one."
        )
    return scale


def _with_codes(table: Frame, names: list[Hashable], scale: float, values: dict[Hashable, list[Any]],
                code: str) -> Frame:  # fmt: skip
    sides = len(next(iter(values.values())))
    distinct = [some for name in names for some in values[name]]
    if not is_dask_collection(table):
        held = map(_held, distinct)
        return table.assign(**{code: group_codes(table[names], names, scale, sides, *held)})
    none = [_framed(table._meta[name].iloc[:0]) for name in names for _ in range(sides)]
    meta = group_codes(table._meta[names], names, scale, sides, *none)
    codes = table[names].map_partitions(group_codes, names, scale, sides, *distinct, meta=meta)
    return table.assign(**{code: codes})


def _distinct_of(column: Series) -> Any:
    """The distinct values of a column, as a frame of one column: lazily as what Dask takes for one value.

    Were they rows to it, those of another table would make it shuffle a table to align codes with it.
    """
    if not is_dask_collection(column):
        return _framed(column)
    steps = {"aggregate": distinct_of_parts, "combine": distinct_of_parts}
    return column.reduction(_framed, **steps, meta=0)


def _held(values: Any) -> Any:
    return values.compute() if is_dask_collection(values) else values


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


def _framed(column: Series) -> Frame:
    return distinct(column).to_frame("value")


def distinct_of_parts(parts: Frame) -> Frame:
    """The distinct values of several parts, as a frame of one column."""
    return _framed(parts["value"])


def group_codes(rows: Frame, names: list[Hashable], scale: float, sides: int, *values: Frame) -> Series:
    """Number the groups of rows, as coordinates (n,) float64; NaN where a value is missing.

    `values`: the distinct ones of each column, of each of so many tables, as frames of one column.
    """
    frames = frames_for(rows)
    xp = frames.xp
    code, missing, groups = xp.zeros(len(rows), np.int64), xp.zeros(len(rows), bool), 1
    for k, name in enumerate(names):
        parts = [frames.index(some["value"]) for some in values[k * sides : (k + 1) * sides]]
        place, number = _places(frames.index(decoded(rows[name])), parts)
        place = xp.asarray(place)
        groups *= max(number, 1)
        if groups * scale > MOST or groups >= 2**53:
            raise ColumnError(f"by= names columns that make {groups:,} groups; use a smaller distance.")
        code, missing = code * number + place, missing | (place < 0)
    coordinate = code * scale
    coordinate[missing] = np.nan
    return frames.series(coordinate, rows.index, None)


def _places(own: Ids, parts: list[Ids]) -> tuple[Array, int]:
    """Tell the place of each value (n,) among those of all parts, -1: it is missing; and their number."""
    if not rounded_together(*parts):
        every = (parts[0] if len(parts) == 1 else parts[0].append(parts[1:])).drop_duplicates()
        return every.get_indexer(own), len(every)
    places: dict[Any, int] = {}
    for part in parts:
        for value in listed_values(part):
            places.setdefault(value, len(places))
    return np.array([places.get(value, -1) for value in listed_values(own)], np.int64), len(places)
