"""Check data frames, and choose and check the columns of a join."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from dask_simjoin.catalog import (
    arrow_type,
    check_library,
    kind_of_number,
    library,
    lists_of,
)
from dask_simjoin.errors import ColumnError, OptionTypeError, UnsupportedFrameError
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Columns, DType, Frame, Ids
from dask_simjoin.request.column_names import (
    absent,
    check_chosen,
    is_identifier,
    latitude_and_longitude,
    meant_columns,
)
from dask_simjoin.request.conversions import as_floats, as_numbers
from dask_simjoin.request.messages import (
    check_comma,
    instead_of_frame,
    joined,
    listed,
    number_in_text,
    shown,
)
from dask_simjoin.request.units import parsed
from dask_simjoin.sizes import FEW

T = TypeVar("T")


def no_number(
    name: Hashable, dtype: DType, names: Sequence[Hashable], on_sphere: bool = False
) -> ColumnError:
    """Return the error for a column without real numbers; its message suggests a
    conversion. `names`: all columns that `on` names. `on_sphere`: whether the metric
    compares latitudes and longitudes only.
    """
    kind = "numbers"
    if is_decimal(dtype) or getattr(dtype, "kind", "") in ("c", "f"):
        kind = "integers or floats of at most 64 bits"
        kind += ", not decimal numbers" if is_decimal(dtype) else ""
    text = f"on= names {name!r} of dtype {dtype}, but coordinates must be {kind}."
    if getattr(dtype, "kind", "") in ("M", "m"):
        others = [other for other in names if other != name]
        return ColumnError(f"{text} {_for_times(name, dtype, others, on_sphere)}")
    converted = _converted(name, dtype) or "Name numeric columns only."
    return ColumnError(f"{text} {converted}")


def _for_times(
    name: Hashable, dtype: DType, others: list[Hashable], on_sphere: bool
) -> str:
    """Return the remedies for times as coordinates; other coordinates have another
    unit. `on_sphere`: see `no_number`.
    """
    column = f"df[{name!r}]"
    seconds = "" if getattr(dtype, "kind", "") == "m" else f" - {column}.min()"
    source = f"({column}{seconds})" if seconds else column
    convert = f"{column} = {source}.dt.total_seconds()"
    if not others:
        return f"To use the times in seconds: {convert}."
    scaled = (
        ""
        if on_sphere
        else " To use time as a coordinate instead, scale it to the unit of eps: "
        f"{convert} / seconds_per_unit."
    )
    return (
        f"For rows that are near in space and in time, use on=[{listed(others)}] and, "
        f"for example, within={{{name!r}: '10 min'}}.{scaled}"
    )


def _converted(name: Hashable, dtype: Any) -> str:
    """Return sentences about how to convert a column to numbers; "" if there is no way."""
    column, kind = f"df[{name!r}]", getattr(dtype, "kind", "")
    if kind == "c":
        return f"Use two columns, numpy.real({column}) and numpy.imag({column})."
    if is_decimal(dtype) or kind == "f":
        return (
            f"Convert the column: {as_floats(name)}. This rounds each value to the nearest "
            "float64."
        )
    arrow = arrow_type(dtype)
    if arrow is not None and not pa.types.is_dictionary(arrow) and not _is_text(dtype):
        return _converted_arrow(name, arrow)
    if isinstance(dtype, pd.PeriodDtype):
        return f"To count periods: {column} = {column}.astype('int64')."
    if isinstance(dtype, pd.IntervalDtype):
        return f"Use the middles: {column} = pd.IntervalIndex({column}).mid."
    as_texts = (
        f"To compare texts, use edit_self_join({name!r}, k=2) or set_self_join({name!r}, "
        "0.8, tokenizer='words')."
    )
    if isinstance(dtype, pd.CategoricalDtype) or (
        arrow is not None and not _is_text(dtype)
    ):
        return (
            f"If its categories are numbers: {as_floats(name)}. If its values must be equal "
            f"in both rows, use by={name!r}, and name other columns in on=. {as_texts}"
        )
    to_numeric = f"{as_numbers(name)} {as_texts}"
    if _is_text(dtype):
        return f"{of_dask(dtype, name)}If the texts are numbers: {to_numeric}"
    if isinstance(dtype, np.dtype) and kind == "O":
        return (
            "If the column holds numbers as text or as objects, such as Decimal: "
            f"{to_numeric}"
        )
    return f"Convert the column: {as_floats(name)}."


def _is_text(dtype: DType) -> bool:
    arrow = arrow_type(dtype)
    return isinstance(dtype, pd.StringDtype) or (
        arrow is not None and str(arrow) in ("string", "large_string", "string_view")
    )


def _converted_arrow(name: Hashable, kind: pa.DataType) -> str:
    """Return what `_converted` returns, or "", for types that only Arrow has."""
    column, types = f"df[{name!r}]", pa.types
    inner = getattr(kind, "storage_type", kind)  # of tensors: lists
    lists = "astype(pd.ArrowDtype(pa.list_(pa.float64())))"
    if types.is_time(kind):
        return (
            f"To use the times in seconds: {column} = "
            f"pd.to_timedelta({column}.astype(str)).dt.total_seconds()."
        )
    if types.is_struct(kind) and kind.num_fields:
        field = f"{column}.struct.field({kind.field(0).name!r})"
        return f"To use a field: {column} = {field}."
    if types.is_map(kind) or not hasattr(inner, "value_type"):
        return ""
    if types.is_nested(inner.value_type):
        return f"If each value is a matrix: {column} = {column}.map(np.concatenate)."
    if _is_text(pd.ArrowDtype(inner.value_type)):
        return (
            f"If the lists hold numbers as text: {column} = {column}.{lists}. To compare "
            f"lists of words, use set_self_join({name!r}, 0.8)."
        )
    return f"Convert the lists: {column} = {column}.{lists}, with pyarrow as pa."


def of_dask(dtype: DType, name: Hashable) -> str:
    """Return a sentence in case Dask has converted lists to strings; else ""."""
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA:
        return ""
    return (
        f"If {name!r} held lists, Dask has converted them to texts: create the Dask "
        "DataFrame again after dask.config.set({'dataframe.convert-string': False}). "
    )


def is_decimal(dtype: DType) -> bool:
    """Return whether a column has Arrow decimals, which float64 may not represent
    exactly.
    """
    arrow = arrow_type(dtype)
    return arrow is not None and pa.types.is_decimal(arrow)


ROW_ID = "row_id"
"""Name of the column that `with_row_id` adds. It is a coordinate only if `on` names it.
"""


def check_columns(meta: Frame) -> None:
    """Raise an error if column names are not unique, or are a MultiIndex."""
    if getattr(meta.columns, "nlevels", 1) > 1:
        raise ColumnError(
            "The columns are a MultiIndex, which cannot be joined on; flatten it, "
            "for example df.columns = ['_'.join(c) for c in df.columns]."
        )
    repeated = list(meta.columns[meta.columns.duplicated()].unique())
    if repeated:
        raise ColumnError(
            f"The frame has several columns named {listed(repeated)}; column names "
            "must be "
            "unique: rename or drop all but one."
        )


def check_on(
    meta: Frame,
    on: Columns,
    id: Hashable | None,
    radius: str | None,
    on_sphere: bool = False,
    booleans: bool = False,
) -> tuple[Hashable, ...]:
    """Return the coordinates: the columns that `on` names, or all numeric columns, also
    of `booleans` if the metric compares those like numbers.

    Raise an error if one is unsuitable. `on_sphere`: see `no_number`.
    """
    dtypes = dict(zip(meta.columns.tolist(), dtypes_of(meta), strict=True))
    if on is None:
        found = numeric_columns(meta, (id, radius, ROW_ID), booleans)
        if not found:
            kinds = [f"{name!r} of dtype {dtype}" for name, dtype in dtypes.items()]
            raise ColumnError(
                "The frame has no numeric column to join on besides ids and booleans "
                f"(columns: {joined(kinds, FEW)}); name the coordinates with "
                "on=[...]. If numbers are stored as texts, decimals or objects, such as "
                "Decimal, convert these columns: df.astype({...: 'float64'})."
            )
        for name in found:
            check_label("on", name, meta.columns)
        check_chosen(kinds_of(meta, found))
        return tuple(found)
    if isinstance(on, (set, frozenset)):
        raise ColumnError(
            f"on={shown(on)} has no order, but squares are summed in the order of on=; "
            "use a list."
        )
    names = as_names(on)
    if isinstance(on, tuple) and has_column(meta.columns, on):
        names = [on]
    if not names:
        raise ColumnError(
            f"on={shown(on)} names no column; name at least one, or leave out on= for "
            "all numeric columns."
        )
    seen: set[Hashable] = set()
    for name in names:
        check_column_exists("on", name, [meta])
        if name in seen:
            raise ColumnError(
                f"on= names {name!r} more than once; name each column once."
            )
        seen.add(name)
        if kind_of_number(dtypes[name]) in ("i", "u", "f", "b"):
            continue
        lists = lists_of(meta[name])
        if lists is not None and len(names) == 1:
            continue
        if lists is not None and lists.kind is not None:
            raise ColumnError(
                f"on= names {name!r} of dtype {dtypes[name]} and other columns. A "
                "column of lists must "
                f"be the only one: on={name!r}."
            )
        raise no_number(name, dtypes[name], names, on_sphere)
    return tuple(names)


def as_names(given: Any) -> list[Hashable]:
    """Return one name or several names as a list."""
    # the test of `ndim` is for 0-dimensional arrays, which have __iter__ but cannot be
    # iterated over
    one = (
        isinstance(given, (str, bytes))
        or not hasattr(given, "__iter__")
        or getattr(given, "ndim", 1) == 0
    )
    return [given] if one else list(given)


def check_columns_of(
    metric: Metric, on: tuple[Hashable, ...], chosen: bool = False
) -> None:
    """Raise an error if a metric such as haversine needs other columns, or another
    order of columns.

    `chosen`: whether `on` was left out, so that all numeric columns are coordinates.
    """
    wanted = metric.columns
    if not wanted:
        return
    order = f"on=[{', '.join(repr(name) for name in wanted)}]"
    if len(on) != len(wanted):
        how = (
            f"without on= there are {len(on)} numeric ones"
            if chosen
            else f"on= names {len(on)}"
        )
        raise ColumnError(
            f"metric={metric.name!r} needs {len(wanted)} columns, "
            f"{' and '.join(wanted)}, and {how}: "
            f"{listed(on)}; name them in this order, such as {order}."
        )
    if latitude_and_longitude(on) == (1, 0):
        raise ColumnError(
            f"metric={metric.name!r} needs {' and '.join(wanted)} in this order, but "
            f"{listed(on)} "
            f"in on= are in the opposite order; use on=[{listed(on[::-1])}]."
        )


def own_radius(meta: Frame, eps: object) -> str | None:
    """Return the column of distances if `eps` names one, else None.

    Raise an error if the column has no numbers.
    """
    if not isinstance(eps, str):
        return None
    if not has_column(meta.columns, eps):
        if parsed(eps):
            return None
        check_comma("eps", eps)
        instead = number_in_text(eps)
        if instead:
            raise OptionTypeError(
                f"eps={shown(eps)} is not a number; use a finite number >= 0{instead}."
            )
        own = numeric_columns(meta, ()) or list(meta.columns)
        if eps.rstrip().endswith("%"):
            raise OptionTypeError(
                f"eps={shown(eps)} is a percentage, and eps= is a distance. For a "
                "relative tolerance in a column, use within=, such as "
                f"within={{{own[-1]!r}: {shown(eps)}}}."
            )
        meant = meant_columns(eps, meta.columns)
        raise OptionTypeError(
            f"eps={shown(eps)} is neither a number nor a column{meant}. Use a finite "
            "number >= 0, or for one distance per row the name of a column of distances "
            "(self_join() then needs pairs='both'). The numeric columns are "
            f"{listed(own)}."
        )
    if kind_of_number(meta[eps].dtype) not in ("i", "u", "f"):
        convert = (
            f", such as df[{eps!r}].astype('float64')"
            if _is_other_number(meta[eps].dtype)
            else ""
        )
        raise ColumnError(
            f"eps={eps!r} names a column of dtype {meta[eps].dtype}, which holds no "
            "distances; name a column "
            f"of real numbers{convert}, or use a number for all rows."
        )
    return eps


def numeric_columns(
    meta: Frame, besides: Collection[Hashable], booleans: bool = False
) -> list[Hashable]:
    """Return the columns of real numbers, and of `booleans` on request. The columns in
    `besides` are left out.
    """
    wanted = ("i", "u", "f", "b") if booleans else ("i", "u", "f")
    besides = [name for name in besides if name is not None]
    kinds = zip(meta.columns.tolist(), _of_each(kind_of_number, meta), strict=True)
    return [name for name, kind in kinds if kind in wanted and name not in besides]


def dtypes_of(meta: Frame) -> list[DType]:
    """Return the dtypes of a table's columns.

    cuDF's own `dtypes` makes a Series of pandas, which takes longer than all checks of a
    small call.
    """
    if library(meta) == "cudf":
        return [column.dtype for column in meta._columns]
    return list(meta.dtypes)


def _of_each(function: Callable[[DType], T], meta: Frame) -> list[T]:
    """Call a function once for each dtype of a table, and return its result for each
    column.
    """
    dtypes, found = dtypes_of(meta), {}
    for dtype in dtypes:
        if id(dtype) not in found:
            found[id(dtype)] = function(dtype)
    return [found[id(dtype)] for dtype in dtypes]


def left_out(
    meta: Frame, besides: Collection[Hashable]
) -> tuple[tuple[Hashable, str], ...]:
    """Return name and dtype of numeric columns that are not coordinates by default:
    decimals, long doubles and complex numbers. Float64 would round them.

    The columns in `besides`, and identifiers, are not returned.
    """
    besides = [name for name in besides if name is not None]
    return tuple(
        (name, str(dtype))
        for name, dtype, is_other in zip(
            meta.columns, dtypes_of(meta), _of_each(_is_other_number, meta), strict=True
        )
        if is_other and name not in besides and not is_identifier(name, "i")
    )


def _is_other_number(dtype: DType) -> bool:
    if kind_of_number(dtype):
        return False
    if library(dtype) == "cudf":
        # pandas raises an error for cuDF's lists, and takes categories for numbers
        return type(dtype).__name__.startswith("Decimal")
    return bool(pd.api.types.is_numeric_dtype(dtype))


def kinds_of(meta: Frame, names: Iterable[Hashable]) -> dict[Hashable, str]:
    """Return a dict from each column to its kind of number, which is given as NumPy's
    letter.
    """
    each = _of_each(kind_of_number, meta)
    kinds = dict(zip(meta.columns.tolist(), each, strict=True))
    return {name: kinds[name] for name in names}


def check_column_exists(option: str, name: Hashable, tables: list[Frame]) -> None:
    """Raise an error if none of the tables has a column with this name."""
    having = [table for table in tables if has_column(table.columns, name)]
    if not having:
        raise absent(option, name, tables)
    for table in having:
        check_label(option, name, table.columns)


def check_label(option: str, name: Hashable, columns: Ids) -> None:
    """Raise an error for column names that pandas cannot look up: booleans, which
    select rows, and None.
    """
    # most names equal no such label, so that not all columns are compared with each name
    if isinstance(name, str) or (isinstance(name, int) and name not in (0, 1)):
        return
    null = pd.api.types.is_scalar(name) and pd.isna(name)
    if (
        not null
        and not isinstance(name, np.bool_)
        and not _equal(name, 0) | _equal(name, 1)
    ):
        return
    of_column = next(
        (label for label in columns if label is name or _equal(label, name)), name
    )
    of_column = name if isinstance(name, np.bool_) else of_column
    if isinstance(of_column, (bool, np.bool_)) or (
        pd.api.types.is_scalar(of_column) and pd.isna(of_column)
    ):
        raise ColumnError(
            f"{option}= names the column {of_column!r}, a label that pandas and Dask "
            "do not find "
            f"reliably; rename it first: df.rename(columns={{{of_column!r}: 'name'}})."
        )


def _equal(one: Any, other: Any) -> bool:
    found = one == other
    return isinstance(found, (bool, np.bool_)) and bool(found)


def free_name(name: str, tables: Iterable[Frame], used: Iterable[Hashable] = ()) -> str:
    """Return a name that no column of the tables has: `name`, with apostrophes appended
    if needed. `used`: further names that are taken.
    """
    taken = {*used, *(label for table in tables for label in table.columns)}
    while name in taken:
        name += "'"
    return name


def has_column(columns: Ids, name: Hashable) -> bool:
    """Return whether a column has this name; raise an error for values that cannot be
    names.
    """
    try:
        return name in columns
    # TypeError: `name` is unhashable. OverflowError: pandas 2 compares infinity with
    # integers
    except (TypeError, OverflowError):
        raise ColumnError(
            f"{shown(name)} cannot be the name of a column; columns are given by their "
            "names, as in "
            "['latitude', 'longitude']."
        ) from None


class Groups(NamedTuple):
    """The columns that `by` names, and the column of group numbers that was added for
    them.
    """

    names: tuple[Hashable, ...]
    code: str
    others: tuple[Hashable, ...]  # the columns of the right table, if there is one

    @property
    def swapped(self) -> Groups:
        """The same columns, for the tables in the other order."""
        return Groups(self.others, self.code, self.names)


def swapped_conditions(request: Any) -> dict[str, Any]:
    """Return the options `by` and `within` of a request, with the columns of both
    tables exchanged.
    """
    given = {name: getattr(request, name, None) for name in ("by", "within")}
    return {name: value.swapped for name, value in given.items() if value is not None}


def groups_of(by: Groups | None) -> tuple[tuple[Hashable, ...], tuple[str, ...]]:
    """Return the columns that `by` names, and the columns that were added for them."""
    return ((), ()) if by is None else (by.names, (by.code,))


def meta_of(table: Any) -> Any:
    """Return the empty example of a Dask collection; other values unchanged."""
    return getattr(table, "_meta", table) if is_dask_collection(table) else table


def is_frame(frame: object) -> bool:
    """Return whether an object is a data frame of any library."""
    meta = meta_of(frame)
    dims = getattr(meta, "ndim", 0)
    # Dask's Delayed objects have every attribute, so check the type
    return isinstance(dims, int) and dims == 2 and hasattr(meta, "columns")


def example_of(frame: Frame) -> Frame:
    """Return an empty frame with the columns of `frame`; raise an error for other
    objects.
    """
    meta = meta_of(frame)
    if not is_frame(frame):
        raise UnsupportedFrameError(
            f"{_kind(frame)} is not a data frame; use a Dask "
            "DataFrame or a pandas DataFrame, or cuDF's. Functions of the package also "
            "take an array of "
            "shape (rows, columns), or a table that Arrow can stream "
            "(__arrow_c_stream__)."
            f"{instead_of_frame(frame)}"
        )
    check_library(library(meta))
    return meta.iloc[:0]


def _kind(value: object) -> str:
    """Return the type of a value for messages, with the module of the type unless the
    type is built in.
    """
    kind = type(value)
    return (
        kind.__name__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__name__}"
    )


Axes = Any
"""Axes of Matplotlib, which may not be installed."""


def optional(module: str, package: str, wanted: str) -> Any:
    """Import an optional module; if it is missing, raise an error with the command that
    installs it.

    Examples
    --------
    >>> optional("no_such_module", "no-such-package", "Colours")
    Traceback (most recent call last):
    ModuleNotFoundError: Colours need no-such-package, which is not installed: pip
    install no-such-package
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{wanted} need {package}, which is not installed: pip install {package}",
            name=error.name,
        ) from error


def load(module: str) -> Any:
    """Import a module of this package by its name."""
    return importlib.import_module(module)


def new_axes(ax: Axes = None) -> Axes:
    """Return `ax`, or the axes of a new Matplotlib figure if it is None."""
    return ax or optional("matplotlib.pyplot", "matplotlib", "Plots").subplots()[1]
