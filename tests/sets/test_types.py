"""Sets as arrays: some of them."""

import numpy as np

from dask_simjoin.sets.encode import some_sets
from tests.sets.test_encode import read


def test_some_sets():
    sets, _ = read([[1, 2], [], [3], [1, 3]])
    some = some_sets(sets, np.array([3, 1, 0]))
    assert some["offsets"].tolist() == [0, 2, 2, 4]
