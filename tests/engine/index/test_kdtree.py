"""The kd order of any data cuts wide columns first, and regions tile the box evenly."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.index.kdtree import KdCuts, dims_to_cut, kd_order, make_regions
from tests.support.points import KINDS, make_points
from tests.support.profiles import examples

TILE = 64


def cuts_of(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return dims_to_cut(np.nan_to_num(x.var(axis=0)))


def boxes(x, order):
    """Lower and upper bounds (tiles, d) of the tiles of points in this order."""
    parts = np.array_split(x[order], np.arange(TILE, len(x), TILE))
    return np.array([p.min(0) for p in parts]), np.array([p.max(0) for p in parts])


def near_tiles(x, order, eps):
    """Pairs of tiles, in both directions and with themselves, whose boxes are within
    eps.
    """
    lower, upper = boxes(x, order)
    gap = np.maximum(
        np.maximum(lower[:, None] - upper[None], lower[None] - upper[:, None]), 0
    )
    return int(((gap**2).sum(axis=2) <= eps * eps).sum())


@settings(max_examples=examples(300))
@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(0, 1500),
    d=st.integers(1, 24),
    seed=st.integers(0, 2**32 - 1),
    fan_out=st.sampled_from([2, 4, 8]),
    times=st.sampled_from([1, 2.5, 3]),
)
def test_every_point_has_one_place(kind, n, d, seed, fan_out, times):
    x = make_points(kind, n, d, np.random.default_rng(seed))
    if n:
        cuts = cuts_of(x).first(n, TILE, times)
        assert sorted(kd_order(x, cuts, TILE, fan_out).tolist()) == list(range(n))


@pytest.mark.parametrize("offset", [0.0, 1e9])
@pytest.mark.parametrize("narrow", [3, 14])
def test_narrow_columns_cost_no_pruning(narrow, offset):
    """Two wide columns beside narrow ones give as few near tiles as the two alone, in
    linear number.
    """
    rng = np.random.default_rng(0)
    for n in (8_000, 32_000):
        wide = rng.uniform(0, math.sqrt(n), (n, 2)) + offset
        x = np.column_stack([rng.uniform(size=(n, narrow)), wide])
        alone = near_tiles(
            wide, kd_order(wide, cuts_of(wide).first(n, TILE, 3), TILE, 4), 2.0
        )
        found = near_tiles(x, kd_order(x, cuts_of(x).first(n, TILE, 3), TILE, 4), 2.0)
        assert found <= 1.1 * alone
        assert found <= 20 * n / TILE


def test_what_is_far_off_hides_nothing():
    """Values that stand for missing ones, 1e20, leave others their order."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 100, (20_000, 2))
    plain = near_tiles(x, kd_order(x, cuts_of(x), TILE, 4), 1.0)
    x[rng.uniform(size=len(x)) < 0.01, 0] = 1e20
    assert near_tiles(x, kd_order(x, cuts_of(x), TILE, 4), 1.0) < 2 * plain


def test_one_column_is_put_in_order_by_one_sort():
    x = np.random.default_rng(2).permutation(5000)[:, None] * 1.0
    order = kd_order(x, cuts_of(x), TILE, 2)
    assert x[order, 0].tolist() == list(range(5000))


@pytest.mark.parametrize(
    ("spread", "rows", "dims"),
    [
        ((5.0,) * 16, 64 << 9, 3),  # alike: each three times
        ((1e6, 1.0, 1.0), 64 << 9, 1),
        ((100.0, 100.0, 1.0, 1.0), 64 << 9, 2),
        ((100.0, 50.0, 25.0, 12.5), 64 << 9, 3),
        ((1.0, 0.0, 0.0), 64 << 9, 1),  # constant columns
        ((0.0, 0.0), 64 << 9, 2),
        ((math.inf, math.inf, 1.0), 64 << 9, 2),
        ((5.0,) * 16, 10, 1),
    ],
)
def test_how_many_columns_are_worth_a_cut(spread, rows, dims):
    cuts = KdCuts(tuple(range(len(spread))), spread)
    assert cuts.first(rows, TILE, 3).dims == tuple(range(dims))


def test_spreads_are_compared_in_the_unit_of_the_data():
    x = np.random.default_rng(3).uniform(size=(1000, 3)) * [1, 1000, 30] + [1e9, 0, 5]
    cuts = cuts_of(x)
    assert cuts.dims == (1, 2, 0)
    np.testing.assert_allclose(
        cuts.spread, np.array([1000, 30, 1]) / math.sqrt(12), rtol=0.1
    )


def test_a_column_that_few_values_make_wide_is_cut_as_wide_as_most_are():
    rng = np.random.default_rng(1)
    people = rng.pareto(0.7, 20_000) * 5
    x = np.column_stack([people, people / 1000, rng.uniform(-180, 180, (20_000, 2))])
    plain, told = dims_to_cut(x.var(axis=0)), dims_to_cut(x.var(axis=0), x)
    assert plain.dims[0] == 0 and set(plain.first(len(x), TILE, 2.5).dims) == {0}
    assert set(told.dims[:2]) == {2, 3} and {2, 3} <= set(
        told.first(len(x), TILE, 2.5).dims
    )
    near = [
        near_tiles(x, kd_order(x, cuts.first(len(x), TILE, 2.5), TILE, 4), 5.0)
        for cuts in (plain, told)
    ]
    assert near[1] < near[0] / 3
    few = dims_to_cut(x.var(axis=0), x[:20])  # which tell nothing
    assert few == plain


