"""Workers with too little disk space are refused, or end with an error instead of
waiting for ever.
"""

import threading
import time
import weakref
from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster, Status

from dask_simjoin.errors import BudgetError, ScratchError
from dask_simjoin.graph import planner, workers
from dask_simjoin.graph.workers import (
    LOOKS,
    Standstill,
    StandstillPlugin,
    by_disk,
    standstill_message,
)
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.resources import WorkerDisk
from tests.support.gates import PATIENCE, until
from tests.support.threads import started

WORDS = {"threshold": 0.5, "tokenizer": "whitespace"}

VERBS = {
    "self_join": lambda points, sets: (
        points.simjoin.self_join(0.1, on=["x", "y"]).npartitions
    ),
    "join": lambda points, sets: (
        points.simjoin.join(points, 0.1, on=["x", "y"]).npartitions
    ),
    "knn_join": lambda points, sets: (
        points.simjoin.knn_join(k=2, on=["x", "y"]).npartitions
    ),
    "k_distances": lambda points, sets: points.simjoin.k_distances(
        2, on=["x", "y"]
    ).compute(),
    "count_pairs": lambda points, sets: points.simjoin.count_pairs(
        0.1, on=["x", "y"]
    ).compute(),
    "neighbor_counts": lambda points, sets: points.simjoin.neighbor_counts(
        0.1, on=["x", "y"]
    ).compute(),
    "near_duplicated": lambda points, sets: points.simjoin.near_duplicated(
        0.1, on=["x", "y"]
    ).compute(),
    "dbscan": lambda points, sets: points.simjoin.dbscan(
        0.1, 3, on=["x", "y"]
    ).compute(),
    "optics": lambda points, sets: points.simjoin.optics(
        0.1, 3, on=["x", "y"]
    ).compute(),
    "hdbscan": lambda points, sets: points.simjoin.hdbscan(
        5, blocksize="8 kB", on=["x", "y"]
    ).compute(),
    "spanning_tree": lambda points, sets: points.simjoin.spanning_tree(
        blocksize="8 kB", on=["x", "y"]
    ).compute(),
    "neighbor_graph": lambda points, sets: points.simjoin.neighbor_graph(
        0.1, on=["x", "y"]
    ).compute(),
    "set_self_join": lambda points, sets: (
        sets.simjoin.set_self_join("s", **WORDS).npartitions
    ),
    "count_set_pairs": lambda points, sets: sets.simjoin.count_set_pairs(
        "s", **WORDS
    ).compute(),
    "set_neighbor_counts": lambda points, sets: sets.simjoin.set_neighbor_counts(
        "s", **WORDS
    ).compute(),
    "set_near_duplicated": lambda points, sets: sets.simjoin.set_near_duplicated(
        "s", **WORDS
    ).compute(),
}


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            memory_limit=0,
            dashboard_address=":0",
        ) as found,
        Client(found),
    ):
        yield found


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_that_need_more_than_is_free_are_refused(cluster, monkeypatch, verb):
    """Workers of so little memory that all rows go to disk, of which 100 B are free."""
    have = Limits(2, 1 << 20, True, 1 << 20, workers=1, together=2)
    monkeypatch.setattr(planner, "limits_for", lambda library: have)
    x = np.random.default_rng(0).uniform(size=(400, 2))
    points = dd.from_pandas(pd.DataFrame(x, columns=["x", "y"]), npartitions=4)
    sets = dd.from_pandas(
        pd.DataFrame({"s": [f"{n % 7} {n % 5} x" for n in range(400)]}), npartitions=4
    )
    free = []

    def usage(directory):
        free.append(directory)
        return SimpleNamespace(free=100)

    monkeypatch.setattr(workers.shutil, "disk_usage", usage)
    with pytest.raises(
        BudgetError,
        match=r"At least .* do not fit .* of 1 workers.*has only 100 B free",
    ):
        VERBS[verb](points, sets)
    assert free


def test_workers_that_share_a_disk_are_put_together():
    spills = [
        ("a", 1, "/one", 100, None),
        ("a", 2, "/two", 90, None),
        ("a", 1, "/one/more", 99, None),
        ("b", 1, "/one", 80, 30),
        ("b", 1, "/one", 80, 20),
    ]
    assert by_disk(spills) == [
        WorkerDisk("a", "/one", 2, 99),
        WorkerDisk("a", "/two", 1, 90),
        WorkerDisk("b", "/one", 2, 50),
    ]


def test_workers_are_not_asked_where_nothing_goes_to_disk(cluster, monkeypatch):
    monkeypatch.setattr(
        Client, "run", lambda *_, **__: pytest.fail("workers were asked")
    )
    frame = dd.from_pandas(pd.DataFrame({"x": [0.0, 1.0]}), npartitions=1)
    assert frame.simjoin.count_pairs(1.0, on="x").compute() == 1


class Data(dict):
    """Results of a worker; some are in memory."""

    def __init__(self, fast, slow=0):
        super().__init__(enumerate(range(fast + slow)))
        self.fast = range(fast)


