"""Samples of partitions put together: weights by which their pairs are those of all
points, on average.
"""

import numpy as np
import pytest

from dask_simjoin.engine.base import host_joiner
from dask_simjoin.planning import sample_pairs as module
from dask_simjoin.planning.sample import Sample
from dask_simjoin.planning.sample_pairs import effective_dims, gather_samples
from tests.support.frames import planned
from tests.support.points import frame_of


def gathered(sizes, drawn, rng):
    samples, offsets = [], np.concatenate([[0], np.cumsum(sizes)])
    for size, few in zip(sizes, drawn, strict=True):
        places = np.sort(rng.choice(size, few, replace=False))
        samples.append(Sample(size, places, places[:, None].astype(float)))
    return gather_samples(samples, offsets, 1)


def test_points_have_the_numbers_and_weights_of_their_rows():
    found = gathered([6, 0, 10], [3, 0, 5], np.random.default_rng(0))
    assert found.rows == 16 and found.partition.tolist() == [0] * 3 + [2] * 5
    assert found.weight.tolist() == [2.0] * 8
    assert (found.position[:3] < 6).all() and (found.position[3:] >= 6).all()


@pytest.mark.parametrize("drawn", [[3, 5], [2, 10], [6, 2]])
def test_pairs_stand_for_all_pairs(drawn):
    """Of each partition all pairs of its rows; of two, each pair of rows: whatever was
    drawn.
    """
    sizes = [6, 10]
    found = gathered(sizes, drawn, np.random.default_rng(1))
    left, right = np.triu_indices(len(found.x), 1)
    shares = found.stands_for(left, right)
    same = found.partition[left] == found.partition[right]
    assert np.isclose(shares[same].sum(), 6 * 5 / 2 + 10 * 9 / 2)
    assert np.isclose(shares[~same].sum(), 60)
    every = found.take(np.arange(len(found.x)))
    assert every.stands_for(left, right).tolist() == shares.tolist()


def test_no_rows():
    found = gathered([0, 0], [0, 0], np.random.default_rng(0))
    assert len(found.x) == 0 and found.rows == 0 and found.x.shape == (0, 1)


@pytest.mark.parametrize("eps", [0.02, 0.5])
def test_few_points_tell_how_many_pairs_all_have(eps, monkeypatch):
    """Samples are thinned only if they have too many pairs, which 512 of 3,000 points
    show.
    """
    x = np.random.default_rng(2).uniform(size=(3000, 2))
    points = gather_samples([Sample(3000, np.arange(3000), x)], np.array([0, 3000]), 2)
    layout, joined = planned(frame_of(x), eps)[1], []
    join = module._joined
    monkeypatch.setattr(
        module,
        "_joined",
        lambda first, *rest: joined.append(len(first.x)) or join(first, *rest),
    )
    found = module.sample_pairs(points, points, layout, host_joiner(), 100_000)
    assert joined[0] == module.FEW_PROBED
    assert (joined[1] == 3000) == (eps == 0.02)
    assert 1000 < len(found.left) < 2_000_000


def test_points_on_a_line_vary_in_one_dimension():
    rng = np.random.default_rng(2)
    line = rng.normal(size=(5000, 1)) @ np.array([[1.0, -2.0, 1e150]])
    assert effective_dims(line) == pytest.approx(1)
    cube = rng.normal(size=(5000, 3))
    assert effective_dims(cube) == pytest.approx(3, rel=0.01)
    assert effective_dims(cube * [1.0, 1.0, 1e-9]) == pytest.approx(2, rel=0.01)
    assert effective_dims(cube[:, :1]) == pytest.approx(1)
    assert effective_dims(np.ones((9, 3))) == effective_dims(cube[:0]) == 0
