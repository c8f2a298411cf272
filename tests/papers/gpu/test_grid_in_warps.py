"""The GPU's grid joins where lanes of a warp run together, compiled for the host."""

import importlib
from dataclasses import replace

import numpy as np
import pytest

from dask_simjoin.papers.grid import PATTERNS, Grid
from tests.papers.gpu.test_grid_on_host import laid_out
from tests.support.host_fibers import fibers_like_cupy
from tests.support.method_checks import check_kernels
from tests.support.points import a_distance, make_points
from tests.support.profiles import chosen, everything


@pytest.fixture(scope="module")
def device(kernel_folder):
    with fibers_like_cupy(kernel_folder) as cupy:
        yield cupy, importlib.import_module("dask_simjoin.papers.gpu.grid")


@pytest.mark.slow
@pytest.mark.parametrize("dims", chosen([6, 16, 70], [16]))
def test_groups_that_share_a_query_in_warps_with_different_windows(
    device, dims, monkeypatch
):
    """Queries are no multiple of 32, so the warps of each part join the windows of
    other queries.
    """
    cupy, grid = device
    monkeypatch.setattr(grid, "MIN_SHARE", 64)  # otherwise few points are not shared
    rng = np.random.default_rng(dims)
    for n, kind in enumerate(("exponential", "lattice", "duplicates", "clusters")):
        x = make_points(kind, 389, dims, rng)
        x[:, :3] *= 4  # cells exceed windows
        eps = a_distance(x, rng, 0.05, n % 3 - 1)
        for threads in (1, 8) if everything() else ((1, 8)[n % 2],):
            options = replace(
                Grid.gpu_join(2),
                pattern=PATTERNS[n % 3],
                threads=threads,
                batches=1 + n,
            )
            layout = laid_out(x, eps, options, grid)
            index = grid.build(cupy.asarray(x), layout)
            assert grid.GridLaunch.of(index, index, layout, True).parts(len(x)) == 6
            check_kernels(grid, x, eps, layout, [0, 40, 41, len(x)], 130, cupy.asarray)
