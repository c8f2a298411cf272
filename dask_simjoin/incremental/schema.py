"""The columns of row files, and the frames that they are made of and become again."""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import HOME, frames_for, frames_of_library, library
from dask_simjoin.errors import ColumnError
from dask_simjoin.incremental.types import ID, SEQ, VERSION
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.messages import NO_UNICODE, listed, shown

DTYPES = b"dask_simjoin.dtypes"
"""Under which a file tells what pandas calls its columns' dtypes."""

NO_ROWS = b"dask_simjoin.no_rows"
"""What the schema has of an index that was made of a frame without rows: no row says what columns hold."""

OWN = pa.schema([pa.field(SEQ, pa.int64()), pa.field(VERSION, pa.int64())])


def check_names(names: list[Hashable]) -> list[str]:
    """Refuse names of columns that no row file can have."""
    odd = [name for name in names if not isinstance(name, str)]
    if odd:
        raise ColumnError(
            f"Columns {listed(odd)} are not named by strings, and those of an index on disk are; rename "
            "them: df.columns = df.columns.astype(str)."
        )
    taken = [name for name in names if name in (SEQ, VERSION, ID)]
    if taken:
        raise ColumnError(f"The index on disk has own columns {listed(taken)}; rename those of the frame.")
    return [name for name in names if isinstance(name, str)]


def with_ids(frame: Frame, id: str | None, columns: list[str]) -> Frame:
    """The columns that an index has of a frame's rows; where its index names them, that is `ID`."""
    if id is not None:
        return frame[columns].reset_index(drop=True)
    rows = frame[[name for name in columns if name != ID]].copy()
    rows.index = rows.index.rename(ID)
    return rows.reset_index()[columns]


def arrow_of(rows: Frame) -> pa.Table:
    """Rows as a table; refuses columns of values that are not all of one kind."""
    try:
        table = frames_for(rows).to_arrow(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise ColumnError(
            f"Columns {listed(rows.columns)} cannot all be written to parquet ({error}); convert what holds "
            "several kinds of values, such as with .astype(str), or leave it out of keep=."
        ) from None
    except UnicodeEncodeError as error:
        raise ColumnError(
            f"Columns {listed(rows.columns)} cannot all be written to parquet: there is "
            f"{shown(error.object)}, {NO_UNICODE}."
        ) from None
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):  # each file would have categories of its own
            plain = table.column(number).cast(field.type.value_type)
            table = table.set_column(number, field.name, plain)
    return table


def dtypes_of(frame: Frame) -> dict[str, str]:
    """What pandas calls the dtypes of a frame's columns, but for categories, which become their values."""
    if library(frame) != HOME:
        return {}
    plain = {name: getattr(kind, "categories", kind) for name, kind in frame.dtypes.items()}
    return {name: str(getattr(kind, "dtype", kind)) for name, kind in plain.items()}


def schema_of(rows: Frame) -> pa.Schema:
    """The schema of row files of rows like these, of which there are some."""
    schema, dtypes = arrow_of(rows).schema, dtypes_of(rows)
    fields = [*OWN, *(pa.field(one.name, _roomy(_wide(one.type), dtypes.get(one.name))) for one in schema)]
    return pa.schema(fields, {DTYPES: json.dumps(dtypes).encode()})


def schema_without_rows(example: Frame) -> pa.Schema:
    """The schema of row files of an index that is made of no rows."""
    schema = schema_of(example)
    return schema.with_metadata({**schema.metadata, NO_ROWS: b"1"})


def as_written(rows: Frame, schema: pa.Schema, where: str) -> pa.Table:
    """Rows, with `SEQ` and `VERSION`, as row files have them; refuses other types of columns."""
    table = arrow_of(rows[schema.names])
    check_types(table.schema, schema, where)
    return _cast(table, schema, where)


