"""Accept arrays, Arrow streams, GeoDataFrames and other frames as inputs, without
importing GeoPandas.
"""

from __future__ import annotations

import math
import numbers
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from dask.base import is_dask_collection
from dask.tokenize import normalize_token

from dask_simjoin.calls.tables import table_of
from dask_simjoin.catalog import LIBRARIES, library
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.native import cast_arrow, native, without_views
from dask_simjoin.errors import (
    ColumnError,
    OptionError,
    SimJoinWarning,
    UnsupportedFrameError,
    in_table,
    line_of_user,
)
from dask_simjoin.metrics.norms import Frame, Ids
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.request.columns import (
    as_names,
    example_of,
    free_name,
    is_frame,
    meta_of,
    optional,
)
from dask_simjoin.request.messages import MOST_SHOWN, instead_of_frame, shown
from dask_simjoin.request.requests import ANTI
from dask_simjoin.request.spec import DistanceUnit, RowSpec
from dask_simjoin.request.units import LENGTHS, meters, parsed, unit_name


def example_ids(meta: Frame, spec: RowSpec) -> Ids:
    """Return an empty example of the row ids in a result. Raise an error for a
    MultiIndex, which cannot be ids.
    """
    ids = row_ids(meta, spec.id)[:0]
    if ids.nlevels > 1:
        raise ColumnError(
            "The index is a MultiIndex, whose labels cannot be ids in a result. Use "
            "id= with a column of unique values, or add one: frame = "
            "frame.simjoin.with_row_id(), then id='row_id'."
        )
    return ids


DISTANCES = ("eps", "max_eps", "max_distance", "min_distance", "radius")
"""Options whose values are distances."""

SPHERE = "haversine"
"""The default metric for points that are longitudes and latitudes."""


EARTH = 0.005
"""Relative tolerance for the radius of the Earth: its ellipsoids differ by less."""

AS_ANGLES = (
    "Or compare angles on the body: add latitudes and longitudes in degrees as columns. "
    "Then use on=['lat', 'lon'], metric='haversine' and a distance such as '0.5 deg'."
)


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

    def adapt(self, given: dict[str, Any], has_unit: bool) -> None:
        """Set the metric of the coordinate system in the options of a verb, unless they
        have a metric, and convert distances with units.

        Raise an error if the metric does not fit the coordinate system.
        """
        if self.system is None and "metric" not in given:
            _check_no_unit(given)
        metric = given.setdefault("metric", SPHERE if self.geographic else "euclidean")
        if self.system is not None:
            _check_system(self.system, metric == SPHERE)
            if not self.geographic:
                _convert(given, self.system, has_unit)

    def in_order(self, metric: object) -> list[str]:
        """Return the added columns in the order that a metric needs."""
        return self.columns[:: -1 if metric == SPHERE else 1]

    def check_same(self, other: Points) -> None:
        """Raise an error if other points are in another coordinate system."""
        if self.system != other.system:
            use = "other = other.to_crs(frame.crs)"
            for name, one in (("frame", self), ("other", other)):
                if one.system is None:
                    use = f"{name} = {name}.set_crs(...) with the system of its points"
            raise OptionError(
                f"The points of the left table have {_system(self)}, and the points of "
                f"the right table have {_system(other)}. Use {use}."
            )


