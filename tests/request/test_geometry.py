"""Points of GeoPandas: their coordinates, and the metric that their system tells."""

import dask
import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.cluster import DBSCAN
from dask_simjoin.errors import (
    BudgetError,
    ColumnError,
    OptionError,
    UnitsWarning,
    UnsupportedFrameError,
)
from tests.support.frames import computed, lay
from tests.support.remedies import repaired

geopandas = pytest.importorskip("geopandas")

RNG = np.random.default_rng(0)
LAT, LON = RNG.uniform(50, 51, 80), RNG.uniform(2, 4, 80)
POINTS = geopandas.GeoDataFrame(
    {"name": [f"place {k}" for k in range(80)], "population": np.arange(80)},
    geometry=geopandas.points_from_xy(LON, LAT),
    crs=4326,
)
DEGREES = pd.DataFrame({"lat": LAT, "lon": LON, "name": POINTS["name"]})
HAVERSINE = {"on": ["lat", "lon"], "metric": "haversine"}


def rows(pairs):
    """A set of rows."""
    return set(map(tuple, pairs.to_numpy().tolist()))


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_degrees_are_joined_on_the_sphere(how):
    data = lay(POINTS, how)
    for options in ({}, {"on": "geometry"}, {"on": ["geometry"]}):
        found = computed(
            data.simjoin.self_join(5000, return_distance=True, keep="name", **options)
        )
        want = DEGREES.simjoin.self_join(
            5000, return_distance=True, keep="name", **HAVERSINE
        )
        assert rows(found) == rows(want) and len(want) > 10
    assert computed(data.simjoin.count_pairs("5 km")) == len(want)
    labels = computed(data.simjoin.dbscan(5000, 3))
    assert labels.tolist() == DEGREES.simjoin.dbscan(5000, 3, **HAVERSINE).tolist()


def test_another_metric_can_be_named():
    want = DEGREES.simjoin.count_pairs(0.05, on=["lon", "lat"])
    assert POINTS.simjoin.count_pairs(0.05, metric="euclidean") == want > 0


def test_projected_points_are_joined_in_their_unit():
    metric, feet = POINTS.to_crs(32631), POINTS.to_crs(2227)
    x = pd.DataFrame({"x": metric.geometry.x, "y": metric.geometry.y})
    want = rows(x.simjoin.self_join(5000))
    assert len(want) > 10
    assert (
        rows(metric.simjoin.self_join(5000))
        == rows(metric.simjoin.self_join("5 km"))
        == want
    )
    unit = feet.crs.axis_info[0].unit_conversion_factor
    assert unit != 1
    there = pd.DataFrame({"x": feet.geometry.x, "y": feet.geometry.y})
    assert rows(feet.simjoin.self_join("5 km")) == rows(
        there.simjoin.self_join(5000 / unit)
    )


def test_distances_of_projected_points_have_the_unit_of_the_request():
    metric, feet = POINTS.to_crs(32631), POINTS.to_crs(2227)
    options = {"return_distance": True}
    meters = metric.simjoin.self_join(5000, **options).distance
    km = metric.simjoin.self_join("5 km", **options).distance
    np.testing.assert_allclose(km, meters / 1000, rtol=1e-15)
    assert (km * 1000 >= meters).all() and (np.nextafter(km, 0) * 1000 < meters).all()
    in_km = metric.simjoin.self_join(5000, distance_unit="km", **options).distance
    assert in_km.tolist() == km.tolist()
    in_feet = feet.simjoin.self_join(15_000, **options)
    unit = feet.crs.axis_info[0].unit_conversion_factor
    in_meters = feet.simjoin.self_join(15_000, distance_unit="m", **options)
    np.testing.assert_allclose(in_meters.distance, in_feet.distance * unit, rtol=1e-15)
    nearest = feet.simjoin.knn_join(k=1, max_distance="5 km")
    assert 0 < nearest.distance.max() <= 5
    far = feet.simjoin.knn_join(k=1, min_distance="5 km", distance_unit="m")
    assert 5000 <= far.distance.min() < 50_000
    with pytest.raises(
        OptionError, match="distance_unit='deg' is not allowed with metric='euclidean'"
    ):
        metric.simjoin.self_join(1, distance_unit="deg", **options)


