"""Row limits of chunks, and the memory of a single chunk.

Usually several chunks are in memory at a time, so each may take only a small part of a
worker's memory. A single chunk of all rows may take more, because all threads of a
process share it. If several workers search it, each has a copy.

`one_chunk_bytes` counts the arrays of the step that needs the most memory. Tests check
that no step takes more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from dask_simjoin.errors import BudgetError, Remedy
from dask_simjoin.planning.checks import MAX_ROWS, TREE_SHARE, fits_task
from dask_simjoin.planning.entity_chunks import (
    BY_WORKER,
    EntityChunks,
    ReplicatedChunks,
    entity_chunks,
)
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec, min_chunk_rows
from dask_simjoin.planning.spatial_chunks import ClusterChunks
from dask_simjoin.planning.table import TableSummary
from dask_simjoin.request.messages import size_text
from dask_simjoin.sizes import (
    ENTRY_BYTES,
    MARGIN,
    MIN_PART,
    PARTS_PER_THREAD,
    ROW_BYTES,
)

FILTER_DIMS = 8
"""From this number of dimensions on, an index may also have float32 coordinates for its
filter.
"""

MIN_STORED = 5
"""At least this many nearest rows are stored per row while a spanning tree is made, each
in 4 bytes. If no more are needed, their totals are stored as well.
"""

MAX_STORED = 16
"""At most this many nearest rows are stored per row."""

PART_BYTES = 24
"""Bytes per row that each thread needs in a round that threads share.
"""

SHARED_DIMS = 5
"""From this number of dimensions on, threads share the search for edges in each round
of Boruvka's algorithm.

In fewer dimensions, the search takes only a tenth of a round, so sharing it would save
little.
"""

SEVERAL = 20
"""Several chunks take about this many times the work of one chunk.

For 8 million rows in 3 columns, one worker of 4 threads took 6.6 s with one chunk.
Eight such workers took 18 s with several.
"""

WORKING = 24 * 2**20
"""Bytes of working memory of each thread, for any number of rows."""


def one_chunk_bytes(table: TableSummary, k: int, threads: int) -> float:
    """Return an upper bound of the peak bytes of a single chunk of all rows and its
    spanning tree.

    `k`: number of neighbors per row.  `threads`: number of threads that make the tree.
    """
    dims, rows = len(table.every.lower), table.source_rows
    numbers = 8 * dims
    filtered = 4 * dims + 8 if dims >= FILTER_DIMS else 0
    index = numbers + filtered + dims + ENTRY_BYTES + table.id_bytes
    listed = min(max(k - 1, MIN_STORED), MAX_STORED)
    known = 12 + 4 * listed + 8 * MIN_STORED * (k - 1 <= MIN_STORED)
    # `read`: the partitions, their rows in one array, and memory that libraries do not
    # free at once
    read = 2 * table.row_bytes + ENTRY_BYTES + numbers
    # rows in kd order are sorted with a key for each dimension that is cut
    making = read + max(index, ROW_BYTES + 4 * dims)
    # twice `known`: nearest rows are found in parts, which are then concatenated
    searching = index + 2 * known
    # the state of a round of Boruvka's algorithm and its edges, and a second copy of
    # both if threads share the rounds
    shared = ROW_BYTES + PART_BYTES * threads if dims >= SHARED_DIMS else 0
    finding = index + known + ROW_BYTES + shared
    return MARGIN * rows * max(making, searching, finding) + WORKING * threads


DEVICE_ROOM = 0.75
"""A chunk of all rows may take this fraction of a GPU's memory.

