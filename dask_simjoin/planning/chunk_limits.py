"""Row limits of chunks, and the memory of a single chunk.

Chunks are at most a small share of a worker's memory, as several of them meet there, and wait for others.
One chunk meets none: what it needs is the largest of its own steps.  Threads share it; of workers that search
it together each has a copy, and a state of its own.

The numbers are what the arrays of each step take together, and tests measure that no step takes more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dask.utils import format_bytes

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.budget import MARGIN, Budget, Resources
from dask_simjoin.planning.checks import MAX_ROWS, TREE_SHARE, fits_task
from dask_simjoin.planning.entity_chunks import BY_WORKER, EntityChunks, ReplicatedChunks, entity_chunks
from dask_simjoin.planning.outputs import OutputSpec, least_rows
from dask_simjoin.planning.table import TableSummary

FILTER_DIMS = 8
"""Dimensions from which an index may have float32 numbers, for its filter, beside those that it is given."""

CUT_DIMS = 16
"""Dimensions, at most, by which rows are put in order."""

LISTED, CLOSE_DIMS = 16, 3
"""Nearest rows of a row that are remembered at most; dimensions up to which two bytes are enough for each."""

FEW = 5
"""Nearest rows that are sought up to which their totals are remembered, too: of all but one."""

ORDER_BYTES = 48
"""Of a row while rows are put in order, besides 4 for each dimension that is cut."""

ROUND_BYTES = 110
"""Of a row in rounds of a tree, and while its edges are put in order or made clusters of, index and nearest
rows besides: a state before and after a round, and edges twice."""

PART_BYTES = 24
"""Of a row, of each thread that does a part of a round."""

LABEL_BYTES = 16
"""Of a row's label, as the index of the frame has it, and of what says where the row is."""

APART = 1.2
"""How much more is taken than arrays have: what allocators keep of what was freed."""

SHARED_DIMS = 5
"""Dimensions from which what a round searches is worth being shared: in few, it is a tenth of the round."""

FEW_THREADS = 6
"""Threads up to which, where they share no rounds, one finds the tree sooner than all find those of several
chunks: these take 2.3 times the work, and half of the work on one chunk is searches, which all share."""

WORKING = 24 * 2**20
"""Bytes of each thread for what it works on, however many rows there are."""


def one_chunk_bytes(table: TableSummary, k: int, threads: int) -> float:
    """Bytes that one chunk of all rows of a table and its tree take at their peak, at most.

    `k`: nearest rows that are sought of each; `threads`: of this process, or of a worker, that share it.
    """
    dims, rows = len(table.every.lower), table.source_rows
    numbers = 8 * dims
    filtered = 4 * dims + 8 if dims >= FILTER_DIMS else 0
    index = numbers + filtered + dims + LABEL_BYTES + table.id_bytes
    listed = min(max(k - 1, FEW - 1), LISTED)
    known = 12 + (2 if dims <= CLOSE_DIMS else 4) * listed + 8 * (FEW - 1) * (k <= FEW)
    # what partitions are read to, the rows one after the other, and what libraries have not given back
    read = 2 * table.row_bytes + LABEL_BYTES + numbers
    making = read + max(index, ORDER_BYTES + 4 * min(dims, CUT_DIMS))
    searching = index + 2 * known  # parts are put together
    finding = index + known + ROUND_BYTES + PART_BYTES * threads
    return APART * rows * max(making, searching, finding) + WORKING * threads


class OneChunk(NamedTuple):
    """Say what one chunk of all rows takes with its spanning tree.

    Attributes
    ----------
    need : float
        Bytes at its peak, on each worker that has it.
    room : float or None
        Bytes that it may take of the smallest worker, or of this process; None: nothing tells.
    is_best : bool
        Whether it fits, and is worth it.
    """

    need: float
    room: float | None
    is_best: bool