@pytest.mark.parametrize("value", [0.0, 1e300, -1e308])
def test_samples_of_any_numbers_give_cuts(value):
    x = np.full((500, 3), value)
    x[::2, 1] = -value
    with np.errstate(over="ignore", invalid="ignore"):
        variance = np.nan_to_num(x.var(axis=0))
    cuts = dims_to_cut(variance, x)
    assert sorted(cuts.dims) == [0, 1, 2]
    assert sorted(kd_order(x, cuts.first(500, TILE, 2.5), TILE, 4).tolist()) == list(
        range(500)
    )


def leaf_of(regions, point):
    """Go down the tree."""
    node = 0 if len(regions.dim) else -1
    while node >= 0:
        right = point[regions.dim[node]] >= regions.split[node]
        node = int(regions.child[node, int(right)])
    return -1 - node


@pytest.mark.parametrize("dims", [1, 2, 5])
def test_each_point_lies_in_the_box_of_its_leaf_and_leaves_are_even(dims):
    x = np.random.default_rng(dims).normal(size=(800, dims))
    lower, upper = x.min(0), x.max(0)
    regions = make_regions(x, np.full(800, 10.0), lower, upper, 1e-3, 1050.0, 64)
    leaves = [leaf_of(regions, point) for point in x]
    for leaf, point in zip(leaves, x, strict=True):
        assert (regions.lower[leaf] <= point).all() and (
            point <= regions.upper[leaf]
        ).all()
    sizes = 10 * np.bincount(leaves, minlength=len(regions))
    assert len(regions) == 8 and sizes.min() >= 900 and sizes.max() <= 1100
    volume = np.prod(regions.upper - regions.lower, axis=1)
    assert np.isclose(volume.sum(), np.prod(upper - lower))
    assert regions.depth == 3


def test_weights_and_limits_say_where_it_is_cut():
    x = np.linspace(0, 1, 100)[:, None]
    weight = np.where(x[:, 0] < 0.5, 9.0, 1.0)
    regions = make_regions(x, weight, np.zeros(1), np.ones(1), 0.0, 300.0, 2)
    # half of the weight
    assert len(regions) == 2 and abs(regions.split[0] - 0.277) < 0.02
    # all weights are equal, or nearly
    for some in (np.ones(100), np.linspace(1, 1.001, 100)):
        even = make_regions(x, some, np.zeros(1), np.ones(1), 0.0, 40.0, 3)
        assert np.allclose(even.split, [1 / 3, 2 / 3], atol=0.02)
    # all are near
    assert len(make_regions(x, weight, np.zeros(1), np.ones(1), 10.0, 300.0, 9)) == 1
    # none has too many
    assert len(make_regions(x, weight, np.zeros(1), np.ones(1), 0.0, 1e9, 9)) == 1
    two = np.repeat([0.0, 1.0], [40, 60])[:, None]
    cut = make_regions(two, np.ones(100), np.zeros(1), np.ones(1), 0.0, 1.0, 9)
    # points at a cut lie behind it
    assert len(cut) == 2 and cut.split.tolist() == [1.0]
    equal = np.zeros((50, 2))
    assert (
        len(make_regions(equal, np.ones(50), np.zeros(2), np.zeros(2), 0.0, 1.0, 9))
        == 1
    )


def test_columns_that_are_too_narrow_change_no_region():
    random = np.random.default_rng(2)
    x = random.uniform(size=(400, 2))
    both = np.column_stack(
        [random.uniform(0, 0.19, 400), x[:, 0], random.uniform(0, 0.2, 400), x[:, 1]]
    )
    for reach in (0.1, 0.11):
        few, many = (
            make_regions(y, np.ones(400), y.min(0), y.max(0), reach, 30.0, 64)
            for y in (x, both)
        )
        assert len(few) > 4 and (few.dim * 2 + 1).tolist() == many.dim.tolist()
        assert (
            few.split.tolist() == many.split.tolist()
            and few.child.tolist() == many.child.tolist()
        )
        assert (many.lower[:, 1::2] == few.lower).all() and (
            many.upper[:, 0] == both[:, 0].max()
        ).all()


def test_walls_are_where_something_lies_behind():
    x = np.random.default_rng(0).uniform(size=(200, 3)) * [100.0, 1.0, 1.0]
    regions = make_regions(x, np.ones(200), x.min(0), x.max(0), 0.0, 60.0, 4)
    cut, low, high = regions.walls
    assert (
        cut.tolist() == [0]
        and np.sort(low[:, 0])[0] == -np.inf
        and np.sort(high[:, 0])[-1] == np.inf
    )
    assert (
        np.sort(low[:, 0])[1:].tolist()
        == np.sort(high[:, 0])[:-1].tolist()
        == np.sort(regions.split).tolist()
    )