def _check_system(system: Any, on_sphere: bool) -> None:
    """Raise an error for a coordinate system whose points would be compared wrongly.

    `on_sphere`: whether points are compared by "haversine", on a sphere as large as the
    Earth.
    """
    name, axes = _name_of(system), system.axis_info
    if system.is_geocentric:
        raise OptionError(
            f"The coordinate system of the points, {name}, is geocentric: its points "
            "have three coordinates, but only x and y of points are compared. Use "
            "frame.to_crs(4326) first, or add the three coordinates as columns, and "
            "name them with on=."
        )
    if (
        len(axes) < 2
        or axes[0].unit_conversion_factor != axes[1].unit_conversion_factor
    ):
        raise OptionError(
            f"The coordinate system of the points, {name}, does not have two axes x and "
            "y with the same unit. Set the right one first, for example with "
            "frame.set_crs(4326, allow_override=True)."
        )
    if not on_sphere:
        return
    if not system.is_geographic:
        raise OptionError(
            f"metric={SPHERE!r} takes longitudes and latitudes in degrees, and the "
            f"coordinate system of the points, {name}, has other coordinates. Use "
            "frame.to_crs(4326) first, or leave out metric=."
        )
    radius = getattr(system.ellipsoid, "semi_major_metre", None)
    if radius is not None and not abs(radius / RADIUS - 1) <= EARTH:
        raise OptionError(
            f"The coordinate system of the points, {name}, is on a body with a radius "
            f"of {radius:,.10g} m. But metric={SPHERE!r} uses the radius of the Earth, "
            f"{RADIUS:,.0f} m. Project the points to a plane first, with "
            f"frame.to_crs(...) and a projected system of this body. {AS_ANGLES}"
        )
    unit = axes[0]
    if not math.isclose(unit.unit_conversion_factor, math.pi / 180, rel_tol=1e-9):
        raise OptionError(
            f"The coordinate system of the points, {name}, is in {unit.unit_name!r}, "
            f"but metric={SPHERE!r} takes degrees. Use frame.to_crs(4326) first."
        )


@normalize_token.register_lazy("geopandas")
def _name_points_apart() -> None:
    """Make Dask's names of GeoDataFrames depend on their coordinate system.

    Otherwise Dask takes two frames with the same points for one, and the second frame
    gets the coordinate system of the first.
    """
    geopandas: Any = sys.modules["geopandas"]

    @normalize_token.register(geopandas.array.GeometryArray)
    def points_token(points: Any) -> Any:
        system = None if points.crs is None else points.crs.to_wkt()
        # Dask would pickle each point, which takes 20 times as long
        return "GeometryArray", system, normalize_token(geopandas.array.to_wkb(points))

    @normalize_token.register(geopandas.GeoDataFrame)
    def frame_token(frame: Any) -> Any:
        active = frame.active_geometry_name
        return type(frame).__name__, active, normalize_token(pd.DataFrame(frame))


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
    left = points_of(frame, given.get("left_on", given.get("on")))
    right = (
        points_of(other, given.get("right_on", given.get("on")))
        if other is not None
        else None
    )
    if left is None and right is None:
        return frame, given, []
    if left is not None and right is not None:
        left.check_same(right)
    some = left or right
    assert some is not None
    some.adapt(given, has_unit)
    added, two = {}, other is not None
    for side, points, table in (("left", left, frame), ("right", right, other)):
        if points is not None:
            added[side] = _with_columns(table, points, side if two else None)
            on = "on" if other is None else f"{side}_on"
            given[on] = points.in_order(given["metric"])
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
    return any(is_geo_type(kind) for kind in type(frame).__mro__)


def is_geo_type(kind: type) -> bool:
    """Return whether a class belongs to GeoPandas."""
    return kind.__module__.partition(".")[0] == "geopandas"


def points_of(frame: Any, on: Any) -> Points | None:
    """Return the geometry column whose points are the coordinates of a frame; None if
    there is none.

    Raise an error if only another geometry column can be meant.
    """
    meta = meta_of(frame)
    if "geopandas" not in sys.modules or not is_frame(meta):
        return None
    name = getattr(meta, "active_geometry_name", None) if is_geo(meta) else None
    if name is not None and (on is None or as_names(on) == [name]):
        columns = [free_name(f"{name}.{axis}", [meta]) for axis in "xy"]
        return Points(name, meta.crs, columns)
    others = [
        column
        for column, dtype in zip(meta.columns, meta.dtypes, strict=True)
        if is_geo_type(type(dtype))
    ]
    meant = others if on is None else [one for one in others if one in as_names(on)]
    if meant:
        make = (
            f"frame.set_geometry({meant[0]!r})"
            if is_geo(meta)
            else f"geopandas.GeoDataFrame(frame, geometry={meant[0]!r})"
        )
        raise ColumnError(
            f"Column {meant[0]!r} holds geometries, but is not the active geometry of a "
            f"GeoDataFrame. To use its points, call {make} first, without on=. For "
            "other columns, use on=[...]."
        )
    return None


