"""Masks of 64 lanes against NumPy."""

import numpy as np
import pytest
from numba import njit

from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    lanes_below,
    lanes_other,
    lanes_within,
    names_other,
)


@njit
def masks(numbers, limit, names, own):
    wide = names.astype(np.int64)
    return (
        lanes_within(numbers.ctypes.data, limit),
        lanes_below(numbers.ctypes.data, limit),
        lanes_other(names.ctypes.data, own),
        names_other(wide.ctypes.data, np.int64(own)),
    )


def bits(chosen):
    return sum(1 << int(k) for k in np.flatnonzero(chosen))


@pytest.mark.parametrize("seed", range(5))
def test_lanes(seed):
    rng = np.random.default_rng(seed)
    numbers, names = (
        rng.integers(0, 5, 64).astype(float),
        rng.integers(0, 3, 64).astype(np.int32),
    )
    numbers[rng.integers(0, 64, 5)] = np.nan  # of places without a point
    within, below, *others = masks(numbers, 2.0, names, np.int32(1))
    assert (within, below) == (bits(numbers <= 2.0), bits(numbers < 2.0))
    assert others == [bits(names != 1)] * 2