class Standing:
    """Something of a worker's status, which pauses at .8 of its memory."""

    def __init__(
        self, status=Status.running, executing=0, limit=None, pause=0.8, data=0
    ):
        self.status, self.state = status, SimpleNamespace(executing_count=executing)
        self.data = Data(data)
        self.memory_manager = SimpleNamespace(
            memory_limit=limit, memory_pause_fraction=pause
        )


def keep(worker, much):
    some = threading.Thread(target=workers._keep_free, args=(weakref.ref(worker), much))
    some.start()
    return some


def test_memory_is_given_back_until_the_worker_is_gone(monkeypatch):
    given, pool = [], pa.system_memory_pool()

    class Pool:
        def release_unused(self):
            given.append(threading.current_thread())
            pool.release_unused()

    monkeypatch.setattr(workers, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(workers.pa, "system_memory_pool", Pool)
    one, other, idle = Standing(), Standing(), Standing()
    threads = keep(one, 0.0), keep(other, 0.0), keep(idle, float("inf"))
    until(lambda: {*threads[:2]} <= {*given}, "nothing was given back")
    one.status = idle.status = Status.closed
    del other
    for some in threads:
        some.join(PATIENCE)
    assert not any(some.is_alive() for some in threads)
    assert threads[2] not in given


@pytest.mark.parametrize(
    ("share", "pause", "allowed"),
    [(0.81, 0.8, 0.85), (0.9, 0.85, 0.92), (0.97, 0.92, 0.92), (0.5, 0.8, 0.8)],
)
def test_workers_that_get_no_smaller_go_on_while_there_is_room(share, pause, allowed):
    worker = Standing(limit=1000, pause=pause)
    workers.let_go_on(worker, int(share * 1000))
    assert worker.memory_manager.memory_pause_fraction == pytest.approx(allowed)


@pytest.mark.parametrize("setting", [{"limit": None}, {"limit": 1000, "pause": False}])
def test_workers_that_never_pause_are_left_alone(setting):
    worker = Standing(**setting)
    workers.let_go_on(worker, 900)
    assert worker.memory_manager.memory_pause_fraction == setting.get("pause", 0.8)


def test_only_paused_workers_that_run_nothing_go_on(monkeypatch):
    monkeypatch.setattr(workers, "CHECK_SECONDS", 0.001)
    far = 1 << 40
    monkeypatch.setattr(
        workers.psutil.Process, "memory_info", lambda process: SimpleNamespace(rss=1)
    )
    waiting = Standing(Status.paused, limit=far)
    others = [
        Standing(Status.paused, 1, far),
        Standing(Status.running, 0, far),
        Standing(Status.paused, 0, far, data=1),
    ]
    seen = []
    monkeypatch.setattr(workers.Standstill, "look", lambda *_: False)
    monkeypatch.setattr(workers, "let_go_on", lambda worker, used: seen.append(worker))
    threads = [keep(worker, float("inf")) for worker in (waiting, *others)]
    until(lambda: len(seen) > 2, "a worker waits for ever")
    for worker in (waiting, *others):
        worker.status = Status.closed
    for some in threads:
        some.join(PATIENCE)
    assert set(seen) == {waiting}


def test_what_is_returned_later_leaves_nothing_allocated():
    before = workers.INNER.bytes_allocated()
    workers._return_freed()
    assert workers.INNER.bytes_allocated() == before
    assert workers.INNER.max_memory() >= workers.LARGE_BYTES


@pytest.mark.parametrize(
    ("limit", "threads", "calls"),
    [
        (1 << 30, 1, []),
        (1 << 31, 1, [(-3, 1 << 22), (-1, 1 << 26)]),
        (1 << 33, 1, [(-3, 1 << 24), (-1, 1 << 28)]),
        (1 << 33, 8, [(-3, 1 << 22), (-1, 1 << 26)]),
        (1 << 36, 1, [(-3, 1 << 25), (-1, 1 << 29)]),
    ],
)
def test_freed_memory_is_kept_on_workers_with_room_for_it(
    monkeypatch, limit, threads, calls
):
    made = []
    library = SimpleNamespace(mallopt=lambda name, value: made.append((name, value)))
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: library)
    workers.keep_freed_memory(limit, threads)
    assert made == calls
    # as on macOS
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: SimpleNamespace())
    workers.keep_freed_memory(limit, threads)


EVENT = {
    "worker": "tcp://a:1",
    "used": 480 << 20,
    "limit": 600 << 20,
    "unwritten": 7,
    "directory": "/spill",
    "free": 4096,
    "max_spill": None,
}


def stand_in(folder, status=Status.paused, executing=0, fast=3):
    logged = []
    manager = SimpleNamespace(memory_limit=1000, max_spill=False)
    worker = SimpleNamespace(
        status=status,
        state=SimpleNamespace(executing_count=executing),
        data=Data(fast),
        address="tcp://a:1",
        memory_manager=manager,
        local_directory=str(folder),
        log_event=lambda *event: logged.append(event),
    )
    return worker, logged


