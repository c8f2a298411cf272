"""Keys sorted by threads are those sorted by NumPy, whatever their values."""

import itertools

import numpy as np
import pytest

from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import sorting

KEYS = {
    "uniform": lambda rng, n: rng.integers(0, 1 << 63, n, dtype=np.uint64),
    "equal": lambda rng, n: np.full(n, 7, np.uint64),
    "zeros": lambda rng, n: np.zeros(n, np.uint64),
    "few": lambda rng, n: rng.integers(0, 3, n, dtype=np.uint64),
    "large": lambda rng, n: np.uint64(2**64 - 1) - rng.integers(0, 9, n, np.uint64),
    "skewed": lambda rng, n: (rng.random(n) ** 40 * 2.0**63).astype(np.uint64),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("threads", [1, 2, 7, 32])
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_sorted_keys_are_those_of_numpy(kind, threads, n, monkeypatch):
    monkeypatch.setattr(sorting, "MIN_KEYS_PER_THREAD", 100)
    monkeypatch.setattr(process, "LEAST", 100)
    keys = KEYS[kind](np.random.default_rng(threads), n)
    assert np.array_equal(sorting.sort(keys.copy(), threads), np.sort(keys))


@pytest.mark.parametrize("bits", [0, 20, 63])
def test_ranges_ascend_and_do_not_cut_the_leading_bits(bits, monkeypatch):
    monkeypatch.setattr(process, "LEAST", 100)
    keys = KEYS["uniform"](np.random.default_rng(0), 5000)
    found, ends = sorting.dealt(keys, bits, 5)
    parts = [found[a:b] for a, b in itertools.pairwise(ends)]
    assert np.array_equal(np.sort(found), np.sort(keys))
    leading = [np.unique(part >> np.uint64(bits)) for part in parts if len(part)]
    for before, after in itertools.pairwise(leading):
        assert before[-1] < after[0]
