"""One chunk that is made for each of several GPUs: every copy is of use, and results
are the same.
"""

import collections
from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.utils import key_split

import dask_simjoin  # noqa: F401  (gives DataFrames the accessor)
from dask_simjoin.graph.placement import worker_of
from dask_simjoin.planning import searches
from dask_simjoin.planning.costs import Costs
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import COUNTS
from dask_simjoin.planning.resources import workers_of
from tests.support.oracle import brute_force
from tests.support.task_stream import tasks_of

POINTS = np.random.default_rng(0).random((400, 3))
EPS = 0.15


@pytest.fixture
def copied(monkeypatch):
    """A frame of four partitions, in one chunk, of which three copies are made."""
    monkeypatch.setattr(Costs, "copies", lambda costs, chunks, parts: min(3, parts))
    monkeypatch.setattr(
        Costs, "pieces", lambda costs, seconds, *_: np.full(len(seconds), 4)
    )
    return dd.from_pandas(pd.DataFrame(POINTS, columns=list("abc")), npartitions=4)


def indexed(result, used):
    """How many tasks index chunks, and how many of them the tasks of a kind are given."""
    graph = dict(result.optimize().__dask_graph__())
    made = {key for key in graph if key_split(key) == "simjoin_index"}
    given = collections.Counter(
        other
        for key, task in graph.items()
        if key_split(key) == used
        for other in task.dependencies & made
    )
    return len(made), given


def test_each_copy_is_given_its_share_of_the_work(copied):
    copies, given = indexed(
        copied.simjoin.count_pairs(EPS, partitioning="replicated"),
        "simjoin_count_block",
    )
    assert copies == 3 and sorted(given.values()) == [1, 1, 2]
    pairs = copied.simjoin.self_join(EPS, partitioning="replicated")
    copies, given = indexed(pairs, "simjoin_pairs")
    assert (
        copies == 3
        and sum(given.values()) == pairs.npartitions
        and min(given.values()) > 0
    )


def test_users_of_copies_wait_for_all_of_them(copied):
    """Otherwise a GPU would begin to work, and the others would wait for its rows."""
    result = copied.simjoin.count_pairs(EPS, partitioning="replicated")
    graph = dict(result.optimize().__dask_graph__())
    waits = {
        key: task for key, task in graph.items() if key_split(key) == "simjoin_copied"
    }
    assert (
        len(waits) == 3
        and len(set().union(*(task.dependencies for task in waits.values()))) == 3
    )
    users = [
        task for key, task in graph.items() if key_split(key) == "simjoin_count_block"
    ]
    assert len(users) == 4 and all(waits.keys() <= task.dependencies for task in users)


def test_results_are_the_same(copied):
    true = brute_force(POINTS, EPS)
    assert int(
        copied.simjoin.count_pairs(EPS, partitioning="replicated").compute()
    ) == len(true)
    found = copied.simjoin.self_join(EPS, partitioning="replicated").compute()
    assert len(found) == len(true)
    assert (
        set(zip(found["left"].tolist(), found["right"].tolist(), strict=True)) == true
    )
    both = copied.simjoin.join(
        copied.partitions[:2], EPS, partitioning="replicated"
    ).compute()
    limit = len(copied.partitions[:2])
    expected = {p for a, b in true for p in ((a, b), (b, a)) if p[1] < limit} | {
        (a, a) for a in range(limit)
    }
    assert (
        set(zip(both["left"].tolist(), both["right"].tolist(), strict=True)) == expected
    )
    labels = copied.simjoin.dbscan(EPS, 3, partitioning="replicated").compute()
    pd.testing.assert_series_equal(labels, copied.compute().simjoin.dbscan(EPS, 3))


