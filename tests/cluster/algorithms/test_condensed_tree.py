"""Condensed trees, and clusters chosen from them, as scikit-learn selects them."""

import math

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster import choose_clusters, condensed_tree
from dask_simjoin.cluster.algorithms.condensed_tree import (
    compile_labels,
    condense,
    label_tree,
)
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.errors import ColumnError
from dask_simjoin.request.clusters import Choice
from tests.cluster.test_hierarchy import assert_same, choices, points
from tests.support.density import SETS
from tests.support.hierarchy import (
    clusters_by_definition,
    numbered,
)
from tests.support.points import frame_of
from tests.support.profiles import examples


@settings(max_examples=examples(100))
@given(st.integers(0, 2**32), st.integers(2, 9), st.sampled_from([None, 20]))
def test_scikit_learn_chooses_the_same_of_a_tree(seed, least, most):
    """Any tree of different distances, as deep ones are."""
    hidden = pytest.importorskip("sklearn.cluster._hdbscan._tree")
    linkage = pytest.importorskip("sklearn.cluster._hdbscan._linkage")
    rng = np.random.default_rng(seed)
    n = int(rng.integers(least, 200))
    end = np.arange(1, n)
    start = (end * rng.uniform(rng.choice([0.0, 0.9]), 1, n - 1)).astype(np.int64)
    far = np.sort(rng.exponential(size=n - 1))
    mixed = rng.permutation(n - 1)
    start, end = start[mixed], end[mixed]
    edges = np.empty(n - 1, linkage.MST_edge_dtype)
    edges["current_node"], edges["next_node"], edges["distance"] = start, end, far
    for method in ("eom", "leaf"):
        how = method, False, 0.0, most
        want = hidden.tree_to_labels(linkage.make_single_linkage(edges), least, *how)
        choice = Choice(method, max_cluster_size=most or math.inf)
        label, probability, _ = label_tree(
            condense(start, end, far, least, pd.DataFrame()), choice
        )
        assert label.tolist() == numbered(want[0])
        np.testing.assert_allclose(probability, want[1], rtol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_one_row_that_may_be_a_cluster(eps):
    for rows in (1, 2):
        x = np.zeros((rows, 2))
        found = frame_of(x).simjoin.hdbscan(
            2, cluster_selection_epsilon=eps, allow_single_cluster=True
        )
        assert_same(found, clusters_by_definition(x, 2, 2, eps=eps, single=True))


KERNELS = "measure", "most_stable", "first_rows"


def test_what_is_compiled_for_one_cluster_is_what_all_take():
    kernels = host_kernels("hierarchy")

    def compiled():
        return [list(getattr(kernels, name).signatures) for name in KERNELS]

    compile_labels()
    before = compiled()
    found = frame_of(np.random.default_rng(0).normal(size=(300, 2))).simjoin.hdbscan(5)
    assert all(before) and compiled() == before and len(found) == 300


@settings(max_examples=examples(50))
@given(points(), st.integers(2, 8), st.integers(1, 6), choices())
def test_condensed_trees_are_those_that_clusters_are_of(x, least, samples, choice):
    assume(samples <= len(x))
    frame = frame_of(x)
    tree = frame.simjoin.spanning_tree(min_samples=samples)
    condensed = condensed_tree(tree, least)
    if choice["max_cluster_size"] is not None and choice["max_cluster_size"] < least:
        return
    chosen = choose_clusters(condensed, **choice)
    want = frame.simjoin.hdbscan(least, min_samples=samples, **choice)
    pd.testing.assert_frame_equal(chosen, want, check_index_type=False)
    n = len(x)
    sizes = condensed[condensed["child"] < n].groupby("parent").size()
    for cluster in condensed[condensed["child"] > n].itertuples():
        below = {cluster.child}
        for child, parent in zip(condensed["child"], condensed["parent"], strict=True):
            if parent in below and child > n:
                below.add(child)
        assert sum(sizes.get(own, 0) for own in below) == cluster.child_size >= least
    assert sorted(condensed.loc[condensed["child"] < n, "child"]) == list(range(n))


def test_condensed_trees_of_lazy_ones():
    frame = frame_of(SETS["moons"][0][:300])
    lazy = dd.from_pandas(frame, npartitions=2).simjoin.spanning_tree(min_samples=4)
    tree = frame.simjoin.spanning_tree(min_samples=4)
    want = condensed_tree(tree, 9)
    found = condensed_tree(lazy, 9)
    pd.testing.assert_frame_equal(found.compute(scheduler="sync"), want)
    pd.testing.assert_frame_equal(
        choose_clusters(found).compute(scheduler="sync"), choose_clusters(want)
    )
    pd.testing.assert_frame_equal(
        condensed_tree(tree.sample(frac=1, random_state=0), 9), want
    )
    pd.testing.assert_frame_equal(condensed_tree(tree.convert_dtypes(), 9), want)
    for wrong in (
        tree.iloc[1:],
        tree.assign(left=0, right=1),
        tree.assign(distance=-tree["distance"]),
    ):
        with pytest.raises(
            ColumnError, match=r"do not connect .* rows, .* pass a complete"
        ):
            condensed_tree(wrong)
    with pytest.raises(ColumnError, match="no column 'left'"):
        condensed_tree(frame)
    for name, values in (
        ("left", "a"),
        ("right", 0.5),
        ("distance", math.nan),
        ("left", None),
    ):
        with pytest.raises(
            ColumnError, match=f"Column '{name}' of dtype .* pass a complete result"
        ):
            condensed_tree(tree.assign(**{name: values}))


def test_condensed_trees_that_were_changed_are_refused():
    """And those that were only written and read are taken; a cluster that is none is
    never looked up.
    """
    tree = condensed_tree(
        frame_of(SETS["moons"][0][:300]).simjoin.spanning_tree(min_samples=4), 9
    )
    want = choose_clusters(tree)
    for same in (
        tree.astype(float),
        tree.convert_dtypes(),
        tree.astype(str).astype(float),
    ):
        pd.testing.assert_frame_equal(choose_clusters(same), want)
    later = pd.Series([10**6], index=[5])
    for wrong in (
        tree[1:],
        tree.assign(parent=later.reindex(tree.index, fill_value=300)),
        tree.assign(lambda_val=-tree["lambda_val"]),
    ):
        with pytest.raises(
            ColumnError, match=r"are not a complete condensed tree; pass all rows"
        ):
            choose_clusters(wrong)
    for name, values in (
        ("parent", "a"),
        ("child", 0.5),
        ("lambda_val", math.nan),
        ("child_size", math.nan),
    ):
        with pytest.raises(
            ColumnError,
            match=rf"'{name}' of dtype .* pass a complete result of condensed_tree",
        ):
            choose_clusters(tree.assign(**{name: values}))
