"""Calls in threads of their own, for tests that do something beside them; and verbs
that give threads little work.
"""

import threading
from concurrent.futures import Future

from dask_simjoin.cluster.algorithms import edges
from dask_simjoin.engine import process
from dask_simjoin.engine.cpu import rounds, sorting
from dask_simjoin.tasks import local, nearest

LITTLE = {
    (process, "GROWTH"): 2,
    (process, "FIRST_WORK"): 64,
    (process, "MIN_PART"): 64,
    (process, "BATCH"): 64,
    (sorting, "MIN_PART"): 64,
    (local, "BATCH"): 64,
    (nearest, "MIN_SEARCHED"): 64,
    (edges, "MIN_PLACES"): 64,
    (rounds, "MIN_SEARCHED_TILES"): 1,
    (rounds, "MIN_OFFERED"): 64,
}
"""Module and name of each least amount of work of a thread -> an amount with which
several threads join small tables, in several parts.
"""


def started(function, *args, **options):
    """Start a call in a thread; return the future of its result.

    Nobody waits for the thread: if the test fails, neither it nor the process hangs.
    """
    future = Future()

    def run():
        try:
            future.set_result(function(*args, **options))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
