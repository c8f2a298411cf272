"""Kernels of Boruvka's rounds against NumPy."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.best_edges import ends_of, no_edges
from dask_simjoin.engine.cpu.kernels.boruvka import (
    join_components,
    number_components,
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


def test_nodes_get_new_numbers():
    component = np.array([0, 0, 1, -1, 2, 0], np.int32)
    number_nodes(component, np.array([2, 0, 1], np.int32), 1, 5)
    assert component.tolist() == [0, 2, 0, -1, 1, 0]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("alone", [True, False])
def test_components_are_joined_along_their_best_edges(seed, alone):
    rng = np.random.default_rng(seed)
    many, rows = 12, 12 if alone else 30
    component = np.arange(rows, dtype=np.int32) % many
    best = no_edges(many, np.arange(rows, dtype=np.int32))
    ends = [(c, int(rng.integers(0, rows))) for c in range(many)]
    # some components do not search, and have no edge
    ends = [
        (c, to) for c, to in ends if to % many != c and (alone or rng.random() < 0.8)
    ]
    for c, to in ends:
        best[0][c], best[1][c] = 10 + c, (c << 32) | to
    parent = component if alone else np.arange(many, dtype=np.int32)
    numbers = [
        join_components(component, best, parent, *part) for part in ((5, many), (0, 5))
    ]
    joined = connected(many, [(c, to % many) for c, to in ends])
    kept = np.r_[5 : 5 + numbers[0], 0 : numbers[1]]
    start, end = ends_of(best[1][kept])
    assert (best[0][kept] == 10 + start).all()
    # they join as much, and none of them is needless
    assert connected(many, list(zip(start, end % many, strict=True))) == joined
    assert len(kept) == many - len(set(joined))
    before = rng.integers(1, 5, many).astype(np.int32)
    sizes = np.zeros(many, np.int32)
    left = number_components(parent, NONE if alone else before, sizes)
    assert (
        left == len(set(joined))
        and connected(many, enumerate(parent + many))[:many]
        == connected(many, enumerate(np.array(joined) + many))[:many]
    )
    weights = np.ones(many) if alone else before
    assert sizes[:left].tolist() == np.bincount(parent, weights).tolist()


def connected(nodes, edges):
    """The smallest node that is connected to each node."""
    found = list(range(3 * nodes))
    for a, b in edges:
        low, high = sorted((found[a], found[b]))
        found = [low if one == high else one for one in found]
    return found[:nodes]


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
