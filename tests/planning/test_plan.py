"""Plans of plain frames: what counting alone tells of pairs is what the pairs tell."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.planning import chunk_limits
from dask_simjoin.planning.limits import NEED, Limits
from dask_simjoin.planning.outputs import COUNTS, PAIRS
from dask_simjoin.planning.partition import summarise
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.request.requests import SelfJoinRequest
from dask_simjoin.sizes import SAMPLED
from tests.support.cluster_chunks import parts_of
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


@pytest.mark.parametrize("number", [1, 2, 4])
def test_pairs_are_counted_unless_those_of_two_chunks_fit_in_memory(
    number, monkeypatch
):
    monkeypatch.setattr(chunk_limits, "MIN_PART", 1)
    monkeypatch.setattr(chunk_limits.ChunkLimits, "numbers", [number])
    x = np.random.default_rng(0).uniform(size=(20_000, 2))
    parts = parts_of(frame_of(x), (5_000, 10_000, 15_000))
    spec = SelfJoinRequest(eps=0.3, partitioning="entity").spec(parts[0])
    tables = join_statistics(
        [[summarise(part, n, spec, True, 4) for n, part in enumerate(parts)]], spec
    )
    for memory in np.geomspace(1e8, 1e10, 9).astype(int).tolist():
        plan = make_plan(tables, PAIRS, Limits(4, memory, True, 4 * memory, workers=4))
        assert len(plan.chunks) == number
        most = plan.result.estimate.high_together.max() * plan.result.pair_bytes
        fits = NEED * most <= memory or most <= plan.limits.output
        assert plan.work.even == fits
