"""The engine gives the pairs of the definition: pure functions, no Dask."""

import itertools
import math

import numpy as np
from hypothesis import example, given, settings

from dask_simjoin.catalog import METHODS
from dask_simjoin.planning.entity_chunks import entity_chunks
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.sample import moments
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.tasks.chunks import gather_chunk, read_points
from dask_simjoin.tasks.counts import count_block
from dask_simjoin.tasks.matches import BlockPair
from dask_simjoin.tasks.pairs import join_block
from tests.support.oracle import (
    as_set,
    assert_same_pairs,
    brute_force,
    roots,
    squared_distances,
)
from tests.support.points import KINDS, Case, cases, frame_of, make_points
from tests.support.profiles import every_nth, examples, in_turns

SWEEP_MAX_DIMS = METHODS["sweep"].max_dims

WIDTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 128, 384, 1025, 2048]

COLUMNS = ["left", "right", "distance"]


def join_chunks(x, eps, cuts=(), **options):
    """Pairs, distances and numbers of neighbours of points cut into chunks."""
    frame = frame_of(x)
    spec = SelfJoinRequest(eps=eps, return_distance=True, **options).spec(frame)
    bounds = [0, *cuts, len(x)]
    parts = [frame.iloc[a:b] for a, b in itertools.pairwise(bounds)]
    summaries = [summarise(part, n, spec, True) for n, part in enumerate(parts)]
    plan = make_plan(join_statistics([summaries], spec))
    chunking = entity_chunks(summaries, 1, 1000, spec.norm, spec.threshold)
    read = [
        read_points(part, known, spec)
        for part, known in zip(parts, enumerate(plan.tables.sources[0]), strict=True)
    ]
    chunks = [
        gather_chunk(
            plan.layout, [rows for _, *rows in pieces], *(read[n] for n, _, _ in pieces)
        )
        for pieces in chunking.pieces
    ]
    counts = [np.zeros(len(chunk["ids"]), np.int64) for chunk in chunks]
    found, distances = set(), {}
    for i, j in chunking.blocks().tolist():
        meeting = BlockPair(chunks[i], chunks[j], i == j, spec, plan.layout)
        pairs = join_block(meeting, COLUMNS)
        new = as_set(pairs)
        plain = join_block(meeting, COLUMNS[:2])
        assert as_set(plain) == new
        assert not (new & found)
        found |= new
        distances |= dict(
            zip(zip(pairs.left, pairs.right, strict=True), pairs.distance, strict=True)
        )
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
    assert all(distances[p] == roots(d2[p]) for p in expected)
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
def test_sweep_in_few_dimensions(case):
    if case.x.shape[1] <= SWEEP_MAX_DIMS:
        check(case.x, case.eps, case.cuts, method="sweep")


@in_turns(1, dims=every_nth(2, WIDTHS), kind=KINDS)
def test_every_kind_in_every_width(kind, dims):
    rng = np.random.default_rng(dims)
    x = make_points(kind, 100, dims, rng)
    d2 = np.sort(squared_distances(x, x)[np.triu_indices(100, 1)])
    check(x, math.sqrt(min(d2[200], 1e300)), (37,))


@in_turns(
    3,
    lambda dims, method, **rest: method != "sweep" or dims <= SWEEP_MAX_DIMS,
    dims=[1, 2, 3, 4, 5, 8],
    eps=every_nth(2, [0.0, 1.0, math.sqrt(2), math.sqrt(3), 2.0, math.sqrt(5)]),
    scale=[1.0, 3.0**-40],
    method=list(METHODS),
)
def test_lattice_ties(dims, eps, scale, method):
    side = {1: 200, 2: 20, 3: 8, 4: 5, 5: 4, 8: 2}[dims]
    x = np.array(list(itertools.product(range(side), repeat=dims)), float) * scale
    rng = np.random.default_rng(0)
    check(rng.permutation(x), eps * scale, (len(x) // 3,), method=method)


def _bounds(x):
    m = moments(np.asarray(x, float))
    return m.lower, m.upper, m.mean, m.variance
