"""The float32 filter of squares loses no pair and is sure only of pairs, by its own formula in NumPy."""

import numpy as np
import pytest

from dask_simjoin.engine.filters.float32 import make_filter, open_filter, within
from tests.support.oracle import totals


def sums(x, made):
    """What the kernel adds up: start_j - h_i + <z_i, z_j>, in float32."""
    z = ((x - np.array(made.centre)) * made.scale).astype(np.float32)
    norm = (z.astype(np.float64) ** 2).sum(axis=1)
    start = (-norm * (1 - made.kappa) / 2).astype(np.float32)
    h = ((norm * (1 - made.kappa) - made.eps2) / 2).astype(np.float32)
    total = start[None, :] - h[:, None]
    for column in z.T:
        total = total + column[:, None] * column[None, :]
    return total, norm


@pytest.mark.parametrize("dims", [2, 9, 40])
@pytest.mark.parametrize("shift", [0.0, 1e3])
@pytest.mark.parametrize("rank", [0.05, 0.3])
def test_no_pair_is_lost_and_what_is_sure_is_a_pair(dims, shift, rank):
    x = np.random.default_rng(dims).normal(size=(150, dims)) + shift
    away = totals(x, x, "euclidean")
    eps2 = float(np.sort(away.ravel())[int(rank * away.size)])
    made = make_filter(x.min(0), x.max(0), x.mean(0), x.var(0), eps2)
    total, norm = sums(x, made)
    pair = away <= eps2
    slack = 4 * 2.0**-24 * norm.max()  # this rounds h and start to the nearest, the kernel towards passing
    assert (total[pair] >= -slack).all()
    sure = made.sure + 2 * made.kappa * (norm[:, None] + norm[None, :])
    assert pair[total >= sure].all()
    open_ = (total >= 0) & (total < sure)
    assert open_.mean() < 0.01 and (total < 0).any()


def test_boxes_of_a_pair_are_within_reach_and_sure_ones_hold_nothing_else():
    made = make_filter(np.zeros(3), np.ones(3), np.full(3, 0.5), np.full(3, 0.1), 0.25)
    scaled = 0.25 * made.scale**2
    assert scaled < made.box_reach(1.0) < scaled * (1 + 1e-5)
    assert scaled * (1 - 1e-5) < made.box_sure(1.0) < scaled
    assert made.box_sure(1.0, rest=0.25) == -1


def test_where_float64_serves_better():
    box = np.zeros(2), np.ones(2), np.full(2, 0.5)
    assert make_filter(*box, np.full(2, 0.1), 0.25) is not None
    assert make_filter(*box, np.full(2, 0.1), 1e-9) is None  # far less than what rounding takes away
    assert open_filter(np.full(2, -1e300), np.full(2, 1e300), np.zeros(2)) is None
    made = within(make_filter(*box, np.full(2, 0.1), 0.25), 0.01)
    assert np.isclose(made.eps2, 0.01 * made.scale**2, rtol=1e-6) and made.eps2 > 0.01 * made.scale**2
