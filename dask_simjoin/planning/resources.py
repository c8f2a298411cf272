"""Limits that run a plan: workers, their memory and disks, and shuffles."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import dask
import numpy as np
import pandas as pd
from dask.system import CPU_COUNT

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import (
    LARGER_DISK,
    BudgetError,
    PlanningError,
    Remedy,
    ScratchError,
)
from dask_simjoin.planning.checks import MAX_ROWS
from dask_simjoin.planning.costs import CLUSTER_BYTE
from dask_simjoin.planning.entity_chunks import JoinChunks
from dask_simjoin.planning.limits import (
    MEMORY_LIMIT,
    MOVED_SHARE,
    NEED,
    Limits,
    free_disk,
)
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.messages import size_text
from dask_simjoin.request.options import Settings, current_client, on_cluster
from dask_simjoin.sizes import ENTRY_BYTES, NANO, TRIES

if TYPE_CHECKING:
    from distributed import Client


ITSELF = 330 * 2**20
"""Memory of a worker process after a first small join, in bytes, without any data."""

THREAD_VARIABLES = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Environment variables that limit the threads of other libraries; they also limit the
threads for plain frames.
"""

ONE_THREAD = ("sync", "synchronous", "single-threaded")
PROCESSES = ("processes", "multiprocessing")
"""Names of Dask's schedulers: first those with one thread, then those with several
processes.
"""

MAX_MOVES = 4096
"""Maximum number of messages of a shuffle on a cluster.

If rows are shuffled by tasks, these are partitions times threads. If workers send the
rows that they hold, it is the square of their number. Otherwise p2p is used, because it needs fewer tasks.
"""


def limits_here(disk: int | None = None) -> Limits:
    """Return the threads and memory that Dask uses in this process, without a cluster.

    `disk`: see `Limits`.
    """
    scheduler = dask.config.get("scheduler", None)
    threads = int(dask.config.get("num_workers", None) or CPU_COUNT)
    together = 1 if scheduler in ONE_THREAD else threads
    shared = None if scheduler in PROCESSES else MEMORY_LIMIT // threads
    return Limits(threads=threads, shared=shared, together=together, disk=disk)


