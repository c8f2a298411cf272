"""Joins on clusters: workers in other processes, a scheduler in another process, no
planning there.
"""

import collections
import subprocess
import sys
from dataclasses import replace

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster, wait
from distributed.scheduler import NoWorkerError

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph import workers
from dask_simjoin.planning import resources as cluster
from dask_simjoin.planning import resources as moving
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.resources import limits_for, workers_of
from dask_simjoin.sizes import CACHE_SHARE
from tests.support.gates import PATIENCE, until
from tests.support.kills import killing
from tests.support.oracle import as_set, assert_same_pairs, brute_force
from tests.support.points import frame_of
from tests.support.profiles import every_nth

pytestmark = pytest.mark.processes

EPS = 0.05


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).uniform(size=(800, 3))


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
    assert_same_pairs(
        as_set(dd.read_parquet(tmp_path / "pairs").compute()), brute_force(x, EPS)
    )


@pytest.mark.parametrize(
    "ids", every_nth(4, ["int64", "str", "datetime64[ns, UTC]", "category", "object"])
)
def test_rows_shuffled_between_processes(client, x, ids, monkeypatch):
    """Of objects, as texts are in pandas 2, only Dask's shuffle by tasks knows how to
    carry them.
    """
    names = {
        "int64": pd.Index(np.arange(800)[::-1] * 3),
        "str": pd.Index([f"row {n}" for n in range(800)]),
        "datetime64[ns, UTC]": pd.date_range("2020", periods=800, freq="h", tz="UTC"),
        "category": pd.CategoricalIndex([f"row {n:04}" for n in range(800)]),
        "object": pd.Index(
            [(n if n % 2 else f"row {n}") for n in range(800)], dtype=object
        ),
    }[ids]
    frame = frame_of(x)
    frame["name"] = names
    with dask.config.set({"dataframe.convert-string": False}):
        ddf = dd.from_pandas(frame, npartitions=5)
    chosen = {"partitioning": "spatial", "blocksize": 200 * 40}
    few = ddf.simjoin.self_join(EPS * 1.01, on=["c0", "c1", "c2"], id="name", **chosen)
    assert few.expr.plan.chunks.method == "tasks"
    monkeypatch.setattr(cluster, "fits_in_memory", lambda *_: False)
    pairs = ddf.simjoin.self_join(EPS, on=["c0", "c1", "c2"], id="name", **chosen)
    plan = pairs.expr.plan
    assert plan.partitioning == "spatial"
    assert plan.chunks.method == (
        "tasks" if ids == "category" or names.dtype == object else "p2p"
    )
    local = frame.simjoin.self_join(EPS, on=["c0", "c1", "c2"], id="name")
    found = pairs.compute()
    assert_same_pairs(as_set(found), as_set(local))
    assert found.dtypes.tolist() == local.dtypes.tolist()
    if ids == "int64":  # counts have no ids
        how = {"on": ["c0", "c1", "c2"]}
        counts = ddf.simjoin.neighbor_counts(EPS, **how, **chosen)
        pd.testing.assert_series_equal(
            counts.compute(), frame.simjoin.neighbor_counts(EPS, **how)
        )


def test_large_partitions_are_sent_in_pieces(client, x, monkeypatch):
    """Each is read once, and shuffles hold no more than a share of a worker's memory."""
    monkeypatch.setattr(cluster, "fits_in_memory", lambda *_: False)
    frame = frame_of(x)
    frame.iloc[7, 0] = np.nan
    ddf = dd.from_pandas(frame, npartitions=3, sort=False)
    chosen = {"partitioning": "spatial", "blocksize": 400 * 40, "dropna": True}
    memory = limits_for("pandas").memory
    monkeypatch.setattr(
        moving, "MOVED_SHARE", memory / (140 * (8 * 4 + moving.ENTRY_BYTES))
    )
    pairs = ddf.simjoin.self_join(EPS, **chosen)
    assert (
        pairs.expr.plan.chunks.method == "p2p" and pairs.expr.plan.indexing.sent == 140
    )
    steps = collections.Counter(
        key[0].rpartition("-")[0] for key in pairs.__dask_graph__() if len(key) == 2
    )
    # the tasks that send pieces also make them
    assert steps["shuffle-transfer"] == 3 * 2 and not steps["simjoin_send"]
    assert_same_pairs(
        as_set(pairs.compute()), as_set(frame.simjoin.self_join(EPS, dropna=True))
    )
    for memory, *held in client.run(shuffle_buffers).values():
        assert max(held) <= memory // CACHE_SHARE


