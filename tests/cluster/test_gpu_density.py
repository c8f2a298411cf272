"""Density clusters of cuDF frames by boxes are those of pandas frames: threads unite the
same sets at the same time, again and again.
"""

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")
cudf = pytest.importorskip("cudf")

from dask_simjoin.engine.gpu import dense_boxes
from dask_simjoin.engine.gpu.sources import LEAF
from tests.support.gpu_frames import lay
from tests.support.points import frame_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]

ROWS = 100_000


def programs():
    """Of three columns, with a filter."""
    constants = {"DIMS": 3, "EXACT": False, "LEAF": LEAF}
    return [("dense_boxes", "unite_points", constants)]


def points(kind, rng):
    """Return points (n, 3): sparse ones, and dense ones of several forms."""
    walks = rng.normal(size=(10, ROWS // 10, 3)).cumsum(axis=1).reshape(-1, 3) * 0.2
    layers = rng.integers(3, size=(ROWS, 1)) * [0, 0, 1.005]
    return {
        "uniform": rng.random((ROWS, 3)) * 44,
        "walks": walks,
        "far": walks.astype(np.float32) + 2.0**20,
        "copies": np.repeat(rng.random((40, 3)) * 3, ROWS // 40, axis=0),
        "layers": rng.random((ROWS, 3)) * [8, 8, 0.01] + layers,
        "lattice": rng.integers(40, size=(ROWS, 3)).astype(float),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["uniform", "walks", "far", "copies", "layers", "lattice"]
)
def test_labels_are_those_of_pandas(kind, monkeypatch):
    used, clusters = [], dense_boxes.DensityClusters
    monkeypatch.setattr(
        dense_boxes, "DensityClusters", lambda *a: used.append(a) or clusters(*a)
    )
    rng = np.random.default_rng(7)
    frame = frame_of(rng.permutation(points(kind, rng)))
    device = lay(frame, "cudf")
    cases = [(1.0, 1), (1.0, 2), (1.0, 5), (1.0, 40), (0.25, 3), (4.0, 1000)]
    for eps, min_samples in cases:
        want = frame.simjoin.dbscan(eps, min_samples).to_numpy()
        for _ in range(3):
            found = device.simjoin.dbscan(eps, min_samples).to_numpy()
            assert (found != want).sum() == 0
    assert len(used) == 3 * len(cases)
    marks = device.simjoin.near_duplicated(0.25, keep=False).to_numpy()
    assert (marks != frame.simjoin.near_duplicated(0.25, keep=False)).sum() == 0
