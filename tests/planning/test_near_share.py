"""What a sample tells of how many tiles are near each other, beside tiles of all points."""

import numpy as np
import pytest

from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT, TILE
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import box_gap
from dask_simjoin.planning.statistics import sample as module
from dask_simjoin.planning.statistics.sample import near_share
from tests.support.profiles import in_turns

POINTS = {
    "uniform": lambda rng, n, d: rng.uniform(size=(n, d)),
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "exponential": lambda rng, n, d: rng.exponential(size=(n, d)),
    "clusters": lambda rng, n, d: (
        rng.uniform(0, 50, (20, d))[rng.integers(0, 20, n)] + rng.normal(size=(n, d))
    ),
}


def counted(x, threshold, norm):
    order = kd_order(x, dims_to_cut(x.var(axis=0)).first(len(x), TILE, CUTS), TILE, FAN_OUT)
    tiles = x[order[: len(x) // TILE * TILE]].reshape(-1, TILE, x.shape[1])
    low, high = tiles.min(axis=1), tiles.max(axis=1)
    some = np.linspace(0, len(low) - 1, 100).astype(int)
    return np.mean([box_gap(norm, low[t], high[t], low, high) <= threshold for t in some])


@in_turns(2, norm=[1, 2, np.inf], dims=[2, 3, 5, 6, 8, 16], kind=list(POINTS))
def test_a_sample_tells_what_share_of_tiles_is_near(kind, dims, norm):
    """Within a factor of four, of shares from 1 down to one in 1,000."""
    x = POINTS[kind](np.random.default_rng(dims), 150_000, dims)
    eps = 0.02 * float(x.std()) * dims
    threshold = {1: dims * eps, 2: eps * eps, np.inf: eps}[norm]
    sample = x[::10]
    for rows, points in ((len(x), x), (len(x) // 4, x[::4])):
        real = counted(points, threshold, norm)
        told = near_share(sample, len(x), threshold, norm)[rows != len(x)]
        assert real / 4 < told < 4 * real, (rows, told, real)


def test_few_points_and_extremes():
    assert near_share(np.zeros((0, 2)), 0, 1.0, 2) == (1.0, 1.0)
    assert near_share(np.zeros((100, 2)), 1_000_000, 1.0, 2) == (1.0, 1.0)
    assert near_share(np.zeros((9000, 3)), 10**9, 0.0, 2) == (1.0, 1.0)
    huge = np.random.default_rng(0).uniform(-1, 1, (5000, 2)) * 1.7e308
    assert all(0 <= share <= 1 for share in near_share(huge, 10**6, 1.0, 2))
    far = np.concatenate([np.zeros((3000, 2)), np.full((3000, 2), 1e9)])
    whole, quarter = near_share(far, 6000, 1.0, 2)
    assert whole == pytest.approx(0.5, abs=0.05) and quarter >= whole


@pytest.mark.parametrize("dims", [16, 384])
def test_points_of_many_numbers_are_fewer(dims, monkeypatch):
    taken = []
    order = module.kd_order

    def watched(x, *rest):
        taken.append(len(x))
        return order(x, *rest)

    monkeypatch.setattr(module, "kd_order", watched)
    near_share(np.random.default_rng(0).normal(size=(9000, dims)), 10**6, 1.0, 2)
    assert taken[0] * dims <= module.MOST_NUMBERS
