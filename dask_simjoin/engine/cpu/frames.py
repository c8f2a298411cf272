"""Read and make pandas frames; compute moments of their columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.columns import blocks, look_up, vectors
from dask_simjoin.engine.compat import BITS, columns_like
from dask_simjoin.engine.cpu.kernels import reductions
from dask_simjoin.metrics.norms import DType, Spread, Values

NULLABLE: dict[str, Callable[[np.dtype[Any]], str]] = {
    "i": lambda dtype: f"Int{8 * dtype.itemsize}",
    "u": lambda dtype: f"UInt{8 * dtype.itemsize}",
    "b": lambda dtype: "boolean",
}
"""Kind of dtype -> pandas' nullable dtype.  As float64 with NaN, large ids would be rounded."""

FLOAT64 = np.dtype(np.float64)

ALIKE = {*map(np.dtype, "bhilBHILfd")}
"""Numeric dtypes whose columns pandas stores side by side in one array."""

MANY = 8
"""From this number of columns on, one call copies all columns: a call takes ten microseconds."""


class PandasFrames:
    """See `Frames`."""

    xp = np

    def coordinates(self, frame: pd.DataFrame, columns: tuple[Hashable, ...],
                    buffer: np.ndarray | None = None) -> np.ndarray:  # fmt: skip
        if len(columns) == 1 and lists_of(frame[columns[0]]) is not None:
            return vectors(frame[columns[0]])
        whole = _in_place(frame, columns) if buffer is None else None
        if whole is not None:
            return whole
        if len(columns) >= MANY:
            has_only_these = tuple(frame.columns) == columns
            kinds = {*(frame.dtypes if has_only_these else frame.dtypes[list(columns)])}
            if kinds <= ALIKE and len(kinds) == 1:
                some = frame if has_only_these else frame[list(columns)]
                x = _empty(len(frame), len(columns), buffer)
                x[:] = some.to_numpy()
                return x
        x = _empty(len(frame), len(columns), buffer)
        for k, name in enumerate(columns):
            column = frame[name]
            if isinstance(column.dtype, np.dtype):
                x[:, k] = column.to_numpy()
            else:
                x[:, k] = column.to_numpy(dtype="float64", na_value=np.nan)
        return x

    def result(self, columns: dict[Any, Values], rows: int) -> pd.DataFrame:
        return pd.DataFrame(columns, index=pd.RangeIndex(rows), copy=False)

    def values(self, frame: pd.DataFrame, name: Hashable, places: np.ndarray) -> Values:
        return _taken(frame[name], places)

    def ids(self, ids: pd.Index, positions: np.ndarray) -> Values:
        found = _taken(ids, positions)
        # from an array of objects pandas would infer strings, from an Index it does not
        return pd.Index(found, dtype=object, copy=False) if found.dtype == object else found

    def plain(self, frame: pd.DataFrame, name: Hashable) -> np.ndarray | None:
        dtype = frame[name].dtype
        fixed = isinstance(dtype, np.dtype) and dtype.kind != "O" and dtype.itemsize in BITS
        return np.ascontiguousarray(frame[name].to_numpy()) if fixed else None

    def stacked(self, frames: list[pd.DataFrame]) -> pd.DataFrame:
        # dtypes of frames without rows must not change the result
        return pd.concat([one for one in frames if len(one)] or frames[:1], ignore_index=True)

    def optional(self, dtype: DType) -> DType:
        if isinstance(dtype, np.dtype) and dtype.kind in "iub":
            return pd.array([], dtype).astype(NULLABLE[dtype.kind](dtype)).dtype
        return self.missing(dtype, 1).dtype  # for example, intervals of integers become intervals of float64

    def missing(self, dtype: DType, rows: int) -> pd.Series:
        return pd.Series([], dtype=dtype).reindex(range(rows))

    def series(self, values: np.ndarray, index: pd.Index, name: Hashable) -> pd.Series:
        return pd.Series(values, index, name=name)

    def rows(
        self, values: np.ndarray, index: pd.Index, example: pd.Series | pd.DataFrame
    ) -> pd.Series | pd.DataFrame:
        if example.ndim == 1:
            return self.series(values.view(example.dtype), index, example.name)
        return pd.DataFrame(columns_like(values, example, np), index)

    def index(self, values: Values) -> pd.Index:
        return pd.Index(values, dtype=values.dtype)  # without a dtype, pandas 2 converts objects

    def to_arrow(self, frame: pd.DataFrame) -> pa.Table:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)

    def from_arrow(self, table: pa.Table, dtypes: Mapping[str, str]) -> pd.DataFrame:
        columns = {name: _column(table[name], dtypes.get(name)) for name in table.column_names}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)

    def memory(self) -> None:
        return None