The rest is for the frame that the rows come from.
"""


def device_index_bytes(points: float) -> float:
    """Return the bytes per row while a chunk is indexed on a GPU. `points`: bytes of a
    row.
    """
    # the rows as they are read and in index order, what the filter compares, and either
    # 24 bytes to sort a row or its position
    return 2.5 * points + 24


def device_chunk_bytes(points: float, results: float) -> float:
    """Return the peak bytes per row of a single chunk of all rows on a GPU.

    `points`, `results`: bytes of a row without results, and of its results.
    """
    joining = 1.5 * points + 8 + results
    # the free parts of a pool are not contiguous
    return MARGIN * max(device_index_bytes(points), joining)


class OneChunk(NamedTuple):
    """The memory that a single chunk of all rows needs, with its spanning tree."""

    need: float  # peak memory in bytes on each worker that has the chunk
    # bytes that the chunk may take on the smallest worker or in this process; None:
    # unknown
    room: float | None
    is_best: bool  # whether the chunk fits and is faster than several chunks


def one_chunk_of_tree(
    table: TableSummary, output: OutputSpec, limits: Limits
) -> OneChunk | None:
    """Return the memory of a single chunk with its spanning tree.

    None: no tree is made, or it is made on GPUs.
    """
    if not output.spanning or limits.gpu:
        return None
    need = one_chunk_bytes(table, output.k or 1, limits.for_tree)
    room = room_for_one(limits)
    fits = room is not None and need <= room and table.source_rows <= MAX_ROWS
    few = not limits.cluster or limits.threads <= SEVERAL * limits.for_tree
    return OneChunk(need, room, fits and few)


def room_for_one(limits: Limits) -> float | None:
    """Return the bytes that a single chunk may take on the smallest worker, or in this
    process.

    None: unknown.
    """
    each = limits.memory if limits.cluster else limits.shared
    if each is None or limits.gpu:
        return None
    return TREE_SHARE * each * (limits.together if limits.cluster else limits.threads)


def check_one(one: OneChunk, limits: Limits) -> None:
    """Refuse a single chunk of all rows if it does not fit in a worker's memory with its
    tree.
    """
    remedies, advice = [], "Use a smaller blocksize=, or workers with more memory."
    if limits.chosen:
        remedies = [Remedy({"blocksize": None})]
        advice = (
            "Leave out blocksize=, use a smaller blocksize=, or use workers with more "
            "memory."
        )
    if limits.cluster and one.room is not None and one.need > one.room:
        raise BudgetError(
            f"One chunk of all rows ({limits.origin}) takes about "
            f"{size_text(one.need, one.room)} with its "
            f"tree, and the smallest worker has {size_text(one.room)} for it. {advice}",
            remedies=remedies,
        )


ONE_PER_WORKER = BY_WORKER, "p2p"
"""With these shuffles, each worker makes one chunk, unless it would be too large."""

EVEN = 1.1
"""If each worker makes one chunk, a region may have this many times the target size.

