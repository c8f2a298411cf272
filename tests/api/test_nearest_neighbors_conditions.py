"""Estimators of neighbors with conditions on both rows, against brute force."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import ColumnError, CoordinateError, OptionError
from dask_simjoin.neighbors import (
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsTransformer,
)
from tests.cluster.test_estimators_conditions import APART, AWAY, DISTANCES, X
from tests.support.profiles import in_turns

EARLIER = (X[None, :, 2] - X[:, None, 2] <= 0) & (APART[..., 2] <= 0.5)
EVERY = {
    **DISTANCES,
    "earlier": ({"within": {2: (-0.5, 0)}}, np.where(EARLIER, AWAY, np.inf)),
}


@in_turns(1, new=[False, True], case=list(EVERY))
def test_neighbors(case, new):
    options, away = EVERY[case]
    away = np.where(away <= 0.25, away, np.inf)
    if not new:
        np.fill_diagonal(away, np.inf)
    order = np.argsort(away, axis=1, kind="stable")[:, :4]
    nearest = np.take_along_axis(away, order, 1)
    rows = np.where(np.isfinite(nearest), order, len(X))
    assert 0 < (rows == len(X)).sum() < rows.size
    how = {"n_neighbors": 4, "radius": 0.25, "max_distance": 0.25}
    model = NearestNeighbors(**how, **options).fit(X)
    assert model.n_features_in_ == 3
    queries = X if new else None
    found = model.kneighbors(queries)
    assert found[1].tolist() == rows.tolist()
    assert np.allclose(found[0], nearest, rtol=1e-15)
    graph = model.kneighbors_graph(queries, mode="distance")
    assert graph.nnz == np.isfinite(nearest).sum()
    assert graph[0].indices.tolist() == rows[0][rows[0] < len(X)].tolist()
    near = model.radius_neighbors(queries, return_distance=False)
    want = [np.flatnonzero(np.isfinite(own)).tolist() for own in away]
    assert [one.tolist() for one in near] == want


@pytest.mark.parametrize("case", EVERY)
def test_transformers(case):
    options, away = EVERY[case]
    near = away <= 0.25
    radius = RadiusNeighborsTransformer(radius=0.25, mode="connectivity", **options)
    assert (radius.fit_transform(X).toarray() == near).all()
    nearest = KNeighborsTransformer(n_neighbors=2, max_distance=0.25, **options)
    found = nearest.fit_transform(X)
    assert np.diff(found.indptr).tolist() == np.minimum(near.sum(1), 3).tolist()
    rows = np.repeat(np.arange(len(X)), np.diff(found.indptr))
    assert np.allclose(found.data, away[rows, found.indices], rtol=1e-15)


def test_frames_and_their_columns():
    frame = pd.DataFrame(X, columns=list("xyt")).assign(ship=list("ab") * 100)
    how = {"on": ["x", "y"], "by": "ship", "within": {"t": 0.5}}
    model = NearestNeighbors(n_neighbors=2, max_distance=0.4, **how).fit(frame)
    assert model.feature_names_in_.tolist() == ["x", "y", "ship", "t"]
    frame["ship"] = "c"  # the estimator has its own columns
    queries = pd.DataFrame({"t": X[:, 2], "ship": "a", "y": X[:, 1], "x": X[:, 0]})
    rows = model.kneighbors(queries)[1]
    assert set(rows.ravel() % 2) == {0}
    with pytest.raises(ColumnError, match="X has no columns 'ship'"):
        model.kneighbors(frame[["x", "y", "t"]])


def test_points():
    geopandas = pytest.importorskip("geopandas")
    frame = geopandas.GeoDataFrame(
        {"kind": list("ab") * 100}, geometry=geopandas.points_from_xy(X[:, 0], X[:, 1])
    ).set_crs(3857)
    model = NearestNeighbors(n_neighbors=1, by="kind", max_distance="1 km").fit(frame)
    away, rows = model.kneighbors(frame.assign(kind="b"))
    assert (rows % 2 == 1).all() and away.max() < 1


def test_refusals():
    with pytest.raises(OptionError, match=r"by= needs a .* Pass max_distance="):
        NearestNeighbors(by=2).fit(X).kneighbors()
    with pytest.raises(CoordinateError, match="95 values outside the box, 0 to 1"):
        NearestNeighbors(box=1.0).fit(X)
    with pytest.raises(OptionError, match="Column 2 holds numbers"):
        NearestNeighbors(within={2: "1 h"}).fit(X)
    few = NearestNeighbors(n_neighbors=300, max_distance=0.1).fit(X)
    assert few.kneighbors()[1].shape == (200, 300)
