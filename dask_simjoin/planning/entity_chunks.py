"""Entity chunks, and the interfaces of all kinds of chunks.

Each kind of chunks is a class: `EntityChunks`, `SpatialChunks`, `RegionChunks` for one
table, and `EntityPairs`, `RegionPairs` for two.  All of them implement `JoinChunks`.

Entity chunks are consecutive rows of the frame: small partitions are coalesced, large
ones are split. The chunks of two tables are numbered consecutively, the left table's
chunks first.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeGuard, TypeVar

import numpy as np

from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.metrics.norms import Array, Norm, box_gap
from dask_simjoin.planning.near_boxes import near_boxes
from dask_simjoin.planning.partition import PartitionSummary
from dask_simjoin.planning.sample_pairs import Sampled, SamplePoints

Piece = tuple[int, int, int]
"""Consecutive rows of a partition: (number of the partition, start, stop)."""

Pieces = tuple[tuple[Piece, ...], ...]
"""The pieces of each chunk."""

Sources = tuple[tuple[int, str], ...]
"""For each partition of a table: its number of rows, and a digest of its box."""

Boxes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Boxes of chunks that may have points: lower bounds (n, d), upper bounds (n, d), chunk
numbers (n,).
"""

BY_WORKER = "by worker"
"""Shuffle method for tables in the memory of workers.

One task per thread sends a part of its worker's rows.
"""


class JoinChunks(Protocol):
    """The chunks of a join, numbered consecutively, and which of them are compared."""

    @property
    def kind(self) -> str:
        """Kind of the chunks: "entity", "spatial" or "replicated"."""

    @property
    def method(self) -> str | None:
        """How rows are shuffled to their chunks; None: they are not shuffled."""

    @property
    def sides(self) -> tuple[Chunking, ...]:
        """The chunks of each table."""

    @property
    def first_data(self) -> int:
        """Number of the right table's first chunk; 0 for a self-join."""

    @property
    def rows(self) -> np.ndarray:
        """Expected number of points in each chunk (chunks,), float64."""

    @property
    def own_rows(self) -> np.ndarray:
        """Expected number of points in each chunk (chunks,), without points in halos."""

    @property
    def visits(self) -> tuple[int, float]:
        """Number of block pairs, and number of rows in all of them.

        A row counts once in each block pair of its chunk.
        """

    @property
    def identity(self) -> Any:
        """Value that identifies these chunks in Dask's tokens."""

    def __len__(self) -> int: ...

    def blocks(self) -> np.ndarray:
        """Return the pairs of chunks (blocks, 2) that are compared, int32."""

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Return the number of candidate pairs of points in each block pair."""

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers of the left and of the right chunk of each sampled pair
        (pairs,).
        """

    def describe(self) -> str:
        """Describe in words how rows are assigned to chunks."""


class Chunking(JoinChunks, Protocol):
    """The chunks of one table."""

    @property
    def norm(self) -> Norm:
        """The norm that decides which chunks are compared."""

    @property
    def in_frame_order(self) -> bool:
        """Whether the chunks, one after the other, have all rows in the order of the
        frame.
        """

    @property
    def pieces(self) -> Pieces:
        """The pieces of partitions that make up each chunk; empty if rows are shuffled."""

    def boxes(self) -> Boxes:
        """Return boxes around the chunks' own points, without halos, for the chunks
        that may have points.
        """

    def are_partitions(self, sources: Sources) -> bool:
        """Return whether each partition of the table with these sources is exactly one
        chunk.
        """

    def describe(self, both: bool = False) -> str:
        """Describe in words how rows are assigned to chunks; `both`: whether there are
        two tables.
        """


class Shuffled(Chunking, Protocol):
    """The chunks of one table whose rows are shuffled to them."""

    @property
    def regions(self) -> Regions:
        """The regions whose points make up chunks."""

    @property
    def everywhere(self) -> bool:
        """Whether each chunk contains every point that is within reach of its region.

        A row may then be in several chunks.
        """

    @property
    def mutual(self) -> bool:
        """Whether each of two near regions has points of the other region in its halo.

        If not, only one of the two halos has points of the other region.
        """

    @property
    def method(self) -> str:
        """The shuffle method: Dask's "p2p", "tasks" or "disk", or our own `BY_WORKER`."""

    @property
    def reach(self) -> float:
        """Width of the halo in each coordinate."""

    @property
    def threshold(self) -> float:
        """Largest total between a region and a point of its halo."""

    @property
    def offsets(self) -> np.ndarray:
        """Position of each partition's first row in the whole frame."""

    def own_chunk(self, region: Array, position: Array) -> Array:
        """Return the chunk of each point, from the number of its region and its
        position in the frame.
        """

    def halo_chunk(self, region: Array, position: Array) -> Array:
        """Return the chunk that has each point in its halo; `region`: the region of the
        halo.
        """


