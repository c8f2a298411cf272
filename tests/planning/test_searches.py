"""Which chunks a search compares: limits that no neighbor lies beyond, by brute force."""

import numpy as np
import pytest

from dask_simjoin.metrics.distances import make_metric
from dask_simjoin.planning import searches
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.sample import Sample
from dask_simjoin.planning.sample_pairs import gather_samples
from dask_simjoin.planning.searches import (
    farthest_totals,
    largest_totals,
    near_points,
    used_points,
)
from dask_simjoin.sizes import SAMPLED
from tests.support.oracle import totals
from tests.support.profiles import every_nth, pairwise

METRICS = {1: "manhattan", 2: "euclidean", np.inf: "chebyshev"}


@pairwise(norm=list(METRICS), k=[1, 3])
def test_no_neighbor_of_a_point_in_a_box_is_further(norm, k):
    rng = np.random.default_rng(k)
    x = rng.normal(size=(200, 3))
    parts = np.array_split(x[np.argsort(x[:, 0])], 5)
    lower, upper = (
        np.array([p.min(0) for p in parts]),
        np.array([p.max(0) for p in parts]),
    )
    limits = largest_totals(x, lower, upper, k, norm)
    for part, limit in zip(parts, limits, strict=True):
        # its own total comes first
        kth = np.sort(totals(part, x, METRICS[norm]), axis=1)[:, k]
        assert kth.max() <= limit < 30
    assert np.isinf(largest_totals(x[:k], lower, upper, k, norm)).all()


@pytest.mark.parametrize("norm", METRICS)
def test_totals_with_the_far_corner_of_a_box(norm):
    rng = np.random.default_rng(0)
    x, lower, upper = (
        rng.normal(size=(50, 2)),
        np.array([-0.5, 0.0]),
        np.array([0.25, 1.0]),
    )
    corners = np.array([[a, b] for a in (-0.5, 0.25) for b in (0.0, 1.0)])
    want = totals(x, corners, METRICS[norm]).max(axis=1)
    assert farthest_totals(x, lower, upper, norm).tolist() == want.tolist()


def test_a_large_sample_is_thinned():
    x = np.arange(4000.0)[:, None]
    assert used_points(x, 10) is x
    some = used_points(x, 1 << 40)
    assert len(some) == SAMPLED and (np.diff(some[:, 0]) > 0).all()
    assert len(used_points(x, 1 << 40, 3000)) == 3000


@pytest.mark.parametrize("norm", every_nth(4, METRICS))
def test_each_box_gets_the_sample_points_near_it(monkeypatch, norm):
    """With 400 boxes and points thinned at random, the limits are far wider."""
    monkeypatch.setattr(searches, "MAX_WORK", 1)
    monkeypatch.setattr(searches, "SAMPLED", 320)
    rng = np.random.default_rng(3)
    x, side = rng.uniform(size=(8000, 2)), 20
    lower = np.stack(np.divmod(np.arange(side**2), side), axis=1) / side
    upper = lower + 1 / side
    each = list(near_points(x, lower, upper, norm, 3))
    found = {c: some for boxes, some in each for c in boxes.tolist()}
    assert sum(len(boxes) for boxes, _ in each) == len(found)
    assert sorted(found) == list(range(side**2))
    limits = largest_totals(x, lower, upper, 2, norm)
    for c, some in list(found.items())[::11]:
        assert 3 <= len(some) <= 200 and {*map(tuple, some)} <= {*map(tuple, x)}
        inside = lower[c] + rng.uniform(size=(30, 2)) / side
        kth = np.sort(totals(inside, x, METRICS[norm]), axis=1)[:, 2]
        assert (
            kth.max() <= limits[c] <= farthest_totals(x, lower[c], upper[c], norm).max()
        )
    thinned = used_points(x, 1 << 40)
    assert limits.max() < largest_totals(thinned, lower, upper, 2, norm).min()


def test_few_rows_are_asked_of_a_small_table(monkeypatch):
    """The guess is about as good: within a third of the guess by all rows."""
    x = np.random.default_rng(0).uniform(size=(4000, 3))
    points = gather_samples(
        [Sample(40_000, np.arange(4000), x)], np.array([0, 40_000]), 3
    )
    metric = make_metric("euclidean", 2)
    few = searches._guess(points, 5, metric)
    monkeypatch.setattr(searches, "PROBED", 4000)
    assert (
        few == pytest.approx(searches._guess(points, 5, metric), rel=1 / 3) and few > 0
    )


@pytest.mark.parametrize("dims", [1, 2, 5])
def test_the_guess_of_a_large_table_is_for_its_density(dims):
    """The nearest of few sample points is far, although neighbors among all rows are
    near: regions would be too wide.
    """
    x = np.random.default_rng(0).uniform(size=(4000, dims))
    metric = make_metric("euclidean", 2)
    guesses = [
        searches._guess(
            gather_samples(
                [Sample(rows, np.arange(4000), x)], np.array([0, rows]), dims
            ),
            5,
            metric,
        )
        for rows in (10**7, 10**10)
    ]
    ratio = 1000 ** (1 / dims)
    assert guesses[0] / guesses[1] == pytest.approx(ratio) and guesses[1] > 0


def test_many_searches_of_a_large_cluster_are_not_cut():
    """Half a second is not worth thousands of tasks. A few long searches are cut."""
    costs = Costs(
        "dense", 2, (1.0, 1.0), 1e9, PAIRS, Limits(4096, 10**9, True, workers=1024)
    )

    def pieces(seconds):
        return costs.pieces(np.array(seconds), np.full(len(seconds), 1e6), None)

    assert (pieces([0.5] * 9000) == 1).all()
    assert (pieces([0.5] * 100) > 1).all()
    assert pieces([0.5] * 9000 + [60.0])[-1] > 1
