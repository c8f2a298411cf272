"""HDBSCAN and spanning trees of cuDF frames are those of pandas frames, edge by edge."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")
dask_cudf = pytest.importorskip("dask_cudf")

from dask_simjoin.cluster import HDBSCAN, choose_clusters, condensed_tree
from dask_simjoin.engine.gpu.nearest import SEARCHER
from tests.support.density import SETS
from tests.support.gpu_frames import computed, lay
from tests.support.gpu_programs import search_programs, spanning_programs
from tests.support.hierarchy import tree_by_definition
from tests.support.points import KINDS, frame_of, make_points, without_overflow
from tests.support.profiles import chosen, examples

pytestmark = pytest.mark.gpu

DIMS = chosen([1, 2, 3, 5, 8, 9, 16, 17, 64, 200], [1, 2, 8, 64])
"""Every number of dimensions is compiled by itself, which takes longer than these
tests: so, some.
"""

WAYS = [(7, "entity"), (5, "spatial"), (12, "entity")]


def programs():
    few = search_programs(DIMS, ["float64", "float32", "float16"]) + spanning_programs(
        DIMS, [True, False]
    )
    for metric, dims in ((1, 2), (float("inf"), 2), (3, 2)):
        few += search_programs([dims], ["float64"], metric) + spanning_programs(
            [dims], [True], metric
        )
    return few + search_programs([2], ["float64"], lists=(False,))


def check(frame, **how):
    """The tree of a plain frame and its merges at every height, as pandas has them."""
    want = frame.simjoin.spanning_tree(**how)
    found = computed(lay(frame, "cudf").simjoin.spanning_tree(**how))
    assert found["distance"].sum() == want["distance"].sum()
    pd.testing.assert_frame_equal(found, want)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("kind", KINDS)
def test_trees_of_any_points(kind, dims):
    rng = np.random.default_rng(dims)
    for n, rows in enumerate((1, 2, 65, 700)):
        frame = frame_of(without_overflow(make_points(kind, rows, dims, rng)))
        # named columns, because few rows of many columns look transposed
        samples = min(rows, (1, 4, 12)[n % 3])
        check(frame, min_samples=samples, on=list(frame.columns))


@settings(max_examples=examples(100))
@given(
    st.integers(0, 2**32),
    st.integers(1, 300),
    st.sampled_from([1, 2, 8]),
    st.integers(1, 30),
)
def test_trees_are_those_of_the_definition(seed, rows, dims, samples):
    rng = np.random.default_rng(seed)
    x = make_points(
        rng.choice(["lattice", "duplicates", "clusters", "offset"]), rows, dims, rng
    )
    samples = min(samples, rows)
    found = computed(
        lay(frame_of(x), "cudf").simjoin.spanning_tree(min_samples=samples)
    )
    edges, far = tree_by_definition(x, samples)
    assert list(zip(found["left"], found["right"], strict=True)) == edges
    assert found["distance"].tolist() == far.tolist()


@pytest.mark.parametrize(
    "how",
    [
        {"metric": "manhattan"},
        {"metric": "chebyshev"},
        {"metric": "minkowski", "p": 3},
        {"metric": "cosine"},
        {"metric": "haversine", "on": ["c0", "c1"]},
    ],
    ids=lambda how: how["metric"],
)
def test_metrics(how):
    x = np.random.default_rng(3).uniform(-60, 60, (900, 2)).round(1)
    check(frame_of(x), min_samples=4, **how)


def test_many_rows():
    """Threads that meet, trees of three levels, and parts of the queries."""
    rng = np.random.default_rng(0)
    for x, samples in (
        (rng.uniform(size=(600_000, 2)), 5),
        (rng.normal(size=(300_000, 2)).round(2), 3),
        (np.repeat([[0.0, 1.0], [2.0, 0.5], [9.0, 9.0]], 20_000, axis=0), 2),
        (rng.normal(size=(30_000, 8)) + 9 * rng.integers(0, 5, (30_000, 1)), 10),
    ):
        check(frame_of(x), min_samples=samples)


def test_parts_of_queries(monkeypatch):
    rows = SEARCHER.at_once(1 << 27)
    monkeypatch.setattr(type(SEARCHER), "at_once", staticmethod(lambda k: rows))
    for dims in (2, 64):
        check(
            frame_of(np.random.default_rng(0).normal(size=(2 * rows + 100, dims))),
            min_samples=4,
        )


@pytest.mark.parametrize(
    "name", ["moons", "varied", "wide", "lattice", "identical points"]
)
def test_clusters_on_any_partitions(name):
    frame = frame_of(np.random.default_rng(1).permutation(SETS[name][0])[:700])
    frame.index = frame.index + 100
    how = {"min_samples": 4, "allow_single_cluster": name == "identical points"}
    want, tree = (
        frame.simjoin.hdbscan(15, **how),
        frame.simjoin.spanning_tree(min_samples=4),
    )
    for layout in ("cudf", "dask-1", "dask-4"):
        pd.testing.assert_frame_equal(
            computed(lay(frame, layout).simjoin.hdbscan(15, **how)), want
        )
    for partitions, partitioning in WAYS:
        ddf = dask_cudf.from_cudf(
            cudf.from_pandas(frame), npartitions=partitions, sort=False
        )
        cut = {
            "partitioning": partitioning,
            "blocksize": 150 * (8 * frame.shape[1] + 360),
        }
        lazy = ddf.simjoin.hdbscan(15, **how, **cut)
        assert len(lazy.expr.plan.chunks) > 2
        pd.testing.assert_frame_equal(computed(lazy), want)
        pd.testing.assert_frame_equal(
            computed(ddf.simjoin.spanning_tree(min_samples=4, **cut)), tree
        )


def test_rows_left_out():
    frame = frame_of(np.random.default_rng(0).normal(size=(400, 2)))
    frame.iloc[::7, 0] = np.nan
    want = frame.simjoin.hdbscan(9, dropna=True)
    for layout in ("cudf", "dask-4"):
        pd.testing.assert_frame_equal(
            computed(lay(frame, layout).simjoin.hdbscan(9, dropna=True)), want
        )


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(rows):
    frame = frame_of(np.arange(2.0 * rows).reshape(rows, 2))
    for layout in ("cudf", "dask-1"):
        there = lay(frame, layout).simjoin
        assert computed(there.hdbscan(2))["label"].tolist() == [-1] * rows
        assert len(computed(there.spanning_tree(min_samples=max(rows, 1)))) == max(
            0, rows - 1
        )


def test_condensed_trees_and_the_estimator():
    frame = frame_of(SETS["moons"][0][:500])
    there = lay(frame, "cudf")
    tree = there.simjoin.spanning_tree(min_samples=5)
    condensed = condensed_tree(tree, 9)
    want = condensed_tree(frame.simjoin.spanning_tree(min_samples=5), 9)
    pd.testing.assert_frame_equal(computed(condensed), want)
    labels = frame.simjoin.hdbscan(9, min_samples=5)["label"].tolist()
    assert computed(choose_clusters(condensed))["label"].tolist() == labels
    assert HDBSCAN(9, min_samples=5).fit(there).labels_.to_pandas().tolist() == labels
