"""What each round on a GPU searches, compiled for the host."""

import importlib

import numpy as np
import pytest

from dask_simjoin.engine.index.gpu import HOST, build_nearest, part, relabelled
from tests.engine.gpu.test_spanning import edges_of, layout_of, nothing, shared_tree
from tests.support.oracle import roots
from tests.support.points import frame_of
from tests.support.profiles import chosen, everything


@pytest.mark.parametrize(
    "kind", chosen(["even", "apart", "two places"], ["even", "two places"])
)
def test_many_tiles(spanning, kind):
    """More of them than a group has; and few rows that ask at a time."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(4200, 2)) + (
        10 * rng.integers(0, 3, (4200, 1)) if kind == "apart" else 0
    )
    if kind == "two places":
        x = np.repeat([[0.0, 1.0], [2.0, 0.5]], 2100, axis=0)
    want = frame_of(x).simjoin.spanning_tree()
    layout = layout_of(x)
    index = relabelled(build_nearest(x, layout, HOST), 0)
    rounds = importlib.import_module("dask_simjoin.engine.gpu.rounds")
    rounds.MAX_CAPACITY, rounds.MANY = 2 * 640, 1000
    known = index, layout, np.zeros(len(x)), nothing(len(x))
    found = [shared_tree(spanning.SPANNER, known, 6, 2)]
    if kind == "two places" or everything():  # rounds that are not shared do the same
        found.append(spanning.SPANNER.tree_of(*known))
    for one in found:
        assert edges_of(one) == list(zip(want["left"], want["right"], strict=True))
        assert roots(one[0]).tolist() == want["distance"].tolist()


@pytest.mark.parametrize(("engine", "tile"), [("float64", 64), ("float16", 128)])
def test_parts_of_an_index(engine, tile):
    """Queries are what the whole has at their places."""
    x = np.random.default_rng(0).normal(size=(8192 + 300, 9))
    layout = layout_of(x, engine)
    index = relabelled(build_nearest(x, layout, HOST), 5)
    some = part(index, 8192, len(x))
    assert some.keys() >= (
        {"z"} if engine == "float64" else {"vectors", "norm", "error"}
    )
    for name in some.keys() & {"order", "names", "y", "norm", "error", "vectors"}:
        np.testing.assert_array_equal(some[name], index[name][8192:])
    y = (
        some["y"]
        if layout.bounds is None
        else layout.bounds.scaled(some["y"]).astype(np.float32)
    )
    for t in range(-(-300 // tile)):
        own = y[t * tile : (t + 1) * tile]
        np.testing.assert_array_equal(some["lower"][0, :, t], own.min(axis=0))
        np.testing.assert_array_equal(some["upper"][0, :, t], own.max(axis=0))
        if "z" in some:
            np.testing.assert_array_equal(some["z"][t, :, : len(own)], own.T)
