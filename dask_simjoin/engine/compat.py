"""Arrays of NumPy and of CuPy, told apart without importing CuPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dask_simjoin.metrics.types import Array, ArrayModule, Frame, Ids, Series

BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
"""What values of so many bytes are moved as."""


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def module_of(array: Array) -> ArrayModule:
    """Return the module that an array is of: NumPy or CuPy."""
    return sys.modules["cupy"] if _library(array) == "cupy" else np


def to_host(array: Array) -> np.ndarray:
    """Return an array as one of NumPy; copied only if it lies on a GPU."""
    host: np.ndarray = array.get() if _library(array) == "cupy" else np.asarray(array)
    return host


def on_gpu(values: Ids | Series) -> bool:
    """Tell whether an index or a column lies on a GPU."""
    return _library(values) == "cudf"


def values_of(column: Ids | Series) -> Array:
    """Return the numbers of a column or an index, none of them missing, as an array where they lie."""
    return column.values if on_gpu(column) else column.to_numpy()


def columns_like(values: Array, example: Frame, xp: ArrayModule) -> dict[Any, Array]:
    """Make the columns of a data frame like an example, of numbers (n, k) int64 that are their bits."""
    kinds = zip(example.columns, example.dtypes, strict=True)
    return {name: xp.ascontiguousarray(values[:, k]).view(kind) for k, (name, kind) in enumerate(kinds)}
