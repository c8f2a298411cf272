"""Sets of nodes are numbered by their least rows, and threads join them at once."""

import numpy as np
import pytest

from dask_simjoin.engine import process
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.kernels.components import root_of, unite
from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.process import together
from tests.support.sets_of_nodes import numbers_of, some_sets


@pytest.mark.parametrize("n", [0, 1, 300])
def test_numbers(n, monkeypatch):
    monkeypatch.setattr(process, "MIN_PART", 1)
    parent, taking, order = some_sets(n, n // 2, np.random.default_rng(0))
    found = JOINER.numbers(parent)
    assert found.dtype == np.int64
    assert found.tolist() == numbers_of(parent, np.ones(n, bool), np.arange(n))
    for number in (1, 3):
        found = JOINER.numbers(parent, (taking, order), number)
        assert found.dtype == np.int64 and found.tolist() == numbers_of(
            parent, taking, order
        )


@kernel
def unite_all(parent, left, right):
    for n in range(left.size):
        unite(parent.ctypes.data, left[n], right[n])


@kernel
def roots(parent, out):
    for i in range(parent.size):
        out[i] = root_of(parent.ctypes.data, i)


def test_threads_join_the_sets_of_one_thread():
    random = np.random.default_rng(0)
    n = 200_000
    for edges in (n // 4, n // 2, n):
        left, right = random.integers(0, n, (2, edges))
        found = []
        for threads in (1, 4):
            parent, out = np.arange(n, dtype=np.int32), np.empty(n, np.int64)
            parts = [
                (left[k::threads].copy(), right[k::threads].copy())
                for k in range(threads)
            ]
            together(
                [
                    lambda part=part, parent=parent: unite_all(parent, *part)
                    for part in parts
                ]
            )
            roots(parent, out)
            found.append(out)
        assert (found[0] == found[1]).all()
        assert (found[0] <= np.arange(n)).all() and (
            found[0][left] == found[0][right]
        ).all()
