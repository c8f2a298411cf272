"""The band in which filters leave the decision to float64."""

import math

import numpy as np

from dask_simjoin.engine.cpu.joiner import JOINER
from tests.engine.cpu.test_joiner import _bounds, check
from tests.support.oracle import squared_distances
from tests.support.profiles import pairwise


def test_the_float64_band_is_hit_and_decides_both_ways():
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(400, 16))
    d2 = np.sort(squared_distances(x, x)[np.triu_indices(400, 1)])
    decided = refused = 0
    for rank in (10, 100, 1000, 10_000):
        root = math.sqrt(d2[rank])
        for eps in (math.nextafter(root, 0), root, math.nextafter(root, 9)):
            layout = JOINER.layout("tiles", *_bounds(x), eps * eps)
            assert layout.filter is not None
            index = JOINER.build(x, layout)
            found = JOINER.pairs(index, index, layout, is_self_join=True)
            assert len(found.left) == int((d2 <= eps * eps).sum())
            decided += found.decided
            refused += found.refused
    assert decided > refused > 0


@pairwise(ulps=[-1, 0, 1], dims=[2, 6, 40], offset=[0.0, 1e3, 1e7])
def test_one_ulp_either_side(ulps, dims, offset):
    """Many pairs whose squared distance is the threshold, or its neighbour on either
    side.
    """
    rng = np.random.default_rng(dims)
    steps = np.eye(dims)[rng.integers(dims, size=300)]
    base = np.round(rng.uniform(0, 50, (300, dims))) * 4
    x = np.concatenate([base, base + steps]) + offset
    eps = 1.0
    for _ in range(abs(ulps)):
        eps = math.nextafter(eps, 2.0 * (ulps > 0))
    check(x, eps, (300,))


def test_float64_tiles_where_the_filter_cannot_serve():
    rng = np.random.default_rng(1)
    centres = rng.uniform(-1e9, 1e9, (20, 6))
    x = np.repeat(centres, 10, axis=0) + rng.uniform(0, 1e-3, (200, 6))
    assert check(x, 1e-3, (50, 120)).filter is None
