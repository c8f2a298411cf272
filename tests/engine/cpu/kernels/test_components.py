"""Sets of nodes are numbered by their least rows."""

import numpy as np
import pytest

from dask_simjoin.engine import threads
from dask_simjoin.engine.cpu.joiner import JOINER
from tests.support.sets_of_nodes import numbers_of, some_sets


@pytest.mark.parametrize("n", [0, 1, 300])
def test_numbers(n, monkeypatch):
    monkeypatch.setattr(threads, "LEAST", 1)
    parent, taking, order = some_sets(n, n // 2, np.random.default_rng(0))
    found = JOINER.numbers(parent)
    assert found.dtype == np.int64
    assert found.tolist() == numbers_of(parent, np.ones(n, bool), np.arange(n))
    for number in (1, 3):
        found = JOINER.numbers(parent, (taking, order), number)
        assert found.dtype == np.int64 and found.tolist() == numbers_of(parent, taking, order)
