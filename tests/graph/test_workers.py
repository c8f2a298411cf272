"""Code asks whether a worker runs it, and does without one elsewhere."""

import pytest

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph.workers import check_sending, is_worker, on_worker, outside_pool


def test_outside_of_workers():
    assert not is_worker()
    assert on_worker(max, 2, 3) == 3
    with outside_pool():
        assert not is_worker()


def test_only_workers_send_rows_to_each_other():
    check_sending("tasks")
    with pytest.raises(PlanningError, match="leave out scheduler="):
        check_sending("p2p")
