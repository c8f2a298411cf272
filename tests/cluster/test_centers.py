"""Exemplars, persistence, centroids and medoids of HDBSCAN, by their definitions and beside
scikit-learn.
"""

import dask.array as da
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import HDBSCAN, centers
from dask_simjoin.cluster.algorithms.condensed_tree import choose
from dask_simjoin.cluster.points_estimator import NotFittedError
from dask_simjoin.errors import OptionError
from tests.support.profiles import every_nth


def blobs(seed: int) -> np.ndarray:
    r = np.random.default_rng(seed)
    middle = r.uniform(0, 10, (int(r.integers(2, 5)), 2))
    parts = [r.normal(m, 0.4, (int(r.integers(20, 60)), 2)) for m in middle]
    x = np.concatenate([*parts, r.uniform(0, 10, (15, 2))])
    return np.round(x, 1) if seed % 3 == 0 else x  # with rows at equal distances


def options(seed: int) -> dict:
    r = np.random.default_rng(1000 + seed)
    return {
        "min_cluster_size": int(r.integers(4, 12)),
        "min_samples": int(r.integers(1, 8)),
        "metric": str(r.choice(["euclidean", "manhattan", "chebyshev"])),
        "cluster_selection_method": str(r.choice(["eom", "leaf"])),
        "allow_single_cluster": bool(r.random() < 0.3),
    }


def below(tree: np.ndarray, cluster: int) -> list[int]:
    """Return the leaves of the condensed tree below a cluster, as hdbscan does."""
    split = tree[tree["child_size"] > 1]
    children = split["child"][split["parent"] == cluster]
    if not len(children):
        return [cluster]
    return [leaf for child in children for leaf in below(tree, child)]


@pytest.mark.parametrize("seed", every_nth(5, range(30)))
def test_exemplars_and_persistence_are_those_of_hdbscan(seed):
    x = blobs(seed)
    model = HDBSCAN(**options(seed)).fit(x)
    tree = model.condensed_tree_.to_numpy()
    names = choose(model._hierarchy.condensed, model._hierarchy.choice).names
    largest = tree["lambda_val"].max()
    assert len(model.exemplars_) == len(model.cluster_persistence_)
    for label in range(len(model.exemplars_)):
        cluster = len(x) + int(np.flatnonzero(names == label)[0])
        rows = []
        for leaf in below(tree, cluster):
            own = tree[tree["parent"] == leaf]
            last = own["lambda_val"] == own["lambda_val"].max()
            rows += own["child"][last].tolist()
        assert sorted(rows) == model.exemplar_indices_[label].tolist()
        np.testing.assert_array_equal(model.exemplars_[label], x[sorted(rows)])
        own = tree[tree["parent"] == cluster]
        birth = tree["lambda_val"][tree["child"] == cluster]
        birth = float(birth[0]) if len(birth) else 0.0
        stability = ((own["lambda_val"] - birth) * own["child_size"]).sum()
        size = (model.labels_ == label).sum()
        want = 1.0 if np.isinf(largest) else stability / (size * largest)
        assert model.cluster_persistence_[label] == pytest.approx(want)


@pytest.mark.parametrize("seed", every_nth(5, range(30)))
def test_centers_are_those_of_scikit_learn(seed, monkeypatch):
    cluster = pytest.importorskip("sklearn.cluster")
    monkeypatch.setattr(centers, "BLOCK", 100)
    x, how = blobs(seed), options(seed)
    model = HDBSCAN(**how, store_centers="both").fit(x)
    theirs = cluster.HDBSCAN(**how, store_centers="both", copy=True)
    # its labels depend on the order of rows if edges have equal weights
    theirs.labels_, theirs.probabilities_ = model.labels_, model.probabilities_
    theirs._metric_params = {}
    theirs._weighted_cluster_center(x)
    np.testing.assert_allclose(model.centroids_, theirs.centroids_, rtol=1e-13)
    np.testing.assert_array_equal(x[model.medoid_indices_], model.medoids_)
    for label, (own, other) in enumerate(
        zip(model.medoids_, theirs.medoids_, strict=True)
    ):
        rows = model.labels_ == label
        power = {"manhattan": 1, "euclidean": 2, "chebyshev": np.inf}[how["metric"]]
        sums = [
            (
                np.linalg.norm(x[rows] - one, power, axis=1)
                * model.probabilities_[rows]
            ).sum()
            for one in (own, other)
        ]
        assert sums[0] == pytest.approx(sums[1], rel=1e-12)


