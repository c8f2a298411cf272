"""The GPU's kernels give the pairs of every norm: pure functions, no Dask, no data
frames.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.cpu.joiner import JOINER as CPU
from dask_simjoin.engine.gpu import tiles as gpu_tiles
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.kdtree import make_regions
from dask_simjoin.metrics import norms
from dask_simjoin.planning.sample import moments
from dask_simjoin.tasks.counts import component_roots, new_nodes
from tests.support.gpu_programs import SINKS, USES, join_programs
from tests.support.oracle import totals as totals_of
from tests.support.points import KINDS, cases, make_points
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

NORMS = [1, 3, 5, math.inf]
DIMS = [1, 3, 17]
"""Points in registers and in memory: every number of dimensions is compiled by itself.
"""


def programs():
    found = [
        one
        for norm in NORMS
        for one in join_programs(DIMS, ["float64"], USES, norm, [False])
    ]
    return found + [
        one
        for norm in NORMS
        for one in join_programs([3], ["float64"], SINKS[::2], norm, [])
    ]


def totals(x, y, norm):
    return totals_of(x, y, "minkowski", norm)


def layout_of(x, threshold, norm):
    m = moments(np.asarray(x, float))
    sides = (
        (m.lower, m.upper, m.mean, m.variance)
        if len(x)
        else (np.zeros(x.shape[1]),) * 4
    )
    return JOINER.layout("auto", *sides, threshold, norm)


def built(x, layout):
    return JOINER.build(cupy.asfortranarray(cupy.asarray(np.asarray(x, float))), layout)


def matrix(n, m, left, right):
    """How often each of n times m pairs was found."""
    found = np.zeros((n, m), np.int64)
    np.add.at(found, (left.get(), right.get()), 1)
    return found


def check_pair_of_indexes(q, d, layout, total, same):
    n, m = total.shape
    near = total <= layout.threshold
    want = np.triu(near, 1) if same else near
    pairs = JOINER.pairs(q, d, layout, is_self_join=same, distance=lambda found: found)
    np.testing.assert_array_equal(matrix(n, m, pairs.left, pairs.right), want)
    np.testing.assert_array_equal(
        pairs.distance.get(), total[pairs.left.get(), pairs.right.get()]
    )
    counts = [count.get() for count in JOINER.counts(q, d, layout, is_self_join=same)]
    np.testing.assert_array_equal(counts[0], near.sum(1) - same)
    if not same:
        np.testing.assert_array_equal(counts[1], near.sum(0))
    weights = JOINER.weights(q, d, layout, is_self_join=same).get()
    cuts = sorted(
        {min(n, n * s // 3 // layout.grain * layout.grain) for s in range(3)} | {n}
    )
    for rows in itertools.pairwise(cuts):
        part = JOINER.pairs(q, d, layout, is_self_join=same, rows=rows)
        assert weights[slice(*rows)].sum() == len(part.left)
    shown = np.zeros((n, m), np.int64)

    def visitor(left, right, values):
        left, right = left.get(), right.get()
        np.testing.assert_array_equal(values.get(), total[left, right])
        np.add.at(
            shown,
            (np.minimum(left, right), np.maximum(left, right))
            if same
            else (left, right),
            1,
        )

    JOINER.visit(q, d, layout, visitor, is_self_join=same)
    np.testing.assert_array_equal(shown, want)


def check(x, threshold, norm, cuts=()):
    layout = layout_of(x, threshold, norm)
    assert layout.engine == "float64"
    total = totals(x, x, norm)
    bounds = [0, *cuts, len(x)]
    chunks = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    indexes = [built(x[c], layout) for c in chunks]
    for i, j in itertools.combinations_with_replacement(range(len(chunks)), 2):
        if len(indexes[i]["y"]) and len(indexes[j]["y"]):
            check_pair_of_indexes(
                indexes[i], indexes[j], layout, total[chunks[i], chunks[j]], i == j
            )


def a_total(x, norm, rank, ulps=0):
    """The total of two of the points, `ulps` units in the last place off."""
    if len(x) < 2:
        return 1.0
    total = np.sort(totals(x, x, norm)[np.triu_indices(len(x), 1)])
    threshold = float(total[int(rank * (len(total) - 1))])
    for _ in range(abs(ulps)):
        threshold = max(
            0.0, math.nextafter(threshold, math.inf if ulps > 0 else -math.inf)
        )
    return threshold


@settings(max_examples=examples(100), deadline=None)
@given(
    cases(max_points=300),
    st.sampled_from(NORMS),
    st.sampled_from([0.0, 0.01, 0.1, 1.0, "power", "all"]),
    st.sampled_from([-1, 0, 1]),
)
def test_any_points(case, norm, rank, ulps):
    x = case.x[:, : max(k for k in DIMS if k <= case.x.shape[1])].astype(float)
    known = {"power": float(norms.power(2.0, norm)), "all": math.inf}
    check(
        x,
        known[rank] if rank in known else a_total(x, norm, rank, ulps),
        norm,
        case.cuts[:2],
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(norm, kind):
    rng = np.random.default_rng(0)
    for dims in DIMS:
        x = make_points(kind, 700, dims, rng)
        check(x, a_total(x, norm, 0.01, int(rng.integers(-1, 2))), norm, (250,))


@pytest.mark.parametrize("norm", NORMS)
def test_totals_that_overflow(norm):
    x = np.array([-1.7e308, 1.7e308, -1e300, 0.0, 1e300])[
        np.random.default_rng(0).integers(0, 5, (150, 3))
    ]
    for threshold in (0.0, 1e308, math.nextafter(math.inf, 0), math.inf):
        check(x, threshold, norm, (64,))


@pytest.mark.parametrize("norm", NORMS)
def test_more_pairs_than_a_batch_holds(norm, monkeypatch):
    x = np.random.default_rng(0).uniform(size=(6000, 3))
    layout = layout_of(x, a_total(x[:1000], norm, 0.2), norm)
    index = built(x, layout)
    whole = JOINER.pairs(index, index, layout, is_self_join=True)
    monkeypatch.setattr(gpu_tiles, "BATCH", 1 << 18)
    found = JOINER.pairs(index, index, layout, is_self_join=True)
    keys = [
        cupy.sort(f.left.astype(cupy.int64) * len(x) + f.right) for f in (whole, found)
    ]
    assert len(keys[0]) > 2_000_000
    assert (keys[0] == keys[1]).all()


@pytest.mark.parametrize("norm", NORMS)
def test_components_and_lowest_labels(norm):
    x = make_points("clusters", 900, 3, np.random.default_rng(1))
    layout = layout_of(x, a_total(x, norm, 0.002), norm)
    near = totals(x, x, norm) <= layout.threshold
    index, every, parent = (
        built(x, layout),
        cupy.ones(len(x), bool),
        new_nodes(len(x), cupy),
    )
    JOINER.connect(index, index, layout, parent, (every, every), 0, is_self_join=True)
    JOINER.roots(parent)
    assert parent.tolist() == component_roots(len(x), *np.nonzero(near)).tolist()
    labels = cupy.maximum(cupy.arange(len(x)) - 400, -1)
    low = cupy.full(len(x), 10**6)
    JOINER.lowest(index, index, layout, (labels, labels), (low, low), is_self_join=True)
    want = np.where(near[:, 401:], np.arange(1, 500), 10**6).min(axis=1)
    assert low.get()[:400].tolist() == want[:400].tolist()


@pytest.mark.parametrize("norm", NORMS)
def test_regions_are_those_of_the_host(norm):
    rng = np.random.default_rng(0)
    for kind in KINDS:
        x = make_points(kind, 1000, 3, rng)
        if not np.isfinite(x.max() - x.min()):
            continue
        threshold = a_total(x, norm, 0.01)
        away = norms.reach(norm, threshold)
        regions = make_regions(
            x[::5], np.full(200, 5.0), x.min(0), x.max(0), away, 50, 64
        )
        for everywhere in (False, True):
            ours = JOINER.regions(
                cupy.asarray(x), regions, away, threshold, norm, everywhere=everywhere
            )
            theirs = CPU.regions(
                x, regions, away, threshold, norm, everywhere=everywhere
            )
            assert (ours[0].get() == theirs[0]).all()
            pairs = [
                set(zip(a.tolist(), b.tolist(), strict=True))
                for a, b in (ours[1:], theirs[1:])
            ]
            assert pairs[0] == pairs[1] and len(pairs[0]) == len(ours[1])