def shuffle_buffers(dask_worker):
    """A worker's memory, and what its shuffles may hold."""
    plugin = dask_worker.extensions["shuffle"]
    limits = plugin.memory_limiter_comms.limit, plugin.memory_limiter_disk.limit
    return dask_worker.memory_manager.memory_limit, *limits


def test_a_cluster_without_workers_is_an_error(x, monkeypatch):
    """A LocalCluster starts no other worker in the place of one that it gave up."""
    monkeypatch.setattr(workers, "NO_WORKERS", 0.2)
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as alone,
        Client(alone),
    ):
        pairs = dd.from_pandas(frame_of(x), npartitions=3).simjoin.self_join(
            EPS, partitioning="entity"
        )
        assert pairs.npartitions
        alone.scale(0)
        until(lambda: not alone.scheduler.workers, "the worker did not leave")
        with pytest.raises(NoWorkerError):
            pairs.compute()


def test_the_budget_is_of_the_workers(client, x):
    workers = workers_of(client).values()
    limit = min(w["memory_limit"] for w in workers)
    memory = limit - 330 * 2**20
    have = limits_for("pandas")
    assert have.disk > 0
    want = Limits(2, memory, True, limit, workers=2, of_host=2)
    assert replace(have, disk=None) == want
    plan = dd.from_pandas(frame_of(x), npartitions=5).simjoin.self_join(EPS).expr.plan
    assert plan.limits.chunk == min(memory // 12, 2**30)
    assert plan.limits.output == min(plan.limits.chunk, 256 * 2**20)


@pytest.mark.parametrize(
    "partitioning",
    every_nth(
        4,
        [
            "entity",
            "by worker",
            *(pytest.param(way, marks=pytest.mark.slow) for way in ("tasks", "p2p")),
        ],
    ),
)
def test_a_worker_is_killed_in_the_middle(mortal_workers, partitioning, gate):
    """Its tasks, chunks and shuffled rows are made anew, and the result is the same."""
    x = np.random.default_rng(3).uniform(size=(40_000, 2))
    eps = 0.01
    expected = frame_of(x).simjoin.self_join(eps)
    shuffle = partitioning if partitioning in ("tasks", "p2p") else None
    with (
        Client(mortal_workers) as client,
        dask.config.set({"dataframe.shuffle.method": shuffle}),
    ):
        client.wait_for_workers(2, timeout=PATIENCE)
        # rows are shuffled once all are read
        closed = gate if partitioning == "entity" else None
        source = dd.from_map(
            part,
            range(PARTS),
            x=x,
            gate=closed,
            meta=frame_of(x[:0]),
            enforce_metadata=False,
        )
        kind = "entity" if partitioning == "entity" else "spatial"
        pairs = source.simjoin.self_join(eps, partitioning=kind, blocksize=4000 * 24)
        plan = pairs.expr.plan
        assert plan.partitioning == kind
        assert (plan.chunks.method or "entity") == partitioning
        assert len(plan.work) >= 10
        with killing(mortal_workers, client, "simjoin_pairs") as killer:
            running = client.compute(pairs)
            until(lambda: killer.killed, "no block pair was joined")
            gate.open()
            found = running.result(timeout=PATIENCE)
    assert_same_pairs(as_set(found), as_set(expected))


VERBS = {
    "count_pairs": lambda t: t.simjoin.count_pairs(0.01),
    "neighbor_counts": lambda t: t.simjoin.neighbor_counts(0.01),
    "knn_join": lambda t: t.simjoin.knn_join(k=3),
    "k_distances": lambda t: t.simjoin.k_distances(3),
    "near_duplicated": lambda t: t.simjoin.near_duplicated(0.01),
    "dbscan": lambda t: t.simjoin.dbscan(0.02, 5),
    "optics": lambda t: t.simjoin.optics(0.02, 5),
    "hdbscan": lambda t: t.simjoin.hdbscan(20),
    "spanning_tree": lambda t: t.simjoin.spanning_tree(),
    "neighbor_graph": lambda t: t.simjoin.neighbor_graph(0.01),
    "closest_pairs": lambda t: t.simjoin.closest_pairs(20),
}


@pytest.mark.slow
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("verb", VERBS)
def test_a_worker_is_killed_in_the_middle_of_any_verb(mortal_workers, verb, held):
    """`held`: whether workers hold the rows, and send them to each other."""
    x = np.random.default_rng(3).uniform(size=(20_000, 2))
    expected = VERBS[verb](frame_of(x))
    with Client(mortal_workers) as client:
        client.wait_for_workers(2, timeout=PATIENCE)
        source = dd.from_pandas(frame_of(x), npartitions=PARTS, sort=False)
        if held:
            source = source.persist()
            wait(source)
        with dask.config.set({"simjoin.blocksize": "96 kB"}):
            found = VERBS[verb](source)
        with killing(mortal_workers, client, "simjoin_index") as killer:
            running = client.compute(found)
            result = running.result(timeout=PATIENCE)
        assert killer.killed
    if verb == "neighbor_graph":
        assert (result != expected).nnz == 0
    elif isinstance(expected, pd.DataFrame):
        names = list(expected.columns)
        pd.testing.assert_frame_equal(
            *(
                some.sort_values(names).reset_index(drop=True)
                for some in (result, expected)
            ),
            check_dtype=False,
        )
    elif isinstance(expected, pd.Series):
        pd.testing.assert_series_equal(result, expected, check_dtype=False)
    else:
        assert result == expected


PARTS = 10


def part(number, x, gate):
    """A partition, of which the last one waits if there is a gate."""
    if gate is not None and number == PARTS - 1:
        gate.pass_through()
    size = len(x) // PARTS
    return frame_of(x).iloc[number * size : (number + 1) * size]


def test_planned_on_a_cluster_and_computed_without_one(client, x, monkeypatch):
    monkeypatch.setattr(cluster, "fits_in_memory", lambda *_: False)
    pairs = dd.from_pandas(frame_of(x), npartitions=5).simjoin.self_join(
        EPS, partitioning="spatial", blocksize=200 * 32
    )
    assert pairs.expr.plan.chunks.method == "p2p"
    with (
        dask.config.set(scheduler="sync"),
        pytest.raises(
            PlanningError,
            match=r"planned for a cluster, and now runs without one.*'p2p'.*again",
        ),
    ):
        pairs.compute()


@pytest.mark.parametrize("scheduler", every_nth(4, ["threads", "sync"]))
def test_planned_on_a_cluster_and_computed_by_another_scheduler(
    client, x, monkeypatch, scheduler
):
    """What compute(scheduler=...) names, Dask tells only its tasks: they refuse, and
    the remedies help.
    """
    monkeypatch.setattr(cluster, "fits_in_memory", lambda *_: False)

    def join():
        ddf = dd.from_pandas(frame_of(x), npartitions=5)
        return ddf.simjoin.self_join(
            EPS, partitioning="spatial", blocksize=200 * 32, return_distance=True
        )

    pairs, expected = join(), brute_force(x, EPS)
    message = r"planned for a cluster.*'p2p'.*without a cluster.*config.set\(scheduler=.*leave out scheduler="
    for lazy in (pairs, pairs.left.sum()):
        with pytest.raises(PlanningError, match=message):
            lazy.compute(scheduler=scheduler)
    assert_same_pairs(as_set(pairs.compute()), expected)
    with dask.config.set(scheduler=scheduler):
        assert_same_pairs(as_set(join().compute()), expected)
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        pairs = join()
    assert_same_pairs(as_set(pairs.compute(scheduler=scheduler)), expected)


NO_PLANNING = """
from dask_simjoin.graph import planner

def refuse(*args):
    raise RuntimeError("the scheduler planned a join")

planner.plan_join = refuse
planner.plan_for = refuse
from dask_simjoin.graph import lazy_join
lazy_join.plan_for = refuse
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
        [
            *dask,
            "scheduler",
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--preload",
            str(preload),
            *common,
        ],
        [
            *dask,
            "worker",
            "--host",
            "127.0.0.1",
            "--nthreads",
            "1",
            "--no-nanny",
            *common,
        ],
    ]
    processes = []
    try:
        for command in commands:
            log = (tmp_path / f"log{len(processes)}").open("w")
            processes.append((subprocess.Popen(command, stdout=log, stderr=log), log))
            until(file.exists, "the scheduler did not start")
        assert "refuses to plan" in (tmp_path / "log0").read_text()
        yield str(file)
    finally:
        for process, log in reversed(processes):
            process.terminate()
            process.wait(PATIENCE)
            log.close()


@pytest.mark.slow
def test_the_scheduler_never_plans(remote_scheduler, x):
    with Client(scheduler_file=remote_scheduler) as client:
        client.wait_for_workers(1, timeout=PATIENCE)
        check(dd.from_pandas(frame_of(x), npartitions=4), x)
