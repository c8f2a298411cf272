"""Joins by lists in Z-order: the pairs of the definition with any options, and the
paper's intervals.
"""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu import sinks
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.papers.cpu import zorder as method
from dask_simjoin.papers.cpu.zorder import intervals, keys, sort
from dask_simjoin.papers.lists import OUTPUTS, SIDES, WALKS, ZOrder
from dask_simjoin.planning.sample import moments
from tests.engine.cpu.test_joiner import check
from tests.support.method_checks import check_cuts, check_labels, check_norm
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import KINDS, cases, frame_of, make_points
from tests.support.profiles import chosen, examples

any_options = st.builds(
    ZOrder,
    lists=st.sampled_from(["auto", "d+1", "log", 1, 2]),
    shifts=st.sampled_from(["even", "random"]),
    seed=st.integers(0, 9),
    walk=st.sampled_from(WALKS),
    index=st.sampled_from(SIDES),
    output=st.sampled_from(OUTPUTS),
    words=st.integers(1, 4),
)


def laid_out(x, eps, options=None, norm=2):
    m = moments(np.asarray(x, float))
    bounds = m.lower, m.upper, m.mean, m.variance
    return JOINER.layout(
        options or ZOrder(), *bounds, eps if norm in (1, math.inf) else eps**norm, norm
    )


@settings(max_examples=examples(400))
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    check(case.x, case.eps, case.cuts, method=options)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    cases(max_dims=4, max_points=60),
    any_options,
    st.sampled_from(chosen([1, 3, math.inf], [3])),
)
def test_other_norms(case, options, norm):
    check_norm(case.x, case.eps, options, norm, norm)


@settings(max_examples=examples(60))
@given(cases(max_dims=6), any_options, st.integers(0, 160), st.integers(0, 160))
def test_any_cut_of_queries_gives_each_pair_once(case, options, a, b):
    x = np.asarray(case.x, float)
    if len(x):
        cuts = sorted({0, min(a, len(x)), min(b, len(x)), len(x)})
        check_cuts(JOINER, x, case.eps, laid_out(x, case.eps, options), cuts)


@pytest.mark.parametrize("words", [1, 2, 4])
@pytest.mark.parametrize("dims", [1, 2, 3, 16, 64, 65, 130, 300])
@pytest.mark.parametrize("kind", ["uniform", "huge", "constant", "scales"])
def test_keys_never_fall_where_no_coordinate_does(dims, words, kind):
    """Dominance, lemma 4.1, with coordinates outside the box and infinite ones."""
    rng = np.random.default_rng(dims)
    x = make_points(kind, 300, dims, rng)
    layout = laid_out(x, 1.0, ZOrder(words=words, lists=3))
    size = np.ptp(x, axis=0)
    low = x * np.where(rng.uniform(size=x.shape) < 0.2, 3.0, 1.0)
    high = low + np.where(
        rng.uniform(size=x.shape) < 0.5, 0.0, rng.uniform(size=x.shape) * size
    )
    high[::7] = np.where(rng.uniform(size=high[::7].shape) < 0.3, np.inf, high[::7])
    low[::5] = np.where(rng.uniform(size=low[::5].shape) < 0.3, -np.inf, low[::5])
    for shift in layout.shifts:
        pairs = zip(
            keys(low, layout, shift).tolist(),
            keys(high, layout, shift).tolist(),
            strict=True,
        )
        assert all(a <= b for a, b in pairs)


@settings(max_examples=examples(50))
@given(cases(max_dims=6), any_options)
def test_rows_outside_the_box_that_keys_are_of(case, options):
    """The layout knows of half of the rows: the others' cells are the outermost ones."""
    x = np.asarray(case.x, float)
    if len(x) < 2:
        return
    layout = laid_out(x[: len(x) // 2], case.eps, options)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    got = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
    assert_same_pairs(got, brute_force(x, case.eps))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [1, 3, 70])
def test_every_pair_is_in_the_interval_of_each_list(kind, dims):
    x = make_points(kind, 120, dims, np.random.default_rng(dims))
    d2 = (
        ((x[:, None] - x[None]) ** 2).sum(-1)
        if kind != "huge"
        else np.zeros((120, 120))
    )
    eps = math.sqrt(np.partition(d2.ravel(), 1200)[1200])
    pairs = brute_force(x, eps)
    layout = laid_out(x, eps, ZOrder(lists=5))
    for shift in layout.shifts:
        own = keys(x, layout, shift)
        low, high = (
            keys(x, layout, shift, side * layout.corner).tolist() for side in (-1, 1)
        )
        own = own.tolist()
        assert all(
            low[a] <= own[b] <= high[a] and low[b] <= own[a] <= high[b]
            for a, b in pairs
        )


def test_rows_that_coincide_pair_once_in_a_half_interval():
    """Places, not keys, tell which of two equal rows comes first."""
    x = np.repeat(np.random.default_rng(0).uniform(size=(30, 3)), 9, axis=0)
    for walk in WALKS:
        check(x, 0.0, (100,), method=ZOrder(walk=walk, lists=3))
    check(np.zeros((70, 2)), 0.0, (), method=ZOrder(walk="half"))


@pytest.mark.parametrize("ulps", [-1, 0, 1])
def test_corners_are_as_far_out_as_rounding_takes_a_pair(ulps):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (3000, 1)) + rng.choice([0.0, 1e3, 1e9], (3000, 1))
    eps = 0.1
    for _ in range(abs(ulps)):
        eps = math.nextafter(eps, ulps * math.inf)
    near = np.concatenate([x, x + 0.1, x - 0.1])
    layout = laid_out(near, eps, ZOrder(lists=1))
    low, high = (
        keys(near, layout, 0.0, side * layout.corner)[:, 0] for side in (-1, 1)
    )
    own = keys(near, layout, 0.0)[:, 0]
    n = len(x)
    for a, b in ((0, n), (0, 2 * n)):
        t = near[a : a + n, 0] - near[b : b + n, 0]
        pairs = np.flatnonzero(t * t <= eps * eps) + a
        assert len(pairs) > 100
        others = pairs - a + b
        assert (low[pairs] <= own[others]).all() and (own[others] <= high[pairs]).all()


