"""What planning, expressions and reports ask of chunks, of whatever kind they are.

A kind of chunks is a class of its own: `EntityChunks`, `SpatialChunks`, `RegionChunks` of one table, and
`EntityPairs`, `RegionPairs` of two.  Who uses chunks asks them, and never which kind they are.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard

import numpy as np

from dask_simjoin.engine.index.regions import Regions
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Array
from dask_simjoin.planning.statistics.estimate import Meet
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints

Piece = tuple[int, int, int]
"""Number of a partition, and the rows start ... stop-1 of it."""

Pieces = tuple[tuple[Piece, ...], ...]
"""What each chunk is made of."""

Sources = tuple[tuple[int, str], ...]
"""Of each partition of a table: its rows, and a digest of its box."""

Boxes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Lower and upper bounds (n, d) of the chunks that may have points, and the numbers (n,) of those."""


BY_WORKER = "by worker"
"""How rows are sent to chunks that workers hold: by one task for all that a thread of a worker has."""


class JoinChunks(Protocol):
    """The chunks of a join, numbered through, and which of them meet."""

    @property
    def kind(self) -> str:
        """What chunks are made of: "entity", "spatial" or "replicated"."""

    @property
    def method(self) -> str | None:
        """How Dask shuffles rows to their chunks; None: rows stay where they are."""

    @property
    def sides(self) -> tuple[Chunking, ...]:
        """The chunks of each table."""

    @property
    def first_data(self) -> int:
        """The number of the first chunk that is searched: 0 if rows are joined with those of their table."""

    @property
    def rows(self) -> np.ndarray:
        """Points expected in each chunk (chunks,), float64."""

    @property
    def own_rows(self) -> np.ndarray:
        """Those of them that are in no other chunk as its own."""

    @property
    def visits(self) -> tuple[int, float]:
        """How many blocks there are, and how many rows they visit in all."""

    @property
    def possible(self) -> int:
        """How many block pairs there are, if none is left out."""

    @property
    def identity(self) -> Any:
        """What tells chunks from others, as Dask's tokens need it."""

    def __len__(self) -> int: ...

    def blocks(self) -> np.ndarray:
        """Pairs of chunks (blocks, 2) that meet, int32."""

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Pairs of points that each block compares, if none is left out."""

    def chunk_pairs(self, points: SamplePoints, others: SamplePoints) -> Meet:
        """Return what tells the chunks in which pairs of sample points of both tables meet."""

    def describe(self) -> str:
        """Say in words how rows lie in chunks."""


class Chunking(JoinChunks, Protocol):
    """The chunks of one table."""

    @property
    def norm(self) -> Norm:
        """The norm that decides which chunks meet."""

    @property
    def in_frame_order(self) -> bool:
        """Whether rows of chunks, one chunk after the other, are the rows of the frame in their order."""

    @property
    def pieces(self) -> Pieces:
        """The partitions' rows that each chunk is made of; none where rows are shuffled."""

    def boxes(self) -> Boxes:
        """Boxes of the chunks that may have points."""

    def are_partitions(self, sources: Sources) -> bool:
        """Whether each partition of a table of these sources is one chunk."""

    def describe(self, both: bool = False) -> str:
        """Say in words how rows lie in chunks; `both`: those of two tables do."""


class Shuffled(Chunking, Protocol):
    """The chunks of one table whose rows are shuffled to them."""

    @property
    def regions(self) -> Regions:
        """The regions whose points make up chunks."""

    @property
    def everywhere(self) -> bool:
        """Whether chunks have all points within reach of their regions, and each row is in several."""

    @property
    def method(self) -> str:
        """How Dask shuffles: "p2p", "tasks" or "disk"; or `BY_WORKER`, in which it does not."""

    @property
    def reach(self) -> float:
        """How far around a region they are, in one coordinate."""

    @property
    def threshold(self) -> float:
        """The same as the norm decides."""

    @property
    def offsets(self) -> np.ndarray:
        """The number of each partition's first row, in the whole frame."""

    def own_chunk(self, region: Array, position: Array) -> Array:
        """The chunks of points of regions."""

    def halo_chunk(self, region: Array, position: Array) -> Array:
        """The chunks of points in the halos of regions."""


def is_shuffled(chunks: Chunking) -> TypeGuard[Shuffled]:
    """Whether rows are shuffled to these chunks."""
    return chunks.method is not None