def test_two_tables():
    found = POINTS.simjoin.join(POINTS.iloc[:30], "5 km", keep="name")
    want = DEGREES.simjoin.join(DEGREES.iloc[:30], 5000, keep="name", **HAVERSINE)
    assert rows(found) == rows(want) and len(want) > 10
    mixed = POINTS.simjoin.join(
        DEGREES.iloc[:30],
        5000,
        left_on="geometry",
        right_on=["lat", "lon"],
        keep="name",
    )
    assert rows(mixed) == rows(want)
    turned = DEGREES.simjoin.knn_join(
        POINTS.iloc[:30], 2, left_on=["lat", "lon"], right_on="geometry"
    )
    assert len(turned) == 160 and turned["distance"].max() > 1000
    with pytest.raises(
        OptionError,
        match=r"EPSG:4326, and .* EPSG:32631\. Use other = other\.to_crs\(frame\.crs\)",
    ):
        POINTS.simjoin.join(POINTS.to_crs(32631), 1)


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_rows_of_the_frame_stay_as_they_were(how):
    data = lay(POINTS, how)
    once = computed(dask_simjoin.drop_near_duplicates(data, "5 km", keep="population"))
    assert isinstance(once, geopandas.GeoDataFrame) and once.crs == POINTS.crs
    assert list(once.columns) == list(POINTS.columns) and 0 < len(once) < 80
    near = computed(
        data.simjoin.join(
            data.loc[:9] if how == "pandas" else POINTS.iloc[:10],
            "5 km",
            how="leftsemi",
        )
    )
    assert list(near.columns) == list(POINTS.columns) and len(near) >= 10


def test_other_columns_can_be_named():
    assert POINTS.simjoin.count_pairs(1.0, on="population") == 79
    assert POINTS.simjoin.with_row_id().columns[-1] == "row_id"


def test_refused():
    areas = POINTS.to_crs(32631).set_geometry(POINTS.to_crs(32631).geometry.buffer(1))
    with pytest.raises(
        ColumnError, match=r"^Column 'geometry' holds 80 geom"
    ) as caught:
        areas.simjoin.self_join(1)
    assert len(repaired(str(caught.value), areas).simjoin.knn_join(k=1)) == 80
    with pytest.raises(
        OptionError,
        match=r"has a unit, but the unit of the points is unknown.*use frame\.set_crs\(4326\)",
    ):
        POINTS.set_crs(None, allow_override=True).simjoin.self_join("5 km")


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize("which", ["left", "right"])
def test_message_names_the_table_with_areas(how, which):
    metric = POINTS.to_crs(32631)
    shapes = metric.geometry.copy()
    shapes.iloc[7] = shapes.iloc[7].buffer(1)
    areas = metric.set_geometry(shapes)
    tables = {"left": lay(metric, how), "right": lay(metric, how)}
    tables[which] = lay(areas, how)
    with pytest.raises(ColumnError) as caught:
        computed(tables["left"].simjoin.join(tables["right"], 1))
    text = str(caught.value)
    assert text.startswith(
        f"In the {which} table, column 'geometry' holds 1 geometry that is not a point, "
        "such as a Polygon "
    )
    assert ("in row 7 (label " in text) == (how == "pandas")
    assert f" label {areas.index[7]!r}" in text.replace("(", " ")
    name = "frame" if which == "left" else "other"
    assert f": {name} = {name}.set_geometry({name}['geometry'].centroid)." in text


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_degrees_without_a_coordinate_system(how):
    random = np.random.default_rng(0)
    places = geopandas.points_from_xy(
        random.uniform(0, 20, 600), random.uniform(0, 20, 600)
    )
    unknown = geopandas.GeoDataFrame(geometry=places)
    data = lay(unknown, how)
    for eps in (5000, 0.001):
        with pytest.warns(UnitsWarning) as caught:
            computed(data.simjoin.count_pairs(eps))
        assert "use frame.set_crs(4326) first: eps is then in meters" in str(
            caught[0].message
        )
    square = unknown.set_geometry(unknown.scale(0.05, 0.05, origin=(0, 0)))
    computed(lay(square, how).simjoin.count_pairs(0.1))
    limit = dask.config.set({"simjoin.result-limit": "1 kiB"})
    with (
        limit,
        pytest.raises(
            BudgetError, match=r"use frame\.set_crs\(4326\) first.* The limit is"
        ),
    ):
        computed(data.simjoin.self_join(5000))
    assert computed(lay(unknown.set_crs(4326), how).simjoin.count_pairs("50 km")) > 0
    with pytest.warns(UnitsWarning) as caught:
        computed(
            lay(unknown.set_geometry(unknown.translate(1000)), how).simjoin.count_pairs(
                5000
            )
        )
    assert "set_crs" not in str(caught[0].message)


