"""Showing a lazy result plans nothing."""

import pytest

from dask_simjoin.graph import planner
from dask_simjoin.graph.lazy_join import UNPLANNED
from tests.reports.test_run import OF_ROWS


@pytest.fixture
def plans(monkeypatch):
    """The number of plans that were made, as a list of as many."""
    made, compute = [], planner.plan_join
    monkeypatch.setattr(
        planner, "plan_join", lambda *args: made.append(1) or compute(*args)
    )
    return made


@pytest.mark.parametrize("verb", OF_ROWS)
def test_showing_a_lazy_result_plans_nothing(lazy_tagged, plans, verb):
    # a frame of its own: an equal join may be alive, and planned
    rows = lazy_tagged[lazy_tagged["x"] >= 0]
    result = getattr(rows.simjoin, verb)(**OF_ROWS[verb])
    further = result[result["left"] > result["right"]].assign(z=1)
    for one in (result, further, further["left"], result["left"].sum()):
        assert (UNPLANNED.name in repr(one)) == (one.ndim > 0)
    assert UNPLANNED.name in further._repr_html_()
    assert not plans
    number = further.npartitions
    assert f"npartitions={number}" in repr(further) and f"npartitions={number}" in repr(
        result
    )
