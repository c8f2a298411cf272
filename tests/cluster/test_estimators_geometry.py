"""Estimators of GeoDataFrames use the points, as the verbs do."""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin
from dask_simjoin.cluster import DBSCAN, HDBSCAN, OPTICS
from dask_simjoin.errors import ColumnError, OptionError
from dask_simjoin.neighbors import (
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsTransformer,
)
from tests.support.frames import computed, lay

geopandas = pytest.importorskip("geopandas")

RNG = np.random.default_rng(0)
LAT, LON = RNG.uniform(50, 50.2, 60), RNG.uniform(2, 2.2, 60)
POINTS = geopandas.GeoDataFrame(
    {"population": np.arange(60.0)},
    geometry=geopandas.points_from_xy(LON, LAT),
    crs=4326,
    index=np.arange(60) + 100,
)
FEET = POINTS.to_crs(2227)
QUERIES = POINTS.iloc[::7].rename_geometry("place")
DEGREES = np.c_[LAT, LON]


def arrow(frame):
    """A GeoArrow table."""
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table(frame.to_arrow(geometry_encoding="geoarrow"))


@pytest.mark.parametrize("how", ["pandas", "dask-3"])
@pytest.mark.parametrize(("points", "eps"), [(POINTS, 2000), (FEET, "2 km")])
def test_clusters_are_those_of_the_verbs(how, points, eps):
    data = lay(points, how)
    labels = computed(DBSCAN(eps=eps, min_samples=3).fit_predict(data))
    assert labels.equals(points.simjoin.dbscan(eps, 3)) and labels.max() > 0
    order = computed(
        OPTICS(eps, min_samples=3, cluster_method="dbscan").fit(data).optics_
    )
    pd.testing.assert_frame_equal(order, points.simjoin.optics(eps, 3))
    found = computed(HDBSCAN(4).fit(data).hdbscan_)
    pd.testing.assert_frame_equal(found, points.simjoin.hdbscan(4))


def test_attributes_of_fitted_points():
    model = DBSCAN(eps=2000, min_samples=3).fit(POINTS)
    assert model.n_features_in_ == 2 and model.get_params()["metric"] is None
    assert model.feature_names_in_.tolist() == ["geometry.y", "geometry.x"]
    core = POINTS.iloc[model.core_sample_indices_]
    assert isinstance(model.components_, geopandas.GeoDataFrame)
    assert model.components_.equals(core[["geometry"]])
    labels = DBSCAN(eps=2000, min_samples=3).fit_predict(arrow(POINTS))
    assert labels.tolist() == model.labels_.tolist()
    plain = DBSCAN(eps=0.02, min_samples=3, metric="euclidean").fit(POINTS).labels_
    assert (
        plain.tolist() == DBSCAN(eps=0.02, min_samples=3).fit(DEGREES).labels_.tolist()
    )
    other = DBSCAN(eps=1.0, min_samples=3, on="population").fit(POINTS).labels_
    assert (other == 0).all()


def test_optics_converts_the_distance_of_its_clusters():
    options = {"min_samples": 3, "cluster_method": "dbscan"}
    want = FEET.simjoin.dbscan("1 km", 3)
    found = OPTICS("2 km", eps="1 km", mode="forest", **options).fit(FEET).labels_
    assert ((found >= 0) <= (want >= 0)).all() and found.max() == want.max() > 0
    with pytest.raises(OptionError, match="eps='3 km' is not allowed; use at most max"):
        OPTICS("2 km", eps="3 km", **options).fit(FEET)


@pytest.mark.parametrize(("points", "unit"), [(POINTS, "m"), (FEET, None)])
def test_neighbors_are_those_of_the_verbs(points, unit):
    queries = QUERIES.to_crs(points.crs)
    model = NearestNeighbors(n_neighbors=3, radius="2 km").fit(points)
    numbered = points.reset_index(drop=True)
    want = queries.reset_index(drop=True).simjoin.knn_join(numbered, 3)
    for rows in (queries, arrow(queries)):
        distances, found = model.kneighbors(rows)
        assert found.ravel().tolist() == want["right"].tolist()
        assert distances.ravel().tolist() == want["distance"].tolist()
    own = model.kneighbors(return_distance=False)
    assert own.ravel().tolist() == numbered.simjoin.knn_join(k=3)["right"].tolist()
    pairs = queries.reset_index(drop=True).simjoin.join(
        numbered, "2 km", return_distance=True
    )
    distances, found = model.radius_neighbors(queries)
    assert sum(map(len, found)) == len(pairs) > len(queries)
    assert sorted(np.concatenate(distances)) == sorted(pairs["distance"])
    graph = RadiusNeighborsTransformer(radius="2 km").fit(points).transform(queries)
    assert graph.nnz == len(pairs)
    nearest = KNeighborsTransformer(n_neighbors=2).fit(points).transform(queries)
    assert nearest.indices.tolist() == found_rows(model, queries)
    in_km = NearestNeighbors(n_neighbors=3, distance_unit="km").fit(points)
    meters = NearestNeighbors(n_neighbors=3, distance_unit="m").fit(points)
    np.testing.assert_allclose(
        in_km.kneighbors(queries)[0] * 1000, meters.kneighbors(queries)[0]
    )


def found_rows(model, queries):
    """The row numbers of three neighbors of each query."""
    return model.kneighbors(queries, return_distance=False).ravel().tolist()


def test_new_points_are_assigned_to_clusters():
    model = HDBSCAN(4).fit(POINTS)
    degrees = HDBSCAN(4, metric="haversine").fit(DEGREES)
    assert model.labels_.tolist() == degrees.labels_.tolist()
    want = degrees.predict(DEGREES[::7]).tolist()
    assert model.predict(QUERIES).tolist() == want
    assert model.predict(QUERIES).index.tolist() == QUERIES.index.tolist()
    assert model.predict(DEGREES[::7]).tolist() == want


def test_refused_points():
    model = NearestNeighbors().fit(POINTS)
    with pytest.raises(OptionError, match=r"Use other = other\.to_crs\(frame\.crs\)"):
        model.kneighbors(QUERIES.to_crs(2227))
    with pytest.raises(ColumnError, match=r"X has no columns 'geometry\.y'"):
        model.kneighbors(pd.DataFrame({"population": [1.0]}))
    areas = FEET.set_geometry(FEET.buffer(1))
    mars = POINTS.set_crs("IAU_2015:49900", allow_override=True)
    for kind in (DBSCAN, OPTICS, HDBSCAN, NearestNeighbors, KNeighborsTransformer):
        with pytest.raises(ColumnError, match="not points, such as a Polygon"):
            kind().fit(areas)
        with pytest.raises(OptionError, match="on a body with a radius of 3,396,190 m"):
            kind().fit(mars)
    with pytest.raises(OptionError, match="has a unit, but the unit of the points is"):
        NearestNeighbors(radius="1 km").fit(POINTS.set_crs(None, allow_override=True))
    assert dask_simjoin.count_pairs(POINTS, 2000) > 0
