"""Both searches for spanning trees on GPUs, compiled for the host."""

import importlib

import numpy as np
import pytest

from dask_simjoin.engine.gpu import sources
from dask_simjoin.engine.index.gpu import HOST, build_nearest, relabelled
from tests.engine.gpu.test_spanning import edges_of, layout_of, nothing
from tests.support.points import frame_of, make_points
from tests.support.profiles import chosen


@pytest.fixture
def sides(spanning):
    return importlib.import_module("dask_simjoin.engine.gpu.sides")


@pytest.mark.parametrize("dims", chosen([1, 2, 3, 4, 5, 6], [3]))
def test_rows_and_tiles_find_the_same_trees(spanning, sides, monkeypatch, dims):
    rng = np.random.default_rng(dims)
    for kind, n in (("lattice", 700), ("duplicates", 130), ("clusters", 300)):
        x = make_points(kind, n, dims, rng)
        layout = layout_of(x, "float64")
        index = relabelled(build_nearest(x, layout, HOST), 0)
        known = index, layout, np.zeros(n), nothing(n)
        want = frame_of(x).simjoin.spanning_tree()
        for most, kind_of_side in ((6, sides.RowSide), (0, sides.TileSide)):
            monkeypatch.setattr(sources, "ROW_DIMS", most)
            monkeypatch.setattr(sides, "ROW_DIMS", most)
            assert type(sides.make_side(index, layout, 0)) is kind_of_side
            found = edges_of(spanning.SPANNER.tree_of(*known))
            assert found == list(zip(want["left"], want["right"], strict=True))


def test_leaves_hold_all_points_of_their_tile(spanning, sides):
    x = np.random.default_rng(0).normal(size=(150, 2))
    layout = layout_of(x, "float64")
    index = relabelled(build_nearest(x, layout, HOST), 0)
    rounds = importlib.import_module("dask_simjoin.engine.gpu.rounds")
    every = rounds.GpuBoruvkaRounds([index], layout, [np.zeros(150)], nothing(150))
    (side,) = every.sides
    side.arrange(every)
    tiles = np.asarray(side.nodes) // 64
    assert (
        sorted(side.nodes) == list(range(150)) and (tiles == np.arange(150) // 64).all()
    )
    boxes, cores, least = (np.asarray(part) for part in side._boxes)
    assert len(boxes) == 19 + 10 + 5 + 3 + 2 + 1
    for leaf in range(19):
        own = np.asarray(side.nodes)[8 * leaf : 8 * leaf + 8]
        y = index["y"][own]
        assert boxes[leaf].tolist() == [*y.min(axis=0), *y.max(axis=0)]
        assert least[leaf] == index["names"][own].min()
    assert boxes[-1].tolist() == [*x.min(axis=0), *x.max(axis=0)]
    assert least[-1] == 0 and not cores.any()
