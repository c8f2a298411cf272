"""Numbers of values have their order, and the widest column of a block is found."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels import order as kernels

VALUES = [-np.inf, -1e30, -1.0, -1e-40, 0.0, 1e-40, 1.0, 1e30, np.inf]


def test_numbers_have_the_order_of_values():
    x = np.array(VALUES)[:, None].copy()
    out = np.empty((1, len(x)), np.uint32)
    kernels.number_columns(x, 0, len(x), np.array([0]), np.zeros(1), 1.0, out)
    assert (np.diff(out[0].astype(np.int64)) > 0).all()


@pytest.mark.parametrize("start", [0, 30, 64])
def test_keys_have_the_widest_column_of_their_block(start):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(160, 2)) * [1, 5]
    x[64:128] *= [50, 1]
    numbers = np.empty((2, 160), np.uint32)
    kernels.number_columns(x, 0, 160, np.array([0, 1]), np.zeros(2), 1.0, numbers)
    order, keys = np.arange(160), np.zeros(160, np.uint64)
    kernels.pack_blocks(numbers, order, 64, start, 160, keys)
    column = np.array([1] * 64 + [0] * 64 + [1] * 32)
    want = (numbers[column, order].astype(np.uint64) << 32) | order.astype(np.uint64)
    assert keys.tolist() == [0] * start + want[start:].tolist()


def test_a_run_is_cut_as_by_sorting():
    rng = np.random.default_rng(1)
    numbers = rng.integers(0, 2**32, (1, 4096), dtype=np.uint32)
    order = rng.permutation(4096)[:1000]
    scratch = np.empty((1, 1024), np.uint32), np.empty(1024, np.int64)
    keys, some = np.empty(1024, np.uint64), np.empty(kernels.PIVOTS, np.uint64)
    found = order.copy()
    kernels.order_run(numbers, found, np.array([1024, 256, 64]), *scratch, keys, some)
    want = order[np.argsort(numbers[0, order], kind="stable")]
    for k in range(0, 1000, 64):
        assert sorted(found[k : k + 64]) == sorted(want[k : k + 64])
