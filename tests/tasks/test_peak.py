"""Joins of plain frames take little more memory than their results: NumPy reports what
it takes.
"""

import tracemalloc

import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from tests.support.profiles import chosen

ROWS = 2500

LIMIT = 1.3
"""Times the bytes of the result: see `dask_simjoin.planning.budget.PEAK`."""


@pytest.fixture(scope="module")
def counts_both():
    """Whether a resized array counts twice, as with NumPy 2.5: the old one and the new
    one.
    """
    tracemalloc.start()
    try:
        array = np.empty(1 << 16)
        array.resize(1 << 17, refcheck=False)
        return tracemalloc.get_traced_memory()[1] > 1.2 * array.nbytes
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def points():
    """Rows of which each is near hundreds of others."""
    random = np.random.default_rng(0)
    number = random.permutation(ROWS)
    frame = pd.DataFrame(random.uniform(size=(ROWS, 2)), columns=["x", "y"])
    frame = frame.assign(
        number=number, small=number.astype(np.int32), unsigned=number.astype(np.uint64)
    )
    frame["date"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(number, unit="s")
    frame["object"] = pd.Series([(n,) for n in number.tolist()], dtype=object)
    frame["radius"] = np.linspace(0.45, 0.5, ROWS)
    frame["tags"] = [[int(n) % 3, 10, 11, 12] for n in number]
    return frame


def self_join(**options):
    return lambda frame: frame.simjoin.self_join(0.5, on=["x", "y"], **options)


def left_join(**options):
    """Pairs with some of the rows, so that others may have none."""

    def call(frame):
        other = frame[frame["x"] < 0.3]
        return frame.simjoin.join(other, 0.5, on=["x", "y"], how="left", **options)

    return call


VERBS = {
    "pairs": self_join(),
    "distances": self_join(return_distance=True),
    "kept": self_join(return_distance=True, keep=["number", "small"]),
    "both": self_join(return_distance=True, pairs="both", id="unsigned"),
    "itself": self_join(return_distance=True, include_self=True),
    "int32": self_join(id="small", pairs="both"),
    "dates": self_join(id="date", pairs="both"),
    "objects": self_join(
        id="object", return_distance=True, pairs="both", include_self=True
    ),
    "radii": lambda frame: frame.simjoin.self_join(
        "radius", on=["x", "y"], pairs="both", return_distance=True
    ),
    "tiles": self_join(method="tiles", id="small", return_distance=True),
    "left": left_join(return_distance=True),
    "left-kept": left_join(keep="number", suffixes=("_a", "_b")),
    "nearest": lambda frame: frame.simjoin.knn_join(
        k=500, on=["x", "y"], keep="number"
    ),
    "nearest-few": lambda frame: frame.simjoin.knn_join(
        k=300, on=["x", "y"], max_distance=0.25
    ),
    "mutual": lambda frame: frame.simjoin.knn_join(k=500, on=["x", "y"], mutual=True),
    "mutual-two": lambda frame: frame.simjoin.knn_join(
        frame.assign(x=frame["y"]), 1500, on=["x", "y"], mutual=True
    ),
    "sets": lambda frame: frame.simjoin.set_self_join(
        "tags", 0.5, id="number", return_similarity=True
    ),
}
FEW = ["both", "objects", "radii", "left", "nearest", "mutual", "sets"]


@pytest.mark.parametrize("verb", chosen(list(VERBS), FEW[::3]))
def test_a_join_takes_little_more_than_its_result(
    points, counts_both, verb, monkeypatch
):
    monkeypatch.setattr("dask_simjoin.engine.columns.BATCH", 1 << 14)
    monkeypatch.setattr("dask_simjoin.sets.pairs.ROWS", 1 << 14)
    # samples take up to a hundred megabytes, whatever the result
    monkeypatch.setattr("dask_simjoin.tasks.chunks.SAMPLED", 64)
    call = VERBS[verb]
    call(points)  # what is compiled and imported stays
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        found = call(points)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    columns = found.memory_usage(index=False)
    size = int(columns.sum())
    assert size > 8_000_000
    assert peak <= LIMIT * size + (columns.max() if counts_both else 0)
