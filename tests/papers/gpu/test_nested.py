"""Nested loops on a GPU: the pairs of the definition by either schedule."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.papers.lists import SCHEDULES, NestedLoop
from tests.papers.gpu.test_grid import laid_out
from tests.support.method_checks import check_all, check_frames
from tests.support.points import cases
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

DIMS = [1, 2, 5, 20, 200]
BLOCKS = [32, 128]

any_options = st.builds(
    NestedLoop,
    schedule=st.sampled_from(SCHEDULES),
    block=st.sampled_from(BLOCKS),
    precision=st.sampled_from(["float32", "float64"]),
    buffer=st.sampled_from([1, 64, 10**8]),
    batches=st.sampled_from([1, 3]),
    streams=st.sampled_from([1, 3]),
    sample=st.sampled_from([0.01, 1.0]),
)


def programs():
    uses = itertools.product(DIMS, BLOCKS, (True, False), (True, False), (0, 1))
    return [
        (
            "papers/nested",
            "join_nested",
            {"DIMS": d, "BLOCK": b, "ROTATION": r, "EXACT": e, "COUNTING": c},
        )
        for d, b, r, e, c in uses
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
    check_frames(
        cudf.DataFrame, [NestedLoop(schedule=schedule) for schedule in SCHEDULES]
    )
