"""Lists in Z-order: keys and intervals."""

import itertools
import math

import numpy as np
import pytest

from dask_simjoin.papers.cpu.zorder import intervals, keys
from dask_simjoin.papers.list_index import lists_of
from dask_simjoin.papers.lists import ZOrder
from tests.engine.cpu.test_joiner import check
from tests.papers.cpu.test_zorder import laid_out
from tests.support.oracle import brute_force


def test_keys_are_bits_interleaved():
    x = np.array([[0.0, 0.0], [1.0, 1.0], [0.25, 0.5]])
    layout = laid_out(x, 0.1, ZOrder(lists=1))
    assert layout.bits == 20 and layout.columns == (0, 1)
    found = keys(x, layout, 0.0)[:, 0]
    # cells of 20 bits, one of which is for the shift: .25 is bit 17 of the first, .5
    # bit 18 of the second
    assert found[0] == 0 and found[2] == (1 << (2 * 17 + 1)) + (1 << (2 * 18))
    assert found[1] == 0b11 << 38


SIDES_OF = ((-1, "left"), (1, "right"))


MEANS = [
    (5, 0.05, 0.0025),
    (5, 0.1, 0.028),
    (3, 0.1, 0.073),
    (17, 0.1, 0.0084),
    (9, 0.2, 0.17),
    (1, 0.1, 0.5),
    (17, 0.3, 0.36),
    (9, 0.4, 0.58),
    (17, 0.05, 7.1e-5),
]
"""Lists, eps, and the mean shortest interval of 65,536 uniform rows of 16 columns, as a
share of them.
"""


@pytest.mark.slow
@pytest.mark.parametrize(("lists", "eps", "mean"), MEANS)
def test_intervals_are_as_long_as_they_must_be(lists, eps, mean):
    x = np.random.default_rng(0).uniform(size=(65_536, 16))
    layout = laid_out(x, eps, ZOrder(lists=lists, walk="full"))
    walks = intervals(x[::16], x, layout, False)
    assert abs(walks.lengths.mean() / len(x) / mean - 1) < (
        0.1 if mean > 1e-4 else 0.15
    )


@pytest.mark.slow
@pytest.mark.parametrize(("lists", "eps"), [(3, 0.05), (9, 0.05), (9, 0.1), (17, 0.1)])
def test_intervals_are_as_long_as_a_few_lines_of_numpy_say(lists, eps):
    """Of each row: a few rows of very long intervals make most of the mean, so that
    2,048 tell another.
    """
    x = np.random.default_rng(0).uniform(size=(65_536, 16))
    shortest = np.full(len(x), len(x))

    def key(y):
        cells, found = (
            np.clip(np.floor(y * 8), 0, 15).astype(np.uint64),
            np.zeros(len(y), np.uint64),
        )
        for bit, k in itertools.product((3, 2, 1, 0), range(16)):
            found = found << np.uint64(1) | cells[:, k] >> np.uint64(bit) & np.uint64(1)
        return found

    for shift in np.arange(lists) / lists:
        own = np.sort(key(x + shift))
        begin, end = (
            np.searchsorted(own, key(x + shift + s * eps), side) for s, side in SIDES_OF
        )
        shortest = np.minimum(shortest, end - begin)
    walks = intervals(x, x, laid_out(x, eps, ZOrder(lists=lists, walk="full")), False)
    assert abs(walks.lengths.mean() / shortest.mean() - 1) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("eps", "mean"), [(0.1, 0.097), (0.4, 0.34)])
def test_half_intervals_of_one_list_are_as_long_as_they_must_be(eps, mean):
    x = np.random.default_rng(0).uniform(size=(65_536, 16))
    walks = intervals(x, x, laid_out(x, eps, ZOrder(lists=17, walk="half")), True)
    assert walks.half and abs(walks.lengths.mean() / len(x) / mean - 1) < 0.1


def test_the_papers_half_intervals_lose_pairs_and_repeat_others():
    """Section V-E takes the shortest of the half intervals of each row by itself."""
    x = np.random.default_rng(0).uniform(size=(2000, 4))
    eps = 0.1
    expected = brute_force(x, eps)
    layout = laid_out(x, eps, ZOrder(lists="d+1", walk="half"))
    found = []
    best = np.full(len(x), len(x) + 1)
    taken = [()] * len(x)
    for shift in layout.shifts:
        own = keys(x, layout, shift)[:, 0]
        order = np.argsort(own, kind="stable")
        place = np.empty(len(x), np.int64)
        place[order] = np.arange(len(x))
        stops = np.searchsorted(
            own[order], keys(x, layout, shift, layout.corner)[:, 0], side="right"
        )
        for i in np.flatnonzero(stops - place < best):
            best[i], taken[i] = (
                stops[i] - place[i],
                order[place[i] + 1 : stops[i]].tolist(),
            )
    for i, others in enumerate(taken):
        found += [
            (min(i, j), max(i, j))
            for j in others
            if ((x[i] - x[j]) ** 2).sum() <= eps**2
        ]
    assert set(found) < expected and len(found) > len(set(found))
    walks = intervals(x, x, layout, True)
    assert walks.half and len(walks.orders) == 1 and set(walks.lists) == {0}
    check(x[:600], eps, (), method=ZOrder(lists="d+1", walk="half"))


@pytest.mark.parametrize("dims", [1, 2, 3, 16, 64])
def test_numbers_of_lists_are_odd(dims):
    assert lists_of(ZOrder(lists="d+1"), dims) in (dims + 1, dims + 2)
    assert lists_of(ZOrder(lists="log"), dims) in (
        math.floor(math.log2(dims)) + k for k in (1, 2)
    )
    assert all(lists_of(ZOrder(lists=name), dims) % 2 for name in ("d+1", "log"))
    assert lists_of(ZOrder(lists=4), dims) == 4
