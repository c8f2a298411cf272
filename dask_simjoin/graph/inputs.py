"""Accept arrays, Arrow streams, GeoDataFrames and other frames as inputs, without
importing GeoPandas.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection

from dask_simjoin.catalog import HOME, LIBRARIES, library
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from dask_simjoin.metrics.norms import Frame, Ids
from dask_simjoin.request.columns import (
    as_names,
    example_of,
    free_name,
    is_frame,
    optional,
)
from dask_simjoin.request.messages import instead_of_frame, shown
from dask_simjoin.request.options import texts_as_given
from dask_simjoin.request.spec import DistanceUnit, RowSpec
from dask_simjoin.request.units import LENGTHS, meters, parsed, unit_name


def example_ids(meta: Frame, spec: RowSpec) -> Ids:
    """Return an empty example of the row ids in a result. Raise an error for a
    MultiIndex, which cannot be ids.
    """
    ids = row_ids(meta[spec.columns], spec.id)[:0]
    if ids.nlevels > 1:
        raise ColumnError(
            "The index is a MultiIndex, whose labels cannot be ids in a result. Use "
            "id= with a "
            "column of unique values, or add one with frame.simjoin.with_row_id()."
        )
    return ids


DISTANCES = ("eps", "max_eps", "max_distance", "min_distance")
"""Options whose values are distances."""

SPHERE = "haversine"
"""The default metric for points that are longitudes and latitudes."""


@dataclass(frozen=True)
class Points:
    """A geometry column of a frame, whose points are used as coordinates."""

    name: str
    # the coordinate reference system as a `pyproj.CRS`; None if the frame has none
    system: Any
    # names of the two columns that are added for the coordinates x and y
    columns: list[str]

    @property
    def geographic(self) -> bool:
        """Whether the points are longitudes and latitudes."""
        return self.system is not None and bool(self.system.is_geographic)


def with_points(
    frame: Frame, options: Mapping[str, Any], has_unit: bool = False
) -> tuple[Frame, dict[str, Any], list[str]]:
    """Add the coordinates of a GeoDataFrame's active geometry as columns, unless `on`
    names other columns.

    Return the frame, the verb's options adapted to these columns, and the names of the
    added columns. `has_unit`: whether the verb has the option `distance_unit`.
    """
    given = dict(options)
    other = given.get("other")
    left = _points(frame, given.get("left_on", given.get("on")))
    right = (
        _points(other, given.get("right_on", given.get("on")))
        if other is not None
        else None
    )
    if left is None and right is None:
        return frame, given, []
    if left is not None and right is not None and left.system != right.system:
        raise OptionError(
            f"The tables' points are in different coordinate systems, {_called(left)} "
            f"and {_called(right)}; "
            "use other.to_crs(frame.crs) first."
        )
    some = left or right
    assert some is not None
    if some.system is None and "metric" not in given:
        _check_no_unit(given)
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
    """If a result consists of rows of the frame, drop the columns that were added to
    the frame.
    """
    if not added or not hasattr(type(result), "columns"):
        return result
    there = [name for name in added if name in result.columns]
    return result.drop(columns=there) if there else result


def is_geo(frame: object) -> bool:
    """Return whether a frame is a GeoDataFrame, or belongs to a derived class."""
    return any(
        kind.__module__.partition(".")[0] == "geopandas" for kind in type(frame).__mro__
    )


def _points(frame: Any, on: Any) -> Points | None:
    """Return the geometry column whose points are the coordinates of a frame; None if
    there is none.
    """
    meta = getattr(frame, "_meta", frame) if is_dask_collection(frame) else frame
    if not is_geo(meta):
        return None
    name = getattr(meta, "active_geometry_name", None)
    if (
        name is None
        or not is_frame(meta)
        or (on is not None and as_names(on) != [name])
    ):
        return None
    return Points(
        name, meta.crs, [free_name(f"{name}.{axis}", [meta]) for axis in "xy"]
    )


def _with_columns(frame: Frame, points: Points) -> Frame:
    if not is_dask_collection(frame):
        return add_columns(frame, points.name, points.columns)
    meta = add_columns(frame._meta, points.name, points.columns)
    return frame.map_partitions(add_columns, points.name, points.columns, meta=meta)


def add_columns(frame: Frame, name: str, columns: list[str]) -> Frame:
    """Add the coordinates of points as columns; raise an error for other geometries."""
    shapes = frame[name]
    kinds = shapes.geom_type
    wrong = kinds[kinds.notna() & (kinds != "Point")]
    if len(wrong):
        raise ColumnError(
            f"Column {name!r} holds {len(wrong):,} geometries that are not points, "
            "such as a "
            f"{wrong.iloc[0]}. "
            "Use their centroids, for example: "
            f"frame.set_geometry(frame[{name!r}].centroid)."
        )
    return frame.assign(**dict(zip(columns, (shapes.x, shapes.y), strict=True)))


def _convert(given: dict[str, Any], system: Any, has_unit: bool) -> None:
    """Convert distances with units, such as "5 km", to numbers in the unit of the
    coordinate system, such as feet.

    `has_unit`: whether the verb has the option `distance_unit`. If this option is not
    given, distances in the result get the unit of the first distance that has one.
    """
    axis = float(system.axis_info[0].unit_conversion_factor)
    unit = given.get("distance_unit")
    for name in DISTANCES:
        if meters(given.get(name), name) is not None:
            number, own = parsed(given[name])  # type: ignore[misc]
            unit = unit or own
            # the same product as for `DistanceUnit` below, to the last bit
            given[name] = number * (LENGTHS[own] / axis)
    if has_unit and isinstance(unit, str) and unit_name(unit) in LENGTHS:
        given["distance_unit"] = DistanceUnit(
            unit_name(unit), LENGTHS[unit_name(unit)] / axis
        )


def _check_no_unit(given: Mapping[str, Any]) -> None:
    """Raise an error if a distance has a unit, but the coordinate system of the points
    is unknown.
    """
    for name in DISTANCES:
        if parsed(given.get(name)):
            raise OptionError(
                f"{name}={shown(given[name])} has a unit, but the unit of the points "
                "is unknown, because "
                "they have no coordinate system. For longitudes and latitudes, use "
                "frame.set_crs(4326)."
            )


def _called(points: Points) -> str:
    return "none" if points.system is None else str(points.system.to_string())


PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
"""Tests for the Arrow types whose columns become NumPy arrays, unless a value is
missing.
"""


def as_frame(given: Any, name: str = "frame") -> Any:
    """Convert an array (n, d) or an Arrow stream to a data frame; return other values
    unchanged.

    Rows get the numbers from 0 as labels, and so do the columns of an array. `name`:
    name of the argument in messages.
    """
    if is_dask_array(given):
        import dask.dataframe as dd

        return dd.from_dask_array(_two_dimensional(given, name).rechunk({1: -1}))
    if isinstance(given, np.ndarray):
        records = given.dtype.names is not None and given.ndim == 1
        return pd.DataFrame(given if records else _two_dimensional(given, name))
    if type(given).__module__.partition(".")[0] == "cupy" and hasattr(given, "ndim"):
        rows, columns = _two_dimensional(given, name).shape
        return frames_of_library("cudf").result(
            {k: given[:, k] for k in range(columns)}, rows
        )
    if not has_stream(given):
        return given
    try:
        return frame_of_arrow(given)
    except pa.ArrowInvalid:  # the stream is a column instead of a table
        return given


def has_stream(given: object) -> bool:
    """Return whether a table can only be read as an Arrow stream, because it is not a
    frame of pandas, cuDF or Dask.
    """
    known = is_frame(given) and (hasattr(given, "_meta") or library(given) in LIBRARIES)
    return (
        not known
        and not isinstance(given, type)
        and hasattr(given, "__arrow_c_stream__")
    )


def is_dask_array(given: object) -> bool:
    """Return whether an object is a Dask array."""
    if not is_dask_collection(given):
        return False
    import dask.array as da

    return isinstance(given, da.Array)


def frame_of_arrow(given: Any) -> Frame:
    """Convert a table with an Arrow stream to a pandas DataFrame.

    A column of numbers becomes a NumPy array if no value is missing. All other columns
    keep their Arrow dtypes.
    """
    table = pa.RecordBatchReader.from_stream(given).read_all()
    columns: dict[str, Any] = {}
    geometry = [field.name for field in table.schema if _is_geoarrow(field)]
    geopandas: Any = (
        optional("geopandas", "geopandas", "GeoArrow columns") if geometry else None
    )
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in geometry:
            columns[name] = geopandas.GeoDataFrame.from_arrow(
                table.select([name])
            ).geometry
            continue
        plain = not column.null_count and any(is_kind(column.type) for is_kind in PLAIN)
        kind = _without_views(column.type)
        columns[name] = (
            column.to_numpy()
            if plain
            else pd.arrays.ArrowExtensionArray(cast_arrow(column, kind))
        )
    frame = pd.DataFrame(columns, index=pd.RangeIndex(len(table)), copy=False)
    return geopandas.GeoDataFrame(frame, geometry=geometry[0]) if geometry else frame


def _is_geoarrow(field: pa.Field) -> bool:
    """Return whether a column holds GeoArrow geometries, even if no extension type is
    registered for them.
    """
    extension = getattr(field.type, "extension_name", None)
    if extension is None:
        extension = (field.metadata or {}).get(b"ARROW:extension:name", b"").decode()
    return bool(extension.startswith("geoarrow."))


def cast_arrow(array: Any, kind: pa.DataType) -> Any:
    """Cast an Arrow array. Older versions of Arrow cannot cast string views, so string
    views are converted by way of Python objects.
    """
    try:
        return array.cast(kind)
    except pa.ArrowNotImplementedError:
        return pa.array(array.to_pylist(), kind)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Replace string views in a type by large strings: Arrow cannot select rows from an
    array of string views.
    """
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
            f"{name}= is an array of shape {array.shape}; use one of shape (rows, "
            "columns)."
            + (" For a single column, pass x[:, None]." if array.ndim == 1 else "")
        )
    return array


