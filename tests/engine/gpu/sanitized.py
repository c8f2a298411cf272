"""Work for NVIDIA's compute-sanitizer: every kernel, on the smallest points that reach
its branches.

compute-sanitizer --tool memcheck python -m tests.engine.gpu.sanitized compute-sanitizer
--tool racecheck --kernel-name-exclude kernel_substring=cupy_ python -m ...

Numbers of dimensions may follow, so that parts run side by side; or the word "gated",
for joins with conditions only.  CuPy's own kernels are left out, as its `nonzero` is
reported for races.
"""

import sys

import cupy
import numpy as np

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.engine.cpu.spanning import SPANNER
from dask_simjoin.engine.gpu import tiles as gpu_tiles
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.gpu.nearest import SEARCHER
from dask_simjoin.engine.gpu.spanning import SPANNER as GPU_SPANNER
from dask_simjoin.engine.gpu.spanning import on_host
from dask_simjoin.engine.index.gpu import (
    ENGINES,
    NearestDeviceLayout,
    make_device_layout,
    make_nearest_device_layout,
)
from dask_simjoin.engine.index.kdtree import make_regions
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.papers.grid import Grid
from dask_simjoin.papers.list_index import ZOrderSearch
from dask_simjoin.papers.lists import KMeans, NestedLoop, ZOrder
from dask_simjoin.tasks.counts import component_roots, new_nodes
from tests.engine.gpu.test_gated_on_host import (
    LIMIT,
    SIZES,
    allowed,
    laid_out,
    rows_of,
)
from tests.support.oracle import brute_force, squared_distances
from tests.support.points import a_distance, frame_of, make_points


def search(x: np.ndarray, engine: str) -> None:
    """Search for nearest neighbours, with lists in shared memory and in a scratch, and
    compare.
    """
    layout = make_nearest_device_layout(
        x.min(0), x.max(0), x.mean(0), x.var(0), None, engine
    )
    search_by(x, layout)


def search_lists(x: np.ndarray, words: int) -> None:
    """Search for nearest neighbours by lists in Z-order, with lists shorter and longer
    than a warp.
    """
    about = x.min(0), x.max(0), x.mean(0), x.var(0), x
    search_by(x, SEARCHER.layout(*about, method=ZOrder(lists=3, words=words)))


def search_by(x: np.ndarray, layout: NearestDeviceLayout | ZOrderSearch) -> None:
    """Search for the nearest of the first rows, by chunks, and compare."""
    indexes = [JOINER.build(cupy.asarray(some), layout) for some in (x[:500], x[500:])]
    data = [
        SEARCHER.renamed(index, first)
        for index, first in zip(indexes, (0, 500), strict=True)
    ]
    d2 = squared_distances(x[:500], x)
    np.fill_diagonal(d2, np.inf)
    for k in (10, 150):
        state = SEARCHER.fresh(500, k)
        for other in data:
            SEARCHER.nearest(data[0], other, layout, *state, is_self_join=True)
        assert (state[0].get() == np.sort(d2, axis=1)[:, :k]).all()


def span(x: np.ndarray, engine: str) -> None:
    """Find a spanning tree at once, and by two chunks, and clusters in it, and compare
    with the CPU's.
    """
    layout = make_nearest_device_layout(
        x.min(0), x.max(0), x.mean(0), x.var(0), None, engine
    )
    want = frame_of(x).simjoin.spanning_tree()
    ends = want["left"].to_numpy(np.int32), want["right"].to_numpy(np.int32)
    trees, sides, cores = [], [], []
    for start, stop in ((0, len(x)), (0, 500), (500, len(x))):
        index = JOINER.build(cupy.asarray(x[start:stop]), layout)
        sides.append(SEARCHER.renamed(index, start))
        rows = stop - start
        cores.append(cupy.zeros(rows))
        near = (
            cupy.empty((rows, 0), cupy.int32),
            cupy.empty((rows, 0)),
            cupy.full(rows, -1, cupy.float32),
        )
        trees.append(on_host(GPU_SPANNER.tree_of(sides[-1], layout, cores[-1], near)))
    between = GPU_SPANNER.edges_between(sides[1:], layout, cores[1:], trees[1:])
    for found in (trees[0], GPU_SPANNER.merge(len(x), *trees[1:], between)):
        assert all(
            (one == other).all() for one, other in zip(found[1:], ends, strict=True)
        )
    away = want["distance"].to_numpy()
    clusters = zip(
        GPU_SPANNER.condense(*ends, away, 9),
        SPANNER.condense(*ends, away, 9),
        strict=True,
    )
    assert all((one == other).all() for one, other in clusters)


def gated() -> None:
    """Join rows with conditions, in a box and without one, and compare."""
    rng = np.random.default_rng(0)
    for box in ((), (3.0, 0.0)):
        sides = [rows_of(rng, n) for n in SIZES]
        layout, points = laid_out(
            lambda x: cupy.asarray(x, order="F"),
            lambda *how: JOINER.layout("tiles", *how),
            sides,
            box,
        )
        want = allowed(*sides, box)
        q, d = (JOINER.build(some, layout) for some in points)
        pairs = JOINER.pairs(q, d, layout, is_self_join=False, distance=cupy.sqrt)
        found = np.zeros(SIZES, int)
        np.add.at(found, (pairs.left.get(), pairs.right.get()), 1)
        assert (found == want).all()
        counts = JOINER.counts(q, d, layout, is_self_join=False)
        for axis, count in zip((1, 0), counts, strict=True):
            assert count.tolist() == want.sum(axis).tolist()
        parent = new_nodes(sum(SIZES), cupy)
        every = tuple(cupy.ones(n, bool) for n in SIZES)
        JOINER.connect(q, d, layout, parent, every, SIZES[0], is_self_join=False)
        JOINER.roots(parent)
        left, right = np.nonzero(want)
        roots = component_roots(sum(SIZES), left, right + SIZES[0])
        assert parent.tolist() == roots.tolist()
        labels = cupy.arange(SIZES[0]), cupy.full(SIZES[1], -1)
        low = tuple(cupy.full(n, 999) for n in SIZES)
        JOINER.lowest(q, d, layout, labels, low, is_self_join=False)
        first = np.where(want.any(axis=0), want.argmax(axis=0), 999)
        assert low[1].tolist() == first.tolist()
        limits = np.array([LIMIT / 4, LIMIT])
        how = {"is_self_join": False, "by_row": False}
        tally = JOINER.tally(q, d, layout, limits, **how)[0]
        assert int(tally[0, 1]) == want.sum()
    print("joins with conditions are right")


