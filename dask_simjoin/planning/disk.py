"""What a join sends through the disk: chunks that memory has no room for, and the pairs that are written."""

from __future__ import annotations

from dataclasses import dataclass

from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.chunking.base import JoinChunks

SPILL_BYTE = 1.5
"""Nanoseconds of a worker to write a byte of a chunk to the disk, and to read it again later."""

SPILL_FROM = 0.7
"""Share of its limit from which on a worker of Dask spills."""

INDEXED = 1.4
"""Bytes of a chunk with its index, in units of those of its rows."""

PARQUET_BYTE = 3.2
"""Nanoseconds of a thread to write a byte of pairs, as memory has them, as parquet."""


@dataclass(frozen=True)
class Disk:
    """What goes through the disk, expected.

    Attributes
    ----------
    spilled : float
        Bytes of chunks that are written and read again, in all.
    spilling, writing : float
        Seconds that it takes to do so, and to write the pairs as parquet; of GPUs 0, which were not measured.
    """

    spilled: float = 0.0
    spilling: float = 0.0
    writing: float = 0.0


def expect_disk(chunks: JoinChunks, row_bytes: float, result: float, joins: int, have: Resources) -> Disk:
    """Expect what goes through the disk.

    `row_bytes`: of a chunk's row; `result`: of all pairs; `joins`: how often block pairs are gone through.
    """
    if have.gpu:
        return Disk()
    spilled = joins * _spilled(chunks, INDEXED * row_bytes, NEED * row_bytes, have)
    nano = 1e-9
    return Disk(
        spilled, nano * SPILL_BYTE * spilled / have.workers, nano * PARQUET_BYTE * result / have.threads
    )


def _spilled(chunks: JoinChunks, held_bytes: float, task_bytes: float, have: Resources) -> float:
    """Bytes that workers write because they have no room for all chunks that they join.

    `held_bytes`, `task_bytes`: of a row as workers keep it, and while a task joins it.
    """
    if have.limit is None or have.memory is None:
        return 0.0
    threads = have.threads / have.workers
    largest, rows = float(chunks.rows.max(initial=0.0)), float(chunks.rows.sum())
    itself = have.limit - threads * have.memory
    room = SPILL_FROM * have.limit - itself - threads * task_bytes * largest
    visited = chunks.visits[1]
    # each worker has its share of block pairs: of many, about all chunks are in some
    held = held_bytes * min(rows, visited / have.workers)
    return (1 - min(max(room, 0.0) / max(held, 1.0), 1.0)) * held_bytes * visited
