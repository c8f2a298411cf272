"""Estimators with conditions on both rows of a pair, against brute force."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import DBSCAN, OPTICS
from dask_simjoin.errors import ColumnError, OptionError
from tests.support.density import labels_of_neighbours as labels_of

RNG = np.random.default_rng(0)
X = RNG.integers(0, 16, (200, 3)) / 8
WEIGHTS = RNG.integers(1, 4, 200)
APART = np.abs(X[:, None] - X[None])
IMAGES = np.minimum(APART, 2.0 - APART)
IN_PLANE = (APART[..., :2] ** 2).sum(2) <= 0.25**2
CASES = {
    "within": ({"within": {2: 0.25}}, IN_PLANE & (APART[..., 2] <= 0.25)),
    "by": ({"by": 2}, IN_PLANE & (APART[..., 2] == 0)),
    "different": ({"different": [2]}, IN_PLANE & (APART[..., 2] != 0)),
    "box": ({"box": 2.0}, (IMAGES**2).sum(2) <= 0.25**2),
}


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


def test_optics_in_groups():
    frame = pd.DataFrame(X, columns=list("xyt"))
    model = OPTICS(0.25, min_samples=3, on=["x", "y"], by="t", cluster_method="dbscan")
    want = frame.simjoin.optics(0.25, 3, on=["x", "y"], by="t")
    assert model.fit(frame).ordering_.tolist() == np.argsort(want["ordering"]).tolist()
    assert model.reachability_.tolist() == want["reachability"].tolist()


def test_refusals():
    with pytest.raises(OptionError, match="dbscan\\(\\) needs rows that are near each"):
        DBSCAN(0.25, within={2: (-1, 0)}).fit(X)
    with pytest.raises(ColumnError, match="by= names 'day', which is not a column"):
        DBSCAN(0.25, by="day").fit(X)
