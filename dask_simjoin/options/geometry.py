"""Join points of GeoPandas: their columns of geometries become coordinates, their system tells the metric.

GeoPandas is not imported: what is needed is asked of the frames that it made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask.base import is_dask_collection

from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.columns import as_names, free_name
from dask_simjoin.options.frames import is_frame
from dask_simjoin.options.units import metres

DISTANCES = ("eps", "max_eps", "max_distance")
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


def with_points(frame: Frame, options: Mapping[str, Any]) -> tuple[Frame, dict[str, Any], list[str]]:
    """The frame, and the options of a verb, with columns of coordinates where points of GeoPandas are meant.

    They are where `on` names the active geometry, or nothing. Of longitudes and latitudes the metric is
    "haversine", unless one was named. The names of columns that were added to the frame come last.
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
        _convert(given, some.system)
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
    """Leave out columns that were added, where a result has them: where it is rows of the frame."""
    if not added or not hasattr(type(result), "columns"):
        return result
    there = [name for name in added if name in result.columns]
    return result.drop(columns=there) if there else result


def _points(frame: Any, on: Any) -> Points | None:
    """The points that are meant as coordinates of a frame; None: none are."""
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
            f"Column {name!r} holds {len(wrong):,} geometries that are no points, such as a {wrong.iloc[0]}; "
            f"use their centroids, or other points of them: frame.set_geometry(frame[{name!r}].centroid)."
        )
    return frame.assign(**dict(zip(columns, (shapes.x, shapes.y), strict=True)))


def _convert(given: dict[str, Any], system: Any) -> None:
    """Make numbers of distances with units of length, in the unit of the system's axes."""
    for name in DISTANCES:
        length = metres(given.get(name), name)
        if length is not None:
            given[name] = length / float(system.axis_info[0].unit_conversion_factor)


def _called(points: Points) -> str:
    return "none" if points.system is None else str(points.system.to_string())
