"""Return results in the library of the table that the caller passed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.calls.inputs import has_stream, is_geo, is_geo_type
from dask_simjoin.errors import TABLES


def in_library_of(given: object, found: Any, missing: bool = False) -> Any:
    """Convert a verb's result to the library of the table that the caller passed:

    - a polars DataFrame or Series for a polars DataFrame;
    - an Arrow table or array for other tables with an Arrow stream;
    - a GeoDataFrame for a GeoDataFrame, if the result has points;
    - `found` unchanged for all other frames.

    `missing`: whether a NaN in the result is a missing value, as in a left join.
    """
    if not isinstance(found, pd.DataFrame | pd.Series):
        return found
    if not has_stream(given):
        return _with_geometry(given, found)
    made = (
        arrow_of_frame(found, missing)
        if isinstance(found, pd.DataFrame)
        else _column(found, missing)
    )
    if not _is_polars(given):
        return made
    polars: Any = sys.modules["polars"]
    converted = polars.from_arrow(made)
    return (
        converted
        if isinstance(found, pd.DataFrame)
        else converted.alias(str(found.name or ""))
    )


CATEGORIES = ("Categorical", "Enum")
"""Names of polars dtypes that Arrow returns as one."""


def with_categories(
    found: Any, tables: Sequence[Any], options: Mapping[str, Any]
) -> Any:
    """Convert categories in a polars frame to the dtypes that they have in the tables:
    Arrow gives `Enum` and `Categorical` the same type. Return other results unchanged.
    """
    if not _is_polars(found) or not hasattr(found, "schema"):
        return found
    schemas = [table.schema for table in tables if _is_polars(table)]
    kinds = {}
    for name, kind in found.schema.items():
        if type(kind).__name__ not in CATEGORIES:
            continue
        id = options.get(f"{name}_id") or options.get("id")
        named = {
            column: own
            for schema in schemas
            for column, own in schema.items()
            if type(own).__name__ in CATEGORIES
            and (column == id if name in TABLES else name.startswith(column))
        }
        if named:
            kinds[name] = named[max(named, key=len)]
    return found.cast(kinds) if kinds else found


def _is_polars(table: object) -> bool:
    return type(table).__module__.partition(".")[0] == "polars"


def arrow_of_frame(frame: pd.DataFrame, missing: bool = False) -> pa.Table:
    """Convert a frame to an Arrow table, without its index. Points become GeoArrow
    points.
    """
    names = [str(name) for name in frame.columns]
    points = {name for name in frame.columns if _is_geometry(frame[name])}
    columns, fields = [], []
    for name, called in zip(frame.columns, names, strict=True):
        if name in points:
            geopandas: Any = sys.modules["geopandas"]
            alone = geopandas.GeoDataFrame({called: frame[name]}, geometry=called)
            one = pa.table(alone.to_arrow(index=False, geometry_encoding="geoarrow"))
            fields.append(one.schema.field(0))
            columns.append(one.column(0))
        else:
            columns.append(_column(frame[name], missing))
            fields.append(pa.field(called, columns[-1].type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _column(column: pd.Series, missing: bool) -> Any:
    """Convert a column to Arrow. `missing`: whether NaN becomes a missing value;
    otherwise it stays NaN.
    """
    if isinstance(column.dtype, pd.ArrowDtype):
        chunks = column.array.__arrow_array__()
        # Arrow cannot combine lists whose dictionaries differ
        return chunks if chunks.num_chunks > 1 else chunks.combine_chunks()
    numbers = isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"
    return pa.chunked_array(
        [pa.array(column, from_pandas=missing or not numbers)]
    ).combine_chunks()


def _is_geometry(column: pd.Series) -> bool:
    return is_geo_type(type(column.dtype))


def _with_geometry(given: object, found: Any) -> Any:
    """If a result has columns of points, convert it to a GeoDataFrame. The first such
    column is the active geometry.
    """
    if not (
        isinstance(given, pd.DataFrame)
        and is_geo(given)
        and isinstance(found, pd.DataFrame)
    ):
        return found
    names = [name for name in found.columns if _is_geometry(found[name])]
    own: Any = type(given)
    if isinstance(found, own) or not names:
        return found
    return own(found, geometry=names[0])
