"""The estimator HDBSCAN: frames, metrics and refusals of `predict`."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.cluster import HDBSCAN
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from tests.cluster.test_fitted_hierarchy import NEW, RNG, X


def test_labels_are_those_of_the_verb():
    for options in ({}, {"min_samples": 3, "allow_single_cluster": True}, {"metric": "manhattan"}):
        model = HDBSCAN(10, **options).fit(X)
        want = pd.DataFrame(X).simjoin.hdbscan(10, **options)
        for name, column in (
            ("labels_", "label"), ("probabilities_", "probability"), ("outlier_scores_", "outlier_score")
        ):  # fmt: skip
            assert getattr(model, name).tolist() == want[column].tolist()
        pd.testing.assert_frame_equal(model.hdbscan_, want)


def test_frames_missing_values_and_duplicates():
    frame = pd.DataFrame(X, columns=["x", "y"], index=np.repeat(np.arange(len(X) // 2 + 1), 2)[: len(X)])
    model = HDBSCAN(10, on=["x", "y"]).fit(frame.assign(name="a"))
    new = pd.DataFrame(NEW[:, ::-1], columns=["y", "x"], index=list("ab") * 75)
    labels = model.predict(new)
    assert labels.index.equals(new.index) and labels.name == "label"
    assert labels.tolist() == HDBSCAN(10).fit(X).predict(NEW).tolist()
    hole = X.copy()
    hole[7] = np.nan
    model = HDBSCAN(10, dropna=True).fit(hole)
    rest = HDBSCAN(10).fit(np.delete(X, 7, axis=0))
    assert model.labels_.tolist() == rest.labels_.tolist()
    assert model.predict(NEW).tolist() == rest.predict(NEW).tolist()
    assert len(model.predict(np.vstack([NEW, [[np.nan, 0]]]))) == len(NEW)
    same = HDBSCAN(2).fit(np.zeros((6, 2)))
    assert same.predict([[0.0, 0.0]]).tolist() == [-1]
    one = HDBSCAN(2).fit(np.zeros((1, 2)))
    assert one.single_linkage_tree_.to_numpy().shape == (0, 4) and not len(one.condensed_tree_.to_pandas())
    assert one.predict([[0.0, 0.0]]).tolist() == [-1]


def test_metrics():
    places = np.column_stack([RNG.uniform(40, 41, 300), RNG.uniform(5, 6, 300)])
    for metric in ("haversine", "cosine", "manhattan"):
        model = HDBSCAN(10, metric=metric).fit(places)
        kept = model.labels_ >= 0
        assert (model.predict(places)[kept] == model.labels_[kept]).all()


def test_refusals():
    with pytest.raises(ValueError, match="not fitted yet"):
        HDBSCAN().predict(X)
    model = HDBSCAN(10).fit(X)
    with pytest.raises(OptionError, match="X has 3 features, but HDBSCAN is expecting 2"):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(ColumnError, match="X has no columns"):
        model.predict(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(UnsupportedFrameError, match="HDBSCAN needs new rows in memory"):
        model.predict(da.from_array(NEW))
    model.fit(da.from_array(X))
    assert not hasattr(model, "condensed_tree_") and not hasattr(model, "single_linkage_tree_")
    with pytest.raises(ValueError, match="fitted to Dask data"):
        model.predict(X)
