"""Nearest neighbours of chunks are those of the definition: pure functions, no Dask."""

import itertools
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from dask_simjoin.engine.cpu.nearest import build, fresh, nearest
from dask_simjoin.engine.index.cpu_tiles import (
    TILE,
    box_tree,
    make_nearest_layout,
    smallest_names,
    wide_dims,
)
from tests.support.fences import fenced
from tests.support.nearest import oracle, searches
from tests.support.points import KINDS, make_points
from tests.support.profiles import every_nth, examples, in_turns


def layout_of(*sides, filtered=None):
    """The layout of these points; `filtered`: with the filter, if there can be one, or
    without.
    """
    x = np.concatenate(sides)
    if not len(x):
        x = np.zeros((1, x.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.clip(x.mean(axis=0), x.min(axis=0), x.max(axis=0))
        mean = np.where(np.isfinite(mean), mean, x[0])
        variance = np.nan_to_num(x.var(axis=0))
    sample = None if filtered else x
    layout = make_nearest_layout(x.min(axis=0), x.max(axis=0), mean, variance, sample)
    return replace(layout, filter=None) if filtered is False else layout


def search(
    q, d, q_names, d_names, k, same, layout, bound2=math.inf, cuts=(), order=None
):
    """The same by chunks: both sides cut at `cuts`, each query chunk meets data chunks
    in `order`.
    """
    results = []

    def chunks(x, names):
        bounds = [0, *sorted(min(c, len(x)) for c in cuts), len(x)]
        return [
            build(x[a:b], names[a:b], layout) for a, b in itertools.pairwise(bounds)
        ]

    data = chunks(d, d_names)
    queries = data if q is d else chunks(q, q_names)
    for chunk in queries:
        state = fresh(len(chunk["names"]), k)
        for n in order if order is not None else range(len(data)):
            nearest(chunk, data[n], layout, *state, is_self_join=same, bound2=bound2)
        results.append(state)
    return tuple(np.concatenate(parts) for parts in zip(*results, strict=True))


def check(
    q,
    d,
    k,
    same=False,
    q_names=None,
    d_names=None,
    bound2=math.inf,
    filtered=None,
    **how,
):
    q_names = np.arange(len(q)) if q_names is None else q_names
    d_names = q_names if q is d else np.arange(len(d)) if d_names is None else d_names
    layout = layout_of(q, d, filtered=filtered)
    found = search(q, d, q_names, d_names, k, same, layout, bound2, **how)
    expected = oracle(q, d, q_names, d_names, k, same, bound2)
    np.testing.assert_array_equal(found[1], expected[1])
    np.testing.assert_array_equal(found[0], expected[0])
    return layout


@settings(max_examples=examples(300), deadline=None)
@given(searches())
def test_any_points(case):
    q, d, k, same, q_names, d_names, bound2, filtered, cuts, order = case
    check(q, d, k, same, q_names, d_names, bound2, filtered, cuts=cuts, order=order)


@pytest.mark.skipif(sys.platform != "linux", reason="protects pages as Linux does")
@in_turns(1, filtered=[False, True])
def test_reads_end_with_the_names(filtered):
    """The last tile has fewer rows than lanes, and no memory follows its names."""
    x = make_points("uniform", 3 * TILE + 5, 2, np.random.default_rng(0))
    layout = layout_of(x, filtered=filtered)
    index, expected = build(x, None, layout), fresh(len(x), 3)
    nearest(index, index, layout, *expected, is_self_join=True)
    with fenced(index["names"]) as names:
        found = fresh(len(x), 3)
        index["names"] = names
        nearest(index, index, layout, *found, is_self_join=True)
        np.testing.assert_array_equal(found, expected)


@in_turns(1, dims=every_nth(2, [1, 2, 3, 4, 5, 8]), filtered=[False, True])
def test_lattice_ties(dims, filtered):
    """Many neighbours at the same distance, in tiles whose boxes touch: the smaller
    name wins.
    """
    side = {1: 300, 2: 20, 3: 8, 4: 5, 5: 4, 8: 2}[dims]
    x = np.array(list(itertools.product(range(side), repeat=dims)), float)
    rng = np.random.default_rng(dims)
    x = np.repeat(rng.permutation(x), 2, axis=0) / 3
    names = rng.permutation(len(x))
    for k in (1, 3, 11, 40):
        check(
            x, x, k, True, names, filtered=filtered, cuts=(len(x) // 3,), order=(1, 0)
        )


@in_turns(2, kind=KINDS, dims=[1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 65, 128])
def test_every_kind_in_every_width(kind, dims):
    rng = np.random.default_rng(dims)
    x = make_points(kind, 210, dims, rng)
    check(x, x, 5, True, rng.permutation(210), cuts=(70,))
    check(x[:70], x[70:], 5, filtered=True)


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("dims", [384, 2048])
def test_embeddings(dims, filtered):
    x = np.random.default_rng(0).normal(size=(150, dims))
    layout = check(x, x, 10, True, filtered=filtered)
    assert (layout.filter is not None) == filtered


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 129])
@pytest.mark.parametrize("dims", [2, 6])
def test_few_points_and_many_neighbours(n, dims):
    x = np.random.default_rng(n).uniform(size=(n, dims))
    for k in (1, 70, 300):
        check(x, x, k, True, filtered=True)
        check(x[: n // 2], x, k, filtered=True)


def test_no_neighbours_are_wanted():
    x = np.ones((3, 2))
    assert search(x, x, np.arange(3), np.arange(3), 0, True, layout_of(x))[0].shape == (
        3,
        0,
    )


def test_the_filter_is_left_where_it_cannot_tell_neighbours_apart():
    x = np.random.default_rng(9).uniform(size=(500, 8))
    assert layout_of(x, filtered=None).filter is not None
    x[0] = 1e12
    assert layout_of(x, filtered=None).filter is None
    check(x, x, 5, True, filtered=True)


def test_smallest_names():
    rng = np.random.default_rng(10)
    n = 70 * TILE + 3
    names = rng.permutation(n)
    low = np.zeros((71, 1))
    lower, _, levels = box_tree(low, low)
    least = smallest_names(names, levels)
    assert least.shape == (len(lower), TILE)
    by_tile = [names[t * TILE : (t + 1) * TILE].min() for t in range(71)]
    assert least.ravel()[:71].tolist() == by_tile
    assert least[levels[1], :2].tolist() == [min(by_tile[:64]), min(by_tile[64:])]


def test_narrow_columns_do_not_count_as_dimensions_of_the_filter():
    """Where points differ in few columns, all of the few candidates are soon compared
    in float64.
    """
    rng = np.random.default_rng(0)
    alike, plane = (
        rng.uniform(size=(3000, 12)),
        rng.uniform(size=(3000, 12)) * ([1e3] * 2 + [1.0] * 10),
    )
    layouts = [
        make_nearest_layout(x.min(0), x.max(0), x.mean(0), x.var(0), x[:1000])
        for x in (alike, plane)
    ]
    assert layouts[0].filter is not None and layouts[1].filter is None
    assert wide_dims(alike.var(axis=0)) == pytest.approx(12, rel=0.01)
    assert wide_dims(plane.var(axis=0)) == pytest.approx(2, rel=0.01)
    assert wide_dims(np.zeros(3)) == 3
