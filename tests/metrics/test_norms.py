"""Every norm's joins and searches give what its totals say: pure functions, and a few
verbs.
"""

import itertools
import math
from fractions import Fraction

import dask
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.catalog import METHODS
from dask_simjoin.engine.cpu import joiner as cpu
from dask_simjoin.engine.cpu import nearest as cpu_nearest
from dask_simjoin.engine.cpu import sinks as cpu_buffers
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.index.kdtree import make_regions
from dask_simjoin.metrics import Metric, norms
from dask_simjoin.planning import searches
from dask_simjoin.planning.sample import moments
from dask_simjoin.request.spec import JoinSpec
from tests.support.frames import split
from tests.support.oracle import as_set
from tests.support.oracle import totals as totals_of
from tests.support.points import cases, frame_of, make_points
from tests.support.profiles import every_nth, everything, examples, in_turns

SWEEP_MAX_DIMS = METHODS["sweep"].max_dims

NORMS = [1, 3, 5, math.inf]
POWERS = [2, *NORMS, 4, 7, 64]


def compiled(norm, method, dims=1):
    """Whether there is a test of a norm with a method: methods of papers are compiled for
    few norms by default.
    """
    if method == "sweep" and dims > SWEEP_MAX_DIMS:
        return False
    return everything() or method in ("sweep", "tiles") or norm == 2


def totals(x, y, norm):
    return totals_of(x, y, "minkowski", norm)


def layout_of(x, threshold, norm, method="auto"):
    m = moments(np.asarray(x, float))
    sides = (
        (m.lower, m.upper, m.mean, m.variance)
        if len(x)
        else (np.zeros(x.shape[1]),) * 4
    )
    return JOINER.layout(method, *sides, threshold, norm)


def same_total(total):
    """The distance that is returned; what is given may be written to."""
    return total


def matrix(n, m, left, right):
    """How often each of n times m pairs was found."""
    found = np.zeros((n, m), np.int64)
    np.add.at(found, (left, right), 1)
    return found


def check_labels(q, d, layout, want, total, same, parts):
    """Rows by labels, and what is kept of them, of all pairs and of those of parts."""
    n, m = total.shape
    positions = [side["order"][:k].astype(np.int64) for side, k in ((q, n), (d, m))]
    labels = positions[0] * 3 + 7, positions[1] * 3 + 7
    for kept in (None, [[positions[0]], [positions[1]]]):
        for distance in (None, same_total):
            found = np.zeros((n, m), np.int64)
            for rows in parts:
                pairs = JOINER.pairs(
                    q,
                    d,
                    layout,
                    is_self_join=same,
                    labels=labels,
                    rows=rows,
                    kept=kept,
                    distance=distance,
                )
                left, right = (pairs.left - 7) // 3, (pairs.right - 7) // 3
                found += matrix(n, m, left, right)
                if kept is not None:
                    np.testing.assert_array_equal(pairs.kept[0], left)
                    np.testing.assert_array_equal(pairs.kept[1], right)
                if distance is not None:
                    np.testing.assert_array_equal(pairs.distance, total[left, right])
            np.testing.assert_array_equal(found, want * (2 if len(parts) > 1 else 1))


