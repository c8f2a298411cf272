"""Joins work in forked processes, or raise an error."""

import multiprocessing
import threading

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask import threaded

import dask_simjoin
from dask_simjoin.engine.process import forkable
from dask_simjoin.errors import PlanningError
from dask_simjoin.graph import dask_private
from dask_simjoin.graph.records import RUNS
from dask_simjoin.graph.row_cache import ROWS
from dask_simjoin.request import options
from tests.support.gates import PATIENCE
from tests.support.profiles import in_turns
from tests.support.threads import started

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

EPS = 0.05

x = np.random.default_rng(0).uniform(size=(300, 2))
frame = pd.DataFrame(x, columns=["x", "y"]).assign(id=range(300))
HOW = {"on": ["x", "y"], "id": "id"}


def in_fork(function, *args):
    """Return what a function returns or raises in a forked process."""
    here, there = multiprocessing.Pipe()

    def run():
        try:
            there.send(function(*args))
        except BaseException as error:
            there.send(error)

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()
    try:
        assert here.poll(PATIENCE), "the forked process hangs"
        return here.recv()
    finally:
        process.kill()
        process.join()


VERBS = {
    "count_pairs": lambda ddf: ddf.simjoin.count_pairs(EPS, **HOW).compute(),
    "self_join": lambda ddf: len(ddf.simjoin.self_join(EPS, **HOW)),
    "knn_join": lambda ddf: len(ddf.simjoin.knn_join(k=2, **HOW)),
    "dbscan": lambda ddf: int(ddf.simjoin.dbscan(EPS, 3, **HOW).max().compute()),
}


@in_turns(1, verb=list(VERBS), workers=[None, 2])
def test_dask_joins_run_in_a_fork(verb, workers):
    ddf = dd.from_pandas(frame, npartitions=3)
    with dask.config.set(num_workers=workers):
        expected = VERBS[verb](ddf)
        assert expected > 0
        assert in_fork(VERBS[verb], dd.from_pandas(frame, npartitions=4)) == expected


def test_an_index_of_a_plain_frame_works_in_a_fork(tmp_path):
    index = frame.simjoin.index(EPS, tmp_path, **HOW)
    expected = len(index.pairs())
    assert in_fork(lambda: len(dask_simjoin.open_index(tmp_path).pairs())) == expected
    found = in_fork(
        lambda: len(index.join(frame.head(5)[["x", "y"]].assign(id=range(5))))
    )
    assert found == len(index.join(frame.head(5)))
    in_fork(lambda: index.update(frame.head(1).assign(id=1000)) and None)
    assert len(index) == 301


def test_pools_that_died_before_the_import_are_dropped():
    pool = threaded.ContextAwareThreadPoolExecutor(1)
    pool.submit(int).result()

    def dropped():
        threaded.default_pool = pool
        threaded.pools[threading.current_thread()] = {1: pool}
        dask_private.drop_pools()
        return threaded.default_pool is None and not threaded.pools

    try:
        assert in_fork(dropped) is True
    finally:
        pool.shutdown()


def test_locks_of_other_threads_are_released_in_a_fork():
    locks = [
        ROWS._lock,
        RUNS._lock,
        options._setting,
        threaded.pools_lock,
        forkable(threading.Lock()),
    ]
    held, done = threading.Event(), threading.Event()

    def hold():
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait(PATIENCE)
        for lock in locks:
            lock.release()

    thread = started(hold)
    assert held.wait(PATIENCE)
    try:
        ddf = dd.from_pandas(frame, npartitions=2)
        found = in_fork(VERBS["self_join"], ddf)
    finally:
        done.set()
    thread.result(PATIENCE)
    assert found == VERBS["self_join"](ddf)


def test_the_client_of_a_parent_is_refused(client):
    ddf = dd.from_pandas(frame, npartitions=2)
    found = in_fork(VERBS["count_pairs"], ddf)
    assert isinstance(found, PlanningError)
    assert "forked" in str(found)

    def by_threads():
        with dask.config.set(scheduler="threads"):
            return VERBS["count_pairs"](ddf)

    assert in_fork(by_threads) == VERBS["count_pairs"](ddf)
