"""Collect edges between rows that are near each other, sorted by row, in memory or in files."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_simjoin.cluster.algorithms.scratch import ArrayWriter, StoredArray, discard_on_error
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.engine.compat import to_host
from dask_simjoin.metrics.types import Array
from dask_simjoin.tasks.meeting import Meeting


@dataclass(frozen=True)
class SpillLimits:
    """Say where edges go.

    Attributes
    ----------
    directory : str
        For files.
    most : int
        Bytes of each array up to which it stays in memory.
    buffer : int
        Pairs that are sorted at a time, and edges that are gathered.
    """

    directory: str
    most: int
    buffer: int


@dataclass(frozen=True)
class Runs:
    """Hold edges from the rows of a chunk, as runs that are each sorted by row.

    Attributes
    ----------
    starts : list of (int, int)
        Where each run begins in the rows and in the edges; and in the end where the last one ends.
    rows, counts : StoredArray
        The rows (int32) that have edges in a run, and how many (int32).
    others, squared : StoredArray
        The rows of the other chunk (int32), and squares of distances (float64).
    """

    starts: list[tuple[int, int]]
    rows: StoredArray
    counts: StoredArray
    others: StoredArray
    squared: StoredArray

    @property
    def held(self) -> tuple[StoredArray, ...]:
        """List all of its arrays."""
        return self.rows, self.counts, self.others, self.squared


class _Side:
    """Collect the edges of the rows of one chunk."""

    def __init__(self, rows: int, limits: SpillLimits) -> None:
        self._number = rows
        self._starts = [(0, 0)]
        kinds = (np.int32, np.int32, np.int32, np.float64)
        self.stores = [ArrayWriter(kind, limits.directory, limits.most) for kind in kinds]

    def add(self, rows: np.ndarray, others: np.ndarray, squared: np.ndarray) -> None:
        """Make one run of edges."""
        ends = np.zeros(self._number + 1, np.int64)
        out, values = np.empty(len(rows), np.int32), np.empty(len(rows))
        host_kernels("optics").by_row(rows, others, squared, ends, out, values)
        counts = np.diff(ends).astype(np.int32)
        some = np.flatnonzero(counts)
        columns: list[np.ndarray] = [some.astype(np.int32), counts[some], out, values]
        for store, column in zip(self.stores, columns, strict=True):
            store.append(column)
        self._starts.append((self.stores[0].size, self.stores[2].size))

    def finish(self) -> Runs:
        """Finish all runs."""
        return Runs(self._starts, *(store.finish() for store in self.stores))


class _Run:
    """Read pieces of one run."""

    def __init__(self, runs: Runs, number: int) -> None:
        (first, self._edge), (last, _) = runs.starts[number : number + 2]
        self._runs = runs
        self.rows, self.counts = runs.rows[first:last], runs.counts[first:last]
        self._before = np.append(0, np.cumsum(self.counts, dtype=np.int64))

    def piece(self, start: int, stop: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Read where edges of rows start ... stop-1 end (stop - start + 1,), the others, and the squares."""
        first, last = np.searchsorted(self.rows, [start, stop])
        ends = np.zeros(stop - start + 1, np.int64)
        ends[self.rows[first:last] - start + 1] = self.counts[first:last]
        some = slice(self._edge + int(self._before[first]), self._edge + int(self._before[last]))
        return np.cumsum(ends), self._runs.others[some], self._runs.squared[some]


def edges_of_block(meeting: Meeting, limits: SpillLimits) -> tuple[Runs, Runs | None]:
    """Collect edges of the pairs of two chunks, from the rows of either; of one, in both directions."""
    same = meeting.same
    sides = [_Side(len(side["ids"]), limits) for side in meeting.chunks]
    waiting: list[tuple[np.ndarray, ...]] = []
    number = 0

    def sort() -> None:
        nonlocal number
        if not number:
            return
        left, right, squared = (np.concatenate(column) for column in zip(*waiting, strict=True))
        if same:
            twice = (np.concatenate(both) for both in ((left, right), (right, left), (squared, squared)))
            sides[0].add(*twice)
        else:
            sides[0].add(left, right, squared)
            sides[1].add(right, left, squared)
        waiting.clear()
        number = 0

    def visitor(left: Array, right: Array, squared: Array) -> None:
        nonlocal number
        waiting.append(tuple(np.array(to_host(column)) for column in (left, right, squared)))
        number += len(left)
        if number >= limits.buffer:
            sort()

    with discard_on_error(*(store for side in sides for store in side.stores)):
        meeting.joiner.visit(*meeting.operands, visitor, same=same)
        sort()
    first, *second = [side.finish() for side in sides]
    return first, second[0] if second else None


@dataclass(frozen=True)
class Reachable:
    """Hold what is reached from each row of a chunk.

    Attributes
    ----------
    core : array (n,), float64
        Core distances; inf: not a core row.
    degree : array (n,), int32
        Numbers of edges of each row.
    others : StoredArray
        The nodes (int32) that they lead to.
    reach : StoredArray
        Reachability distances of those from the row.
    used : tuple of StoredArray
        What it was made of, to be discarded in the end: not before, as it may have to be made again.
    """

    core: np.ndarray
    degree: np.ndarray
    others: StoredArray
    reach: StoredArray
    used: tuple[StoredArray, ...]


def gather_edges(rows: int, max_eps: float, min_samples: int, first_nodes: list[int], limits: SpillLimits,
                 *parts: Runs) -> Reachable:  # fmt: skip
    """Gather core distances of the rows of a chunk, and the edges of its core rows.

    `first_nodes`: for each of the parts the node of the first row that its edges lead to.
    Numbers are rounded as scikit-learn does it, to 15 decimals.
    """
    runs = [
        (_Run(part, number), node)
        for part, node in zip(parts, first_nodes, strict=True)
        for number in range(len(part.starts) - 1)
    ]
    degree = np.zeros(rows, np.int64)
    for run, _ in runs:
        degree[run.rows] += run.counts
    total = np.append(0, np.cumsum(degree))
    core, left = np.full(rows, np.inf), np.zeros(rows, np.int32)
    others = ArrayWriter(np.int32, limits.directory, limits.most)
    reach = ArrayWriter(np.float64, limits.directory, limits.most)
    kernels, start = host_kernels("optics"), 0
    with discard_on_error(others, reach):
        while start < rows:
            stop = int(np.searchsorted(total, total[start] + limits.buffer, side="right")) - 1
            stop = min(max(stop, start + 1), rows, start + limits.buffer)
            some = slice(start, stop)
            number = int(total[stop] - total[start])
            nodes, squared = np.empty(number, np.int32), np.empty(number)
            at = total[start:stop] - total[start]
            for run, node in runs:
                kernels.append_rows(*run.piece(start, stop), node, at, nodes, squared)
            far = np.full(stop - start, np.inf)
            scratch = np.empty(int(degree[some].max(initial=0)))
            kernels.kth_smallest(
                total[start : stop + 1] - total[start], squared, min_samples - 1, far, scratch
            )
            far = np.sqrt(far)
            core[some] = np.round(np.where(far <= max_eps, far, np.inf), 15)
            row = np.repeat(np.arange(stop - start), degree[some])
            near = (squared <= max_eps * max_eps) & np.isfinite(core[some])[row]
            row = row[near]
            left[some] = np.bincount(row, minlength=stop - start)
            others.append(nodes[near])
            reach.append(np.round(np.maximum(np.sqrt(squared[near]), core[some][row]), 15))
            start = stop
    used = tuple(held for part in parts for held in part.held if held.values is None)
    return Reachable(core, left, others.finish(), reach.finish(), used)
