"""Prepare workers of a cluster for tasks, and ask whether a worker runs this code."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from distributed import (
    Client,
    LocalCluster,
    get_worker,
    rejoin,
    secede,
)

from dask_simjoin.errors import PlanningError
from dask_simjoin.graph.standstill import watch
from dask_simjoin.graph.worker_memory import guard_memory

NO_WORKERS = 300.0
"""Seconds that tasks wait for a worker to appear before they fail."""


@functools.cache
def prepare_worker() -> None:
    """If this process is a worker, configure it to stay within its memory limit."""
    if is_worker():
        guard_memory(get_worker())


def end_without_workers(client: Client | None) -> None:
    """Make tasks fail on a local cluster that has lost all workers, and on any cluster
    whose workers are all stuck.

    A local cluster gives up a dead worker that does not restart within 15 s
    (`distributed.deploy.lost-worker-timeout`). On a busy machine it can give up all
    workers, and a program would wait forever. Other clusters are not changed, because
    they may get workers at any time. The value of
    `distributed.scheduler.no-workers-timeout` is respected if you set it.
    """
    watch(client)
    cluster = getattr(client, "cluster", None)
    if (
        isinstance(cluster, LocalCluster)
        and cluster.scheduler.no_workers_timeout is None
    ):
        cluster.scheduler.no_workers_timeout = NO_WORKERS


def is_worker() -> bool:
    """Return whether a worker of a cluster runs this code."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def check_sending(method: str) -> None:
    """Raise an error if the shuffle needs workers of a cluster, but the calling task
    runs on none.

    Planning cannot check this, because `compute(scheduler=...)` may choose another
    scheduler later.
    """
    if method == "p2p" and not is_worker():
        raise PlanningError(
            "The join was planned for a cluster, with the shuffle 'p2p', but "
            "compute(scheduler=...) runs its "
            "tasks without a cluster. Build and compute it within "
            "dask.config.set(scheduler='threads'), or "
            "build it within dask.config.set({'dataframe.shuffle.method': 'tasks'}), "
            "or leave out scheduler=."
        )


@contextlib.contextmanager
def outside_pool() -> Iterator[None]:
    """Let the worker run other tasks while a task waits for them inside the `with`
    block. Elsewhere, do nothing.
    """
    seceded = False
    if is_worker():
        with contextlib.suppress(KeyError):  # the task may have left the pool already
            secede()
            seceded = True
    try:
        yield
    finally:
        if seceded:
            rejoin()


def on_worker(function: Callable[..., Any], *args: Any) -> Any:
    """Call `prepare_worker`, which configures a worker once, and then the function."""
    prepare_worker()
    return function(*args)
