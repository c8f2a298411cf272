"""The number of tasks of a worker stays bounded as workers grow."""

import pytest

from benchmarks.dask.graphs import ROWS, cluster, tasks_of
from dask_simjoin.planning.resources import MAX_MOVES

EACH = 64
"""Most tasks of each worker, in addition to the messages between workers."""


@pytest.mark.parametrize(
    ("verb", "workers"),
    [
        ("count_pairs", 8),
        ("count_pairs", 32),
        ("count_pairs", 128),
        ("self_join", 128),
        pytest.param("self_join", 1024, marks=pytest.mark.slow),
        ("dbscan", 8),
        ("dbscan", 32),
        pytest.param("dbscan", 128, marks=pytest.mark.slow),
        ("knn_join", 8),
        pytest.param("knn_join", 128, marks=pytest.mark.slow),
    ],
)
def test_tasks_of_a_cluster(verb, workers):
    """DBSCAN sends rows, and then labels back, each in up to `MAX_MOVES` messages."""
    rounds = 2 if verb == "dbscan" else 1
    found = tasks_of(verb, cluster(workers, 2, 16 << 30), ROWS * workers)
    assert found["tasks"] <= rounds * (EACH * workers + MAX_MOVES)
    assert (found["shuffle"] == "p2p") == (workers**2 > MAX_MOVES)
    assert found["bytes"] < max(2**20, 4096 * workers)


def test_each_worker_sends_one_message_to_each_other():
    found = tasks_of("count_pairs", cluster(8, 4, 16 << 30), ROWS * 8)
    assert found["chunks"] == "8 spatial"
    assert found["steps"]["simjoin_parcel"] == 8 * 8
    assert found["steps"]["simjoin_index"] == 8
