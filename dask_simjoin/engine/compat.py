"""Arrays of NumPy and of CuPy, told apart without importing CuPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def _library(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def module_of(array: Any) -> Any:
    """The module that an array is of: NumPy or CuPy."""
    return sys.modules["cupy"] if _library(array) == "cupy" else np


def to_host(array: Any) -> np.ndarray:
    """An array as one of NumPy; copied only if it lies on a GPU."""
    host: np.ndarray = array.get() if _library(array) == "cupy" else np.asarray(array)
    return host


def on_gpu(values: Any) -> bool:
    """Whether an index or a column lies on a GPU."""
    return _library(values) == "cudf"


def values_of(column: Any) -> Any:
    """The numbers of a column or an index, none of them missing, as an array where they lie."""
    return column.values if on_gpu(column) else column.to_numpy()
