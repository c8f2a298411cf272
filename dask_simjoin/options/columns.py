"""Find which columns a join is of, as far as their names and dtypes tell."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.engine.lists import lists_of
from dask_simjoin.errors import ColumnError, OptionTypeError
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.types import Columns, DType, Frame, Ids
from dask_simjoin.options.chosen_columns import check_chosen, latitude_and_longitude
from dask_simjoin.options.messages import listed, shown
from dask_simjoin.options.remedies import number_in_text
from dask_simjoin.options.units import parsed
from dask_simjoin.options.wrong_columns import absent, meant_columns, no_number

ROW_ID = "row_id"
"""Name of the column that `with_row_id` adds; never a coordinate unless `on` names it."""


def check_columns(meta: Frame) -> None:
    """Refuse columns that names do not tell apart."""
    if getattr(meta.columns, "nlevels", 1) > 1:
        raise ColumnError(
            "The columns are a MultiIndex, which cannot be joined on; flatten it, "
            "for example df.columns = ['_'.join(c) for c in df.columns]."
        )
    repeated = list(meta.columns[meta.columns.duplicated()].unique())
    if repeated:
        raise ColumnError(
            f"The frame has several columns named {listed(repeated)}; column names must be "
            "unique: rename or drop all but one."
        )


def check_on(meta: Frame, on: Columns, id: Hashable | None, radius: str | None) -> tuple[Hashable, ...]:
    """The coordinates that `on` names, or those that the frame suggests; refuses what cannot be."""
    dtypes = dict(zip(meta.columns, meta.dtypes, strict=True))
    if on is None:
        found = numeric_columns(meta, (id, radius, ROW_ID))
        if not found:
            raise ColumnError(
                f"The frame has no numeric column to join on besides ids and booleans (columns: "
                f"{listed(meta.columns)}); name the coordinates with on=[...]. Numbers as texts or objects, "
                "such as Decimal, become coordinates by df.astype({...: 'float64'})."
            )
        for name in found:
            check_label("on", name, meta.columns)
        check_chosen(kinds_of(meta, found))
        return tuple(found)
    if isinstance(on, (set, frozenset)):
        raise ColumnError(
            f"on={shown(on)} has no order, and squares are summed in the order of on=; use a list."
        )
    names = as_names(on)
    if isinstance(on, tuple) and has_column(meta.columns, on):
        names = [on]
    if not names:
        raise ColumnError(
            f"on={shown(on)} names no column; name at least one, or leave out on= for all numeric columns."
        )
    for name in names:
        check_column_exists("on", name, [meta])
        if names.count(name) > 1:
            raise ColumnError(f"on= names {name!r} more than once; name each column once.")
        if kind_of_number(dtypes[name]) in ("i", "u", "f", "b"):
            continue
        lists = lists_of(meta[name])
        if lists is not None and len(names) == 1:
            continue
        if lists is not None and lists.kind is not None:
            raise ColumnError(
                f"on= names {name!r} of dtype {dtypes[name]} together with others; a column of lists is "
                f"named alone: on={name!r}."
            )
        raise no_number(name, dtypes[name])
    return tuple(names)


def as_names(given: Any) -> list[Hashable]:
    """What was given as names of columns, or as one of them, as a list."""
    # arrays () have __iter__, and cannot be iterated over
    one = isinstance(given, (str, bytes)) or not hasattr(given, "__iter__") or getattr(given, "ndim", 1) == 0
    return [given] if one else list(given)


def check_columns_of(metric: Metric, on: tuple[Hashable, ...], chosen: bool = False) -> None:
    """Refuse columns that are not those that the metric is of, as far as numbers and names tell.

    `chosen`: they were not named.
    """
    wanted = metric.columns
    if not wanted:
        return
    order = f"on=[{', '.join(repr(name) for name in wanted)}]"
    if len(on) != len(wanted):
        how = f"without on= there are {len(on)} numeric ones" if chosen else f"on= names {len(on)}"
        raise ColumnError(
            f"metric={metric.name!r} is of {len(wanted)} columns, {' and '.join(wanted)}, and {how}: "
            f"{listed(on)}; name them in this order, such as {order}."
        )
    if latitude_and_longitude(on) == (1, 0):
        raise ColumnError(
            f"metric={metric.name!r} is of {' and '.join(wanted)} in this order, and by their names "
            f"{listed(on)} are the other way round; use on=[{listed(on[::-1])}]."
        )


def own_radius(meta: Frame, eps: object) -> str | None:
    """The column of rows' own distances, if that is what `eps` names; refuses one that has none."""
    if not isinstance(eps, str):
        return None
    if not has_column(meta.columns, eps):
        if parsed(eps):
            return None
        meant = meant_columns(eps, meta.columns)
        raise OptionTypeError(
            f"eps={shown(eps)} is not a number; use a finite number >= 0{number_in_text(eps)}, or the name "
            f"of a column of each row's own distance: none is called so{meant}; the columns are "
            f"{listed(meta.columns)}."
        )
    if kind_of_number(meta[eps].dtype) not in ("i", "u", "f"):
        raise ColumnError(
            f"eps={eps!r} names a column of dtype {meta[eps].dtype}, which holds no distances; name a column "
            "of real numbers, or use a number for all rows."
        )
    return eps