def test_columns_called_as_those_of_coordinates_stay():
    points = POINTS.assign(
        **{"geometry.x": 1000.0 * np.arange(len(POINTS)), "geometry.y": 7}
    )
    assert (
        points.simjoin.count_pairs("5000 km")
        == POINTS.simjoin.count_pairs("5000 km")
        > 0
    )
    matched = points.simjoin.join(points, "1 m", how="leftsemi")
    assert matched.equals(points) and isinstance(matched, geopandas.GeoDataFrame)
    assert (
        len(points.simjoin.self_join(500.0, on="geometry.x", metric="euclidean")) == 0
    )


def test_lazy_points_keep_their_own_coordinate_system():
    frames = [
        POINTS,
        POINTS.set_crs(32631, allow_override=True),
        POINTS.set_crs(None, allow_override=True),
        POINTS.assign(other=POINTS.geometry),
        POINTS.assign(other=POINTS.geometry).set_geometry("other"),
        pd.DataFrame(POINTS),
    ]
    lazy = [lay(frame, "dask-3") for frame in frames]
    assert len({one._name for one in lazy}) == len(frames)
    assert [one._meta.crs for one in lazy[:3]] == [one.crs for one in frames[:3]]
    assert lay(POINTS.copy(), "dask-3")._name == lazy[0]._name
    moved = POINTS.set_geometry(POINTS.translate(1, 0))
    assert lay(moved, "dask-3")._name != lazy[0]._name


def test_an_index_of_points_names_the_columns_that_new_rows_need(tmp_path):
    index = POINTS[:40].simjoin.index("2 km", tmp_path / "index")
    new = POINTS[40:]
    with pytest.raises(
        ColumnError, match=r"as columns, such as frame\.assign\(\*\*\{'g"
    ):
        index.update(new)
    x, y = new.geometry.x, new.geometry.y
    index.update(new.assign(**{"geometry.x": x, "geometry.y": y}))
    assert rows(index.pairs().compute()) == rows(POINTS.simjoin.self_join("2 km"))


def at(*points, crs):
    """A GeoDataFrame of two or more points."""
    return geopandas.GeoDataFrame(geometry=geopandas.points_from_xy(*points), crs=crs)


