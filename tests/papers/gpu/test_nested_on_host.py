"""The GPU's nested loops without a GPU: their driver, and their CUDA C++ compiled for
the host.
"""

import importlib
import itertools

import numpy as np
import pytest

from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.papers.lists import SCHEDULES, NestedLoop
from dask_simjoin.planning.sample import moments
from tests.papers.gpu.test_grid_on_host import laid_out
from tests.support import host_gpu
from tests.support.method_checks import check_kernels, check_ties, found_of
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import a_distance, make_points
from tests.support.profiles import chosen


@pytest.fixture(scope="module")
def device(kernel_folder):
    with host_gpu.like_cupy(kernel_folder) as (fake, _):
        yield fake, importlib.import_module("dask_simjoin.papers.gpu.nested")


EVERY = list(itertools.product([2, 16, 20], SCHEDULES, ["float32", "float64"]))
FEW = EVERY[:1]


@pytest.mark.parametrize(("dims", "schedule", "precision"), chosen(EVERY, FEW))
def test_pairs_are_those_of_the_definition(device, dims, schedule, precision):
    cupy, nested = device
    rng = np.random.default_rng(dims)
    for n, rows in enumerate((1, 31, 64, 65, 128, 150, 161)):
        kind = ("clusters", "lattice", "duplicates", "offset")[n % 4]
        x = make_points(kind, rows, dims, rng)
        eps = a_distance(x, rng, (0.05, 0.3)[n % 2], n % 3 - 1)
        options = NestedLoop(
            schedule=schedule,
            block=32,
            precision=precision,
            buffer=(10**8, 64)[n % 2],
            streams=1 + n % 3,
        )
        layout = laid_out(x, eps, options, nested)
        assert (layout.bounds is None) == (precision == "float64" or eps < 1e-100)
        cuts = sorted({0, min(64, rows), min(96, rows), rows})
        check_kernels(nested, x, eps, layout, cuts, rows // 3, cupy.asarray)


@pytest.mark.parametrize("norm", chosen([1, float("inf")], [1]))
def test_other_norms(device, norm):
    cupy, nested = device
    x = np.random.default_rng(0).uniform(size=(200, 2))
    m = moments(x)
    layout = nested.layout(
        NestedLoop(block=32), m.lower, m.upper, m.mean, m.variance, 0.2, norm
    )
    assert layout.bounds is None
    index = nested.build(cupy.asarray(x), layout)
    assert_same_pairs(
        found_of(nested, index, index, layout, True),
        brute_force(x, 0.2, "minkowski", norm),
    )


@pytest.mark.parametrize("schedule", chosen(list(SCHEDULES), [*SCHEDULES][:1]))
def test_sinks_tie_what_pairs_tie(device, schedule):
    cupy, nested = device
    x = np.random.default_rng(1).exponential(1.0, (150, 2))
    layout = laid_out(x, 0.1, NestedLoop(schedule=schedule, block=32), nested)
    check_ties(nested, Sink.LINK, x, 0.1, layout, cupy)
