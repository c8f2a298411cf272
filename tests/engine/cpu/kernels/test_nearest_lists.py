"""The k nearest of a row against a sort."""

import numpy as np
import pytest
from numba import njit

from dask_simjoin.engine.cpu.kernels.nearest_lists import (
    LANES,
    MAX_GROUPS,
    empty_lists,
    insert_apart,
    keep,
    list_slots,
    take_in,
)
from dask_simjoin.engine.index.cpu_tiles import TILE


@njit
def taken_in(best_d2, best_names, row, new_d2, new_name, m):
    take_in(best_d2, best_names, row, new_d2, new_name, m)


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
        best_d2, best_names = np.full((2, k), -1.0), np.full((2, k), 5, np.int64)
        best_d2[1], best_names[1] = [d2 for d2, _ in there], [name for _, name in there]
        new_d2, new_name = (
            np.array([d2 for d2, _ in came]),
            np.array([name for _, name in came], np.int64),
        )
        taken_in(best_d2, best_names, 1, new_d2, new_name, new)
        found = list(zip(best_d2[1].tolist(), best_names[1].tolist(), strict=True))
        assert found == order(there + came)[:k]
        assert (best_d2[0] == -1.0).all()  # other rows stay


@njit
def inserted(mask, distances, names, list_d2, list_names, t):
    return insert_apart(
        mask,
        distances.ctypes.data,
        names.ctypes.data,
        list_d2.shape[1],
        list_d2.ctypes.data + t * list_d2.strides[0],
        list_names.ctypes.data + t * list_names.strides[0],
    )


@njit
def kept(lists, t, mask, distances, names, is_finite, new):
    keep(lists, t, mask, distances, names.ctypes.data, is_finite, new)


def rows(lists, t):
    return list(zip(*(some[t].tolist() for some in lists), strict=True))


def tile(rng, high, known):
    """Some points of a tile: their mask, and the d2 and ids of all of its points."""
    chosen = rng.random(TILE) < rng.random()
    distances = (
        rng.permutation(1000)[:TILE] / 8
        if high is None
        else rng.integers(0, high, TILE).astype(float)
    )
    names = known + rng.permutation(TILE)
    mask = sum(1 << int(bit) for bit in np.flatnonzero(chosen))
    some = zip(distances[chosen].tolist(), names[chosen].tolist(), strict=True)
    return np.uint64(mask), distances, names, list(some)


@pytest.mark.parametrize("high", [None, 4, 30])
@pytest.mark.parametrize("k", [1, 5, LANES - 1, LANES, 40, MAX_GROUPS * LANES - 1, 200])
def test_points_of_tiles_are_inserted(k, high):
    rng = np.random.default_rng(k)
    lists, new = empty_lists(k), (np.empty(TILE), np.empty(TILE, np.int64))
    lists[0][:], lists[1][:] = np.inf, -1
    expected = [(np.inf, -1)] * list_slots(k)
    for number in range(6):
        mask, distances, names, some = tile(rng, high, number * TILE)
        if number == 3:  # d2 that overflow come before free slots
            distances[:] = np.inf
            some = [(np.inf, name) for _, name in some]
        kept(lists, 3, mask, distances, names, number != 3, new)
        expected = order(expected + some)[: list_slots(k)]
        assert rows(lists, 3)[:k] == expected[:k]


def test_without_ties_points_are_inserted_at_once():
    rng = np.random.default_rng(0)
    lists = empty_lists(10)
    lists[0][:], lists[1][:] = np.inf, -1
    mask, distances, names, some = tile(rng, None, 0)
    assert inserted(mask, distances, names, *lists, 5)
    assert rows(lists, 5) == order(some + [(np.inf, -1)] * TILE)[: list_slots(10)]


@pytest.mark.parametrize("slots", [MAX_GROUPS * LANES, (MAX_GROUPS + 1) * LANES])
def test_lists_with_ties_or_too_many_slots_remain_as_they_are(slots):
    lists = empty_lists(slots - 1)
    assert lists[0].shape[1] == slots
    lists[0][:], lists[1][:] = np.inf, -1
    distances = np.arange(TILE) / 2.0
    if slots <= MAX_GROUPS * LANES:
        distances[7] = distances[3]
    names = np.arange(TILE)
    mask = np.uint64(2**64 - 1)
    assert not inserted(mask, distances, names, *lists, 0)
    assert rows(lists, 0) == [(np.inf, -1)] * slots