Sizes of regions are estimated from a sample. Without this factor, a region that seems
slightly too large would be halved. With two threads, 8 million rows were cut into three
regions of 2 million rows and two of 1 million.
"""


@dataclass(frozen=True)
class ChunkLimits:
    """Limits on the sizes of chunks; methods make chunks within these limits."""

    output: OutputSpec
    limits: Limits
    # memory of a single chunk of all rows with its spanning tree; None: no tree is made
    # on CPUs
    one: OneChunk | None = None
    tables: int = 1  # number of tables

    def rows(self, table: TableSummary, row_bytes: float) -> tuple[int, int]:
        """Return the target number of rows per chunk, and the largest allowed number."""
        max_rows = int(min(max(self.limits.chunk // row_bytes, 1), MAX_ROWS))
        target = (
            max_rows
            if self.limits.chosen
            else min(max_rows, min_chunk_rows(len(table.every.lower)))
        )
        return target, max_rows

    @property
    def one_process(self) -> bool:
        """Whether threads of this process do all work on CPUs, in chunks that the user
        does not limit.
        """
        limits = self.limits
        on_threads = limits.shared is not None and not limits.cluster
        return on_threads and not limits.gpu and not limits.chosen

    @property
    def numbers(self) -> list[int]:
        """Numbers of entity chunks, ascending. The plan compares their costs.

        With one chunk, threads share its queries.  With one chunk per thread, chunks
        are indexed in parallel. The third number gives each thread about one block
        pair.
        """
        if self.limits.chosen:
            return [math.ceil(math.sqrt(2 * self.limits.threads))]
        return sorted(
            {
                1,
                self.limits.threads,
                math.ceil(math.sqrt(2 * self.limits.threads)),
            }
        )

    def entity(
        self,
        table: TableSummary,
        sizes: tuple[int, int],
        row_bytes: float,
        norm: float,
        threshold: float,
        number: int,
    ) -> EntityChunks:
        """Make about `number` chunks of rows in the order of the frame.

        A single chunk may be larger than the usual limit if it is faster than several
        chunks.
        """
        target, max_rows = sizes
        if self.limits.chosen:
            return entity_chunks(table.summaries, target, max_rows, norm, threshold)
        rows = table.source_rows
        if self.one is not None:
            is_best = self.one.is_best
        elif self.limits.gpu:
            is_best = self._fits_on_gpu(table, row_bytes)
        else:
            is_best = (
                self._whole_bytes(table, row_bytes) <= self.limits.whole
                and rows <= MAX_ROWS
            )
        if number == 1 and is_best:
            whole = max(table.source_rows, 1)
            return entity_chunks(table.summaries, whole, whole, norm, threshold)
        target = clip(table.rows / number, min(MIN_PART, max_rows), max_rows)
        uneven = min(max_rows, math.ceil(MARGIN * target))
        return entity_chunks(table.summaries, target, uneven, norm, threshold)

    def _fits_on_gpu(self, table: TableSummary, row_bytes: float) -> bool:
        """Return whether a single chunk of all rows fits on a GPU, with its results."""
        rows, output = table.source_rows, self.output
        if output.materialise:  # pairs take most of the memory
            return rows * row_bytes <= self.limits.whole and rows <= MAX_ROWS
        found = output.found_bytes(table.rows) if self.tables == 1 else 0
        # a nearest-neighbor search may have a chunk of each of two tables
        tables = 2 if output.k is not None else self.tables
        need = tables * rows * device_chunk_bytes(row_bytes - found, found)
        return need <= DEVICE_ROOM * (self.limits.memory or 0) and rows <= MAX_ROWS

    def _whole_bytes(self, table: TableSummary, row_bytes: float) -> float:
        """Return the bytes of a single chunk of all rows; infinity if several chunks
        are faster.

        One chunk is faster for most verbs: rows of several chunks are not sorted
        together, and each chunk is searched. But the verbs that collect pairs of rows
        in matrices compare two chunks in a single task.
        """
        output = self.output
        if output.single_home and not (output.connected or output.k is not None):
            return math.inf
        # tasks that count return a number for each row and distance
        counted = output.by_row and not output.connected
        row_bytes += (
            8.0 * counted * self.limits.threads * max(1, len(table.spec.thresholds))
        )
        # a nearest-neighbor search may have a chunk of each of two tables
        tables = 2 if output.k is not None else self.tables
        return tables * table.source_rows * row_bytes

    def replicated(
        self, table: TableSummary, each: float, norm: float, threshold: float
    ) -> ReplicatedChunks | None:
        """Make one chunk of all rows if this was requested, or if it is the default and
        fits on a GPU.

        Otherwise return None.  `each`: bytes of a row of the chunk.
        """
        request, rows = table.spec.chunks.partitioning, table.source_rows
        if request != "replicated" and not (request == "auto" and self.limits.gpu):
            return None
        size = rows * each
        chunk = self.limits.chunk
        if self.limits.gpu and not self.limits.chosen:
            chunk = max(chunk, self.limits.whole)
        if size <= chunk and rows <= MAX_ROWS:
            whole = max(rows, 1)
            return entity_chunks(
                table.summaries, whole, whole, norm, threshold, ReplicatedChunks
            )
        if request == "replicated":
            larger = size_text(MARGIN * size, up=True)
            fits = rows <= MAX_ROWS and fits_task(MARGIN * size, self.limits)
            use = f"blocksize={larger!r}, or " if fits else ""
            remedies = [Remedy({"blocksize": larger})] if fits else []
            raise BudgetError(
                f"partitioning='replicated' makes one chunk of all {rows:,} rows of "
                f"{each:.0f} bytes, "
                f"{size_text(size, chunk)}. A chunk may have {size_text(chunk)} "
                f"({self.limits.origin}) and {MAX_ROWS:,} rows; use "
                f"{use}partitioning='auto'.",
                remedies=[*remedies, Remedy({"partitioning": "auto"})],
            )
        return None

    @property
    def makes_cluster_chunks(self) -> bool:
        """Whether chunks may have halos on all sides, and be labeled alone."""
        limits = self.limits
        each = limits.shuffle in ONE_PER_WORKER and not limits.gpu
        return self.output.halo > 0 and each

    def fits_halos(self, chunks: ClusterChunks, max_rows: int) -> bool:
        """Return whether chunks with halos on all sides fit in memory. One task also
        receives the rows that several chunks share.
        """
        # the factor 2 is the same as for other chunks with halos
        fits = chunks.rows.max(initial=0.0) <= 2 * max_rows
        room = math.inf if self.limits.room is None else self.limits.room
        # about as many core rows are in several chunks as are in halos
        return bool(fits and ROW_BYTES * chunks.halo_rows.sum() <= room)

    def region_rows(self, rows: int, min_rows: int, max_rows: int) -> int:
        """Return the target number of rows of a region; `rows`: number of rows of all
        regions.
        """
        if self.limits.shuffle in ONE_PER_WORKER:
            # each worker sends one message per chunk
            most = max(1, math.floor(max_rows / EVEN))
            return clip(rows / self.limits.workers, min(min_rows, most), most)
        return clip(rows / (PARTS_PER_THREAD * self.limits.threads), min_rows, max_rows)


def clip(rows: float, min_rows: int, max_rows: int) -> int:
    """Round a number of rows up, and clip it to a range."""
    return min(max(math.ceil(rows), min_rows), max_rows)
