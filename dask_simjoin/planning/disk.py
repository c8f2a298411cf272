"""What a join sends through the disk: chunks and rows without room in memory, and pairs that are written."""

from __future__ import annotations

from dataclasses import dataclass

from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.checks import NEED
from dask_simjoin.planning.chunking.base import JoinChunks

NANO = 1e-9

SPILL_BYTE = 1.5
"""Nanoseconds of a worker to write a byte of a chunk to the disk, and to read it again later."""

SPILL_FROM = 0.7
"""Share of its limit from which on a worker of Dask spills."""

INDEXED = 1.4
"""Bytes of a chunk with its index, in units of those of its rows."""

PARCEL = 1.8
"""Bytes of rows on their way to chunks, with their regions and places, in units of those of the rows."""

SHUFFLE_BYTE = 38.0
"""Nanoseconds of a thread more, where workers have no room for them, to shuffle a byte of such rows.

Of 117 million rows in two dimensions that went through two workers of 700 MB in 133 to 148 s."""

PARQUET_BYTE = 3.2
"""Nanoseconds of a thread to write a byte of pairs, as memory has them, as parquet."""


@dataclass(frozen=True)
class Disk:
    """What goes through the disk, expected; of GPUs nothing, which were not measured.

    Attributes
    ----------
    spilled, shuffled : float
        Bytes of chunks that are written and read again, in all, and of rows on their way to chunks.
    spilling, shuffling, writing : float
        Seconds that these take, and those to write the pairs as parquet.
    """

    spilled: float = 0.0
    spilling: float = 0.0
    shuffled: float = 0.0
    shuffling: float = 0.0
    writing: float = 0.0

    @property
    def seconds(self) -> float:
        """What it takes until pairs are found: nothing of them is written before they are asked for."""
        return self.spilling + self.shuffling


def expect_disk(chunks: JoinChunks, row_bytes: float, result: float, joins: int, have: Resources) -> Disk:
    """Expect what goes through the disk.

    `row_bytes`: of a chunk's row; `result`: of all pairs; `joins`: how often block pairs are gone through.
    """
    if have.gpu:
        return Disk()
    away = _away(chunks, row_bytes, have)
    spilled = joins * away * INDEXED * row_bytes * chunks.visits[1]
    shuffled = away * PARCEL * row_bytes * float(chunks.rows.sum()) if chunks.method == "p2p" else 0.0
    return Disk(
        spilled,
        NANO * SPILL_BYTE * spilled / have.workers,
        shuffled,
        NANO * SHUFFLE_BYTE * shuffled / have.threads,
        NANO * PARQUET_BYTE * result / have.threads,
    )


def _away(chunks: JoinChunks, row_bytes: float, have: Resources) -> float:
    """The share of chunks that a worker joins and has no room for."""
    if have.limit is None or have.memory is None:
        return 0.0
    threads = have.threads / have.workers
    largest, rows = float(chunks.rows.max(initial=0.0)), float(chunks.rows.sum())
    itself = have.limit - threads * have.memory
    room = SPILL_FROM * have.limit - itself - threads * NEED * row_bytes * largest
    # each worker has its share of block pairs: of many, about all chunks are in some
    held = INDEXED * row_bytes * min(rows, chunks.visits[1] / have.workers)
    return 1 - min(max(room, 0.0) / max(held, 1.0), 1.0)
