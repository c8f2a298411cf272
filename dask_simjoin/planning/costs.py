"""What the steps of a join cost: measured, and put together for each way to run it.

The numbers are those of one core of an AMD EPYC with AVX-512, and of one H200; what is chosen by
them only depends on their ratios.  ``python -m benchmarks dask.choices`` compares what they say with what
each way took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.entity_chunks import BY_WORKER, JoinChunks, Sources
from dask_simjoin.planning.outputs import OutputSpec, making_tasks

NANO = 1e-9


@dataclass(frozen=True)
class Rates:
    """Say what a thread or a GPU takes, in nanoseconds.

    Attributes
    ----------
    read, read_number : float
        To summarise a row, to read it again and to put it into its chunk, and each of its numbers.
    build, build_number : float
        To index a row, and each of its numbers.
    visit : float
        To look for what a row of a block is near to, besides what is compared.
    compare, compare_number : float
        To compare two points, and each of their numbers.
    pair : float
        To find a pair and to say what it is.
    shuffle, shuffle_number : float
        To send a row to another chunk and to sort it there, and each of its numbers.
    task : float
        For the scheduler of threads to run a task.
    """

    read: float
    read_number: float
    build: float
    build_number: float
    visit: float
    compare: float
    compare_number: float
    pair: float
    shuffle: float
    shuffle_number: float
    task: float


SWEEP = Rates(4, 4, 14, 3, 25, 0.0, 0.0, 3, 30, 12, 1.5e5)
TILES = Rates(4, 4, 150, 7, 60, 0.03, 0.0025, 10, 30, 12, 1.5e5)
DEVICE = Rates(0.1, 0.05, 0.5, 0.08, 0.3, 0.0, 0.9e-5, 0.01, 2, 0.4, 2.5e5)

SWEPT_DIMS = 2
"""Dimensions of which `SWEEP` tells; each one more makes three times as many rows of a grid to look at."""

PRUNED_DIMS = 12
"""Dimensions from which all numbers of two points are compared."""

CLUSTER_TASK = 1.2e6
"""Nanoseconds of a task on a cluster."""

CLUSTER_BYTE, DEVICE_BYTE = 1.5, 0.03
"""Nanoseconds to move a byte between processes, and between GPUs."""

SHUFFLE_FACTOR = {BY_WORKER: 1.4, "tasks": 5.0, "disk": 10.0, "p2p": 10.0}
"""Cost of shuffling in each way, in units of sending rows in memory that threads share."""

THREADS_FACTOR = {"tasks": 1.0}
"""The same where there is no cluster: threads share memory."""

PIECES_PER_THREAD = 4
"""Pieces of the whole work for each thread: what is left to wait for in the end is a part of one."""

SEARCH = 40.0
"""What it is to search the neighbours of a row in a chunk, in units of looking for what it is near to."""

SEARCH_COMPARED = 3.0
"""What it is to compare points whose nearest are sought, in units of comparing them with a threshold."""

LEAST_PIECE, LEAST_CLUSTER_PIECE, LEAST_DEVICE_PIECE = 0.02, 0.05, 0.01
"""Seconds of work that are worth a task of their own."""

LEAST_ROW_PIECE = 0.004
"""The same on threads of pieces that find a number for each row: there are no more of them than threads."""

MOST_DEVICE_PIECE = 0.15
"""The same that a piece takes at most where there are other GPUs: what they are sent waits for its kernel."""

ROW_OF_PIECE = 12.0
"""Nanoseconds of a thread that a piece takes for each row of its chunk where it finds a number for it: to
make room for these, and to put them together with those of other pieces."""

WORTH = 4.0
"""How many times that a piece must do otherwise, to be one, where every thread has one."""

SPLIT = 0.5
"""How much longer it takes to compare rows of different chunks, besides: they are in no common order."""

TOGETHER = 0.85
"""Share of the work of an index that threads share."""

LEAST_ROWS = 1024
"""Rows of queries of a piece."""


@dataclass(eq=False)
class Costs:
    """Expect seconds of the steps of a join where it will run.

    Attributes
    ----------
    method : str
        How chunks are indexed.
    dims : int
    near : tuple of float
        The share of all pairs of points whose tiles are near enough to be compared, and of those of a
        quarter of the points: their tiles are larger.
    rows : float
        Of all tables together.
    output : OutputSpec
    resources : Resources
    swept : int
        Of the dimensions, those that a sweep looks through.
    row_bytes : float
        Memory of one row of a chunk.
    sources : tuple of Sources
        The partitions of each table.
    read, build, visit, shuffle : float
        Seconds of a thread to read one row, to index it, to look for what it is near to, and to send it.
    compare, pair : float
        Seconds to compare two points of near tiles, on average, and to find a pair.
    task : float
        Seconds of the scheduler for one task.
    factors : dict
        How many times as long each way to shuffle takes to send a row.
    """

    method: str
    dims: int
    near: tuple[float, float]
    rows: float
    output: OutputSpec
    resources: Resources
    swept: int = SWEPT_DIMS
    row_bytes: float = 0.0
    sources: tuple[Sources, ...] = ()
    read: float = field(init=False)
    build: float = field(init=False)
    visit: float = field(init=False)
    compare: float = field(init=False)
    pair: float = field(init=False)
    shuffle: float = field(init=False)
    task: float = field(init=False)
    factors: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        searched, dims = self.output.k is not None, self.dims
        rates = SWEEP if self.method == "sweep" and not searched else TILES
        if self.resources.gpu:
            rates = DEVICE
        more = 3.0 ** (self.swept - SWEPT_DIMS) if rates is SWEEP else 1.0
        self.visit = NANO * rates.visit * max(SEARCH if searched else more, 1 / 3)
        self.read = NANO * (rates.read + rates.read_number * dims)
        self.build = NANO * (rates.build + rates.build_number * dims)
        self.shuffle = NANO * (rates.shuffle + rates.shuffle_number * dims)
        # of points in near tiles some are not compared: boxes leave them out
        self.compare = NANO * (rates.compare + rates.compare_number * dims) * min(1.0, dims / PRUNED_DIMS)
        self.pair = NANO * rates.pair
        self.factors = SHUFFLE_FACTOR if self.resources.cluster else SHUFFLE_FACTOR | THREADS_FACTOR
        self.task = NANO * (CLUSTER_TASK if self.resources.cluster else rates.task)

    def blocks(self, chunks: JoinChunks, blocks: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Seconds (block pairs,) that a thread takes to go through each of them once; `pairs`: they give."""
        rows, (i, j) = chunks.rows, blocks.T
        visited = rows[i] + np.where(i == j, 0.0, rows[j])
        candidates = chunks.candidates(blocks)
        whole = self.near[0] * self.rows**2 / 2
        met = candidates * min(1.0, whole / max(float(candidates.sum()), 1.0))
        found: np.ndarray = self.pair * pairs
        return found + self.visit * visited + self.compare * met

    def searches(self, rows: np.ndarray, met: np.ndarray) -> np.ndarray:
        """Seconds (chunks,) to search the neighbours of so many rows among so many of all others."""
        compared: np.ndarray = SEARCH_COMPARED * self.compare * self.near[0] * rows * met
        return self.visit * rows + compared

    def made(self, chunks: JoinChunks) -> float:
        """Seconds until chunks are where they are needed: indexed, and moved."""
        threads, rows = self.resources.threads, chunks.rows
        largest, whole = float(rows.max(initial=0.0)), float(rows.sum())
        # a chunk is indexed by threads that would be idle, and not as fast as several chunks
        helpers = 1 if chunks.method is not None else self.resources.for_each(len(chunks))
        alone = largest * (TOGETHER / helpers + 1 - TOGETHER)
        seconds = max(whole / threads, alone) * self.build
        if chunks.method is not None:
            seconds += self.factors[chunks.method] / threads * whole * self.shuffle
        tasks = making_tasks(chunks, self.sources, self.resources.cluster)
        tasks += self.output.joins * chunks.visits[0]
        return seconds + tasks * self.task + self._moved(chunks)

    def _moved(self, chunks: JoinChunks) -> float:
        """Seconds to bring chunks to workers that have others; threads share theirs."""
        if not self.resources.cluster or self.resources.workers < 2:
            return 0.0
        byte = NANO * (DEVICE_BYTE if self.resources.gpu else CLUSTER_BYTE)
        apart = 1 - 1 / self.resources.workers
        # partitions lie anywhere, and what makes a chunk of them is sent those that lie elsewhere
        gathered = (
            0.0 if self.resources.gpu or chunks.method is not None else 8 * self.dims * self.rows * apart
        )
        gathered *= byte / min(max(len(chunks), 1), self.resources.workers)
        visited = chunks.visits[1] - float(chunks.rows.sum())  # beyond each chunk's meeting with itself
        most = float(chunks.rows.sum()) * (self.resources.workers - 1)
        if len(chunks) < self.resources.workers:  # a chunk whose queries are cut is sent to all
            visited = most
        return gathered + min(visited * apart, most) * self.row_bytes * byte / self.resources.workers

    def copies(self, chunks: JoinChunks, parts: int) -> int:
        """Choose for how many GPUs each chunk is made that would be sent to all of them.

        What is sent waits for kernels of the GPU that has it, and rows are smaller than their index.
        `parts`: into which the largest block pair is cut.
        """
        alone = chunks.method is None and all(len(side) == 1 for side in chunks.sides)
        return (
            min(self.resources.workers, parts)
            if alone and self.resources.gpu and self.resources.cluster
            else 1
        )

    def shuffled(self, method: str) -> float:
        """Seconds that chunks for which rows are shuffled take at least."""
        each = self.build + self.output.joins * self.visit
        partitions = sum(map(len, self.sources))
        shuffle = self.factors[method] * self.shuffle
        return self.rows * (each + shuffle) / self.resources.threads + partitions * self.task

    def choosing(self, chunks: JoinChunks) -> float:
        """Seconds of what depends on how rows are cut into chunks."""
        more = 0.0
        if chunks.method is None and len(chunks):
            # chunks of few points of all of space have larger tiles, so more is compared
            rows = float(chunks.rows.sum())
            number = rows**2 / max(float((chunks.rows**2).sum()), 1.0)
            whole, quarter = (max(near, 1e-9) for near in self.near)
            larger = (quarter / whole) ** (math.log(max(number, 1.0)) / math.log(4))
            more = min(larger, 1 / min(whole, 1.0)) * (1 + SPLIT * (1 - 1 / max(number, 1.0))) - 1
        join = self.visit * chunks.visits[1] + more * (self.compare * (self.near[0] * self.rows**2 / 2))
        apart = self.visit * self.output.together * self.rows if len(chunks) > 1 else 0.0
        return self.made(chunks) + (self.output.joins * join + apart) / self.resources.threads

    def expected(self, made: float, seconds: np.ndarray) -> float:
        """Seconds from the first task to the last: see `made`, and `blocks` or `searches`."""
        threads = self.resources.threads
        return self.rows * self.read / threads + made + float(seconds.sum()) * self.output.joins / threads

    def pieces(self, seconds: np.ndarray, rows: np.ndarray, row_bytes: float | None) -> np.ndarray:
        """Cut the work of each block pair (n,) into pieces of about equal work.

        `rows`: of their first chunks.  A piece may find a number for each row of both chunks, so there are
        no more of them than what a chunk itself takes; None: it finds none but for its own.
        """
        if self.resources.threads < 2 or not len(seconds):
            return np.ones(len(seconds), np.int64)
        least = LEAST_CLUSTER_PIECE if self.resources.cluster else LEAST_PIECE
        if self.output.by_row and not self.resources.cluster:
            least = min(least, LEAST_ROW_PIECE)
        least = LEAST_DEVICE_PIECE if self.resources.gpu else least
        whole = max(float(seconds.sum()), NANO)
        each = max(whole / (PIECES_PER_THREAD * self.resources.threads), least)
        if self.resources.gpu and self.resources.workers > 1:
            each = min(each, MOST_DEVICE_PIECE)
        piece = np.full(len(seconds), each)
        most = rows // LEAST_ROWS
        if row_bytes is not None:
            most = np.minimum(max(2.0, row_bytes // 2), most)
        if self.output.by_row and not self.resources.gpu:
            enough = seconds / (seconds / whole * self.resources.threads).clip(
                1
            )  # for every thread to have one
            piece = np.maximum(piece, np.minimum(NANO * WORTH * ROW_OF_PIECE * rows, enough))
        wanted = np.ceil(seconds / piece - 0.25).clip(1)
        if len(wanted) == 1 and wanted[0] > 1:  # pieces are alike: as many for each thread
            wanted = np.ceil(wanted / self.resources.threads) * self.resources.threads
        return np.minimum(wanted, most.clip(1)).astype(np.int64)
