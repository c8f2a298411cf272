"""Libraries of data frames, and the dtypes of their columns."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.errors import ColumnError, UnsupportedFrameError
from dask_simjoin.metrics.norms import DType, Frame, Series

HOME = "pandas"
"""The library with frames and arrays in host memory."""

MAX_DIMS: dict[str, int | None] = {HOME: None, "cudf": 2048}
"""Largest number of dimensions for each library; None: any number.

On GPUs the box of a query must fit into shared memory.
"""

LIBRARIES = tuple(MAX_DIMS)


def library(frame: Frame) -> str:
    """Return the data frame library of a frame's class, or of a class that it is derived from."""
    names = [base.__module__.partition(".")[0] for base in type(frame).__mro__]
    return next((name for name in names if name in LIBRARIES), names[0])


def check_library(name: str) -> None:
    """Refuse frames of a library that the package does not join."""
    if name not in LIBRARIES:
        raise UnsupportedFrameError(
            f"Frames of {name!r} cannot be joined, only frames of pandas and cuDF; use "
            "ddf.to_backend('pandas')."
        )


class Lists(NamedTuple):
    """The lists in a column, as far as its dtype describes them.

    Attributes
    ----------
    length : int or None
        Length of each list; None: unknown without the data.
    kind : dtype or None
        Dtype of the numbers in lists; None: unknown without the data.
    """

    length: int | None
    kind: np.dtype | None


def arrow_type(dtype: DType) -> Any:
    """Return the Arrow type of a pandas Arrow dtype or of cuDF's lists; None: the dtype has no Arrow type."""
    if isinstance(dtype, pd.ArrowDtype):
        return dtype.pyarrow_dtype
    return dtype.to_arrow() if type(dtype).__name__ == "ListDtype" else None


def lists_of(column: Series) -> Lists | None:
    """Return the lists of numbers that a column may have; None: it has none."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        return Lists(None, None)  # cuDF gives strings this dtype, but Dask also gives it to lists in parquet
    arrow = arrow_type(dtype)
    if arrow is None:
        return None
    fixed = pa.types.is_fixed_size_list(arrow)
    if not fixed and not pa.types.is_list(arrow) and not pa.types.is_large_list(arrow):
        return None
    of = arrow.value_type
    if not (pa.types.is_floating(of) or pa.types.is_integer(of) or pa.types.is_boolean(of)):
        return None
    return Lists(arrow.list_size if fixed else None, np.dtype(of.to_pandas_dtype()))


def kind_of_number(dtype: DType) -> str:
    """Return NumPy's letter for the kind of number, or "" for a dtype that coordinates cannot have."""
    kind = str(getattr(dtype, "kind", ""))
    size = getattr(dtype, "itemsize", 8)
    return kind if kind in "iufb" and size <= 8 else ""


def check_indexable(dtype: DType, id: Hashable | None) -> None:
    """Refuse ids of 16-bit floats: pandas has no index for NumPy's, and finds nothing among Arrow's."""
    if getattr(dtype, "kind", "") == "f" and getattr(dtype, "itemsize", 8) == 2:
        raise ColumnError(
            f"{describe_ids(id)} are of dtype {dtype}, which pandas cannot look up; convert them, for "
            "example with .astype('float64'), or use id= with another column."
        )


def describe_ids(id: Hashable | None) -> str:
    return "The index labels" if id is None else f"The ids in column {id!r}"
