"""What tasks return, and into how many partitions."""

import numpy as np
import pytest

from tests.support.frames import split
from tests.support.points import frame_of


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(5).uniform(size=(2000, 2))


def test_no_more_partitions_than_pairs():
    x = np.random.default_rng(0).uniform(size=(200, 1))
    pairs = split(frame_of(x), (100,)).simjoin.self_join(2.0, blocksize=1)
    assert pairs.npartitions <= 200 * 201 // 2