def main(dimensions: list[int]) -> None:
    """Join, compare with brute force, and say so."""
    rng = np.random.default_rng(0)
    joins = 0
    for dims in dimensions:
        # there all is compared with all
        x = make_points("clusters", 1300 if dims < 100 else 900, dims, rng)
        eps = a_distance(x, rng, 0.2, 0)
        expected = brute_force(x, eps)
        for engine in ENGINES:
            search(x, engine)
            span(x, engine)
            layout = make_device_layout(
                x.min(0), x.max(0), x.mean(0), x.var(0), eps * eps, engine
            )
            whole = JOINER.build(cupy.asarray(x), layout)
            parts = [
                JOINER.build(cupy.asarray(some), layout) for some in (x[:500], x[500:])
            ]
            for room in (1 << 27, 1 << 14):  # the second fills up
                gpu_tiles.BATCH = room
                pairs = JOINER.pairs(
                    whole, whole, layout, is_self_join=True, distance=cupy.sqrt
                )
                assert (
                    set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
                    == expected
                )
                labels = tuple(part["order"].astype(cupy.int64) for part in parts)
                across = JOINER.pairs(*parts, layout, is_self_join=False, labels=labels)
                assert len(across.left) == sum(a < 500 <= b for a, b in expected)
                joins += 2
            every = cupy.ones(len(x), bool)
            parent = new_nodes(len(x), cupy)
            JOINER.connect(
                whole, whole, layout, parent, (every, every), 0, is_self_join=True
            )
            JOINER.roots(parent)
            pairs = np.array(sorted(expected))
            assert (
                parent.tolist()
                == component_roots(len(x), pairs[:, 0], pairs[:, 1]).tolist()
            )
            by_row = JOINER.numbers(
                parent, (every, cupy.arange(len(x), dtype=cupy.int32))
            )
            assert (by_row == JOINER.numbers(parent)).all()
            seen = []
            JOINER.visit(
                whole,
                whole,
                layout,
                lambda *told, seen=seen: seen.append(len(told[0])),
                is_self_join=True,
            )
            assert sum(seen) == len(expected)
            labels = tuple(cupy.arange(len(some)) - 250 for some in (x[:500], x[500:]))
            labels = tuple(cupy.maximum(some, -1) for some in labels)
            low = tuple(cupy.full(len(some), 10**6) for some in labels)
            JOINER.lowest(*parts, layout, labels, low, is_self_join=False)
            assert int(low[0][:250].min()) < 10**6 == int(low[0][250:].min())
            assert int(
                JOINER.counts(whole, whole, layout, is_self_join=True)[0].sum()
            ) == 2 * len(expected)
            assert int(
                JOINER.counts(*parts, layout, is_self_join=False)[0].sum()
            ) == len(across.left)
        for words in (1, 2):
            search_lists(x, words)
        seeds = (
            NestedLoop(buffer=1000),
            NestedLoop(schedule="triangle"),
            ZOrder(),
            ZOrder(walk="half", words=2),
            KMeans(clusters=9),
            KMeans(clusters=70, windows="two-sided", inner="nested_loop"),
        )
        grids = (
            Grid(buffer=1000),
            Grid.plain(),
            Grid.gpu_join(2),
            Grid(order="workload"),
        )
        for options in (*grids, *seeds):
            m = x.min(0), x.max(0), x.mean(0), x.var(0)
            grid = JOINER.layout(options, *m, eps * eps, 2, JoinSample(x, x, len(x)))
            whole, few = (
                JOINER.build(cupy.asarray(x), grid),
                JOINER.build(cupy.asarray(x[:500]), grid),
            )
            pairs = JOINER.pairs(
                whole, whole, grid, is_self_join=True, distance=cupy.sqrt
            )
            assert (
                set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
                == expected
            )
            assert int(
                JOINER.counts(whole, whole, grid, is_self_join=True)[0].sum()
            ) == 2 * len(expected)
            across = JOINER.pairs(
                few,
                whole,
                grid,
                is_self_join=False,
                labels=tuple(side["order"].astype(cupy.int64) for side in (few, whole)),
            )
            assert len(across.left) == 500 + sum(
                (a < 500) + (b < 500) for a, b in expected
            )
            joins += 2
        regions = make_regions(
            x[::3], np.full(len(x[::3]), 3.0), x.min(0), x.max(0), eps / 8, 50, 32
        )
        JOINER.regions(cupy.asarray(x), regions, eps / 8, eps * eps / 64)
    print(f"{joins} joins are right")


if __name__ == "__main__":
    if sys.argv[1:] == ["gated"]:
        gated()
    else:
        main([int(given) for given in sys.argv[1:]] or [2, 9, 17, 201])
