"""HDBSCAN and spanning trees, by their definition, and equal to scikit-learn's where
ties leave no choice.
"""

import math

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster import HDBSCAN
from tests.support.density import SETS
from tests.support.frames import split
from tests.support.hierarchy import (
    Doubtful,
    clusters_by_definition,
    merges,
    numbered,
    reachability,
    tree_by_definition,
)
from tests.support.points import frame_of
from tests.support.profiles import examples

sklearn_cluster = pytest.importorskip("sklearn.cluster")


@st.composite
def points(draw, most=40):
    """Points, many of them with ties, some of them equal, some far from the origin."""
    n, d = draw(st.integers(2, most)), draw(st.sampled_from([1, 2, 3, 10]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(
        st.sampled_from(
            ["blobs", "lattice", "tenths", "equal", "offset", "spread", "huge"]
        )
    )
    x = rng.normal(size=(n, d)) + 6 * rng.integers(0, 3, (n, 1))
    if kind in ("lattice", "tenths"):
        x = rng.integers(0, 4, (n, d)) * (0.1 if kind == "tenths" else 1.0)
    made = {
        "equal": np.round(x / 20),
        "offset": x + 1e6,
        "spread": np.exp(x),
        "huge": x * 1e151,
    }
    return made.get(kind, x)


@st.composite
def choices(draw):
    """Which clusters are chosen, as options of the verb."""
    return {
        "cluster_selection_method": draw(st.sampled_from(["eom", "leaf"])),
        "cluster_selection_epsilon": draw(st.sampled_from([0.0, 0.0, 0.5, 2.0])),
        "max_cluster_size": draw(st.sampled_from([None, None, 8])),
        "allow_single_cluster": draw(st.booleans()),
    }


def by_definition(x, least, samples, choice, metric="euclidean"):
    most = choice["max_cluster_size"] or math.inf
    how = choice["cluster_selection_method"], choice["cluster_selection_epsilon"], most
    try:
        return clusters_by_definition(
            x, least, samples, *how, choice["allow_single_cluster"], metric
        )
    except Doubtful:
        assume(False)


def assert_same(found, want):
    label, probability, score = want
    assert found["label"].tolist() == label
    np.testing.assert_allclose(found["probability"], probability, rtol=1e-12)
    np.testing.assert_allclose(found["outlier_score"], score, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(300))
@given(points(), st.integers(2, 8), st.integers(1, 6), choices())
def test_any_points(x, least, samples, choice):
    samples = min(samples, len(x))
    found = frame_of(x).simjoin.hdbscan(least, min_samples=samples, **choice)
    assert_same(found, by_definition(x, least, samples, choice))


@settings(max_examples=examples(50))
@given(
    points(),
    st.integers(1, 6),
    st.sampled_from([4, 9]),
    st.sampled_from(["entity", "spatial"]),
)
def test_any_tree_on_any_partitions(x, samples, rows, partitioning):
    """The same tree, edge by edge, and so all that is made of it; merges at each height
    are all there are.
    """
    samples = min(samples, len(x))
    edges, far = tree_by_definition(x, samples)
    frame = frame_of(x)
    tree = frame.simjoin.spanning_tree(min_samples=samples)
    assert list(zip(tree["left"], tree["right"], strict=True)) == edges
    assert tree["distance"].tolist() == far.tolist()
    dense = np.full((len(x), len(x)), np.inf)
    dense[tree["left"], tree["right"]] = dense[tree["right"], tree["left"]] = tree[
        "distance"
    ]
    assert merges(np.sqrt(reachability(x, samples))) == merges(dense) - {frozenset()}
    how = {"partitioning": partitioning, "blocksize": rows * (8 * x.shape[1] + 400)}
    lazy = split(frame, [len(x) // 3, len(x) // 2]).simjoin
    with dask.config.set(scheduler="sync"):
        pd.testing.assert_frame_equal(
            lazy.spanning_tree(min_samples=samples, **how).compute(), tree
        )


@settings(max_examples=examples(300))
@given(st.integers(0, 2**32), st.integers(2, 12), st.sampled_from([1, 2]), choices())
def test_equal_to_scikit_learn(seed, least, samples, choice):
    """Of points in general position with at most two samples no two edges of the tree
    are of one weight.
    """
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 90)), int(rng.integers(1, 10))
    x = rng.normal(size=(n, d)) + 3 * rng.integers(0, 4, (n, 1))
    # which fails with NumPy 2.4
    choice |= {"cluster_selection_epsilon": 0.0, "max_cluster_size": None}
    found = frame_of(x).simjoin.hdbscan(least, min_samples=samples, **choice)
    model = sklearn_cluster.HDBSCAN(
        min_cluster_size=least, min_samples=samples, copy=True, **choice
    ).fit(x)
    assert found["label"].tolist() == numbered(model.labels_)
    np.testing.assert_allclose(found["probability"], model.probabilities_, rtol=1e-9)


@pytest.mark.parametrize(
    "name", ["moons", "varied", "wide", "lattice", "identical points"]
)
def test_any_order_of_rows_and_any_partitions(name):
    """Clusters depend neither on partitions nor, unlike those of other packages, on the
    order of rows.
    """
    x = np.random.default_rng(1).permutation(SETS[name][0])[:400]
    frame = frame_of(x)
    frame.index = frame.index + 100
    how = {"min_samples": 4, "allow_single_cluster": name == "identical points"}
    found = frame.simjoin.hdbscan(15, **how)
    mixed = np.random.default_rng(2).permutation(len(x))
    other = frame.iloc[mixed].simjoin.hdbscan(15, **how).loc[frame.index]
    assert numbered(other["label"]) == found["label"].tolist()
    assert other["probability"].tolist() == found["probability"].tolist()
    assert other["outlier_score"].tolist() == found["outlier_score"].tolist()
    ddf = dd.from_pandas(frame, npartitions=5)
    for partitioning in ("entity", "spatial"):
        size = {"partitioning": partitioning, "blocksize": 100 * (8 * x.shape[1] + 360)}
        lazy = ddf.simjoin.hdbscan(15, **how, **size)
        assert len(lazy.expr.plan.chunks) > 3 and lazy.npartitions == 5
        pd.testing.assert_frame_equal(lazy.compute(scheduler="sync"), found)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(rows):
    frame = frame_of(np.arange(2.0 * rows).reshape(rows, 2))
    for one in (frame, dd.from_pandas(frame, npartitions=1)):
        found, tree = (
            one.simjoin.hdbscan(2),
            one.simjoin.spanning_tree(min_samples=max(rows, 1)),
        )
        if one is not frame:
            found, tree = (some.compute(scheduler="sync") for some in (found, tree))
        assert (
            found["label"].tolist() == [-1] * rows
            and found["probability"].tolist() == [0.0] * rows
        )
        assert len(tree) == max(0, rows - 1)


def test_rows_left_out():
    x = np.random.default_rng(0).normal(size=(60, 2))
    frame = frame_of(x)
    frame.iloc[::7, 0] = np.nan
    kept = frame.dropna()
    found = frame.simjoin.hdbscan(4, dropna=True)
    assert found.index.equals(frame.index)
    pd.testing.assert_frame_equal(found.loc[kept.index], kept.simjoin.hdbscan(4))
    others = found.drop(kept.index)
    assert (others["label"] == -1).all() and (others["probability"] == 0).all()
    assert others["outlier_score"].isna().all()
    tree = kept.simjoin.spanning_tree()
    pd.testing.assert_frame_equal(frame.simjoin.spanning_tree(dropna=True), tree)
    for partitioning in ("entity", "spatial"):
        lazy, how = (
            split(frame, [10, 14]).simjoin,
            {"dropna": True, "partitioning": partitioning},
        )
        pd.testing.assert_frame_equal(
            lazy.spanning_tree(blocksize=9_000, **how).compute(scheduler="sync"), tree
        )
        labels = lazy.hdbscan(4, blocksize=9_000, **how).compute(scheduler="sync")
        pd.testing.assert_frame_equal(labels, found)


def test_estimator():
    x = SETS["moons"][0][:300]
    want = frame_of(x).simjoin.hdbscan(9, min_samples=4)
    model = HDBSCAN(9, min_samples=4).fit(x)
    assert (
        model.labels_.tolist() == want["label"].tolist() and model.n_features_in_ == 2
    )
    assert model.probabilities_.tolist() == want["probability"].tolist()
    assert model.outlier_scores_.tolist() == want["outlier_score"].tolist()
    lazy = HDBSCAN(9, min_samples=4).fit(da.from_array(x, chunks=(100, 2)))
    assert lazy.labels_.chunks == ((100, 100, 100),)
    assert lazy.labels_.compute(scheduler="sync").tolist() == want["label"].tolist()
    assert (
        HDBSCAN(9, min_samples=4).fit_predict(frame_of(x)).tolist()
        == want["label"].tolist()
    )
