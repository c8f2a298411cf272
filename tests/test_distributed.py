"""Joins on clusters: workers in other processes, a scheduler in another process, no planning there."""

import subprocess
import sys
import time

import dask.dataframe as dd
import numpy as np
import pytest
from distributed import Client, LocalCluster

from dask_simjoin.testing import as_set, assert_same_pairs, brute_force, frame_of

EPS = 0.05
PATIENCE = 60


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).uniform(size=(800, 3))


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def check(ddf, x):
    expected = brute_force(x, EPS)
    pairs = ddf.simjoin.self_join(EPS, return_distance=True)
    assert_same_pairs(as_set(pairs.compute()), expected)
    assert ddf.simjoin.count_pairs(EPS).compute() == len(expected)
    assert ddf.simjoin.neighbor_counts(EPS).sum().compute() == 2 * len(expected)
    assert_same_pairs(as_set(pairs.persist().compute()), expected)


def test_two_processes(client, x):
    check(dd.from_pandas(frame_of(x), npartitions=5), x)


def test_persisted_source(client, x):
    check(dd.from_pandas(frame_of(x), npartitions=5).persist(), x)


def test_parquet_to_parquet(client, x, tmp_path):
    dd.from_pandas(frame_of(x), npartitions=5).to_parquet(tmp_path / "points")
    pairs = dd.read_parquet(tmp_path / "points").simjoin.self_join(EPS)
    pairs.to_parquet(tmp_path / "pairs")
    assert_same_pairs(as_set(dd.read_parquet(tmp_path / "pairs").compute()), brute_force(x, EPS))


NO_PLANNING = """
from dask_simjoin.graph import planner

def refuse(*args):
    raise RuntimeError("the scheduler planned a join")

planner._compute_plan = refuse
planner.plan_for = refuse
from dask_simjoin.graph import unplanned
unplanned.plan_for = refuse
print("this scheduler refuses to plan", flush=True)
"""


@pytest.fixture
def remote_scheduler(tmp_path):
    """A scheduler and a worker, each a process of its own; the scheduler cannot plan."""
    file, preload = tmp_path / "scheduler.json", tmp_path / "no_planning.py"
    preload.write_text(NO_PLANNING)
    dask = [sys.executable, "-m", "dask"]
    common = ["--no-dashboard", "--scheduler-file", str(file)]
    commands = [
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--preload", str(preload), *common],
        [*dask, "worker", "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", *common],
    ]
    processes = []
    try:
        for command in commands:
            log = (tmp_path / f"log{len(processes)}").open("w")
            processes.append((subprocess.Popen(command, stdout=log, stderr=log), log))
            deadline = time.monotonic() + PATIENCE
            while not file.exists():
                assert time.monotonic() < deadline, "the scheduler did not start"
                time.sleep(0.1)
        assert "refuses to plan" in (tmp_path / "log0").read_text()
        yield str(file)
    finally:
        for process, log in reversed(processes):
            process.terminate()
            process.wait(PATIENCE)
            log.close()


def test_the_scheduler_never_plans(remote_scheduler, x):
    with Client(scheduler_file=remote_scheduler) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        check(dd.from_pandas(frame_of(x), npartitions=4), x)
