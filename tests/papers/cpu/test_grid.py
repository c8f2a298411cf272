"""The grid joins of two papers: the pairs of the definition with any options, and the
papers' own counts.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.papers.cpu import grid as method
from dask_simjoin.papers.grid import ORDERS, PATTERNS, Grid
from dask_simjoin.planning.sample import moments
from tests.engine.cpu.test_joiner import check
from tests.support.method_checks import check_cuts, check_labels, check_norm
from tests.support.oracle import brute_force
from tests.support.points import cases
from tests.support.profiles import chosen, every_nth, examples

LOOKUPS, FOUND, CANDIDATES, COMPARISONS, TERMS, PAIRS = range(6)

any_options = st.builds(
    Grid,
    indexed=st.sampled_from([1, 2, 3, 4, "auto", None]),
    reorder=st.booleans(),
    sort=st.sampled_from([None, True, False]),
    short_circuit=st.booleans(),
    pattern=st.sampled_from(PATTERNS),
    order=st.sampled_from(ORDERS),
    batches=st.sampled_from([1, 3, 7]),
)


def laid_out(x, eps, options=None, norm=2):
    m = moments(np.asarray(x, float))
    bounds = m.lower, m.upper, m.mean, m.variance
    return JOINER.layout(
        options or Grid(), *bounds, eps if norm in (1, math.inf) else eps**norm, norm
    )


def counted(x, eps, options, sink=None):
    """What a join of points with themselves looks for, finds and compares."""
    layout = laid_out(x, eps, options)
    built, told = JOINER.build(x, layout), np.zeros(6, np.int64)
    counts = np.zeros(len(x), np.int64)
    method.run(
        built, built, layout, True, [built["order"]] * 2, None, (counts, counts), told
    )
    return told, layout, built


@settings(max_examples=examples(400))
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    check(case.x, case.eps, case.cuts, method=options)


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(
    cases(max_dims=4, max_points=60),
    any_options,
    st.sampled_from(chosen([(1, 1), (3, 3), (math.inf, math.inf)], [(3, 3)])),
)
def test_other_norms(case, options, norm):
    check_norm(case.x, case.eps, options, *norm)


@settings(max_examples=examples(60))
@given(cases(max_dims=6), any_options, st.integers(0, 160), st.integers(0, 160))
def test_any_cut_of_queries_gives_each_pair_once(case, options, a, b):
    x = np.asarray(case.x, float)
    if len(x):
        cuts = sorted({0, min(a, len(x)), min(b, len(x)), len(x)})
        check_cuts(JOINER, x, case.eps, laid_out(x, case.eps, options), cuts)


@pytest.mark.parametrize(
    "x",
    [
        np.random.default_rng(0).uniform(size=(200, 10)) * 2.0**30,
        np.full((33, 3), 1e15) + np.arange(3),
        np.random.default_rng(0).uniform(-1, 1, (100, 2)) * 1.7e308,
        np.zeros((1, 4)),
    ],
)
@pytest.mark.parametrize("eps", [0.0, 1.0])
def test_extremes(x, eps):
    layout = laid_out(x, eps, Grid(indexed=12))
    assert math.prod(layout.cells.number) < 2**62
    check(x, eps, (len(x) // 2,), method=Grid(indexed=12))


def skew(rows, dims=18):
    """Clusters whose columns vary more and more."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20, dims))
    x = centers[rng.integers(20, size=rows)] + rng.normal(0, 0.1, (rows, dims))
    return x * 2.0 ** (np.arange(dims) / 2)


@pytest.mark.slow
def test_dbscan_and_two_tables_are_those_of_other_methods(how):
    check_labels(how, ["grid", Grid.plain(), Grid.balanced(), Grid.gpu_join(2)])


visited_cells = kernel(method.visited_cells.py_func)
"""As Python can call it."""


