"""Joins by k-means clusters: the pairs of the definition with any windows, and what
wrong ones lose.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.errors import OptionError
from dask_simjoin.papers.cluster_index import (
    best_number,
    lloyd,
    make_windows,
    predicted,
    squares,
)
from dask_simjoin.papers.cpu import kmeans
from dask_simjoin.papers.lists import INNER, WINDOWS, KMeans
from dask_simjoin.planning.sample import moments
from tests.engine.cpu.test_joiner import check
from tests.support.method_checks import check_cuts, check_labels, check_norm
from tests.support.oracle import brute_force
from tests.support.points import cases, frame_of, make_points
from tests.support.profiles import chosen, every_nth, examples, pairwise

any_options = st.builds(
    KMeans,
    clusters=st.sampled_from(["auto", 1, 2, 3, 9, 20]),
    iterations=st.sampled_from([0, 1, 15]),
    seed=st.integers(0, 9),
    windows=st.sampled_from(WINDOWS),
    inner=st.sampled_from(INNER),
)


def clus8(rows, seed=0):
    """Ten clusters of 8 columns: the thesis's, of which it does not tell how wide they
    are.
    """
    rng = np.random.default_rng(seed)
    centers = rng.uniform(0, 10, (10, 8))
    return centers[rng.integers(10, size=rows)] + rng.normal(0, 0.3, (rows, 8))


def laid_out(x, eps, options=None, norm=2):
    x = np.asarray(x, float)
    m = moments(x)
    bounds = m.lower, m.upper, m.mean, m.variance
    threshold = eps if norm in (1, math.inf) else eps**norm
    return JOINER.layout(
        options or KMeans(), *bounds, threshold, norm, JoinSample(x, x, len(x))
    )


@settings(max_examples=examples(400))
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    check(case.x, case.eps, case.cuts, method=options)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(
    cases(max_dims=4, max_points=80),
    any_options,
    st.sampled_from(chosen([1, 3, 7, math.inf], [3, 7])),
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


def one_sided(x, labels, centers, eps, share=1.0, beyond=False):
    """Pairs by one-sided windows of a share of eps, for any labels, as often as they
    are met.

    `beyond`: windows are wider by as far as rows of the other label lie on this side of
    the border.
    """
    d2 = squares(x, centers)
    near = squares(x, x) <= eps**2
    found = []
    for j in range(len(centers)):
        own = np.flatnonzero(labels == j)
        found += [
            (a, b) for a, b in itertools.combinations(own.tolist(), 2) if near[a, b]
        ]
        for i in range(j):
            h = (d2[:, j] - d2[:, i]) / (2 * np.linalg.norm(centers[i] - centers[j]))
            more = max(0.0, h[own].max(initial=0.0)) + 1e-9 if beyond else 0.0
            copied = np.flatnonzero((labels == i) & (h <= share * eps + more))
            found += [
                (min(p, q), max(p, q))
                for p in copied.tolist()
                for q in own.tolist()
                if near[p, q]
            ]
    return found


def test_windows_that_are_too_narrow_or_labels_that_are_not_nearest_lose_pairs():
    """So rows are labelled anew in each chunk, and one-sided windows are as wide as
    eps.
    """
    x, eps = clus8(600), 0.8
    centers = lloyd(x, 12, 15, 0)
    labels = squares(x, centers).argmin(axis=1)
    expected = brute_force(x, eps)
    found = one_sided(x, labels, centers, eps)
    # no slack
    assert len(found) == len(set(found)) and abs(len(set(found) ^ expected)) <= 2
    assert set(one_sided(x, labels, centers, eps, 0.5)) < expected
    rng = np.random.default_rng(0)
    wrong = np.where(
        rng.uniform(size=600) < 0.3, rng.integers(len(centers), size=600), labels
    )
    assert len(set(one_sided(x, wrong, centers, eps))) < 0.97 * len(expected)
    for windows in WINDOWS:
        check(x, eps, (200,), method=KMeans(clusters=12, windows=windows))


@pytest.mark.parametrize("norm", every_nth(2, [2, 1, math.inf]))
@pytest.mark.parametrize("windows", WINDOWS)
def test_windows_are_as_wide_as_pairs_across_a_border_need(windows, norm):
    """The border is at 0. Some pairs are almost eps apart, and one of their rows is
    almost on the border.
    """
    far = 1.0 - np.linspace(1e-3, 0.1, 12)
    near = 1.0 - 1e-9 - far
    x = np.concatenate([[-8.0] * 50, [8.0] * 50, -far, near, far, -near])
    x = np.stack([x, np.zeros(len(x))], axis=1)
    layout = laid_out(x, 1.0, KMeans(clusters=2, windows=windows), norm)
    index = JOINER.build(x, layout)
    pairs = JOINER.pairs(index, index, layout, is_self_join=True)
    assert len(pairs.left) == len(brute_force(x, 1.0, "minkowski", norm))


def test_without_an_owner_two_sided_windows_repeat_pairs():
    """Rows near a border are in both clusters, where they meet twice."""
    x = clus8(600)
    for windows, share in (("two-sided", 0.5), ("thesis", 1.0)):
        layout = laid_out(x, 0.8, KMeans(clusters=12, windows=windows))
        index = JOINER.build(x, layout)
        near = squares(index["y"], index["y"]) <= 0.64
        met = []
        for c in range(len(layout.centers)):
            copied = kmeans.near(index, layout, c, len(layout.centers), share).tolist()
            members = sorted([*range(*index["starts"][c : c + 2]), *copied])
            met += [two for two in itertools.combinations(members, 2) if near[two]]
        expected = len(brute_force(x, 0.8))
        assert len(met) > 1.05 * expected and abs(len(set(met)) - expected) <= 2
        pairs = JOINER.pairs(index, index, layout, is_self_join=True)
        assert len(pairs.left) == expected


def test_auto_takes_about_the_best_number():
    x = clus8(4000)
    gap = make_windows(x.min(0), x.max(0), 0.25, 2).gap
    scaled = (x - x.mean(0)) * make_windows(x.min(0), x.max(0), 0.25, 2).scale
    costs = {
        k: predicted(scaled, 50_000.0, lloyd(scaled, k, 5, 0), gap)
        for k in (1, 4, 16, 64, 256)
    }
    number = best_number(scaled, 50_000.0, gap, 0)
    assert 8 <= number <= 256
    assert predicted(scaled, 50_000.0, lloyd(scaled, number, 5, 0), gap) <= min(
        costs.values()
    )
    assert best_number(scaled, 10.0, gap, 0) < number
    assert len(laid_out(x, 0.5).centers) > 1


@pairwise(
    kind=["uniform", "offset", "huge", "tiny", "lattice", "outlier"],
    dims=[1, 3, 50],
    norm=chosen([2, 1, 5, math.inf], [2]),
)
def test_each_row_of_a_pair_is_in_the_window_of_the_others_cluster(dims, kind, norm):
    """Ties at eps among them: the window may not be a unit in the last place too
    narrow.
    """
    x = make_points(kind, 120, dims, np.random.default_rng(dims))
    if kind == "huge" or norm == 5:
        x = x / max(1.0, np.abs(x).max() / 1e60)
    totals = sum(
        np.abs(x[:, None, k] - x[None, :, k]) ** min(norm, 5) for k in range(dims)
    )
    if norm == math.inf:
        totals = np.abs(x[:, None] - x[None]).max(-1)
    threshold = float(np.sort(totals.ravel())[1500])
    m = moments(x)
    bounds = m.lower, m.upper, m.mean, m.variance
    layout = JOINER.layout(
        KMeans(clusters=9), *bounds, threshold, norm, JoinSample(x, x, len(x))
    )
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    places = np.argsort(index["order"][:120])
    label = np.searchsorted(index["starts"], np.arange(120), side="right") - 1
    inside = [
        set(kmeans.near(index, layout, j, len(layout.centers), 1.0))
        for j in range(len(layout.centers))
    ]
    apart = 0
    for one, other in zip(places[found.left], places[found.right], strict=True):
        if label[one] != label[other]:
            assert one in inside[label[other]] and other in inside[label[one]]
            apart += 1
    assert apart or kind in ("lattice", "outlier", "tiny", "offset") or dims == 1


def test_centers_differ_and_are_within_the_box():
    x = np.repeat(np.random.default_rng(0).uniform(size=(3, 2)), 30, axis=0)
    layout = laid_out(x, 0.1, KMeans(clusters=20))
    assert len(layout.centers) <= 3 and len(np.unique(layout.centers, axis=0)) == len(
        layout.centers
    )
    assert (layout.centers >= x.min(0)).all() and (layout.centers <= x.max(0)).all()
    assert len(laid_out(np.zeros((5, 2)), 0.1, KMeans(clusters=4)).centers) == 1
    assert len(lloyd(clus8(500), 17, 15, 3)) <= 17


@pytest.mark.slow
def test_dbscan_and_two_tables_are_those_of_other_methods(how):
    both = zip(WINDOWS, (*INNER, "tiles"), strict=True)
    check_labels(
        how,
        [KMeans(clusters=8, windows=windows, inner=inner) for windows, inner in both],
    )


def test_profile_and_plan():
    frame = frame_of(clus8(3000))
    told = frame.simjoin.profile(0.5, method=KMeans(clusters=20)).numbers
    assert told["pairs"] == frame.simjoin.count_pairs(0.5)
    assert 10 <= told["clusters"] <= 20 and told["copies"] > 0
    assert 3000 / 20 <= told["largest_cluster"] < 3000 and told["compared_ratio"] < 0.3
    text = repr(frame.simjoin.plan(0.5, method=KMeans(clusters=5, inner="nested_loop")))
    assert "5 k-means clusters; one-sided windows; nested loops" in text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clusters", 0),
        ("clusters", "many"),
        ("clusters", np.arange(2)),
        ("clusters", 5000),
        ("iterations", -1),
        ("seed", 0.5),
        ("windows", "none"),
        ("inner", "sweep"),
    ],
)
def test_options_are_checked(name, value):
    with pytest.raises(OptionError, match=rf"KMeans\({name}="):
        KMeans(**{name: value})
