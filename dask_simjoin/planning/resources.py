"""Resources that run a plan: workers, their memory, shuffles and disks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
from dask.system import CPU_COUNT
from dask.utils import format_bytes
from distributed.system import MEMORY_LIMIT

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import BudgetError, PlanningError, Remedy
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.options import current_client, on_cluster

IN_MEMORY = 0.2
"""Share of the memory up to which rows are shuffled in it, by tasks; beyond, on disk.  On two workers
of one machine tasks took 0.7 of the time that p2p took."""

ITSELF = 300 * 2**20
"""What a worker that has loaded everything needs without any data."""

ONE_THREAD = ("sync", "synchronous", "single-threaded")

PROCESSES = ("processes", "multiprocessing")

MAX_MOVES = 4096
"""Partitions times threads up to which that makes no more tasks than it is worth."""


def resources_for(library: str) -> Resources:
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


def shuffle_method(configured: str | None, resources: Resources, size: float, partitions: int,
                   dtypes: list[Any]) -> str:  # fmt: skip
    """How to shuffle so many bytes of rows from partitions, with columns of these dtypes."""
    if resources.gpu:
        return "tasks"  # the others go by the host's memory
    if any(isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object) for dtype in dtypes):
        return "tasks"  # the others write Arrow, which has no column of any objects or categories
    if configured is not None and (configured != "p2p" or resources.cluster):
        return configured
    memory = (resources.memory or 0) * resources.threads if resources.cluster else MEMORY_LIMIT
    few = partitions * resources.threads <= MAX_MOVES
    if size < IN_MEMORY * memory and (few or not resources.cluster):
        return "tasks"
    return "p2p" if resources.cluster else "disk"


def check_shuffle(method: str, cluster: bool) -> None:
    """Refuse to shuffle in a way that was planned for what was there then, and is not now."""
    if cluster != on_cluster() and method != "tasks":
        was, is_ = ("on a cluster", "without one") if cluster else ("without a cluster", "on one")
        raise PlanningError(
            f"The join was planned {was} and is computed {is_}, where rows cannot be shuffled with "
            f"{method!r}; build it again now."
        )


LEAST_WORKER = 640 * 2**20
"""Memory limit of a worker that takes part in a p2p shuffle: one of 500 MB was paused for ever."""

AT_ONCE = 24
"""Memory of a thread in units of the rows that it sends at a time between workers.

Of rows that a shuffle sends there are about eight copies: as they are packed, as a frame, that frame with
its workers, sorted and as bytes, and on the other side those that come in, sorted and as bytes by chunk.
What is left is for the partition, the shuffle's own buffers, and rows that wait to be sent: partitions of
1,000,000 rows of 40 bytes that were sent whole killed workers of 700 MB."""

MOVE_BYTES = 16
"""Of a row that is sent, besides what it has in its chunk: its position, and its chunk's number."""

LARGEST = 6
"""Memory of a thread in units of the largest partition whose rows it can send.

Reading one and telling its rows apart takes about 3.7 times its columns, before any row is sent.  On workers
of 700 MB with partitions of an eighth of that memory shuffles went well, and with those of a quarter
workers died."""

BY_ORDER = Remedy({"partitioning": "entity"})
"""What moves no rows."""


def sent_rows(method: str | None, resources: Resources, row_bytes: float) -> int:
    """Tell how many rows of a partition are shuffled at a time, of so many bytes each in their chunk."""
    if method != "p2p" or resources.memory is None:
        return MAX_ROWS
    return max(1, min(MAX_ROWS, int(resources.memory / AT_ONCE / (row_bytes + MOVE_BYTES))))


def check_moving(method: str, resources: Resources, tables: Sequence[TableSummary]) -> None:
    """Refuse to shuffle the rows of tables between workers that have no room for that.

    Dask pauses a worker at 80 % of its limit, and kills it at 95 %.  With no data to spill it stays paused,
    and with partitions too large it is killed again and again; what waits for it waits for ever, or nearly.
    """
    if method != "p2p" or resources.limit is None or resources.memory is None:
        return
    if resources.limit < LEAST_WORKER:
        raise BudgetError(
            f"Rows would be shuffled between workers of {format_bytes(resources.limit)}, and at least "
            f"{format_bytes(LEAST_WORKER)} are needed, most of them for what a worker loads; use fewer, "
            "larger workers, or partitioning='entity'.",
            remedies=[BY_ORDER],
        )
    most = resources.memory // LARGEST
    for table in tables:
        rows, each = max(summary.source_rows for summary in table.summaries), table.row_bytes
        if rows * each > most:
            parts = _enough(table, most)
            raise BudgetError(
                f"Rows would be shuffled from partitions of up to {rows:,} rows of {each:.0f} bytes, "
                f"{format_bytes(int(rows * each))}, and a thread of the smallest worker has "
                f"{format_bytes(resources.memory)}, with room for partitions of at most {format_bytes(most)}."
                f" Use smaller ones, such as ddf.repartition(npartitions={parts}) or "
                "dd.read_parquet(..., split_row_groups=True), workers with more memory or fewer threads, or "
                "partitioning='entity'.",
                remedies=[Remedy(npartitions=parts), BY_ORDER],
            )


def can_move(method: str, resources: Resources, tables: Sequence[TableSummary]) -> bool:
    """Tell whether `check_moving` would not refuse."""
    try:
        check_moving(method, resources, tables)
    except BudgetError:
        return False
    return True


def _enough(table: TableSummary, most: int) -> int:
    """Return a number of partitions that are small enough, each cut into equally many."""
    largest = max(summary.source_rows for summary in table.summaries) * table.row_bytes
    return int(-(-largest // most)) * len(table.summaries)