@pytest.mark.parametrize("seed", every_nth(5, range(30)))
def test_clusters_at_a_distance_are_those_of_scikit_learn(seed):
    cluster = pytest.importorskip("sklearn.cluster")
    x, how = blobs(seed), options(seed)
    model, theirs = HDBSCAN(**how).fit(x), cluster.HDBSCAN(**how, copy=True).fit(x)
    # on the grid, rounded distances are on either side of these
    for cut in (0.15, 0.45, 0.95, 30.0):
        own, other = (one.dbscan_clustering(cut, 6) for one in (model, theirs))
        assert len({*zip(own, other, strict=True)}) == len({*own}) == len({*other})
        assert ((own == -1) == (other == -1)).all()
        first = [int(np.flatnonzero(own == name)[0]) for name in range(own.max() + 1)]
        assert first == sorted(first)


def test_a_merge_at_the_distance_is_undone():
    model = HDBSCAN(2, min_samples=1).fit(np.array([[0.0], [1.0], [5.0], [6.0], [6.5]]))
    assert model.dbscan_clustering(1.0, 2).tolist() == [-1, -1, -1, 0, 0]
    assert model.dbscan_clustering(1.1, 2).tolist() == [0, 0, 1, 1, 1]
    assert model.single_linkage_tree_.get_clusters(0.1, 1).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("metric", ["haversine", "cosine"])
def test_medoids_of_other_metrics(metric):
    pairwise = pytest.importorskip("sklearn.metrics")
    r = np.random.default_rng(2)
    x = np.concatenate([r.normal(m, 0.3, (40, 2)) for m in ((50, 8), (10, 170))])
    model = HDBSCAN(10, metric=metric, store_centers="medoid").fit(x)
    assert len(model.medoids_) > 0 and not hasattr(model, "centroids_")
    given = np.radians(x) if metric == "haversine" else x
    away = pairwise.pairwise_distances(given, metric=metric)
    for label, row in enumerate(model.medoid_indices_):
        rows = np.flatnonzero(model.labels_ == label)
        sums = (away[np.ix_(rows, rows)] * model.probabilities_[rows]).sum(axis=1)
        assert sums[rows == row][0] <= sums.min() * (1 + 1e-9) + 1e-15


def test_frames_and_rows_that_are_left_out():
    x = blobs(1)
    frame = pd.DataFrame(x, columns=["x", "y"]).assign(name="a")
    frame.loc[[0, 7], "x"] = np.nan
    how = {"min_cluster_size": 8, "store_centers": "both"}
    model = HDBSCAN(**how, on=["x", "y"], dropna=True).fit(frame)
    rest = HDBSCAN(**how).fit(np.delete(x, [0, 7], axis=0))
    np.testing.assert_array_equal(model.centroids_, rest.centroids_)
    np.testing.assert_array_equal(model.medoids_, rest.medoids_)
    np.testing.assert_array_equal(x[model.medoid_indices_], model.medoids_)
    for rows, own in zip(model.exemplar_indices_, model.exemplars_, strict=True):
        np.testing.assert_array_equal(x[rows], own)
    cut = model.dbscan_clustering(0.5)
    assert cut[[0, 7]].tolist() == [-1, -1]
    assert np.delete(cut, [0, 7]).tolist() == rest.dbscan_clustering(0.5).tolist()


def test_lists_no_clusters_and_a_single_row():
    x = blobs(2)
    lists = pd.DataFrame({"v": list(x)})
    model = HDBSCAN(8, on="v", store_centers="centroid").fit(lists)
    want = HDBSCAN(8, store_centers="centroid").fit(x)
    np.testing.assert_array_equal(model.centroids_, want.centroids_)
    for few in (np.zeros((1, 2)), np.arange(6.0).reshape(3, 2)):
        none = HDBSCAN(5, store_centers="both").fit(few)
        assert none.centroids_.shape == none.medoids_.shape == (0, 2)
        assert none.exemplars_ == [] and len(none.cluster_persistence_) == 0


def test_refusals():
    x = blobs(1)
    with pytest.raises(OptionError, match="did you mean 'medoid'"):
        HDBSCAN(store_centers="medoids").fit(x)
    with pytest.raises(OptionError, match="means of degrees are wrong"):
        HDBSCAN(store_centers="both", metric="haversine").fit(x)
    lazy = da.from_array(x, chunks=(30, 2))
    with pytest.raises(OptionError, match="is for data in memory"):
        HDBSCAN(store_centers="medoid").fit(lazy)
    model = HDBSCAN().fit(x).fit(lazy)
    assert not hasattr(model, "exemplars_")
    with pytest.raises(NotFittedError, match="fitted to Dask data"):
        model.dbscan_clustering(1.0)