def limits_for(library: str) -> Limits:
    """Return the threads and memory that Dask would use now to compute with frames of a
    library.
    """
    client = current_client()
    workers: dict[str, Any] = {}
    if client is not None and not client.asynchronous:
        workers = workers_of(client)
    disk = free_disk(w["local_directory"] for w in workers.values())
    own = frames_of_library(library).memory()
    if own is not None and client is None:
        threads = limits_here().together
        return Limits(threads, own // threads, gpu=True, disk=disk)
    if own is not None:
        each = [
            (w.get("gpu") or {}).get("memory-total") or own for w in workers.values()
        ]
        threads = sum(w["nthreads"] for w in workers.values())
        many = max((w["nthreads"] for w in workers.values()), default=1)
        memory = min(each, default=own) // many
        return Limits(
            max(1, threads),
            memory,
            True,
            gpu=True,
            device=device_limit(client, workers),
            workers=max(1, len(workers)),
            disk=disk,
        )
    if client is None:
        return limits_here(disk)
    limited = [
        (w["memory_limit"], w["nthreads"])
        for w in workers.values()
        if w["memory_limit"]
    ]
    memory = min(
        (max(limit - ITSELF, limit // 3) // n for limit, n in limited), default=None
    )
    threads = sum(w["nthreads"] for w in workers.values())
    limit = min((limit for limit, _ in limited), default=None)
    check_worker_memory(limit)
    return Limits(
        max(1, threads),
        memory,
        True,
        limit,
        workers=max(1, len(workers)),
        together=min((w["nthreads"] for w in workers.values()), default=1),
        of_host=threads_of_host(workers),
        disk=disk,
    )


_DEVICE_LIMITS: WeakKeyDictionary[Client, dict[str, int | None]] = WeakKeyDictionary()
"""What each worker said, by client and address."""


def _device_limit(dask_worker: Any) -> int | None:
    """Return the bytes that Dask-CUDA keeps in the memory of a worker's GPU, if it
    moves more than that to the host.
    """
    buffer = getattr(dask_worker.data, "device_buffer", None)
    limit: int | None = getattr(buffer, "n", None)
    return limit


def device_limit(client: Client | None, workers: Iterable[str]) -> int | None:
    """Return the bytes of chunks that Dask-CUDA keeps in GPU memory, on the worker with
    the fewest; None if there is no limit. Each worker is asked once.
    """
    if client is None:
        return None
    known = _DEVICE_LIMITS.setdefault(client, {})
    asked = [address for address in workers if address not in known]
    if asked:
        known.update(client.run(_device_limit, workers=asked, on_error="ignore"))
    limits = [limit for one in workers if (limit := known.get(one)) is not None]
    return min(limits, default=None)


def threads_of_host(workers: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the number of threads of all workers of the host that has the fewest.

    `workers`: see `workers_of`.
    """
    threads = Counter[str]()
    for worker in workers.values():
        threads[worker["host"]] += worker["nthreads"]
    return min(threads.values(), default=1)


def memory_share(step: str) -> float:
    """Return the fraction of a worker's memory limit where Dask takes a step: "target",
    "spill" or "pause". 1.0: Dask does not take it.
    """
    return float(
        dask.config.get(f"distributed.worker.memory.{step}", default=None) or 1.0
    )


def check_worker_memory(limit: int | None) -> None:
    """Refuse workers that Dask would pause as soon as they have imported this package
    and its libraries. `limit`: memory limit of the smallest worker, in bytes.

    Such workers are paused, resumed and restarted without end.
    """
    pause = memory_share("pause")
    if limit is None or pause == 1 or pause * limit >= ITSELF:
        return
    raise BudgetError(
        f"A worker has a memory limit of {size_text(limit)}. Dask pauses it at "
        f"{size_text(pause * limit, limit)}, but its libraries alone take about "
        f"{size_text(ITSELF, limit)}, so it would be paused all the time. A worker needs "
        f"at least {size_text(ITSELF / pause, limit, up=True)}, and preferably 700 MB. Use "
        "fewer workers with more memory each, such as LocalCluster(n_workers=1, "
        "memory_limit='700 MB')."
    )


def workers_of(client: Client) -> dict[str, Any]:
    """Return the scheduler's information about each worker, by address.

    Every two seconds, another thread of Dask replaces this information by a copy that
    lacks some workers. If `scheduler_info` returns such a copy, it is called again.
    """
    for _ in range(TRIES):
        info = client.scheduler_info(n_workers=-1)
        if len(info["workers"]) == info.get("n_workers", len(info["workers"])):
            break
    return dict(info["workers"])


def plain_threads(settings: Settings) -> int:
    """Return the number of threads for a plain frame: the option or the setting, or as
    many as Dask's threaded scheduler would use.

    Without the option and the setting it is 1 outside the main thread, and in processes
    of Python's multiprocessing. Others may compute there at the same time.
    """
    if settings.threads is not None:
        return settings.threads
    if (
        dask.config.get("scheduler", None) in ONE_THREAD
        or threading.current_thread() is not threading.main_thread()
        or multiprocessing.parent_process() is not None
    ):
        return 1
    workers = dask.config.get("num_workers", None)
    return int(workers) if workers else allowed_cores()


def allowed_cores() -> int:
    """Return the number of cores that this process may use now."""
    cores = [CPU_COUNT]
    if hasattr(os, "sched_getaffinity"):
        cores.append(len(os.sched_getaffinity(0)))
    for name in THREAD_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value):
            cores.append(int(value))
    return min(cores)


def shuffle_method(
    configured: str | None,
    limits: Limits,
    size: float,
    partitions: int,
    dtypes: list[Any],
) -> str:
    """Choose the shuffle method for rows of `size` bytes in total, with columns of
    these dtypes.
    """
    if limits.gpu:
        return "tasks"  # the other methods would copy rows from GPUs to the host
    if any(
        isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object)
        for dtype in dtypes
    ):
        # the other methods write Arrow data, which does not preserve objects and
        # categories
        return "tasks"
    if configured is not None and (configured != "p2p" or limits.cluster):
        return configured
    few = partitions * limits.threads <= MAX_MOVES
    if fits_in_memory(limits, size) and (few or not limits.cluster):
        return "tasks"
    return "p2p" if limits.cluster else "disk"


def fits_in_memory(limits: Limits, size: float) -> bool:
    """Return whether rows of `size` bytes are shuffled by tasks, in memory; if not,
    through files.

    On two workers of one machine, the shuffle by tasks took 0.7 times as long as p2p.
    """
    memory = (limits.memory or 0) * limits.threads if limits.cluster else MEMORY_LIMIT
    return NEED * size < memory


def may_send(limits: Limits, size: float) -> bool:
    """Return whether the workers of a cluster may send rows of `size` bytes to each
    other, one message from each worker to each other worker.
    """
    apart = limits.cluster and limits.workers > 1 and not limits.gpu
    return apart and limits.workers**2 <= MAX_MOVES and fits_in_memory(limits, size)


def check_shuffle(method: str, cluster: bool) -> None:
    """Refuse a shuffle that was planned for a cluster but runs without one, or the
    other way round.
    """
    if cluster != on_cluster() and method != "tasks":
        was, is_ = (
            ("for a cluster", "without one")
            if cluster
            else ("without a cluster", "on one")
        )
        raise PlanningError(
            f"The join was planned {was}, and now runs {is_}. Its shuffle method "
            f"{method!r} does not work "
            "there. Call the function that made the result again, so that the join is "
            "planned anew."
        )


MIN_WORKER = 640 * 2**20
"""Minimum memory limit, in bytes, of a worker for a p2p shuffle.

A worker with 500 MB paused and never continued.
"""

READ_COPIES = 3.7
"""To read a partition and assign its rows to chunks takes this multiple of the memory
of its columns.
"""

BY_ORDER = Remedy({"partitioning": "entity"})
"""Remedy in errors: a join without a shuffle."""


def sent_rows(method: str | None, limits: Limits, row_bytes: float) -> int:
    """Return how many rows of a partition are shuffled at a time.

    `row_bytes`: bytes of one row of a chunk.
    """
    if method != "p2p" or limits.memory is None:
        return MAX_ROWS
    return max(
        1, min(MAX_ROWS, int(limits.memory / MOVED_SHARE / (row_bytes + ENTRY_BYTES)))
    )


PARTITION_SHARE = 8
"""A partition whose rows are shuffled may take 1 / PARTITION_SHARE of the memory."""


def check_moving(
    method: str | None, limits: Limits, tables: Sequence[TableSummary]
) -> None:
    """Refuse to shuffle tables between workers with too little memory.

    Dask pauses a worker at 80 % of its memory limit, and kills it at 95 %. A paused
    worker that has no data to spill never continues. A worker whose partitions are too
    large is killed again and again. In both cases the join never ends.
    """
    if method != "p2p" or limits.limit is None or limits.memory is None:
        return
    if limits.limit < MIN_WORKER:
        raise BudgetError(
            "Rows would be shuffled between workers of "
            f"{size_text(limits.limit)}. Each worker needs "
            f"at least {size_text(MIN_WORKER, limits.limit, up=True)}, mostly for loaded libraries. Use "
            "fewer, larger workers, "
            "or partitioning='entity', which does not shuffle.",
            remedies=[BY_ORDER],
        )
    max_bytes = limits.memory // PARTITION_SHARE
    for table in tables:
        rows, each = (
            max(summary.source_rows for summary in table.summaries),
            table.row_bytes,
        )
        if rows * each > max_bytes:
            raise BudgetError(
                "Rows would be shuffled from partitions of up to "
                f"{size_text(rows * each)} "
                f"({rows:,} rows of {each:.0f} bytes). A thread of the smallest worker "
                "has "
                f"{size_text(limits.memory)}, which is enough for partitions of "
                "at most "
                f"{size_text(max_bytes)}. There are three remedies. Use "
                "partitioning='entity', which does "
                "not shuffle. Or use workers with more memory or fewer threads. Or "
                "write files with row "
                f"groups of at most {int(max_bytes // each):,} rows, and read them "
                "with "
                "split_row_groups=True. ddf.repartition() still reads whole partitions "
                "first.",
                remedies=[BY_ORDER],
            )


def can_move(method: str, limits: Limits, tables: Sequence[TableSummary]) -> bool:
    """Return whether rows can be shuffled, without raising: see `check_moving`."""
    try:
        check_moving(method, limits, tables)
    except BudgetError:
        return False
    return True


INDEXED = 1.4
"""Size of a chunk with its index, divided by the size of its rows."""

PARCEL = 1.8
"""Size of shuffled rows with their regions and positions, divided by the size of the
rows alone.
"""

SHUFFLE_BYTE = 38.0
"""Extra nanoseconds that a thread needs to shuffle a byte of rows that do not fit in
memory.

It was measured with 117 million rows in two dimensions, which two workers with 700 MB
each shuffled in 133 to 148 s.
"""

PARQUET_BYTE = 3.2
"""Nanoseconds that a thread needs to write pairs as parquet, per byte that they take in
memory.
"""


@dataclass(frozen=True)
class Disk:
    """Expected bytes and seconds of disk traffic.

    All are 0 for GPUs, because no rates were measured there.
    """

    spilled: float = 0.0  # bytes of chunks that are written and read again
    spilling: float = 0.0  # seconds to write and read these chunks
    shuffled: float = 0.0  # bytes of shuffled rows
    shuffling: float = 0.0  # seconds to shuffle rows
    writing: float = 0.0  # seconds to write the pairs as parquet
    # lower bound of the bytes that are on the disks of all workers at the same time.
    # For the shuffle "disk": in the temporary folder of this process
    needed: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of disk traffic until all pairs are found, without the time to write
        the pairs.
        """
        return self.spilling + self.shuffling

    def with_spilled(self, row_bytes: float, limits: Limits) -> Disk:
        """Return the same traffic, but with spilled chunks whose rows have `row_bytes`
        bytes.
        """
        spilled = INDEXED * row_bytes
        return replace(
            self,
            spilled=spilled,
            spilling=NANO * CLUSTER_BYTE * spilled / limits.workers,
        )


NO_DISK = Disk()
"""No disk traffic."""


def expect_disk(
    chunks: JoinChunks,
    row_bytes: float,
    result: float,
    joins: int,
    limits: Limits,
) -> Disk:
    """Estimate the disk traffic of a join.

    `row_bytes`: bytes of a chunk's row.  `result`: bytes of all pairs.  `joins`: number
    of passes over the block pairs.
    """
    if limits.gpu:
        return NO_DISK
    away = 0.0  # fraction of a worker's chunks that is spilled
    if limits.limit is not None and limits.memory is not None:
        threads = limits.threads / limits.workers
        largest, rows = float(chunks.rows.max(initial=0.0)), float(chunks.rows.sum())
        itself = limits.limit - threads * limits.memory
        room = (
            memory_share("spill") * limits.limit
            - itself
            - threads * NEED * row_bytes * largest
        )
        # a worker has only a part of the block pairs, but these may need all chunks
        held = INDEXED * row_bytes * min(rows, chunks.visits[1] / limits.workers)
        away = 1 - min(max(room, 0.0) / max(held, 1.0), 1.0)
    spilled = joins * away * INDEXED * row_bytes * chunks.visits[1]
    shuffled = (
        away * PARCEL * row_bytes * float(chunks.rows.sum())
        if chunks.method == "p2p"
        else 0.0
    )
    return Disk(
        spilled,
        NANO * CLUSTER_BYTE * spilled / limits.workers,
        shuffled,
        NANO * SHUFFLE_BYTE * shuffled / limits.threads,
        NANO * PARQUET_BYTE * result / limits.threads,
    )


def bytes_needed(held: float, written: float, limits: Limits) -> float:
    """Return a lower bound of the bytes that are on the disks of all workers at the
    same time.

    `held`: bytes that all workers hold at the same time, in memory or spilled.
    `written`: bytes that are written to files in any case, even if they fit in memory.
    """
    if limits.limit is None or limits.gpu:
        return 0.0
    each = memory_share("pause") * limits.limit - ITSELF
    room = limits.workers * max(each, 0.0)
    return max(written, held - room, 0.0)


def needed_of_chunks(
    chunks: JoinChunks,
    blocks: np.ndarray,
    row_bytes: Sequence[float],
    again: bool,
    limits: Limits,
) -> float:
    """Return `bytes_needed` for block pairs that are joined in the order of `blocks`.

    `row_bytes`: bytes of one row of a chunk, for each table. `again`: whether a later
    step needs all chunks again, so that all must be kept.
    """
    if chunks.method is None and (limits.limit is None or limits.gpu):
        return 0.0
    each = np.concatenate(
        [side.rows * own for side, own in zip(chunks.sides, row_bytes, strict=False)]
    )
    held = INDEXED * (float(each.sum()) if again else held_at_once(blocks, each))
    sent = (
        float(each.sum() + ENTRY_BYTES * chunks.rows.sum())
        if chunks.method is not None
        else 0.0
    )
    # this process writes all rows to Dask's temporary folder
    if chunks.method == "disk":
        return sent
    if chunks.method == "p2p":
        return bytes_needed(held, sent, limits)
    return bytes_needed(max(held, sent), 0.0, limits)


def held_at_once(blocks: np.ndarray, sizes: np.ndarray) -> float:
    """Return the peak bytes of chunks that are needed at the same time if `blocks` are
    joined in this order.

    A chunk is needed from its first block pair to its last. `blocks` (n, 2): block
    pairs. `sizes` (chunks,): bytes of each chunk.
    """
    blocks = np.asarray(blocks, np.int64).reshape(-1, 2)
    number = len(blocks)
    first, last = np.full(len(sizes), number), np.full(len(sizes), -1)
    for side in blocks.T:
        np.minimum.at(first, side, np.arange(number))
        np.maximum.at(last, side, np.arange(number))
    used = last >= 0
    change = np.zeros(number + 1)
    np.add.at(change, first[used], sizes[used])
    np.add.at(change, last[used] + 1, -sizes[used])
    return float(np.cumsum(change).max(initial=0.0))


BY_TASKS = Remedy(config={"dataframe.shuffle.method": "tasks"})
"""Remedy in errors: a shuffle without files."""


@dataclass(frozen=True)
class WorkerDisk:
    """A disk that workers spill to."""

    host: str  # name of the machine
    directory: str  # folder of the first worker that writes to this disk
    workers: int  # number of workers that write to this disk
    free: int  # free bytes


def check_disks(needed: float, disks: Sequence[WorkerDisk]) -> None:
    """Refuse a join that needs more space than is free on the workers' disks.

    `needed`: bytes on all disks together.
    """
    workers = sum(disk.workers for disk in disks)
    for disk in disks:
        share = needed * disk.workers / workers
        if share > disk.free:
            many = f"{disk.workers} workers" if disk.workers > 1 else "a worker"
            raise BudgetError(
                f"At least {size_text(needed, disk.free)} do not fit in the memory of "
                f"{workers} workers, "
                f"and go to disk: {size_text(needed / workers, disk.free)} per worker. "
                "The disk of "
                f"{disk.directory!r} on {disk.host} has only {size_text(disk.free)} "
                f"free for {many}. "
                f"{LARGER_DISK}"
            )


def check_folder(needed: float, directory: str) -> None:
    """Refuse to shuffle rows through files in a folder with fewer than `needed` free
    bytes.
    """
    remedy = (
        "Set Dask's configuration temporary-directory to a writable folder with enough "
        "space, "
        f"or shuffle in memory: dask.config.set({BY_TASKS.config})."
    )
    try:
        with tempfile.TemporaryFile(dir=directory):
            free = shutil.disk_usage(directory).free
    except OSError as error:
        raise ScratchError(
            f"Rows would be shuffled through files in {directory!r}, which cannot be "
            f"written: {error}. "
            f"{remedy}",
            remedies=[BY_TASKS],
        ) from error
    if needed > free:
        raise ScratchError(
            f"Rows would be shuffled through files in {directory!r}, which take at "
            "least "
            f"{size_text(needed, free)}, but only {size_text(free)} are free "
            f"there. {remedy}",
            remedies=[BY_TASKS],
        )
