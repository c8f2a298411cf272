"""Searches by lists in Z-order on a GPU: the neighbours of the definition, and near
ones as on CPUs.
"""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.cpu.nearest import SEARCHER as CPU
from dask_simjoin.engine.cpu.nearest import fresh
from dask_simjoin.papers.cpu.zorder import build_nearest as cpu_build
from dask_simjoin.papers.lists import ZOrder
from tests.papers.cpu.test_zorder_nearest import layout_of
from tests.support import gpu_frames
from tests.support.gpu_search import search
from tests.support.nearest import oracle, searches
from tests.support.points import KINDS, frame_of, make_points
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

DIMS = [1, 2, 5, 70]
WORDS = [1, 3]


def programs():
    return [
        (
            "papers/zorder_nearest",
            "look",
            {"DIMS": d, "COLUMNS": min(d, 64 * w), "WORDS": w, "EXACT": True},
        )
        for d, w in itertools.product(DIMS, WORDS)
    ]


def by_cpu(x, names, k, layout):
    state = fresh(len(x), k)
    index = CPU.renamed(cpu_build(x), names)
    CPU.nearest(index, index, layout, *state, is_self_join=True)
    return state


@pytest.mark.parametrize("words", WORDS)
@settings(max_examples=examples(100), deadline=None)
@given(case=searches())
def test_any_points(words, case):
    q, d, k, same, q_names, d_names, bound2, _, cuts, order = case
    dims = max(n for n in DIMS if n <= q.shape[1])
    q, d = (
        (x := np.ascontiguousarray(q[:, :dims])),
        x if q is d else np.ascontiguousarray(d[:, :dims]),
    )
    d_names = q_names if q is d else d_names
    layout = layout_of(np.concatenate([q, d]), ZOrder(words=words))
    with np.errstate(over="ignore"):
        found = search(q, d, q_names, d_names, k, same, layout, bound2, cuts, order)
        expected = oracle(q, d, q_names, d_names, k, same, bound2)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize("words", WORDS)
def test_near_ones_are_the_cpus(dims, words):
    for kind in KINDS:
        rng = np.random.default_rng(dims)
        x, names = make_points(kind, 700, dims, rng), rng.permutation(700)
        layout = layout_of(x, ZOrder(words=words, shifts="random"), True)
        with np.errstate(over="ignore"):
            for k in (1, 10, 65):
                found = search(x, x, names, names, k, True, layout)
                for one, other in zip(found, by_cpu(x, names, k, layout), strict=True):
                    np.testing.assert_array_equal(one, other, kind)


@pytest.mark.parametrize(("dims", "n"), [(2, 300_000), (5, 60_000)])
def test_many_points(dims, n):
    x = np.random.default_rng(dims).exponential(size=(n, dims))
    rows = np.random.default_rng(0).integers(0, n, 20)
    found = search(
        x,
        x,
        np.arange(n),
        np.arange(n),
        10,
        True,
        layout_of(x),
        cuts=(n // 3,),
        order=(1, 0),
    )
    expected = oracle(x[rows], x, rows, np.arange(n), 10, True)
    np.testing.assert_array_equal(found[1][rows], expected[1])
    np.testing.assert_array_equal(found[0][rows], expected[0])


@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.ApproximateWarning")
def test_frames_plans_and_profiles():
    frame = frame_of(np.random.default_rng(5).uniform(size=(2500, 5)))
    device = gpu_frames.lay(frame, "cudf")
    for how in ({"k": 3}, {"k": 2, "max_distance": 0.2}, {"k": 4, "approximate": True}):
        asked = {"method": ZOrder(lists=3), **how}
        own = frame.simjoin.knn_join(**asked)
        same_rows(gpu_frames.computed(device.simjoin.knn_join(**asked)), own)
        if "approximate" not in how:  # what is near depends on chunks
            lazy = gpu_frames.lay(frame, "dask-4").simjoin.knn_join(
                blocksize="20 kB", **asked
            )
            same_rows(gpu_frames.computed(lazy), own)
    two = gpu_frames.computed(device.simjoin.knn_join(device, 2, method="zorder"))
    same_rows(two, frame.simjoin.knn_join(frame, 2))
    same = {"k": 4, "method": ZOrder(lists=3), "approximate": True}
    told, own = (one.simjoin.profile(**same) for one in (device, frame))
    assert told.numbers == own.numbers and 0.2 < told.numbers["recall"] < 1
    assert device.simjoin.plan(**same).recall == frame.simjoin.plan(**same).recall
    assert device.simjoin.profile(k=4).numbers == {"neighbors": 10_000, "recall": 1}


def same_rows(found, expected):
    """Compare rows as such; the last bits of roots may differ."""
    key = ["left", "rank"]
    pd.testing.assert_frame_equal(
        *(one.sort_values(key).reset_index(drop=True) for one in (found, expected))
    )
