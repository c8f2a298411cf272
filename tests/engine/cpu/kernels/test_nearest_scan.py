"""The k nearest of a row against a sort, and masks of 64 lanes against NumPy."""

import numpy as np
import pytest
from numba import njit

from dask_simjoin.engine.cpu.kernels.nearest_scan import (
    lanes_other,
    lanes_within,
    take_in,
)


@njit
def taken_in(best_d2, best_name, row, new_d2, new_name, m):
    take_in(best_d2, best_name, row, new_d2, new_name, m)


def order(some):
    """By distance and name; a free place, of name -1, comes last."""
    return sorted(some, key=lambda one: (one[0], one[1] % 2**64))


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("new", [1, 2, 5, 12])
def test_the_best_of_old_and_new_are_kept_in_order(k, new):
    rng = np.random.default_rng(10 * k + new)
    for known in range(k + 1):
        lot = rng.permutation(100)[: known + new].tolist()
        there = order(
            [
                *((float(rng.integers(0, 4)), name) for name in lot[:known]),
                *[(np.inf, -1)] * (k - known),
            ]
        )
        came = [
            (float(rng.choice([0.0, 1.0, 3.0, np.inf])), name) for name in lot[known:]
        ]
        best_d2, best_name = np.full((2, k), -1.0), np.full((2, k), 5, np.int64)
        best_d2[1], best_name[1] = [d2 for d2, _ in there], [name for _, name in there]
        new_d2, new_name = (
            np.array([d2 for d2, _ in came]),
            np.array([name for _, name in came], np.int64),
        )
        taken_in(best_d2, best_name, 1, new_d2, new_name, new)
        found = list(zip(best_d2[1].tolist(), best_name[1].tolist(), strict=True))
        assert found == order(there + came)[:k]
        assert (best_d2[0] == -1.0).all()  # other rows stay


@njit
def masks(numbers, limit, names, own):
    return lanes_within(numbers.ctypes.data, limit), lanes_other(names.ctypes.data, own)


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
    within, other = masks(numbers, 2.0, names, np.int32(1))
    assert (within, other) == (bits(numbers <= 2.0), bits(names != 1))
