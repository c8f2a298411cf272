"""Clusters whose workers, clients and schedulers come and go between planning and
computing.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.dataframe as dd
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

from tests.support.gates import PATIENCE
from tests.support.points import frame_of

EPS = 0.03
IN_PROCESS = {"processes": False, "threads_per_worker": 1, "dashboard_address": None}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def frame():
    return frame_of(np.random.default_rng(4).uniform(size=(1200, 2)))


@pytest.fixture(scope="module")
def lazy(frame):
    """A table whose partitions any worker can read again."""
    return dd.from_map(
        lambda part: frame.iloc[part * 300 : part * 300 + 300],
        range(4),
        meta=frame.iloc[:0],
    )


def check(lazy, frame):
    """Plan and compute a count, pairs and clusters."""
    assert lazy.simjoin.count_pairs(EPS).compute() == frame.simjoin.count_pairs(EPS)
    assert len(lazy.simjoin.self_join(EPS)) == len(frame.simjoin.self_join(EPS))
    labels = lazy.simjoin.dbscan(EPS, 4).compute()
    assert labels.tolist() == frame.simjoin.dbscan(EPS, 4).tolist()


def test_two_clients_of_a_cluster_join_at_once(lazy, frame):
    def join(_):
        with Client(cluster, set_as_default=False) as client, client.as_current():
            check(lazy, frame)
        return True

    with (
        LocalCluster(n_workers=2, **IN_PROCESS) as cluster,
        ThreadPoolExecutor(2) as threads,
    ):
        assert all(threads.map(join, range(2)))


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_come_or_go_after_planning(lazy, frame, workers):
    with LocalCluster(n_workers=2, **IN_PROCESS) as cluster, Client(cluster) as client:
        held = lazy.persist()
        wait(held)
        pairs = held.simjoin.self_join(EPS)
        assert pairs.npartitions
        cluster.scale(workers)
        deadline = time.monotonic() + PATIENCE
        while len(client.nthreads()) != workers and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(client.nthreads()) == workers
        assert len(pairs) == len(frame.simjoin.self_join(EPS))
        check(held, frame)


def test_an_adaptive_cluster_starts_without_workers(lazy, frame):
    with LocalCluster(n_workers=0, **IN_PROCESS) as cluster, Client(cluster):
        cluster.adapt(minimum=0, maximum=2)
        check(lazy, frame)


def test_a_join_is_computed_by_another_scheduler_than_the_one_that_planned_it(
    lazy, frame
):
    number = len(frame.simjoin.self_join(EPS))
    with LocalCluster(n_workers=1, **IN_PROCESS) as cluster, Client(cluster):
        pairs = lazy.simjoin.self_join(EPS)
        assert len(pairs) == number
    with LocalCluster(n_workers=2, **IN_PROCESS) as cluster, Client(cluster):
        assert len(pairs) == number
        check(lazy, frame)
    assert len(pairs) == number


@pytest.mark.processes
def test_a_cluster_is_restarted_after_planning(lazy, frame):
    """A local cluster gives up workers that do not return within 15 s. On a busy
    machine, a restart of Dask alone then never ends, so the time is longer here.
    """
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": f"{PATIENCE} s"}),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        pairs = lazy.simjoin.self_join(EPS)
        assert pairs.npartitions
        client.restart(timeout=PATIENCE)
        assert len(pairs) == len(frame.simjoin.self_join(EPS))
        check(lazy, frame)