def numeric_columns(meta: Frame, besides: Collection[Hashable]) -> list[Hashable]:
    """The columns of real numbers, those of truth values and some others left out."""
    kinds = zip(meta.columns, meta.dtypes, strict=True)
    return [name for name, dtype in kinds if name not in besides and kind_of_number(dtype) in ("i", "u", "f")]


def kinds_of(meta: Frame, names: Iterable[Hashable]) -> dict[Hashable, str]:
    """NumPy's letter for the kind of number of some columns."""
    dtypes = dict(zip(meta.columns, meta.dtypes, strict=True))
    return {name: kind_of_number(dtypes[name]) for name in names}


def check_column_exists(option: str, name: Hashable, tables: list[Frame]) -> None:
    """Refuse the name of a column that none of the tables has."""
    having = [table for table in tables if has_column(table.columns, name)]
    if not having:
        raise absent(option, name, tables)
    for table in having:
        check_label(option, name, table.columns)


def kind_of_number(dtype: DType) -> str:
    """NumPy's letter for the kind of number, or "" for what cannot be a coordinate."""
    kind = str(getattr(dtype, "kind", ""))
    size = getattr(dtype, "itemsize", 8)
    return kind if kind in "iufb" and size <= 8 else ""


def check_label(option: str, name: Hashable, columns: Ids) -> None:
    """Refuse labels by which pandas takes no column: it takes truth values for a mask, and finds no None."""
    of_column = next((label for label in columns if label is name or (label == name) is True), name)
    if isinstance(of_column, (bool, np.bool_)) or (pd.api.types.is_scalar(of_column) and pd.isna(of_column)):
        raise ColumnError(
            f"{option}= names the column {of_column!r}, a label by which pandas and Dask do not find columns "
            f"reliably; rename it first: df.rename(columns={{{of_column!r}: 'name'}})."
        )


def free_name(name: str, tables: Iterable[Frame]) -> str:
    """Make a name for a new column that none of the tables has."""
    taken = {label for table in tables for label in table.columns}
    while name in taken:
        name += "'"
    return name


def has_column(columns: Ids, name: Hashable) -> bool:
    """Whether there is a column of that name; refuses what cannot be one."""
    try:
        return name in columns
    except (TypeError, OverflowError):  # pandas 2 makes an integer of infinity where columns are numbered
        raise ColumnError(
            f"{shown(name)} cannot be the name of a column; columns are given by their names, as in "
            "['latitude', 'longitude']."
        ) from None
