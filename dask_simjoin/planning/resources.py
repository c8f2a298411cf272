"""What will run the tasks: the cluster of the current client, or this process."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import PlanningError
from dask_simjoin.options.settings import current_client, on_cluster
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.goal import Goal

IN_MEMORY = 0.2
"""Share of the memory up to which rows are shuffled in it, by tasks; beyond, on disk.  On two workers
of one machine tasks took 0.7 of the time that p2p took."""

ITSELF = 300 * 2**20
"""What a worker that has loaded everything needs without any data."""

ONE_THREAD = ("sync", "synchronous", "single-threaded")

PROCESSES = ("processes", "multiprocessing")

MAX_MOVES = 4096
"""Partitions times threads up to which that makes no more tasks than it is worth."""


def resources(library: str) -> Resources:
    """Threads and memory of what Dask would compute with now, for frames of a library."""
    client = current_client()
    workers: dict[str, Any] = {}
    if client is not None and not client.asynchronous:
        workers = client.scheduler_info(n_workers=-1)["workers"]
    local = int(dask.config.get("num_workers", None) or CPU_COUNT)
    disk = _free_disk(w["local_directory"] for w in workers.values())
    own = frames_of_library(library).memory()
    if own is not None and client is None:
        threads = 1 if dask.config.get("scheduler", None) in ONE_THREAD else local
        return Resources(threads, own // threads, gpu=True, disk=disk)
    if own is not None:
        each = [(w.get("gpu") or {}).get("memory-total") or own for w in workers.values()]
        threads = sum(w["nthreads"] for w in workers.values())
        many = max((w["nthreads"] for w in workers.values()), default=1)
        memory = min(each, default=own) // many
        return Resources(max(1, threads), memory, True, gpu=True, workers=max(1, len(workers)), disk=disk)
    if client is None:
        together = 1 if dask.config.get("scheduler", None) in ONE_THREAD else local
        shared = None if dask.config.get("scheduler", None) in PROCESSES else MEMORY_LIMIT // local
        return Resources(threads=local, shared=shared, together=together, disk=disk)
    limited = [(w["memory_limit"], w["nthreads"]) for w in workers.values() if w["memory_limit"]]
    memory = min((max(limit - ITSELF, limit // 3) // n for limit, n in limited), default=None)
    threads = sum(w["nthreads"] for w in workers.values())
    limit = min((limit for limit, _ in limited), default=None)
    together = min((w["nthreads"] for w in workers.values()), default=1)
    many = max(1, len(workers))
    return Resources(max(1, threads), memory, True, limit, workers=many, together=together, disk=disk)


def _free_disk(of_workers: Iterable[str]) -> int | None:
    """Bytes free on the disk that has most: of the working directory, of Dask's temporary one, of workers'.

    None: some workers are on other machines, whose disks this one does not see.
    """
    scratch = list(of_workers)
    if not all(Path(folder).exists() for folder in scratch):
        return None
    free = []
    for folder in (".", dask.config.get("temporary-directory", None), *scratch):
        with contextlib.suppress(OSError):
            free.append(shutil.disk_usage(folder or ".").free)
    return max(free, default=None)


def shuffle_method(configured: str | None, have: Resources, size: float, partitions: int,
                   dtypes: list[Any]) -> str:  # fmt: skip
    """How to shuffle so many bytes of rows from partitions, with columns of these dtypes."""
    if have.gpu:
        return "tasks"  # the others go by the host's memory
    if any(isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object) for dtype in dtypes):
        return "tasks"  # the others write Arrow, which has no column of any objects or categories
    if configured is not None and (configured != "p2p" or have.cluster):
        return configured
    memory = (have.memory or 0) * have.threads if have.cluster else MEMORY_LIMIT
    few = partitions * have.threads <= MAX_MOVES
    if size < IN_MEMORY * memory and (few or not have.cluster):
        return "tasks"
    return "p2p" if have.cluster else "disk"


def sends_by_worker(goal: Goal, have: Resources, configured: str | None) -> bool:
    """Tell whether rows that workers hold are sent to chunks by one task a thread, if nothing else is set.

    What is found of each row goes back to where it lies, which Dask would have to shuffle.
    """
    comes_back = goal.by_row or goal.single_home
    return have.cluster and have.workers > 1 and not (have.gpu or comes_back or configured)


def check_shuffle(method: str, cluster: bool) -> None:
    """Refuse to shuffle in a way that was planned for what was there then, and is not now."""
    if cluster != on_cluster() and method != "tasks":
        was, is_ = ("on a cluster", "without one") if cluster else ("without a cluster", "on one")
        raise PlanningError(
            f"The join was planned {was} and is computed {is_}, where rows cannot be shuffled with "
            f"{method!r}; build it again now."
        )
