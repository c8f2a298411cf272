"""Neighbors in both directions, by the definition."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.mutual import drop_one_way


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_neighbors_that_do_not_have_the_row_are_dropped(k):
    rng = np.random.default_rng(k)
    rows = 9
    numbers = np.array([rng.permutation(rows)[:k] for _ in range(rows)], np.int64)
    numbers[2, -1] = -1  # a row with fewer neighbors
    back = np.sort(numbers, axis=1)
    want = [[n if n >= 0 and row in numbers[n] else -1 for n in own] for row, own in enumerate(numbers)]
    drop_one_way(numbers, back)
    assert numbers.tolist() == want
