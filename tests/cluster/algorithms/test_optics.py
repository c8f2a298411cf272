"""Orders of rows that OPTICS gives, from all edges or from a forest, and clusters of an
order.
"""

import math

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster import cluster_optics_dbscan, cluster_optics_xi
from dask_simjoin.cluster.algorithms import optics
from tests.cluster.expressions.test_optics import assert_same, points, sklearn_optics
from tests.support.density import SETS
from tests.support.frames import split
from tests.support.points import frame_of
from tests.support.profiles import chosen, examples, in_turns

sklearn_cluster = pytest.importorskip("sklearn.cluster")


@settings(max_examples=examples(150))
@given(
    points(),
    st.integers(2, 7),
    st.sampled_from([4, 9, 1000]),
    st.sampled_from(["entity", "spatial", "auto"]),
)
def test_any_points(case, min_samples, rows, partitioning):
    x, eps = case
    want = sklearn_optics(x, eps, min_samples)
    frame = frame_of(x)
    assert_same(frame.simjoin.optics(eps, min_samples), want)
    how = {"partitioning": partitioning, "blocksize": rows * (8 * x.shape[1] + 72)}
    lazy = split(frame, [len(x) // 3, len(x) // 2]).simjoin.optics(
        eps, min_samples, **how
    )
    with dask.config.set(scheduler="sync"):
        assert_same(lazy.compute(), want)


@in_turns(
    1,
    lambda name, partitions, partitioning: (
        partitions == {"entity": 40, "spatial": 1}.get(partitioning) or partitions == 7
    ),
    name=chosen(
        [
            n
            for n in SETS
            if n not in ("fewer rows than samples", "every row a cluster")
        ],
        ["varied", "lattice"],
    ),
    partitions=chosen([7, 1, 40], [7, 1]),
    partitioning=["entity", "spatial"],
)
def test_equal_to_scikit_learn(name, partitions, partitioning):
    x, eps, min_samples = SETS[name]
    x = np.random.default_rng(1).permutation(x)[:400]
    eps = 2 * eps
    frame = frame_of(x)
    frame.index = frame.index + 100
    want = sklearn_optics(x, eps, min_samples)
    assert_same(frame.simjoin.optics(eps, min_samples), want)
    ddf = dd.from_pandas(frame, npartitions=partitions)
    how = {"partitioning": partitioning, "blocksize": max(1, len(x) // 12) * 90}
    order = ddf.simjoin.optics(eps, min_samples, **how)
    found = order.compute()
    assert found.index.tolist() == frame.index.tolist()
    assert_same(found, want)
    assert order.npartitions == ddf.npartitions
    last = order.partitions[order.npartitions - 1].compute()
    assert_same(last, want[len(want) - len(last) :])
    assert (
        ddf.assign(r=order["reachability"]).r.compute().tolist()
        == want.reachability.tolist()
    )


def test_where_scikit_learn_takes_whole_nodes():
    """Its tree accepts a node whose far end is within the rounded root; the definition
    here has no roots.
    """
    x = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    eps = math.sqrt(3)
    assert eps * eps < 3
    frame = frame_of(x)
    assert frame.simjoin.dbscan(eps, 2).tolist() == [-1, -1]
    assert frame.simjoin.dbscan(math.nextafter(eps, 2), 2).tolist() == [0, 0]
    order = frame.simjoin.optics(eps, 2)
    assert (
        order.core_distance.tolist() == [np.round(eps, 15)] * 2
        and np.isinf(order.reachability).all()
    )


@pytest.mark.parametrize(
    "name",
    chosen(["moons", "blobs", "varied", "lattice"], ["varied"]),
)
def test_extraction_is_that_of_scikit_learn(name):
    x, eps, min_samples = SETS[name]
    x = np.random.default_rng(1).permutation(x)[:400]
    order = frame_of(x).simjoin.optics(2 * eps, min_samples)
    lazy = dd.from_pandas(frame_of(x), npartitions=6).simjoin.optics(
        2 * eps, min_samples
    )
    known = {
        "reachability": order.reachability.to_numpy(),
        "ordering": np.argsort(order.ordering.to_numpy()),
    }
    for eps_ in (0.0, 0.5 * eps, eps, 2 * eps):
        core = order.core_distance.to_numpy()
        want = sklearn_cluster.cluster_optics_dbscan(
            **known, core_distances=core, eps=eps_
        )
        assert cluster_optics_dbscan(order, eps_).tolist() == want.tolist()
        labels = cluster_optics_dbscan(lazy, eps_)
        assert (
            labels.npartitions == lazy.npartitions
            and labels.compute().tolist() == want.tolist()
        )
        assert lazy.assign(label=labels).label.compute().tolist() == want.tolist()
        assert (
            labels.partitions[2].compute().tolist()
            == lazy.assign(w=labels).w.partitions[2].compute().tolist()
        )
    predecessor = order.predecessor.to_numpy()
    want, _ = sklearn_cluster.cluster_optics_xi(
        **known, predecessor=predecessor, min_samples=min_samples, xi=0.1
    )
    assert cluster_optics_xi(order, min_samples, xi=0.1).tolist() == want.tolist()
    assert (
        cluster_optics_xi(lazy, min_samples, xi=0.1).compute().tolist() == want.tolist()
    )


def same_groups(one, other):
    """Whether two labellings differ in their numbers only."""
    both = set(zip(one, other, strict=True))
    return len(both) == len({a for a, _ in both}) == len({b for _, b in both})


@settings(max_examples=examples(80))
@given(
    points(),
    st.integers(2, 6),
    st.sampled_from([5, 1000]),
    st.sampled_from(["entity", "spatial"]),
)
def test_the_forest_knows_the_clusters_at_every_distance(
    case, min_samples, rows, partitioning
):
    x, max_eps = case
    frame = frame_of(x)
    order = frame.simjoin.optics(max_eps, min_samples, mode="forest")
    how = {
        "partitioning": partitioning,
        "blocksize": rows * (8 * x.shape[1] + 64 + 16 * min_samples),
    }
    lazy = split(frame, [len(x) // 3, len(x) // 2]).simjoin.optics(
        max_eps, min_samples, mode="forest", **how
    )
    with dask.config.set(scheduler="sync"):
        assert_same(lazy.compute(), order)
    steps = order.reachability[np.isfinite(order.reachability)].unique()[:4]
    for eps in (
        max_eps,
        0.7 * max_eps,
        max_eps / math.sqrt(2),
        *steps,
        *np.nextafter(steps, 0),
    ):
        core = (frame.simjoin.neighbor_counts(eps) + 1 >= min_samples).to_numpy()
        assert (order.core_distance <= eps).tolist() == core.tolist()
        labels, want = (
            cluster_optics_dbscan(order, eps),
            frame.simjoin.dbscan(eps, min_samples),
        )
        assert same_groups(labels[core], want[core])


METRICS = {
    "sqeuclidean": (2.0, {}),
    "manhattan": (2.0, {}),
    "chebyshev": (1.0, {}),
    "minkowski": (1.5, {"p": 3}),
    "cosine": (0.05, {}),
    "haversine": (2e6, {}),
}
"""Of each metric a distance within which some rows are, and more options."""


@pytest.mark.parametrize(
    "metric",
    [
        "haversine",
        "cosine",
        "sqeuclidean",
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in ("manhattan", "chebyshev", "minkowski")
        ),
    ],
)
def test_the_forest_in_every_metric(metric):
    max_eps, more = METRICS[metric]
    rng = np.random.default_rng(7)
    x = np.round(rng.uniform(-9, 9, (90, 2)), 1)
    frame = frame_of(np.concatenate([x, x[:5]]))
    how = {"metric": metric, "on": list(frame.columns), **more}
    order = frame.simjoin.optics(max_eps, 4, mode="forest", **how)
    lazy = split(frame, [30, 60]).simjoin.optics(
        max_eps, 4, mode="forest", partitioning="entity", **how
    )
    assert_same(lazy.compute(scheduler="sync"), order)
    steps = np.sort(order.reachability[np.isfinite(order.reachability)].unique())
    steps = steps[[0, len(steps) // 2, -1]]
    for eps in (max_eps, *steps, *np.nextafter(steps, 0)):
        core = (frame.simjoin.neighbor_counts(eps, **how) + 1 >= 4).to_numpy()
        assert (order.core_distance <= eps).tolist() == core.tolist()
        labels, want = (
            cluster_optics_dbscan(order, eps),
            frame.simjoin.dbscan(eps, 4, **how),
        )
        assert same_groups(labels[core], want[core])


def test_the_default_mode_takes_every_metric():
    frame = pd.DataFrame(
        {"latitude": [50.0, 50.01, 50.02, 60.0], "longitude": [6.0, 6.0, 6.01, 6.0]}
    )
    how = {"min_samples": 2, "on": ["latitude", "longitude"]}
    far = frame.simjoin.optics("5 km", metric="haversine", **how)
    assert far.equals(
        frame.simjoin.optics("5 km", metric="haversine", mode="forest", **how)
    )
    assert frame.simjoin.optics(1.0, **how).equals(
        frame.simjoin.optics(1.0, mode="edges", **how)
    )


@in_turns(1, min_samples=[2, 5, 119, 120, 121], dims=[2, 5])
def test_dense_rows_are_ordered_without_storing_edges(min_samples, dims, monkeypatch):
    rng = np.random.default_rng(0)
    clumps = rng.normal(size=(120, dims)) / 50 + rng.integers(0, 2, (120, 1))
    tables = [np.ones((120, dims)), clumps, np.round(4 * rng.random((120, dims))) / 4]
    for table in tables:
        frame = pd.DataFrame(table, columns=[f"x{k}" for k in range(dims)])
        expected = frame.simjoin.optics(0.75, min_samples)
        with monkeypatch.context() as patch:
            patch.setattr(optics, "PAIRS_AT_ONCE", 0)
            patch.setattr(optics, "edges_of_block", None)
            found = frame.simjoin.optics(0.75, min_samples)
        for name in expected:
            bits = [some[name].to_numpy().view(np.int64) for some in (found, expected)]
            assert (bits[0] == bits[1]).all()
