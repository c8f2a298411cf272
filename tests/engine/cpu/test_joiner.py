"""The engine gives the pairs of the definition: pure functions, no Dask."""

import itertools
import math
from typing import NamedTuple

import numba
import numpy as np
import pytest
from hypothesis import example, given, settings

from dask_simjoin.engine.cpu import joiner as cpu
from dask_simjoin.engine.cpu import sinks as cpu_buffers
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.kernels.totals import SQUARES, terms
from dask_simjoin.engine.methods import METHODS
from dask_simjoin.planning.entity_chunks import entity_chunks
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.statistics.partition import summarise
from dask_simjoin.planning.statistics.sample import moments
from dask_simjoin.planning.tables import tables_of
from dask_simjoin.request.requests import SelfJoin
from dask_simjoin.tasks.chunks import gather_chunk, read_points
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.matches import Meeting
from dask_simjoin.tasks.pairs import join_block
from tests.support.oracle import as_set, assert_same_pairs, brute_force, squared_distances
from tests.support.points import KINDS, Case, cases, frame_of, make_points
from tests.support.profiles import examples, in_turns, pairwise

SWEEP_MAX_DIMS = METHODS["sweep"].max_dims

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 128, 384, 1025, 2048]

COLUMNS = ["left", "right", "distance"]


def join_chunks(x, eps, cuts=(), **options):
    """Pairs, distances and numbers of neighbours of points cut into chunks."""
    frame = frame_of(x)
    spec = SelfJoin(eps=eps, return_distance=True, **options).spec(frame)
    bounds = [0, *cuts, len(x)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(bounds)]
    summaries = [summarise(part, n, spec, True) for n, part in enumerate(parts)]
    plan = make_plan(tables_of([summaries], spec))
    chunking = entity_chunks(summaries, 1, 1000, spec.norm, spec.threshold)
    read = [
        read_points(part, known, spec) for part, known in zip(parts, enumerate(plan.sources[0]), strict=True)
    ]
    chunks = [
        gather_chunk(plan.layout, [rows for _, *rows in pieces], *(read[n] for n, _, _ in pieces))
        for pieces in chunking.pieces
    ]
    counts = [np.zeros(len(chunk["ids"]), np.int64) for chunk in chunks]
    found, distances = set(), {}
    for i, j in chunking.blocks().tolist():
        meeting = Meeting(chunks[i], chunks[j], i == j, spec, plan.layout)
        pairs = join_block(meeting, COLUMNS)
        new = as_set(pairs)
        plain = join_block(meeting, COLUMNS[:2])
        assert as_set(plain) == new
        assert not (new & found)
        found |= new
        distances |= dict(zip(zip(pairs.left, pairs.right, strict=True), pairs.distance, strict=True))
        a, c = count_block(meeting)
        counts[i] += a
        if c is not None:
            counts[j] += c
    return found, distances, np.concatenate(counts), plan.layout


def check(x, eps, cuts=(), **options):
    """All that the engine says of these points is what the definition says."""
    x = np.asarray(x)
    found, distances, counts, layout = join_chunks(x, eps, cuts, **options)
    expected = brute_force(x, eps)
    assert_same_pairs(found, expected)
    d2 = squared_distances(x, x)
    assert all(distances[p] == math.sqrt(d2[p]) for p in expected)
    places = np.array(sorted(expected), np.int64).reshape(-1)
    assert counts.tolist() == np.bincount(places, minlength=len(x)).tolist()
    return layout


@settings(max_examples=examples(600))
@given(cases())
@example(Case(np.zeros((130, 5)), 0.0, (64, 65), "constant"))
def test_any_points(case):
    check(case.x, case.eps, case.cuts)


@settings(max_examples=examples(150))
@given(cases(max_dims=SWEEP_MAX_DIMS))
def test_tiles_in_few_dimensions(case):
    check(case.x, case.eps, case.cuts, method="tiles")


@settings(max_examples=examples(150))
@given(cases(max_dims=SWEEP_MAX_DIMS))
def test_sweep_in_few_dimensions(case):
    if case.x.shape[1] <= SWEEP_MAX_DIMS:
        check(case.x, case.eps, case.cuts, method="sweep")


@in_turns(4, dims=WIDTHS, kind=KINDS)
def test_every_kind_in_every_width(kind, dims):
    rng = np.random.default_rng(dims)
    x = make_points(kind, 100, dims, rng)
    d2 = np.sort(squared_distances(x, x)[np.triu_indices(100, 1)])
    check(x, math.sqrt(min(d2[200], 1e300)), (37,))


