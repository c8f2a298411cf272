"""The grid joins of two papers on a GPU: the pairs and the counters of the CPU, whatever the options."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.cpu.joiner import JOINER as CPU
from dask_simjoin.engine.cpu.methods import grid as on_cpu
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.gpu.methods import grid
from dask_simjoin.engine.gpu.methods.flow import TOLD
from dask_simjoin.engine.grid import ORDERS, PATTERNS, THREADS, Grid
from dask_simjoin.engine.index.grid_batches import Batch
from dask_simjoin.planning.statistics.moments import moments
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

SHAPES = [(1, 1), (2, 2), (5, 3), (20, 6)]
"""Numbers of dimensions and of indexed ones: each is compiled by itself."""

any_options = st.builds(
    Grid, reorder=st.booleans(), sort=st.sampled_from([None, True, False]), short_circuit=st.booleans(),
    pattern=st.sampled_from(PATTERNS), order=st.sampled_from(ORDERS), threads=st.sampled_from(THREADS),
    precision=st.sampled_from(["float32", "float64"]), buffer=st.sampled_from([1, 64, 10**8]),
    batches=st.sampled_from([1, 3, 7]), streams=st.sampled_from([1, 3]), sample=st.sampled_from([0.01, 1.0]),
)  # fmt: skip


def programs():
    uses = itertools.product(SHAPES, ("join_grid", "grid_work"), (True, False), (0, 1))
    return [
        ("grid", name, {"DIMS": d, "INDEXED": k, "EXACT": exact, "COUNTING": counting})
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
    if not len(x):
        return
    layout = laid_out(x, case.eps, Grid(**{**vars(options), "indexed": k}))
    expected = brute_force(x, case.eps)
    index = JOINER.build(cupy.asarray(x), layout)
    pairs = JOINER.pairs(index, index, layout, same=True)
    found = list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert_same_pairs(set(found), expected)
    counts = np.bincount(np.array(sorted(expected), np.int64).reshape(-1), minlength=len(x))
    assert JOINER.counts(index, index, layout, same=True)[0].tolist() == counts.tolist()
    weights = JOINER.weights(index, index, layout, same=True).get()
    for rows in itertools.pairwise([0, *case.cuts, len(x)]):
        part = JOINER.pairs(index, index, layout, same=True, rows=rows)
        assert len(part.left) == weights[slice(*rows)].sum()
    cut = len(x) // 3
    some, rest = (JOINER.build(cupy.asarray(part), layout) for part in (x[:cut], x[cut:]))
    across = JOINER.pairs(some, rest, layout, same=False)
    found = set(zip(across.left.tolist(), across.right.tolist(), strict=True))
    assert_same_pairs(found, {(a, b - cut) for a, b in expected if a < cut <= b})


def test_counters_are_the_cpus():
    x = np.random.default_rng(2).exponential(1.0, (4000, 2))
    for pattern, order, threads in itertools.product(PATTERNS, ORDERS, (1, 8)):
        options = Grid(
            pattern=pattern, order=order, threads=threads, short_circuit=False, precision="float64"
        )
        layout = laid_out(x, 0.1, options)
        index = JOINER.build(cupy.asarray(x), layout)
        join, state = (
            grid.Launch.of(index, index, layout, True, TELLING=1),
            cupy.zeros(TOLD, cupy.uint64),
        )
        join.run(Batch(0, 1, len(x)), 0, np.uint64(0), (np.uint64(0),) * 2, state)
        m = moments(x)
        own = CPU.build(x, CPU.layout(options, m.lower, m.upper, m.mean, m.variance, 0.1**2))
        told, counts = np.zeros(6, np.int64), np.zeros(len(x), np.int64)
        on_cpu.run(own, own, layout, True, [own["order"]] * 2, None, (counts, counts), told)
        assert [int(state[k]) for k in (4, 5, 6, 7, 8, 0)] == told.tolist()
        assert 0 < int(state[9]) <= int(state[10])


def test_frames_and_labels():
    cudf = pytest.importorskip("cudf")
    x = np.random.default_rng(3).exponential(1.0, (3000, 2))
    frame = frame_of(x)
    device = cudf.DataFrame(frame)
    expected = frame.simjoin.dbscan(0.1, 4, method="tiles")
    pairs = frame.simjoin.self_join(0.1, method="tiles", return_distance=True)
    key = ["left", "right"]
    for options in ("grid", Grid.plain(), Grid.balanced(), Grid.gpu_join(2)):
        assert device.simjoin.dbscan(0.1, 4, method=options).to_pandas().tolist() == expected.tolist()
        found = device.simjoin.self_join(0.1, method=options, return_distance=True).to_pandas()
        assert found.sort_values(key).to_numpy().tolist() == pairs.sort_values(key).to_numpy().tolist()
