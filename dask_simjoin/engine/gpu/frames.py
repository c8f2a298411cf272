"""Reads and builds cuDF DataFrames."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import cudf
import cupy
import numpy as np
import pyarrow as pa

from dask_simjoin.catalog import lists_of
from dask_simjoin.engine.columns import vectors
from dask_simjoin.engine.compat import columns_like
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

MAX_ROWS = 2**31 - 1
"""Maximum number of rows of a cuDF frame."""


def _series(values: Values) -> Series:
    """Return values as a cuDF Series without a copy; NaN does not become null."""
    if isinstance(values, cupy.ndarray):
        return cudf.Series(values, nan_as_null=False)
    return values if isinstance(values, cudf.Series) else cudf.Series(values)


class CudfFrames:
    """See `Frames`."""

    xp = cupy

    def coordinates(
        self, frame: Frame, columns: tuple[Hashable, ...], buffer: Array | None = None
    ) -> Array:
        if len(columns) == 1 and lists_of(frame[columns[0]]) is not None:
            return vectors(frame[columns[0]])
        chosen = frame[list(columns)]
        kinds = set(chosen.dtypes)
        if (
            len(kinds) == 1
            and len(columns) > 1
            and not any(chosen[name].has_nulls for name in columns)
        ):
            return cupy.asfortranarray(chosen.to_cupy(), cupy.float64)
        x = cupy.empty((len(frame), len(columns)), order="F")
        for k, name in enumerate(columns):
            column = frame[name].astype("float64")
            x[:, k] = (
                column.to_cupy(na_value=np.nan)
                if column.has_nulls
                else column.to_cupy()
            )
        return x

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
            return self.series(values.view(example.dtype), index, example.name)
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

    def memory(self) -> int:
        return int(cupy.cuda.Device().mem_info[1])


FRAMES = CudfFrames()
