"""Checksums against their definition, and moments of columns against NumPy."""

import math

import numpy as np
import pyarrow as pa
import pytest

from dask_simjoin.engine.cpu.kernels.reductions import checksum, column_moments
from dask_simjoin.sizes import IN_CACHE

GOLDEN = 0x9E3779B97F4A7C15
DATA = bytes((37 * n * n + n) % 251 for n in range(300))


def by_text(data):
    """The same in whole numbers of Python."""
    words = [(data[8 * n : 8 * n + 8], n) for n in range(len(data) // 8)]
    total = 0
    for word, n in [*words, (data[-8:], len(data))]:
        keyed = (int.from_bytes(word, "little") + n * GOLDEN) % 2**64
        total += keyed + (keyed % 2**32) * (keyed >> 32)
    return total % 2**64


def summed(data, start=0):
    """The checksum of bytes from one on."""
    buffer = pa.py_buffer(data)
    return checksum(buffer.address + start, buffer.size - start)


@pytest.mark.parametrize("size", [8, 9, 15, 16, 17, 64, 255, 300])
def test_it_is_that_of_the_text(size):
    assert summed(DATA[:size]) == by_text(DATA[:size])
    assert summed(b"abc" + DATA[:size], 3) == by_text(DATA[:size])


def test_each_bit_counts():
    plain = summed(DATA)
    for place in range(len(DATA)):
        for bit in range(8):
            other = bytearray(DATA)
            other[place] ^= 1 << bit
            assert summed(bytes(other)) != plain


def test_so_does_the_order_of_words():
    words = [DATA[8 * n : 8 * n + 8] for n in range(16)]
    plain = summed(b"".join(words))
    for n in range(15):
        turned = [*words[:n], words[n + 1], words[n], *words[n + 2 :]]
        assert summed(b"".join(turned)) != plain


@pytest.mark.parametrize("rows", [1, 7, 8, 33, IN_CACHE + 5, 2 * IN_CACHE])
def test_columns(rows):
    columns = np.random.default_rng(rows).normal(5, 3, (3, rows))
    bounds, mean, squares = np.empty((3, 2)), np.empty(3), np.empty(3)
    column_moments(
        columns.ctypes.data, columns.strides[0], columns.shape[1], bounds, mean, squares
    )
    assert bounds.tolist() == [
        [min(column), max(column)] for column in columns.tolist()
    ]
    for column, middle, away in zip(columns.tolist(), mean, squares, strict=True):
        want = math.fsum(column) / rows
        assert math.isclose(middle, want, rel_tol=1e-13)
        assert math.isclose(
            away,
            math.fsum((x - want) ** 2 for x in column),
            rel_tol=1e-9,
            abs_tol=1e-12,
        )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("row", [0, 5, 20])
def test_what_is_not_finite_shows_in_the_mean(value, row):
    columns = np.ones((2, 21))
    columns[1, row] = value
    bounds, mean, squares = np.empty((2, 2)), np.empty(2), np.empty(2)
    column_moments(
        columns.ctypes.data, columns.strides[0], columns.shape[1], bounds, mean, squares
    )
    assert mean[0] == 1.0 and squares[0] == 0.0 and not np.isfinite(mean[1])
