"""Ask the worker that runs a task whether there is one, and to keep its free memory free."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from distributed import get_worker

from dask_simjoin.errors import PlanningError


@functools.cache
def give_memory_back() -> None:
    """Let Arrow of this process, if it is a worker, return what it frees to the system.

    Its own allocator keeps freed memory.  A worker counts that as used, and pauses at 80 % of its
    limit; paused, it runs nothing that would make it smaller, and a shuffle waits for ever (seen with
    workers of 700 MB that held 225 MB so).  The system's allocator returns it, as Dask's nannies set
    it to.
    """
    try:
        limit = get_worker().memory_manager.memory_limit
    except ValueError:  # this is no worker
        return
    if limit:
        pa.default_memory_pool().release_unused()
        pa.set_memory_pool(pa.system_memory_pool())


def is_worker() -> bool:
    """Tell whether this is run by a worker of a cluster."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def check_sending(method: str) -> None:
    """Refuse, in a task, a shuffle by workers where there are none.

    What `compute(scheduler=...)` names, Dask tells nobody before tasks run.
    """
    if method == "p2p" and not is_worker():
        raise PlanningError(
            "The join was planned on a cluster, whose workers would shuffle its rows with 'p2p', and its "
            "tasks run without one, as compute(scheduler=...) asks for. Build and compute it within "
            "dask.config.set(scheduler='threads'), or build it within "
            "dask.config.set({'dataframe.shuffle.method': 'tasks'}), or leave out scheduler=."
        )


def on_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call the function, on a worker that gives memory back."""
    give_memory_back()
    return function(*args)