def visited(coords, side, pattern):
    """Cells visited from one of a full grid of `side` cells a dimension, by their
    coordinates.
    """
    k = len(coords)
    cells = np.array(list(itertools.product(range(1, side + 1), repeat=k)))
    strides = np.array([(side + 2) ** j for j in range(k)])
    keys = np.sort(cells @ strides)
    out, told = np.empty(len(keys), np.int64), np.zeros(6, np.int64)
    n = visited_cells(
        np.array(coords),
        np.tile(np.arange(1, side + 1), k),
        np.arange(k + 1) * side,
        strides,
        keys,
        PATTERNS.index(pattern),
        np.empty((k, 3), bool),
        np.empty(k, np.int64),
        out,
        told,
    )
    assert told[LOOKUPS] == told[FOUND] == n == len(set(out[:n].tolist()))
    return [tuple(int(key // s % (side + 2)) for s in strides) for key in keys[out[:n]]]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("pattern", ["unicomp", "lid"])
def test_half_patterns_visit_each_two_adjacent_cells_once(k, pattern):
    seen = set()
    for cell in itertools.product(range(1, 5), repeat=k):
        near = visited(cell, 4, pattern)
        assert near[0] == cell
        both = set(visited(cell, 4, "full"))
        assert both == {
            other
            for other in itertools.product(range(1, 5), repeat=k)
            if all(abs(a - b) <= 1 for a, b in zip(cell, other, strict=True))
        }
        new = {frozenset((cell, other)) for other in near[1:]}
        assert len(new) == len(near) - 1
        assert not (new & seen)
        seen |= new
        if pattern == "lid" and all(1 < c < 4 for c in cell):
            assert len(near) - 1 == (3**k - 1) // 2
    adjacent = sum(
        all(abs(a - b) <= 1 for a, b in zip(*two, strict=True))
        for two in itertools.combinations(itertools.product(range(1, 5), repeat=k), 2)
    )
    assert len(seen) == adjacent


def test_unicomp_in_two_dimensions_is_the_papers():
    """P2, algorithm 2 and figure 2: 8, 6, 2 and no cell besides the own one."""
    own = [(3, 3), (2, 3), (3, 2), (2, 2)]
    assert [len(visited(cell, 5, "unicomp")) - 1 for cell in own] == [8, 6, 2, 0]


@pytest.mark.slow
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_the_papers_identities_of_comparisons(dims):
    x = np.random.default_rng(dims).exponential(1.0, (1500, dims))
    eps = 0.3
    kinds = {
        pattern: counted(
            x,
            eps,
            Grid(pattern=pattern, sort=False, short_circuit=False, order="given"),
        )
        for pattern in PATTERNS
    }
    told, layout, built = kinds["full"]
    sizes = np.diff(built["starts"])
    own = int((sizes**2).sum())
    near = (np.abs(built["coords"][:, None] - built["coords"][None]) <= 1).all(-1)
    assert told[COMPARISONS] == int(sizes @ near @ sizes) > own
    half = kinds["lid"][0][COMPARISONS]
    assert told[COMPARISONS] - own == 2 * (half - own)
    assert kinds["unicomp"][0][COMPARISONS] == half
    pairs = len(brute_force(x, eps))
    assert all(kind[0][PAIRS] == pairs for kind in kinds.values())
    assert all(kind[0][TERMS] == dims * kind[0][COMPARISONS] for kind in kinds.values())
    work = method.workload(built, built, layout, True)
    assert int(work @ sizes) == told[COMPARISONS]


def test_sorting_and_the_short_circuit_compare_less_and_find_the_same():
    x = np.random.default_rng(0).uniform(size=(800, 10))
    every = Grid(indexed=3, sort=False, short_circuit=False, pattern="full")
    plain, window, short = (
        counted(
            x, 0.3, Grid(indexed=3, sort=sort, short_circuit=short, pattern="full")
        )[0]
        for sort, short in ((False, False), (True, False), (False, True))
    )
    assert counted(x, 0.3, every)[0].tolist() == plain.tolist()
    assert plain[CANDIDATES] == plain[COMPARISONS] > 1.2 * window[COMPARISONS]
    assert short[COMPARISONS] == plain[COMPARISONS] and short[TERMS] < plain[TERMS] / 2
    assert plain[PAIRS] == window[PAIRS] == short[PAIRS] > 0


@pytest.mark.slow
@pytest.mark.parametrize("sort_dim", every_nth(2, [0, 1]))
def test_ties_at_eps_in_the_sorted_dimension(sort_dim):
    """The authors' code scans while differences are below eps, and loses these."""
    x = np.zeros((300, 2))
    x[:, sort_dim] = np.repeat([0.0, 0.1, 0.1 + 0.1], 100)
    x[:, 1 - sort_dim] = np.random.default_rng(0).choice([0.0, 1e-9], 300)
    check(x, 0.1, (150,), method=Grid(indexed=1, reorder=False, sort=True))