def test_a_worker_that_stays_paused_and_writes_nothing_says_so(tmp_path):
    worker, logged = stand_in(tmp_path)
    look = Standstill().look
    said = [look(worker, 900) for _ in range(2 * LOOKS + 1)]
    assert [n for n, one in enumerate(said) if one] == [LOOKS, 2 * LOOKS]
    topic, event = logged[0]
    assert topic == workers.TOPIC
    assert (event["worker"], event["used"], event["limit"], event["unwritten"]) == (
        "tcp://a:1",
        900,
        1000,
        3,
    )
    assert (
        event["directory"] == str(tmp_path)
        and event["free"] > 0
        and event["max_spill"] is None
    )


def test_a_worker_whose_folder_is_gone_says_so_all_the_same(tmp_path):
    worker, logged = stand_in(tmp_path / "gone")
    look = Standstill().look
    assert [look(worker, 900) for _ in range(LOOKS + 1)][-1]
    assert logged[0][1]["free"] == 0


@pytest.mark.parametrize("other", [{"status": Status.running}, {"executing": 1}])
def test_workers_that_run_say_nothing(tmp_path, other):
    worker, logged = stand_in(tmp_path, **other)
    look = Standstill().look
    assert not any(look(worker, 900) for _ in range(3 * LOOKS)) and not logged


def test_workers_that_write_to_disk_say_nothing(tmp_path):
    worker, logged = stand_in(tmp_path, fast=5 * LOOKS)
    look = Standstill().look
    for written in range(3 * LOOKS):
        worker.data = Data(5 * LOOKS - written, written)
        assert not look(worker, 900)
    assert not logged


def test_the_message_names_workers_disks_and_the_remedy():
    said = standstill_message(
        [EVENT, {**EVENT, "worker": "tcp://b:2", "max_spill": 1 << 20}]
    )
    assert (
        "tcp://a:1 uses 480 MiB of 600 MiB and cannot write 7 results to '/spill'"
        in said
    )
    assert "where 4 kiB are free; tcp://b:2" in said
    assert "Dask may use at most 1 MiB (distributed.worker.memory.max-spill)" in said
    assert "local_directory=" in said and "temporary-directory" in said
    assert "nothing that it could write" in standstill_message(
        [{**EVENT, "unwritten": 0}]
    )


def set_status(status, dask_worker):
    dask_worker.status = Status[status]


@pytest.fixture
def paused(monkeypatch):
    """A cluster of one thread in this process, and a way to pause its worker."""
    monkeypatch.setattr(workers, "WAIT", 0.3)
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            memory_limit=0,
            dashboard_address=":0",
        ) as cluster,
        Client(cluster) as client,
    ):
        (worker,) = cluster.workers.values()
        workers.watch(client)

        def pause(status=Status.paused):
            client.run(set_status, status.name)

        yield SimpleNamespace(
            client=client, worker=worker, pause=pause, scheduler=cluster.scheduler
        )


def say(worker, seconds, until=None):
    """Let a worker say for some time that it stands still."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (until and until()):
        worker.log_event(workers.TOPIC, {**EVENT, "worker": worker.address})
        time.sleep(0.05)


def lazy():
    x = np.random.default_rng(0).uniform(size=(200, 2))
    return dd.from_pandas(
        pd.DataFrame(x, columns=["x", "y"]), npartitions=4
    ).simjoin.count_pairs(0.1)


def test_tasks_of_workers_that_stand_still_fail(paused):
    pairs = lazy()
    assert pairs.compute() > 0
    paused.pause()
    running = started(pairs.compute)
    say(paused.worker, PATIENCE, until=running.done)
    with pytest.raises(ScratchError, match="'/spill'"):
        running.result(PATIENCE)
    # nothing of it is left, and the cluster computes again
    paused.pause(Status.running)
    assert pairs.compute() > 0
    assert paused.client.submit(abs, -3).result(PATIENCE) == 3


def test_other_tasks_are_left_alone(paused):
    lazy().compute()
    paused.pause()
    future = paused.client.submit(abs, -2)
    say(paused.worker, 1.5)
    assert future.status == "pending"
    paused.pause(Status.running)
    assert future.result(PATIENCE) == 2


def test_nothing_fails_while_another_worker_has_work():
    plugin = StandstillPlugin()
    calls = []
    there = {
        "tcp://a:1": SimpleNamespace(address="tcp://a:1", processing={"t": 1}),
        "tcp://b:2": SimpleNamespace(address="tcp://b:2", processing={"u": 1}),
    }
    loop = SimpleNamespace(add_callback=lambda *call: calls.append(call))
    plugin._scheduler = SimpleNamespace(workers=there, transition_counter=7, loop=loop)
    plugin._since = -1e9
    for _ in range(3):
        plugin.log_event(workers.TOPIC, EVENT)
    assert not calls
    there["tcp://b:2"].processing.clear()
    plugin._since = -1e9
    plugin.log_event(workers.TOPIC, EVENT)
    assert len(calls) == 1
    # what moved starts the wait again
    plugin._scheduler.transition_counter, plugin._since = 8, -1e9
    plugin.log_event(workers.TOPIC, EVENT)
    plugin.log_event("other", EVENT)
    assert len(calls) == 1
