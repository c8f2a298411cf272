"""Masks and totals of vectors, by Python's integers and NumPy."""

import numpy as np
import pytest
from numba import njit

from dask_simjoin.engine.cpu.kernels.tile_simd import (
    count_bits,
    lowest_bit,
    squares,
    total_of,
)


@njit
def masks(mask):
    return lowest_bit(mask), count_bits(mask)


@njit
def sums(a, b):
    return total_of(a.ctypes.data, b.ctypes.data, a.size), squares(
        a.ctypes.data, b.ctypes.data, a.size
    )


@pytest.mark.parametrize("mask", [1, 2**63, 2**64 - 1, 0b1011000, 2**40 + 2**17])
def test_bits(mask):
    assert masks(np.uint64(mask)) == ((mask & -mask).bit_length() - 1, mask.bit_count())


@pytest.mark.parametrize("dims", [1, 7, 8, 9, 31])
def test_squares_of_differences(dims):
    a, b = np.random.default_rng(dims).normal(size=(2, dims))
    want = 0.0
    for t in (a - b).tolist():
        want += t * t
    one_by_one, fast = sums(a, b)
    assert one_by_one == want
    assert np.isclose(fast, want, rtol=1e-14)
