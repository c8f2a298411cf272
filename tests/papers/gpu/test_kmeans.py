"""Joins by k-means clusters on a GPU: the pairs of the definition by any windows, and
the CPU's counters.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.base import profiler_of_library
from dask_simjoin.engine.cpu.joiner import JOINER as CPU
from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.papers.lists import INNER, WINDOWS, KMeans
from dask_simjoin.planning.sample import moments
from tests.support.method_checks import check_all, check_frames
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import cases, frame_of, make_points
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

DIMS = [1, 2, 5, 20, 200]

any_options = st.builds(
    KMeans,
    clusters=st.sampled_from(["auto", 1, 2, 9, 70]),
    iterations=st.sampled_from([0, 15]),
    windows=st.sampled_from(WINDOWS),
    inner=st.sampled_from(INNER),
    precision=st.sampled_from(["float32", "float64"]),
    buffer=st.sampled_from([1, 64, 10**8]),
    batches=st.sampled_from([1, 3]),
    streams=st.sampled_from([1, 3]),
    sample=st.sampled_from([0.01, 1.0]),
)


def programs():
    labels = [
        ("papers/clusters", name, {"DIMS": d, "EXACT": True})
        for d in DIMS
        for name in ("label_rows", "near_clusters", "center_distances", "list_members")
    ]
    uses = itertools.product(DIMS, (True, False), (True, False), (0, 1))
    joins = [
        (
            "papers/members",
            "join_members",
            {"DIMS": d, "EXACT": e, "BOXES": b, "COUNTING": c},
        )
        for d, e, b, c in uses
    ]
    boxes = [
        ("papers/members", "member_boxes", one[2])
        for one in joins
        if one[2]["BOXES"] and not one[2]["COUNTING"]
    ]
    return labels + joins + boxes


def laid_out(x, eps, options, joiner=JOINER, norm=2):
    m = moments(np.asarray(x, float))
    threshold = eps**2 if norm == 2 else eps
    bounds = m.lower, m.upper, m.mean, m.variance
    return joiner.layout(options, *bounds, threshold, norm, JoinSample(x, x, len(x)))


@settings(max_examples=examples(200), deadline=None)
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    d = max(width for width in DIMS if width <= case.x.shape[1])
    x = np.ascontiguousarray(case.x[:, :d], dtype=float)
    if len(x):
        layout = laid_out(x, case.eps, options)
        cuts = sorted({0, len(x), *(cut for cut in case.cuts if cut <= len(x))})
        check_all(JOINER, x, case.eps, layout, cuts, cupy.asarray)


@pytest.mark.parametrize("norm", [1, float("inf")])
def test_other_norms(norm):
    x = np.random.default_rng(0).uniform(size=(500, 2))
    for windows in WINDOWS:
        layout = laid_out(x, 0.1, KMeans(clusters=9, windows=windows), norm=norm)
        index = JOINER.build(cupy.asarray(x), layout)
        pairs = JOINER.pairs(index, index, layout, is_self_join=True)
        found = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
        assert_same_pairs(found, brute_force(x, 0.1, "minkowski", norm))


@pytest.mark.parametrize("windows", WINDOWS)
def test_profiles_are_the_cpus(windows):
    """Labels are told in float64 with the same operations, so that clusters and copies
    are the same.
    """
    x = make_points("clusters", 20_000, 8, np.random.default_rng(2))
    options = KMeans(clusters=70, windows=windows)
    device = laid_out(x, 0.3, options)
    found = profiler_of_library("cudf").profile(cupy.asarray(x), device).numbers
    expected = (
        profiler_of_library("pandas").profile(x, laid_out(x, 0.3, options, CPU)).numbers
    )
    for name in (
        "pairs",
        "candidates",
        "copies",
        "clusters",
        "largest_cluster",
        "compared_ratio",
    ):
        assert found[name] == expected[name], name


def test_frames_and_labels():
    cudf = pytest.importorskip("cudf")
    check_frames(
        cudf.DataFrame, [KMeans(windows=windows, clusters=20) for windows in WINDOWS]
    )


@pytest.mark.filterwarnings("ignore::dask_simjoin.errors.ApproximateWarning")
def test_what_is_left_out_is_what_the_cpu_leaves_out():
    cudf = pytest.importorskip("cudf")
    frame = frame_of(make_points("clusters", 12_000, 8, np.random.default_rng(4)))
    device, same = (
        cudf.DataFrame(frame),
        {"method": KMeans(clusters=20), "approximate": True},
    )
    expected = frame.simjoin.self_join(0.3, **same)
    found = device.simjoin.self_join(0.3, **same).to_pandas()
    assert sorted(map(tuple, found.to_numpy().tolist())) == sorted(
        map(tuple, expected.to_numpy().tolist())
    )
    told, own = (some.simjoin.profile(0.3, **same).numbers for some in (device, frame))
    assert [told[k] for k in ("recall", "recall_low")] == [
        own[k] for k in ("recall", "recall_low")
    ]
    assert device.simjoin.plan(0.3, **same).recall == pytest.approx(
        frame.simjoin.plan(0.3, **same).recall
    )
