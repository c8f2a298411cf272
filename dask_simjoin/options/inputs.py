"""Make data frames of what else holds rows: arrays, and whatever offers Arrow's stream of batches."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import LIBRARIES, frames_of_library, library
from dask_simjoin.errors import UnsupportedFrameError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.frames import is_frame

PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
"""Types of Arrow that are NumPy's where no value is missing."""


def as_frame(given: Any, name: str = "frame") -> Any:
    """Make a data frame of an array (n, d), or of what `__arrow_c_stream__` tells; others are left alone.

    Columns of an array are numbered from 0; rows are in either case. `name`: of the argument, in messages.
    """
    if isinstance(given, da.Array):
        return dd.from_dask_array(_two_dimensional(given, name).rechunk({1: -1}))
    if isinstance(given, np.ndarray):
        records = given.dtype.names is not None and given.ndim == 1
        return pd.DataFrame(given if records else _two_dimensional(given, name))
    if type(given).__module__.partition(".")[0] == "cupy" and hasattr(given, "ndim"):
        rows, columns = _two_dimensional(given, name).shape
        return frames_of_library("cudf").result({k: given[:, k] for k in range(columns)}, rows)
    known = is_frame(given) and (hasattr(given, "_meta") or library(given) in LIBRARIES)
    if known or isinstance(given, type) or not hasattr(given, "__arrow_c_stream__"):
        return given
    try:
        return frame_of_arrow(given)
    except pa.ArrowInvalid:  # one column, which is no table
        return given


def frame_of_arrow(given: Any) -> Frame:
    """Make a pandas DataFrame of a table: numbers as NumPy has them if none is missing, else as Arrow has."""
    table = pa.RecordBatchReader.from_stream(given).read_all()
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = not column.null_count and any(is_kind(column.type) for is_kind in PLAIN)
        kind = _without_views(column.type)
        columns[name] = (
            column.to_numpy() if plain else pd.arrays.ArrowExtensionArray(cast_arrow(column, kind))
        )
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)


def cast_arrow(array: Any, kind: pa.DataType) -> Any:
    """Cast an array of Arrow; older versions of Arrow cast no views of texts."""
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array(array.to_pylist(), kind)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The type that holds the same as whole texts: Arrow cannot take rows of its views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _without_views(kind.value_type)
        if inner != kind.value_type:
            return pa.large_list(inner)
    return kind


def _two_dimensional(array: Any, name: str) -> Any:
    if array.ndim != 2:
        raise UnsupportedFrameError(
            f"{name}= is an array of shape {array.shape}; use one of shape (rows, columns)"
            + (", such as x[:, None] of one column." if array.ndim == 1 else ".")
        )
    return array
