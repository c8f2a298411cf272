"""The knee of k-distances, and how pronounced it is."""

import math

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.cluster import k_distance_knee
from tests.support.points import frame_of


def clusters(dims, noise, seed=0):
    """Return ten clusters of 300 rows, and rows of noise."""
    rng = np.random.default_rng(seed)
    dense = rng.uniform(0, 100, (10, dims)).repeat(300, axis=0)
    dense += rng.normal(size=dense.shape)
    return frame_of(np.concatenate([dense, rng.uniform(0, 100, (noise, dims))]))


@pytest.mark.parametrize(("dims", "noise"), [(2, 600), (3, 100), (4, 600), (4, 3000)])
def test_the_knee_divides_clusters_from_noise(dims, noise):
    frame = clusters(dims, noise)
    distances = frame.simjoin.k_distances(9)
    knee = k_distance_knee(distances)
    assert not knee.weak and knee.separation > 5
    assert (distances == knee.eps).any()
    assert knee.core_share == (distances <= knee.eps).mean()
    assert f"knee at eps={knee.eps:.6g}" in str(knee)
    labels = frame.simjoin.dbscan(knee.eps, 10)
    assert (labels[:3000] >= 0).mean() > 0.98 and labels[:3000].nunique() <= 11
    if dims > 2:  # in the plane, noise is inside of clusters
        assert (labels[3000:] < 0).mean() > 0.95


@pytest.mark.parametrize("kind", ["uniform", "normal", "lognormal", "pareto"])
@pytest.mark.parametrize("dims", [1, 2, 5])
def test_rows_of_one_kind_have_no_knee(kind, dims):
    """A few distant rows do not make a knee, unlike in the curve of the distances."""
    rng = np.random.default_rng(1)
    draw = getattr(rng, kind)
    x = draw(1.5, size=(4000, dims)) if kind == "pareto" else draw(size=(4000, dims))
    knee = k_distance_knee(frame_of(x).simjoin.k_distances(9))
    assert knee.weak and 2 < knee.separation < 3.6
    assert "no clear knee" in str(knee) and "hdbscan" in str(knee)


def test_clusters_of_unequal_density_have_a_weak_knee():
    rng = np.random.default_rng(2)
    width = np.exp(rng.normal(0, 1.5, 40)).repeat(100)[:, None]
    x = rng.uniform(0, 1000, (40, 2)).repeat(100, axis=0) + width * rng.normal(
        size=(4000, 2)
    )
    assert k_distance_knee(frame_of(x).simjoin.k_distances(9)).weak


def test_the_threshold_has_the_largest_variance_between_groups():
    away = np.exp(np.random.default_rng(3).normal(size=60).round(1))
    knee, values = k_distance_knee(pd.Series(away)), np.log(np.sort(away))
    best = max(
        np.unique(values)[:-1],
        key=lambda t: (
            (values <= t).mean()
            * (values > t).mean()
            * (values[values > t].mean() - values[values <= t].mean()) ** 2
        ),
    )
    low, high = values[values <= best], values[values > best]
    assert math.isclose(knee.eps, np.exp(best))
    apart = math.sqrt(2) * (high.mean() - low.mean())
    assert math.isclose(knee.separation, apart / math.sqrt(low.var() + high.var()))


@pytest.mark.parametrize(
    ("distances", "eps", "share", "separation"),
    [
        ([], math.nan, 0, 0),
        ([math.inf, math.nan], math.nan, 0, 0),
        ([0, 0], 0, 1, 0),
        ([0, 3, 3], 3, 1, 0),
        ([1, 2], 1, 0.5, math.inf),
        ([2, 0, math.nan, 1, 0, math.inf], 1, 0.75, math.inf),
    ],
)
def test_few_distances(distances, eps, share, separation):
    one = pd.Series(distances, dtype=float)
    found = k_distance_knee(one)
    assert found == pytest.approx((eps, share, separation), nan_ok=True)
    assert found.weak == (separation == 0) and str(found)


def test_lazy_distances():
    distances = clusters(3, 200).simjoin.k_distances(9)
    lazy = dd.from_pandas(distances, npartitions=3)
    assert k_distance_knee(lazy) == k_distance_knee(distances)
