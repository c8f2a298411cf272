"""Joins by lists in Z-order on a GPU: the pairs of the definition by any walk."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.papers.lists import (
    ASSIGNMENTS,
    OUTPUTS,
    SIDES,
    THREADS,
    WALKS,
    ZOrder,
)
from dask_simjoin.planning.sample import moments
from tests.papers.gpu.test_grid import laid_out
from tests.support.method_checks import check_all, check_frames
from tests.support.points import cases
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

DIMS = [1, 2, 5, 70]
WORDS = [1, 3]

any_options = st.builds(
    ZOrder,
    lists=st.sampled_from(["auto", "d+1", 1, 2]),
    shifts=st.sampled_from(["even", "random"]),
    walk=st.sampled_from(WALKS),
    index=st.sampled_from(SIDES),
    output=st.sampled_from(OUTPUTS),
    words=st.sampled_from(WORDS),
    threads=st.sampled_from(THREADS),
    assign=st.sampled_from(ASSIGNMENTS),
    precision=st.sampled_from(["float32", "float64"]),
    buffer=st.sampled_from([1, 64, 10**8]),
    batches=st.sampled_from([1, 3]),
    streams=st.sampled_from([1, 3]),
    sample=st.sampled_from([0.01, 1.0]),
)


EACH_CANDIDATE = [("walk_candidates", 0), ("walk_candidates", 1), ("walk_lists", 1)]


def programs():
    functions = [
        (name, 0) for name in ("make_keys", "find_intervals", "walk_lists")
    ] + [("walk_lists", 1)]
    return [
        (
            "papers/zorder",
            name,
            {
                "DIMS": d,
                "COLUMNS": min(d, 64 * w),
                "WORDS": w,
                "EXACT": exact,
                "COUNTING": count,
            },
        )
        for d, w, exact, (name, count) in itertools.product(
            DIMS, WORDS, (True, False), functions
        )
    ] + [
        (
            "papers/zorder",
            name,
            {
                "DIMS": d,
                "COLUMNS": d,
                "WORDS": 1,
                "EXACT": exact,
                "COUNTING": 0,
                "BOUNDED": bounded,
            },
        )
        for d, exact, (name, bounded) in itertools.product(
            DIMS[:2], (True, False), EACH_CANDIDATE
        )
    ]


@settings(max_examples=examples(200), deadline=None)
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    d = max(width for width in DIMS if width <= case.x.shape[1])
    x = np.ascontiguousarray(case.x[:, :d], dtype=float)
    if len(x):
        layout = laid_out(x, case.eps, options)
        cuts = sorted(
            {0, len(x), *(cut // layout.grain * layout.grain for cut in case.cuts)}
        )
        check_all(JOINER, x, case.eps, layout, cuts, cupy.asarray)


def test_frames_labels_and_profiles():
    cudf = pytest.importorskip("cudf")
    check_frames(cudf.DataFrame, [ZOrder(walk=walk) for walk in WALKS])


def test_lists_are_as_many_as_walks_are_long():
    cudf = pytest.importorskip("cudf")
    x = np.random.default_rng(0).random((400_000, 16))
    x[200_000:202_000] = x[:2000] + 1e-3
    m, some = moments(x), np.ascontiguousarray(x[::64])
    told = m.lower, m.upper, m.mean, m.variance, 0.1**2, 2
    few, many = (
        JOINER.layout(ZOrder(), *told, JoinSample(some, some, n))
        for n in (4000, len(x))
    )
    assert len(few.shifts) == 5 < len(many.shifts)
    frame = cudf.DataFrame({f"x{k}": column for k, column in enumerate(x.T)})
    assert (
        frame.simjoin.count_pairs(0.1, method="zorder")
        == frame.simjoin.count_pairs(0.1)
        >= 2000
    )