def ids_in(table: pa.Table, row_id: str) -> pd.Index:
    """The ids of rows that were read, on the host, so that keys are the same wherever frames lie."""
    return pd.Index(as_frame(table.select([row_id]), "pandas")[row_id])


def ids_as_read(ids: pd.Index, schema: pa.Schema, row_id: str, where: str) -> pd.Index:
    """Ids (n,) as those of row files are read: equal ids of other dtypes have other keys."""
    none = ids_in(schema.empty_table(), row_id)
    read: Any = none.dtype
    if not len(ids):
        return none
    if ids.dtype == read and read.kind != "O":  # objects may be anything
        return ids
    own = pa.schema([schema.field(row_id)], schema.metadata)
    table = arrow_of(pd.DataFrame({row_id: ids}))
    check_types(table.schema, own, where)
    return ids_in(_cast(table, own, where), row_id)


def _cast(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Rows as row files have them; refuses numbers that do not fit."""
    columns = []
    for field in schema:
        try:
            columns.append(table[field.name].cast(field.type))
        except pa.ArrowInvalid as error:
            raise ColumnError(
                f"Column {shown(field.name)} {where} has values that the index, which has {field.type}, "
                f"cannot hold ({error}); round them, or make the index of a column with room for all "
                "digits, for example by .astype(pandas.ArrowDtype(pyarrow.decimal128(38, 9)))."
            ) from None
    return pa.table(columns, schema=schema)


def check_types(found: pa.Schema, schema: pa.Schema, where: str) -> None:
    """Refuse columns of other types than the index has."""
    for field in found:
        own, other = (_wide(kind) for kind in (schema.field(field.name).type, field.type))
        if own != other and not pa.types.is_null(field.type) and not _alike(own, other):
            remedy = f"; convert it first, for example with .astype({_dtype(schema, field.name)!r})."
            if NO_ROWS in (schema.metadata or {}):
                remedy = (
                    ", as had the frame without rows that it was made of (pandas makes float64 of an empty "
                    "list). Make the index anew, of rows or of a frame with the dtypes of rows to come; or "
                    "convert the column."
                )
            raise ColumnError(
                f"Column {shown(field.name)} {where} is of type {field.type}, and the index has {own}{remedy}"
            )


def _alike(own: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are decimal numbers, or lists of the same numbers, which need not be of one kind."""
    if pa.types.is_decimal(own) and pa.types.is_decimal(other):
        return True  # those of objects have as many digits as they happen to need
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    both = all(any(kind(each) for kind in lists) for each in (own, other))
    return both and (own.value_type == other.value_type or pa.types.is_null(other.value_type))


def _dtype(schema: pa.Schema, name: str) -> str:
    kind = str(schema.field(name).type)
    dtype = dtypes_in(schema).get(name, kind)
    return f"{kind}[pyarrow]" if dtype == "object" else dtype


PARQUET = {pa.time32("s"): pa.time32("ms"), pa.date64(): pa.date32()}
"""What Parquet makes of types that it does not have."""


def _wide(kind: pa.DataType) -> pa.DataType:
    """One type of all strings and one of all bytes; else what comes back from Parquet."""
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else PARQUET.get(kind, kind)


def _roomy(kind: pa.DataType, dtype: str | None) -> pa.DataType:
    """A type for rows to come, too: decimal numbers of objects get as many digits as there may be."""
    if not pa.types.is_decimal(kind) or dtype != "object":
        return kind
    made = pa.decimal256 if pa.types.is_decimal256(kind) else pa.decimal128
    return made(76 if made is pa.decimal256 else 38, kind.scale)


def dtypes_in(schema: pa.Schema) -> dict[str, str]:
    """What a file tells of its columns' dtypes."""
    told: dict[str, str] = json.loads((schema.metadata or {}).get(DTYPES, b"{}"))
    return told


def as_frame(table: pa.Table, library: str) -> Frame:
    """Rows that were read as a frame of a library."""
    return frames_of_library(library).from_arrow(table, dtypes_in(table.schema))
