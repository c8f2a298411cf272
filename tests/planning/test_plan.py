"""Plans of plain frames: what counting alone tells of pairs is what the pairs tell."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.planning.outputs import COUNTS, PAIRS
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.sizes import SAMPLED
from tests.support.points import frame_of


def tables_for(x, eps, most=SAMPLED, **options):
    frame = frame_of(x)
    spec = SelfJoinRequest(eps=eps, **options).spec(frame)
    return join_statistics([[summarise(frame, 0, spec, True, 1, most)]], spec)


def test_plans_that_count_and_plans_that_pair():
    x = np.random.default_rng(0).uniform(size=(20_000, 2))
    tables = tables_for(x, 0.05)
    counting, pairing = (make_plan(tables, goal) for goal in (COUNTS, PAIRS))
    assert counting.meets and counting.rows == 20_000
    assert math.isclose(
        counting.result.estimate.total, pairing.result.estimate.total, rel_tol=1e-9
    )
    assert not make_plan(tables_for(x[:0], 0.05), PAIRS).meets
    limited = replace(tables.spec, settings=replace(tables.spec.settings, result=1000))
    table = replace(tables.left, spec=limited)
    with pytest.raises(BudgetError, match=r"simjoin.result-limit"):
        make_plan(JoinStatistics(table, table), PAIRS)
    make_plan(JoinStatistics(table, table), COUNTS)
