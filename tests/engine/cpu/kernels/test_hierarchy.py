"""Kernels of single linkage, of condensing, and of merging sorted edge lists, against a
few lines of Python.
"""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.kernels.hierarchy import merge, merge_rows
from dask_simjoin.engine.cpu.spanning import SPANNER


def test_rows_are_merged_along_edges_the_lightest_first():
    """Of rows 0 to 4: (0, 1), then (3, 4), then (1, 3), then 2."""
    left, right = (np.array(side, np.int32) for side in ([0, 3, 1, 2], [1, 4, 3, 0]))
    size = np.zeros(4, np.int32)
    merge_rows(left, right, np.empty(5, np.int32), np.empty(5, np.int32), size)
    assert size.tolist() == [2, 2, 4, 5]
    merged = [{a, b} for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    assert merged == [{0, 1}, {3, 4}, {5, 6}, {2, 7}]


def condensed(edges, least):
    """Undo the edges from the longest to the shortest, all of the same length at once.

    Return what `Clusters` has, with clusters as sets of rows instead of numbers.
    """
    n, leaving = len(edges) + 1, {}
    clusters = {frozenset(range(n)): (None, 0.0)}

    def split(rows, inner, cluster):
        longest = max(away for _, _, away in inner)
        density = 1 / longest if longest > 0 else np.inf
        shorter = [edge for edge in inner if edge[2] < longest]
        parts = {row: frozenset([row]) for row in rows}
        for a, b, _ in shorter:
            joined = parts[a] | parts[b]
            parts.update(dict.fromkeys(joined, joined))
        parts = set(parts.values())
        large = [part for part in parts if len(part) >= least]
        for part in parts:
            if part not in large:
                leaving.update(dict.fromkeys(part, (cluster, density)))
                continue
            own = cluster
            if len(large) > 1:
                own = part
                clusters[part] = cluster, density
            split(part, [edge for edge in shorter if edge[0] in part], own)

    split(frozenset(range(n)), edges, frozenset(range(n)))
    return leaving, clusters


@pytest.mark.parametrize("seed", range(40))
def test_clusters_are_those_of_undone_merges(seed):
    rng = np.random.default_rng(seed)
    n, least = int(rng.integers(2, 60)), int(rng.choice([2, 3, 5, 70]))
    names, end = rng.permutation(n), np.arange(1, n)
    start = (end * rng.uniform(rng.choice([0.0, 0.95]), 1, n - 1)).astype(int)
    away = np.sort(rng.integers(0, rng.choice([1, 4, 15, 1000]), n - 1)).astype(float)
    mixed = rng.permutation(n - 1)
    start, end = names[start[mixed]], names[end[mixed]]
    edges = list(zip(start.tolist(), end.tolist(), away.tolist(), strict=True))
    leaving, clusters = condensed(edges, least)
    found = SPANNER.condense(start, end, away, least)
    row_parent, row_lambda, parent, birth, rows = found
    below = [set(np.flatnonzero(row_parent == c).tolist()) for c in range(len(parent))]
    for c in range(len(parent) - 1, 0, -1):
        below[parent[c]] |= below[c]
    below = [frozenset(some) for some in below]
    assert [len(some) for some in below] == rows.tolist()
    above = [None, *(below[p] for p in parent[1:])]
    assert parent[0] == -1 and dict(
        zip(below, zip(above, birth.tolist(), strict=True), strict=True)
    ) == (clusters)
    assert {
        row: (below[c], density)
        for row, (c, density) in enumerate(zip(row_parent, row_lambda, strict=True))
    } == leaving
    # numbered by the last edge within a cluster, the last one first
    last = [
        max(e for e, (a, b, _) in enumerate(edges) if {a, b} <= some) for some in below
    ]
    assert last == sorted(last, reverse=True)


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
