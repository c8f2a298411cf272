"""Workers return freed memory, and go on if they cannot use less."""

import threading
import weakref
from types import SimpleNamespace

import pyarrow as pa
import pytest
from distributed import Status

from dask_simjoin.graph import worker_memory
from tests.support.gates import PATIENCE, until


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
    some = threading.Thread(
        target=worker_memory._keep_free, args=(weakref.ref(worker), much)
    )
    some.start()
    return some


def test_memory_is_given_back_until_the_worker_is_gone(monkeypatch):
    given, pool = [], pa.system_memory_pool()

    class Pool:
        def release_unused(self):
            given.append(threading.current_thread())
            pool.release_unused()

    monkeypatch.setattr(worker_memory, "MOMENT", 0.001)
    monkeypatch.setattr(worker_memory.pa, "system_memory_pool", Pool)
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
    worker_memory.let_go_on(worker, int(share * 1000))
    assert worker.memory_manager.memory_pause_fraction == pytest.approx(allowed)


@pytest.mark.parametrize("setting", [{"limit": None}, {"limit": 1000, "pause": False}])
def test_workers_that_never_pause_are_left_alone(setting):
    worker = Standing(**setting)
    worker_memory.let_go_on(worker, 900)
    assert worker.memory_manager.memory_pause_fraction == setting.get("pause", 0.8)


def test_only_paused_workers_that_run_nothing_go_on(monkeypatch):
    monkeypatch.setattr(worker_memory, "MOMENT", 0.001)
    far = 1 << 40
    monkeypatch.setattr(
        worker_memory.psutil.Process,
        "memory_info",
        lambda process: SimpleNamespace(rss=1),
    )
    waiting = Standing(Status.paused, limit=far)
    others = [
        Standing(Status.paused, 1, far),
        Standing(Status.running, 0, far),
        Standing(Status.paused, 0, far, data=1),
    ]
    seen = []
    monkeypatch.setattr(worker_memory.Standstill, "look", lambda *_: False)
    monkeypatch.setattr(
        worker_memory, "let_go_on", lambda worker, used: seen.append(worker)
    )
    threads = [keep(worker, float("inf")) for worker in (waiting, *others)]
    until(lambda: len(seen) > 2, "a worker waits for ever")
    for worker in (waiting, *others):
        worker.status = Status.closed
    for some in threads:
        some.join(PATIENCE)
    assert set(seen) == {waiting}


def test_what_is_returned_later_leaves_nothing_allocated():
    before = worker_memory.INNER.bytes_allocated()
    worker_memory._return_freed()
    assert worker_memory.INNER.bytes_allocated() == before
    assert worker_memory.INNER.max_memory() >= worker_memory.PARSED_BYTES


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
    monkeypatch.setattr(worker_memory.ctypes, "CDLL", lambda name: library)
    worker_memory.keep_freed_memory(limit, threads)
    assert made == calls
    # as on macOS
    monkeypatch.setattr(worker_memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    worker_memory.keep_freed_memory(limit, threads)
