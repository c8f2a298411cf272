"""Name the types that all rooms share: what NumPy and CuPy, pandas and cuDF have in common.

The libraries share no class that could be named, so to a type checker these are `Any`; to a reader they say
what is meant.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np

Array = Any
"""An array of NumPy or CuPy; its shape and type are in the docstring."""

ArrayModule = Any
"""The module of an array: `numpy` or `cupy`."""

Frame = Any
"""A data frame: of pandas or cuDF; where a docstring says lazy, of Dask."""

Series = Any
"""A Series of pandas or cuDF; where a docstring says lazy, of Dask."""

Ids = Any
"""Names of rows: an Index of pandas or cuDF."""

Values = Any
"""A column's values as a data frame takes them: an array, or an extension array or Series of its library."""

DType = Any
"""A dtype of NumPy, or an extension dtype of a data frame's library."""

Index = dict[str, Any]
"""The index of a chunk: arrays by name, as `Joiner.build` makes them, and some numbers."""

Spread = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Smallest and largest values, means and sums of squared deviations (d,) of columns, on the host."""

Columns = Hashable | Iterable[Hashable] | None
"""What `on` takes: a column's name, or several, or None for those that the frame suggests."""

ArrowTable = Any
"""A table of pyarrow."""

SparseMatrix = Any
"""A sparse matrix in CSR form: of SciPy or CuPy."""
