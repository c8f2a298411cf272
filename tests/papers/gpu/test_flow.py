"""Batches that overflow their buffer are done again, compiled for the host."""

import numpy as np
import pytest

from dask_simjoin.papers.grid import ORDERS, Grid
from dask_simjoin.papers.grid_batches import Flow
from tests.papers.gpu.test_grid_on_host import laid_out
from tests.support import host_gpu
from tests.support.method_checks import found_of
from tests.support.oracle import assert_same_pairs, brute_force


@pytest.fixture(scope="module")
def device(kernel_folder):
    with host_gpu.like_cupy(kernel_folder) as both:
        yield both


@pytest.mark.parametrize("order", ORDERS)
def test_batches_that_overflow_are_done_again(device, order, monkeypatch):
    """Half of the points are one point: most pairs are of queries that no sample shows."""
    cupy, grid = device
    x = np.concatenate(
        [np.random.default_rng(0).uniform(1, 2, (150, 2)), np.zeros((150, 2))]
    )
    # not those of a module of that name
    one_kernel = grid.OneKernel.batches.__globals__
    monkeypatch.setitem(one_kernel, "estimate", lambda join: 1.0)
    flows = []

    def noted(lanes):
        flows.append(Flow(lanes))
        return flows[-1]

    monkeypatch.setitem(one_kernel["flow"].__globals__, "Flow", noted)
    for streams in (1, 3):
        layout = laid_out(x, 0.01, Grid(order=order, buffer=64, streams=streams), grid)
        index = grid.build(cupy.asarray(x), layout)
        assert_same_pairs(
            found_of(grid, index, index, layout, True), brute_force(x, 0.01)
        )
    assert all(flow.repeated > 3 for flow in flows) and len(flows) == 2
    assert flows[0].largest >= 64
