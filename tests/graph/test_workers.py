"""Plans ask workers for the room on their disks, and refuse what does not fit."""

import threading
import weakref
from types import SimpleNamespace

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from distributed import Client, LocalCluster, Status

from dask_simjoin.errors import BudgetError
from dask_simjoin.graph import planner, workers
from dask_simjoin.graph.workers import by_disk
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.disk import WorkerDisk
from tests.support.gates import PATIENCE, until

WORDS = {"threshold": 0.5, "tokenizer": "whitespace"}

VERBS = {
    "self_join": lambda points, sets: points.simjoin.self_join(0.1, on=["x", "y"]).npartitions,
    "join": lambda points, sets: points.simjoin.join(points, 0.1, on=["x", "y"]).npartitions,
    "knn_join": lambda points, sets: points.simjoin.knn_join(k=2, on=["x", "y"]).npartitions,
    "k_distances": lambda points, sets: points.simjoin.k_distances(2, on=["x", "y"]).compute(),
    "count_pairs": lambda points, sets: points.simjoin.count_pairs(0.1, on=["x", "y"]).compute(),
    "neighbor_counts": lambda points, sets: points.simjoin.neighbor_counts(0.1, on=["x", "y"]).compute(),
    "near_duplicated": lambda points, sets: points.simjoin.near_duplicated(0.1, on=["x", "y"]).compute(),
    "dbscan": lambda points, sets: points.simjoin.dbscan(0.1, 3, on=["x", "y"]).compute(),
    "optics": lambda points, sets: points.simjoin.optics(0.1, 3, on=["x", "y"]).compute(),
    "hdbscan": lambda points, sets: points.simjoin.hdbscan(5, blocksize="8 kB", on=["x", "y"]).compute(),
    "spanning_tree": lambda points, sets: points.simjoin.spanning_tree(
        blocksize="8 kB", on=["x", "y"]
    ).compute(),
    "neighbor_graph": lambda points, sets: points.simjoin.neighbor_graph(0.1, on=["x", "y"]).compute(),
    "set_self_join": lambda points, sets: sets.simjoin.set_self_join("s", **WORDS).npartitions,
    "count_set_pairs": lambda points, sets: sets.simjoin.count_set_pairs("s", **WORDS).compute(),
    "set_neighbor_counts": lambda points, sets: sets.simjoin.set_neighbor_counts("s", **WORDS).compute(),
    "set_near_duplicated": lambda points, sets: sets.simjoin.set_near_duplicated("s", **WORDS).compute(),
}


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(n_workers=1, threads_per_worker=2, processes=False, memory_limit=0,
                     dashboard_address=":0") as found,
        Client(found),
    ):  # fmt: skip
        yield found


@pytest.mark.parametrize("verb", VERBS)
def test_verbs_that_need_more_than_is_free_are_refused(cluster, monkeypatch, verb):
    """Workers of so little memory that all rows go to disk, of which 100 B are free."""
    have = Resources(2, 1 << 20, True, 1 << 20, workers=1, together=2)
    monkeypatch.setattr(planner, "resources_for", lambda library: have)
    x = np.random.default_rng(0).uniform(size=(400, 2))
    points = dd.from_pandas(pd.DataFrame(x, columns=["x", "y"]), npartitions=4)
    sets = dd.from_pandas(pd.DataFrame({"s": [f"{n % 7} {n % 5} x" for n in range(400)]}), npartitions=4)
    free = []

    def usage(directory):
        free.append(directory)
        return SimpleNamespace(free=100)

    monkeypatch.setattr(workers.shutil, "disk_usage", usage)
    with pytest.raises(BudgetError, match=r"At least .* do not fit .* of 1 workers.*has only 100 B free"):
        VERBS[verb](points, sets)
    assert free


def test_workers_that_share_a_disk_are_put_together():
    spills = [("a", 1, "/one", 100, None), ("a", 2, "/two", 90, None), ("a", 1, "/one/more", 99, None),
              ("b", 1, "/one", 80, 30), ("b", 1, "/one", 80, 20)]  # fmt: skip
    assert by_disk(spills) == [
        WorkerDisk("a", "/one", 2, 99), WorkerDisk("a", "/two", 1, 90), WorkerDisk("b", "/one", 2, 50),
    ]  # fmt: skip


def test_workers_are_not_asked_where_nothing_goes_to_disk(cluster, monkeypatch):
    monkeypatch.setattr(Client, "run", lambda *_, **__: pytest.fail("workers were asked"))
    frame = dd.from_pandas(pd.DataFrame({"x": [0.0, 1.0]}), npartitions=1)
    assert frame.simjoin.count_pairs(1.0, on="x").compute() == 1


class Data(dict):
    """Results of a worker, all of them in memory."""

    def __init__(self, names):
        super().__init__(dict.fromkeys(names))
        self.fast = dict(self)


class Standing:
    """Something of a worker's status, which pauses at .8 of its memory."""

    def __init__(self, status=Status.running, executing=0, limit=None, pause=0.8, data=()):
        self.status, self.state = status, SimpleNamespace(executing_count=executing)
        self.data = Data(data)
        self.memory_manager = SimpleNamespace(memory_limit=limit, memory_pause_fraction=pause)


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
    ("share", "pause", "allowed"), [(0.81, 0.8, 0.85), (0.9, 0.85, 0.92), (0.97, 0.92, 0.92), (0.5, 0.8, 0.8)]
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
    monkeypatch.setattr(workers.psutil.Process, "memory_info", lambda process: SimpleNamespace(rss=1))
    waiting = Standing(Status.paused, limit=far)
    others = [Standing(Status.paused, 1, far), Standing(Status.running, 0, far),
              Standing(Status.paused, 0, far, data=["going to disk"])]  # fmt: skip
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


@pytest.mark.parametrize(("limit", "calls"), [(1 << 30, []), (1 << 32, [(-3, 1 << 22), (-1, 1 << 26)])])
def test_freed_memory_is_kept_on_workers_with_room_for_it(monkeypatch, limit, calls):
    made = []
    library = SimpleNamespace(mallopt=lambda name, value: made.append((name, value)))
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: library)
    workers.keep_freed_memory(limit)
    assert made == calls
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: SimpleNamespace())  # as on macOS
    workers.keep_freed_memory(limit)