def _with_columns(frame: Frame, points: Points, which: str | None) -> Frame:
    table = table_of(frame)
    return table.by_partition(
        add_columns, points.name, points.columns, which, table.has_positions
    )


def add_columns(
    frame: Frame,
    name: str,
    columns: list[str],
    which: str | None = None,
    has_positions: bool = True,
) -> Frame:
    """Add the coordinates of points as columns; raise an error for other geometries.

    `which`: "left" or "right"; None: there is only one table. `has_positions`: whether
    the rows are not a partition, so that errors name their positions.
    """
    with in_table(which):
        _check_points(frame, name, which == "right", has_positions)
    shapes = frame[name]
    return frame.assign(**dict(zip(columns, (shapes.x, shapes.y), strict=True)))


def _check_points(frame: Frame, name: str, is_right: bool, has_positions: bool) -> None:
    shapes = frame[name]
    kinds = shapes.geom_type
    wrong = (kinds.notna() & (kinds != "Point")).to_numpy()
    table = "other" if is_right else "frame"
    if wrong.any():
        row = int(wrong.argmax())
        label = shown(frame.index[row])
        place = (
            f"in row {row} (label {label})" if has_positions else f"at label {label}"
        )
        many = int(wrong.sum())
        things = (
            "geometry that is not a point"
            if many == 1
            else ("geometries that are not points")
        )
        raise ColumnError(
            f"Column {name!r} holds {many:,} {things}, such as a {kinds.iloc[row]} "
            f"{place}. Distances are between points only; to use the centroids: "
            f"{table} = {table}.set_geometry({table}[{name!r}].centroid)."
        )
    if shapes.has_z.any() and (shapes.z[shapes.has_z].fillna(0) != 0).any():
        raise ColumnError(
            f"Column {name!r} holds points with heights (z), but only x and y of points "
            f"are compared. To ignore the heights, use {table} = "
            f"{table}.set_geometry({table}[{name!r}].force_2d()). To compare them, add all "
            "three coordinates of projected points as columns, and name them with on=."
        )


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


def _system(points: Points) -> str:
    if points.system is None:
        return "no coordinate system"
    return f"the coordinate system {_name_of(points.system)}"


def _name_of(system: Any) -> str:
    """Return the code of a coordinate system such as "EPSG:4326", or else its name."""
    text = str(system.to_string())
    return text if len(text) <= MOST_SHOWN else repr(system.name)


PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
"""Tests for the Arrow types whose columns become NumPy arrays, unless a value is
missing.
"""


def as_frame(given: Any, name: str = "frame") -> Any:
    """Convert an array (n, d) or an Arrow stream to a data frame with native columns;
    return other values unchanged.

    Rows get the numbers from 0 as labels, and so do the columns of an array. `name`:
    name of the argument in messages.
    """
    if is_dask_array(given):
        import dask.dataframe as dd

        points = _two_dimensional(given, name).rechunk({1: -1})
        return table_of(dd.from_dask_array(points)).native()
    if isinstance(given, np.ma.MaskedArray):
        return native(_frame_of_masked(given, name))
    if isinstance(given, np.ndarray):
        records = given.dtype.names is not None and given.ndim == 1
        return native(pd.DataFrame(given if records else _two_dimensional(given, name)))
    if type(given).__module__.partition(".")[0] == "cupy" and hasattr(given, "ndim"):
        rows, columns = _two_dimensional(given, name).shape
        return frames_of_library("cudf").result(
            {k: given[:, k] for k in range(columns)}, rows
        )
    if not has_stream(given):
        return table_of(given).native()
    try:
        return frame_of_arrow(given)
    except pa.ArrowInvalid:  # the stream is a column instead of a table
        return given


def masked_rows(rows: Any) -> Any:
    """Return rows as a masked array if they are one, or a list with masked arrays; else
    None.
    """
    if isinstance(rows, np.ma.MaskedArray):
        return rows
    if isinstance(rows, (list, tuple)) and any(
        isinstance(row, np.ma.MaskedArray) for row in rows
    ):
        return np.ma.stack([np.ma.asarray(row) for row in rows])
    return None


