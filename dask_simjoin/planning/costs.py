"""Cost model: expected time of the steps of a join, in seconds, for each way to run it.

Rates were measured on one core of an AMD EPYC with AVX-512, and on one H200. Choices
depend only on their ratios, so they also suit other machines. ``python -m benchmarks
dask.choices`` compares the expected seconds with the measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dask_simjoin.planning.entity_chunks import (
    BY_WORKER,
    JoinChunks,
    Sources,
    is_shuffled,
)
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.outputs import OutputSpec, making_tasks, parcels
from dask_simjoin.sizes import (
    HELD_SHARE,
    NANO,
    NUMBER_BYTES,
    PARTS_PER_THREAD,
    SAMPLED,
)


@dataclass(frozen=True)
class Rates:
    """Nanoseconds that a thread or a GPU needs for each step of a join."""

    # to summarize a row, read it again and put it into its chunk: per row, and in
    # addition per number in the row
    read: float
    read_number: float
    # to index a row: per row, and in addition per number in the row
    build: float
    build_number: float
    visit: float  # to find the cells or tiles near a row, without comparing points
    # to find the tiles near a row, nearest first, in a search for its nearest rows: per
    # row, and in addition per dimension
    search: float
    search_number: float
    # to compare two points: per pair of points, and in addition per dimension
    compare: float
    compare_number: float
    # to decide and write a pair: per pair, and in addition per dimension from the third
    # on
    pair: float
    pair_number: float
    # to send a row to another chunk and sort it there: per row, and in addition per
    # number in the row
    shuffle: float
    shuffle_number: float
    task: float  # to run a task with the threaded scheduler

    def faster(self, factor: float) -> Rates:
        """Return the rates of a machine that is faster by this factor. Tasks take as
        long.
        """
        steps = {name: value / factor for name, value in vars(self).items()}
        return Rates(**steps | {"task": self.task})


TILES = Rates(4, 4, 150, 7, 60, 0, 100, 0.03, 0.0025, 10, 0, 30, 12, 1.5e5)
SWEEP = replace(
    TILES, build=14, build_number=3, visit=25, compare=0, compare_number=0, pair=3
)
DEVICE = Rates(
    0.1, 0.05, 0.5, 0.08, 0.3, 12, 0, 1e-4, 3.3e-6, 0.01, 0.01, 2, 0.4, 2.5e5
)

CALL, CALL_ROW = 6e-3, 30.0
"""Seconds of a join of a few plain rows: to check the options, to plan, to start
threads and to make the result. And nanoseconds of a single thread for each row: to
check ids, and to draw and join a sample.
"""

RESULT_BYTE = 1.2
"""Nanoseconds to write a byte of the result, beyond the two row numbers of a pair."""

DEVICE_CALL, DEVICE_GRAPH = 0.008, 0.04
"""Seconds of a join of a few rows on a GPU: of a plain frame, and by Dask."""

SWEPT_DIMS = 2
"""`SWEEP` was measured in this many dimensions.

Each further dimension triples the number of grid rows to visit.
"""

PRUNED_DIMS = 12
"""In fewer dimensions than this, boxes of tiles exclude some pairs, so fewer are
compared.
"""

CLUSTER_TASK = 1.2e6
"""Nanoseconds per task on a cluster."""

PICK_SHARE = 0.4
"""Time of a task that only picks a parcel, divided by `CLUSTER_TASK`."""

SPILLED_BYTE = 0.35
"""Nanoseconds to move a byte from a GPU to the host or back; assumed, not measured."""

CLUSTER_BYTE, DEVICE_BYTE = 1.5, 0.03
"""Nanoseconds to move a byte between processes, and between GPUs."""

SHUFFLE_FACTOR = {BY_WORKER: 1.4, "tasks": 5.0, "disk": 10.0, "p2p": 10.0}
"""Shuffle method -> its cost, divided by the cost of moving rows within the memory of
one process.
"""

THREADS_FACTOR = {"tasks": 1.0}
"""Replaces values of `SHUFFLE_FACTOR` if there is no cluster, because threads share
memory.
"""

SEARCH_COMPARED = 3.0
"""Cost of a comparison in a neighbor search, divided by the cost `compare`."""

MIN_PIECE, MIN_CLUSTER_PIECE, MIN_DEVICE_PIECE = 0.02, 0.05, 0.01
"""Seconds of the smallest piece of work that is worth a task: on threads, on a cluster,
and on a GPU.
"""

MIN_ROW_PIECE = 0.004
"""Seconds; replaces `MIN_PIECE` if each piece returns a number for each row of a chunk.
"""

MAX_DEVICE_PIECE = 0.15
"""Seconds of the largest piece with several GPUs.

