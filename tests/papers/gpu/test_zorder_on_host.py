"""The GPU's joins by lists in Z-order without a GPU: driver, and CUDA C++ compiled for
the host.
"""

import importlib
import itertools

import numpy as np
import pytest

from dask_simjoin.engine.gpu.sources import Sink
from dask_simjoin.papers.lists import ASSIGNMENTS, OUTPUTS, WALKS, ZOrder
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
        yield fake, importlib.import_module("dask_simjoin.papers.gpu.zorder")


EVERY = list(itertools.product([2, 16, 70], WALKS, ["float32", "float64"]))
FEW = EVERY[-1:]


@pytest.mark.parametrize(("dims", "walk", "precision"), chosen(EVERY, FEW))
def test_pairs_are_those_of_the_definition(device, dims, walk, precision):
    cupy, zorder = device
    rng = np.random.default_rng(dims)
    for n, rows in enumerate((1, 31, 64, 65, 128, 150, 161)):
        kind = ("clusters", "lattice", "duplicates", "offset")[n % 4]
        x = make_points(kind, rows, dims, rng)
        eps = a_distance(x, rng, (0.05, 0.3)[n % 2], n % 3 - 1)
        options = ZOrder(
            lists=1 + n % 5,
            walk=walk,
            precision=precision,
            buffer=(10**8, 64)[n % 2],
            streams=1 + n % 3,
            words=(1, 2)[n % 2],
            threads=(1, 8, 32)[n % 3],
            output=OUTPUTS[n % 3],
            index=("smaller", "left", "right")[n % 3],
            assign=ASSIGNMENTS[n // 2 % 2],
        )
        layout = laid_out(x, eps, options, zorder)
        assert (layout.bounds is None) == (precision == "float64" or eps < 1e-100)
        cuts = sorted({0, min(64, rows), min(97, rows), rows})
        check_kernels(zorder, x, eps, layout, cuts, rows // 3, cupy.asarray)


@pytest.mark.parametrize("norm", chosen([1, float("inf")], [1]))
def test_other_norms(device, norm):
    cupy, zorder = device
    x = np.random.default_rng(0).uniform(size=(200, 2))
    m = moments(x)
    layout = zorder.layout(
        ZOrder(lists=3), m.lower, m.upper, m.mean, m.variance, 0.2, norm
    )
    assert layout.bounds is None
    index = zorder.build(cupy.asarray(x), layout)
    assert_same_pairs(
        found_of(zorder, index, index, layout, True),
        brute_force(x, 0.2, "minkowski", norm),
    )


@pytest.mark.parametrize("assign", ASSIGNMENTS)
@pytest.mark.parametrize("walk", WALKS)
def test_sinks_tie_what_pairs_tie(device, walk, assign):
    cupy, zorder = device
    x = np.random.default_rng(1).exponential(1.0, (150, 2))
    layout = laid_out(x, 0.1, ZOrder(walk=walk, assign=assign), zorder)
    check_ties(zorder, Sink.LINK, x, 0.1, layout, cupy)


@pytest.mark.parametrize("assign", ASSIGNMENTS)
@pytest.mark.parametrize("buffer", [1, 40, 500, 10**8])
def test_candidates_have_slots_of_their_own(device, assign, buffer, monkeypatch):
    """Batches hold as many candidates as fit, and the kernel shares no counter."""
    cupy, zorder = device
    x = np.random.default_rng(2).uniform(size=(300, 3))
    options = ZOrder(
        lists=3, walk="full", output="bounded", assign=assign, buffer=buffer
    )
    layout = laid_out(x, 0.1, options, zorder)
    index = zorder.build(cupy.asarray(x), layout)
    lengths, ran = [], zorder.ZOrderLaunch.run

    def run(self, batch, capacity, out, counts, state):
        slots = self.slots(batch)
        assert capacity == len(out) == slots[-1]
        lengths.append(np.diff(slots).tolist())
        ran(self, batch, capacity, out, counts, state)
        assert state[0] == 0 and (out >= 0).any(axis=1).sum() <= capacity

    monkeypatch.setattr(zorder.ZOrderLaunch, "run", run)
    assert_same_pairs(found_of(zorder, index, index, layout, True), brute_force(x, 0.1))
    walks = zorder.intervals(index, index, layout, True)
    assert sum(map(sum, lengths)) == (walks.stops - walks.starts).sum()
    assert all(sum(some) <= buffer or len(some) == 1 for some in lengths)
    for some, later in itertools.pairwise(lengths):
        assert sum(some) + later[0] > buffer  # one more query would not fit
    assert (len(lengths) == 1) == (buffer == 10**8)


def test_a_thread_for_each_candidate_counts_what_a_query_counts(device):
    """Also of queries without candidates, whose prefix sums are equal."""
    cupy, zorder = device
    rng = np.random.default_rng(3)
    x, y = rng.uniform(size=(150, 2)), rng.uniform(2, 3, (90, 2))
    y[:20] = x[:20] + 0.01
    counted = []
    for assign in ASSIGNMENTS:
        m = moments(np.concatenate([x, y]))
        options = ZOrder(lists=3, assign=assign, index="right")
        layout = zorder.layout(
            options, m.lower, m.upper, m.mean, m.variance, 0.05**2, 2
        )
        q, d = (zorder.build(cupy.asarray(side), layout) for side in (x, y))
        counted.append(
            [side.tolist() for side in zorder.count(q, d, layout, is_self_join=False)]
        )
    near = ((x[:, None] - y[None]) ** 2).sum(axis=2) <= 0.05**2
    assert (
        counted[0]
        == counted[1]
        == [near.sum(axis=1).tolist(), near.sum(axis=0).tolist()]
    )
    assert 0 in counted[0][0] and near.any()
