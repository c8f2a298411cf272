"""A worker's free memory is given back as long as there is the worker."""

import threading
import weakref

import pyarrow as pa
from distributed import Status

from dask_simjoin.expressions import worker_memory
from tests.support.gates import PATIENCE, until


class Standing:
    """Something of a worker's status."""

    def __init__(self):
        self.status = Status.running


def keep(worker, much):
    some = threading.Thread(target=worker_memory._keep_free, args=(weakref.ref(worker), much))
    some.start()
    return some


def test_memory_is_given_back_until_the_worker_is_gone(monkeypatch):
    given, pool = [], pa.system_memory_pool()

    class Pool:
        def release_unused(self):
            given.append(threading.current_thread())
            pool.release_unused()

    monkeypatch.setattr(worker_memory, "EVERY", 0.001)
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
