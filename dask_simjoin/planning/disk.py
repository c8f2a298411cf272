"""Disk space: what a join writes, and whether the workers' disks have room for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dask.utils import format_bytes

from dask_simjoin.errors import LARGER_DISK, BudgetError, Remedy, ScratchError
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.entity_chunks import JoinChunks
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.resources import MOVE_BYTES

NANO = 1e-9

SPILL_BYTE = 1.5
"""Nanoseconds of a worker to spill a byte of a chunk and to read it again."""

SPILL_FROM = 0.7
"""Share of its memory limit above which a Dask worker spills."""

INDEXED = 1.4
"""Bytes of a chunk with its index, in units of its rows' bytes."""

PAUSE_FROM = 0.8
"""A Dask worker pauses at this share of its memory limit."""

MIN_ITSELF = 200 * 2**20
"""Lower bound of the memory of a worker without data, in bytes."""

PARCEL = 1.8
"""Bytes of rows in a shuffle, with regions and positions, in units of the rows' bytes."""

SHUFFLE_BYTE = 38.0
"""Extra nanoseconds of a thread to shuffle a byte of rows that do not fit memory.

Measured with 117 million rows in two dimensions on two workers of 700 MB, which took 133 to 148 s."""

PARQUET_BYTE = 3.2
"""Nanoseconds of a thread to write a byte of pairs (in memory) as parquet."""


@dataclass(frozen=True)
class Disk:
    """Expected bytes and seconds of disk traffic; zero on GPUs, which were not measured.

    Attributes
    ----------
    spilled, shuffled : float
        Bytes of chunks that are written and read again, and bytes of shuffled rows.
    spilling, shuffling, writing : float
        Seconds to spill chunks, to shuffle rows, and to write the pairs as parquet.
    needed : float
        Lower bound of the bytes on the disks of all workers at a time.  Without workers: bytes that a shuffle
        writes to the temporary folder.
    """

    spilled: float = 0.0
    spilling: float = 0.0
    shuffled: float = 0.0
    shuffling: float = 0.0
    writing: float = 0.0
    needed: float = 0.0

    @property
    def seconds(self) -> float:
        """Seconds of disk traffic until pairs are found; writing the pairs is not counted."""
        return self.spilling + self.shuffling


def expect_disk(
    chunks: JoinChunks, row_bytes: float, result: float, joins: int, resources: Resources
) -> Disk:
    """Estimate disk traffic.

    `row_bytes`: bytes of a chunk's row.  `result`: bytes of all pairs.  `joins`: count of passes over block
    pairs.
    """
    if resources.gpu:
        return Disk()
    away = 0.0  # share of a worker's chunks that goes to disk
    if resources.limit is not None and resources.memory is not None:
        threads = resources.threads / resources.workers
        largest, rows = float(chunks.rows.max(initial=0.0)), float(chunks.rows.sum())
        itself = resources.limit - threads * resources.memory
        room = SPILL_FROM * resources.limit - itself - threads * NEED * row_bytes * largest
        # each worker has a share of the block pairs, which may contain all chunks
        held = INDEXED * row_bytes * min(rows, chunks.visits[1] / resources.workers)
        away = 1 - min(max(room, 0.0) / max(held, 1.0), 1.0)
    spilled = joins * away * INDEXED * row_bytes * chunks.visits[1]
    shuffled = away * PARCEL * row_bytes * float(chunks.rows.sum()) if chunks.method == "p2p" else 0.0
    return Disk(
        spilled,
        NANO * SPILL_BYTE * spilled / resources.workers,
        shuffled,
        NANO * SHUFFLE_BYTE * shuffled / resources.threads,
        NANO * PARQUET_BYTE * result / resources.threads,
    )


def bytes_needed(held: float, written: float, resources: Resources) -> float:
    """Return a lower bound of the bytes on the disks of all workers at a time.

    `held`: bytes that all workers hold at a time.  `written`: bytes that go through files in any case.
    """
    if resources.limit is None or resources.gpu:
        return 0.0
    room = resources.workers * max(PAUSE_FROM * resources.limit - MIN_ITSELF, 0.0)
    return max(written, held - room, 0.0)


def needed_of_chunks(chunks: JoinChunks, blocks: np.ndarray, row_bytes: Sequence[float], output: OutputSpec,
                     resources: Resources) -> float:  # fmt: skip
    """Return `bytes_needed` for block pairs in this order.

    `row_bytes`: for each table, the bytes of a chunk's row.
    """
    each = np.concatenate([side.rows * own for side, own in zip(chunks.sides, row_bytes, strict=False)])
    whole = output.joins > 1 or output.spanning  # a later step needs all chunks again
    held = INDEXED * (float(each.sum()) if whole else held_at_once(blocks, each))
    sent = float(each.sum() + MOVE_BYTES * chunks.rows.sum()) if chunks.method is not None else 0.0
    if chunks.method == "disk":  # this process writes to Dask's temporary folder
        return sent
    if chunks.method == "p2p":
        return bytes_needed(held, sent, resources)
    return bytes_needed(max(held, sent), 0.0, resources)


def held_at_once(blocks: np.ndarray, sizes: np.ndarray) -> float:
    """Return the peak bytes of chunks in memory if blocks (n, 2) are joined in their order.

    A chunk is in memory from its first block to its last one.
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


IN_MEMORY = Remedy(config={"dataframe.shuffle.method": "tasks"})
"""Remedy that shuffles rows without files."""


@dataclass(frozen=True)
class WorkerDisk:
    """A disk that workers spill to.

    Attributes
    ----------
    host, directory : str
        A machine, and the folder of its first worker.
    workers : int
        Number of workers that write to this disk.
    free : int
        Free bytes.
    """

    host: str
    directory: str
    workers: int
    free: int


def check_disks(needed: float, disks: Sequence[WorkerDisk]) -> None:
    """Refuse a join that needs more disk space than the workers' disks have; `needed`: bytes on all disks."""
    workers = sum(disk.workers for disk in disks)
    for disk in disks:
        share = needed * disk.workers / workers
        if share > disk.free:
            many = f"{disk.workers} workers" if disk.workers > 1 else "a worker"
            raise BudgetError(
                f"At least {format_bytes(int(needed))} do not fit in the memory of {workers} workers, "
                f"and go to disk: {format_bytes(int(needed / workers))} per worker. The disk of "
                f"{disk.directory!r} on {disk.host} has only {format_bytes(disk.free)} free for {many}. "
                f"{LARGER_DISK}"
            )


def check_folder(needed: float, directory: str) -> None:
    """Refuse to shuffle rows through a folder with too little space; `needed`: bytes."""
    remedy = (
        "Set Dask's configuration temporary-directory to a writable folder with enough space, "
        f"or shuffle in memory: dask.config.set({IN_MEMORY.config})."
    )
    try:
        with tempfile.TemporaryFile(dir=directory):
            free = shutil.disk_usage(directory).free
    except OSError as error:
        raise ScratchError(
            f"Rows would be shuffled through files in {directory!r}, which cannot be written: {error}. "
            f"{remedy}",
            remedies=[IN_MEMORY],
        ) from error
    if needed > free:
        raise ScratchError(
            f"Rows would be shuffled through files in {directory!r}, which take at least "
            f"{format_bytes(int(needed))}, but only {format_bytes(free)} are free there. {remedy}",
            remedies=[IN_MEMORY],
        )
