"""Sets as arrays: some of them."""

import numpy as np
import pytest

from dask_simjoin.sets.encode import some_sets
from dask_simjoin.sets.types import kinds_of, numbered, numbered_integers, sizes_of
from tests.sets.test_encode import read


def test_some_sets():
    sets, _ = read([[1, 2], [], [3], [1, 3]])
    some = some_sets(sets, np.array([3, 1, 0]))
    assert some["offsets"].tolist() == [0, 2, 2, 4]


@pytest.mark.parametrize("step", [1, 10**12])
def test_integers_are_numbered_among_those_that_differ(step):
    flat = np.random.default_rng(0).integers(-20, 20, 90) * step  # close together, or far apart
    codes, tokens = numbered_integers(flat)
    assert codes.dtype == np.int32 and tokens[codes].tolist() == flat.tolist()
    assert sorted(tokens.tolist()) == sorted(set(flat.tolist()))
    together, parts = numbered([flat[:40], None, flat[40:]])
    assert np.concatenate([together[some] for some in parts]).tolist() == flat.tolist()
    assert sorted(together.tolist()) == sorted(set(flat.tolist())) and len(parts[1]) == 0


def test_sizes_of_a_block_are_listed_once():
    sizes = sizes_of({"offsets": np.array([0, 1, 2, 4, 6, 9])})
    assert sizes.tolist() == [1, 1, 2, 2, 3] and kinds_of(sizes).tolist() == [1, 2, 3]
