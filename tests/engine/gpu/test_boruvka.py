"""Boruvka's rounds on a GPU, compiled for the host."""

import numpy as np
import pytest

from dask_simjoin.engine.cpu.spanning import SPANNER
from dask_simjoin.engine.index.gpu import HOST, build_nearest, relabelled
from tests.engine.gpu.test_spanning import edges_of, known_of, layout_of
from tests.support.hierarchy import tree_by_definition
from tests.support.points import make_points
from tests.support.profiles import every_nth


@pytest.mark.parametrize("kind", every_nth(2, ["lattice", "duplicates", "clusters"]))
def test_edges_between_two_chunks(spanning, kind):
    """With both chunks' trees they make the tree of all, whatever rows are called and
    where they are.
    """
    rng = np.random.default_rng(1)
    for n, cut in ((150, 70), (70, 69), (2, 1), (90, 0)):
        x = make_points(kind, n, 2, rng)
        rows = rng.permutation(n)
        layout = layout_of(x)
        want = tree_by_definition(x, 3, shown=False)[0]
        sides, cores, trees = [], [], []
        for own in (np.sort(rows[:cut]), np.sort(rows[cut:])):
            index = relabelled(build_nearest(x[own], layout, HOST), own)
            core, nearest = known_of(x, index, own, 3, 4)
            sides.append(index)
            cores.append(core)
            trees.append(spanning.SPANNER.tree_of(index, layout, core, nearest))
        between = spanning.SPANNER.edges_between(sides, layout, cores, trees)
        assert edges_of(spanning.SPANNER.merge(n, *trees, between)) == want


def test_merged_forests(spanning):
    """Also of rows that are not there, and of forests that stay several."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rows = int(rng.integers(2, 60))
        parts = []
        for _ in range(int(rng.integers(1, 5))):
            ends = np.sort(
                rng.integers(0, rows, (int(rng.integers(0, 50)), 2)), axis=1
            ).astype(np.int32)
            ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
            weight = rng.integers(0, 5, len(ends)) / 2
            order = np.argsort(weight, kind="stable")
            none = np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.int32)
            parts.append(
                SPANNER.merge(rows, none, (weight[order], *ends[order].T.copy()))
            )
        found, want = spanning.SPANNER.merge(rows, *parts), SPANNER.merge(rows, *parts)
        for one, other in zip(found, want, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_order_of_edges(spanning):
    """Edges of the same length are sorted by their ends."""
    ordered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(0, 6))
        start, end = rng.integers(0, 3, (2, n)).astype(np.int32)
        away = np.sort(rng.integers(0, 3, n) / 3)
        edges = list(zip(away, start, end, strict=True))
        want = edges == sorted(edges)
        ordered.append(want)
        for spanner in (spanning.SPANNER, SPANNER):
            assert spanner.is_ordered(start, end, away) is want, edges
    assert 10 < sum(ordered) < 50
