"""Named tuples that go from worker to worker go as their arrays do."""

import numpy as np
import pytest
from distributed.protocol import deserialize, serialize

from dask_simjoin.cluster.algorithms.dbscan import Begun, Numbering, Standing
from dask_simjoin.cluster.algorithms.duplicates import Candidates, GroupRows
from dask_simjoin.cluster.algorithms.edges import PlaceCounts
from dask_simjoin.tasks.nearest import FoundRows
from tests.support.points import frame_of

X = np.arange(1000)
BEST = Candidates(X, X + 1, X[:0])
TOLD = [
    PlaceCounts(7, X.astype(np.uint8)),
    Standing(X, X[::2], X[:0], X + 5),
    Begun(3, X, X),
    Begun(X, X, X),
    Numbering([0, 3, 9], X, X, X),
    GroupRows(X, X, BEST),
    FoundRows(X, frame_of(np.zeros((1000, 1))).index, {"a": X, "b": np.array(["x"] * 1000, object)}),
]


def same(one, other):
    if isinstance(one, (tuple, list)):
        return type(one) is type(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(same, one.values(), other.values()))
    return np.array_equal(one, other) and getattr(one, "dtype", None) == getattr(other, "dtype", None)


@pytest.mark.parametrize("family", [["dask", "pickle"], ["cuda", "dask", "pickle"]])
@pytest.mark.parametrize("value", TOLD, ids=lambda value: type(value).__name__)
def test_they_arrive_as_they_left(value, family):
    header, frames = serialize((value, {"kept": value}), serializers=family, on_error="raise")
    header, frames = serialize(value, serializers=family, on_error="raise")
    assert same(value, deserialize(header, [bytes(frame) for frame in frames]))


@pytest.mark.parametrize("family", [["dask", "pickle"], ["cuda", "dask", "pickle"]])
def test_arrays_are_not_pickled(family):
    """What a GPU holds is copied to the host to be pickled; here the array's own memory is what is sent."""
    counts = np.arange(100_000, dtype=np.uint16)
    header, frames = serialize(PlaceCounts(0, counts), serializers=family, on_error="raise")
    assert header["serializer"] == family[0]
    assert any(np.shares_memory(np.frombuffer(frame, np.uint8), counts) for frame in frames)
