"""A worker's free memory is given back as long as there is the worker, and none waits for ever."""

import threading
import weakref
from types import SimpleNamespace

import pyarrow as pa
import pytest
from distributed import Status

from dask_simjoin.graph import workers
from tests.support.gates import PATIENCE, until


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

    monkeypatch.setattr(workers, "EVERY", 0.001)
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
    monkeypatch.setattr(workers, "EVERY", 0.001)
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
    assert workers.INNER.max_memory() >= workers.LARGE


@pytest.mark.parametrize(("limit", "calls"), [(1 << 30, []), (1 << 32, [(-3, 1 << 22), (-1, 1 << 26)])])
def test_freed_memory_is_kept_on_workers_with_room_for_it(monkeypatch, limit, calls):
    made = []
    library = SimpleNamespace(mallopt=lambda name, value: made.append((name, value)))
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: library)
    workers.keep_some(limit)
    assert made == calls
    monkeypatch.setattr(workers.ctypes, "CDLL", lambda name: SimpleNamespace())  # as on macOS
    workers.keep_some(limit)
