"""The best edges of components are the first ones offered, by any threads."""

import itertools
import threading

import numpy as np
import pytest
from numba import njit

from dask_simjoin.engine.cpu.kernels.best_edges import ends_of, no_edges, offer
from tests.support.profiles import everything

NAMES = np.array([7, 3, 9, 1], np.int32)


@njit
def offered(best, weight, a, b, start, end):
    return offer(best, 0, weight, a, b, start, end)


@njit(nogil=True)
def offer_all(best, components, weights, starts, ends):
    names = best[2]
    for e in range(weights.size):
        a, b = names[starts[e]], names[ends[e]]
        offer(best, components[e], weights[e], a, b, starts[e], ends[e])


def test_the_least_edge_is_kept_whatever_the_order_of_offers():
    """Edges are ordered by weight, smaller name and larger name."""
    edges = [(2.0, 0, 1), (2.0, 2, 1), (1.0, 2, 0), (1.0, 0, 3), (1.0, 3, 2)]
    for some in itertools.permutations(edges):
        best = no_edges(1, NAMES)
        taken = []
        for weight, start, end in some:
            if offered(best, weight, NAMES[start], NAMES[end], start, end):
                taken.append((weight, sorted((NAMES[start], NAMES[end]))))
        # names 7 and 1 are before 1 and 9
        start, end = ends_of(best[1])
        assert (best[0][0], start[0], end[0]) == (1.0, 0, 3)
        assert taken == sorted(taken, reverse=True)
    assert not best[3].any()


def test_ends_of_edges():
    last = 2**31 - 1
    nodes = np.array([-1, (5 << 32) | last, (last << 32) | 3])
    start, end = ends_of(nodes)
    assert start.tolist() == [-1, 5, last] and end.tolist() == [-1, last, 3]
    assert start.dtype == end.dtype == np.int32


@pytest.mark.parametrize("components", [1, 3, 500])
def test_threads_keep_the_least_edges(components):
    """Few weights, so that most offers tie."""
    rng = np.random.default_rng(components)
    names = rng.permutation(1000).astype(np.int32)
    for _ in range(5 if everything() else 2):
        best, edges = no_edges(components, names), []
        for _ in range(4):
            weights = rng.integers(0, 3, 100_000).astype(float)
            ends = (rng.integers(0, 1000, 100_000, np.int32) for _ in range(2))
            edges.append((rng.integers(0, components, 100_000), weights, *ends))
        threads = [
            threading.Thread(target=offer_all, args=(best, *some)) for some in edges
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        c, weight, start, end = (
            np.concatenate(some) for some in zip(*edges, strict=True)
        )
        low, high = np.sort([names[start], names[end]], axis=0)
        order = np.lexsort((high, low, weight, c))
        first = order[np.unique(c[order], return_index=True)[1]]
        found = np.sort([names[some] for some in ends_of(best[1])], axis=0)
        assert best[0].tolist() == weight[first].tolist()
        assert found.tolist() == [low[first].tolist(), high[first].tolist()]
        assert not best[3].any()
