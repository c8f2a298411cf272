"""Nearest neighbors by one thread per row, compiled for the host."""

import importlib
import itertools
import math

import numpy as np
import pytest

from dask_simjoin.engine.gpu import sources
from dask_simjoin.engine.index.gpu import (
    HOST,
    build_nearest,
    make_nearest_device_layout,
    part,
    relabelled,
)
from tests.support.host_fibers import fibers_like_cupy
from tests.support.nearest import oracle
from tests.support.oracle import totals as totals_of
from tests.support.points import make_points
from tests.support.profiles import chosen, every_nth


@pytest.fixture(scope="module")
def rows(kernel_folder):
    with fibers_like_cupy(kernel_folder):
        yield importlib.import_module("dask_simjoin.engine.gpu.row_search")


def layout_of(x, norm=2):
    with np.errstate(over="ignore"):
        moments = x.min(0), x.max(0), x[0], np.nan_to_num(x.var(0))
    return make_nearest_device_layout(*moments, x, "float64", norm=norm)


def chunks(x, names, cuts, layout):
    for a, b in itertools.pairwise([0, *cuts, len(x)]):
        yield relabelled(build_nearest(x[a:b], layout, HOST), names[a:b])


def found_by(rows, q, d, names, k, same, bound2=math.inf, cuts=(), norm=2):
    """Search chunk by chunk. `names`: of the queries, and of the data."""
    layout = layout_of(np.concatenate([q, d]), norm)
    data = list(chunks(d, names[1], cuts, layout))
    results = []
    trees = [rows.make_tree(chunk) for chunk in data]
    for chunk in data if q is d else chunks(q, names[0], (), layout):
        state = (
            np.full((len(chunk["names"]), k), np.inf),
            np.full((len(chunk["names"]), k), -1),
        )
        for other, tree in zip(data, trees, strict=True):
            rows.search(chunk, other, tree, layout, *state, same, bound2)
        results.append(state)
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def check(rows, q, d, k, same=False, seed=0, bound2=math.inf, cuts=()):
    """Compare with the definition; ids are in any order."""
    rng = np.random.default_rng(seed)
    names = [rng.permutation(3 * len(side))[: len(side)] for side in (q, d)]
    names = [names[0]] * 2 if q is d else names
    found = found_by(rows, q, d, names, k, same, bound2, cuts)
    with np.errstate(over="ignore"):
        want = oracle(q, d, *names, k, same, bound2)
    np.testing.assert_array_equal(found[1], want[1])
    np.testing.assert_array_equal(found[0], want[0])


def float32(x):
    return x.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("dims", chosen([1, 2, 3, 4, 5, 6], [1, 6]))
def test_any_points(rows, dims):
    """Search one table and two, in one chunk and in several; also equal points, and a
    lattice.
    """
    for seed, (kind, n) in enumerate(
        [("uniform", 300), ("lattice", 250), ("duplicates", 200)]
    ):
        x = float32(make_points(kind, n, dims, np.random.default_rng(dims)))
        check(rows, x, x, 5, True, seed)
        check(rows, x, x, 20, True, seed, cuts=(60, 61))
        check(rows, x[:90], x[90:], 7, False, seed, cuts=(50,))


def test_more_neighbors_than_a_pass_finds(rows, monkeypatch):
    monkeypatch.setattr(sources, "LISTS", (8,))
    for kind in ("uniform", "lattice", "duplicates"):
        x = float32(make_points(kind, 150, 3, np.random.default_rng(1)))
        check(rows, x, x, 30, True, cuts=(40,))
        check(rows, x[:7], x, 200)


def test_queries_that_are_no_float32_numbers(rows):
    rng = np.random.default_rng(2)
    d = float32(rng.normal(size=(150, 3)))
    q = rng.normal(size=(50, 3))
    for some in (q, q * 1e-39, q + 1e9 / 3, q * 1e100):
        check(rows, some, d, 6)


