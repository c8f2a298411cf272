"""The GPU's nearest neighbours are those of the definition: pure functions, no Dask, no
data frames.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

cupy = pytest.importorskip("cupy")

from dask_simjoin.engine.gpu import row_search
from dask_simjoin.engine.gpu.build import kd_order
from dask_simjoin.engine.gpu.nearest import SEARCHER, build
from dask_simjoin.engine.index.gpu import ENGINES, make_nearest_device_layout
from dask_simjoin.engine.index.kdtree import KdCuts
from dask_simjoin.engine.index.kdtree import kd_order as host_order
from dask_simjoin.metrics.norms import add
from tests.support.gpu_programs import search_programs
from tests.support.gpu_search import search
from tests.support.nearest import oracle, searches
from tests.support.oracle import squared_distances
from tests.support.points import KINDS, make_points
from tests.support.profiles import chosen, examples

pytestmark = pytest.mark.gpu

DIMS = chosen([1, 2, 3, 5, 8, 9, 16, 17, 32, 64, 200], [1, 2, 5, 9, 17, 200])
"""Every number of dimensions is compiled by itself, which takes longer than these
tests: so, some.
"""

NORMS, NORM_DIMS = [1, 3, 4, math.inf], [1, 2, 5, 17]


def programs():
    few = [
        one for norm in NORMS for one in search_programs(NORM_DIMS, ["float64"], norm)
    ]
    return search_programs(DIMS, ENGINES, lists=(True, False)) + few


def layout_of(*sides, engine="auto"):
    """The layout of these points."""
    x = np.concatenate(sides)
    if not len(x):
        x = np.zeros((1, x.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.clip(x.mean(axis=0), x.min(axis=0), x.max(axis=0))
        mean = np.where(np.isfinite(mean), mean, x[0])
        variance = np.nan_to_num(x.var(axis=0))
    return make_nearest_device_layout(
        x.min(axis=0), x.max(axis=0), mean, variance, x, engine
    )


def check(
    q,
    d,
    k,
    same=False,
    q_names=None,
    d_names=None,
    bound2=math.inf,
    engines=("auto",),
    **how,
):
    """Search with each of the engines; the definition, which takes longer than all of
    them, is asked once.
    """
    q_names = np.arange(len(q)) if q_names is None else q_names
    d_names = q_names if q is d else np.arange(len(d)) if d_names is None else d_names
    with np.errstate(over="ignore"):
        expected = oracle(q, d, q_names, d_names, k, same, bound2)
    for engine in engines:
        layout = layout_of(q, d, engine=engine)
        found = search(q, d, q_names, d_names, k, same, layout, bound2, **how)
        np.testing.assert_array_equal(found[1], expected[1], engine)
        np.testing.assert_array_equal(found[0], expected[0], engine)
    return layout


@pytest.mark.parametrize("fan_out", [2, 4])
@pytest.mark.parametrize("n", [1, 64, 65, 129, 1000, 2049, 100_000])
def test_the_order_is_that_of_the_host(n, fan_out):
    x = np.random.default_rng(n).normal(size=(n, 4)) * [1, 5, 0.1, 3]
    cuts = KdCuts((1, 3, 0), (5.0, 3.0, 1.0))
    want = host_order(x, cuts, 64, fan_out, 3)
    for layout in (np.asfortranarray, np.ascontiguousarray):
        found = cupy.asnumpy(kd_order(cupy.asarray(layout(x)), cuts, 64, fan_out, 3))
        assert (found == want).mean() > 0.99 and sorted(found.tolist()) == list(
            range(n)
        )


@pytest.mark.parametrize("engine", ["auto", *ENGINES])
@settings(max_examples=examples(75))
@given(case=searches())
def test_any_points(engine, case):
    q, d, k, same, q_names, d_names, bound2, _, cuts, order = case
    dims = max(n for n in DIMS if n <= q.shape[1])
    q, d = (
        (x := np.ascontiguousarray(q[:, :dims])),
        x if q is d else np.ascontiguousarray(d[:, :dims]),
    )
    check(q, d, k, same, q_names, d_names, bound2, [engine], cuts=cuts, order=order)


@pytest.mark.parametrize("dims", [d for d in DIMS if d <= 8])
def test_lattice_ties(dims):
    """Many neighbours at the same distance, in tiles whose boxes touch: the smaller
    name wins.
    """
    side = {1: 300, 2: 20, 3: 8, 5: 4, 8: 2}[dims]
    x = np.array(list(itertools.product(range(side), repeat=dims)), float)
    rng = np.random.default_rng(dims)
    x = np.repeat(rng.permutation(x), 2, axis=0) / 3
    names = rng.permutation(len(x))
    for k in (1, 3, 11, 40):
        check(x, x, k, True, names, engines=ENGINES, cuts=(len(x) // 3,), order=(1, 0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", DIMS)
def test_every_kind_in_every_width(kind, dims):
    rng = np.random.default_rng(dims)
    x = make_points(kind, 700, dims, rng)
    check(x, x, 5, True, rng.permutation(700), engines=ENGINES, cuts=(300,))
    check(x[:70], x[70:], 50, engines=ENGINES)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("k", [1, 10, 64])
def test_thousands_of_equal_points(engine, k):
    n = 5000
    names = np.random.default_rng(0).permutation(n)
    x = np.full((n, 3), 0.1)
    x[0] = 5.0
    d2, found = search(
        x[1:], x[1:], names[1:], names[1:], k, True, layout_of(x, engine=engine)
    )
    assert not d2.any()
    least = np.delete(np.arange(n), names[0])[: k + 1]
    expected = [
        np.delete(least, np.flatnonzero(least == name)[:1])[:k] for name in names[1:]
    ]
    np.testing.assert_array_equal(found, np.array(expected))


@pytest.mark.parametrize("k", [20, 21, 31, 33, 100, 200, 500, 1025])
@pytest.mark.parametrize("dims", [2, 5, 17])
def test_long_lists(dims, k):
    """Lists that are filled many times over, also of points that are as far as each
    other.
    """
    rng = np.random.default_rng(k)
    x = rng.normal(size=(6000, dims))
    x[1::2] = rng.integers(0, 3, (3000, dims)) / 3
    x[4000:5500] = x[0]
    names = rng.permutation(len(x))
    q = np.concatenate([rng.normal(size=(150, dims)) + 20.0, x[::50]])
    check(q, x, k, engines=ENGINES, d_names=names, cuts=(2500,), order=(1, 0))
    some = np.ascontiguousarray(x[::3])
    check(some, some, min(k, 300), True, names[::3], engines=ENGINES)


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 129, 300])
@pytest.mark.parametrize("dims", [2, 9])
def test_few_points_and_many_neighbours(n, dims):
    x = np.random.default_rng(n).uniform(size=(n, dims))
    for k in (1, 70, 1100):
        check(x, x, k, True, engines=ENGINES)
        check(x[: n // 2], x, k, engines=ENGINES)


def test_no_neighbours_are_wanted():
    x = np.ones((3, 2))
    assert search(x, x, np.arange(3), np.arange(3), 0, True, layout_of(x))[0].shape == (
        3,
        0,
    )


@pytest.mark.parametrize("k", [3, 40])
@pytest.mark.parametrize("dims", [2, 8])
def test_distances_that_overflow(k, dims):
    """Neighbours at d2 = inf are neighbours, the smaller names first."""
    x = np.array([-1e200, 1e200, 0.0])[
        np.random.default_rng(0).integers(0, 3, (90, dims))
    ]
    names = np.random.default_rng(1).permutation(90)
    layout = check(x, x, k, True, names, cuts=(20, 64), order=(2, 0, 1))
    assert layout.engine == "float64"
    check(x, x, k, True, names, bound2=1e300)


@pytest.mark.parametrize("dims", [2, 5])
def test_few_dimensions_by_tiles(monkeypatch, dims):
    """As if many neighbors were searched."""
    monkeypatch.setattr(row_search, "MAX_NEIGHBORS", {dims: 0})
    for kind in KINDS:
        x = make_points(kind, 700, dims, np.random.default_rng(dims))
        check(x, x, 5, True, engines=ENGINES, cuts=(300,))


@pytest.mark.parametrize("scale", [1e-320, 1e-45, 1e-39, 1e-30, 1e37, 1e100])
def test_numbers_beyond_float32(scale):
    x = np.random.default_rng(4).normal(size=(700, 3)) * scale
    check(x, x, 5, True)


@pytest.mark.parametrize("dims", [2, 17])
def test_a_bound_is_inclusive(dims):
    x = np.random.default_rng(3).uniform(size=(200, dims))
    d2 = np.sort(squared_distances(x, x)[0])
    for bound2 in (d2[5], math.nextafter(d2[5], 0), math.nextafter(d2[5], 9), 0.0):
        check(x, x, 20, True, bound2=float(bound2), engines=ENGINES)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dims", NORM_DIMS)
def test_other_norms(dims, norm):
    for kind in KINDS:
        rng = np.random.default_rng(dims)
        x = make_points(kind, 400, dims, rng)
        sides = x.min(axis=0), x.max(axis=0), np.zeros(dims), np.ones(dims)
        layout = SEARCHER.layout(*sides, x, norm)
        assert layout.engine == "float64"
        names = rng.permutation(400)
        totals = np.zeros((400, 400))
        with np.errstate(over="ignore"):
            for column in x.T:
                totals = add(totals, np.abs(column[:, None] - column[None, :]), norm)
        names_of = np.broadcast_to(names, totals.shape)
        order = np.lexsort((names_of, totals), axis=1)
        order = order[order != np.arange(400)[:, None]].reshape(400, 399)[:, :12]
        found = search(x, x, names, names, 12, True, layout, cuts=(150,), order=(1, 0))
        np.testing.assert_array_equal(found[1], names[order])
        np.testing.assert_array_equal(
            found[0], np.take_along_axis(totals, order, axis=1)
        )


@pytest.mark.parametrize("engine", ENGINES)
def test_queries_far_from_all_data_and_repeated_calls(engine):
    rng = np.random.default_rng(8)
    q, d = rng.uniform(size=(100, 3)) + 1000, rng.uniform(size=(1000, 3))
    check(q, d, 4, engines=[engine])
    layout = layout_of(q, d, engine=engine)
    index = SEARCHER.renamed(build(cupy.asarray(d), layout), 0)
    state = SEARCHER.fresh(1000, 4)
    SEARCHER.nearest(index, index, layout, *state, is_self_join=True)
    once = [part.copy() for part in state]
    far = SEARCHER.renamed(build(cupy.asarray(q), layout), 1000)
    # nothing is close enough
    SEARCHER.nearest(index, far, layout, *state, is_self_join=True)
    assert all((part == before).all() for part, before in zip(state, once, strict=True))


@pytest.mark.parametrize(
    ("dims", "n"),
    [(2, 600_000), (3, 300_000), (5, 300_000), (9, 300_000), (16, 100_000)],
)
def test_many_points(dims, n):
    """Trees of three levels, and more groups than one: some rows against the
    definition.
    """
    rng = np.random.default_rng(dims)
    x = rng.exponential(size=(n, dims))
    layout = layout_of(x[::50])
    layout = make_nearest_device_layout(
        x.min(axis=0),
        x.max(axis=0),
        x.mean(axis=0),
        x.var(axis=0),
        x[::100],
        layout.engine,
    )
    half_of = n // 2
    parts = [build(cupy.asarray(some), layout) for some in (x[:half_of], x[half_of:])]
    data = [
        SEARCHER.renamed(part, first)
        for part, first in zip(parts, (0, half_of), strict=True)
    ]
    for query, first in zip(data, (0, half_of), strict=True):
        state = SEARCHER.fresh(half_of, 10)
        for other in data:
            SEARCHER.nearest(query, other, layout, *state, is_self_join=True)
        rows = rng.integers(0, half_of, 20)
        found = [cupy.asnumpy(part)[rows] for part in state]
        expected = oracle(x[rows + first], x, rows + first, np.arange(n), 10, True)
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[0], expected[0])
