"""Neighbors of new rows as an estimator, equal to scikit-learn's."""

import warnings

import dask.array as da
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import (
    ColumnError,
    CoordinateError,
    OptionError,
    OptionTypeError,
    UnitsWarning,
    UnsupportedFrameError,
)
from dask_simjoin.neighbors import NearestNeighbors
from tests.cluster.test_estimators import X

sklearn_neighbors = pytest.importorskip("sklearn.neighbors")


NEW = np.random.default_rng(1).uniform(-0.1, 1.1, size=(40, 2))


@pytest.mark.parametrize("queries", [None, NEW])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_neighbours(queries, metric):
    ours = NearestNeighbors(n_neighbors=4, radius=0.12, metric=metric).fit(X)
    theirs = sklearn_neighbors.NearestNeighbors(
        n_neighbors=4, radius=0.12, metric=metric
    ).fit(X)
    for options in ({}, {"n_neighbors": 1}):
        away, rows = ours.kneighbors(queries, **options)
        want = theirs.kneighbors(queries, **options)
        assert rows.tolist() == want[1].tolist() and np.allclose(
            away, want[0], rtol=1e-12
        )
        assert (
            ours.kneighbors(queries, return_distance=False, **options).tolist()
            == rows.tolist()
        )
    for options in ({"sort_results": True}, {"radius": 0.3, "sort_results": True}):
        found, want = (
            one.radius_neighbors(queries, **options) for one in (ours, theirs)
        )
        for a, b in zip(found, want, strict=True):
            assert a.shape == b.shape and all(
                np.allclose(x, y, rtol=1e-12) for x, y in zip(a, b, strict=True)
            )
    assert any(
        not len(some)
        for some in ours.radius_neighbors(queries, 0.02, return_distance=False)
    )
    for mode in ("connectivity", "distance"):
        for name in ("kneighbors_graph", "radius_neighbors_graph"):
            found, want = (
                getattr(one, name)(queries, mode=mode) for one in (ours, theirs)
            )
            assert found.shape == want.shape and abs(found - want).max() < 1e-12
            assert found.nnz == want.nnz > 100


def test_neighbours_of_frames():
    """Labels do not matter, and columns are found by their names."""
    frame = pd.DataFrame(X, columns=["x", "y"], index=np.arange(200)[::-1]).assign(
        name="a"
    )
    made = NearestNeighbors(n_neighbors=3, on=["x", "y"]).fit(frame)
    queries = frame[["name", "y", "x"]].iloc[:20]
    assert (
        made.kneighbors(queries)[1].tolist()
        == NearestNeighbors(n_neighbors=3).fit(X).kneighbors(X[:20])[1].tolist()
    )
    places = NearestNeighbors(radius="5000 km", metric="haversine").fit(
        np.array([[0.0, 0.0], [0.0, 40.0], [0.0, 90.0]])
    )
    assert places.radius_neighbors([[0.0, 10.0]], return_distance=False)[
        0
    ].tolist() == [0, 1]


def test_neighbours_that_are_refused():
    made = NearestNeighbors(n_neighbors=5).fit(X[:5])
    with pytest.raises(
        OptionError, match=r"Expected n_neighbors <= n_samples_fit.*use at most 4"
    ):
        made.kneighbors()
    assert made.kneighbors(NEW)[1].shape == (40, 5)
    with pytest.raises(
        OptionError,
        match="X has 3 features, but NearestNeighbors is expecting 2 features",
    ):
        made.kneighbors(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="not fitted yet"):
        NearestNeighbors().kneighbors(X)
    with pytest.raises(UnsupportedFrameError, match=r"use frame\.simjoin\.knn_join"):
        NearestNeighbors().fit(da.from_array(X))
    # the estimator has no dropna
    remedy = r"finite .* label 0\)\. Put an imputer for NaN in front of .*, or leave out such rows first"
    with pytest.raises(CoordinateError, match=remedy):
        NearestNeighbors().fit(np.array([[np.nan], [1.0]]))
    for search in (made.kneighbors, made.radius_neighbors):
        with pytest.raises(CoordinateError, match=remedy):
            search(np.full_like(NEW, np.nan))
    with pytest.raises(OptionError, match="radius=-1 is not allowed"):
        made.radius_neighbors(NEW, radius=-1)
    with pytest.raises(OptionTypeError, match="radius=None is not a number"):
        NearestNeighbors(radius=None).fit(X)


def test_queries_have_the_columns_that_were_fitted():
    """Not only those that both happen to have."""
    frame, new = (
        pd.DataFrame(X, columns=["x", "y"]),
        pd.DataFrame(NEW, columns=["x", "y"]),
    )
    want = NearestNeighbors().fit(X).kneighbors(NEW)
    named = NearestNeighbors(radius=0.2).fit(frame.assign(name="a"))
    for some in (new, new[["y", "x"]], new.assign(other=9.0), NEW, NEW.tolist()):
        assert all(
            np.array_equal(*pair)
            for pair in zip(named.kneighbors(some), want, strict=True)
        )
    for find in (
        named.kneighbors,
        named.radius_neighbors,
        named.radius_neighbors_graph,
    ):
        with pytest.raises(
            ColumnError,
            match=r"X has no columns 'y', and NearestNeighbors was fitted to 'x'",
        ):
            find(new[["x"]])
        with pytest.raises(ColumnError, match=r"X has no columns 'x'"):
            find(new.rename(columns={"x": "other"}))
    with pytest.raises(
        ColumnError, match=r"X has no columns 0, 1, .* Use .* X.to_numpy\(\)"
    ):
        NearestNeighbors().fit(X).kneighbors(new)
    lists = pd.DataFrame({"v": list(X)})
    found = (
        NearestNeighbors(on="v")
        .fit(lists.assign(other=0))
        .kneighbors(pd.DataFrame({"v": list(NEW)}))
    )
    assert all(np.array_equal(*pair) for pair in zip(found, want, strict=True))


def test_only_queries_within_the_radius_warn_about_it():
    x = np.random.default_rng(0).uniform(size=(1100, 2)) / 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = NearestNeighbors().fit(x)
        fitted.kneighbors(x[:3])
    with pytest.warns(UnitsWarning, match="are within eps=1.0"):
        fitted.radius_neighbors(x)
