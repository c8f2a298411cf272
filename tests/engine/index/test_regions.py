"""Regions tile the box, hold about equally many points each, and are not cut where no pair would be saved."""

import numpy as np
import pytest

from dask_simjoin.engine.index.regions import make_regions


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
        assert (regions.lower[leaf] <= point).all() and (point <= regions.upper[leaf]).all()
    sizes = 10 * np.bincount(leaves, minlength=len(regions))
    assert len(regions) == 8 and sizes.min() >= 900 and sizes.max() <= 1100
    volume = np.prod(regions.upper - regions.lower, axis=1)
    assert np.isclose(volume.sum(), np.prod(upper - lower))
    assert regions.depth == 3


def test_weights_and_limits_say_where_it_is_cut():
    x = np.linspace(0, 1, 100)[:, None]
    weight = np.where(x[:, 0] < 0.5, 9.0, 1.0)
    regions = make_regions(x, weight, np.zeros(1), np.ones(1), 0.0, 300.0, 2)
    assert len(regions) == 2 and abs(regions.split[0] - 0.277) < 0.02  # half of the weight
    assert len(make_regions(x, weight, np.zeros(1), np.ones(1), 10.0, 300.0, 9)) == 1  # all are near
    assert len(make_regions(x, weight, np.zeros(1), np.ones(1), 0.0, 1e9, 9)) == 1  # none has too many
    two = np.repeat([0.0, 1.0], [40, 60])[:, None]
    cut = make_regions(two, np.ones(100), np.zeros(1), np.ones(1), 0.0, 1.0, 9)
    assert len(cut) == 2 and cut.split.tolist() == [1.0]  # points at a cut lie behind it
    equal = np.zeros((50, 2))
    assert len(make_regions(equal, np.ones(50), np.zeros(2), np.zeros(2), 0.0, 1.0, 9)) == 1


def test_walls_are_where_something_lies_behind():
    x = np.random.default_rng(0).uniform(size=(200, 3)) * [100.0, 1.0, 1.0]
    regions = make_regions(x, np.ones(200), x.min(0), x.max(0), 0.0, 60.0, 4)
    cut, low, high = regions.walls
    assert cut.tolist() == [0] and np.sort(low[:, 0])[0] == -np.inf and np.sort(high[:, 0])[-1] == np.inf
    assert (
        np.sort(low[:, 0])[1:].tolist()
        == np.sort(high[:, 0])[:-1].tolist()
        == np.sort(regions.split).tolist()
    )
