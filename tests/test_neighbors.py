"""Transformers of rows to matrices of neighbors, equal to scikit-learn's."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import OptionError
from dask_simjoin.neighbors import KNeighborsTransformer, RadiusNeighborsTransformer

sklearn_neighbors = pytest.importorskip("sklearn.neighbors")

X = np.random.default_rng(0).normal(size=(150, 2)) + np.repeat(
    [[0, 0], [6, 0], [0, 6]], 50, axis=0
)
NEW = np.random.default_rng(1).normal(size=(20, 2))
KINDS = [
    (KNeighborsTransformer, {"n_neighbors": 7}),
    (RadiusNeighborsTransformer, {"radius": 1.5}),
]


def pair_of(kind, **options):
    """The transformer and scikit-learn's."""
    return kind(**options), getattr(sklearn_neighbors, kind.__name__)(
        algorithm="kd_tree", **options
    )


def assert_equal(found, want):
    assert (
        found.format == "csr"
        and found.shape == want.shape
        and found.dtype == want.dtype
    )
    assert found.indptr.tolist() == want.indptr.tolist()
    assert found.indices.tolist() == want.indices.tolist()
    # a distance that finds its pair may exceed the root by a unit in the last place
    assert np.all(
        (found.data == want.data) | (found.data == np.nextafter(want.data, 9))
    )


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_matrices_are_those_of_scikit_learn(kind, options, mode):
    ours, theirs = pair_of(kind, mode=mode, **options)
    for rows in (X, NEW):
        found, want = ours.fit(X).transform(rows), theirs.fit(X).transform(rows)
        # scikit-learn sorts those with distances only
        if mode == "connectivity" and "radius" in options:
            found.sort_indices()
            want.sort_indices()
        assert_equal(found, want)
    assert_equal(ours.fit_transform(X), ours.fit(X).transform(X))
    assert (
        ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    )


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_estimators_that_take_precomputed_distances(kind, options):
    """Pipelines give what they give with scikit-learn's transformers."""
    from sklearn.cluster import DBSCAN, SpectralClustering
    from sklearn.manifold import TSNE
    from sklearn.pipeline import make_pipeline

    graphs = [one.fit_transform(X) for one in pair_of(kind, **options)]
    similar = [np.exp(-some.maximum(some.T).toarray()) for some in graphs]
    spectral = SpectralClustering(
        3, affinity="precomputed", random_state=0, assign_labels="cluster_qr"
    )
    labels = [spectral.fit_predict(some).tolist() for some in similar]
    assert labels[0] == labels[1] and len(set(labels[0])) == 3
    after = [DBSCAN(eps=0.5, min_samples=3, metric="precomputed")]
    if kind is KNeighborsTransformer:
        after.append(
            TSNE(
                metric="precomputed",
                perplexity=2,
                init="random",
                max_iter=250,
                random_state=0,
            )
        )
    for last in after:
        found, want = (
            make_pipeline(one, last).fit_predict(X)
            if hasattr(last, "fit_predict")
            else make_pipeline(one, last).fit_transform(X)
            for one in pair_of(kind, **options)
        )
        assert np.array_equal(found, want)


def test_spectral_clustering_of_nearest_neighbors_in_a_pipeline():
    from sklearn.cluster import SpectralClustering
    from sklearn.pipeline import make_pipeline

    last = SpectralClustering(
        3,
        affinity="precomputed_nearest_neighbors",
        n_neighbors=60,
        random_state=0,
        assign_labels="cluster_qr",
    )
    found, want = (
        make_pipeline(one, last).fit_predict(X)
        for one in pair_of(KNeighborsTransformer, n_neighbors=60)
    )
    assert found.tolist() == want.tolist()
    assert len(set(found)) == 3


def test_frames_and_units():
    frame = pd.DataFrame(X, columns=["x", "y"], index=np.arange(150) + 7).assign(
        name="a"
    )
    made = RadiusNeighborsTransformer(radius=1.5, on=["x", "y"]).fit(frame)
    assert made.feature_names_in_.tolist() == ["x", "y"]
    assert_equal(
        made.transform(frame), RadiusNeighborsTransformer(radius=1.5).fit_transform(X)
    )
    places = RadiusNeighborsTransformer(
        radius="5000 km", metric="haversine", mode="connectivity"
    )
    assert places.fit_transform(
        [[0.0, 0.0], [0.0, 40.0], [0.0, 90.0]]
    ).toarray().tolist() == [
        [1, 1, 0],
        [1, 1, 0],
        [0, 0, 1],
    ]


def test_refusals():
    for kind, _ in KINDS:
        with pytest.raises(OptionError, match="mode='dense'"):
            kind(mode="dense").fit(X)
        with pytest.raises(ValueError, match="not fitted yet"):
            kind().transform(X)
    with pytest.raises(OptionError, match="Expected n_neighbors <= n_samples_fit"):
        KNeighborsTransformer(n_neighbors=5).fit_transform(X[:5])
    assert (
        KNeighborsTransformer(n_neighbors=5, mode="connectivity")
        .fit_transform(X[:5])
        .nnz
        == 25
    )
