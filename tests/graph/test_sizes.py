"""The number of tasks of a worker stays bounded as workers grow."""

from collections import Counter

import pytest

from benchmarks.dask.graphs import (
    JOB,
    ROWS,
    VERBS,
    cluster,
    held_rows,
    pretended,
    tasks_of,
)
from dask_simjoin.planning.resources import MAX_MOVES
from tests.support.profiles import every_nth

EACH = 64
"""Most tasks of each worker, in addition to the messages between workers."""


@pytest.mark.parametrize(
    ("verb", "workers"),
    every_nth(
        4,
        [
            ("count_pairs", 8),
            ("count_pairs", 32),
            ("count_pairs", 128),
            pytest.param("self_join", 128, marks=pytest.mark.slow),
            pytest.param("self_join", 1024, marks=pytest.mark.slow),
            ("dbscan", 8),
            ("dbscan", 32),
            pytest.param("dbscan", 128, marks=pytest.mark.slow),
            ("knn_join", 8),
            pytest.param("knn_join", 128, marks=pytest.mark.slow),
        ],
    ),
)
def test_tasks_of_a_cluster(verb, workers):
    """DBSCAN sends rows, and then labels back, each in up to `MAX_MOVES` messages."""
    rounds = 2 if verb == "dbscan" else 1
    found = tasks_of(verb, cluster(workers, 2, 16 << 30), ROWS * workers)
    assert found["tasks"] <= rounds * (EACH * workers + MAX_MOVES)
    assert (found["shuffle"] == "p2p") == (workers**2 > MAX_MOVES)
    assert found["bytes"] < max(2**20, 4096 * workers)


@pytest.mark.parametrize(
    ("verb", "tasks", "edges"),
    every_nth(
        3,
        [("neighbor_counts", 21, 60), ("dbscan", 22, 60), ("near_duplicated", 28, 80)],
    ),
)
def test_values_that_return_by_p2p(verb, tasks, edges):
    """Each of eight partitions needs a task to send its rows and one to receive values.
    A worker's labels are one task, and the values of a chunk are sent as they are made.
    """
    workers = 128
    found = tasks_of(verb, cluster(workers, 2, 16 << 30), ROWS * workers)
    assert found["shuffle"] == "p2p"
    assert found["tasks"] <= tasks * workers
    assert found["edges"] <= edges * workers
    assert found["steps"]["simjoin_counts"] == 8 * workers


@pytest.mark.slow
def test_rows_in_memory_do_not_slow_the_order_of_tasks():
    """Dask leaves data out of its order only if several tasks need it. The order of
    other data takes a time that grows with the square of the number of partitions.
    """
    limits = cluster(128, 2, 16 << 30)
    ddf = held_rows(128)
    with pretended(limits, ROWS * 128):
        graph = dict(
            VERBS["self_join"](ddf, JOB.eps_of(ROWS * 128))
            .expr.optimize()
            .__dask_graph__()
        )
    users = Counter(
        one
        for task in graph.values()
        if hasattr(task, "dependencies")
        for one in task.dependencies
    )
    assert min(users[key] for key in ddf.expr.operand("layer")) > 1


def test_each_worker_sends_one_message_to_each_other():
    found = tasks_of("count_pairs", cluster(8, 4, 16 << 30), ROWS * 8)
    assert found["chunks"] == "8 spatial"
    assert found["steps"]["simjoin_parcel"] == 8 * 8
    assert found["steps"]["simjoin_index"] == 8
