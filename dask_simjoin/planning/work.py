"""The work of a plan: block pairs to compare, or searches for nearest neighbors."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_simjoin.planning.visits import Visits

NO_PAIRS = np.zeros((0, 2), np.int32)

Sharing = tuple[int, int]
"""Number of threads or GPUs that make a single chunk's tree, and of workers with a copy
of the chunk.
"""

ALONE: Sharing = (1, 1)
"""One thread of one worker makes the tree."""


@dataclass(frozen=True, eq=False)
class Work:
    """The chunks that are compared, and how their work and results are divided."""

    blocks: np.ndarray  # (block pairs, 2) int32: chunks that are compared
    # int64: number of pieces of work, for each block pair (block pairs,) or each search
    # (chunks,)
    parts: np.ndarray
    # int64: number of partitions of the result, for each block pair or each search
    slices: np.ndarray
    # float64: expected seconds that a thread needs, for each block pair or each search
    seconds: np.ndarray
    # number of workers that each make a copy of every chunk: see `Costs.copies`
    copies: int = 1
    # order of the visits of block pairs by workers; None: Dask's order, because all
    # chunks fit in memory
    visits: Visits | None = None

    @property
    def in_turn(self) -> np.ndarray:
        """The chunks that are compared (n, 2), in the order of the work."""
        return self.blocks

    def __len__(self) -> int:
        return len(self.blocks)

    @functools.cached_property
    def outputs(self) -> int:
        """Number of partitions of the result."""
        return int(self.slices.sum())

    def output(self, number: int) -> tuple[int, int, int]:
        """For a partition of the result, return its block pair (or search), its slice,
        and their number.
        """
        block = int(np.searchsorted(self._ends, number, side="right"))
        parts = int(self.slices[block])
        return block, number - int(self._ends[block]) + parts, parts

    def pieces(self) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
        """Yield the pieces of work: a block pair, its two chunks, and (part, number of
        parts).
        """
        for b, ((i, j), parts) in enumerate(
            zip(self.blocks.tolist(), self.parts.tolist(), strict=True)
        ):
            for number in range(parts):
                yield b, i, j, (number, parts)

    @functools.cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum(self.slices)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Values that identify this work in Dask's tokens."""
        return self.blocks, self.parts, self.slices, self.copies


@dataclass(frozen=True, eq=False)
class PairWork(Work):
    """Block pairs whose rows are compared."""

    # whether slices have equal estimated work, not equally many pairs
    even: bool = False

    @property
    def identity(self) -> tuple[Any, ...]:
        return (*super().identity, self.even)


@dataclass(frozen=True, eq=False)
class SearchWork(Work):
    """Searches for the nearest neighbors of the rows of each chunk of queries."""

    # int64: for each chunk of queries, the chunks that may contain neighbors of these
    # queries, nearest first
    searches: tuple[np.ndarray, ...] = ()
    # (n, 2) int32: pairs of chunks that edges of the spanning tree may connect; empty
    # without a tree
    joined: np.ndarray = field(default_factory=lambda: NO_PAIRS)
    # number of threads and of workers that make the spanning tree of a single chunk
    sharing: Sharing = ALONE
    # whether one task searches all rows with the threads of this process, and makes the
    # rows of all partitions
    at_once: bool = False
    # for each chunk of queries, how many chunks one task searches
    together: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    def groups(self, c: int) -> list[list[int]]:
        """List the chunks that are searched for neighbors of chunk `c`. One task
        searches each group.
        """
        found = self.searches[c]
        tasks = -(-len(found) // int(self.together[c]))
        if tasks == 1:
            return [found.tolist()]
        return [
            some.tolist() for some in np.array_split(found, max(1, tasks)) if len(some)
        ]

    @property
    def in_turn(self) -> np.ndarray:
        pairs = [(c, d) for c, some in enumerate(self.searches) for d in some.tolist()]
        return np.array(pairs, np.int64).reshape(-1, 2)

    @property
    def identity(self) -> tuple[Any, ...]:
        return (
            *super().identity,
            self.searches,
            self.joined,
            self.sharing,
            self.at_once,
            self.together,
        )
