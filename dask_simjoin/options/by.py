"""Join within groups: rows are pairs only where columns that `by` names are equal.

Each group has a number, and a column of these, times a distance that no pair has, is one more coordinate:
see `dask_simjoin.metrics.grouped`.  Numbers are looked up among the distinct values of all partitions, which
are found by a reduction when the join is planned.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import pandas as pd
from dask.base import is_dask_collection

from dask_simjoin.engine.compat import on_gpu
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.grouped import separation
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.by_values import MOST, OBJECTS, check_kinds, distinct, group_codes, kind_of
from dask_simjoin.options.columns import (
    as_names,
    check_column_exists,
    check_columns,
    free_name,
    has_column,
)
from dask_simjoin.options.frames import example_of
from dask_simjoin.options.messages import NO_UNICODE, listed, shown
from dask_simjoin.options.several import several_of
from dask_simjoin.options.units import without_unit
from dask_simjoin.options.validate import check_eps, check_metric

BOUNDS = ("eps", "max_eps", "max_distance")
"""Options that are the largest distance of a pair."""


class Groups(NamedTuple):
    """Hold the columns that `by` names, and what the column with the numbers of groups is called."""

    names: tuple[Hashable, ...]
    code: str


def groups_of(by: Groups | None) -> tuple[tuple[Hashable, ...], tuple[str, ...]]:
    """The columns that `by` names, and the one that was added for them."""
    return ((), ()) if by is None else (by.names, (by.code,))


def with_groups(frame: Frame, options: Mapping[str, Any]) -> tuple[Frame, dict[str, Any], list[str]]:
    """Add the numbers of groups to a frame, and to the right table among the options, where `by` is given.

    The names of columns that were added come last.
    """
    given, by = dict(options), options.get("by")
    if by is None or isinstance(by, Groups):  # which the verb that called this one has added
        return frame, given, []
    other = given.get("other")
    tables = [frame] if other is None else [frame, other]
    examples = [example_of(table) for table in tables]
    whole = isinstance(by, tuple) and all(has_column(example.columns, by) for example in examples)
    names = (by,) if whole else tuple(as_names(by))
    check_names(names, examples)
    keys = _compared(tables, list(names))
    for name in names:
        _check_dtypes(name, keys)
    scale = _scale(examples[0], given)
    code = free_name(f"by={','.join(map(str, names))}", examples)
    values = [_distinct_of(key[[name]]) for name in names for key in keys]
    if not is_dask_collection(frame):  # at once, as all of it
        values = [_held(some) for some in values]
    coded = [
        _with_codes(table, key, list(names), scale, values, code)
        for table, key in zip(tables, keys, strict=True)
    ]
    given["by"] = Groups(names, code)
    if other is not None:
        given["other"] = coded[1]
    return coded[0], given, [code]


def check_names(names: tuple[Hashable, ...], examples: list[Frame]) -> None:
    """Refuse columns that tables do not have."""
    if not names:
        raise ColumnError("by=[] names no column; name at least one, or leave out by=.")
    for example in examples:
        check_columns(example)
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ColumnError(f"by= names {name!r} more than once; name each column once.")
        for example in examples:
            check_column_exists("by", name, [example])


def _compared(tables: list[Frame], names: list[Hashable]) -> list[Frame]:
    """The columns of each table that are compared; objects as the texts that Dask makes of them.

    Dask makes texts of the objects of a pandas DataFrame: those of a plain one beside it become such, too.
    """
    keys = [table[names] for table in tables]
    lazy = [key for key in keys if is_dask_collection(key)]
    if len(lazy) != 1 or len(keys) == 1:
        return keys
    held = lazy[0]._meta
    return [key if key is lazy[0] else _as_texts(key, held, names) for key in keys]


def _as_texts(rows: Frame, held: Frame, names: list[Hashable]) -> Frame:
    texts = {
        name: held[name].dtype
        for name in names
        if isinstance(held[name].dtype, pd.StringDtype)
        and not on_gpu(rows[name])
        and kind_of(rows[name]) == OBJECTS
    }
    try:
        return rows.astype(texts) if texts else rows
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"by= names {listed(texts)}, which hold texts in the Dask DataFrame, and in the other one "
            f"{shown(error.object)}, {NO_UNICODE}; or make the Dask DataFrame within "
            "dask.config.set({'dataframe.convert-string': False})."
        ) from None


def _check_dtypes(name: Hashable, keys: list[Frame]) -> None:
    """Refuse columns by their dtypes; of what lazy categories are only the data tell."""
    columns = [(key._meta if is_dask_collection(key) else key)[name] for key in keys]
    if not any(
        is_dask_collection(key) and hasattr(column.dtype, "categories")
        for key, column in zip(keys, columns, strict=True)
    ):
        check_kinds(name, columns)


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


def _with_codes(table: Frame, key: Frame, names: list[Hashable], scale: float, values: list[Any],
                code: str) -> Frame:  # fmt: skip
    sides = len(values) // len(names)
    if not is_dask_collection(table):
        return table.assign(**{code: group_codes(key, names, scale, sides, *map(_held, values))})
    none = [_framed(key._meta[[name]].iloc[:0]) for name in names for _ in range(sides)]
    meta = group_codes(key._meta, names, scale, sides, *none)
    codes = key.map_partitions(group_codes, names, scale, sides, *values, meta=meta)
    return table.assign(**{code: codes})


def _distinct_of(column: Frame) -> Any:
    """The distinct values of a frame of one column, as another one: lazily as what Dask takes for one value.

    Were they rows to it, those of another table would make it shuffle a table to align codes with it.
    """
    if not is_dask_collection(column):
        return _framed(column)
    return column.reduction(_framed, aggregate=_framed, combine=_framed, meta=0)


def _held(values: Any) -> Any:
    return values.compute() if is_dask_collection(values) else values


def _framed(column: Frame) -> Frame:
    return distinct(column.iloc[:, 0]).to_frame("value")
