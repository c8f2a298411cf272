"""Edges between rows that are near each other, sorted by row, in memory or in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.arrays import to_host
from dask_simjoin.backends.base import backend_for, host_kernels
from dask_simjoin.chunks import Chunk
from dask_simjoin.scratch import Held, Store


@dataclass(frozen=True)
class Room:
    """Where edges go.

    Attributes
    ----------
    directory : str
        For files.
    most : int
        Bytes of each array up to which it stays in memory.
    buffer : int
        Edges that are sorted at a time.
    """

    directory: str
    most: int
    buffer: int


@dataclass(frozen=True)
class Runs:
    """Edges from the rows of a chunk, as runs that are each sorted by row.

    Attributes
    ----------
    ends : list of array (n + 1,), int64
        For each run where each row's edges begin and end in it.
    starts : list of int
        Where each run begins.
    others, squared : Held
        The rows of the other chunk (int32), and squares of distances (float64).
    """

    ends: list[np.ndarray]
    starts: list[int]
    others: Held
    squared: Held


class _Side:
    """Collects the edges of the rows of one chunk."""

    def __init__(self, rows: int, room: Room) -> None:
        self._rows = rows
        self._ends: list[np.ndarray] = []
        self._starts: list[int] = []
        self._others = Store(np.int32, room.directory, room.most)
        self._squared = Store(np.float64, room.directory, room.most)

    def add(self, rows: np.ndarray, others: np.ndarray, squared: np.ndarray) -> None:
        """Make one run of edges."""
        ends = np.zeros(self._rows + 1, np.int64)
        out, values = np.empty(len(rows), np.int32), np.empty(len(rows))
        host_kernels("optics").by_row(rows, others, squared, ends, out, values)
        self._ends.append(ends)
        self._starts.append(self._others.size)
        self._others.append(out)
        self._squared.append(values)

    def finish(self) -> Runs:
        """All runs."""
        return Runs(self._ends, self._starts, self._others.finish(), self._squared.finish())


def edges_of_block(q: Chunk, d: Chunk, layout: Any, room: Room, same: bool) -> tuple[Runs, Runs | None]:
    """Edges of the pairs of two chunks, from the rows of either; of one with itself, in both directions."""
    sides = [_Side(len(side["ids"]), room) for side in ((q,) if same else (q, d))]
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

    def visitor(left: Any, right: Any, squared: Any) -> None:
        nonlocal number
        waiting.append(tuple(np.array(to_host(column)) for column in (left, right, squared)))
        number += len(left)
        if number >= room.buffer:
            sort()

    backend_for(q["example"]).visit(q, d, layout, visitor, same=same)
    sort()
    first, *second = [side.finish() for side in sides]
    return first, second[0] if second else None


@dataclass(frozen=True)
class Reachable:
    """What is reached from each row of a chunk.

    Attributes
    ----------
    core : array (n,), float64
        Core distances; inf: not a core row.
    degree : array (n,), int32
        Numbers of edges of each row.
    others : Held
        The nodes (int32) that they lead to.
    reach : Held
        Reachability distances of those from the row.
    used : tuple of Held
        What it was made of, to be discarded in the end: not before, as it may have to be made again.
    """

    core: np.ndarray
    degree: np.ndarray
    others: Held
    reach: Held
    used: tuple[Held, ...]


def gather_edges(rows: int, max_eps: float, min_samples: int, first_nodes: list[int], room: Room,
                 *parts: Runs) -> Reachable:  # fmt: skip
    """Core distances of the rows of a chunk, and the edges of its core rows.

    `first_nodes`: for each of the parts the node of the first row that its edges lead to.
    Numbers are rounded as scikit-learn does it, to 15 decimals.
    """
    runs = [
        (ends, part, start, node)
        for part, node in zip(parts, first_nodes, strict=True)
        for ends, start in zip(part.ends, part.starts, strict=True)
    ]
    degree = np.zeros(rows, np.int64)
    for ends, *_ in runs:
        degree += np.diff(ends)
    total = np.append(0, np.cumsum(degree))
    core, kept = np.full(rows, np.inf), np.zeros(rows, np.int32)
    others = Store(np.int32, room.directory, room.most)
    reach = Store(np.float64, room.directory, room.most)
    start = 0
    while start < rows:
        stop = int(np.searchsorted(total, total[start] + room.buffer, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        some = slice(start, stop)
        number = int(total[stop] - total[start])
        nodes, squared = np.empty(number, np.int32), np.empty(number)
        at = total[start:stop] - total[start]
        for ends, part, offset, node in runs:
            a, b = int(ends[start]), int(ends[stop])
            piece = slice(offset + a, offset + b)
            host_kernels("optics").append_rows(
                ends, part.others[piece], part.squared[piece], start, a, node, at, nodes, squared
            )
        best = np.full((stop - start, min_samples - 1), np.inf)
        row = np.repeat(np.arange(stop - start), degree[some])
        host_kernels("optics").keep_smallest(best, row, squared)
        far = np.sqrt(best[:, -1])
        core[some] = np.round(np.where(far <= max_eps, far, np.inf), 15)
        near = (squared <= max_eps * max_eps) & np.isfinite(core[some])[row]
        row = row[near]
        kept[some] = np.bincount(row, minlength=stop - start)
        others.append(nodes[near])
        reach.append(np.round(np.maximum(np.sqrt(squared[near]), core[some][row]), 15))
        start = stop
    used = tuple(held for part in parts for held in (part.others, part.squared) if held.values is None)
    return Reachable(core, kept, others.finish(), reach.finish(), used)
