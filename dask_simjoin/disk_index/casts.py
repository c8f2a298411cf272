"""Cast new columns to the types of an index without loss. An error is raised for all
other types.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.errors import ColumnError
from dask_simjoin.request.messages import shown

DTYPES = b"dask_simjoin.dtypes"
"""Key in a file's metadata. Its value has the pandas dtypes of the columns."""

NO_ROWS = b"dask_simjoin.no_rows"
"""Key in the schema of an index that was made from an empty frame, so its dtypes may be
wrong.
"""


def dtypes_in(schema: pa.Schema) -> dict[str, str]:
    dtypes: dict[str, str] = json.loads((schema.metadata or {}).get(DTYPES, b"{}"))
    return dtypes


PARQUET = {pa.time32("s"): pa.time32("ms"), pa.date64(): pa.date32()}
"""Types that Parquet lacks -> the types that it stores instead."""


def stored(kind: pa.DataType) -> pa.DataType:
    """Return the type of a column in Parquet. All kinds of strings become one type, and
    so do all kinds of bytes.
    """
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return pa.timestamp("ms", kind.tz)
    if pa.types.is_string(kind) or pa.types.is_null(kind):
        return pa.large_string()
    return pa.large_binary() if pa.types.is_binary(kind) else PARQUET.get(kind, kind)


def unlike(found: pa.Schema, schema: pa.Schema) -> list[str]:
    """List the columns whose types differ from the index.

    `cast` may still be able to convert their values.
    """
    return [
        one.name
        for one in found
        if not pa.types.is_null(one.type)
        and not _is_same(one.type, schema.field(one.name).type)
    ]


def cast(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Convert a table to a schema. Raise an error if a type does not fit, or if a value
    would change.
    """
    return pa.table(
        [_cast_column(table[one.name], one, schema, where) for one in schema],
        schema=schema,
    )


def _cast_column(
    column: pa.ChunkedArray, own: pa.Field, schema: pa.Schema, where: str
) -> pa.ChunkedArray:
    if not _is_same(column.type, own.type):
        if pc.all(pc.is_null(column, nan_is_null=True)).as_py() is not False:
            column = pa.chunked_array([pa.nulls(len(column), own.type)])
        elif not _is_wider(own.type, column.type):
            raise _other_type(column.type, own, schema, where)
    if column.null_count and dtypes_in(schema).get(own.name, "").startswith(
        WITHOUT_NULLS
    ):
        raise ColumnError(
            f"Column {shown(own.name)} {where} has missing values, which the index's "
            f"{own.type} cannot hold. "
            "Fill or drop them, or make the index from a column that allows missing "
            "values, such as "
            f".astype('{'boolean' if pa.types.is_boolean(own.type) else 'Int64'}')."
        )
    try:
        return column.cast(own.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ColumnError(
            f"Column {shown(own.name)} {where} has values that do not fit the index's "
            f"{own.type} "
            f"({error}). Round them, or make the index from a column with room for all "
            "digits, for "
            "example by .astype(pandas.ArrowDtype(pyarrow.decimal128(38, 9)))."
        ) from None


WITHOUT_NULLS = ("int", "uint", "bool")
"""Beginnings of NumPy dtypes that have no missing values.

The nullable dtypes of pandas begin with capitals.
"""


def _other_type(
    found: pa.DataType, own: pa.Field, schema: pa.Schema, where: str
) -> ColumnError:
    """Return the error for a column whose type is not that in the index."""
    remedy = (
        f"; convert it first, for example with .astype({_dtype(schema, own.name)!r})."
    )
    if NO_ROWS in (schema.metadata or {}):
        remedy = (
            ", as it was made from an empty frame (pandas gives an empty list the "
            "dtype float64). "
            "Make a new index, from rows or from a frame with the right dtypes; or "
            "convert the column."
        )
    return ColumnError(
        f"Column {shown(own.name)} {where} is of type {found}, and the index has "
        f"{stored(own.type)}{remedy}"
    )


def _is_same(found: pa.DataType, own: pa.DataType) -> bool:
    """Return whether Parquet stores both types alike, or they differ only in details of
    decimals or lists.
    """
    return stored(found) == stored(own) or _alike(stored(own), stored(found))


def _is_wider(own: pa.DataType, found: pa.DataType) -> bool:
    """Return whether one numeric type can hold all values of another.

    A double counts as wider than an integer, although only integers up to 2**53 are
    exact.
    """
    if pa.types.is_floating(own):
        return pa.types.is_integer(found) or (
            pa.types.is_floating(found) and found.bit_width < own.bit_width
        )
    if not pa.types.is_integer(own) or not pa.types.is_integer(found):
        return False
    signed, was_signed = (
        pa.types.is_signed_integer(own),
        pa.types.is_signed_integer(found),
    )
    return found.bit_width < own.bit_width and (signed or not was_signed)


def _alike(own: pa.DataType, other: pa.DataType) -> bool:
    """Return whether both types are decimals, or lists of the same type. Other details
    may differ.
    """
    if pa.types.is_decimal(own) and pa.types.is_decimal(other):
        # Arrow chooses the precision of decimals from the values in each table
        return True
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    both = all(any(kind(each) for kind in lists) for each in (own, other))
    return both and (
        own.value_type == other.value_type or pa.types.is_null(other.value_type)
    )


def _dtype(schema: pa.Schema, name: str) -> str:
    """Return the dtype of a column as one would pass it to `astype`."""
    if pa.types.is_large_string(schema.field(name).type):
        return "string"
    kind = str(schema.field(name).type)
    dtype = dtypes_in(schema).get(name, kind)
    return f"{kind}[pyarrow]" if dtype == "object" else dtype
