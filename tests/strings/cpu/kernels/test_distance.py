import numpy as np

from dask_simjoin.strings.cpu.kernels.distance import distances
from tests.support.edits import ALPHABETS, changed, edit_distance


def test_distances_are_those_of_the_table_of_prefixes():
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(600):
        letters = ALPHABETS[rng.integers(len(ALPHABETS))]
        one = "".join(
            letters[k] for k in rng.integers(0, len(letters), rng.integers(20 if rng.random() < 0.9 else 65))
        )
        other = one
        for _ in range(rng.integers(0, 8)):
            other = changed(rng, other, letters)
        pairs.append((one, other))
    sides = []
    for texts in zip(*pairs, strict=True):
        codes = np.array([ord(c) for text in texts for c in text], np.int32)
        sides += [codes, np.cumsum([0, *map(len, texts)])]
    limits = rng.integers(0, 10, len(pairs))
    every = np.zeros(max(side.max() for side in sides[::2]) + 1, np.int64)
    for swaps, matches in ((False, every[:0]), (True, every[:0]), (False, every)):
        found = np.empty(len(pairs), np.int64)
        distances(*sides, limits, swaps, np.empty(32, np.int64), matches, found)
        want = [
            min(edit_distance(*pair, swaps), limit + 1) for pair, limit in zip(pairs, limits, strict=True)
        ]
        assert found.tolist() == want
        assert not matches.any()
