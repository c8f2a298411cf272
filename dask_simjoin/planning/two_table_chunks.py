"""The chunks of two tables, and which of them are compared.

Chunks are numbered consecutively: first the left table's, then the right table's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.metrics.norms import box_gap
from dask_simjoin.planning.entity_chunks import Chunking, EntityChunks, serpentine
from dask_simjoin.planning.spatial_chunks import RegionChunks
from dask_simjoin.planning.statistics.sample_pairs import Sampled


@dataclass(frozen=True, eq=False)
class TwoTableChunks:
    """Chunks of two tables, both of one kind.

    Attributes
    ----------
    left, right : Chunking
        The chunks of each table; the left ones decide which chunks are compared.
    """

    left: Chunking
    right: Chunking

    def __len__(self) -> int:
        return len(self.left) + len(self.right)

    @property
    def sides(self) -> tuple[Chunking, Chunking]:
        """The chunks of each table."""
        return self.left, self.right

    @property
    def kind(self) -> str:
        """Kind of the chunks."""
        return self.left.kind

    @property
    def method(self) -> str | None:
        """How Dask shuffles rows to their chunks; None: rows stay where they are."""
        return self.left.method

    @property
    def first_data(self) -> int:
        """Number of the right table's first chunk."""
        return len(self.left)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """Points expected in each chunk."""
        return np.concatenate([self.left.rows, self.right.rows])

    @property
    def own_rows(self) -> np.ndarray:
        """Points expected in each chunk; rows in halos count, as no pair of two tables is found twice."""
        return self.rows

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        """Number of block pairs, and number of rows that they visit in all."""
        blocks = self.blocks()
        return len(blocks), float(self.rows[blocks].sum())

    @functools.cached_property
    def _blocks(self) -> np.ndarray:
        raise NotImplementedError

    def blocks(self) -> np.ndarray:
        """Return the pairs of a left and a right chunk that are compared."""
        return self._blocks.astype(np.int32)

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Return the number of pairs of points of each block."""
        return self.rows[blocks[:, 0]] * self.rows[blocks[:, 1]]

    def describe(self) -> str:
        """Describe in words how rows are assigned to chunks."""
        return self.left.describe(both=True)

    @property
    def identity(self) -> Any:
        """Value that identifies these chunks in Dask's tokens."""
        return (self.left.identity, self.right.identity)


@dataclass(frozen=True, eq=False)
class EntityPairs(TwoTableChunks):
    """Chunks of consecutive rows of two tables; chunks with near boxes are compared."""

    left: EntityChunks
    right: EntityChunks

    @functools.cached_property
    def _blocks(self) -> np.ndarray:
        left, found = self.left, [np.zeros((0, 2), np.int64)]
        lower, upper, filled = self.right.boxes()
        for i in np.flatnonzero(left.rows):
            gap = box_gap(left.norm, left.lower[i], left.upper[i], lower, upper)
            near = filled[gap <= left.threshold]
            found.append(np.stack([np.full_like(near, i), near + self.first_data], axis=1))
        return serpentine(np.concatenate(found))

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        """Return the left and the right chunk (pairs,) of each sampled pair."""
        own, there = self.left.chunk_of(sampled.first), self.right.chunk_of(sampled.second)
        return own[sampled.left], there[sampled.right] + self.first_data


@dataclass(frozen=True, eq=False)
class RegionPairs(TwoTableChunks):
    """Chunks of the same regions of two tables.

    If right chunks have all points within reach of their regions, each region is compared with itself only.
    Otherwise near regions are compared.
    """

    left: RegionChunks
    right: RegionChunks

    @functools.cached_property
    def _blocks(self) -> np.ndarray:
        left, region, found = self.left, self.right.region, [np.zeros((0, 2), np.int64)]
        lower, upper = left.regions.lower, left.regions.upper
        for r in range(len(left.own)):
            own = left.first[r] + np.arange(left.own[r])
            near = region == r
            if not self.right.everywhere:
                near |= (box_gap(left.norm, lower[r], upper[r], lower, upper) <= left.limit)[region]
            others = np.flatnonzero(near) + self.first_data
            found.append(np.stack(np.meshgrid(own, others, indexing="ij"), axis=-1).reshape(-1, 2))
        return np.concatenate(found)

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        """Return the left and the right chunk (pairs,) of each sampled pair."""
        data, others, left, right = self.right, sampled.second, sampled.left, sampled.right
        region = self.left.region_of(sampled.first)
        own = self.left.own_chunk(region, sampled.first.position)
        if data.everywhere:
            there = data.own_chunk(region[left], others.position[right])
        else:
            there = data.own_chunk(data.region_of(others), others.position)[right]
        return own[left], there + self.first_data
