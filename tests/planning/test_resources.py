"""What workers are given to shuffle, and what they have no room for."""

import numpy as np
import pandas as pd
import pytest

from dask_simjoin.errors import BudgetError
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.outputs import PAIRS
from dask_simjoin.planning.plan import make_plan
from dask_simjoin.planning.resources import AT_ONCE, LARGEST, sent_rows, workers_of
from dask_simjoin.planning.statistics.partition import summarise
from dask_simjoin.planning.tables import join_statistics
from dask_simjoin.request.requests import SelfJoinRequest

LIMIT = 700_000_000
SMALL = Resources(2, LIMIT - 300 * 2**20, True, LIMIT, workers=2)


class Asked:
    """A client whose information of the scheduler lacks the workers for some calls."""

    def __init__(self, stale):
        self.stale = stale

    def scheduler_info(self, n_workers):
        self.stale -= 1
        workers = {"a": {"nthreads": 2}, "b": {"nthreads": 1}}
        return {"n_workers": 2, "workers": {} if self.stale >= 0 else workers}


def test_workers_are_asked_for_again_if_a_thread_of_dask_has_left_them_out():
    assert workers_of(Asked(3)) == {"a": {"nthreads": 2}, "b": {"nthreads": 1}}
    assert workers_of(Asked(10**6)) == {}  # a client without connection never has them


def test_rows_are_sent_in_pieces_of_which_many_copies_fit():
    rows = sent_rows("p2p", SMALL, 24)
    assert rows * 40 * AT_ONCE == pytest.approx(SMALL.memory, rel=0.01)
    assert 200_000 < rows < 600_000  # of 1,000,000 workers died, of 500,000 none did
    assert sent_rows("p2p", SMALL, 10**9) == 1
    assert sent_rows("tasks", SMALL, 24) == sent_rows("p2p", Resources(2), 24) == MAX_ROWS


def plan_of(frame, have, partitioning, eps=1e-5):
    spec = SelfJoinRequest(eps=eps, partitioning=partitioning, id="id", blocksize="24 kB").spec(frame)
    summaries = [summarise(frame[n::4], n, spec, True, 4) for n in range(4)]
    return make_plan(join_statistics([summaries], spec), PAIRS, have, "p2p")


@pytest.fixture(scope="module")
def frame():
    x = np.random.default_rng(0).uniform(size=(80_000, 2))
    return pd.DataFrame(x, columns=["x", "y"]).assign(id=range(len(x)))


def test_partitions_without_room_are_refused_where_they_would_be_shuffled(frame):
    """With an explicit remedy; "auto" then goes another way, even where it would be the slower one."""
    need = 20_000 * 24 * LARGEST
    roomy, tight = (Resources(2, memory, True, LIMIT, workers=2) for memory in (need, need // 2))
    for asked in ("spatial", "auto"):
        assert plan_of(frame, roomy, asked).partitioning == "spatial"
    message = r"up to 20,000 rows of 24 bytes, 468.75 kiB.*at most 234.38 kiB.*npartitions=8\).*'entity'"
    with pytest.raises(BudgetError, match=message):
        plan_of(frame, tight, "spatial")
    assert plan_of(frame, tight, "auto").partitioning == "entity"
