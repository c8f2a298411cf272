"""The tree of boxes is the one that NumPy makes."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu import boxes
from dask_simjoin.engine.index import cpu_tiles


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 3, 17])
@pytest.mark.parametrize("number", [1, 63, 64, 65, 4096, 4097, 5000])
def test_the_tree_is_that_of_numpy(number, d, kind):
    low = np.random.default_rng(number).normal(size=(number, d)).astype(kind)
    high = low + kind(1)
    made, expected = boxes.box_tree(low, high), cpu_tiles.box_tree(low, high)
    for one, other in zip(made, expected, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
