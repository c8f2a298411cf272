"""Keys are sorted by their leading bits, and otherwise stay in their order."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.sorting import (
    count_parts,
    deal_keys,
    empty_counts,
    sort_keys,
)

KEYS = {
    "any": lambda rng, n: rng.integers(0, 2**64, n, dtype=np.uint64),
    "equal digits": lambda rng, n: rng.integers(0, 2**64, n, np.uint64) & 0xFF00FF00,
    "equal": lambda rng, n: np.full(n, 2**64 - 1, np.uint64),
    "ascending": lambda rng, n: np.arange(n, dtype=np.uint64) << 40,
    "descending": lambda rng, n: np.arange(n, dtype=np.uint64)[::-1] << 40,
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("low_bit", [0, 1, 20, 24, 63])
@pytest.mark.parametrize("n", [0, 1, 2, 3000])
def test_keys_are_sorted_by_their_leading_bits(kind, low_bit, n):
    keys = np.ascontiguousarray(KEYS[kind](np.random.default_rng(n), n), np.uint64)
    want = keys[np.argsort(keys >> np.uint64(low_bit), kind="stable")]
    sort_keys(keys, low_bit, empty_counts(low_bit), np.empty(n, np.uint64))
    assert keys.tolist() == want.tolist()


def test_keys_are_dealt_to_parts_in_their_order():
    keys = np.random.default_rng(0).integers(0, 100, 1000, dtype=np.uint64)
    limits = np.array([30, 60, 2**64 - 1, 2**64 - 1], np.uint64)
    part, numbers = np.empty(1000, np.uint8), np.zeros(3, np.int64)
    count_parts(keys, 0, 1000, limits, part, numbers)
    want = np.searchsorted([30, 60], keys, side="right")
    assert part.tolist() == want.tolist()
    assert numbers.tolist() == np.bincount(want).tolist()
    out = np.empty_like(keys)
    deal_keys(keys, 0, 1000, part, np.cumsum(numbers) - numbers, out)
    assert out.tolist() == keys[np.argsort(want, kind="stable")].tolist()