def is_shuffled(chunks: Chunking) -> TypeGuard[Shuffled]:
    """Return whether rows are shuffled to these chunks."""
    return chunks.method is not None


Made = TypeVar("Made", bound="EntityChunks")

SERPENTINE = 4
"""Block pairs are ordered in squares of SERPENTINE x SERPENTINE chunks: see
`serpentine`.
"""


class OneTable:
    """Base class of the chunks of one table; `JoinChunks` and `Chunking` explain their
    methods.
    """

    first_data = 0

    @property
    def sides(self) -> tuple[Self]:
        return (self,)


class HomeChunks(OneTable):
    """Base class of chunks without halos: each row is in one chunk."""

    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def own_rows(self) -> np.ndarray:
        return self.rows

    def _near(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each chunk with the chunks that it is compared with: itself and some
        later chunks.
        """
        raise NotImplementedError

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        number, rows = 0, 0.0
        for first, near in self._near():
            number += len(near)
            rows += (len(near) - 1) * self.rows[first] + float(self.rows[near].sum())
        return number, rows

    def blocks(self) -> np.ndarray:
        """Return the pairs of chunks (i, j) that are compared, with i <= j."""
        found = [np.zeros((0, 2), np.int64)]
        for first, near in self._near():
            found.append(np.stack([np.full_like(near, first), near], axis=1))
        return serpentine(np.concatenate(found)).astype(np.int32)

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        a, b = self.rows[blocks[:, 0]], self.rows[blocks[:, 1]]
        return np.where(blocks[:, 0] == blocks[:, 1], a * (a - 1).clip(0) / 2, a * b)


@dataclass(frozen=True, eq=False)
class EntityChunks(HomeChunks):
    """Chunks of consecutive rows."""

    pieces: Pieces
    # (chunks,) int64: the position of each chunk's first row in the whole frame
    starts: np.ndarray
    rows: np.ndarray
    # (chunks, d) float64: the chunks' boxes
    lower: np.ndarray
    upper: np.ndarray
    norm: Norm
    # chunks are compared if the total between their boxes is at most this
    threshold: float

    kind = "entity"
    method = None
    in_frame_order = True

    def boxes(self) -> Boxes:
        filled = np.flatnonzero(self.rows)
        return self.lower[filled], self.upper[filled], filled

    def are_partitions(self, sources: Sources) -> bool:
        return self.pieces == tuple(
            ((n, 0, rows),) for n, (rows, _) in enumerate(sources)
        )

    def describe(self, both: bool = False) -> str:
        return f"entity: rows in the order of the frame{'s' * both}"

    def _near(self) -> Iterator[tuple[int, np.ndarray]]:
        lower, upper, filled = self.boxes()
        if len(filled) == 1:  # a single chunk has no other box to be compared with
            yield int(filled[0]), filled
            return
        # boxes with a common point, as of rows in random order, are all near
        if len(filled) and (lower.max(axis=0) <= upper.min(axis=0)).all():
            yield from ((first, filled[i:]) for i, first in enumerate(filled.tolist()))
            return
        boxes, limits = (lower, upper), np.full(len(filled), self.threshold)
        near = near_boxes(self.norm, boxes, boxes, limits, is_self_join=True)
        for first, (numbers, gap) in zip(filled.tolist(), near, strict=True):
            yield first, filled[numbers[gap <= self.threshold]]

    def chunk_of(self, points: SamplePoints) -> np.ndarray:
        """Return the chunk of each sample point."""
        return np.searchsorted(self.starts, points.position, side="right") - 1

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        chunk = self.chunk_of(sampled.first)
        return chunk[sampled.left], chunk[sampled.right]

    @property
    def identity(self) -> Any:
        # a string, because Dask tokenizes it faster than nested tuples of numbers
        return repr(self.pieces)


@dataclass(frozen=True, eq=False)
class ReplicatedChunks(EntityChunks):
    """One chunk of all rows.

    Every task has a copy of it, and joins some of its rows, the queries, with all rows.
    """

    kind = "replicated"

    def describe(self, both: bool = False) -> str:
        if both:
            return "replicated: one chunk of each table, and tasks for parts of the left table's rows"
        return "replicated: one chunk of all rows, and tasks for parts of its queries"


def entity_chunks(
    summaries: list[PartitionSummary],
    min_rows: int,
    max_rows: int,
    norm: Norm,
    threshold: float,
    kind: type[Made] = EntityChunks,  # type: ignore[assignment]
) -> Made:
    """Make chunks of at most `max_rows` rows, and of at least `min_rows` rows if the
    table has that many.
    """
    pieces: list[tuple[Piece, ...]] = []
    open_: list[Piece] = []
    size = 0
    for n, summary in enumerate(summaries):
        rows = summary.source_rows
        if open_ and (rows > max_rows or (size and size + rows > max_rows)):
            pieces.append(tuple(open_))
            open_, size = [], 0
        if rows > max_rows:
            parts = math.ceil(rows / max_rows)
            cuts = [rows * k // parts for k in range(parts + 1)]
            pieces += [((n, a, b),) for a, b in itertools.pairwise(cuts)]
            continue
        open_.append((n, 0, rows))
        size += rows
        if size >= min_rows:
            pieces.append(tuple(open_))
            open_, size = [], 0
    if open_:
        pieces.append(tuple(open_))
    offsets = np.cumsum([0, *(s.source_rows for s in summaries)])
    points = [
        sum(
            summaries[n].moments.rows * (b - a) / max(1, summaries[n].source_rows)
            for n, a, b in chunk
        )
        for chunk in pieces
    ]
    moments = [summary.moments for summary in summaries]
    corners = [some.lower for some in moments], [some.upper for some in moments]
    first = [chunk[0][0] for chunk in pieces]
    # a chunk ends before the first partition of the next one, or both are pieces of it
    lower, upper = (
        reduce.reduceat(np.array(each), first) if first else np.zeros((0, 0))
        for reduce, each in zip((np.minimum, np.maximum), corners, strict=True)
    )
    starts = np.array(
        [offsets[chunk[0][0]] + chunk[0][1] for chunk in pieces], np.int64
    )
    return kind(tuple(pieces), starts, np.array(points), lower, upper, norm, threshold)


def serpentine(blocks: np.ndarray) -> np.ndarray:
    """Order block pairs in squares along a serpentine, so that consecutive block pairs
    share chunks.
    """
    square = blocks // SERPENTINE
    back = (square[:, 0] % 2 == 1, blocks[:, 0] % 2 == 1)
    column = np.where(back[0], -square[:, 1], square[:, 1])
    inner = np.where(back[1], -blocks[:, 1], blocks[:, 1])
    return blocks[np.lexsort((inner, blocks[:, 0], column, square[:, 0]))]


@dataclass(frozen=True, eq=False)
class TwoTableChunks:
    """Base class of the chunks of two tables: see `JoinChunks`. The chunks of both
    tables have the same kind.

    The norm and the threshold of the left chunks decide which chunks are compared.
    """

    left: Chunking
    right: Chunking

    def __len__(self) -> int:
        return len(self.left) + len(self.right)

    @property
    def sides(self) -> tuple[Chunking, Chunking]:
        return self.left, self.right

    @property
    def kind(self) -> str:
        return self.left.kind

    @property
    def method(self) -> str | None:
        return self.left.method

    @property
    def first_data(self) -> int:
        return len(self.left)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        return np.concatenate([self.left.rows, self.right.rows])

    @property
    def own_rows(self) -> np.ndarray:
        # rows in halos count as well, because with two tables no pair is found twice
        return self.rows

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        blocks = self.blocks()
        return len(blocks), float(self.rows[blocks].sum())

    @functools.cached_property
    def _blocks(self) -> np.ndarray:
        raise NotImplementedError

    def blocks(self) -> np.ndarray:
        return self._blocks.astype(np.int32)

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        return self.rows[blocks[:, 0]] * self.rows[blocks[:, 1]]

    def describe(self) -> str:
        return self.left.describe(both=True)

    @property
    def identity(self) -> Any:
        return (self.left.identity, self.right.identity)


@dataclass(frozen=True, eq=False)
class EntityPairs(TwoTableChunks):
    """Chunks of consecutive rows of two tables. Two chunks are compared if their boxes
    are near.
    """

    left: EntityChunks
    right: EntityChunks

    @functools.cached_property
    def _blocks(self) -> np.ndarray:
        left, found = self.left, [np.zeros((0, 2), np.int64)]
        lower, upper, filled = self.right.boxes()
        for i in np.flatnonzero(left.rows):
            gap = box_gap(left.norm, left.lower[i], left.upper[i], lower, upper)
            near = filled[gap <= left.threshold]
            found.append(
                np.stack([np.full_like(near, i), near + self.first_data], axis=1)
            )
        return serpentine(np.concatenate(found))

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        own, there = (
            self.left.chunk_of(sampled.first),
            self.right.chunk_of(sampled.second),
        )
        return own[sampled.left], there[sampled.right] + self.first_data
