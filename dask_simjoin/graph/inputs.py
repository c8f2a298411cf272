"""Accept arrays, Arrow streams and other frames as inputs.

GeoPandas is not imported: its frames provide everything that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from dask_simjoin.catalog.libraries import LIBRARIES, library
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from dask_simjoin.metrics.norms import Frame, Ids
from dask_simjoin.request.columns import as_names, free_name
from dask_simjoin.request.inputs import is_frame
from dask_simjoin.request.spec import DistanceUnit, RowSpec
from dask_simjoin.request.units import LENGTHS, meters, parsed, unit_name


def example_ids(meta: Frame, spec: RowSpec) -> Ids:
    """An empty index of the ids that name rows in a result; refuses labels that cannot."""
    ids = row_ids(meta[spec.columns], spec.id)[:0]
    if ids.nlevels > 1:
        raise ColumnError(
            "The index is a MultiIndex, whose labels cannot name rows in a result. Use id= a column "
            "of unique values, or add one with frame.simjoin.with_row_id()."
        )
    return ids


DISTANCES = ("eps", "max_eps", "max_distance", "min_distance")
"""Options that are distances."""


SPHERE = "haversine"


@dataclass(frozen=True)
class Points:
    """Name the column of a frame whose points are its coordinates.

    Attributes
    ----------
    name : str
    system : object or None
        The coordinate reference system, as pyproj has it.
    columns : list of str
        Names of the columns that are added: x, y.
    """

    name: str
    system: Any
    columns: list[str]

    @property
    def geographic(self) -> bool:
        """Whether they are longitudes and latitudes."""
        return self.system is not None and bool(self.system.is_geographic)


def with_points(
    frame: Frame, options: Mapping[str, Any], has_unit: bool = False
) -> tuple[Frame, dict[str, Any], list[str]]:
    """The frame, and the options of a verb, with columns of coordinates where points of GeoPandas are meant.

    `on` names the active geometry, or is missing.  The default metric for longitudes and latitudes is
    "haversine".  The names of the added columns come last.  `has_unit`: whether
    the verb has the option `distance_unit`.
    """
    given = dict(options)
    other = given.get("other")
    left = _points(frame, given.get("left_on", given.get("on")))
    right = _points(other, given.get("right_on", given.get("on"))) if other is not None else None
    if left is None and right is None:
        return frame, given, []
    if left is not None and right is not None and left.system != right.system:
        raise OptionError(
            f"The tables' points are in other coordinate systems, {_called(left)} and {_called(right)}; use "
            "other.to_crs(frame.crs) first."
        )
    some = left or right
    assert some is not None
    metric = given.setdefault("metric", SPHERE if some.geographic else "euclidean")
    if some.system is not None and not some.geographic:
        _convert(given, some.system, has_unit)
    added = {}
    for side, points, table in (("left", left, frame), ("right", right, other)):
        if points is not None:
            added[side] = _with_columns(table, points)
            columns = points.columns[:: -1 if metric == SPHERE else 1]
            given["on" if other is None else f"{side}_on"] = columns
    if other is not None and left is not None and right is not None:
        given.pop("on", None)
    if "right" in added:
        given["other"] = added["right"]
    return added.get("left", frame), given, left.columns if left is not None else []


def without_points(result: Any, added: list[str]) -> Any:
    """Drop the columns that were added, if the result consists of rows of the frame."""
    if not added or not hasattr(type(result), "columns"):
        return result
    there = [name for name in added if name in result.columns]
    return result.drop(columns=there) if there else result


def _points(frame: Any, on: Any) -> Points | None:
    """The points to use as coordinates of a frame, or None."""
    meta = getattr(frame, "_meta", frame) if is_dask_collection(frame) else frame
    if not any(kind.__module__.partition(".")[0] == "geopandas" for kind in type(meta).__mro__):
        return None
    name = getattr(meta, "active_geometry_name", None)
    if name is None or not is_frame(meta) or (on is not None and as_names(on) != [name]):
        return None
    return Points(name, meta.crs, [free_name(f"{name}.{axis}", [meta]) for axis in "xy"])


def _with_columns(frame: Frame, points: Points) -> Frame:
    if not is_dask_collection(frame):
        return add_columns(frame, points.name, points.columns)
    meta = add_columns(frame._meta, points.name, points.columns)
    return frame.map_partitions(add_columns, points.name, points.columns, meta=meta)


def add_columns(frame: Frame, name: str, columns: list[str]) -> Frame:
    """Add the coordinates of points as columns; refuses geometries that are none."""
    shapes = frame[name]
    kinds = shapes.geom_type
    wrong = kinds[kinds.notna() & (kinds != "Point")]
    if len(wrong):
        raise ColumnError(
            f"Column {name!r} holds {len(wrong):,} geometries that are not points, such as a "
            f"{wrong.iloc[0]}. "
            f"Use their centroids, or other points of them: frame.set_geometry(frame[{name!r}].centroid)."
        )
    return frame.assign(**dict(zip(columns, (shapes.x, shapes.y), strict=True)))


def _convert(given: dict[str, Any], system: Any, has_unit: bool) -> None:
    """Convert distances with units of length to numbers in the unit of the coordinate system.

    `has_unit`: whether returned distances get the unit of the first of them.
    """
    axis = float(system.axis_info[0].unit_conversion_factor)
    unit = given.get("distance_unit")
    for name in DISTANCES:
        length = meters(given.get(name), name)
        if length is not None:
            unit = unit or parsed(given[name])[1]  # type: ignore[index]
            given[name] = length / axis
    if has_unit and isinstance(unit, str) and unit_name(unit) in LENGTHS:
        given["distance_unit"] = DistanceUnit(unit_name(unit), LENGTHS[unit_name(unit)] / axis)


def _called(points: Points) -> str:
    return "none" if points.system is None else str(points.system.to_string())


PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
"""Arrow types that become NumPy dtypes if no value is missing."""


def as_frame(given: Any, name: str = "frame") -> Any:
    """Convert an array (n, d) or an Arrow stream to a data frame; return others unchanged.

    Columns of an array are numbered from 0; rows are in either case. `name`: of the argument, in messages.
    """
    if isinstance(given, da.Array):
        return dd.from_dask_array(_two_dimensional(given, name).rechunk({1: -1}))
    if isinstance(given, np.ndarray):
        records = given.dtype.names is not None and given.ndim == 1
        return pd.DataFrame(given if records else _two_dimensional(given, name))
    if type(given).__module__.partition(".")[0] == "cupy" and hasattr(given, "ndim"):
        rows, columns = _two_dimensional(given, name).shape
        return frames_of_library("cudf").result({k: given[:, k] for k in range(columns)}, rows)
    known = is_frame(given) and (hasattr(given, "_meta") or library(given) in LIBRARIES)
    if known or isinstance(given, type) or not hasattr(given, "__arrow_c_stream__"):
        return given
    try:
        return frame_of_arrow(given)
    except pa.ArrowInvalid:  # a column, not a table
        return given


def frame_of_arrow(given: Any) -> Frame:
    """Convert a table to a pandas DataFrame; columns with missing numbers keep Arrow dtypes."""
    table = pa.RecordBatchReader.from_stream(given).read_all()
    columns: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        plain = not column.null_count and any(is_kind(column.type) for is_kind in PLAIN)
        kind = _without_views(column.type)
        columns[name] = (
            column.to_numpy() if plain else pd.arrays.ArrowExtensionArray(cast_arrow(column, kind))
        )
    return pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)


def cast_arrow(array: Any, kind: pa.DataType) -> Any:
    """Cast an array of Arrow; older versions of Arrow cast no views of texts."""
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array(array.to_pylist(), kind)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """The type that holds the same as whole texts: Arrow cannot take rows of its views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _without_views(kind.value_type)
        if inner != kind.value_type:
            return pa.large_list(inner)
    return kind


def _two_dimensional(array: Any, name: str) -> Any:
    if array.ndim != 2:
        raise UnsupportedFrameError(
            f"{name}= is an array of shape {array.shape}; use one of shape (rows, columns)"
            + (", such as x[:, None] of one column." if array.ndim == 1 else ".")
        )
    return array
