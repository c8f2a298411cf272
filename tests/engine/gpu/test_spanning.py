"""The GPU's spanning trees without a GPU: driver, and CUDA C++ compiled for the host."""

import importlib

import numpy as np
import pytest

from dask_simjoin.engine.cpu.spanning import SPANNER
from dask_simjoin.engine.index.gpu import HOST, build_nearest, make_nearest_device_layout, part, relabelled
from dask_simjoin.metrics.norms import add
from tests.support import host_gpu
from tests.support.hierarchy import tree_by_definition
from tests.support.host_fibers import fibers_like_cupy
from tests.support.oracle import totals
from tests.support.points import KINDS, frame_of, make_points
from tests.support.profiles import chosen


@pytest.fixture(scope="module")
def spanning(tmp_path_factory):
    if not host_gpu.available():
        pytest.skip("there is no g++")
    with fibers_like_cupy(tmp_path_factory.mktemp("kernels")):
        module = importlib.import_module("dask_simjoin.engine.gpu.spanning")
        for name in ("rounds", "searched"):
            importlib.import_module(f"dask_simjoin.engine.gpu.{name}").BUILDER = HOST
        yield module


def layout_of(x, engine="auto", norm=2):
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.clip(x.mean(axis=0), x.min(axis=0), x.max(axis=0))
        mean = np.where(np.isfinite(mean), mean, x[0])
        variance = np.nan_to_num(x.var(axis=0))
    return make_nearest_device_layout(x.min(0), x.max(0), mean, variance, x, engine, norm=norm)


def known_of(x, index, rows, samples, listed, metric="euclidean"):
    """Core distances of some rows of `x` by place, and of so many of the nearest what is known of them."""
    away = totals(x, x, metric)
    core = np.sort(away, axis=1)[:, min(samples, len(x)) - 1]
    here = np.asarray(rows)[index["order"]]
    away[np.arange(len(x)), np.arange(len(x))] = np.inf
    first = np.lexsort((np.broadcast_to(np.arange(len(x)), away.shape), away), axis=1)
    place = np.full(len(x), -1, np.int32)
    place[here] = np.arange(len(here), dtype=np.int32)
    near = np.where(first == np.arange(len(x))[:, None], -1, place[first])[here, :listed]
    sorted_away = np.take_along_axis(away, first, axis=1)[here, : listed + 1]
    beyond = np.full(len(here), -1.0)
    if listed < sorted_away.shape[1]:
        beyond = np.nextafter(np.maximum(sorted_away[:, -1], 0.0).astype(np.float32), np.float32(-1))
    nearest = near.astype(np.int32), np.ascontiguousarray(sorted_away[:, :listed]), beyond.astype(np.float32)
    return core[here], nearest


def edges_of(found):
    return list(zip(found[1].tolist(), found[2].tolist(), strict=True))


EVERY = [(d, e) for d in (1, 2, 8, 64) for e in ("float64", "float32", "float16") if d > 8 or e != "float16"]
FEW = [(2, "float64"), (64, "float16")]
SIZES = (1, 2, 64, 65, 150)


@pytest.mark.parametrize(("dims", "engine"), chosen(EVERY, FEW))
def test_trees_are_those_of_the_definition(spanning, dims, engine):
    for n, kind in enumerate(KINDS):
        rng = np.random.default_rng(n)
        x = make_points(kind, SIZES[n % 5], dims, rng)
        layout = layout_of(x, engine)
        index = build_nearest(x, layout, HOST)
        samples = (1, 2, 5)[n % 3]
        with np.errstate(over="ignore"):
            want = tree_by_definition(x, samples, shown=False)[0]
            for listed in (0, 3):
                core, nearest = known_of(x, index, range(len(x)), samples, listed)
                known = relabelled(index, 0), layout, core, nearest
                assert edges_of(spanning.SPANNER.tree_of(*known)) == want, (kind, listed)
                for rounds, parts in ((1, 3), (9, 3), (0, 0)):  # no parts: none of the rounds is shared
                    found = shared_tree(spanning.SPANNER, known, rounds, parts)
                    assert edges_of(found) == want, (kind, listed, rounds)


def shared_tree(spanner, known, rounds, parts):
    """The tree of so many rounds in parts, and of what is left; all that a part tells the others is edges."""
    progress = spanner.begin(*known, parts)
    for _ in range(rounds):
        if len(progress["sizes"]) < 2:
            break
        found = [spanner.share(*known, progress, (part, parts)) for part in range(parts)]
        assert all(type(column) is np.ndarray for part in found for column in part)
        assert max(len(part[0]) for part in found) <= len(progress["sizes"])
        progress = spanner.join(*known, progress, found)
    return spanner.tree_of(*known, progress)


