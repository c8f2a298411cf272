"""What the steps of a join cost: measured, and put together for each way to run it.

The numbers are those of one core of an AMD EPYC with AVX-512, and of one H200; what is chosen by
them only depends on their ratios.  ``python -m benchmarks dask.choices`` compares what they say with what
each way took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.entity_chunks import BY_WORKER, JoinChunks
from dask_simjoin.planning.outputs import Goal

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

PARCELS = "parcels"
"""How rows are sent to chunks in memory that threads share, where Dask would do it by tasks."""

SHUFFLE_FACTOR = {PARCELS: 1.0, BY_WORKER: 1.4, "tasks": 5.0, "disk": 10.0, "p2p": 10.0}
"""What shuffling costs in each way, in units of that one."""

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


@dataclass(frozen=True)
class Costs:
    """Tell what a join costs where it will run.

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
    goal : Goal
    have : Resources
    swept : int
        Of the dimensions, those that a sweep looks through.
    """

    method: str
    dims: int
    near: tuple[float, float]
    rows: float
    goal: Goal
    have: Resources
    swept: int = SWEPT_DIMS

    @property
    def rates(self) -> Rates:
        """Choose what steps take."""
        if self.have.gpu:
            return DEVICE
        return SWEEP if self.method == "sweep" and self.goal.k is None else TILES

    @property
    def _visit(self) -> float:
        more = 3.0 ** (self.swept - SWEPT_DIMS) if self.rates is SWEEP else 1.0
        if self.goal.k is not None:
            more = SEARCH
        return NANO * self.rates.visit * max(more, 1 / 3)

    @property
    def _task(self) -> float:
        return NANO * (CLUSTER_TASK if self.have.cluster else self.rates.task)

    def _row(self, each: float, number: float) -> float:
        return NANO * (each + number * self.dims)

    def _shuffle(self, method: str) -> float:
        return SHUFFLE_FACTOR[PARCELS if method == "tasks" and not self.have.cluster else method]

    def _apart(self, chunks: JoinChunks) -> float:
        """How many times as much is compared, as chunks of few points of all of space have larger tiles."""
        if chunks.method is not None or not len(chunks):
            return 1.0
        rows = float(chunks.rows.sum())
        number = rows**2 / max(float((chunks.rows**2).sum()), 1.0)
        whole, quarter = (max(near, 1e-9) for near in self.near)
        larger = min((quarter / whole) ** (math.log(max(number, 1.0)) / math.log(4)), 1 / min(whole, 1.0))
        return larger * (1 + SPLIT * (1 - 1 / max(number, 1.0)))

    def compared(self, candidates: float) -> float:
        """Seconds to compare so many pairs of points, of which boxes leave out what is not near."""
        return self._row(self.rates.compare, self.rates.compare_number) * self._compared * candidates

    @property
    def _compared(self) -> float:
        """Share of the pairs of points of near tiles that are compared: boxes leave out others."""
        return min(1.0, self.dims / PRUNED_DIMS)

    def blocks(self, chunks: JoinChunks, blocks: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        """Seconds (block pairs,) that a thread takes to go through each of them once; `pairs`: they give."""
        rows, (i, j) = chunks.rows, blocks.T
        visited = rows[i] + np.where(i == j, 0.0, rows[j])
        candidates = chunks.candidates(blocks)
        whole = self.near[0] * self.rows**2 / 2
        met = candidates * min(1.0, whole / max(float(candidates.sum()), 1.0))
        found: np.ndarray = NANO * self.rates.pair * pairs
        return found + self._visit * visited + self.compared(1.0) * met

    def searches(self, rows: np.ndarray, met: np.ndarray) -> np.ndarray:
        """Seconds (chunks,) to search the neighbours of so many rows among so many of all others."""
        compared: np.ndarray = SEARCH_COMPARED * self.compared(1.0) * self.near[0] * rows * met
        return self._visit * rows + compared

    def reading(self) -> float:
        """Seconds of all threads to read the tables, whatever chunks are made of."""
        return self.rows * self._row(self.rates.read, self.rates.read_number) / self.have.threads

    def making(self, chunks: JoinChunks, tasks: int) -> float:
        """Seconds from what was read to the last index; `tasks`: that it takes, block pairs besides."""
        rates, threads, rows = self.rates, self.have.threads, chunks.rows
        largest, whole = float(rows.max(initial=0.0)), float(rows.sum())
        # a chunk is indexed by threads that would be idle, and not as fast as several chunks
        helpers = 1 if chunks.method is not None else self.have.for_each(len(chunks))
        alone = largest * (TOGETHER / helpers + 1 - TOGETHER)
        seconds = max(whole / threads, alone) * self._row(rates.build, rates.build_number)
        if chunks.method is not None:
            factor = self._shuffle(chunks.method) / threads
            seconds += factor * whole * self._row(rates.shuffle, rates.shuffle_number)
        return seconds + tasks * self._task

    def moving(self, chunks: JoinChunks, row_bytes: float) -> float:
        """Seconds to bring chunks to workers that have others; threads share theirs."""
        if not self.have.cluster or self.have.workers < 2:
            return 0.0
        byte = NANO * (DEVICE_BYTE if self.have.gpu else CLUSTER_BYTE)
        apart = 1 - 1 / self.have.workers
        # partitions lie anywhere, and what makes a chunk of them is sent those that lie elsewhere
        gathered = 0.0 if self.have.gpu or chunks.method is not None else 8 * self.dims * self.rows * apart
        gathered *= byte / min(max(len(chunks), 1), self.have.workers)
        visited = chunks.visits[1] - float(chunks.rows.sum())  # beyond each chunk's meeting with itself
        most = float(chunks.rows.sum()) * (self.have.workers - 1)
        if len(chunks) < self.have.workers:  # a chunk whose queries are cut is sent to all
            visited = most
        return gathered + min(visited * apart, most) * row_bytes * byte / self.have.workers

    def copies(self, chunks: JoinChunks, parts: int) -> int:
        """Choose for how many GPUs each chunk is made that would be sent to all of them.

        What is sent waits for kernels of the GPU that has it, and rows are smaller than their index.
        `parts`: into which the largest block pair is cut.
        """
        alone = chunks.method is None and all(len(side) == 1 for side in chunks.sides)
        return min(self.have.workers, parts) if alone and self.have.gpu and self.have.cluster else 1

    def shuffled(self, method: str, partitions: int) -> float:
        """Seconds that chunks take at least for which rows of so many partitions are shuffled."""
        each = self._row(self.rates.build, self.rates.build_number) + self.goal.joins * self._visit
        shuffle = self._shuffle(method) * self._row(self.rates.shuffle, self.rates.shuffle_number)
        return self.rows * (each + shuffle) / self.have.threads + partitions * self._task

    def made(self, chunks: JoinChunks, tasks: int, row_bytes: float) -> float:
        """Seconds until chunks are where they are needed; `tasks`: that make them."""
        tasks += self.goal.joins * chunks.visits[0]
        return self.making(chunks, tasks) + self.moving(chunks, row_bytes)

    def choosing(self, chunks: JoinChunks, tasks: int, row_bytes: float) -> float:
        """Seconds of what depends on how rows are cut into chunks."""
        more = self._apart(chunks) - 1
        join = self._visit * chunks.visits[1] + more * self.compared(self.near[0] * self.rows**2 / 2)
        apart = self._visit * self.goal.together * self.rows if len(chunks) > 1 else 0.0
        return self.made(chunks, tasks, row_bytes) + (self.goal.joins * join + apart) / self.have.threads

    def expected(self, made: float, seconds: np.ndarray) -> float:
        """Seconds from the first task to the last: see `made`, and `blocks` or `searches`."""
        return self.reading() + made + float(seconds.sum()) * self.goal.joins / self.have.threads

    def pieces(self, seconds: np.ndarray, rows: np.ndarray, row_bytes: float | None) -> np.ndarray:
        """Cut the work of each block pair (n,) into pieces of about equal work.

        `rows`: of their first chunks.  A piece may find a number for each row of both chunks, so there are
        no more of them than what a chunk itself takes; None: it finds none but for its own.
        """
        if self.have.threads < 2 or not len(seconds):
            return np.ones(len(seconds), np.int64)
        least = LEAST_CLUSTER_PIECE if self.have.cluster else LEAST_PIECE
        if self.goal.by_row and not self.have.cluster:
            least = min(least, LEAST_ROW_PIECE)
        least = LEAST_DEVICE_PIECE if self.have.gpu else least
        whole = max(float(seconds.sum()), NANO)
        each = max(whole / (PIECES_PER_THREAD * self.have.threads), least)
        if self.have.gpu and self.have.workers > 1:
            each = min(each, MOST_DEVICE_PIECE)
        piece = np.full(len(seconds), each)
        most = rows // LEAST_ROWS
        if row_bytes is not None:
            most = np.minimum(max(2.0, row_bytes // 2), most)
        if self.goal.by_row and not self.have.gpu:
            enough = seconds / (seconds / whole * self.have.threads).clip(1)  # for every thread to have one
            piece = np.maximum(piece, np.minimum(NANO * WORTH * ROW_OF_PIECE * rows, enough))
        wanted = np.ceil(seconds / piece - 0.25).clip(1)
        if len(wanted) == 1 and wanted[0] > 1:  # pieces are alike: as many for each thread
            wanted = np.ceil(wanted / self.have.threads) * self.have.threads
        return np.minimum(wanted, most.clip(1)).astype(np.int64)