@pytest.mark.parametrize("how", ["inner", "left"])
def test_nearest_rows_are_searched_in_all_copies(copied, how, monkeypatch):
    monkeypatch.setattr(searches, "MOMENT", 0.0)
    monkeypatch.setattr(Costs, "copies", lambda *_: 3)
    table, plain = copied, copied.compute()
    for other in (None, copied.partitions[:2]):
        joined = table.simjoin.knn_join(other, 3, max_distance=0.1, how=how)
        copies, given = indexed(joined, "simjoin_nearest_search")
        assert copies == 3 * (2 - (other is None)) and joined.npartitions == 4
        assert sorted(given.values()) == (
            [1, 1, 2] if other is None else [1, 1, 1, 1, 2, 2]
        )
        found = joined.compute().sort_values(["left", "rank"], ignore_index=True)
        right = None if other is None else other.compute()
        expected = plain.simjoin.knn_join(right, 3, max_distance=0.1, how=how)
        pd.testing.assert_frame_equal(found, expected, check_dtype=False)
    distances = table.simjoin.k_distances(3)
    assert indexed(distances, "simjoin_nearest_search")[0] == 3
    pd.testing.assert_series_equal(distances.compute(), plain.simjoin.k_distances(3))


async def steal(dask_scheduler, on):
    """Let idle workers steal tasks, or not."""
    stealing = dask_scheduler.extensions["stealing"]
    await (stealing.start() if on else stealing.stop())


def test_each_copy_is_made_by_a_worker_of_its_own(client, copied, monkeypatch):
    """Whoever was left without would be sent an index, and wait for the kernels of the
    one that sends it.
    """
    there = sorted(workers_of(client))
    for verb in ("count_pairs", "self_join"):
        with tasks_of(client) as ran:
            getattr(copied.simjoin, verb)(EPS, partitioning="replicated").compute()
        made = {
            task["key"]: task["worker"]
            for task in ran
            if key_split(task["key"]) == "simjoin_index"
        }
        assert len(made) == 3
        assert {
            (worker_of(key) or 0, there.index(where)) for key, where in made.items()
        } == {
            (0, 0),
            (1, 1),
            (2, 0),
        }
    monkeypatch.setattr(searches, "MOMENT", 0.0)
    # an idle worker may steal a task of so few rows, wherever it was placed
    client.run_on_scheduler(steal, on=False)
    try:
        with tasks_of(client) as ran:
            copied.simjoin.knn_join(k=3).compute()
    finally:
        client.run_on_scheduler(steal, on=True)
    where = {task["key"]: there.index(task["worker"]) for task in ran}
    assert sorted(
        at for key, at in where.items() if key_split(key) == "simjoin_index"
    ) == [0, 1]
    for step in ("search", "found", "name"):
        some = {
            key[1]: at
            for key, at in where.items()
            if key_split(key) == f"simjoin_nearest_{step}"
        }
        assert len(some) == 4 and all(
            at == place[-2 + (step == "found")] % 2 for place, at in some.items()
        )
    rows = {
        key[1]: at
        for key, at in where.items()
        if key_split(key) == "simjoin_nearest_rows"
    }
    assert rows == {0: 0, 1: 1, 2: 0, 3: 1}


@pytest.mark.parametrize(
    ("chunks", "have", "copies"),
    [
        (1, Limits(2, 1 << 30, True, gpu=True, workers=2), 2),
        (1, Limits(2, 1 << 30, True, workers=2), 1),
        (1, Limits(1, 1 << 30, False, gpu=True), 1),
        (2, Limits(2, 1 << 30, True, gpu=True, workers=2), 1),
    ],
)
def test_copies_are_for_one_chunk_on_several_gpus(chunks, have, copies):
    costs = Costs("tiles", 3, (1.0, 1.0), 400.0, COUNTS, have)
    assert (
        costs.copies(SimpleNamespace(method=None, sides=[range(chunks)]), 8) == copies
    )
    shuffled = SimpleNamespace(method="tasks", sides=[range(chunks)])
    assert costs.copies(shuffled, 8) == 1
