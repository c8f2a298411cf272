"""What trees do with whole arrays on a GPU, compiled for the host."""

import importlib

import numpy as np
import pytest

from tests.support.host_fibers import fibers_like_cupy
from tests.support.profiles import in_turns

SIZES = [0, 1, 31, 257, 1000]


@pytest.fixture(scope="module")
def arrays(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        yield importlib.import_module("dask_simjoin.engine.gpu.arrays")


@pytest.mark.parametrize("n", SIZES)
def test_flags(arrays, n):
    flags = np.random.default_rng(n).random(n) < 0.3
    for some in (flags, np.zeros(n, bool), np.ones(n, bool)):
        assert arrays.upto(some).tolist() == np.cumsum(some).tolist()
        want = np.flatnonzero(some).tolist()
        assert (
            arrays.places_of(some).tolist()
            == arrays.places_of(some, arrays.upto(some)).tolist()
            == want
        )
    assert arrays.places_of(flags).dtype == np.int32


@in_turns(1, dtype=[bool, np.int32, np.float32, np.int64, np.float64], n=list(SIZES))
def test_values(arrays, n, dtype):
    rng = np.random.default_rng(n)
    values = rng.integers(-3, 3, max(n, 1)).astype(dtype)
    for kind in (np.int32, np.int64):
        places = rng.integers(0, len(values), n).astype(kind)
        np.testing.assert_array_equal(
            arrays.take(values, places), values[places], strict=True
        )
    parts = [values, values[:0], values[: n // 2]]
    np.testing.assert_array_equal(
        arrays.joined(parts), np.concatenate(parts), strict=True
    )
    assert arrays.joined(parts[:1]) is values
    alike = arrays.copied(parts[:1])
    assert not np.shares_memory(alike, values)
    np.testing.assert_array_equal(alike, values, strict=True)


def test_one_value(arrays):
    for value, dtype in (
        (np.inf, np.float64),
        (-1, np.int32),
        (np.uint64(2**64 - 1), np.uint64),
        (-1, np.float32),
    ):
        np.testing.assert_array_equal(
            arrays.full(70, value, dtype), np.full(70, value, dtype), strict=True
        )
    out = np.zeros(9, np.int64)
    arrays.fill(out[4:], 7)
    assert out.tolist() == [0] * 4 + [7] * 5
    np.testing.assert_array_equal(
        arrays.numbers(5, 40), np.arange(5, 45, dtype=np.int32), strict=True
    )
