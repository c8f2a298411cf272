"""Kernels of Boruvka's rounds against NumPy."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.best_edges import ends_of, no_edges
from dask_simjoin.engine.cpu.kernels.boruvka import (
    number_nodes,
    offer_edges,
    part_edges,
)

NONE = np.empty(0, np.int32)


@pytest.mark.parametrize("seed", range(10))
def test_edges_of_the_weight_of_their_cores_come_first(seed):
    rng = np.random.default_rng(seed)
    core = rng.integers(0, 4, 9).astype(float)
    start, end = (rng.integers(0, 9, 20).astype(np.int32) for _ in range(2))
    weight = np.maximum(core[start], core[end]) + rng.integers(0, 2, 20)
    before = sorted(zip(weight, start, end, strict=True))
    nodes = start.astype(np.int64) << 32 | end
    number = part_edges(core, weight, nodes)
    start, end = ends_of(nodes)
    bare = weight == np.maximum(core[start], core[end])
    assert bare[:number].all() and not bare[number:].any()
    assert sorted(zip(weight, start, end, strict=True)) == before


@pytest.mark.parametrize("renamed", [NONE, np.array([2, 0, 1], np.int32)])
def test_nodes_are_counted_under_their_new_numbers(renamed):
    old = np.array([0, 0, 1, -1, 2, 0], np.int32)
    component, sizes = old.copy(), np.zeros(3, np.int32)
    number_nodes(component, renamed, sizes)
    want = np.where(old >= 0, renamed[old] if renamed.size else old, -1)
    assert component.tolist() == want.tolist()
    assert sizes.tolist() == np.bincount(want[want >= 0], minlength=3).tolist()


def test_the_least_edge_of_each_component_is_kept_and_inner_edges_go():
    component = np.array([0, 0, 1, 2, 2], np.int32)
    names = np.arange(10, 15, dtype=np.int32)
    weight = np.array([5.0, 1.0, 2.0, 2.0])
    low, high = np.array([0, 0, 1, 0], np.int32), np.array([2, 1, 3, 4], np.int32)
    best = no_edges(3, names)
    kept = offer_edges(component, names, weight, low, high, best)
    assert kept == 3 and list(
        zip(low[:3].tolist(), high[:3].tolist(), strict=True)
    ) == [
        (0, 2),
        (1, 3),
        (0, 4),
    ]
    assert best[0].tolist() == [2.0, 5.0, 2.0]
    # of (1, 3) and (0, 4), both of weight 2, the one of the smaller name is taken
    start, end = ends_of(best[1])
    assert start.tolist() == [0, 2, 4] and end.tolist() == [4, 0, 0]
