"""Copies, and the distances of nearest rows on the sphere."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.metrics.sphere import RADIUS
from dask_simjoin.planning.far_rows import PROBED, count_copies, far_from_max_distance
from dask_simjoin.request.requests import JoinRequest, SelfJoinRequest

ON = ["lat", "lon"]


def test_copies_are_counted():
    frame = pd.DataFrame({"lat": [1.0, 1.0, 1.0, 2.0, np.nan], "lon": [5.0, 5.0, 5.0, 5.0, 5.0]})
    spec = SelfJoinRequest(eps=1.0, on=ON, metric="haversine").spec(frame)
    assert count_copies([frame], spec) == 3
    other = frame.rename(columns={"lat": "a", "lon": "b"})
    two = JoinRequest(other=other, eps=1.0, left_on=ON, right_on=["a", "b"], metric="haversine")
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
    assert not far_from_max_distance(x, x, spec, 1000.0)
    assert not far_from_max_distance(x[:1].repeat(PROBED, axis=0), x[:2], spec, 1.0)  # only copies
