"""The kernels of OPTICS that take the place of NumPy's functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.kernels.edge_order import MAX_INSERTION
from dask_simjoin.engine.cpu.kernels.optics import kth_smallest, sort_ties

VALUE = st.one_of(st.integers(0, 3).map(float), st.floats(0, allow_nan=False))


@given(st.lists(st.lists(VALUE, max_size=40), max_size=6), st.integers(1, 12))
def test_the_kth_smallest_of_each_row(rows, k):
    ends = np.cumsum([0, *map(len, rows)])
    values = np.array([value for row in rows for value in row], float)
    out = np.full(len(rows), np.inf)
    kth_smallest(ends, values.copy(), k, out, np.empty(len(values)))
    assert out.tolist() == [
        sorted(row)[k - 1] if len(row) >= k else np.inf for row in rows
    ]


def test_nothing_is_moved():
    values = np.array([3.0, 1.0, 2.0, 0.0])
    kth_smallest(np.array([0, 4]), values, 2, np.empty(1), np.empty(4))
    assert values.tolist() == [3.0, 1.0, 2.0, 0.0]


@pytest.mark.parametrize("run", [1, 3, MAX_INSERTION, MAX_INSERTION + 1, 200])
def test_equal_weights_come_in_the_order_of_the_second_key(run):
    rng = np.random.default_rng(run)
    weight = np.repeat(rng.permutation(40), rng.integers(1, run + 1, 40)).astype(float)
    weight[rng.integers(0, len(weight), 3)] = np.inf
    key = rng.permutation(len(weight)).astype(np.int64) << 32
    order = np.argsort(weight)
    sort_ties(order, weight, key)
    assert order.tolist() == np.lexsort((key, weight)).tolist()
