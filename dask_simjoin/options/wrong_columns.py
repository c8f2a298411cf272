"""Say what is wrong with a column that cannot be used, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.lists import arrow_type
from dask_simjoin.errors import ColumnError
from dask_simjoin.metrics.types import DType, Frame
from dask_simjoin.options.messages import did_you_mean, listed, shown


def absent(option: str, name: Hashable, tables: Sequence[Frame]) -> ColumnError:
    """The error for the name of a column that none of the tables has."""
    columns = [column for table in tables for column in table.columns]
    plain = isinstance(name, str)  # others may not be comparable, as pandas.NA
    if plain and any(name in table.index.names for table in tables):
        meant = ", but the name of the index, which frame.reset_index() makes one"
    elif option == "keep" and (name is True or (plain and name in ("all", "*"))):
        meant = "; all are kept by keep=list(df.columns)"
    else:
        meant = meant_columns(name, columns)
    return ColumnError(
        f"{option}= names {shown(name)}, which is not a column{meant}; the columns are "
        f"{' and '.join(listed(table.columns) for table in tables)}."
    )


def meant_columns(name: object, columns: Collection[object]) -> str:
    """Which columns are likely to be meant: several, those that a merge renamed, or one spelt alike."""
    if not isinstance(name, str):
        return ""
    known = [column for column in columns if isinstance(column, str)]
    numbered = [column for column in columns if not isinstance(column, str) and str(column) == name]
    if numbered:
        return f" (did you mean {numbered[0]!r}, without quotes?)"
    parts = [part.strip("'\"[]()") for part in re.split(r"[,;\s]+", name.strip()) if part]
    if len(parts) > 1 and all(part in known for part in parts):
        return f" (did you mean [{listed(parts)}]?)"
    renamed = [column for column in known if column.startswith((f"{name}_", f"{name}."))] if name else []
    if renamed:
        return f" (did you mean {' or '.join(map(repr, renamed[:2]))}?)"
    same = [column for column in known if column.lower() == name.lower()]
    return f" (did you mean {same[0]!r}?)" if same else did_you_mean(name, known, 0.5)


def no_number(name: Hashable, dtype: DType) -> ColumnError:
    """The error for a column that holds no real numbers: how it becomes one that does."""
    return ColumnError(
        f"on= names {name!r} of dtype {dtype}, which is no real number of at most 64 bits; name numeric "
        f"columns only, or convert it, for example with {_converted(name, dtype)}"
    )


def _converted(name: Hashable, dtype: Any) -> str:
    column, kind = f"df[{name!r}]", getattr(dtype, "kind", "")
    if kind == "M":
        return f"({column} - {column}.min()).dt.total_seconds()."
    if kind == "m":
        return f"{column}.dt.total_seconds()."
    as_sets = f"Texts are compared by their words: set_self_join({name!r}, threshold)."
    if isinstance(dtype, pd.CategoricalDtype):
        return (
            ".astype('float64'), if its categories are numbers; what must be equal in both rows is named by "
            f"by={name!r}."
        )
    if isinstance(dtype, pd.StringDtype):
        return (
            ".astype('float64'), if it holds numbers as text; where some of it is none, "
            f"pd.to_numeric({column}, errors='coerce') and dropna=True. {as_sets}{of_dask(dtype)}"
        )
    if isinstance(dtype, np.dtype) and kind == "O":
        return f".astype('float64'), if it holds numbers as text or as objects, such as Decimal. {as_sets}"
    return ".astype('float64')."


def of_dask(dtype: DType) -> str:
    """What to add where Dask may have made texts of lists: its strings are not those of pandas 3."""
    if isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA:
        return ""
    return (
        " (Of lists in a pandas DataFrame Dask makes strings; not within "
        "dask.config.set({'dataframe.convert-string': False}).)"
    )


def is_decimal(dtype: DType) -> bool:
    """Whether a column holds Arrow's decimal numbers, which are no float64."""
    arrow = arrow_type(dtype)
    return arrow is not None and pa.types.is_decimal(arrow)
