"""Keys are dealt to ranges that ascend, whatever their values."""

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


@pytest.mark.parametrize("part", [1, 64, 1000, 4999, 5000, 8192])
@pytest.mark.parametrize("threads", [1, 2, 7, 32])
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_runs_of_keys_ascend(part, threads, n, monkeypatch):
    monkeypatch.setattr(sorting, "MIN_PART", 100)
    monkeypatch.setattr(process, "MIN_PART", 100)
    keys = np.random.default_rng(threads).permutation(n).astype(np.uint64) << 40
    found = sorting.divided(keys.copy(), part, threads) >> 40
    for start in range(0, n, part):
        stop = min(start + part, n)
        assert sorted(found[start:stop]) == list(range(start, stop))


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("parts", [1, 2, 7, 32])
@pytest.mark.parametrize("n", [1, 5000])
def test_ranges_of_any_keys_ascend(kind, parts, n, monkeypatch):
    monkeypatch.setattr(process, "MIN_PART", 100)
    keys = KEYS[kind](np.random.default_rng(parts), n)
    found, ends = sorting.dealt(keys.copy(), 0, parts)
    for start, stop in itertools.pairwise(ends):
        found[start:stop].sort()
    assert np.array_equal(found, np.sort(keys))


@pytest.mark.parametrize("bits", [0, 20, 63])
def test_ranges_ascend_and_do_not_cut_the_leading_bits(bits, monkeypatch):
    monkeypatch.setattr(process, "MIN_PART", 100)
    keys = KEYS["uniform"](np.random.default_rng(0), 5000)
    found, ends = sorting.dealt(keys, bits, 5)
    parts = [found[a:b] for a, b in itertools.pairwise(ends)]
    assert np.array_equal(np.sort(found), np.sort(keys))
    leading = [np.unique(part >> np.uint64(bits)) for part in parts if len(part)]
    for before, after in itertools.pairwise(leading):
        assert before[-1] < after[0]
