"""The estimator HDBSCAN: frames, metrics, trees, and clusters of new rows, as in the
package hdbscan.
"""

from types import SimpleNamespace

import dask.array as da
import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401
from dask_simjoin.cluster import HDBSCAN, condensed_tree
from dask_simjoin.cluster.hdbscan_estimator import _clusters_at
from dask_simjoin.errors import ColumnError, OptionError, UnsupportedFrameError
from tests.support.density import SETS

X, _, _ = SETS["moons"]
X = X[:: max(1, len(X) // 400)]
RNG = np.random.default_rng(3)
NEW = RNG.uniform(X.min(axis=0) - 0.3, X.max(axis=0) + 0.3, size=(150, 2))


def test_labels_are_those_of_the_verb():
    for options in (
        {},
        {"min_samples": 3, "allow_single_cluster": True},
        {"metric": "manhattan"},
    ):
        model = HDBSCAN(10, **options).fit(X)
        want = pd.DataFrame(X).simjoin.hdbscan(10, **options)
        for name, column in (
            ("labels_", "label"),
            ("probabilities_", "probability"),
            ("outlier_scores_", "outlier_score"),
        ):
            assert getattr(model, name).tolist() == want[column].tolist()
        pd.testing.assert_frame_equal(model.hdbscan_, want)


def test_frames_missing_values_and_duplicates():
    frame = pd.DataFrame(
        X, columns=["x", "y"], index=np.repeat(np.arange(len(X) // 2 + 1), 2)[: len(X)]
    )
    model = HDBSCAN(10, on=["x", "y"]).fit(frame.assign(name="a"))
    new = pd.DataFrame(NEW[:, ::-1], columns=["y", "x"], index=list("ab") * 75)
    labels = model.predict(new)
    assert labels.index.equals(new.index) and labels.name == "label"
    assert labels.tolist() == HDBSCAN(10).fit(X).predict(NEW).tolist()
    hole = X.copy()
    hole[7] = np.nan
    model = HDBSCAN(10, dropna=True).fit(hole)
    rest = HDBSCAN(10).fit(np.delete(X, 7, axis=0))
    assert np.delete(model.labels_, 7).tolist() == rest.labels_.tolist()
    assert model.labels_[7] == -1 and model.probabilities_[7] == 0
    assert model.predict(NEW).tolist() == rest.predict(NEW).tolist()
    labels = model.predict(np.vstack([[[np.nan, 0]], NEW]))
    assert labels.tolist() == [-1, *rest.predict(NEW)]
    same = HDBSCAN(2).fit(np.zeros((6, 2)))
    assert same.predict([[0.0, 0.0]]).tolist() == [-1]
    one = HDBSCAN(2).fit(np.zeros((1, 2)))
    assert one.single_linkage_tree_.to_numpy().shape == (0, 4) and not len(
        one.condensed_tree_.to_pandas()
    )
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
    with pytest.raises(
        OptionError, match="X has 3 features, but HDBSCAN is expecting 2"
    ):
        model.predict(np.zeros((2, 3)))
    with pytest.raises(ColumnError, match="X has no columns"):
        model.predict(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(UnsupportedFrameError, match="HDBSCAN needs new rows in memory"):
        model.predict(da.from_array(NEW))
    model.fit(da.from_array(X))
    assert not hasattr(model, "condensed_tree_") and not hasattr(
        model, "single_linkage_tree_"
    )
    with pytest.raises(ValueError, match="fitted to Dask data"):
        model.predict(X)


def reference(model, x, new):
    """Labels and probabilities by the rules of hdbscan.approximate_predict, row by row."""
    samples = model.min_cluster_size if model.min_samples is None else model.min_samples
    others = samples - 1
    own = np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1))
    core = np.sort(own, axis=1)[:, samples - 1]
    tree = model.condensed_tree_.to_pandas()
    n = len(x)
    rows = tree[tree["child"] < n].set_index("child")
    clusters = tree[tree["child"] >= n].set_index("child")
    members = {c: [c] for c in {n, *clusters.index}}
    for child in sorted(clusters.index, reverse=True):
        members[clusters.loc[child, "parent"]] += members[child]
    labels = np.asarray(model.labels_)
    label_of, death = {}, {}
    for c in sorted(members):  # the largest cluster of one label is the chosen one
        inside = rows.index[rows["parent"].isin(members[c])]
        if c not in label_of and len({*labels[inside]}) == 1 and labels[inside[0]] >= 0:
            deepest = tree.loc[tree["parent"] == c, "lambda_val"].max()
            for below in members[c]:
                label_of[below], death[below] = labels[inside[0]], deepest
    found = []
    for row in new:
        away = np.sqrt(((x - row) ** 2).sum(-1))
        near = np.argsort(away, kind="stable")[: max(2 * others, samples)]
        reach = np.maximum(np.maximum(core[near], away[near[others]]), away[near])
        nearest = near[reach.argmin()]
        density = np.inf if reach.min() == 0 else 1 / reach.min()
        at = rows.loc[nearest, "parent"]
        if rows.loc[nearest, "lambda_val"] > density:
            while at > n and clusters.loc[at, "lambda_val"] >= density:
                at = clusters.loc[at, "parent"]
        most = death.get(at, 0.0)
        found.append((label_of.get(at, -1), min(density, most) / most if most else 0.0))
    return np.array(found).T


@pytest.mark.parametrize(
    "options", [{}, {"min_samples": 3}, {"cluster_selection_method": "leaf"}]
)
def test_new_rows(options):
    model = HDBSCAN(10, **options).fit(X)
    labels, probabilities = model.approximate_predict(NEW)
    want = reference(model, X, NEW)
    assert labels.tolist() == want[0].tolist() and np.allclose(
        probabilities, want[1], rtol=1e-12
    )
    assert labels.dtype == np.int64 and len(set(labels)) > 2
    assert model.predict(NEW).tolist() == labels.tolist()
    assert model.predict(NEW[:3]).tolist() == labels[:3].tolist()
    kept = model.labels_ >= 0
    assert (model.predict(X)[kept] == model.labels_[kept]).mean() > 0.95
    assert model.predict(np.array([[1e6, 1e6]])).tolist() == [-1]


def test_trees():
    model = HDBSCAN(10, min_samples=4).fit(X)
    edges = pd.DataFrame(X).simjoin.spanning_tree(min_samples=4)
    pd.testing.assert_frame_equal(
        model.condensed_tree_.to_pandas(), condensed_tree(edges, 10)
    )
    fields = model.condensed_tree_.to_numpy()
    assert fields.dtype.names == ("parent", "child", "lambda_val", "child_size")
    assert (
        fields["lambda_val"].tolist()
        == model.condensed_tree_.to_pandas()["lambda_val"].tolist()
    )
    linkage, frame = (
        model.single_linkage_tree_.to_numpy(),
        model.single_linkage_tree_.to_pandas(),
    )
    assert linkage[:, 2].tolist() == edges["distance"].tolist() and linkage[
        -1, 3
    ] == len(X)
    assert frame.columns.tolist() == [
        "parent",
        "left_child",
        "right_child",
        "distance",
        "size",
    ]
    assert frame["parent"].tolist() == list(range(len(X), 2 * len(X) - 1))
    assert (frame["left_child"] < frame["right_child"]).all()


def test_linkage_is_that_of_scipy():
    hierarchy = pytest.importorskip("scipy.cluster.hierarchy")
    model = HDBSCAN(5, min_samples=1).fit(X)
    linkage = model.single_linkage_tree_.to_numpy()
    assert hierarchy.is_valid_linkage(linkage)
    want = hierarchy.linkage(X, "single")
    assert np.allclose(linkage[:, 2], want[:, 2])
    cut = [hierarchy.fcluster(one, 0.08, "distance") for one in (linkage, want)]
    assert len(set(zip(*cut, strict=True))) == len(set(cut[0])) == len(set(cut[1])) > 1


def test_a_row_is_in_the_cluster_above_at_the_density_where_its_own_is_born():
    tree = SimpleNamespace(
        row_parent=np.array([2]),
        row_lambda=np.array([5.0]),
        birth=np.array([0.0, 1.0, 2.0]),
        parent=np.array([-1, 0, 1]),
    )
    density = np.array([0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 6.0])
    found = _clusters_at(tree, np.zeros(len(density), int), density)
    assert found.tolist() == [0, 0, 1, 1, 2, 2, 2]