def check_pair_of_indexes(q, d, layout, total, same, some):
    """Everything a joiner says of the pairs of two indexes, or of one with itself."""
    n, m = total.shape
    near = total <= layout.threshold
    want = np.triu(near, 1) if same else near
    pairs = JOINER.pairs(q, d, layout, is_self_join=same, distance=same_total)
    np.testing.assert_array_equal(matrix(n, m, pairs.left, pairs.right), want)
    np.testing.assert_array_equal(pairs.distance, total[pairs.left, pairs.right])
    counts = JOINER.counts(q, d, layout, is_self_join=same)
    if same:
        np.testing.assert_array_equal(counts[0], near.sum(1) - 1)
    else:
        np.testing.assert_array_equal(counts[0], near.sum(1))
        np.testing.assert_array_equal(counts[1], near.sum(0))
    weights = JOINER.weights(q, d, layout, is_self_join=same)
    found = []
    places = sorted(
        {min(n, n * s // 3 // layout.grain * layout.grain) for s in range(3)} | {n}
    )
    for start, stop in itertools.pairwise(places):
        part = JOINER.pairs(q, d, layout, is_self_join=same, rows=(start, stop))
        assert weights[start:stop].sum() == len(part.left)
        found.append(part)
    if found:
        left, right = (np.concatenate([part[k] for part in found]) for k in range(2))
        np.testing.assert_array_equal(matrix(n, m, left, right), want)
    check_labels(q, d, layout, want, total, same, [None, *itertools.pairwise(places)])
    if not some:
        return
    shown = np.zeros((n, m), np.int64)

    def visitor(left, right, values):
        np.testing.assert_array_equal(values, total[left, right])
        np.add.at(
            shown,
            (np.minimum(left, right), np.maximum(left, right))
            if same
            else (left, right),
            1,
        )

    JOINER.visit(q, d, layout, visitor, is_self_join=same)
    np.testing.assert_array_equal(shown, want)


def check(x, threshold, norm, cuts=(), method="auto", some=True):
    x = np.asarray(x)
    layout = layout_of(x, threshold, norm, method)
    total = totals(x, x, norm)
    bounds = [0, *cuts, len(x)]
    chunks = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    indexes = [JOINER.build(np.asfortranarray(x[c], float), layout) for c in chunks]
    for i, j in itertools.combinations_with_replacement(range(len(chunks)), 2):
        check_pair_of_indexes(
            indexes[i], indexes[j], layout, total[chunks[i], chunks[j]], i == j, some
        )
    return layout


def a_total(x, norm, rng, rank, ulps=0):
    """The total of two of the points, `ulps` units in the last place off."""
    if len(x) < 2:
        return 1.0
    total = totals(x, x, norm)[np.triu_indices(len(x), 1)]
    place = int(rank * (len(total) - 1))
    threshold = float(np.partition(total, place)[place])
    for _ in range(abs(ulps)):
        threshold = max(
            0.0, math.nextafter(threshold, math.inf if ulps > 0 else -math.inf)
        )
    return threshold


@st.composite
def normed(draw, max_dims=128):
    """Hard points, a norm, and a threshold that is a total of two of them, or nearly;
    and where to cut.
    """
    case = draw(cases(max_dims=max_dims, max_points=100))
    norm = draw(st.sampled_from(NORMS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    choice = draw(st.sampled_from(["a total", "a total", "a power", "zero", "all"]))
    threshold = {
        "zero": 0.0,
        "all": math.inf,
        "a power": float(norms.power(2.0, norm)),
    }.get(choice)
    if threshold is None:
        rank = draw(st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]))
        threshold = a_total(
            case.x, norm, rng, rank, draw(st.sampled_from([-1, 0, 0, 1]))
        )
    methods = ["auto", "tiles", "sweep"][
        : 3 if case.x.shape[1] <= SWEEP_MAX_DIMS else 2
    ]
    return case.x, threshold, norm, case.cuts[:2], draw(st.sampled_from(methods))


@settings(max_examples=examples(200))
@given(normed())
def test_any_points(case):
    check(*case, some=False)


@settings(max_examples=examples(60))
@given(normed(max_dims=SWEEP_MAX_DIMS))
def test_few_dimensions(case):
    check(*case)


@in_turns(
    3,
    compiled,
    norm=[2, *NORMS],
    dims=[1, 2, 4, 6],
    method=list(METHODS),
)
def test_lattice_ties(norm, dims, method):
    """Many pairs whose total is the threshold, or next to it."""
    side = {1: 100, 2: 12, 4: 4, 6: 3}[dims]
    x = (
        np.random.default_rng(0).permutation(
            list(itertools.product(range(side), repeat=dims))
        )
        / 3
    )
    some = np.unique(totals(x[:1], x, norm))
    for total in some[1 : 4 if everything() else 2].tolist():
        for threshold in (math.nextafter(total, 0), total, math.nextafter(total, 9)):
            check(x[:500], threshold, norm, (150,), method, some=False)


@in_turns(
    2,
    lambda kind, **how: compiled(**how),
    norm=NORMS,
    kind=every_nth(
        2, ["huge", "tiny", "offset", "duplicates", "scales", "outlier", "constant"]
    ),
    method=list(METHODS),
)
def test_extreme_points(norm, kind, method):
    rng = np.random.default_rng(1)
    for dims in (1, 3, 17) if method == "tiles" else (1, 3):
        x = make_points(kind, 90, dims, rng)
        for rank in (0.0, 0.05, 1.0):
            check(x, a_total(x, norm, rng, rank), norm, (30,), method, some=False)


@in_turns(3, compiled, norm=[2, *NORMS], method=list(METHODS))
def test_totals_that_overflow(norm, method):
    """They are pairs only where the threshold is infinite, and then all are."""
    x = np.array([-1.7e308, 1.7e308, -1e300, 0.0, 1e300])[
        np.random.default_rng(0).integers(0, 5, (150, 3))
    ]
    assert np.isinf(totals(x, x, norm)).any()
    for threshold in (0.0, 1e308, math.nextafter(math.inf, 0), math.inf):
        layout = check(x, threshold, norm, (64,), method)
    index = JOINER.build(x, layout)
    assert (
        len(JOINER.pairs(index, index, layout, is_self_join=True).left)
        == 150 * 149 // 2
    )


@in_turns(2, compiled, norm=NORMS, method=list(METHODS))
def test_two_sets_of_points(norm, method):
    """Of other places and other sizes, in either direction."""
    rng = np.random.default_rng(2)
    q, d = rng.uniform(size=(70, 3)), rng.uniform(0.5, 1.5, (300, 3))
    threshold = float(np.quantile(totals(q, d, norm), 0.02))
    layout = layout_of(np.concatenate([q, d]), threshold, norm, method)
    sides = [(side, JOINER.build(side, layout)) for side in (q, d)]
    for (x, first), (y, second) in itertools.permutations(sides):
        check_pair_of_indexes(first, second, layout, totals(x, y, norm), False, True)


@in_turns(2, compiled, norm=NORMS, method=list(METHODS))
def test_results_longer_than_the_first_segment(norm, method, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_CAPACITY", 64)
    monkeypatch.setattr(cpu, "CAPACITY_PER_POINT", 1)
    monkeypatch.setattr(cpu_buffers, "MIN_PART", 5000)
    x = np.random.default_rng(3).uniform(size=(400, 3))
    check(x, a_total(x, norm, None, 0.3), norm, (150,), method)


@pytest.mark.parametrize("norm", NORMS)
def test_more_tiles_than_one_group_of_boxes(norm):
    """A tree of boxes against the sweep: over 64 tiles of 64 points."""
    x = np.random.default_rng(4).uniform(size=(20_000, 3))
    threshold = float(norms.power(0.02, norm))
    found = []
    for method in ("sweep", "tiles"):
        layout = layout_of(x, threshold, norm, method)
        index = JOINER.build(x, layout)
        pairs = JOINER.pairs(index, index, layout, is_self_join=True)
        found.append(np.sort(pairs.left.astype(np.int64) * len(x) + pairs.right))
    assert len(found[0]) > 100
    np.testing.assert_array_equal(*found)


# --- regions
# ----------------------------------------------------------------------------------------


@settings(max_examples=examples(80))
@given(normed(max_dims=6))
def test_halos(case):
    """A point is sent to the regions of lower numbers whose box is within the
    threshold, so pairs meet.
    """
    x, threshold, norm, *_ = case
    x = np.asarray(x, float)
    if not len(x) or not np.isfinite(x.max(0) - x.min(0)).all():
        return
    away = norms.reach(norm, threshold)
    regions = make_regions(x, np.ones(len(x)), x.min(0), x.max(0), away, 10, 16)
    own, rows, needing = JOINER.regions(
        np.asfortranarray(x), regions, away, threshold, norm
    )
    low, high = regions.lower, regions.upper
    gap = norms.box_gap(norm, x[:, None], x[:, None], low[None], high[None])
    assert (gap[np.arange(len(x)), own] == 0).all()
    found = matrix(len(x), len(regions), rows, needing)
    np.testing.assert_array_equal(
        found, (gap <= threshold) & (np.arange(len(regions)) < own[:, None])
    )
    *_, rows, needing = JOINER.regions(
        np.asfortranarray(x), regions, away, threshold, norm, everywhere=True
    )
    np.testing.assert_array_equal(
        matrix(len(x), len(regions), rows, needing), gap <= threshold
    )
    *_, rows, needing = JOINER.regions(
        np.asfortranarray(x), regions, away, threshold, norm, mutual=True
    )
    mutual = (gap <= threshold) & (np.arange(len(regions)) != own[:, None])
    np.testing.assert_array_equal(matrix(len(x), len(regions), rows, needing), mutual)
    left, right = np.nonzero(totals(x, x, norm) <= threshold)
    across = own[left] < own[right]
    assert found[right[across], own[left[across]]].all()


# --- bounds
# -----------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(normed(max_dims=6))
def test_twice_bounds_the_total_of_rows_near_a_third_row(case):
    x, threshold, norm, *_ = case
    x = np.asarray(x, float)
    if len(x):
        found = totals(x, x, norm)
        near = found <= threshold
        linked = (near[:, :, None] & near[None, :, :]).any(axis=1)
        assert (found[linked] <= norms.twice(norm, threshold)).all()


@pytest.mark.parametrize("norm", [1, 2, 3, math.inf])
@pytest.mark.parametrize("eps", [0.0, 1e-170, 1e-100, 0.1, 7.0, 1e100, 1e200])
def test_twice_of_rows_on_a_line(norm, eps):
    """Also where totals underflow or overflow; and not much more than twice where they
    do not.
    """
    with np.errstate(over="ignore"):
        threshold, double = (
            float(norms.power(np.float64(some), norm)) for some in (eps, 2 * eps)
        )
    found = norms.twice(norm, threshold)
    assert found >= double
    if 1e-150 < threshold < 1e150:
        assert found <= double * (1 + 2.0**-25)


@settings(max_examples=examples(300))
@given(st.floats(0, 1e308), st.sampled_from([*POWERS, 11, 100, 1000]))
def test_reach_is_the_largest_difference(a, norm):
    """No difference whose power is within a threshold is larger, as computed; nor much
    smaller ones.
    """
    total = float(norms.power(a, norm))
    reach = norms.reach(norm, total)
    assert a <= reach
    if norm != math.inf and 1e-290 < total < math.inf:
        assert reach <= a * (1 + 2.0**-30)
    for below in (math.nextafter(total, 0), total / 2):
        # the largest number whose power is at most that, by bisection
        low, high = 0.0, a
        for _ in range(120):
            middle = low + (high - low) / 2
            low, high = (
                (middle, high) if norms.power(middle, norm) <= below else (low, middle)
            )
        assert low <= norms.reach(norm, below)


@settings(max_examples=examples(300))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(POWERS),
    st.sampled_from([1e-160, 1.0, 1e120, 1e308]),
)
def test_gaps_of_boxes_bound_totals(seed, norm, scale):
    rng = np.random.default_rng(seed)
    x = (rng.uniform(size=(2, 8, 5)) + rng.uniform(-2, 2, (2, 1, 5)).round()) * (
        scale / 4
    )
    lower, upper = x.min(axis=1), x.max(axis=1)
    gap = norms.box_gap(norm, lower[0], upper[0], lower[1], upper[1])
    assert gap == norms.box_gap(norm, lower[1], upper[1], lower[0], upper[0])
    assert gap <= totals(x[0], x[1], norm).min()


@pytest.mark.parametrize("norm", [3, 5, 7, 64])
def test_powers_err_by_less_than_is_assumed(norm):
    """By one rounding a factor at most, so that a p-th root of it is about one
    rounding.
    """
    for a in np.random.default_rng(6).uniform(0.5, 2, 200).tolist():
        exact = Fraction(a) ** norm
        assert abs(Fraction(norms.power(a, norm)) - exact) <= exact * Fraction(
            norm, 2**53
        )


# --- nearest neighbours
# -----------------------------------------------------------------------------


def nearest_by_definition(q, d, q_names, d_names, k, norm, bound):
    best, names = np.full((len(q), k), np.inf), np.full((len(q), k), -1)
    total = totals(q, d, norm)
    for i in range(len(q)):
        kept = np.flatnonzero((total[i] <= bound) & (d_names != q_names[i]))
        kept = kept[np.lexsort((d_names[kept], total[i, kept]))][:k]
        best[i, : len(kept)], names[i, : len(kept)] = total[i, kept], d_names[kept]
    return best, names


def searched(searcher, x, names, k, norm, bound, cuts):
    """Each row's nearest, chunk by chunk; the last chunk first."""
    m = moments(x)
    layout = searcher.layout(m.lower, m.upper, m.mean, m.variance, x, norm)
    bounds = [0, *cuts, len(x)]
    chunks = []
    for a, b in itertools.pairwise(bounds):
        chunks.append(searcher.renamed(JOINER.build(x[a:b], layout), names[a:b]))
    states = []
    for chunk in chunks:
        states.append(searcher.fresh(len(chunk["order"]), k))
        for other in chunks[::-1]:
            searcher.nearest(
                chunk, other, layout, *states[-1], is_self_join=True, bound2=bound
            )
    return tuple(np.concatenate(parts) for parts in zip(*states, strict=True))


@settings(max_examples=examples(60))
@given(case=normed(max_dims=20), k=st.sampled_from([1, 4, 40]), bounded=st.booleans())
def test_nearest_neighbours(case, k, bounded):
    x, threshold, norm, cuts, _ = case
    x = np.asarray(x, float)
    if not len(x):
        return
    names = np.random.default_rng(len(x)).permutation(2 * len(x))[: len(x)]
    bound = threshold if bounded else math.inf
    want = nearest_by_definition(x, x, names, names, k, norm, bound)
    found = searched(cpu_nearest.SEARCHER, x, names, k, norm, bound, cuts)
    np.testing.assert_array_equal(found[0], want[0])
    np.testing.assert_array_equal(found[1], want[1])


@pytest.mark.parametrize("norm", POWERS)
def test_far_ends_of_boxes_bound_neighbours(norm):
    rng = np.random.default_rng(7)
    x = make_points("clusters", 300, 3, rng)
    some = np.sort(rng.choice(300, 100, replace=False))
    boxes = [slice(k, k + 60) for k in range(0, 300, 60)]
    lower, upper = (
        np.array([f(x[b], axis=0) for b in boxes]) for f in (np.min, np.max)
    )
    total = totals(x, x, norm)
    np.fill_diagonal(total, -1.0)
    total.sort(axis=1)
    for k in (1, 7):
        for box, limit in zip(
            boxes, searches.largest_totals(x[some], lower, upper, k, norm), strict=True
        ):
            assert (total[box, k] <= limit).all()


# --- verbs
# ------------------------------------------------------------------------------------------


class Total(Metric):
    """The distance is the total itself."""

    def threshold(self, eps):
        return eps

    def distance(self, total, xp, kernels=None):
        return total


@in_turns(1, partitioning=["entity", "spatial"], norm=list(NORMS))
def test_verbs(norm, partitioning, monkeypatch):
    """A plan's chunks, halos and blocks go by the norm too."""
    monkeypatch.setattr(JoinSpec, "measure", property(lambda self: Total(norm)))
    x = make_points("clusters", 400, 2, np.random.default_rng(NORMS.index(norm)))
    total = totals(x, x, norm)
    eps = a_total(x, norm, None, 0.03)
    near = total <= eps
    want = {(a, b) for a, b in np.argwhere(np.triu(near, 1)).tolist()}
    frame = split(frame_of(x), (100, 250))
    how = {"partitioning": partitioning, "blocksize": 90 * 30}
    with dask.config.set(scheduler="sync"):
        lazy = frame.simjoin.self_join(eps, return_distance=True, **how)
        pairs = lazy.compute()
        assert len(lazy.expr.plan.chunks) > 2
        assert as_set(pairs) == want
        assert (total[pairs.left, pairs.right] == pairs.distance).all()
        assert (
            frame.simjoin.neighbor_counts(eps, **how).compute().tolist()
            == (near.sum(1) - 1).tolist()
        )
        labels = frame.simjoin.dbscan(eps, min_samples=4, **how).compute().tolist()
    assert labels == frame_of(x).simjoin.dbscan(eps, min_samples=4).tolist()
    sklearn_cluster = pytest.importorskip("sklearn.cluster")
    tool = sklearn_cluster.DBSCAN(eps=0.5, min_samples=4, metric="precomputed")
    assert labels == tool.fit(1.0 - near).labels_.tolist()
