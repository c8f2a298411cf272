"""Give results in the library of the frame: polars, Arrow, DuckDB or GeoPandas."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.graph.inputs import has_stream, is_geo


def in_library_of(given: object, found: Any, missing: bool = False) -> Any:
    """Return a result in the library of the frame that a verb was given.

    Parameters
    ----------
    given : frame, array or table
        As the caller gave it.
    found : object
        The result of a verb. Only pandas objects are converted.
    missing : bool
        Whether NaN stands for a missing value, as in a left join.

    Returns
    -------
    object
        - a polars DataFrame or Series for a polars DataFrame;
        - an Arrow table or array for other tables with an Arrow stream;
        - a GeoDataFrame for a GeoDataFrame, if the result has points;
        - `found` for all others.
    """
    if not isinstance(found, pd.DataFrame | pd.Series):
        return found
    if not has_stream(given):
        return _with_geometry(given, found)
    made = arrow_of_frame(found, missing) if isinstance(found, pd.DataFrame) else _column(found, missing)
    if type(given).__module__.partition(".")[0] != "polars":
        return made
    polars: Any = sys.modules["polars"]
    converted = polars.from_arrow(made)
    return converted if isinstance(found, pd.DataFrame) else converted.alias(str(found.name or ""))


def arrow_of_frame(frame: pd.DataFrame, missing: bool = False) -> pa.Table:
    """Make an Arrow table of a frame without its index; points become GeoArrow points."""
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
    """Make an Arrow column; NaN stays NaN unless it stands for a missing value."""
    numbers = isinstance(column.dtype, np.dtype) and column.dtype.kind == "f"
    return pa.chunked_array([pa.array(column, from_pandas=missing or not numbers)]).combine_chunks()


def _is_geometry(column: pd.Series) -> bool:
    return type(column.dtype).__module__.partition(".")[0] == "geopandas"


def _with_geometry(given: object, found: Any) -> Any:
    """Make a GeoDataFrame of a result with points; the first ones are its active geometry."""
    if not (isinstance(given, pd.DataFrame) and is_geo(given) and isinstance(found, pd.DataFrame)):
        return found
    names = [name for name in found.columns if _is_geometry(found[name])]
    own: Any = type(given)
    if isinstance(found, own) or not names:
        return found
    return own(found, geometry=names[0])
