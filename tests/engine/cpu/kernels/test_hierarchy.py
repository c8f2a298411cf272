"""Kernels of single linkage, and of merging sorted edge lists, against a few lines of
Python.
"""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.hierarchy import merge, merge_rows


def test_rows_are_merged_along_edges_the_lightest_first():
    """Of rows 0 to 4: (0, 1), then (3, 4), then (1, 3), then 2."""
    left, right = (np.array(side, np.int32) for side in ([0, 3, 1, 2], [1, 4, 3, 0]))
    size = np.zeros(4, np.int32)
    merge_rows(left, right, np.empty(5, np.int32), np.empty(5, np.int32), size)
    assert size.tolist() == [2, 2, 4, 5]
    merged = [{a, b} for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert merged == [{0, 1}, {3, 4}, {5, 6}, {2, 7}]


def kruskal(rows, edges):
    """The edges that close no circle, in their order."""
    component, kept = list(range(rows)), []
    for weight, low, high in sorted(edges):
        a, b = component[low], component[high]
        if a != b:
            kept.append((weight, low, high))
            component = [a if one == b else one for one in component]
    return kept


def columns(edges):
    return tuple(
        np.array([e[k] for e in edges], kind)
        for k, kind in enumerate(("f8", "i4", "i4"))
    )


@pytest.mark.parametrize("seed", range(20))
def test_merged_forests_are_what_kruskal_keeps_of_both(seed):
    rng = np.random.default_rng(seed)
    rows = 12
    parts = []
    for _ in range(2):
        ends = [sorted(rng.choice(rows, 2, replace=False).tolist()) for _ in range(15)]
        parts.append(
            kruskal(rows, {(float(rng.integers(0, 4)), *pair) for pair in ends})
        )
    room = columns([(0.0, 0, 0)] * sum(map(len, parts)))
    number = merge(
        *columns(parts[0]), *columns(parts[1]), np.zeros(rows, np.int32), *room
    )
    found = list(zip(*(side[:number].tolist() for side in room), strict=True))
    assert found == kruskal(rows, set(parts[0] + parts[1]))
