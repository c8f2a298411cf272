"""The spanning forest of OPTICS, which knows the clusters at every distance."""

import math

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.cluster import cluster_optics_dbscan
from dask_simjoin.cluster.algorithms.forest import least_eps
from dask_simjoin.metrics.distances import make_metric
from tests.cluster.expressions.test_optics import assert_same, points
from tests.support.frames import split
from tests.support.points import frame_of
from tests.support.profiles import examples


def same_groups(one, other):
    """Whether two labellings differ in their numbers only."""
    both = set(zip(one, other, strict=True))
    return len(both) == len({a for a, _ in both}) == len({b for _, b in both})


@settings(max_examples=examples(80))
@given(points(), st.integers(2, 6), st.sampled_from([5, 1000]), st.sampled_from(["entity", "spatial"]))
def test_the_forest_knows_the_clusters_at_every_distance(case, min_samples, rows, partitioning):
    x, max_eps = case
    frame = frame_of(x)
    order = frame.simjoin.optics(max_eps, min_samples, mode="forest")
    how = {"partitioning": partitioning, "blocksize": rows * (8 * x.shape[1] + 64 + 16 * min_samples)}
    lazy = split(frame, [len(x) // 3, len(x) // 2]).simjoin.optics(max_eps, min_samples, mode="forest", **how)
    with dask.config.set(scheduler="sync"):
        assert_same(lazy.compute(), order)
    steps = order.reachability[np.isfinite(order.reachability)].unique()[:4]
    for eps in (max_eps, 0.7 * max_eps, max_eps / math.sqrt(2), *steps, *np.nextafter(steps, 0)):
        core = (frame.simjoin.neighbor_counts(eps) + 1 >= min_samples).to_numpy()
        assert (order.core_distance <= eps).tolist() == core.tolist()
        labels, want = cluster_optics_dbscan(order, eps), frame.simjoin.dbscan(eps, min_samples)
        assert same_groups(labels[core], want[core])


METRICS = {
    "sqeuclidean": (2.0, {}), "manhattan": (2.0, {}), "chebyshev": (1.0, {}), "minkowski": (1.5, {"p": 3}),
    "cosine": (0.05, {}), "haversine": (2e6, {}),
}  # fmt: skip
"""Of each metric a distance within which some rows are, and more options."""


@pytest.mark.parametrize(
    "metric",
    [
        "haversine",
        "cosine",
        "sqeuclidean",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("manhattan", "chebyshev", "minkowski")),
    ],
)
def test_the_forest_in_every_metric(metric):
    max_eps, more = METRICS[metric]
    rng = np.random.default_rng(7)
    x = np.round(rng.uniform(-9, 9, (90, 2)), 1)
    frame = frame_of(np.concatenate([x, x[:5]]))
    how = {"metric": metric, "on": list(frame.columns), **more}
    order = frame.simjoin.optics(max_eps, 4, mode="forest", **how)
    lazy = split(frame, [30, 60]).simjoin.optics(max_eps, 4, mode="forest", partitioning="entity", **how)
    assert_same(lazy.compute(scheduler="sync"), order)
    steps = np.sort(order.reachability[np.isfinite(order.reachability)].unique())
    steps = steps[[0, len(steps) // 2, -1]]
    for eps in (max_eps, *steps, *np.nextafter(steps, 0)):
        core = (frame.simjoin.neighbor_counts(eps, **how) + 1 >= 4).to_numpy()
        assert (order.core_distance <= eps).tolist() == core.tolist()
        labels, want = cluster_optics_dbscan(order, eps), frame.simjoin.dbscan(eps, 4, **how)
        assert same_groups(labels[core], want[core])


@pytest.mark.parametrize("metric", ["euclidean", "minkowski", "cosine", "haversine"])
@given(totals=st.lists(st.floats(0, allow_nan=False), max_size=30))
def test_least_eps(metric, totals):
    metric, totals = make_metric(metric, 3 if metric == "minkowski" else 2), np.array(totals)
    if metric.embeds:
        totals = np.minimum(totals, 4)
    with np.errstate(over="ignore", under="ignore"):
        eps = least_eps(totals, metric)
        less = np.nextafter(eps, 0)
        assert (metric.threshold(eps) >= totals).all()
        assert ((metric.threshold(less) < totals) | (eps == 0) | np.isinf(totals)).all()