def _taken(values: pd.Series | pd.Index, places: np.ndarray) -> Values:
    """Take values in batches, because pandas converts each place to 8 bytes."""
    if isinstance(values.dtype, np.dtype):
        return look_up(values.to_numpy(), places)
    parts = [values.array.take(places[some]) for some in blocks(len(places))]
    if len(parts) < 2:
        return parts[0] if parts else values.array.take(places)
    return pd.concat([pd.Series(part, copy=False) for part in parts], ignore_index=True).array


def _empty(rows: int, columns: int, buffer: np.ndarray | None) -> np.ndarray:
    """Return uninitialized points, stored by column, in the memory of `buffer` if given."""
    if buffer is None:
        return np.empty((rows, columns), order="F")
    return buffer[: rows * columns].reshape(columns, rows).T


def _column(values: pa.ChunkedArray, dtype: str | None) -> Values:
    """Return a pandas column; `dtype`: name of its dtype, None: pandas' default."""
    if dtype is not None and dtype.endswith("[pyarrow]") and not dtype.startswith("string"):
        return pd.arrays.ArrowExtensionArray(values)
    plain = values.to_pandas(ignore_metadata=True)
    if dtype is None or str(plain.dtype) == dtype:
        return plain.array
    known = pd.api.types.pandas_dtype(dtype)
    if hasattr(known, "__from_arrow__"):
        return known.__from_arrow__(values)
    return plain.astype(known).array


def _in_place(frame: pd.DataFrame, columns: tuple[Hashable, ...]) -> np.ndarray | None:
    """Return the numbers of exactly these columns without a copy; None: they are not stored by column.

    The result is marked writable, as Numba would compile kernels again for read-only arrays.  Callers must
    not write to it.
    """
    if tuple(frame.columns) != columns or not len(frame) or {*frame.dtypes} != {FLOAT64}:
        return None
    x = frame.to_numpy()
    if not x.flags.f_contiguous:
        return None
    with contextlib.suppress(ValueError):
        x = x.view()
        x.flags.writeable = True
        return x
    return None


FRAMES = PandasFrames()


LONG_ROWS = 16
"""From this number of coordinates on, NumPy reduces rows faster than it copies them to columns."""


def bounds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return smallest and largest coordinates (d,) of points (n, d), n > 0; NaN in columns with a NaN."""
    if x.shape[1] < LONG_ROWS:
        x = np.asfortranarray(x)
    return x.min(axis=0), x.max(axis=0)


def spread(x: np.ndarray) -> Spread | None:
    """Return bounds, means and sums of squared deviations (d,) of points (n, d), n > 0, in one pass.

    None if points of at least `LONG_ROWS` dimensions are not stored by column, or if a result is not finite.
    """
    if x.dtype != np.float64:
        return None
    if not x.flags.f_contiguous:
        if x.shape[1] >= LONG_ROWS:
            return None
        x = np.asfortranarray(x)
    found = np.empty((4, x.shape[1]))
    bounds, (mean, squares) = found[:2].reshape(-1, 2), found[2:]
    reductions.column_moments(x.T, bounds, mean, squares)
    return (*bounds.T.copy(), mean, squares) if np.isfinite(found).all() else None
