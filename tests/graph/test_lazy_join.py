"""Showing a lazy result plans nothing."""

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dask_simjoin.graph import planner
from dask_simjoin.graph.lazy_join import UNPLANNED
from tests.reports.test_run import OF_ROWS


@pytest.fixture
def frame():
    x = np.random.default_rng(3).uniform(size=(120, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(tags=[["a", "b"][k % 2 :] for k in range(120)])


@pytest.fixture
def lazy(frame):
    with dask.config.set(scheduler="synchronous", **{"dataframe.convert-string": False}):
        yield dd.from_pandas(frame, npartitions=3)


@pytest.fixture
def plans(monkeypatch):
    """The number of plans that were made, as a list of as many."""
    made, compute = [], planner.plan_join
    monkeypatch.setattr(planner, "plan_join", lambda *args: made.append(1) or compute(*args))
    return made


@pytest.mark.parametrize("verb", OF_ROWS)
def test_showing_a_lazy_result_plans_nothing(lazy, plans, verb):
    rows = lazy[lazy["x"] >= 0]  # a frame of its own: an equal join may be alive, and planned
    result = getattr(rows.simjoin, verb)(**OF_ROWS[verb])
    further = result[result["left"] > result["right"]].assign(z=1)
    for one in (result, further, further["left"], result["left"].sum()):
        assert (UNPLANNED.name in repr(one)) == (one.ndim > 0)
    assert UNPLANNED.name in further._repr_html_()
    assert not plans
    number = further.npartitions
    assert f"npartitions={number}" in repr(further) and f"npartitions={number}" in repr(result)