BODIES = ["IAU_2015:30100", "IAU_2015:49900", "IAU_2015:49901", "+proj=longlat +R=1"]


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_other_bodies_and_units_are_refused(how):
    for crs in BODIES:
        points = lay(at([0, 0], [0, 1], crs=crs), how)
        with pytest.raises(
            OptionError, match=r"on a body with a radius of .* But metric"
        ):
            points.simjoin.self_join("1 km")
        with pytest.raises(OptionError, match="Or compare angles on the body"):
            points.simjoin.dbscan(1, metric="haversine")
        assert computed(points.simjoin.count_pairs(1, metric="euclidean")) == 1
    grads = lay(at([2, 2], [48, 49], crs=4807), how)
    with pytest.raises(
        OptionError, match=r"in 'grad', but .* Use frame\.to_crs\(4326\)"
    ):
        grads.simjoin.self_join("1 km")
    there = lay(at([2, 2], [48, 49], crs=4807).to_crs(4326), how)
    assert computed(there.simjoin.count_pairs("101 km")) == 1
    with pytest.raises(OptionError, match="is geocentric: its points have three"):
        lay(at([0, 1], [0, 1], crs=4978), how).simjoin.self_join(1)
    with pytest.raises(
        OptionError, match="does not have two axes x and y with the same"
    ):
        lay(at([0, 2], [0, 1], crs=5773), how).simjoin.self_join(1)
    with pytest.raises(
        OptionError, match="takes longitudes and latitudes in degrees, an"
    ):
        lay(at([0, 3], [0, 1], crs=32631), how).simjoin.self_join(1, metric="haversine")


def test_angles_on_another_body_are_compared_as_the_message_says():
    moon = at([0, 0], [0, 1], crs="IAU_2015:30100")
    columns = moon.assign(lat=moon.geometry.y, lon=moon.geometry.x)
    found = columns.simjoin.self_join(
        "1.01 deg", on=["lat", "lon"], metric="haversine", return_distance=True
    )
    assert found["distance"].round(9).tolist() == [1]


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
def test_geometry_that_is_not_active_is_not_ignored(how):
    plain = lay(pd.DataFrame(POINTS), how)
    with pytest.raises(ColumnError, match=r"call geopandas\.GeoDataFrame\(frame, geo"):
        plain.simjoin.count_pairs(1)
    with pytest.raises(ColumnError, match="Column 'geometry' holds geometries, but is"):
        plain.simjoin.count_pairs(1, on="geometry")
    with pytest.raises(ColumnError, match="holds geometries"):
        DBSCAN(eps=1).fit(plain)
    with pytest.raises(ColumnError, match="holds geometries"):
        plain.simjoin.join(plain, 1)
    assert computed(plain.simjoin.count_pairs(1, on="population")) == 79
    two = POINTS.assign(other=POINTS.geometry)
    with pytest.raises(ColumnError, match=r"call frame\.set_geometry\('other'\) first"):
        two.simjoin.count_pairs(1, on="other")
    assert two.simjoin.count_pairs(5000) == POINTS.simjoin.count_pairs(5000)
    with pytest.raises(UnsupportedFrameError, match=r"Use \.to_frame\(\)"):
        dask_simjoin.count_pairs(POINTS.geometry, 1)
    with pytest.raises(UnsupportedFrameError, match=r"Use X\.to_frame\(\)"):
        DBSCAN(eps=1).fit(POINTS.geometry)


@pytest.mark.parametrize(
    "crs", [4326, 4267, "OGC:CRS84", 4979, "+proj=longlat +R=6370997", "EPSG:4326+5773"]
)
def test_systems_of_the_earth_in_degrees(crs):
    found = at([2, 2], [48, 49], crs=crs).simjoin.closest_pairs(1)["distance"]
    assert found.round().tolist() == [111195]


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize("crs", [None, 4326, 4979, 32631])
def test_heights_are_refused(how, crs):
    heights = at([0, 1], [0, 0], [0, 500], crs=crs)
    for verb in ("count_pairs", "dbscan"):
        with pytest.raises(ColumnError, match=r"heights \(z\).*\.force_2d\(\)"):
            computed(getattr(lay(heights, how).simjoin, verb)(1))
    flat = heights.set_geometry(heights["geometry"].force_2d())
    assert computed(lay(flat, how).simjoin.count_pairs(200_000)) == 1
    zeros = at([0, 1], [0, 0], [0, 0], crs=crs)
    assert computed(lay(zeros, how).simjoin.count_pairs(200_000)) == 1
