"""Boxes, means and variances of points, whatever they are and however they lie in
memory.
"""

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT, TILE
from dask_simjoin.engine.index.kdtree import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import box_gap
from dask_simjoin.planning import sample
from dask_simjoin.planning import sample as module
from dask_simjoin.planning.sample import (
    FLOOR,
    NUMBERS,
    bounds,
    box,
    merge_moments,
    moments,
    near_share,
    sample_size,
)
from dask_simjoin.sizes import BATCH, SAMPLED
from tests.support.frames import split
from tests.support.oracle import as_set, brute_force
from tests.support.points import frame_of
from tests.support.profiles import every_nth, examples, in_turns

VALUES = [0.0, -0.0, 1.0, -3.5, 1e-310, 1e6 + 1e-3, -1e17, 1e17]


def exact(x):
    """Means and mean squared deviations with 80 bits."""
    x = np.asarray(x, np.longdouble)
    mean = x.mean(axis=0)
    return mean, ((x - mean) ** 2).sum(axis=0)


@settings(max_examples=examples(150))
@given(
    st.integers(1, 60), st.integers(1, 5), st.integers(0, 2**32), st.sampled_from("CF")
)
def test_moments(n, d, seed, order):
    random = np.random.default_rng(seed)
    x = np.array(random.choice(VALUES, (n, d)), order=order)
    found = moments(x)
    np.testing.assert_array_equal(found.lower, x.min(axis=0))
    np.testing.assert_array_equal(found.upper, x.max(axis=0))
    mean, squares = exact(x)
    size = np.abs(x).max(axis=0)
    assert (np.abs(found.mean - mean) <= 1e-14 * size + 1e-300).all()
    assert (np.abs(found.squares - squares) <= 1e-12 * n * size**2 + 1e-300).all()
    assert box(x) == box(x[::-1]) == box(np.asfortranarray(x)) == box(x + 0.0)


@pytest.mark.parametrize("rows", [1, 2047, 2048, 2049, 2051, 4097, 30_001])
def test_blocks_of_rows_give_what_all_give(rows):
    x = np.asfortranarray(np.random.default_rng(rows).normal(1e6, 1, (rows, 3)))
    found, (mean, squares) = moments(x), exact(x)
    np.testing.assert_allclose(found.mean, mean.astype(float), rtol=1e-15)
    np.testing.assert_allclose(
        found.squares, squares.astype(float), rtol=1e-9, atol=1e-12
    )
    np.testing.assert_array_equal(
        [found.lower, found.upper], [x.min(axis=0), x.max(axis=0)]
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 3, 9])
def test_what_is_not_finite_shows_in_the_box(value, row):
    x = np.asfortranarray(np.random.default_rng(0).uniform(size=(10, 3)))
    x[row, 1] = value
    lower, upper = bounds(x)
    np.testing.assert_array_equal([lower, upper], [x.min(axis=0), x.max(axis=0)])
    assert not np.isfinite([moments(x).lower[1], moments(x).upper[1]]).all()
    assert np.isfinite([moments(x).lower[[0, 2]], moments(x).upper[[0, 2]]]).all()


def test_sums_may_overflow():
    x = np.full((5, 2), 1.7e308)
    x[0, 1] = -1.7e308
    for order in "CF":
        found = moments(np.array(x, order=order))
        np.testing.assert_allclose(found.mean, [1.7e308, 1.02e308])
        np.testing.assert_array_equal(found.upper, [1.7e308] * 2)
    assert moments(np.empty((0, 2))).rows == 0


def test_the_kernel_is_what_tells_them(monkeypatch):
    """Array expressions are for what it does not tell."""
    monkeypatch.setattr(module, "_bounds", None)
    assert moments(np.asfortranarray([[0.0, 3.0], [1.0, 5.0]])).mean.tolist() == [
        0.5,
        4.0,
    ]
    with pytest.raises(TypeError):
        moments(np.full((3, 2), np.nan, order="F"))


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 9), min_size=1, max_size=13), st.integers(0, 2**32))
def test_parts_give_what_all_give(sizes, seed):
    """However many parts there are, and however many of them are empty."""
    x = np.random.default_rng(seed).normal(1e3, 1, (sum(sizes), 2))
    parts = [moments(part) for part in np.split(x, np.cumsum(sizes)[:-1])]
    found, all_ = merge_moments(parts), moments(x)
    assert found.rows == len(x)
    np.testing.assert_array_equal([found.lower, found.upper], [all_.lower, all_.upper])
    mean, squares = exact(x) if len(x) else (np.zeros(2), np.zeros(2))
    np.testing.assert_allclose(found.mean, mean.astype(float), rtol=1e-14)
    np.testing.assert_allclose(
        found.squares, squares.astype(float), rtol=1e-9, atol=1e-6
    )


@pytest.mark.parametrize(
    ("rows", "partitions", "all_of_them"),
    [
        (100, 3, 300),
        (1_000_000, 1, FLOOR),
        (10_000_000, 1, 100_000),
        (10_000_000, 16, BATCH),
    ],
)
def test_samples_of_tables(rows, partitions, all_of_them):
    assert sample_size(rows, 2, partitions) * partitions == all_of_them


