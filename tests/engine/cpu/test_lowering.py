"""Kernels do what the functions do that they are compiled from, whatever is read, written and compared."""

import itertools
import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels import compiled

NUMBERS = (-2.5, -0.0, 0.0, 3.0, np.inf, np.nan)


@pytest.fixture(autouse=True)
def nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "folders", lambda: [tmp_path])


KINDS = pytest.mark.parametrize("kind", [compiled.kernel, compiled.allocating])
"""Of kernels: variables of those that make arrays lie in memory."""


@KINDS
@pytest.mark.parametrize("place", [np.int64, np.int32, np.uint64])
@pytest.mark.parametrize("number", [np.float64, np.float32, np.int32, np.uint64, np.bool_])
@pytest.mark.parametrize("layout", ["C", "F", "A"])
def test_elements_of_arrays(kind, place, number, layout):
    def shift(given, found, flat, at):
        total = 0.0
        for t in range(at.size):
            i = at[t]
            for j in range(given.shape[1]):
                found[i, j] = given[i, j]
                total += np.float64(given[i, -1]) + np.float64(flat[at[t]])
            row = given[i]
            flat[i] = row[0]
            found[-1, i] = found[i, 0]
        flat[-1], found[2, 3] = flat[1], total
        return total, given.size, given.strides[0], given.itemsize, given.shape

    given = np.arange(20).reshape(4, 5)
    given = np.repeat(given, 2, axis=1)[:, ::2] if layout == "A" else np.array(given, order=layout)
    given = np.asarray(given % 3 if number is np.bool_ else given, order="K").astype(number)
    at, both = np.array([2, 0, 3], place), []
    for call in (kind(shift), shift):
        found, flat = np.zeros_like(given), np.arange(5).astype(number)
        both.append((call(given, found, flat, at), found.tolist(), flat.tolist()))
    assert both[0] == both[1]


@KINDS
def test_variables_that_are_not_always_assigned_before_they_are_read(kind):
    def follow(steps):
        total, seen = 0, 0
        for t in range(steps.size):
            step = steps[t]
            if step > 0:
                last = step
                seen += 1
            elif step < -2:
                break
            else:
                a, b = seen, total
                while a < 3:
                    a, b = a + 1, a
                total += b
                if a == 3:
                    continue
            if seen > 0:
                total += last
        return total, seen

    for steps in itertools.product([-3, -1, 1, 2], repeat=3):
        given = np.array(steps)
        assert kind(follow)(given) == follow(given)


@KINDS
def test_the_smaller_and_the_larger_of_two_numbers(kind):
    def both(x, y):
        return min(x, y), max(x, y), min(max(x, 1.0), y)

    call = kind(both)
    for x, y in itertools.product(NUMBERS, repeat=2):
        assert repr(call(x, y)) == repr(both(x, y))  # which tells the zeros
    for x, y in itertools.product([np.int64(-1), np.int64(7), np.int32(-2), np.uint32(3)], repeat=2):
        assert call(x, y) == both(x, y)
    assert call(np.int32(2), np.float32(2.5)) == (2.0, 2.5, 2.0)


class Pair(NamedTuple):
    """Two of something."""

    first: np.ndarray
    second: int


@KINDS
def test_arguments_of_all_kinds(kind):
    def gather(array, both, named, flag, number, nothing):
        total = number + nothing.size + len(nothing)
        if flag:
            total += array[1] + both[0][1, 0] + both[1][0] + named.first[0] + named.second
        return total, flag, both[1][1]

    array = np.arange(3.0)
    both = np.arange(6, dtype=np.float32).reshape(3, 2), (np.uint64(2**63), 7)
    named = Pair(np.arange(4, dtype=np.int32)[3:0:-1], np.int32(-5))
    held = [array, both[0], both[1], both, named.first, named]
    before = [sys.getrefcount(one) for one in held]
    for flag, number in itertools.product([True, False], [np.float32(0.5), 3, 2.5]):
        given = array, both, named, flag, number, np.empty(0, np.bool_)
        assert kind(gather)(*given) == gather(*given)
    del given
    assert [sys.getrefcount(one) for one in held] == before


def test_what_a_kernel_raises_is_raised():
    def refuse(array):
        if array.size > 2:
            raise ValueError("too long")
        return array.size

    call = compiled.kernel(refuse)
    assert call(np.zeros(2)) == 2
    with pytest.raises(ValueError, match="too long"):
        call(np.zeros(3))


def test_the_first_kernel_that_a_process_compiles_knows_the_smaller_and_the_larger(tmp_path):
    """Where nothing is kept, what kernels say for `min` is loaded before Numba looks what there is."""
    join = (
        "import pandas as pd, dask_simjoin; "
        "print(pd.DataFrame({'x': [0.0, 0.1, 9.0], 'y': 0.0}).simjoin.count_pairs(1.0))"
    )
    told = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    found = subprocess.run([sys.executable, "-c", join], env=told, capture_output=True, text=True)
    assert found.stdout.strip() == "1", found.stderr
