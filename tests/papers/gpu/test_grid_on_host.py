"""The GPU's grid joins without a GPU: their driver, and their CUDA C++ compiled for the
host.
"""

import importlib
import itertools

import numpy as np
import pytest

from dask_simjoin.engine.base import profiler_of_library
from dask_simjoin.engine.cpu.joiner import JOINER
from dask_simjoin.engine.gpu.sources import Sink, norm_constant
from dask_simjoin.papers.cpu import grid as on_cpu
from dask_simjoin.papers.grid import ORDERS, PATTERNS, Grid
from dask_simjoin.papers.grid_batches import Batch
from dask_simjoin.planning.sample import moments
from tests.support import host_gpu
from tests.support.method_checks import check_kernels, check_ties, found_of
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import a_distance, make_points
from tests.support.profiles import chosen


@pytest.fixture(scope="module")
def device(kernel_folder):
    with host_gpu.like_cupy(kernel_folder) as both:
        yield both


def laid_out(x, eps, options, grid, norm=2):
    m = moments(np.asarray(x, float))
    return grid.layout(options, m.lower, m.upper, m.mean, m.variance, eps**norm, norm)


SHAPES = [(2, 2), (6, 6), (16, 3), (20, 6)]
COMBINED = list(
    itertools.product(PATTERNS, ORDERS, (1, 2, 8, 32), (True, False), (True, False))
)


EVERY = [
    (*shape, precision) for shape in SHAPES for precision in ("float32", "float64")
]


@pytest.mark.parametrize(("dims", "indexed", "precision"), chosen(EVERY, [EVERY[4]]))
def test_pairs_are_those_of_the_definition(device, dims, indexed, precision):
    cupy, grid = device
    rng = np.random.default_rng(dims)
    for n, (pattern, order, threads, sort, short) in enumerate(
        chosen(COMBINED, COMBINED[:: 11 + dims % 3])
    ):
        kind = ("clusters", "lattice", "duplicates", "offset", "exponential")[n % 5]
        x = make_points(kind, 150 + n % 3, dims, rng)
        eps = a_distance(x, rng, (0.05, 0.3)[n % 2], n % 3 - 1)
        options = Grid(
            indexed=indexed,
            pattern=pattern,
            order=order,
            threads=threads,
            sort=sort,
            short_circuit=short,
            precision=precision,
            buffer=(10**8, 64)[n % 2],
            streams=1 + n % 4,
        )
        layout = laid_out(x, eps, options, grid)
        check_kernels(grid, x, eps, layout, [0, 40, 41, len(x)], 60, cupy.asarray)


@pytest.mark.parametrize("norm", chosen([1, 3, float("inf")], [3]))
def test_other_norms(device, norm):
    cupy, grid = device
    x = np.random.default_rng(0).uniform(size=(200, 2))
    m = moments(x)
    threshold = 0.2**norm if norm == 3 else 0.2
    layout = grid.layout(Grid(), m.lower, m.upper, m.mean, m.variance, threshold, norm)
    assert layout.bounds is None and norm_constant(norm)
    index = grid.build(cupy.asarray(x), layout)
    expected = brute_force(x, 0.2, "minkowski", norm)
    assert_same_pairs(found_of(grid, index, index, layout, True), expected)


def test_sinks_tie_what_pairs_tie(device):
    cupy, grid = device
    x = np.random.default_rng(1).exponential(1.0, (300, 2))
    layout = laid_out(x, 0.1, Grid(), grid)
    check_ties(grid, Sink.LINK, x, 0.1, layout, cupy)


@pytest.mark.slow
def test_counters_are_the_cpus(device):
    cupy, grid = device
    flow = importlib.import_module("dask_simjoin.papers.gpu.flow")
    x = np.random.default_rng(2).exponential(1.0, (400, 3))
    for pattern, sort in itertools.product(PATTERNS, (True, False)):
        options = Grid(
            pattern=pattern, sort=sort, short_circuit=False, precision="float64"
        )
        layout = laid_out(x, 0.4, options, grid)
        index = grid.build(cupy.asarray(x), layout)
        join, state = (
            grid.GridLaunch.of(index, index, layout, True, TELLING=1),
            cupy.zeros(flow.STATE_SIZE, np.uint64),
        )
        join.run(Batch(0, 1, 400), 0, np.uint64(0), (np.uint64(0),) * 2, state)
        own = JOINER.build(x, JOINER.layout(options, *bounds_of(x), 0.4**2))
        told, counts = np.zeros(6, np.int64), np.zeros(400, np.int64)
        on_cpu.run(
            own, own, layout, True, [own["order"]] * 2, None, (counts, counts), told
        )
        assert [int(state[k]) for k in (4, 5, 6, 7, 8, 0)] == told.tolist()
        assert int(state[10]) == 32 * told[3]
        assert (
            join.workload().tolist() == on_cpu.workload(own, own, layout, True).tolist()
        )
        assert flow.estimate(join) >= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", chosen([Grid(), Grid.plain(), Grid.gpu_join(2)], [Grid()])
)
def test_profiles_are_the_cpus(device, options):
    cupy, grid = device
    profiler = importlib.import_module("dask_simjoin.engine.gpu.joiner").PROFILER
    x = np.random.default_rng(4).exponential(1.0, (500, 3))
    found = profiler.profile(cupy.asarray(x), laid_out(x, 0.4, options, grid))
    same = JOINER.layout(options, *bounds_of(x), 0.4**2)
    expected = profiler_of_library("pandas").profile(x, same).numbers
    for name in (
        "cells",
        "lookups",
        "found",
        "candidates",
        "comparisons",
        "pairs",
        "largest_cell",
        "search_ops",
    ):
        assert found.numbers[name] == expected[name], name
    assert list(found.seconds) == ["index", "order", "estimate", "join"]
    assert (
        found.numbers["repeated_batches"] >= 0
        and 0 < found.numbers["warp_efficiency"] <= 1
    )
    assert found.numbers["largest_batch"] <= found.numbers["pairs"]


def bounds_of(x):
    m = moments(x)
    return m.lower, m.upper, m.mean, m.variance
