"""Chunks are indexed and compared on the workers that hold their rows."""

import os
import signal

import numpy as np
import pytest
from distributed import Client

from dask_simjoin.graph import homes, lazy_join
from dask_simjoin.graph.homes import homes_of
from dask_simjoin.graph.placement import ChunkHomes
from dask_simjoin.graph.source import held_keys
from dask_simjoin.request.options import current_client
from tests.support.frames import split
from tests.support.gates import PATIENCE
from tests.support.kills import killing
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import frame_of
from tests.support.profiles import every_nth
from tests.support.task_stream import tasks_of

EPS = 0.03


@pytest.fixture
def x():
    return np.random.default_rng(5).uniform(size=(1200, 2))


class Chunks:
    """Chunks of these pieces of partitions."""

    def __init__(self, *pieces):
        self.pieces = pieces

    def __len__(self):
        return len(self.pieces)


def test_the_home_holds_most_rows_of_a_chunk():
    chunks = Chunks([(0, 0, 10), (1, 0, 10)], [(2, 0, 5), (3, 0, 9)], [(3, 9, 20)])
    groups = [(0, [0]), (0, [1, 2]), (1, [3])]
    assert homes_of(chunks, groups, 2).tolist() == [0, 1, 1]


@pytest.fixture
def sent(monkeypatch):
    """The rules that joins send to the scheduler."""
    found = []
    send = lazy_join.send_placement
    monkeypatch.setattr(
        lazy_join, "send_placement", lambda rules: found.append(rules) or send(rules)
    )
    return found


@pytest.fixture
def on_each(monkeypatch):
    """Let joins believe that the first half of the partitions is on one worker, and the
    rest on another. Return the workers to name, by default those that run.
    """
    known = {}

    def holders(frame):
        threads = known or current_client().nthreads()
        workers, number = sorted(threads), len(held_keys(frame))
        return [[workers[2 * n // number]] for n in range(number)], threads

    monkeypatch.setattr(homes, "holders", holders)
    return known


VERBS = {
    "count_pairs": lambda frame, **how: frame.simjoin.count_pairs(EPS, **how),
    "self_join": lambda frame, **how: frame.simjoin.self_join(EPS, **how),
    "neighbor_counts": lambda frame, **how: frame.simjoin.neighbor_counts(EPS, **how),
    "dbscan": lambda frame, **how: frame.simjoin.dbscan(EPS, 3, **how),
    "join": lambda frame, **how: frame.simjoin.join(frame, EPS, **how),
}


@pytest.mark.processes
@pytest.mark.parametrize("verb", VERBS)
def test_tasks_run_at_the_homes_of_their_chunks(x, client, on_each, sent, verb):
    frame = frame_of(x)
    ddf = split(frame, (300, 600, 900)).persist()
    expected = VERBS[verb](frame)
    with tasks_of(client) as ran:
        found = VERBS[verb](ddf, partitioning="entity", blocksize=600 * 24).compute()
    if verb in ("self_join", "join"):
        assert_same_pairs(as_set(found), as_set(expected))
    else:
        assert np.array_equal(found, expected)
    (rules,) = [rules for rules in sent if isinstance(rules, ChunkHomes)]
    assert set(rules.home) == {0, 1} and rules.threads.tolist() == [1, 1]
    indexed = {task["worker"] for task in ran if "simjoin_index" in str(task["key"])}
    assert indexed == set(client.nthreads())


@pytest.mark.processes
def test_dask_places_tasks_of_one_chunk_of_shuffled_rows_and_of_searches(
    x, client, on_each, sent
):
    ddf = split(frame_of(x), (300, 600, 900)).persist()
    number = len(brute_force(x, EPS))
    for how in ({"blocksize": "1 GB"}, {"partitioning": "spatial"}):
        assert ddf.simjoin.count_pairs(EPS, **how).compute() == number
    nearest = ddf.simjoin.knn_join(k=1, partitioning="entity", blocksize=600 * 24)
    assert len(nearest.expr.plan.chunks) > 1 and len(nearest.compute()) == len(x)
    assert not any(isinstance(rules, ChunkHomes) for rules in sent)


@pytest.mark.processes
@pytest.mark.parametrize("begun", every_nth(4, [False, True]))
def test_a_home_is_killed_before_or_while_its_chunks_are_compared(
    mortal_workers, on_each, sent, begun
):
    x = np.random.default_rng(3).uniform(size=(40_000, 2))
    eps = 0.01
    expected = frame_of(x).simjoin.self_join(eps)
    with Client(mortal_workers) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        on_each.update(client.nthreads())  # also the worker that is killed
        ddf = split(frame_of(x), (10_000, 20_000, 30_000)).persist()
        pairs = ddf.simjoin.self_join(eps, partitioning="entity", blocksize=10_000 * 24)
        assert pairs.expr.plan.partitioning == "entity"
        if begun:
            with killing(mortal_workers, client, "simjoin_index"):
                found = client.compute(pairs).result(timeout=PATIENCE)
        else:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            found = client.compute(pairs).result(timeout=PATIENCE)
    assert any(isinstance(rules, ChunkHomes) for rules in sent)
    assert_same_pairs(as_set(found), as_set(expected))
