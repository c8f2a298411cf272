"""Small pandas frames behind Dask DataFrames: their rows are read here, or in the task that indexes them.

A task of Dask takes as long as reading a few thousand rows.  So a small frame that is in the memory of this
process is read without a task for each partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.graph.dask_private import Expr, FromPandas, Projection, seed_divisions, to_pyarrow_string
from dask_simjoin.graph.source import FrozenSource

SMALL = 1 << 23
"""Largest number of bytes of a small frame: of the columns that a join reads, and of the index."""


@dataclass(frozen=True, eq=False)
class SmallFrame:
    """The rows of a source that is a small pandas frame, in the order of its partitions."""

    rows: pd.DataFrame
    bounds: list[int]  # (partitions + 1,): position of each partition's first row, and the number of all rows
    nbytes: float  # estimated memory of the rows

    def part(self, first: int, stop: int) -> pd.DataFrame:
        """Return the rows of the partitions first ... stop-1."""
        return self.rows.iloc[self.bounds[first] : self.bounds[stop]]


def small_frame(source: FrozenSource, most: int = SMALL) -> SmallFrame | None:
    """Return the rows of a source if it is a pandas frame of at most `most` bytes, else None.

    Dask copies the frames that it is given, so the rows are the same at each call.  The source keeps them
    until `take_small_frame` is called.
    """
    if source.small is None:
        source.small = _read(source.inner)
    small: SmallFrame | None = source.small
    return small if small is not None and small.nbytes <= most else None


def take_small_frame(source: FrozenSource) -> SmallFrame:
    """Return the rows of a source that is a small pandas frame, which no longer keeps them."""
    small = small_frame(source)
    assert small is not None
    source.small = None
    return small


def _read(expr: Expr) -> SmallFrame | None:
    columns: list[Any] | None = None
    while isinstance(expr, Projection):
        columns, expr = columns or list(expr.columns), expr.frame
    if type(expr) is not FromPandas or expr._series or expr._filtered:
        return None
    data = expr.frame._data
    columns = columns or list(expr.columns)
    if type(data) is not pd.DataFrame or 8.0 * len(data) * len(columns) > SMALL:  # most values have 8 bytes
        return None
    rows = data.iloc[:] if list(data.columns) == columns else data[columns]
    dtypes = [*rows.dtypes, rows.index.dtype]
    if all(isinstance(dtype, np.dtype) and dtype.kind in "iufbmM" for dtype in dtypes):
        size = float(sum(dtype.itemsize for dtype in dtypes) * len(rows))
    else:
        size = sum(map(value_bytes, [rows.index, *(rows[name] for name in columns)])) * len(rows)
    if size > SMALL:
        return None
    if expr.pyarrow_strings_enabled and "O" in {getattr(dtype, "kind", "O") for dtype in dtypes}:
        rows = to_pyarrow_string(rows)
    seed_divisions(expr)
    return SmallFrame(rows, [int(bound) for bound in expr._locations()], size)
