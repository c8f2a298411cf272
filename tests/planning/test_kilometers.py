"""Distances on the sphere that were probably meant in kilometers."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import UnitsWarning
from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.neighbors import NearestNeighbors
from dask_simjoin.planning.kilometers import count_copies, far_from_max_distance
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest
from dask_simjoin.sizes import PROBED
from tests.planning.test_data_warnings import EARTH, ON, RANDOM, ROWS, warned
from tests.support.frames import computed


@pytest.mark.parametrize(
    "verb", ["count_pairs", "self_join", "neighbor_counts", "join"]
)
def test_kilometers_for_meters(lay, verb):
    frame = lay(EARTH)
    first = (lay(EARTH * 0.99),) if verb == "join" else ()
    call = getattr(frame.simjoin, verb)
    _, text, where = warned(UnitsWarning, call, *first, 5.0, metric="haversine")
    assert (
        "In a sample, no two different points are within eps=5.0 meters" in text
        and "use eps='5 km'." in text
    )
    assert "and nearest points are about" in text
    # where it was called, or computed
    assert where.endswith(("test_data_warnings.py", "frames.py"))
    computed(call(*first, 5000.0, metric="haversine"))


AT_ANCHOR = pd.DataFrame(
    {
        "lat": np.append(RANDOM.uniform(57, 58, ROWS), 57.5 + np.arange(50) * 1e-8),
        "lon": np.append(RANDOM.uniform(10, 12, ROWS), np.full(50, 11.0)),
    }
)
"""Places, and 50 that are millimeters apart."""


def test_kilometers_where_some_rows_are_near(lay):
    frame = lay(AT_ANCHOR)
    for verb in ("count_pairs", "self_join", "dbscan"):
        call = getattr(frame.simjoin, verb)
        _, text, where = warned(UnitsWarning, call, 0.5, metric="haversine")
        assert "eps=0.5 is in meters" in text or "within eps=0.5 meters" in text
        assert "use eps='0.5 km'. If you mean meters, eps='0.5 m' ends this" in text
        assert where.endswith(("test_data_warnings.py", "frames.py"))
        computed(call("0.5 m", metric="haversine"))
    # a verb that looks for copies, a distance that is hardly one in kilometers
    AT_ANCHOR.simjoin.near_duplicated(0.5, metric="haversine")
    for eps in (5e-3, 2.0):
        AT_ANCHOR.simjoin.count_pairs(eps, metric="haversine")
    # rows of one harbor
    computed(lay(57.5 + AT_ANCHOR % 0.01).simjoin.count_pairs(0.5, metric="haversine"))


def test_kilometers_of_an_index(tmp_path):
    call = AT_ANCHOR.simjoin.index
    _, text, _ = warned(UnitsWarning, call, 0.5, tmp_path / "a", metric="haversine")
    assert "eps='0.5 m' ends this warning" in text
    call("0.5 m", tmp_path / "b", metric="haversine")
    warned(UnitsWarning, call, 0.05, tmp_path / "c", on=["lat", "lon"])  # degrees


def test_kilometers_of_nearest_rows():
    some = {"k": 1, "metric": "haversine"}
    _, text, _ = warned(
        UnitsWarning, AT_ANCHOR.simjoin.knn_join, max_distance=0.5, **some
    )
    assert "use max_distance='0.5 km'. If you mean meters, max_distance='0.5 m'" in text
    AT_ANCHOR.simjoin.knn_join(max_distance="0.5 m", **some)
    neighbors = NearestNeighbors(radius="0.5 m", metric="haversine").fit(AT_ANCHOR)
    assert neighbors.radius_neighbors_graph().nnz == 50 * 49


@pytest.mark.parametrize("copies", [1, ROWS // 10])
@pytest.mark.parametrize(
    "call",
    [
        lambda frame, how: frame.simjoin.count_pairs(5.0, **how),
        lambda frame, how: frame.simjoin.count_pairs(
            5.0, include_self=True, pairs="both", **how
        ),
        lambda frame, how: frame.simjoin.self_join(5.0, **how),
        lambda frame, how: frame.simjoin.self_join(
            5.0, pairs="both", include_self=True, **how
        ),
        lambda frame, how: frame.simjoin.neighbor_counts([5.0, 4.0], **how),
        lambda frame, how: frame.simjoin.neighbor_graph(5.0, include_self=True, **how),
        lambda frame, how: frame.simjoin.join(frame[:-1], 5.0, how="left", **how),
        lambda frame, how: frame.simjoin.join(frame[:-1], 5.0, how="leftsemi", **how),
        lambda frame, how: frame.simjoin.join(frame[:-1], 5.0, how="leftanti", **how),
        lambda frame, how: frame.simjoin.dbscan(5.0, min_samples=3, **how),
    ],
)
def test_copies_do_not_hide_kilometers(call, copies):
    frame = pd.concat([EARTH, EARTH[-copies:]], ignore_index=True)
    _, text, _ = warned(UnitsWarning, call, frame, {"metric": "haversine"})
    assert "use eps='5 km'." in text


@pytest.mark.parametrize(
    "verb", ["dbscan", "near_duplicated", "drop_near_duplicates", "neighbor_graph"]
)
def test_verbs_without_pairs_warn_of_kilometers(lay, verb):
    how = {"min_samples": 2} if verb == "dbscan" else {}
    call = getattr(lay(EARTH).simjoin, verb)
    _, text, _ = warned(UnitsWarning, call, 5.0, metric="haversine", **how)
    assert "use eps='5 km'." in text
    computed(call(100_000.0, metric="haversine", **how))


def test_copies_are_counted():
    frame = pd.DataFrame(
        {"lat": [1.0, 1.0, 1.0, 2.0, np.nan], "lon": [5.0, 5.0, 5.0, 5.0, 5.0]}
    )
    spec = SelfJoinRequest(eps=1.0, on=ON, metric="haversine").spec(frame)
    assert count_copies([frame], spec) == 3
    other = frame.rename(columns={"lat": "a", "lon": "b"})
    two = JoinRequest(
        other=other, eps=1.0, left_on=ON, right_on=["a", "b"], metric="haversine"
    )
    assert count_copies([frame, other], two.spec(frame, other)) == 10
    assert count_copies([object()], spec) == 0


@pytest.mark.parametrize("rows", [PROBED - 1, 2 * PROBED])
def test_nearest_rows_are_measured_without_copies(rows):
    """Rows on the equator, a degree apart, each twice."""
    lon = np.radians(np.arange(rows) // 2)
    x = np.column_stack([np.cos(lon), np.sin(lon), np.zeros(rows)])
    frame = pd.DataFrame({"lat": [0.0], "lon": [0.0]})
    spec = SelfJoinRequest(eps=1.0, on=ON, metric="haversine").spec(frame)
    text = far_from_max_distance(x, x, spec, 1.0)
    assert bool(text) == (rows >= PROBED)
    assert not text or f"about {np.radians(1) * RADIUS:,.0f} meters away" in text
    assert not far_from_max_distance(x, x, spec, 5000.0)
    # only copies
    assert not far_from_max_distance(x[:1].repeat(PROBED, axis=0), x[:2], spec, 1.0)