def one_chunk_of_tree(table: TableSummary, output: OutputSpec, resources: Resources) -> OneChunk | None:
    """Weigh one chunk of all rows for a spanning tree; None: none is sought, or on GPUs."""
    if not output.spanning or resources.gpu:
        return None
    threads = max(1, -(-resources.threads // resources.workers))
    need, room = one_chunk_bytes(table, output.k or 1, threads), room_for_one(resources)
    shares = len(table.every.lower) >= SHARED_DIMS or resources.threads <= FEW_THREADS
    fits = room is not None and need <= room and table.source_rows <= MAX_ROWS
    return OneChunk(need, room, fits and shares)


def room_for_one(resources: Resources) -> float | None:
    """Bytes that one chunk may take of the smallest worker, or of this process; None: nothing tells."""
    each = resources.memory if resources.cluster else resources.shared
    if each is None or resources.gpu:
        return None
    return TREE_SHARE * each * (resources.together if resources.cluster else resources.threads)


def check_one(one: OneChunk, budget: Budget, resources: Resources) -> None:
    """Refuse one chunk of all rows that was asked for and does not fit a worker with its tree."""
    if resources.cluster and one.room is not None and one.need > one.room:
        raise BudgetError(
            f"One chunk of all rows ({budget.origin}) takes about {format_bytes(int(one.need))} with its "
            f"tree, and the smallest worker has {format_bytes(int(one.room))} for it. Leave blocksize= out, "
            "use a smaller one, or workers with more memory.",
            remedies=[Remedy({"blocksize": None})],
        )


CHUNKS_PER_THREAD = 4
"""Spatial chunks for each thread: their sizes differ, so more of them balance better."""

HELD_PER_THREAD = 2
"""The same for the shuffle by worker, where each chunk is one message per sending thread."""

LEAST_ROWS = 1 << 14
"""Rows of a chunk that are worth a task."""

UNEVEN = 1.5
"""How many times as many rows as it should have a chunk may have before a partition is cut."""


@dataclass(frozen=True)
class ChunkLimits:
    """What chunks must keep to.

    Attributes
    ----------
    output : OutputSpec
    budget : Budget
    resources : Resources
    shuffle : str
        How Dask would shuffle rows.
    one : OneChunk or None
        What one chunk of all rows takes with its spanning tree; None: no tree is sought on CPUs.
    """

    output: OutputSpec
    budget: Budget
    resources: Resources
    shuffle: str
    one: OneChunk | None = None

    def rows(self, table: TableSummary, row_bytes: float) -> tuple[int, int]:
        """Return the target and the maximum of rows per chunk."""
        most = int(min(max(self.budget.chunk // row_bytes, 1), MAX_ROWS))
        return most if self.budget.chosen else min(most, least_rows(len(table.every.lower))), most

    @property
    def numbers(self) -> list[int]:
        """Numbers of chunks of rows in their order that are worth comparing.

        One, whose queries are cut; one for each thread, which index them side by side; and few more than
        give each thread a block pair.
        """
        if self.budget.chosen:
            return [math.ceil(math.sqrt(2 * self.resources.threads))]
        return sorted({1, self.resources.threads, math.ceil(math.sqrt(2 * self.resources.threads))})

    def entity(self, table: TableSummary, sizes: tuple[int, int], row_bytes: float, norm: float,
               threshold: float, number: int) -> EntityChunks:  # fmt: skip
        """Make about `number` chunks of rows in their order.

        Where several chunks cost more than to compare their rows, one may be larger than others may.
        """
        least, most = sizes
        if self.budget.chosen:
            return entity_chunks(table.summaries, least, most, norm, threshold)
        rows = table.source_rows
        if self.one is not None:
            is_best = self.one.is_best
        else:
            is_best = self.output.connected and rows * row_bytes <= self.resources.whole and rows <= MAX_ROWS
        if number == 1 and is_best:
            whole = max(table.source_rows, 1)
            return entity_chunks(table.summaries, whole, whole, norm, threshold)
        together = clip(table.rows / number, min(LEAST_ROWS, most), most)
        return entity_chunks(
            table.summaries, together, min(most, math.ceil(UNEVEN * together)), norm, threshold
        )

    def replicated(self, table: TableSummary, norm: float, threshold: float) -> ReplicatedChunks | None:
        """Make one chunk of all rows.

        On GPUs that is chosen wherever it fits; None: it does not, or was not asked for.
        """
        asked, rows = table.spec.partitioning, table.source_rows
        if asked != "replicated" and not (asked == "auto" and self.resources.gpu):
            return None
        each, size = table.row_bytes, rows * table.row_bytes
        if size <= self.budget.chunk and rows <= MAX_ROWS:
            whole = max(rows, 1)
            return entity_chunks(table.summaries, whole, whole, norm, threshold, ReplicatedChunks)
        if asked == "replicated":
            larger = format_bytes(int(MARGIN * size))
            fits = rows <= MAX_ROWS and fits_task(MARGIN * size, self.resources)
            use = f"blocksize={larger!r}, or " if fits else ""
            raise BudgetError(
                f"partitioning='replicated' makes one chunk of all {rows:,} rows of {each:.0f} bytes, "
                f"{format_bytes(int(size))}, and a chunk may have {format_bytes(self.budget.chunk)} "
                f"({self.budget.origin}) and {MAX_ROWS:,} rows; use {use}partitioning='auto'.",
                remedies=[
                    *([Remedy({"blocksize": larger})] if fits else []),
                    Remedy({"partitioning": "auto"}),
                ],
            )
        return None

    def region_rows(self, rows: int, least: int, most: int) -> int:
        """Rows of a region, of so many in all."""
        each = HELD_PER_THREAD if self.shuffle == BY_WORKER else CHUNKS_PER_THREAD
        return clip(rows / (each * self.resources.threads), least, most)


def clip(rows: float, least: int, most: int) -> int:
    """Round a number of rows up, and keep it between two others."""
    return min(max(math.ceil(rows), least), most)