def _frame_of_masked(given: Any, name: str) -> Frame:
    """Convert a masked array to a frame. Masked numbers become missing.

    Integers with masked values become nullable, because float64 has not all of them.
    """
    fields = given.dtype.names if given.ndim == 1 else None
    if fields is None:
        array = _two_dimensional(given, name)
        if not np.ma.is_masked(array):
            return pd.DataFrame(np.ma.getdata(array))
        if array.dtype.kind == "f":
            return pd.DataFrame(array.filled(np.nan))
        columns = {k: array[:, k] for k in range(array.shape[1])}
    else:
        columns = {field: given[field] for field in fields}
    values = {label: _without_mask(column) for label, column in columns.items()}
    return pd.DataFrame(values, index=pd.RangeIndex(len(given)))


def _without_mask(column: Any) -> Any:
    mask, values = np.ma.getmaskarray(column), np.ma.getdata(column)
    if not mask.any():
        return values
    if values.dtype.kind in "iu":
        native_kind = values.dtype.newbyteorder("=")
        return pd.arrays.IntegerArray(values.astype(native_kind), mask)
    if values.dtype.kind == "b":
        return pd.arrays.BooleanArray(values.copy(), mask)
    return column.filled(np.nan) if values.dtype.kind == "f" else column


def has_stream(given: object) -> bool:
    """Return whether a table can only be read as an Arrow stream, because it is not a
    frame of pandas, cuDF or Dask.
    """
    known = is_frame(given) and (hasattr(given, "_meta") or library(given) in LIBRARIES)
    return (
        not known
        and not isinstance(given, (type, pd.Series, pd.Index))
        and hasattr(given, "__arrow_c_stream__")
    )


def is_dask_array(given: object) -> bool:
    """Return whether an object is a Dask array."""
    module = sys.modules.get("dask.array")  # it is loaded if there is an array
    return module is not None and isinstance(given, module.Array)


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
        kind = without_views(column.type)
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
        f" {name}= is a data frame, so the arguments are swapped."
        for name, value in second.items()
        if is_frame(value)
    ]
    if not swapped and "k" in second and isinstance(other, numbers.Integral):
        k = shown(other)
        swapped = [f" For the {k} nearest rows within this frame, use knn_join(k={k})."]
        call = f"knn_join(other, {k}) for rows of another table"
    remedy = "" if isinstance(other, numbers.Number) else instead_of_frame(other)
    raise UnsupportedFrameError(
        f"other={shown(other)} is not a data frame.{''.join(swapped) or remedy} Use "
        f"{call}, where "
        "other= is a Dask, pandas or cuDF DataFrame."
    )


def warn_of_itself(verb: str, given: Mapping[str, Any]) -> None:
    """Warn if a table is joined with itself, and the result is trivial because each row
    is its own partner.
    """
    options = "different", "within", "min_distance"
    if given.get("dropna") or any(given.get(name) is not None for name in options):
        return
    kind = verb.removesuffix("join").removeprefix("knn_")  # "", "set_" or "edit_"
    if given.get("how") == ANTI:
        use = (
            "For the rows without another row near them, use "
            f"drop_{kind}near_duplicates(..., keep=False)."
        )
    elif given.get("best") and given.get("ties") != "all":
        use = f"For the best other rows, use {kind}self_join(..., best=...)."
    else:
        return
    text = f"other= is this frame itself, so each row is a partner of itself. {use}"
    warnings.warn(SimJoinWarning(text), stacklevel=line_of_user())


def check_threads(threads: object, *tables: Any) -> None:
    """Raise an error for the option `threads` if one of the tables is lazy."""
    if any(table_of(table).own_threads(threads) is not threads for table in tables):
        raise OptionError(
            f"threads={shown(threads)} is only for frames in memory, and this join of a "
            "Dask DataFrame runs on the threads of Dask. Leave out threads=, and use "
            "dask.config.set(num_workers=...), or a cluster whose workers have that "
            "many threads."
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
        left, right = (table_of(table).lazy(names[0]) for table in (left, right))
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
