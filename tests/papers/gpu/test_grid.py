"""The grid joins of two papers on a GPU: the pairs and the counters of the CPU,
whatever the options.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.cpu.joiner import JOINER as CPU
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.papers.cpu import grid as on_cpu
from dask_simjoin.papers.gpu import grid
from dask_simjoin.papers.gpu.flow import STATE_SIZE
from dask_simjoin.papers.grid import ORDERS, PATTERNS, THREADS, Grid
from dask_simjoin.papers.grid_batches import Batch
from dask_simjoin.planning.sample import moments
from tests.support.method_checks import check_all, check_frames
from tests.support.points import cases
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

SHAPES = [(1, 1), (2, 2), (5, 3), (20, 6)]
"""Numbers of dimensions and of indexed ones: each is compiled by itself."""

any_options = st.builds(
    Grid,
    reorder=st.booleans(),
    sort=st.sampled_from([None, True, False]),
    short_circuit=st.booleans(),
    pattern=st.sampled_from(PATTERNS),
    order=st.sampled_from(ORDERS),
    threads=st.sampled_from(THREADS),
    precision=st.sampled_from(["float32", "float64"]),
    buffer=st.sampled_from([1, 64, 10**8]),
    batches=st.sampled_from([1, 3, 7]),
    streams=st.sampled_from([1, 3]),
    sample=st.sampled_from([0.01, 1.0]),
)


def programs():
    uses = itertools.product(SHAPES, ("join_grid", "grid_work"), (True, False), (0, 1))
    return [
        (
            "papers/grid",
            name,
            {"DIMS": d, "INDEXED": k, "EXACT": exact, "COUNTING": counting},
        )
        for (d, k), name, exact, counting in uses
    ]


def laid_out(x, eps, options):
    m = moments(np.asarray(x, float))
    return JOINER.layout(options, m.lower, m.upper, m.mean, m.variance, eps * eps)


@settings(max_examples=examples(200), deadline=None)
@given(cases(max_dims=20), any_options)
def test_any_points_and_options(case, options):
    d, k = max(shape for shape in SHAPES if shape[0] <= case.x.shape[1])
    x = np.ascontiguousarray(case.x[:, :d], dtype=float)
    if len(x):
        layout = laid_out(x, case.eps, Grid(**{**vars(options), "indexed": k}))
        check_all(JOINER, x, case.eps, layout, [0, *case.cuts, len(x)], cupy.asarray)


def test_counters_are_the_cpus():
    x = np.random.default_rng(2).exponential(1.0, (4000, 2))
    for pattern, order, threads in itertools.product(PATTERNS, ORDERS, (1, 8)):
        options = Grid(
            pattern=pattern,
            order=order,
            threads=threads,
            short_circuit=False,
            precision="float64",
        )
        layout = laid_out(x, 0.1, options)
        index = JOINER.build(cupy.asarray(x), layout)
        join, state = (
            grid.GridLaunch.of(index, index, layout, True, TELLING=1),
            cupy.zeros(STATE_SIZE, cupy.uint64),
        )
        join.run(Batch(0, 1, len(x)), 0, np.uint64(0), (np.uint64(0),) * 2, state)
        m = moments(x)
        own = CPU.build(
            x, CPU.layout(options, m.lower, m.upper, m.mean, m.variance, 0.1**2)
        )
        told, counts = np.zeros(6, np.int64), np.zeros(len(x), np.int64)
        on_cpu.run(
            own, own, layout, True, [own["order"]] * 2, None, (counts, counts), told
        )
        assert [int(state[k]) for k in (4, 5, 6, 7, 8, 0)] == told.tolist()
        assert 0 < int(state[9]) <= int(state[10])


def test_frames_and_labels():
    cudf = pytest.importorskip("cudf")
    check_frames(
        cudf.DataFrame,
        ["grid", Grid.plain(), Grid.balanced(), Grid.gpu_join(2)],
        profiles=False,
    )
