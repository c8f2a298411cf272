"""Small pandas frames behind Dask DataFrames: their rows are read here, or in the task
that indexes them.

A task of Dask takes as long as reading a few thousand rows. So a small frame in the
memory of this process is read directly, instead of by one task per partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.catalog import HOME
from dask_simjoin.engine.ids import value_bytes
from dask_simjoin.graph.dask_private import (
    Expr,
    FromPandas,
    Projection,
    to_pyarrow_string,
)
from dask_simjoin.graph.source import FrozenSource
from dask_simjoin.planning.entity_chunks import Chunking, is_shuffled
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import READ_BYTES


@dataclass(frozen=True, eq=False)
class SmallFrame:
    """The rows of a source that is a small pandas frame, in the order of its
    partitions.
    """

    rows: pd.DataFrame
    # (partitions + 1,): position of the first row of each partition, then the number of
    # all rows
    bounds: list[int]
    nbytes: float  # estimated memory of the rows

    def part(self, first: int, stop: int) -> pd.DataFrame:
        """Return the rows of the partitions `first` to `stop` - 1."""
        return self.rows.iloc[self.bounds[first] : self.bounds[stop]]


def small_frame(source: FrozenSource, max_bytes: int = READ_BYTES) -> SmallFrame | None:
    """Return the rows of a source if they are a pandas frame of at most `max_bytes`,
    else None.

    Dask copies a pandas frame that it is given, so each call returns the same rows. The
    source keeps them until `take_small_frame` is called.
    """
    small: SmallFrame | None = source.small or _read(source.inner, max_bytes)
    source.small = small
    return small if small is not None and small.nbytes <= max_bytes else None


def take_small_frame(source: FrozenSource) -> SmallFrame:
    """Return the rows of a source that is a small pandas frame. The source then stops
    keeping them.
    """
    small = small_frame(source)
    assert small is not None
    source.small = None
    return small


def is_cut(chunks: Chunking) -> bool:
    """Return whether any partition is divided among several chunks."""
    numbers = [n for chunk in chunks.pieces for n, _, _ in chunk]
    return len(set(numbers)) < len(numbers)


def is_read_by_chunk(
    source: FrozenSource, spec: JoinSpec, chunks: Chunking, copies: int
) -> bool:
    """Return whether the task that indexes a chunk also reads its rows. This is done
    for small pandas frames.

    `copies`: number of workers that get a copy of each chunk.
    """
    # Dask does not copy lists in a frame, so they may have changed since planning
    is_steady = spec.library == HOME and not spec.coordinates.lists and copies == 1
    if not is_steady or is_shuffled(chunks) or not len(chunks) or is_cut(chunks):
        return False
    return small_frame(source) is not None


def _read(expr: Expr, max_bytes: int) -> SmallFrame | None:
    columns: list[Any] | None = None
    while isinstance(expr, Projection):
        columns, expr = columns or list(expr.columns), expr.frame
    if type(expr) is not FromPandas or expr._series or expr._filtered:
        return None
    data = expr.frame._data
    columns = columns or list(expr.columns)
    # an estimate, as most values have 8 bytes
    if type(data) is not pd.DataFrame or 8.0 * len(data) * len(columns) > READ_BYTES:
        return None
    values = [data.index, *(data[name] for name in columns)]
    size = sum(map(value_bytes, values)) * len(data)
    if size > max_bytes:
        return None
    rows = data.iloc[:] if list(data.columns) == columns else data[columns]
    if expr.pyarrow_strings_enabled and not all(
        _is_plain(some.dtype) for some in values
    ):
        rows = to_pyarrow_string(rows)
    return SmallFrame(rows, [int(bound) for bound in expr._locations()], size)


def _is_plain(dtype: Any) -> bool:
    """Return whether a dtype is for numbers or times. Dask leaves columns with such
    dtypes unchanged.
    """
    return isinstance(dtype, np.dtype) and dtype.kind in "iufbmM"
