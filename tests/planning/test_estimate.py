"""Estimates from samples: what counting alone tells of pairs is what the pairs tell."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dask_simjoin.planning.estimate import (
    TOGETHER,
    _freedom,
    _interval,
    _quantile,
    counted,
)
from dask_simjoin.planning.outputs import COUNTS, LISTS, PAIRS
from dask_simjoin.planning.plan import make_plan
from tests.planning.test_plan import tables_for
from tests.support.profiles import in_turns


@in_turns(
    3, rows=[0, 1, 2, 200, 5000, 30_000], eps=[0.0, 1e-3, 0.02, 0.2, 3.0], dims=[2, 6]
)
def test_degrees_tell_what_pairs_tell(rows, eps, dims):
    if rows > 5000 and eps > 1:
        eps = 0.3
    tables = tables_for(np.random.default_rng(rows).uniform(size=(rows, dims)), eps)
    counted, found, listed = (
        make_plan(tables, output).result.estimate for output in (COUNTS, PAIRS, LISTS)
    )
    for name in ("total", "total_low", "total_high"):
        assert math.isclose(
            getattr(counted, name), getattr(found, name), rel_tol=1e-9
        ), name
    for name in ("degrees", "points"):
        told = [getattr(one, name).tolist() for one in (counted, found, listed)]
        assert told[0] == told[1] == told[2]
    assert counted.total_low <= counted.total * (1 + 1e-12)
    assert counted.total <= counted.total_high * (1 + 1e-12)


def test_shares_of_the_most_joined_points():
    # few enough to be its own sample
    x = np.random.default_rng(3).normal(size=(250, 2))
    tables = tables_for(x, 0.3, most=250)
    found = make_plan(tables).result.estimate
    near = (((x[:, None] - x) ** 2).sum(axis=2) <= 0.3**2).sum(axis=1) - 1
    near = -np.sort(-near)
    for part in (0.0, 1 / 250, 0.01, 0.3, 1.0):
        assert math.isclose(
            found.share(part), near[: math.ceil(part * 250)].sum() / near.sum()
        )
    assert len(found.degrees) < 100
    assert math.isclose(found.dispersion, (near.var() - near.mean()) / near.mean() ** 2)


def test_dispersion_is_large_in_clustered_data():
    random = np.random.default_rng(3)
    even, clump = random.random((20_000, 2)), 0.5 + random.normal(0, 0.001, (2000, 2))
    for x, least, most in ((even, -0.3, 0.3), (np.concatenate([even, clump]), 5, 20)):
        tables = tables_for(x, 0.01, most=2000)
        assert least < make_plan(tables).result.estimate.dispersion < most
    tables = tables_for(even, 1e-9, most=2000)
    assert make_plan(tables).result.estimate.dispersion == 0


def test_quantiles_are_wider_with_few_degrees_of_freedom():
    """Of Student's t, from tables; with two degrees the series is a little small."""
    for freedom, expected, off in (
        (2, 4.888, 0.25),
        (5, 2.769, 0.01),
        (30, 2.154, 1e-3),
        (math.inf, 2.06, 1e-3),
    ):
        assert _quantile(freedom) == pytest.approx(expected, abs=off)
    assert _quantile(0.1) == _quantile(2)


def test_degrees_of_freedom_are_few_if_few_points_have_most_pairs():
    even, one = np.tile([0, 1, 2], 1000), np.zeros(3000)
    one[0] = 50
    assert _freedom(even) > 3000 > 3 > _freedom(one)
    assert _freedom(np.ones(10)) == math.inf


@pytest.mark.parametrize("mean", [0.5, 2.0, 10.0, 100.0])
def test_intervals_hold_poisson_numbers(mean):
    seen = np.random.default_rng(0).poisson(mean, 4000).astype(float)
    low, high = _interval(seen, seen, np.zeros(4000), 2.06, 1.0)
    assert ((low <= mean) & (mean <= high)).mean() >= 0.945
    assert (low <= seen).all() and (seen <= high).all()


def test_counted_numbers_have_no_interval():
    x = np.random.default_rng(3).normal(size=(5000, 2))
    tables = tables_for(x, 0.1)
    found = counted(1234, make_plan(tables).result.estimate)
    assert found.counted and found.total == found.total_low == found.total_high == 1234
    assert found.pairs.tolist() == found.low.tolist() == found.high.tolist() == [1234.0]


def test_bounds_of_many_block_pairs_are_limited_together():
    """A sample shows few pairs of each of many block pairs. The sum of their bounds was
    hundreds of times the bound of all pairs, and so was the number of partitions.
    """
    rows = np.random.default_rng(1).uniform(size=(20_000, 2))
    tables = tables_for(rows, 0.002, blocksize=4_000, partitioning="spatial")
    found = make_plan(tables).result.estimate
    assert found.high.sum() > 2 * TOGETHER * found.total_high
    planned = found.high_together
    assert planned.sum() <= TOGETHER * found.total_high * (1 + 1e-9)
    assert (planned <= found.high).all()
    few = replace(found, high=found.pairs)
    assert (few.high_together == few.high).all()
