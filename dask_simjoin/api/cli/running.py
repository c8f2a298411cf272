"""Choose what computes: threads of this process, a cluster on this machine, or one that is there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster

from dask_simjoin.engine.base import HOME
from dask_simjoin.options.optional import optional

THREADS, ALONE, CLUSTER = SCHEDULERS = ("threads", "synchronous", "cluster")


@contextlib.contextmanager
def computing(
    scheduler: str, workers: int | None, memory_limit: str | None, backend: str
) -> Iterator[Client | None]:
    """Compute in this way within it; gives the client of a cluster.

    Who leaves it early, as by Ctrl-C, leaves it when no task runs any more.
    """
    if scheduler == THREADS and memory_limit is not None:
        scheduler = CLUSTER  # threads of one process have one memory
    if backend != HOME:
        optional("dask_cudf", "'dask-simjoin[cuda13]'", "Frames on GPUs")
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set({"dataframe.backend": backend}))
        if scheduler in (THREADS, ALONE):
            threads = workers or CPU_COUNT
            pool = ThreadPoolExecutor(threads)
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
            stack.enter_context(dask.config.set(scheduler=scheduler, pool=pool, num_workers=threads))
            yield None
            return
        address: Any = scheduler
        if scheduler == CLUSTER:
            # what workers log would run through the progress
            options: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": logging.ERROR}
            if workers is not None:
                options["n_workers"] = workers
            if memory_limit is not None:
                options["memory_limit"] = memory_limit
            # on a busy machine a worker that dies is not back within Dask's 15 s
            stack.enter_context(dask.config.set({"distributed.deploy.lost-worker-timeout": "2 minutes"}))
            address = stack.enter_context(_cluster(backend)(**options))
        yield stack.enter_context(Client(address))


def _cluster(backend: str) -> Any:
    if backend == HOME:
        return LocalCluster
    return optional("dask_cuda", "dask-cuda", "Clusters of GPUs").LocalCUDACluster