@pairwise(
    lambda dims, method, **rest: method != "sweep" or dims <= SWEEP_MAX_DIMS,
    dims=[1, 2, 3, 4, 5, 8],
    eps=[0.0, 1.0, math.sqrt(2), math.sqrt(3), 2.0, math.sqrt(5)],
    scale=[1.0, 3.0**-40],
    method=list(METHODS),
)
def test_lattice_ties(dims, eps, scale, method):
    side = {1: 200, 2: 20, 3: 8, 4: 5, 5: 4, 8: 2}[dims]
    x = np.array(list(itertools.product(range(side), repeat=dims)), float) * scale
    rng = np.random.default_rng(0)
    check(rng.permutation(x), eps * scale, (len(x) // 3,), method=method)


def test_the_float64_band_is_hit_and_decides_both_ways():
    rng = np.random.default_rng(5)
    x = rng.uniform(size=(400, 16))
    d2 = np.sort(squared_distances(x, x)[np.triu_indices(400, 1)])
    decided = refused = 0
    for rank in (10, 100, 1000, 10_000):
        root = math.sqrt(d2[rank])
        for eps in (math.nextafter(root, 0), root, math.nextafter(root, 9)):
            layout = JOINER.layout("tiles", *_bounds(x), eps * eps)
            assert layout.filter is not None
            index = JOINER.build(x, layout)
            found = JOINER.pairs(index, index, layout, same=True)
            assert len(found.left) == int((d2 <= eps * eps).sum())
            decided += found.decided
            refused += found.refused
    assert decided > refused > 0


def _bounds(x):
    m = moments(np.asarray(x, float))
    return m.lower, m.upper, m.mean, m.variance


@pytest.mark.parametrize("ulps", [-1, 0, 1])
@pytest.mark.parametrize("dims", [2, 6, 40])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e7])
def test_one_ulp_either_side(ulps, dims, offset):
    """Many pairs whose squared distance is the threshold, or its neighbour on either side."""
    rng = np.random.default_rng(dims)
    steps = np.eye(dims)[rng.integers(dims, size=300)]
    base = np.round(rng.uniform(0, 50, (300, dims))) * 4
    x = np.concatenate([base, base + steps]) + offset
    eps = 1.0
    for _ in range(abs(ulps)):
        eps = math.nextafter(eps, 2.0 * (ulps > 0))
    check(x, eps, (300,))


def test_float64_tiles_where_the_filter_cannot_serve():
    rng = np.random.default_rng(1)
    centres = rng.uniform(-1e9, 1e9, (20, 6))
    x = np.repeat(centres, 10, axis=0) + rng.uniform(0, 1e-3, (200, 6))
    assert check(x, 1e-3, (50, 120)).filter is None


def test_results_longer_than_the_first_segment(method, monkeypatch):
    monkeypatch.setattr(cpu, "MAX_ROOM", 64)
    monkeypatch.setattr(cpu, "ROOM_PER_POINT", 1)
    monkeypatch.setattr(cpu_buffers, "SCRATCH", 5000)
    rng = np.random.default_rng(2)
    check(rng.uniform(size=(700, 3)), 0.4, (300,), method=method)


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 127, 128, 129, 4095, 4097])
def test_around_the_width_of_tiles_and_groups(n, method):
    x = np.random.default_rng(n).uniform(size=(n, 4))
    eps = 0.5 * n ** (-1 / 4)
    if n < 1000:
        check(x, eps, (n // 2,), method=method)
    else:
        layout = JOINER.layout(method, *_bounds(x), eps * eps)
        index = JOINER.build(x, layout)
        found = JOINER.pairs(index, index, layout, same=True)
        found = set(zip(found.left.tolist(), found.right.tolist(), strict=True))
        assert_same_pairs(found, brute_force(x, eps))


def test_more_tiles_than_one_group_of_boxes():
    """Three levels of boxes: over 64 * 64 tiles."""
    rng = np.random.default_rng(3)
    x = rng.uniform(size=(300_000, 5))
    eps = 0.02
    by_tiles, by_filterless = (
        JOINER.pairs(index, index, layout, same=True)
        for layout in (JOINER.layout("tiles", *_bounds(x), eps * eps),)
        for layout in (layout, layout.__class__(layout.threshold, cut=layout.cut))
        for index in (JOINER.build(x, layout),)
    )
    one = set(zip(by_tiles.left.tolist(), by_tiles.right.tolist(), strict=True))
    other = set(zip(by_filterless.left.tolist(), by_filterless.right.tolist(), strict=True))
    assert len(one) > 100
    assert_same_pairs(one, other)


@pytest.mark.parametrize("step", [0.1, 1.0, 1e-3])
def test_cells_lose_no_neighbour_along_a_long_axis(step):
    """Neighbours exactly eps apart, over more cells than the cells' margin could hide an error in."""
    n = 600_000
    x = np.zeros((n, 2))
    x[:, 0] = np.arange(n) * step
    lower, upper, mean, _ = _bounds(x)
    layout = JOINER.layout("sweep", lower, upper, mean, np.array([0.0, 1.0]), step * step)
    assert layout.grid.dims == (0,)
    index = JOINER.build(x, layout)
    found = JOINER.pairs(index, index, layout, same=True)
    t = np.diff(x[:, 0])
    expected = np.flatnonzero(t * t <= step * step)
    assert sorted(found.left.tolist()) == expected.tolist()
    assert (found.right - found.left == 1).all()


def test_vectors_of_a_kind_of_norm_that_nobody_wrote():
    """They are refused: else they would be those of another kind, and pairs be wrong."""

    class Ratios(NamedTuple):
        p: int

    with pytest.raises(NotImplementedError, match="Ratios has no vectors of terms yet"):
        terms(None, numba.typeof(Ratios(-1)), None, [])
    assert terms(None, numba.typeof(SQUARES), None, []) == []
