"""Convert between pandas frames and arrays; compute the moments of columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.columns import (
    MIN_TAKEN_AT_ONCE,
    blocks,
    look_up,
    naming_value,
    vectors,
)
from dask_simjoin.engine.compat import BITS, column_like, columns_like
from dask_simjoin.engine.cpu.kernels import reductions
from dask_simjoin.engine.ids import united
from dask_simjoin.engine.process import shared_out
from dask_simjoin.metrics.norms import DType, Spread, Values
from dask_simjoin.sizes import FEW

NULLABLE: dict[str, Callable[[np.dtype[Any]], str]] = {
    "i": lambda dtype: f"Int{8 * dtype.itemsize}",
    "u": lambda dtype: f"UInt{8 * dtype.itemsize}",
    "b": lambda dtype: "boolean",
}
"""Kind of dtype -> function that returns pandas' nullable dtype. Float64 with NaN would
round large ids.
"""

FLOAT64 = np.dtype(np.float64)

ALIKE = {*map(np.dtype, "bhilBHILfd")}
"""Numeric dtypes. Columns of one such dtype are copied to an array in one call."""


class PandasFrames:
    """See `Frames`."""

    xp = np

    def coordinates(
        self,
        frame: pd.DataFrame,
        columns: tuple[Hashable, ...],
        buffer: np.ndarray | None = None,
    ) -> np.ndarray:
        if len(columns) == 1 and lists_of(frame[columns[0]]) is not None:
            return vectors(frame[columns[0]])
        view = _in_place(frame, columns) if buffer is None else None
        if view is not None:
            return view
        if len(columns) >= FEW:
            has_only_these = tuple(frame.columns) == columns
            kinds = {*(frame.dtypes if has_only_these else frame.dtypes[list(columns)])}
            if kinds <= ALIKE and len(kinds) == 1:
                some = frame if has_only_these else frame[list(columns)]
                x = _empty(len(frame), len(columns), buffer)
                x[:] = some.to_numpy()
                return x
        return self._numbers(frame, columns, buffer)

    def numbers(self, frame: pd.DataFrame, column: Hashable) -> np.ndarray:
        return self._numbers(frame, (column,), None)[:, 0]

    def _numbers(
        self,
        frame: pd.DataFrame,
        columns: tuple[Hashable, ...],
        buffer: np.ndarray | None,
    ) -> np.ndarray:
        x = _empty(len(frame), len(columns), buffer)
        for k, name in enumerate(columns):
            column = frame[name]
            with naming_value(column, name):
                if isinstance(column.dtype, np.dtype):
                    x[:, k] = column.to_numpy()
                else:
                    x[:, k] = column.to_numpy(dtype="float64", na_value=np.nan)
        return x

    def result(self, columns: dict[Any, Values], rows: int) -> pd.DataFrame:
        index = pd.RangeIndex(rows)
        parts = [
            pd.DataFrame(block, index, names, copy=False)
            if block is not None
            else pd.DataFrame(
                {name: _as_objects(columns[name], index) for name in names},
                index=index,
                copy=False,
            )
            for names, block in _blocks_of(columns)
        ]
        return parts[0] if len(parts) == 1 else pd.concat(parts, axis=1)

    def values(self, frame: pd.DataFrame, name: Hashable, places: np.ndarray) -> Values:
        return _taken(frame[name], places)

    def columns_at(
        self, frame: pd.DataFrame, names: Mapping[Any, Hashable], places: np.ndarray
    ) -> dict[Any, Values]:
        together: dict[np.dtype[Any], list[Any]] = {}
        where = {name: place for place, name in enumerate(frame.columns.tolist())}
        if len(names) >= MIN_TAKEN_AT_ONCE:
            dtypes = frame.dtypes.tolist()
            for called, name in names.items():
                dtype = dtypes[where[name]]
                # pandas would infer another dtype from an array of objects
                if isinstance(dtype, np.dtype) and dtype.kind != "O":
                    together.setdefault(dtype, []).append(called)
        found: dict[Any, Values] = {}
        for alike in together.values():
            some = frame.iloc[:, [where[names[called]] for called in alike]]
            taken = some.to_numpy().T.take(places, axis=1)
            found |= zip(alike, taken, strict=True)
        return {
            called: found[called]
            if called in found
            else self.values(frame, name, places)
            for called, name in names.items()
        }

    def ids(self, ids: pd.Index, positions: np.ndarray) -> Values:
        found = _taken(ids, positions)
        # pandas infers strings from an array of objects, but not from an Index
        return (
            pd.Index(found, dtype=object, copy=False)
            if found.dtype == object
            else found
        )

    def plain(self, frame: pd.DataFrame, name: Hashable) -> np.ndarray | None:
        dtype = frame[name].dtype
        fixed = (
            isinstance(dtype, np.dtype) and dtype.kind != "O" and dtype.itemsize in BITS
        )
        return np.ascontiguousarray(frame[name].to_numpy()) if fixed else None

    def stacked(self, frames: list[pd.DataFrame]) -> pd.DataFrame:
        # an empty frame is left out, because its dtypes would change the dtypes of the
        # result
        some = [one for one in frames if len(one)] or frames[:1]
        return pd.concat(_with_same_categories(some), ignore_index=True)

    def optional(self, dtype: DType) -> DType:
        plain = getattr(dtype, "subtype", dtype)
        if isinstance(plain, np.dtype) and plain.kind in "iub":
            # pandas has no missing intervals of integers: it would round them to float64
            if isinstance(dtype, pd.IntervalDtype):
                return np.dtype(object)
            return pd.array([], plain).astype(NULLABLE[plain.kind](plain)).dtype
        return self.missing(dtype, 1).dtype

    def missing(self, dtype: DType, rows: int) -> pd.Series:
        return pd.Series([], dtype=dtype).reindex(range(rows))

    def series(self, values: np.ndarray, index: pd.Index, name: Hashable) -> pd.Series:
        return pd.Series(values, index, name=name)

    def rows(
        self, values: np.ndarray, index: pd.Index, example: pd.Series | pd.DataFrame
    ) -> pd.Series | pd.DataFrame:
        if example.ndim == 1:
            return self.series(column_like(values, example.dtype), index, example.name)
        return pd.DataFrame(columns_like(values, example, np), index)

    def index(self, values: Values) -> pd.Index:
        # without a dtype, pandas 2 converts objects
        # by default, pandas 3 copies arrays
        return pd.Index(values, dtype=values.dtype, copy=False)

    def to_arrow(self, frame: pd.DataFrame) -> pa.Table:
        return pa.Table.from_pandas(
            frame, preserve_index=False
        ).replace_schema_metadata(None)

    def from_arrow(self, table: pa.Table, dtypes: Mapping[str, str]) -> pd.DataFrame:
        columns = {
            name: _column(table[name], dtypes.get(name)) for name in table.column_names
        }
        return pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)

    def speed(self) -> float:
        return 1.0

    def memory(self) -> None:
        return None


def _with_same_categories(frames: list[pd.DataFrame]) -> list[pd.DataFrame]:
    """Call `united` for each categorical column of frames with the same columns."""
    for name, kind in frames[0].dtypes.items():
        if isinstance(kind, pd.CategoricalDtype):
            own = [frame[name] for frame in frames]
            parts = united(own)
            if parts is not own:
                frames = [frame.copy(deep=False) for frame in frames]
                for frame, part in zip(frames, parts, strict=True):
                    frame[name] = part
    return frames


def _blocks_of(
    columns: dict[Any, Values],
) -> list[tuple[list[Any], np.ndarray | None]]:
    """Divide columns into runs. If a run consists of all rows of one array, as
    `columns_at` makes them, return the transposed array (n, d) with the names.
    """
    if len(columns) < MIN_TAKEN_AT_ONCE:
        return [(list(columns), None)]
    runs: list[tuple[list[Any], np.ndarray | None]] = []
    names, k = list(columns), 0
    while k < len(names):
        first = columns[names[k]]
        base = first.base if isinstance(first, np.ndarray) else None
        count = len(base) if base is not None and base.ndim == 2 else 0
        some = [columns[name] for name in names[k : k + count]]
        if base is not None and count >= MIN_TAKEN_AT_ONCE and _are_rows(some, base):
            runs.append((names[k : k + count], base.T))
            k += count
        else:
            if not runs or runs[-1][1] is not None:
                runs.append(([], None))
            runs[-1][0].append(names[k])
            k += 1
    return runs


def _are_rows(values: list[Values], of: np.ndarray) -> bool:
    """Return whether the values are all rows of an array, in its order."""
    start, step = of.ctypes.data, of.strides[0]
    return len(values) == len(of) and all(
        isinstance(one, np.ndarray)
        and one.base is of
        and one.ctypes.data == start + row * step
        for row, one in enumerate(values)
    )


def _as_objects(values: Values, index: pd.Index) -> Values:
    """Return an array of Python objects as a column: pandas would infer another dtype
    from the array, such as dates. Other values are returned unchanged.
    """
    if isinstance(values, np.ndarray) and values.dtype == object:
        return pd.Series(values, index, object, copy=False)
    return values


def _taken(values: pd.Series | pd.Index, places: np.ndarray) -> Values:
    """Return the values at these positions.

    Work in batches, because pandas copies positions as 8-byte integers.
    """
    if isinstance(values.dtype, np.dtype):
        return look_up(values.to_numpy(), places)
    parts = [values.array.take(places[some]) for some in blocks(len(places))]
    if len(parts) < 2:
        return parts[0] if parts else values.array.take(places)
    return pd.concat(
        [pd.Series(part, copy=False) for part in parts], ignore_index=True
    ).array


def _empty(rows: int, columns: int, buffer: np.ndarray | None) -> np.ndarray:
    """Return an uninitialized array (rows, columns), stored by column. If `buffer` is
    given, return a view of it.
    """
    if buffer is None:
        return np.empty((rows, columns), order="F")
    return buffer[: rows * columns].reshape(columns, rows).T


def _column(values: pa.ChunkedArray, dtype: str | None) -> Values:
    """Convert an Arrow column to pandas; `dtype`: name of the pandas dtype, None:
    pandas' default.
    """
    if (
        dtype is not None
        and dtype.endswith("[pyarrow]")
        and not dtype.startswith("string")
    ):
        return pd.arrays.ArrowExtensionArray(values)
    plain = values.to_pandas(ignore_metadata=True)
    if dtype is None or str(plain.dtype) == dtype:
        return plain.array
    target = pd.api.types.pandas_dtype(dtype)
    if hasattr(target, "__from_arrow__"):
        return target.__from_arrow__(values)
    return plain.astype(target).array


def _in_place(frame: pd.DataFrame, columns: tuple[Hashable, ...]) -> np.ndarray | None:
    """Return the coordinates of a frame as a view, without a copy; None if a copy is
    needed.

    A view is possible if the frame has exactly these columns, all float64, in one array
    stored by column. The view is marked writable, although callers must not write to
    it. Otherwise Numba would compile the kernels again, for read-only arrays.
    """
    if (
        tuple(frame.columns) != columns
        or not len(frame)
        or {*frame.dtypes} != {FLOAT64}
    ):
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

FIXED = "biufmM"
"""Kinds of dtypes whose values have a fixed size."""


def stacked_by_threads(
    parts: Sequence[pd.DataFrame], threads: int
) -> pd.DataFrame | None:
    """Concatenate frames as `pd.concat` does, with several threads.

    Return None if the kind of a dtype is not in `FIXED`, or if columns
    differ between frames. The rows of each frame must be labeled 0, 1, 2 ... as well.
    """
    first, dtypes = parts[0], parts[0].dtypes.tolist()
    if not all(isinstance(kind, np.dtype) and kind.kind in FIXED for kind in dtypes):
        return None
    for part in parts:
        labels, alike = part.index, part.columns.equals(first.columns)
        if (
            type(part) is not pd.DataFrame
            or type(labels) is not pd.RangeIndex
            or (labels.start, labels.step, labels.name) != (0, 1, None)
            or not alike
            or part.dtypes.tolist() != dtypes
        ):
            return None
    ends = np.cumsum([0, *map(len, parts)])
    columns = [
        [part.iloc[:, k].to_numpy() for k in range(len(dtypes))] for part in parts
    ]
    made = [np.empty(ends[-1], kind) for kind in dtypes]
    index = np.empty(ends[-1], np.int64)

    def copy(start: int, stop: int) -> None:
        n = int(np.searchsorted(ends, start, side="right")) - 1
        while start < stop:
            begin, end = int(ends[n]), min(int(ends[n + 1]), stop)
            index[start:end] = np.arange(start - begin, end - begin)
            for values, column in zip(made, columns[n], strict=True):
                values[start:end] = column[start - begin : end - begin]
            start, n = end, n + 1

    shared_out(copy, len(index), threads)
    found = pd.DataFrame(dict(enumerate(made)), pd.Index(index, copy=False), copy=False)
    found.columns = first.columns
    return found


LONG_ROWS = 16
"""Points stored by row with at least this many coordinates are reduced without a copy.

With fewer coordinates, NumPy is faster on a copy that is stored by column.
"""


def bounds(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest value (d,) of each column of points (n, d), n
    > 0.

    A column with a NaN has the bounds NaN.
    """
    if x.shape[1] < LONG_ROWS:
        x = np.asfortranarray(x)
    return x.min(axis=0), x.max(axis=0)


def spread(x: np.ndarray) -> Spread | None:
    """Return the moments of the columns of points (n, d), n > 0, in one pass.

    Return None if the dtype is not float64, if a result is not finite, or if NumPy is
    faster than this kernel. NumPy is faster for points stored by row that have at least
    `LONG_ROWS` coordinates.
    """
    if x.dtype != np.float64:
        return None
    if x.strides[0] != x.itemsize:
        if x.shape[1] >= LONG_ROWS:
            return None
        x = np.asfortranarray(x)
    found = np.empty((4, x.shape[1]))
    bounds, (mean, squares) = found[:2].reshape(-1, 2), found[2:]
    columns = x.ctypes.data, x.strides[1], len(x)
    reductions.column_moments(*columns, bounds, mean, squares)
    return (*bounds.T.copy(), mean, squares) if np.isfinite(found).all() else None
