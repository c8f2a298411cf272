"""Resources that run a plan: workers, their memory, shuffles and disks."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import numpy as np
import pandas as pd
from dask.system import CPU_COUNT
from dask.utils import format_bytes

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import BudgetError, PlanningError, Remedy
from dask_simjoin.planning.budget import MEMORY_LIMIT, Resources
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.options import current_client, on_cluster

if TYPE_CHECKING:
    from distributed import Client

IN_MEMORY = 0.2
"""Rows up to this share of the memory are shuffled in memory, by tasks; more rows on disk.

On two workers of one machine tasks took 0.7 of the time of p2p."""

ITSELF = 300 * 2**20
"""Memory of a worker without data, in bytes."""

ONE_THREAD = ("sync", "synchronous", "single-threaded")

PROCESSES = ("processes", "multiprocessing")

ATTEMPTS = 10
"""Largest number of requests to a cluster for its workers."""

MAX_MOVES = 4096
"""Shuffle by tasks, not p2p, if partitions times threads are at most this: the first needs more tasks."""


def resources_for(library: str) -> Resources:
    """Return the threads and memory that Dask would compute with now, for frames of a library."""
    client = current_client()
    workers: dict[str, Any] = {}
    if client is not None and not client.asynchronous:
        workers = workers_of(client)
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


def workers_of(client: Client) -> dict[str, Any]:
    """Return what the scheduler knows of each worker, by address.

    Every two seconds another thread of Dask replaces this information by one without workers.  If
    `scheduler_info` returns that, it is called again.
    """
    for _ in range(ATTEMPTS):
        info = client.scheduler_info(n_workers=-1)
        if len(info["workers"]) == info.get("n_workers", len(info["workers"])):
            break
    return dict(info["workers"])


def plain_threads() -> int:
    """Return how many threads a verb uses for a plain frame: as many as Dask's scheduler of threads.

    Outside of the main thread it uses one thread, because other threads may compute at the same time.
    """
    one = dask.config.get("scheduler", None) in ONE_THREAD
    if one or threading.current_thread() is not threading.main_thread():
        return 1
    return int(dask.config.get("num_workers", None) or CPU_COUNT)


def _free_disk(of_workers: Iterable[str]) -> int | None:
    """Return the most free bytes on one disk: the working directory's, Dask's or a worker's.

    None: some workers are on other machines.
    """
    scratch = list(of_workers)
    if not all(Path(folder).exists() for folder in scratch):
        return None
    free = []
    for folder in (".", dask.config.get("temporary-directory", None), *scratch):
        with contextlib.suppress(OSError):
            free.append(shutil.disk_usage(folder or ".").free)
    return max(free, default=None)


def shuffle_method(configured: str | None, resources: Resources, size: float, partitions: int,
                   dtypes: list[Any]) -> str:  # fmt: skip
    """Choose the shuffle method for `size` bytes of rows with columns of these dtypes."""
    if resources.gpu:
        return "tasks"  # other methods copy rows from GPUs to the host
    if any(isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object) for dtype in dtypes):
        return "tasks"  # other methods write Arrow, which does not keep objects and categories
    if configured is not None and (configured != "p2p" or resources.cluster):
        return configured
    memory = (resources.memory or 0) * resources.threads if resources.cluster else MEMORY_LIMIT
    few = partitions * resources.threads <= MAX_MOVES
    if size < IN_MEMORY * memory and (few or not resources.cluster):
        return "tasks"
    return "p2p" if resources.cluster else "disk"


def check_shuffle(method: str, cluster: bool) -> None:
    """Refuse a shuffle that was planned for a cluster but runs without one, or that now runs on a cluster."""
    if cluster != on_cluster() and method != "tasks":
        was, is_ = ("for a cluster", "without one") if cluster else ("without a cluster", "on one")
        raise PlanningError(
            f"The join was planned {was}, and now runs {is_}. Its shuffle method {method!r} does not work "
            "there. Call the verb again to plan the join anew."
        )


MIN_WORKER = 640 * 2**20
"""Smallest memory limit of a worker for a p2p shuffle: a worker of 500 MB was paused for ever."""

AT_ONCE = 24
"""Memory of a thread in units of the rows that it sends at a time between workers.

A shuffle holds about eight copies of the rows that it sends.  The sender has five: packed rows, a frame, the
frame with the rows' workers, the sorted frame, and bytes.  The receiver has three: its input, sorted rows,
and bytes by chunk.  The rest is for the partition, the shuffle's buffers, and rows that wait.  Without this
limit, partitions of 1,000,000 rows of 40 bytes killed workers of 700 MB."""

MOVE_BYTES = 16
"""Extra bytes of a row in a shuffle: its position, and its chunk's number."""

LARGEST = 6
"""Memory of a thread in units of the largest partition that it can shuffle.

Reading a partition and assigning its rows to chunks takes about 3.7 times its columns.  Workers of 700 MB
shuffled partitions of an eighth of that memory, and died with partitions of a quarter."""

BY_ORDER = Remedy({"partitioning": "entity"})
"""Remedy that shuffles no rows."""


def sent_rows(method: str | None, resources: Resources, row_bytes: float) -> int:
    """Return how many rows of a partition are shuffled at a time; `row_bytes`: bytes of a chunk's row."""
    if method != "p2p" or resources.memory is None:
        return MAX_ROWS
    return max(1, min(MAX_ROWS, int(resources.memory / AT_ONCE / (row_bytes + MOVE_BYTES))))


def check_moving(method: str, resources: Resources, tables: Sequence[TableSummary]) -> None:
    """Refuse to shuffle tables between workers with too little memory.

    Dask pauses a worker at 80 % of its limit, and kills it at 95 %.  A worker without data to spill stays
    paused.  With too large partitions it is killed again and again, and the join never ends.
    """
    if method != "p2p" or resources.limit is None or resources.memory is None:
        return
    if resources.limit < MIN_WORKER:
        raise BudgetError(
            f"Rows would be shuffled between workers of {format_bytes(resources.limit)}, and at least "
            f"{format_bytes(MIN_WORKER)} are needed, mostly for loaded libraries. Use fewer, "
            "larger workers, or partitioning='entity'.",
            remedies=[BY_ORDER],
        )
    max_bytes = resources.memory // LARGEST
    for table in tables:
        rows, each = max(summary.source_rows for summary in table.summaries), table.row_bytes
        if rows * each > max_bytes:
            parts = _enough(table, max_bytes)
            raise BudgetError(
                f"Rows would be shuffled from partitions of up to {rows:,} rows of {each:.0f} bytes, "
                f"{format_bytes(int(rows * each))}. A thread of the smallest worker has "
                f"{format_bytes(resources.memory)}, with room for partitions of at most "
                f"{format_bytes(max_bytes)}. Use smaller ones: ddf.repartition(npartitions={parts}) or "
                "dd.read_parquet(..., split_row_groups=True), workers with more memory or fewer threads, or "
                "partitioning='entity'.",
                remedies=[Remedy(npartitions=parts), BY_ORDER],
            )


def can_move(method: str, resources: Resources, tables: Sequence[TableSummary]) -> bool:
    """Return whether rows can be shuffled, without raising: see `check_moving`."""
    try:
        check_moving(method, resources, tables)
    except BudgetError:
        return False
    return True


def _enough(table: TableSummary, max_bytes: int) -> int:
    """Return a number of partitions that all have at most `max_bytes`, if each is cut into equally many."""
    largest = max(summary.source_rows for summary in table.summaries) * table.row_bytes
    return int(-(-largest // max_bytes)) * len(table.summaries)
