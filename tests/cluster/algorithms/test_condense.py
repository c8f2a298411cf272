"""Clusters of a spanning tree, as scikit-learn selects them."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster.algorithms.condense import compile_labels, condense, label_tree
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.request.clusters import Choice
from tests.cluster.test_hierarchy import assert_same
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
        label, probability, _ = label_tree(condense(start, end, far, least, pd.DataFrame()), choice)
        assert label.tolist() == numbered(want[0])
        np.testing.assert_allclose(probability, want[1], rtol=1e-12)


@pytest.mark.parametrize("eps", [0.0, 0.5])
def test_one_row_that_may_be_a_cluster(eps):
    for rows in (1, 2):
        x = np.zeros((rows, 2))
        found = frame_of(x).simjoin.hdbscan(2, cluster_selection_epsilon=eps, allow_single_cluster=True)
        assert_same(found, clusters_by_definition(x, 2, 2, eps=eps, single=True))


KERNELS = "measure", "most_stable", "name_clusters", "label_rows"


def test_what_is_compiled_for_two_rows_is_what_all_take():
    kernels = host_kernels("hierarchy")

    def compiled():
        return [list(getattr(kernels, name).signatures) for name in KERNELS]

    compile_labels()
    before = compiled()
    found = frame_of(np.random.default_rng(0).normal(size=(300, 2))).simjoin.hdbscan(5)
    assert all(before) and compiled() == before and len(found) == 300
