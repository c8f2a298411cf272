"""The grid joins of two papers: the pairs of the definition with any options, and the papers' own counts."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.papers.cpu import grid as method
from dask_simjoin.papers.grid import ORDERS, PATTERNS, Grid
from dask_simjoin.planning.sample import moments
from tests.engine.cpu.test_joiner import check
from tests.support.method_checks import check_cuts, check_labels, check_norm
from tests.support.points import cases
from tests.support.profiles import examples

LOOKUPS, FOUND, CANDIDATES, COMPARISONS, TERMS, PAIRS = range(6)

any_options = st.builds(
    Grid, indexed=st.sampled_from([1, 2, 3, 4, "auto", None]), reorder=st.booleans(),
    sort=st.sampled_from([None, True, False]), short_circuit=st.booleans(),
    pattern=st.sampled_from(PATTERNS), order=st.sampled_from(ORDERS), batches=st.sampled_from([1, 3, 7]),
)  # fmt: skip


def laid_out(x, eps, options=None, norm=2):
    m = moments(np.asarray(x, float))
    bounds = m.lower, m.upper, m.mean, m.variance
    return JOINER.layout(options or Grid(), *bounds, eps if norm in (1, math.inf) else eps**norm, norm)


def counted(x, eps, options, sink=None):
    """What a join of points with themselves looks for, finds and compares."""
    layout = laid_out(x, eps, options)
    built, told = JOINER.build(x, layout), np.zeros(6, np.int64)
    counts = np.zeros(len(x), np.int64)
    method.run(built, built, layout, True, [built["order"]] * 2, None, (counts, counts), told)
    return told, layout, built


@settings(max_examples=examples(400))
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    check(case.x, case.eps, case.cuts, method=options)


@settings(max_examples=examples(60))
@given(cases(max_dims=4, max_points=60), any_options, st.sampled_from([(1, 1), (3, 3), (math.inf, math.inf)]))
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


def test_dbscan_and_two_tables_are_those_of_other_methods(how):
    check_labels(how, ["grid", Grid.plain(), Grid.balanced(), Grid.gpu_join(2)])
