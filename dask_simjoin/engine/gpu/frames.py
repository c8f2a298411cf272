"""Reads and builds cuDF DataFrames."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Mapping
from typing import Any, cast

import cudf
import cupy
import numpy as np
import pyarrow as pa
import pylibcudf as plc

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.columns import naming_value, vectors
from dask_simjoin.engine.compat import column_like, columns_like
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.columns import DeviceColumn, matrix
from dask_simjoin.errors import PartitionSizeError
from dask_simjoin.metrics.norms import (
    Array,
    ArrowTable,
    DType,
    Frame,
    Ids,
    Series,
    Values,
)

DTYPES = {
    plc.TypeId[dtype.name.upper()]: dtype
    for dtype in map(
        np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
    )
} | {plc.TypeId.BOOL8: np.dtype(bool)}
"""Type of a column in libcudf -> dtype of its values, for types of numbers."""

with contextlib.suppress(ImportError):
    # registers the sizes of cuDF's objects with Dask; workers do not import it otherwise
    import dask_cudf.backends  # noqa: F401

H200_RATE = 3_201_000 * 6144
"""Memory clock in kHz times bits of the memory bus of an H200, which the cost model
was measured on.
"""

MAX_ROWS = np.iinfo(np.int32).max
"""Maximum number of rows of a cuDF frame."""


def _series(values: Values) -> Series:
    """Return values as a cuDF Series without a copy; NaN does not become null."""
    if isinstance(values, cupy.ndarray):
        return cudf.Series(values, nan_as_null=False)
    return values if isinstance(values, cudf.Series) else cudf.Series(values)


def _described(column: Any) -> DeviceColumn | None:
    """Describe a column for `matrix`; None if the kernel cannot convert its type.

    cuDF's public functions take too long for each of hundreds of columns, so this reads
    the column that is behind a Series.
    """
    values = column.plc_column
    dtype = DTYPES.get(values.type().id())
    # the values of a categorical column are codes
    if dtype is None or column.dtype.kind != dtype.kind:
        return None
    data, mask = values.data(), values.null_mask()
    return DeviceColumn(
        0 if data is None else data.ptr,
        0 if mask is None or not values.null_count() else mask.ptr,
        values.offset(),
        dtype,
    )


def _as_floats(column: Series, name: Hashable) -> Series:
    with naming_value(column, name):
        return column.astype("float64")


class CudfFrames:
    """See `Frames`."""

    xp = cupy

    def coordinates(
        self, frame: Frame, columns: tuple[Hashable, ...], buffer: Array | None = None
    ) -> Array:
        if len(columns) == 1 and lists_of(frame[columns[0]]) is not None:
            return vectors(frame[columns[0]])
        return self._numbers(frame, columns)

    def numbers(self, frame: Frame, column: Hashable) -> Array:
        return self._numbers(frame, (column,))[:, 0]

    def _numbers(self, frame: Frame, columns: tuple[Hashable, ...]) -> Array:
        chosen = frame[list(columns)]
        described = [_described(column) for column in chosen._columns]
        # keep converted columns alive until the kernel has started
        converted = {
            k: _as_floats(frame[name], name)
            for k, (name, one) in enumerate(zip(columns, described, strict=True))
            if one is None
        }
        every = [
            _described(converted[k]._column) if one is None else one
            for k, one in enumerate(described)
        ]
        return matrix(cast(list[DeviceColumn], every), len(frame))

    def result(self, columns: dict[Any, Values], rows: int) -> Frame:
        if rows > MAX_ROWS:
            raise PartitionSizeError(
                f"The result has {rows:,} rows, but a cuDF DataFrame holds at most "
                f"{MAX_ROWS:,}. Join a Dask "
                "DataFrame, whose result has partitions: dask_cudf.from_cudf(df, "
                "npartitions=1)."
            )
        series = {name: _series(values) for name, values in columns.items()}
        return (
            cudf.DataFrame(series)
            if series
            else cudf.DataFrame(index=cudf.RangeIndex(rows))
        )

    def values(self, frame: Frame, name: Hashable, places: Array) -> Values:
        plain = self.plain(frame, name)
        if plain is not None:
            return plain[places]
        return frame[name].take(places).reset_index(drop=True)

    def columns_at(
        self, frame: Frame, names: Mapping[Any, Hashable], places: Array
    ) -> dict[Any, Values]:
        return {
            called: self.values(frame, name, places) for called, name in names.items()
        }

    def ids(self, ids: Ids, positions: Array) -> Values:
        return ids.take(positions)

    def plain(self, frame: Frame, name: Hashable) -> Array | None:
        column = frame[name]
        numeric = isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb"
        return column.values if numeric and not column.has_nulls else None

    def stacked(self, frames: list[Frame]) -> Frame:
        # an empty frame is left out, because its dtypes would change the dtypes of the
        # result
        return cudf.concat(
            [one for one in frames if len(one)] or frames[:1], ignore_index=True
        )

    def optional(self, dtype: DType) -> DType:
        return dtype

    def missing(self, dtype: DType, rows: int) -> Series:
        return (
            cudf.Series([None], dtype=dtype)
            .take(cupy.zeros(rows, cupy.int32))
            .reset_index(drop=True)
        )

    def series(self, values: Array, index: Ids, name: Hashable) -> Series:
        return cudf.Series(values, index=index, name=name)

    def rows(self, values: Array, index: Ids, example: Frame) -> Frame:
        values = cupy.asarray(values)
        if example.ndim == 1:
            return self.series(column_like(values, example.dtype), index, example.name)
        return cudf.DataFrame(columns_like(values, example, cupy), index=index)

    def index(self, values: Values) -> Ids:
        return cudf.Index(values)

    def to_arrow(self, frame: Frame) -> ArrowTable:
        return frame.to_arrow(preserve_index=False).replace_schema_metadata(None)

    def from_arrow(self, table: ArrowTable, dtypes: Mapping[str, str]) -> Frame:
        for number, field in enumerate(table.schema):
            if pa.types.is_large_string(field.type):
                table = table.set_column(
                    number, field.name, table.column(number).cast(pa.string())
                )
        return cudf.DataFrame.from_arrow(table.replace_schema_metadata(None))

    def speed(self) -> float:
        found = cupy.cuda.Device().attributes
        rate = found["MemoryClockRate"] * found["GlobalMemoryBusWidth"]
        return rate / H200_RATE or 1.0

    def memory(self) -> int:
        return load.memory()


FRAMES = CudfFrames()
