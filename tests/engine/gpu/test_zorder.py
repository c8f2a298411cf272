"""Joins by lists in Z-order on a GPU: the pairs of the definition by any walk."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

cupy = pytest.importorskip("cupy")
pytest.importorskip("cudf")

from dask_simjoin.engine.gpu.joiner import JOINER
from dask_simjoin.engine.zorder import OUTPUTS, SIDES, THREADS, WALKS, ZOrder
from tests.engine.gpu.test_grid import laid_out
from tests.support.oracle import assert_same_pairs, brute_force
from tests.support.points import cases, frame_of
from tests.support.profiles import examples

pytestmark = pytest.mark.gpu

DIMS = [1, 2, 5, 70]
WORDS = [1, 3]

any_options = st.builds(
    ZOrder, lists=st.sampled_from(["auto", "d+1", 1, 2]), shifts=st.sampled_from(["even", "random"]),
    walk=st.sampled_from(WALKS), index=st.sampled_from(SIDES), output=st.sampled_from(OUTPUTS),
    words=st.sampled_from(WORDS), threads=st.sampled_from(THREADS),
    precision=st.sampled_from(["float32", "float64"]), buffer=st.sampled_from([1, 64, 10**8]),
    batches=st.sampled_from([1, 3]), streams=st.sampled_from([1, 3]), sample=st.sampled_from([0.01, 1.0]),
)  # fmt: skip


def programs():
    functions = [(name, 0) for name in ("make_keys", "find_intervals", "walk_lists")] + [("walk_lists", 1)]
    return [
        (
            "zorder",
            name,
            {"DIMS": d, "COLUMNS": min(d, 64 * w), "WORDS": w, "EXACT": exact, "COUNTING": count},
        )
        for d, w, exact, (name, count) in itertools.product(DIMS, WORDS, (True, False), functions)
    ]


@settings(max_examples=examples(200), deadline=None)
@given(cases(), any_options)
def test_any_points_and_options(case, options):
    d = max(width for width in DIMS if width <= case.x.shape[1])
    x = np.ascontiguousarray(case.x[:, :d], dtype=float)
    if not len(x):
        return
    layout = laid_out(x, case.eps, options)
    expected = brute_force(x, case.eps)
    index = JOINER.build(cupy.asarray(x), layout)
    pairs = JOINER.pairs(index, index, layout, same=True)
    found = list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    assert len(found) == len(set(found))
    assert_same_pairs(set(found), expected)
    counts = np.bincount(np.array(sorted(expected), np.int64).reshape(-1), minlength=len(x))
    assert JOINER.counts(index, index, layout, same=True)[0].tolist() == counts.tolist()
    weights = JOINER.weights(index, index, layout, same=True).get()
    cuts = sorted({0, len(x), *(cut // layout.grain * layout.grain for cut in case.cuts)})
    for rows in itertools.pairwise(cuts):
        part = JOINER.pairs(index, index, layout, same=True, rows=rows)
        assert len(part.left) == weights[slice(*rows)].sum()
    cut = len(x) // 3
    some, rest = (JOINER.build(cupy.asarray(part), layout) for part in (x[:cut], x[cut:]))
    across = JOINER.pairs(some, rest, layout, same=False)
    found = set(zip(across.left.tolist(), across.right.tolist(), strict=True))
    assert_same_pairs(found, {(a, b - cut) for a, b in expected if a < cut <= b})


def test_frames_labels_and_profiles():
    cudf = pytest.importorskip("cudf")
    x = np.random.default_rng(3).exponential(1.0, (3000, 2))
    frame = frame_of(x)
    device = cudf.DataFrame(frame)
    expected = frame.simjoin.dbscan(0.1, 4, method="tiles")
    pairs = frame.simjoin.self_join(0.1, method="tiles", return_distance=True)
    key = ["left", "right"]
    for walk in WALKS:
        options = ZOrder(walk=walk)
        assert device.simjoin.dbscan(0.1, 4, method=options).to_pandas().tolist() == expected.tolist()
        found = device.simjoin.self_join(0.1, method=options, return_distance=True).to_pandas()
        assert found.sort_values(key).to_numpy().tolist() == pairs.sort_values(key).to_numpy().tolist()
        assert device.simjoin.profile(0.1, method=options).numbers["pairs"] == len(pairs)
