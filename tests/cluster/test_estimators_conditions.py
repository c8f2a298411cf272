"""Estimators with conditions on both rows of a pair, against brute force."""

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import DBSCAN, HDBSCAN, OPTICS
from dask_simjoin.cluster import local as local_clusters
from dask_simjoin.errors import ColumnError, OptionError, OptionTypeError
from tests.support.density import labels_of_neighbours as labels_of
from tests.support.profiles import in_turns

RNG = np.random.default_rng(0)
X = RNG.integers(0, 16, (200, 3)) / 8
WEIGHTS = RNG.integers(1, 4, 200)
APART = np.abs(X[:, None] - X[None])
IMAGES = np.minimum(APART, 2.0 - APART)
AWAY = np.sqrt((APART[..., :2] ** 2).sum(2))
DISTANCES = {
    "within": ({"within": {2: 0.25}}, np.where(APART[..., 2] <= 0.25, AWAY, np.inf)),
    "by": ({"by": 2}, np.where(APART[..., 2] == 0, AWAY, np.inf)),
    "different": ({"different": [2]}, np.where(APART[..., 2] != 0, AWAY, np.inf)),
    "box": ({"box": 2.0}, np.sqrt((IMAGES**2).sum(2))),
}
"""Case -> options, and the distance of each pair, inf if the options exclude it."""
CASES = {name: (how, away <= 0.25) for name, (how, away) in DISTANCES.items()}


@pytest.mark.parametrize("case", CASES)
def test_clusters_of_arrays(case):
    options, near = CASES[case]
    near = near | np.eye(len(X), dtype=bool)
    model = DBSCAN(0.25, min_samples=3, **options).fit(X)
    assert model.labels_.tolist() == list(labels_of(near, 3))
    assert (
        model.core_sample_indices_.tolist() == np.flatnonzero(near.sum(1) >= 3).tolist()
    )
    assert model.n_features_in_ == 3
    assert model.components_.shape[1] == (3 if case == "box" else 2)
    chunked = DBSCAN(0.25, min_samples=3, **options).fit(da.from_array(X, 70))
    assert chunked.labels_.compute().tolist() == model.labels_.tolist()
    model.fit(X, sample_weight=WEIGHTS)
    cores = np.flatnonzero((near * WEIGHTS).sum(1) >= 3)
    assert model.core_sample_indices_.tolist() == cores.tolist()


def test_frames_and_their_columns():
    frame = pd.DataFrame(X, columns=list("xyt")).assign(ship=np.arange(200) % 2)
    frame.loc[::9, "t"] = np.nan
    how = {"on": ["x", "y"], "by": "ship", "within": {"t": 0.5}, "dropna": True}
    want = frame.simjoin.dbscan(0.25, 3, **how)
    model = DBSCAN(0.25, min_samples=3, **how).fit(frame)
    assert model.labels_.tolist() == want.tolist()
    assert model.feature_names_in_.tolist() == ["x", "y", "ship", "t"]
    assert model.components_.equals(frame.loc[model.core_sample_indices_, ["x", "y"]])
    lazy = DBSCAN(0.25, min_samples=3, **how).fit(dd.from_pandas(frame, npartitions=3))
    assert lazy.labels_.compute().tolist() == want.tolist()


@in_turns(1, case=list(DISTANCES), dense=[False, True])
def test_optics(case, dense, monkeypatch):
    sklearn = pytest.importorskip("sklearn.cluster")
    monkeypatch.setattr(local_clusters, "is_dense", lambda *_: dense)
    options, away = DISTANCES[case]
    away = np.minimum(away, 1e6)
    np.fill_diagonal(away, 0.0)
    how = {"max_eps": 0.5, "min_samples": 3, "cluster_method": "dbscan", "eps": 0.5}
    with warnings.catch_warnings(action="ignore"):  # scikit-learn divides by zero
        want = sklearn.OPTICS(metric="precomputed", **how).fit(away)
    model = OPTICS(**how, **options).fit(X)
    assert model.ordering_.tolist() == want.ordering_.tolist()
    assert np.allclose(model.reachability_, want.reachability_)
    assert model.labels_.tolist() == want.labels_.tolist()
    forest = OPTICS(**how, **options, mode="forest").fit(da.from_array(X, 70))
    labels, core = forest.labels_.compute(), (away <= 0.5).sum(1) >= 3
    same = np.array(labels_of(away <= 0.5, 3))
    assert len(set(zip(labels[core], same[core], strict=True))) == len({*same[core]})


def test_refusals():
    with pytest.raises(OptionError, match="dbscan\\(\\) needs rows that are near each"):
        DBSCAN(0.25, within={2: (-1, 0)}).fit(X)
    with pytest.raises(OptionError, match="optics\\(\\) needs rows that are near each"):
        OPTICS(0.25, within={2: (-1, 0)}).fit(X)
    with pytest.raises(ColumnError, match="by= names 'day', which is not a column"):
        DBSCAN(0.25, by="day").fit(X)
    with pytest.raises(OptionTypeError, match=r"each group of frame.groupby\('day'\)"):
        HDBSCAN(5, by="day")
