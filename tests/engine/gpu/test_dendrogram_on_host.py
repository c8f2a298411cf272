"""The GPU's clusters of trees are the CPU's: array expressions and CUDA C++ on the
host.
"""

import importlib

import numpy as np
import pytest

from dask_simjoin.cluster.algorithms.condensed_tree import Condensed, choose
from dask_simjoin.engine.cpu.spanning import SPANNER
from dask_simjoin.request.clusters import Choice
from dask_simjoin.sizes import RUN
from tests.support.host_fibers import fibers_like_cupy
from tests.support.profiles import examples


@pytest.fixture(scope="module")
def dendrogram(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        yield importlib.import_module("dask_simjoin.engine.gpu.spanning")


def random_tree(rng, n):
    """Edges of a tree of n rows, from a path to a star, and distances, of which many
    may be equal.
    """
    end = np.arange(1, n)
    start = (end * rng.uniform(rng.choice([0.0, 0.9, 1.0]), 1, n - 1)).astype(np.int64)
    start = np.minimum(start, end - 1) * (rng.uniform() < 0.9)
    rows, mixed = rng.permutation(n), rng.permutation(n - 1)
    steps = int(rng.integers(1, 9))
    far = (
        rng.exponential(size=n - 1)
        if rng.uniform() < 0.5
        else rng.integers(0, steps, n - 1) / 3
    )
    return (
        rows[start][mixed].astype(np.int32),
        rows[end][mixed].astype(np.int32),
        np.sort(far),
    )


def assert_same(dendrogram, start, end, far, least):
    given = [column.copy() for column in (start, end, far)]
    found, want = (
        dendrogram.condense(*given, least),
        SPANNER.condense(start, end, far, least),
    )
    for one, other in zip(found, want, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    return len(found[2])


def test_any_trees(dendrogram):
    clusters, number = 0, examples(500)
    for seed in range(number):
        rng = np.random.default_rng(seed)
        n = int(rng.choice([2, 3, rng.integers(4, 20), rng.integers(20, 200)]))
        clusters += assert_same(
            dendrogram, *random_tree(rng, n), int(rng.integers(2, 9))
        )
    assert clusters > 2 * number


@pytest.mark.parametrize("shape", ["path", "star", "any"])
def test_large_trees(dendrogram, shape):
    """Chains of thousands of merges, and many chains."""
    rng = np.random.default_rng(0)
    n = 8_000
    start, end, far = random_tree(rng, n)
    if shape != "any":
        start = np.arange(n - 1, dtype=np.int32) * (shape == "path")
        end, far = np.arange(1, n, dtype=np.int32), np.arange(n - 1) / 7
    for least in (2, 50, 30_000):
        assert_same(dendrogram, start, end, far, least)


def test_sizes_and_parents(dendrogram):
    start, end = np.array([0, 2, 1, 4], np.int32), np.array([1, 3, 2, 3], np.int32)
    tree = dendrogram.Dendrogram(start, end)
    assert tree.parent.tolist() == [2, 2, 3, 3] and tree.size.tolist() == [2, 2, 4, 5]
    assert tree.first.tolist() == [0, 0, 1, 1, 3]


@pytest.mark.parametrize("single", [False, True])
def test_labels_of_rows(dendrogram, single):
    """Also of rows that leave no cluster, at distance 0 and with an epsilon."""
    labels = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        start, end, far = random_tree(rng, int(rng.integers(2, 90)))
        tree = Condensed(*SPANNER.condense(start, end, far, 3))
        eps = float(rng.choice([0.0, 0.5]))
        choice = Choice(allow_single_cluster=single, cluster_selection_epsilon=eps)
        known = tree.row_parent, tree.row_lambda, choose(tree, choice)
        found, want = dendrogram.label_rows(*known), SPANNER.label_rows(*known)
        for one, other in zip(found, want, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        labels |= set(found[0].tolist())
    assert {-1, 0, 1} <= labels


@pytest.mark.parametrize("clusters", [1, 7, 3_000])
def test_measures_of_rows_that_leave_clusters(dendrogram, clusters):
    """Sums round alike. Some clusters have many runs of rows, others no row."""
    rng = np.random.default_rng(clusters)
    owner = (rng.random(9_000) ** 3 * clusters).astype(np.int32)
    density = rng.exponential(size=9_000)
    density[rng.random(9_000) < 0.01] = np.inf
    birth = rng.random(clusters)
    found, want = (
        one.measure_rows(owner, density, birth) for one in (dendrogram, SPANNER)
    )
    for one, other in zip(found, want, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    first, stability, death = want
    assert (first < 0).any() == (clusters == 3_000)
    for c in range(0, clusters, 5):
        rows = np.flatnonzero(owner == c)
        assert first[c] == (rows[0] if len(rows) else -1)
        runs = [
            sum((density[rows[k : k + RUN]] - birth[c]).tolist())
            for k in range(0, len(rows), RUN)
        ]
        assert stability[c] == sum(runs)
        assert death[c] == density[rows].max(initial=0.0)