Longer kernels would delay transfers, which wait for their end.
"""

ROW_OF_PIECE = 48.0
"""Nanoseconds per row that a piece of work takes at least, if it returns a number for
each row. To allocate and merge the numbers takes a quarter of this time.

Nevertheless, there are at least as many pieces as threads."""

EMBED_NUMBER = 15.0
"""Nanoseconds to compute a coordinate if the metric converts columns, as haversine
does.
"""

SPLIT = 0.5
"""Extra comparisons of rows from different chunks, as a fraction.

Rows are sorted only within their chunks.
"""

TOGETHER = 0.85
"""Fraction of the work that threads of one process do at the same time. For the rest,
they wait: for the memory, which they share, and for steps of a single thread.
"""

LISTED_PAIR = 100.0
"""Nanoseconds to list a sampled pair during planning, and to find its block pair."""

PLANNING, LAZY_PLANNING = 2e-3, 3e-3
"""Seconds to plan a join of a few rows: of plain frames, and of Dask DataFrames."""


def _share(threads: int) -> float:
    """Return the time that threads of one process need for some work, divided by the
    time of one thread.
    """
    return TOGETHER / threads + 1 - TOGETHER


@dataclass(eq=False)
class Costs:
    """Expected seconds of the steps of a join on given limits."""

    method: str  # how chunks are indexed
    dims: int
    # fraction of all pairs of points whose tiles are near: in one chunk of all points,
    # and in chunks of a quarter of the points. The second fraction is larger, because
    # tiles of sparser points are larger
    near: tuple[float, float]
    rows: float  # number of points of all tables
    output: OutputSpec
    limits: Limits
    swept: int = SWEPT_DIMS  # number of dimensions that a sweep visits
    row_bytes: float = 0.0  # memory of one row of a chunk, in bytes
    sources: tuple[Sources, ...] = ()
    # speed of the GPU, divided by the speed of the GPU that `DEVICE` was measured on
    speed: float = 1.0
    read: float = field(init=False)  # seconds that a thread needs to read a row
    build: float = field(init=False)  # seconds to index a row
    visit: float = field(init=False)  # seconds to find the cells or tiles near a row
    # seconds to compare two points of near tiles, on average
    compare: float = field(init=False)
    pair: float = field(init=False)  # seconds to find a pair
    shuffle: float = field(init=False)  # seconds to send a row
    task: float = field(init=False)  # seconds of the scheduler for one task
    # shuffle method -> its cost, in units of `shuffle`
    factors: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        searched, dims = self.output.k is not None, self.dims
        rates = SWEEP if self.method == "sweep" and not searched else TILES
        if self.limits.gpu:
            rates = DEVICE.faster(self.speed)
        more = 3.0 ** (self.swept - SWEPT_DIMS) if rates is SWEEP else 1.0
        visit = rates.visit * max(more, 1 / 3)
        if searched:
            visit = rates.search + rates.search_number * dims
        self.visit = NANO * visit
        self.read = NANO * (rates.read + rates.read_number * dims)
        self.build = NANO * (rates.build + rates.build_number * dims)
        self.shuffle = NANO * (rates.shuffle + rates.shuffle_number * dims)
        # fewer comparisons in few dimensions, because boxes exclude some points of near
        # tiles
        self.compare = (
            NANO
            * (rates.compare + rates.compare_number * dims)
            * min(1.0, dims / PRUNED_DIMS)
        )
        self.pair = NANO * (rates.pair + rates.pair_number * max(dims - 2, 0))
        self.factors = (
            SHUFFLE_FACTOR if self.limits.cluster else SHUFFLE_FACTOR | THREADS_FACTOR
        )
        self.task = NANO * (CLUSTER_TASK if self.limits.cluster else rates.task)

    def blocks(
        self, chunks: JoinChunks, blocks: np.ndarray, pairs: np.ndarray
    ) -> np.ndarray:
        """Return the time that one thread needs to join each block pair once, in
        seconds (block pairs,).

        `pairs`: expected number of pairs of each block pair.
        """
        rows, (i, j) = chunks.rows, blocks.T
        visited = rows[i] + np.where(i == j, 0.0, rows[j])
        candidates = chunks.candidates(blocks)
        whole = self.near[0] * self.rows**2 / 2
        met = candidates * min(1.0, whole / max(float(candidates.sum()), 1.0))
        found: np.ndarray = self.pair * pairs
        return found + self.visit * visited + self.compare * met

    def planning(self, lazy: bool, embeds: bool) -> float:
        """Return the seconds to read all rows once for the plan, without the estimate
        of pairs.

        `lazy`: whether the tables are Dask DataFrames.  `embeds`: whether the metric
        maps the columns to other coordinates.
        """
        fixed = LAZY_PLANNING if lazy else PLANNING
        return fixed + self.rows * (
            self.read + NANO * EMBED_NUMBER * self.dims * embeds
        )

    def counts(
        self,
        rows: Sequence[float],
        sampled: Sequence[float],
        pairs: float,
        listed: bool,
        planning: float,
    ) -> bool:
        """Return whether counting all pairs takes no longer than planning with an
        estimate from a sample.

        `rows`, `sampled`: number of points of each table, and of its sample. `pairs`:
        expected number of pairs. `listed`: whether pairs must be listed to count them.
        `planning`: seconds of the other steps of planning.
        """
        pair = NANO * LISTED_PAIR if listed else self.pair
        sampled_pairs = pairs * sampled[0] * sampled[-1] / max(rows[0] * rows[-1], 1.0)
        estimated = self._indexed_and_met(sampled) + NANO * LISTED_PAIR * sampled_pairs
        return self._indexed_and_met(rows) + pair * pairs <= planning + estimated

    def _indexed_and_met(self, rows: Sequence[float]) -> float:
        """Return the seconds that a thread needs to index the tables' points, and to
        compare points of near tiles.

        `rows`: number of points of each table.
        """
        candidates = rows[0] ** 2 / 2 if len(rows) == 1 else rows[0] * rows[1]
        met = min(candidates, self.near[0] * sum(rows) ** 2 / 2)
        return (self.build + self.visit) * sum(rows) + self.compare * met

    def in_one_process(
        self, rows: Sequence[float], pairs: float, here: Limits
    ) -> float:
        """Return the expected seconds of this join without a cluster, with one chunk of
        all rows.

        `rows`: number of points of each table. `pairs`: expected number of pairs.
        `here`: the limits of this process.
        """
        local = replace(self, limits=here)
        if self.output.k is None:
            work = local._indexed_and_met(rows) + local.pair * pairs
        else:
            ends = np.array([[rows[0]], [rows[-1]]])
            work = local.build * sum(rows) + float(local.searches(*ends).sum())
        return local.expected(0.0, np.array([work]), pairs)

    def searches(self, rows: np.ndarray, met: np.ndarray) -> np.ndarray:
        """Return the seconds of each chunk's searches (chunks,).

        `rows`: number of queries in each chunk. `met`: number of data rows that they
        are compared with.
        """
        compared: np.ndarray = (
            SEARCH_COMPARED * self.compare * self.near[0] * rows * met
        )
        return self.visit * rows + compared

    def made(self, chunks: JoinChunks) -> float:
        """Return the seconds until all chunks are indexed and are on the workers that
        need them.
        """
        threads, rows = self.limits.threads, chunks.rows
        largest, whole = float(rows.max(initial=0.0)), float(rows.sum())
        # if threads share one chunk, a part of its indexing is not parallel; each
        # thread with its own chunk is faster
        is_shared = chunks.method in (None, BY_WORKER)
        helpers = self.limits.for_each(len(chunks)) if is_shared else 1
        alone = largest * _share(helpers)
        seconds = max(whole / threads, alone) * self.build
        if chunks.method is not None:
            seconds += self.factors[
                chunks.method
            ] / threads * whole * self.shuffle + self._spilled(whole)
        tasks = float(making_tasks(chunks, self.sources, self.limits.cluster))
        tasks += self.output.joins * chunks.visits[0]
        if chunks.method == BY_WORKER:
            for side, own in zip(chunks.sides, self.sources, strict=True):
                tasks -= (1 - PICK_SHARE) * parcels(len(own), len(side))
        return seconds + tasks * self.task + self._moved(chunks)

    def _spilled(self, rows: float) -> float:
        """Return the seconds to move shuffled rows to the host and back, if they do not
        fit on the GPUs.
        """
        if not self.limits.gpu or self.limits.memory is None:
            return 0.0
        room = HELD_SHARE * self.limits.memory * self.limits.threads
        return (
            2
            * NANO
            * SPILLED_BYTE
            * max(rows * self.row_bytes - room, 0.0)
            / self.limits.workers
        )

    def _moved(self, chunks: JoinChunks) -> float:
        """Return the seconds to move chunks between workers. Threads of one worker
        share its chunks.
        """
        if not self.limits.cluster or self.limits.workers < 2:
            return 0.0
        byte = NANO * (DEVICE_BYTE if self.limits.gpu else CLUSTER_BYTE)
        apart = 1 - 1 / self.limits.workers
        # partitions are sent to the tasks that make chunks of them
        is_gathered = not self.limits.gpu and chunks.method is None
        gathered = 8 * self.dims * self.rows * apart if is_gathered else 0.0
        gathered *= byte / min(max(len(chunks), 1), self.limits.workers)
        rows = float(chunks.rows.sum())
        # without comparisons of a chunk with itself, because these move nothing
        visited = chunks.visits[1] - rows
        most = rows * (self.limits.workers - 1)
        # workers share the queries of a chunk, so each needs all chunks
        if len(chunks) < self.limits.workers:
            visited = most
        # a worker sends or receives each chunk once, if it can keep all chunks;
        # otherwise it reads chunks from its disk, or receives them again
        moved = min(visited * apart, most) if self._keeps(rows) else visited
        return gathered + moved * self.row_bytes * byte / self.limits.workers

    def _keeps(self, rows: float) -> bool:
        """Return whether the memory of each worker holds this number of rows."""
        limit = self.limits.limit
        if self.limits.gpu or limit is None:
            return True
        return rows * self.row_bytes <= HELD_SHARE * limit

    def copies(self, chunks: JoinChunks, parts: int) -> int:
        """Return how many GPUs index the same chunk, each its own copy.

        It is 1 unless there is one chunk for all GPUs.

        The rows are sent to each GPU, not the index. The index is larger, and sending
        it would wait for the kernels of its GPU. `parts`: number of pieces of the
        largest block pair.
        """
        alone = chunks.method is None and all(len(side) == 1 for side in chunks.sides)
        are_gpus = self.limits.gpu and self.limits.cluster
        return min(self.limits.workers, parts) if alone and are_gpus else 1

    def shuffled(self, method: str) -> float:
        """Return a lower bound of the result of `choosing` for chunks that are made by
        a shuffle.
        """
        each = self.build + self.output.joins * self.visit
        partitions = sum(map(len, self.sources))
        shuffle = self.factors[method] * self.shuffle
        return (
            self.rows * (each + shuffle) / self.limits.threads + partitions * self.task
        )

    def choosing(self, chunks: JoinChunks) -> float:
        """Return the seconds of all steps whose cost depends on how rows are cut into
        chunks.
        """
        more = 0.0
        if chunks.method is None and len(chunks):
            # each of several entity chunks covers all of space, so its points are less
            # dense. Tiles are then larger, so more points are compared
            rows = float(chunks.rows.sum())
            number = rows**2 / max(float((chunks.rows**2).sum()), 1.0)
            whole, quarter = (max(near, 1e-9) for near in self.near)
            larger = (quarter / whole) ** (math.log(max(number, 1.0)) / math.log(4))
            most, split = 1 / min(whole, 1.0), 1 + SPLIT * (1 - 1 / max(number, 1.0))
            # `most` stands for comparing all points with all others. GPUs compare whole
            # tiles, so the factor with `split` cannot exceed `most`. CPUs skip parts of
            # tiles in few dimensions, so the factor may exceed `most`. Threads share
            # the index of one chunk, so for them several chunks gain nothing
            wide = self.limits.workers > 1 and self.dims >= PRUNED_DIMS
            whole_tiles = self.limits.gpu or wide
            more = (
                min(larger * split, most) if whole_tiles else min(larger, most) * split
            ) - 1
        join = self.visit * chunks.visits[1] + more * (
            self.compare * (self.near[0] * self.rows**2 / 2)
        )
        is_apart = len(chunks) > 1 and not any(
            is_shuffled(side) and side.mutual for side in chunks.sides
        )
        apart = self.visit * self.output.together * self.rows if is_apart else 0.0
        return (
            self.made(chunks) + (self.output.joins * join + apart) / self.limits.threads
        )

    def expected(
        self,
        made: float,
        seconds: np.ndarray,
        pairs: float = 0.0,
        found: float = 0.0,
        row_bytes: float = 0,
    ) -> float:
        """Return the seconds from the first task to the last; of a call, for plain
        frames.

        `made`: result of `made`.  `seconds`: result of `blocks` or `searches`. `pairs`:
        number of pairs. `found`, `row_bytes`: rows of the result, and bytes of each.
        """
        threads = self.limits.threads
        share = 1 / threads if self.limits.cluster else _share(threads)
        work = self.rows * self.read + float(seconds.sum()) * self.output.joins
        fixed = 0.0
        if self.limits.gpu:
            fixed = DEVICE_CALL if self.limits.plain else DEVICE_GRAPH
        else:
            work += NANO * RESULT_BYTE * found * max(row_bytes - 2 * NUMBER_BYTES, 0)
            if self.limits.plain:
                fixed = CALL + NANO * CALL_ROW * self.rows
        after = self.output.after_row * self.rows + self.output.after_pair * pairs
        fixed += NANO * after
        return fixed + made + share * work

    def pieces(
        self, seconds: np.ndarray, rows: np.ndarray, row_bytes: float | None
    ) -> np.ndarray:
        """Return into how many pieces of about equal work each block pair is cut (n,),
        int64.

        `rows`: rows of the first chunk of each block pair.  `row_bytes`: bytes of a
        chunk's row if each piece returns a number for every row of both chunks.  Then
        the numbers of all pieces take at most as much memory as the chunk.  None: a
        piece returns numbers for its own rows only.
        """
        if self.limits.threads < 2 or not len(seconds):
            return np.ones(len(seconds), np.int64)
        shortest = MIN_CLUSTER_PIECE if self.limits.cluster else MIN_PIECE
        if self.output.by_row and not self.limits.cluster:
            shortest = min(shortest, MIN_ROW_PIECE)
        shortest = MIN_DEVICE_PIECE if self.limits.gpu else shortest
        whole = max(float(seconds.sum()), NANO)
        each = max(whole / (PARTS_PER_THREAD * self.limits.threads), shortest)
        if self.limits.gpu and self.limits.workers > 1:
            each = min(each, MAX_DEVICE_PIECE)
        piece = np.full(len(seconds), each)
        limit = rows // SAMPLED
        if row_bytes is not None:
            limit = np.minimum(max(2.0, row_bytes // 2), limit)
        if self.output.by_row and not self.limits.gpu:
            # seconds of a piece if there were one piece per thread
            enough = seconds / (seconds / whole * self.limits.threads).clip(1)
            piece = np.maximum(piece, np.minimum(NANO * ROW_OF_PIECE * rows, enough))
        wanted = np.ceil(seconds / piece - 0.25).clip(1)
        # round up to a multiple of the threads that join a block pair, so that each
        # thread gets equally many pieces
        threads = 1
        if len(wanted) == 1:
            threads = self.limits.threads
        elif self.limits.cluster and len(wanted) == self.limits.workers:
            threads = self.limits.together
        wanted = np.where(wanted > 1, np.ceil(wanted / threads) * threads, wanted)
        pieces = np.minimum(wanted, limit.clip(1)).astype(np.int64)
        # cutting saves at most the time of the longest piece, which others wait for
        further = NANO * CLUSTER_TASK * float((pieces - 1).sum())
        many = self.limits.cluster and len(pieces) >= self.limits.threads
        if many and not self.limits.gpu and further > seconds.max():
            return np.ones_like(pieces)
        return pieces