@pytest.mark.parametrize("dims", [2, 64, 2048])
@pytest.mark.parametrize("partitions", [1, 16, 5000])
def test_samples_have_an_end(partitions, dims):
    """Planning takes no longer however many rows there are, but each partition is
    looked at.
    """
    each = sample_size(10**9, dims, partitions)
    most = max(SAMPLED, NUMBERS // dims)
    assert each == 2 or 2 < each <= most / partitions
    assert each * partitions <= BATCH + 32 * partitions


POINTS = {
    "uniform": lambda rng, n, d: rng.uniform(size=(n, d)),
    "normal": lambda rng, n, d: rng.normal(size=(n, d)),
    "exponential": lambda rng, n, d: rng.exponential(size=(n, d)),
    "clusters": lambda rng, n, d: (
        rng.uniform(0, 50, (20, d))[rng.integers(0, 20, n)] + rng.normal(size=(n, d))
    ),
}


def counted(x, threshold, norm):
    order = kd_order(
        x, dims_to_cut(x.var(axis=0)).first(len(x), TILE, CUTS), TILE, FAN_OUT
    )
    tiles = x[order[: len(x) // TILE * TILE]].reshape(-1, TILE, x.shape[1])
    low, high = tiles.min(axis=1), tiles.max(axis=1)
    some = np.linspace(0, len(low) - 1, 100).astype(int)
    return np.mean(
        [box_gap(norm, low[t], high[t], low, high) <= threshold for t in some]
    )


@in_turns(
    1, norm=[1, 2, np.inf], dims=every_nth(4, [2, 3, 5, 6, 8, 16]), kind=list(POINTS)
)
def test_a_sample_tells_what_share_of_tiles_is_near(kind, dims, norm):
    """Within a factor of four, of shares from 1 down to one in 1,000."""
    x = POINTS[kind](np.random.default_rng(dims), 150_000, dims)
    eps = 0.02 * float(x.std()) * dims
    threshold = {1: dims * eps, 2: eps * eps, np.inf: eps}[norm]
    sample = x[::10]
    for rows, points in ((len(x), x), (len(x) // 4, x[::4])):
        real = counted(points, threshold, norm)
        for few in (False, True):
            told = near_share(sample, len(x), threshold, norm, few)[rows != len(x)]
            assert real / 4 < told < 4 * real, (rows, few, told, real)


def test_few_points_and_extremes():
    assert near_share(np.zeros((0, 2)), 0, 1.0, 2) == (1.0, 1.0)
    assert near_share(np.zeros((100, 2)), 1_000_000, 1.0, 2) == (1.0, 1.0)
    assert near_share(np.zeros((9000, 3)), 10**9, 0.0, 2) == (1.0, 1.0)
    huge = np.random.default_rng(0).uniform(-1, 1, (5000, 2)) * 1.7e308
    assert all(0 <= share <= 1 for share in near_share(huge, 10**6, 1.0, 2))
    far = np.concatenate([np.zeros((3000, 2)), np.full((3000, 2), 1e9)])
    whole, quarter = near_share(far, 6000, 1.0, 2)
    assert whole == pytest.approx(0.5, abs=0.05) and quarter >= whole


@pytest.mark.parametrize(
    ("rows", "halvings", "drawn"),
    [
        (8192, [0], module.FEW_DRAWN),
        (100_000, [4, 2], module.FEW_DRAWN),
        (10**7, [11, 9], module.DRAWN),
    ],
)
def test_few_pairs_are_drawn_for_few_rows(rows, halvings, drawn, monkeypatch):
    """The share of a quarter of the points is computed only if it is not extrapolated."""
    calls, share = [], module._share

    def watched(*args):
        calls.append(args)
        return share(*args)

    monkeypatch.setattr(module, "_share", watched)
    x = np.random.default_rng(0).uniform(size=(8192, 2))
    whole, quarter = near_share(x, rows, 1e-5, 2)
    assert [args[2] for args in calls] == halvings and {args[-1] for args in calls} == {
        drawn
    }
    assert 0 <= whole <= quarter <= 1
    calls.clear()
    near_share(x, rows, 1e-5, 2, few=True)
    ((tiles, *_),) = calls
    assert len(tiles) * TILE <= SAMPLED


@pytest.mark.parametrize("dims", [16, 384])
def test_points_of_many_numbers_are_fewer(dims, monkeypatch):
    taken = []
    order = module.kd_order

    def watched(x, *rest):
        taken.append(len(x))
        return order(x, *rest)

    monkeypatch.setattr(module, "kd_order", watched)
    near_share(np.random.default_rng(0).normal(size=(9000, dims)), 10**6, 1.0, 2)
    assert taken[0] * dims <= module.NUMBERS


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).uniform(size=(2000, 2))


def test_partitions_that_are_alike_are_sampled_apart():
    """Twenty snapshots of the same points: pairs across them are no rarer than others."""
    points = np.random.default_rng(0).uniform(size=(2000, 2))
    frame = frame_of(np.tile(points, (20, 1)))
    ddf = split(frame, range(2000, 40_000, 2000))
    found = ddf.simjoin.self_join(0.002).expr.plan.result.estimate
    assert (
        found.total_low <= ddf.simjoin.count_pairs(0.002).compute() <= found.total_high
    )
    assert found.sampled < len(frame)


def test_a_sample_is_never_empty(x, monkeypatch):
    """However many columns and partitions there are."""
    monkeypatch.setattr(sample, "NUMBERS", 1)
    monkeypatch.setattr(sample, "SAMPLED", 1)
    ddf = split(frame_of(x), range(200, 2000, 200))
    for kind in ("entity", "spatial"):
        with dask.config.set({"simjoin.output-size": "1 MiB"}):
            pairs = ddf.simjoin.self_join(0.05, partitioning=kind, blocksize=300 * 24)
            assert pairs.expr.plan.result.estimate.total_high > 0
            assert pairs.expr.plan.chunks.rows.sum() >= 2000
            assert as_set(pairs.compute()) == brute_force(x, 0.05)
