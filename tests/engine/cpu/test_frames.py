"""Coordinates of frames of pandas: where they lie, if nothing is to be converted, and
never written to.
"""

import numpy as np
import pandas as pd
import pytest

import dask_simjoin  # noqa: F401  (verbs of frames)
from dask_simjoin.engine.cpu import frames
from dask_simjoin.engine.cpu.frames import FRAMES

X = np.random.default_rng(0).uniform(50, 60, (800, 5))

ON = tuple("abcde")


def whole():
    return pd.DataFrame({name: X[:, k].copy() for k, name in enumerate(ON)})


def of_rows():
    """The numbers of a row side by side."""
    return pd.DataFrame(X.copy(), columns=list(ON))


def for_reading():
    x = np.asfortranarray(X)
    x.flags.writeable = False
    return pd.DataFrame(x, columns=list(ON), copy=False)


FRAMES_OF = {
    "whole": whole,
    "rows": of_rows,
    "read only": for_reading,
    "more columns": lambda: whole().assign(text="a"),
    "other order": lambda: whole()[list("edcba")],
    "float32": lambda: whole().astype({"b": "float32"}),
    "integers": lambda: whole().round().astype({"b": "int64"}),
    "missing": lambda: whole().astype({"c": "Float64"}),
    "blocks": lambda: whole()[["a", "b"]].assign(c=X[:, 2], d=X[:, 3], e=X[:, 4]),
    "part": lambda: whole().iloc[100:600],
    "every other": lambda: whole().iloc[::2],
    "narrow": lambda: whole().astype("float32"),
    "narrow part": lambda: whole().astype("float32").iloc[100:600].assign(id=1),
    "whole numbers": lambda: whole().round().astype("int64"),
    "empty": lambda: whole().iloc[:0],
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("kind", FRAMES_OF)
def test_coordinates_are_those_of_the_columns(kind, together, monkeypatch):
    monkeypatch.setattr(frames, "MIN_COPIED_AT_ONCE", len(ON) + (not together))
    frame = FRAMES_OF[kind]()
    x = FRAMES.coordinates(frame, ON)
    assert x.dtype == np.float64 and x.flags.f_contiguous and x.flags.writeable
    assert np.array_equal(
        x, np.column_stack([frame[name].to_numpy(np.float64) for name in ON])
    )


def test_nothing_is_copied_where_nothing_is_converted():
    frame = whole()
    assert np.shares_memory(FRAMES.coordinates(frame, ON), frame.to_numpy())
    assert not np.shares_memory(FRAMES.coordinates(frame, ON[:4]), frame.to_numpy())
    other = for_reading()
    assert not np.shares_memory(FRAMES.coordinates(other, ON), other.to_numpy())


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "haversine"])
@pytest.mark.parametrize("kind", ["whole", "rows", "more columns"])
def test_verbs_leave_frames_as_they_are(kind, metric):
    frame = FRAMES_OF[kind]()
    options = {
        "on": list(ON[:2]) if metric == "haversine" else list(ON),
        "metric": metric,
    }
    if metric == "haversine":
        frame = frame[list(ON[:2])]
    before, eps = frame.copy(), {"cosine": 1e-3, "haversine": 1e5}.get(metric, 2.0)
    assert len(
        frame.simjoin.self_join(eps, return_distance=True, dropna=True, **options)
    )
    for verb in ("count_pairs", "neighbor_counts", "dbscan", "neighbor_graph"):
        getattr(frame.simjoin, verb)(eps, **options)
    frame.simjoin.join(frame, eps, **options)
    frame.simjoin.knn_join(k=3, **options)
    frame.simjoin.k_distances(3, **options)
    pd.testing.assert_frame_equal(frame, before)