@pytest.mark.parametrize("kind", ["lattice", "duplicates", "clusters"])
def test_edges_between_two_chunks(spanning, kind):
    """With both chunks' trees they make the tree of all, whatever rows are called and where they are."""
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
            ends = np.sort(rng.integers(0, rows, (int(rng.integers(0, 50)), 2)), axis=1).astype(np.int32)
            ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
            weight = rng.integers(0, 5, len(ends)) / 2
            order = np.argsort(weight, kind="stable")
            none = np.zeros(0), np.zeros(0, np.int32), np.zeros(0, np.int32)
            parts.append(SPANNER.merge(rows, none, (weight[order], *ends[order].T.copy())))
        found, want = spanning.SPANNER.merge(rows, *parts), SPANNER.merge(rows, *parts)
        for one, other in zip(found, want, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [1, 3, np.inf])
def test_other_norms(spanning, norm):
    x = np.random.default_rng(3).integers(0, 9, (130, 2)) / 7
    layout = layout_of(x, norm=norm)
    index = relabelled(build_nearest(x, layout, HOST), 0)
    away = np.zeros((130, 130))
    for column in x.T:
        away = add(away, np.abs(column[:, None] - column[None]), norm)
    core = np.sort(away, axis=1)[:, 3]
    weight = np.maximum(away, np.maximum(core[:, None], core[None]))
    found = spanning.SPANNER.tree_of(index, layout, core[index["order"]], nothing(len(x)))
    i, j = np.triu_indices(len(x), 1)
    order = np.lexsort((j, i, weight[i, j]))
    want = SPANNER.merge(len(x), (np.zeros(0), *np.zeros((2, 0), np.int32)), (
        weight[i, j][order], i[order].astype(np.int32), j[order].astype(np.int32),
    ))  # fmt: skip
    assert edges_of(found) == edges_of(want)


def nothing(n):
    """What is known of the nearest rows where none were sought."""
    return np.zeros((n, 0), np.int32), np.zeros((n, 0)), np.full(n, -1, np.float32)


@pytest.mark.parametrize("kind", chosen(["even", "apart", "two places"], ["even", "two places"]))
def test_many_tiles(spanning, kind):
    """More of them than a group has; and few rows that ask at a time."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(4200, 2)) + (10 * rng.integers(0, 3, (4200, 1)) if kind == "apart" else 0)
    if kind == "two places":
        x = np.repeat([[0.0, 1.0], [2.0, 0.5]], 2100, axis=0)
    want = frame_of(x).simjoin.spanning_tree()
    layout = layout_of(x)
    index = relabelled(build_nearest(x, layout, HOST), 0)
    assert len(index["levels"]) == 3
    rounds = importlib.import_module("dask_simjoin.engine.gpu.rounds")
    rounds.AT_ONCE, rounds.MANY = 2 * 640, 1000
    known = index, layout, np.zeros(len(x)), nothing(len(x))
    found = spanning.SPANNER.tree_of(*known)
    assert edges_of(found) == list(zip(want["left"], want["right"], strict=True))
    assert edges_of(shared_tree(spanning.SPANNER, known, 6, 2)) == edges_of(found)
    assert np.sqrt(found[0]).tolist() == want["distance"].tolist()


@pytest.mark.parametrize(("engine", "tile"), [("float64", 64), ("float16", 128)])
def test_parts_of_an_index(engine, tile):
    """Queries are what the whole has at their places."""
    x = np.random.default_rng(0).normal(size=(8192 + 300, 9))
    layout = layout_of(x, engine)
    index = relabelled(build_nearest(x, layout, HOST), 5)
    some = part(index, 8192, len(x))
    assert some.keys() >= ({"z"} if engine == "float64" else {"vectors", "norm", "error"})
    for name in some.keys() & {"order", "names", "y", "norm", "error", "vectors"}:
        np.testing.assert_array_equal(some[name], index[name][8192:])
    y = some["y"] if layout.bounds is None else layout.bounds.scaled(some["y"]).astype(np.float32)
    for t in range(-(-300 // tile)):
        own = y[t * tile : (t + 1) * tile]
        np.testing.assert_array_equal(some["lower"][0, :, t], own.min(axis=0))
        np.testing.assert_array_equal(some["upper"][0, :, t], own.max(axis=0))
        if "z" in some:
            np.testing.assert_array_equal(some["z"][t, :, : len(own)], own.T)