def check_other(call: str, other: object, **second: object) -> None:
    """Raise an error if the right table is not a frame. `second`: name and value of the
    argument after `other`.
    """
    if is_frame(other):
        return
    swapped = [
        f" {name}= is a data frame: the table comes first."
        for name, value in second.items()
        if is_frame(value)
    ]
    if not swapped and "k" in second and isinstance(other, numbers.Integral):
        swapped = [f" For neighbors within this frame, use knn_join(k={shown(other)})."]
    remedy = "" if isinstance(other, numbers.Number) else instead_of_frame(other)
    raise UnsupportedFrameError(
        f"other={shown(other)} is not a data frame.{''.join(swapped) or remedy} Use "
        f"{call}, where "
        "other= is a Dask, pandas or cuDF DataFrame."
    )


def same_library(left: Frame, right: Frame) -> tuple[Frame, Frame, Frame, Frame]:
    """Return two tables and their empty examples; raise an error if their libraries
    differ.

    If only one table is lazy, the other one is converted to a lazy table.
    """
    examples = example_of(left), example_of(right)
    names = [library(example) for example in examples]
    if names[0] != names[1]:
        raise UnsupportedFrameError(
            f"The left table is a {names[0]} frame and the right one a {names[1]} "
            "frame; both must be of one "
            f"library. Use .to_backend({names[0]!r}) of a Dask DataFrame, or convert "
            "the right table."
        )
    if is_dask_collection(left) or is_dask_collection(right):
        left, right = (
            side if is_dask_collection(side) else lazy(side, names[0])
            for side in (left, right)
        )
    return left, right, *examples


def one_or_two(
    frame: Frame, other: Frame | None
) -> tuple[Frame, Frame | None, Frame, Frame | None]:
    """For two tables, call `same_library`. For one table, return the table and its
    empty example.
    """
    return (
        (frame, None, example_of(frame), None)
        if other is None
        else same_library(frame, other)
    )


def lazy(frame: Frame, name: str) -> Frame:
    """Convert a plain frame to a Dask DataFrame with one partition."""
    if name == HOME:
        import dask.dataframe as dd

        # Dask would convert lists and other objects to texts, so switch that off
        with texts_as_given():
            return dd.from_pandas(frame, npartitions=1, sort=False)
    dask_cudf = optional(
        "dask_cudf", "dask-cudf", "Joins of Dask DataFrames with cuDF's"
    )
    return dask_cudf.from_cudf(frame, npartitions=1, sort=False)