@pytest.mark.parametrize("n", every_nth(2, [1, 2, 8, 9, 65]))
def test_few_points(rows, n):
    x = float32(np.random.default_rng(n).uniform(size=(n, 3)))
    check(rows, x, x, 30, True)
    check(rows, x[: n // 2 + 1], x, 5)


def test_a_bound_is_inclusive(rows):
    x = float32(np.random.default_rng(3).uniform(size=(100, 3)))
    totals = np.sort(((x - x[0]) ** 2).sum(axis=1))
    for bound2 in (totals[5], math.nextafter(totals[5], 0), 0.0):
        check(rows, x, x, 20, True, bound2=float(bound2))


@pytest.mark.parametrize("norm", chosen([1, 2, math.inf], [2, math.inf]))
def test_norms(rows, norm):
    """Also with fewer points than neighbors, and a leaf that is not full."""
    rng = np.random.default_rng(5)
    for n, k in ((150, 6), (150, 149), (13, 20)):
        x = float32(rng.normal(size=(n, 3)))
        names = rng.permutation(n)
        totals = totals_of(x, x, "minkowski", norm)
        np.fill_diagonal(totals, np.nan)
        order = np.lexsort((np.broadcast_to(names, totals.shape), totals))
        want = names[order[:, : min(k, n - 1)]]
        found = found_by(rows, x, x, [names] * 2, k, True, norm=norm)
        np.testing.assert_array_equal(found[1][:, : n - 1], want)
        assert (found[1][:, n - 1 :] == -1).all()


def test_a_part_of_the_rows(rows):
    x = float32(np.random.default_rng(6).uniform(size=(500, 3)))
    layout, names = layout_of(x), np.arange(500)
    index = relabelled(build_nearest(x, layout, HOST), 0)
    some = part(index, 128, 300)
    state = np.full((500, 4), np.inf), np.full((500, 4), -1)
    rows.search(some, index, rows.make_tree(index), layout, *state, True, math.inf)
    want = oracle(x, x, names, names, 4, True)
    inside = np.zeros(500, bool)
    inside[some["order"]] = True
    np.testing.assert_array_equal(state[1][inside], want[1][inside])
    assert (state[1][~inside] == -1).all()


def test_boxes_and_ids_of_a_tree(rows):
    x = float32(np.random.default_rng(0).normal(size=(150, 2)))
    index = relabelled(build_nearest(x, layout_of(x), HOST), 7)
    tree = rows.make_tree(index)
    assert sorted(tree.place) == list(range(150))
    assert tree.starts.tolist() == [0, 19, 29, 34, 37, 39, 40]
    y, own = np.asarray(index["y"][tree.place]), index["names"][tree.place]
    for leaf in range(19):
        pair = np.asarray(tree.pairs[leaf // 2])[:, 2 * (leaf % 2) :][:, :2]
        some = y[8 * leaf : 8 * leaf + 8]
        assert pair[:, 0].tolist() == some.min(axis=0).tolist()
        assert pair[:, 1].tolist() == some.max(axis=0).tolist()
        assert tree.least[leaf] == own[8 * leaf : 8 * leaf + 8].min()
    assert (tree.pairs[9][:, 2] == np.inf).all()
    root = np.asarray(tree.pairs[-1])
    assert root[:, [0, 2]].min(axis=1).tolist() == x.min(axis=0).tolist()
    assert root[:, [1, 3]].max(axis=1).tolist() == x.max(axis=0).tolist()
    assert tree.least[-1] == 7


def test_tiles_search_what_rows_would_search_slowly(rows):
    """Many neighbors, other norms, and points that float32 boxes do not tell apart."""
    rng = np.random.default_rng(2)
    for dims, k, norm, by_rows in [
        (3, 1000, 2, True),
        (6, 10, math.inf, True),
        (6, 1000, 2, False),
        (7, 1, 2, False),
        (3, 1, 3, False),
    ]:
        x = float32(rng.normal(size=(70, dims)))
        layout = layout_of(x, norm)
        index = relabelled(build_nearest(x, layout, HOST), 0)
        for _ in range(2):
            assert (rows.tree_of(index, layout, k) is not None) == by_rows
    x = float32(rng.normal(size=(70, 3)))
    one = x.copy()
    one[50, 1] = 0.1
    for some in (x + 1e9 / 3, x * 2.0**-60, x * 2.0**70, x * 1e-320, x * 1e200, one):
        index = relabelled(build_nearest(some, layout_of(some), HOST), 0)
        assert rows.make_tree(index) is None
