"""Edges are sorted by weight and ids, whatever bits their weights share."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.edge_order import (
    MAX_INSERTION,
    lay_out_edges,
    pack_edges,
)

EDGES, NODES = 200, 50


def edges_of(rng, weights):
    """Weights, nodes and row ids of some edges."""
    ends = rng.integers(0, NODES, (2, EDGES))
    names = rng.permutation(NODES).astype(np.int32)
    return rng.choice(weights, EDGES), ends, names


@pytest.mark.parametrize("bits", [8, 40, 56])
@pytest.mark.parametrize("weights", ["different", "near", "few", "zero"])
def test_edges_are_sorted_by_weight_and_ids(bits, weights):
    rng = np.random.default_rng(bits)
    weights = {
        "different": rng.exponential(size=EDGES),
        "near": 1 + rng.integers(0, 40, EDGES) * 2.0**-52,
        "few": np.arange(20.0),
        "zero": np.array([0.0, 5e-324, np.inf]),
    }[weights]
    own, ends, names = edges_of(rng, weights)
    want = sorted(
        (weight, *sorted(names[pair].tolist()))
        for weight, pair in zip(own.tolist(), ends.T, strict=True)
    )
    edges, packed = np.empty((EDGES, 2), np.int64), np.empty(EDGES, np.uint64)
    weight = edges.view(np.float64)
    nodes = (ends[0] << 32) | ends[1]
    core = np.full(NODES, np.nan)
    for start, stop in ((0, 70), (70, EDGES)):
        pack_edges(
            *(own, nodes, core, names, start, stop, 0),
            *(bits, weight, edges, packed),
        )
    packed.sort()
    assert np.array_equal(
        np.sort(packed & np.uint64(2**bits - 1)), np.arange(EDGES, dtype=np.uint64)
    )
    found = np.empty(EDGES), np.empty(EDGES, np.int32), np.empty(EDGES, np.int32)
    many = np.empty((EDGES // MAX_INSERTION, 2), np.int64)
    runs = lay_out_edges(packed, 0, EDGES, bits, weight, edges, *found, many)
    leading = packed >> np.uint64(bits)
    _, first, counts = np.unique(leading, return_index=True, return_counts=True)
    long = counts > MAX_INSERTION
    assert many[:runs, 0].tolist() == first[long].tolist()
    assert many[:runs, 1].tolist() == (first + counts)[long].tolist()
    rows = list(zip(*(column.tolist() for column in found), strict=True))
    for start, stop in many[:runs].tolist():
        rows[start:stop] = sorted(rows[start:stop])
    assert rows == want


def test_weights_may_be_core_distances():
    """In the second batch."""
    names = np.array([7, 3, 5], np.int32)
    core = np.array([1.0, 4.0, 2.0])
    edges, packed = np.zeros((3, 2), np.int64), np.zeros(3, np.uint64)
    weight = edges.view(np.float64)
    nodes = np.array([(0 << 32) | 2, (2 << 32) | 1])
    pack_edges(
        *(np.empty(0), nodes, core, names, 0, 2, 1),
        *(2, weight, edges, packed),
    )
    assert weight[:, 0].tolist() == [0.0, 2.0, 4.0]
    assert [(int(k) >> 32, int(k) & 0xFFFFFFFF) for k in edges[1:, 1]] == [
        (5, 7),
        (3, 5),
    ]
    assert (packed & np.uint64(3)).tolist() == [0, 1, 2]
