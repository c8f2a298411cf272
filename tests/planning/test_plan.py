"""Plans of plain frames: what counting alone tells of pairs is what the pairs tell."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.planning.outputs import COUNTS, PAIRS
from dask_simjoin.planning.plan import make_whole_plan
from dask_simjoin.planning.statistics.partition import summarise
from dask_simjoin.planning.statistics.sample_pairs import PROBE
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.request.requests import SelfJoin
from tests.support.points import frame_of


def tables_for(x, eps, most=PROBE, **options):
    frame = frame_of(x)
    spec = SelfJoin(eps=eps, **options).spec(frame)
    return join_statistics([[summarise(frame, 0, spec, True, 1, most)]], spec)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 0.02, 0.2, 3.0])
@pytest.mark.parametrize("rows", [0, 1, 2, 200, 5000, 30_000])
@pytest.mark.parametrize("dims", [2, 6])
def test_degrees_tell_what_pairs_tell(rows, eps, dims):
    if rows > 5000 and eps > 1:
        eps = 0.3
    tables = tables_for(np.random.default_rng(rows).uniform(size=(rows, dims)), eps)
    layout = tables.layout()
    counted, found = (tables.estimate_whole(layout, way) for way in (True, False))
    for name in ("total", "total_low", "total_high"):
        assert math.isclose(getattr(counted, name), getattr(found, name), rel_tol=1e-9), name
    listed = tables.estimate_whole(layout, True, True)
    for name in ("degrees", "points"):
        told = [getattr(one, name).tolist() for one in (counted, found, listed)]
        assert told[0] == told[1] == told[2]
    assert counted.total_low <= counted.total * (1 + 1e-12)
    assert counted.total <= counted.total_high * (1 + 1e-12)


def test_plans_that_count_and_plans_that_pair():
    x = np.random.default_rng(0).uniform(size=(20_000, 2))
    tables = tables_for(x, 0.05)
    counting, pairing = (make_whole_plan(tables, goal) for goal in (COUNTS, PAIRS))
    assert counting.meets and counting.rows == 20_000
    assert math.isclose(counting.estimate.total, pairing.estimate.total, rel_tol=1e-9)
    assert not make_whole_plan(tables_for(x[:0], 0.05), PAIRS).meets
    limited = replace(tables.spec, settings=replace(tables.spec.settings, result=1000))
    table = replace(tables.left, spec=limited)
    with pytest.raises(BudgetError, match=r"simjoin.result-limit"):
        make_whole_plan(JoinStatistics(table, table), PAIRS)
    make_whole_plan(JoinStatistics(table, table), COUNTS)


def test_tables_far_apart_do_not_meet():
    near = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 0.0]})
    far = near + 1000
    assert len(near.simjoin.join(far, 1.0)) == 0
    assert near.simjoin.join(far, 1.0, how="leftanti").equals(near)
    assert len(near.simjoin.join(near, 1.0)) == 4


def test_shares_of_the_most_joined_points():
    x = np.random.default_rng(3).normal(size=(250, 2))  # few enough to be its own sample
    tables = tables_for(x, 0.3, most=250)
    found = tables.estimate_whole(tables.layout(), False)
    near = (((x[:, None] - x) ** 2).sum(axis=2) <= 0.3**2).sum(axis=1) - 1
    near = -np.sort(-near)
    for part in (0.0, 1 / 250, 0.01, 0.3, 1.0):
        assert math.isclose(found.share(part), near[: math.ceil(part * 250)].sum() / near.sum())
    assert len(found.degrees) < 100