def test_ordered_pairs_are_in_order_whatever_the_buffer_holds(monkeypatch):
    monkeypatch.setattr(sinks, "MIN_PART", 500)
    x = np.random.default_rng(1).uniform(size=(800, 2))
    frame = frame_of(x)
    for how in ({}, {"return_distance": True}):
        found = frame.simjoin.self_join(
            0.1, method=ZOrder(output="ordered", lists=5), **how
        )
        rows = found[["left", "right"]].to_numpy().tolist()
        assert rows == sorted(map(list, brute_force(x, 0.1))) and len(rows) > 5000
    staged = frame.simjoin.self_join(0.1, method=ZOrder(lists=5))
    assert staged.to_numpy().tolist() != rows
    assert sorted(staged.to_numpy().tolist()) == rows


@pytest.mark.parametrize("index", SIDES)
def test_two_tables_sort_one_side(index, monkeypatch):
    sorted_rows = []

    def noted(found):
        sorted_rows.append(len(found))
        return sort(found)

    monkeypatch.setattr("dask_simjoin.papers.cpu.zorder.sort", noted)
    x = np.random.default_rng(3).exponential(1.0, (900, 3))
    one, other = frame_of(x[:300]), frame_of(x[300:])
    for left, right in ((one, other), (other, one)):
        expected = left.simjoin.join(right, 0.2, method="tiles", return_distance=True)
        sorted_rows.clear()
        found = left.simjoin.join(
            right, 0.2, method=ZOrder(index=index, lists=3), return_distance=True
        )
        key = ["left", "right"]
        assert (
            found.sort_values(key).to_numpy().tolist()
            == expected.sort_values(key).to_numpy().tolist()
        )
        smaller = min(len(left), len(right))
        assert set(sorted_rows) == {
            {"left": len(left), "right": len(right), "smaller": smaller}[index]
        }


@pytest.mark.slow
def test_dbscan_is_that_of_other_methods(how):
    check_labels(how, [ZOrder(walk=walk) for walk in ("full", "half")], tables=False)


def test_profile_and_plan():
    frame = frame_of(np.random.default_rng(0).uniform(size=(3000, 4)))
    full, half = (
        frame.simjoin.profile(0.1, method=ZOrder(lists=5, walk=walk)).numbers
        for walk in ("full", "half")
    )
    pairs = frame.simjoin.count_pairs(0.1)
    assert full["pairs"] == half["pairs"] == pairs
    assert (
        full["comparisons"] < full["candidates"] == round(3000 * full["interval_mean"])
    )
    assert half["comparisons"] == half["candidates"] > full["candidates"]
    assert (
        full["half_walk"],
        half["half_walk"],
        half["walked_lists"],
        full["lists"],
    ) == (0, 1, 1, 5)
    assert full["interval_median"] <= full["interval_p99"] <= full["interval_max"]
    assert full["compared_ratio"] < 0.2
    text = repr(frame.simjoin.plan(0.1, method=ZOrder(lists=5)))
    assert (
        "5 lists in Z-order, even shifts; 16 bits of 4 of 4 columns; walk auto" in text
    )


def test_a_half_walk_is_taken_where_boxes_hold_much():
    """Of uniform rows of 16 columns from about eps = .3 on, and never where intervals
    are short.
    """
    x = np.random.default_rng(0).uniform(size=(4000, 16))
    walks = [
        intervals(x, x, laid_out(x, eps, ZOrder(lists="d+1")), True).half
        for eps in (0.05, 0.5)
    ]
    assert walks == [False, True]
    assert method.end({"y": x}, 5, laid_out(x, 0.1)) == 4000
