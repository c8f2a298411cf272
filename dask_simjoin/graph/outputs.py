"""Give results in the library of the frame: polars, Arrow, DuckDB or GeoPandas."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import frames_for
from dask_simjoin.errors import ColumnError
from dask_simjoin.graph.inputs import example_ids, has_stream, is_geo
from dask_simjoin.metrics.norms import Array, DType, Frame, Series
from dask_simjoin.request.spec import JoinSpec, RowSpec


def in_library_of(given: object, found: Any, missing: bool = False) -> Any:
    """Return a result in the library of the frame that a verb was given.

    Parameters
    ----------
    given : frame, array or table
        The frame as the caller passed it.
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
        - `found` unchanged for all other frames.
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
    """Make a GeoDataFrame of a result with points; its first column of points is the active geometry."""
    if not (isinstance(given, pd.DataFrame) and is_geo(given) and isinstance(found, pd.DataFrame)):
        return found
    names = [name for name in found.columns if _is_geometry(found[name])]
    own: Any = type(given)
    if isinstance(found, own) or not names:
        return found
    return own(found, geometry=names[0])


NEIGHBORS = "neighbors"
"""Name of the Series of neighbor or match counts."""

PAIRS, EPS = "pairs", "eps"
"""Names of the Series of pair counts by distance, and of its index."""


def series_example(meta: Frame, name: str | None, dtype: DType = np.int64) -> Series:
    """Return an empty example of row counts, with the frame's index."""
    return frames_for(meta).series(np.zeros(0, dtype), meta.index[:0], name)


def counts_example(meta: Frame, spec: JoinSpec) -> Series | Frame:
    """Return an empty example of neighbor counts, with one column per distance if there are several."""
    example = series_example(meta, NEIGHBORS)
    if not spec.several:
        return example
    values = frames_for(meta).xp.zeros((0, len(spec.several)), np.int64)
    shape = pd.DataFrame(columns=pd.Index(spec.several, dtype=np.float64), dtype=np.int64)
    return frames_for(meta).rows(values, meta.index[:0], shape)


def pairs_by_eps(numbers: Array | int, spec: JoinSpec, meta: Frame) -> Series:
    """Return a Series of pair counts by distance; `meta`: an example of the frame."""
    frames = frames_for(meta)
    values = frames.xp.zeros(len(spec.several), np.int64) + frames.xp.asarray(numbers)
    index = frames.index(np.array(spec.several)).rename(EPS)
    return frames.series(values, index, PAIRS)


def pairs_example(left: Frame, right: Frame, spec: RowSpec, some_missing: bool = False) -> Frame:
    """Return an empty example of pairs; `some_missing`: right rows may be missing."""
    frames = frames_for(left)
    none = np.zeros(0, np.int64)
    columns = {"left": example_ids(left, spec), "right": example_ids(right, spec.other or spec)}
    if spec.score is not None:
        columns[spec.score] = np.empty(0)
    columns |= {called: frames.values(left, name, none) for called, name in spec.kept_left.items()}
    columns |= {called: frames.values(right, name, none) for called, name in spec.kept_right.items()}
    example = frames.result(columns, 0)
    if not some_missing:
        return example
    of_right = ["right", *spec.kept_right]
    for name in of_right:
        if _are_unknown(getattr(example[name].dtype, "categories", ())):
            column = spec.kept_right.get(name, spec.other and spec.other.id)
            named = "the index" if column is None else repr(column)
            raise ColumnError(
                f"how='left' adds missing values to {named} of the right table, whose categories Dask does "
                "not know. Use other.categorize() first, which reads the categories, or convert the column, "
                "for example with .astype('object')."
            )
    return example.astype({name: frames.optional(example[name].dtype) for name in of_right})


def nearest_example(left: Frame, right: Frame, spec: JoinSpec, some_missing: bool = False) -> Frame:
    """Return an empty example of the rows of a nearest-neighbor join; `some_missing`: as `pairs_example`."""
    pairs = pairs_example(left, right, spec, some_missing)
    columns = {name: pairs[name] for name in pairs.columns}
    kept = {
        name: columns.pop(name) for name in list(columns) if name in spec.kept_left or name in spec.kept_right
    }
    own = {"left": columns["left"], "right": columns["right"], "rank": np.zeros(0, np.int64)}
    frames = frames_for(left)
    example = frames.result(own | {"distance": columns["distance"]} | kept, 0)
    return example.astype({"rank": frames.optional(example["rank"].dtype)}) if some_missing else example


def _are_unknown(categories: Iterable[Hashable]) -> bool:
    """Return whether Dask does not know the categories of a column."""
    if "dask.dataframe" not in sys.modules:  # no frame is Dask's
        return False
    from dask_simjoin.graph.dask_private import UNKNOWN_CATEGORIES

    return UNKNOWN_CATEGORIES in categories
