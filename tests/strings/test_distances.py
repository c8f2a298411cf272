import numpy as np
import pytest
from numba import njit

from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.strings.distances import (
    clear_matches,
    distance_within,
    lane_distances,
    set_matches,
)
from tests.support.edits import ALPHABETS, changed, edit_distance


@njit
def by_diagonals(one, one_ends, other, other_ends, limits, swaps, reached, out):
    state = np.zeros(3, np.int64)
    for k in range(len(out)):
        a, b = one_ends[k], other_ends[k]
        n, m = one_ends[k + 1] - a, other_ends[k + 1] - b
        out[k] = distance_within(
            one, a, n, other, b, m, limits[k], swaps, reached, state
        )


@njit
def by_bits(tokens, ends, n, swaps, matches, strings, rows, out):
    set_matches(tokens, 0, n, matches)
    length = ends[2] - ends[1]
    lane_distances(
        matches, n, tokens, ends, strings, len(strings), length, swaps, rows, out
    )
    clear_matches(tokens, 0, n, matches)


def codes_of(texts):
    codes = np.array([ord(c) for text in texts for c in text], np.int32)
    return codes, np.cumsum([0, *map(len, texts)])


@pytest.mark.parametrize("swaps", [False, True])
def test_distances_by_diagonals_are_those_of_the_table_of_prefixes(swaps):
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(600):
        letters = ALPHABETS[rng.integers(len(ALPHABETS))]
        longest = 20 if rng.random() < 0.9 else 65
        one = "".join(
            letters[k] for k in rng.integers(0, len(letters), rng.integers(longest))
        )
        other = one
        for _ in range(rng.integers(0, 8)):
            other = changed(rng, other, letters)
        pairs.append((one, other))
    sides = [column for texts in zip(*pairs, strict=True) for column in codes_of(texts)]
    limits = rng.integers(0, 10, len(pairs))
    found = np.empty(len(pairs), np.int64)
    by_diagonals(*sides, limits, swaps, np.empty(32, np.int64), found)
    want = [
        min(edit_distance(*pair, swaps), limit + 1)
        for pair, limit in zip(pairs, limits, strict=True)
    ]
    assert found.tolist() == want


@pytest.mark.parametrize("swaps", [False, True])
def test_distances_by_bits_are_those_of_the_table_of_prefixes(swaps):
    rng = np.random.default_rng(1)
    for case in range(60):
        letters = ALPHABETS[rng.integers(len(ALPHABETS))]
        n = 64 if case < 5 else int(rng.integers(1, 65))
        one = "".join(letters[k] for k in rng.integers(0, len(letters), n))
        others = []
        for _ in range(rng.integers(1, SWEEP_LANES + 1)):
            other = one
            for _ in range(rng.integers(0, 12)):
                other = changed(rng, other, letters)
            length = len(others[0]) if others else len(other)
            others.append(
                other[:length]
                + "".join(rng.choice(list(letters), max(length - len(other), 0)))
            )
        codes, ends = codes_of([one, *others])
        matches = np.zeros(codes.max() + 1, np.int64)
        rows, found = (
            np.empty(SWEEP_LANES * max(len(others[0]), 1), np.int64),
            np.empty(SWEEP_LANES, np.int64),
        )
        by_bits(codes, ends, n, swaps, matches, np.arange(len(others)) + 1, rows, found)
        assert found[: len(others)].tolist() == [
            edit_distance(one, other, swaps) for other in others
        ]
        assert not matches.any()


def test_a_long_comparison_stops_if_it_is_told_to():
    @njit
    def compare(one, other, limit, reached, state):
        return distance_within(
            one, 0, len(one), other, 0, len(other), limit, False, reached, state
        )

    one, other = np.zeros(200, np.int32), np.ones(200, np.int32)
    reached = np.empty(2 * 200 + 5, np.int64)
    assert compare(one, other, 200, reached, np.zeros(3, np.int64)) == 200
    assert compare(one, other, 200, reached, np.array([0, 1, 0])) == 201
