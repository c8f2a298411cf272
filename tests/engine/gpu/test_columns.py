"""Columns become one array, by a kernel that is compiled for the host."""

import importlib

import numpy as np
import pytest

from tests.support import host_gpu

DTYPES = [
    *(f"{letter}{size}" for letter in "iu" for size in (1, 2, 4, 8)),
    "f4",
    "f8",
    "?",
]


@pytest.fixture(scope="module")
def columns(kernel_folder):
    with host_gpu.like_cupy(kernel_folder):
        yield importlib.import_module("dask_simjoin.engine.gpu.columns")


def values_of(dtype, rows, rng):
    """Values of a dtype, among them the largest, subnormal and other odd ones."""
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, rows).astype(bool)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return rng.integers(ends.min, ends.max, rows, dtype, endpoint=True)
    bits = rng.integers(0, 2 ** (8 * dtype.itemsize - 1), rows, dtype=np.uint64)
    found = bits.astype(f"u{dtype.itemsize}").view(dtype).copy()
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).max]
    odd += [np.finfo(dtype).smallest_subnormal, -np.finfo(dtype).tiny / 2]
    found[: len(odd)] = odd[:rows]
    return found


def described(module, values, there, offset):
    """Put values behind some others, with a mask unless all values are there."""
    data = np.concatenate([np.zeros(offset, values.dtype), values])
    mask = None
    if there is not None:
        bits = np.concatenate([np.zeros(offset, bool), there])
        mask = np.packbits(bits, bitorder="little")
        mask = np.concatenate([mask, np.zeros(8, np.uint8)])
    addresses = data.ctypes.data, 0 if mask is None else mask.ctypes.data
    return module.DeviceColumn(*addresses, offset, values.dtype), (data, mask)


@pytest.mark.parametrize("rows", [1, 100, 4096, 4097])
def test_values_are_those_of_numpy(columns, rows):
    rng = np.random.default_rng(rows)
    wanted, given, alive = [], [], []
    for k, dtype in enumerate(DTYPES * 3):
        values = values_of(dtype, rows, rng)
        there = rng.random(rows) < 0.7 if k >= len(DTYPES) else None
        column, memory = described(columns, values, there, (0, 0, 37)[k // len(DTYPES)])
        given.append(column)
        alive.append(memory)
        with np.errstate(invalid="ignore"):  # of signaling NaNs
            one = values.astype(np.float64)
        wanted.append(one if there is None else np.where(there, one, np.nan))
    found = columns.matrix(given, rows)
    assert found.dtype == np.float64 and found.flags.f_contiguous
    assert found.shape == (rows, len(given))
    wanted = np.stack(wanted, axis=1)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    here = ~np.isnan(wanted)
    bits = (np.array(some)[here].view(np.int64) for some in (found, wanted))
    np.testing.assert_array_equal(*bits)


def test_no_rows(columns):
    column, _ = described(columns, np.zeros(0), None, 0)
    assert columns.matrix([column] * 3, 0).shape == (0, 3)
