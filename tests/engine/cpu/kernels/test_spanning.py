"""Edges are ordered by weight, smaller name and larger name."""

import itertools

import numpy as np
from numba import njit

from dask_simjoin.engine.cpu.kernels.spanning import offer


@njit
def offered(best, weight, a, b, start, end):
    return offer(best, 0, weight, a, b, start, end)


NAMES = np.array([7, 3, 9, 1], np.int32)


def test_the_least_edge_is_kept_whatever_the_order_of_offers():
    edges = [(2.0, 0, 1), (2.0, 2, 1), (1.0, 2, 0), (1.0, 0, 3), (1.0, 3, 2)]
    for some in itertools.permutations(edges):
        best = (
            np.full(1, np.inf),
            np.full(1, -1, np.int32),
            np.full(1, -1, np.int32),
            NAMES,
        )
        taken = []
        for weight, start, end in some:
            if offered(best, weight, NAMES[start], NAMES[end], start, end):
                taken.append((weight, sorted((NAMES[start], NAMES[end]))))
        # names 7 and 1 are before 1 and 9
        assert (best[0][0], best[1][0], best[2][0]) == (1.0, 0, 3)
        assert taken == sorted(taken, reverse=True)
