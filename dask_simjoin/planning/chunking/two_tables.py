"""The chunks of two tables that are joined, and which of them meet.

Chunks are numbered through: the right table's follow the left one's.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.base import host_joiner
from dask_simjoin.metrics.norms import Norm, box_gap
from dask_simjoin.planning.chunking.entity import EntityChunks, serpentine
from dask_simjoin.planning.chunking.regions import NO_HALO, Chunking, ReachChunks, RegionChunks
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints


@dataclass(frozen=True, eq=False)
class TwoTables:
    """Chunks of two tables, both of rows as they come or both of regions.

    Attributes
    ----------
    left, right : EntityChunks or RegionChunks
        Of regions; the right ones have all points within reach of them, if they are ReachChunks.
    norm : int or float
    threshold : float
        Chunks meet whose boxes the norm says to be within it.
    """

    left: Chunking
    right: Chunking
    norm: Norm
    threshold: float

    def __len__(self) -> int:
        return len(self.left) + len(self.right)

    @property
    def kind(self) -> str:
        """What chunks are made of."""
        return self.left.kind

    @property
    def method(self) -> str:
        """How Dask shuffles rows into regions."""
        method: str = self.left.method  # type: ignore[union-attr]
        return method

    @property
    def possible(self) -> int:
        """How many block pairs there are, if none is left out."""
        return len(self.left) * len(self.right)

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """Points expected in each chunk."""
        return np.concatenate([self.left.rows, self.right.rows])

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        """How many blocks there are, and how many rows they visit in all."""
        blocks = self.blocks()
        return len(blocks), float(self.rows[blocks].sum())

    @functools.cached_property
    def _blocks(self) -> np.ndarray:
        first = len(self.left)
        found = [np.zeros((0, 2), np.int64)]
        if isinstance(self.left, EntityChunks) and isinstance(self.right, EntityChunks):
            filled = np.flatnonzero(self.right.rows)
            lower, upper = self.right.lower[filled], self.right.upper[filled]
            for i in np.flatnonzero(self.left.rows):
                gap = box_gap(self.norm, self.left.lower[i], self.left.upper[i], lower, upper)
                near = filled[gap <= self.threshold]
                found.append(np.stack([np.full_like(near, i), near + first], axis=1))
            return serpentine(np.concatenate(found))
        assert isinstance(self.left, RegionChunks) and isinstance(self.right, RegionChunks)
        lower, upper = self.left.regions.lower, self.left.regions.upper
        region = np.repeat(np.arange(len(self.right.own)), self.right.own)
        for r in range(len(self.left.own)):
            own = self.left.first[r] + np.arange(self.left.own[r])
            near = region == r
            if not isinstance(self.right, ReachChunks):
                near |= (box_gap(self.norm, lower[r], upper[r], lower, upper) <= self.threshold)[region]
            others = np.flatnonzero(near) + first
            found.append(np.stack(np.meshgrid(own, others, indexing="ij"), axis=-1).reshape(-1, 2))
        return np.concatenate(found)

    def blocks(self) -> np.ndarray:
        """Pairs of a left and a right chunk that meet."""
        return self._blocks.astype(np.int32)

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Pairs of points that each block compares, if none is left out."""
        return self.rows[blocks[:, 0]] * self.rows[blocks[:, 1]]

    def chunk_pairs(self, points: tuple[SamplePoints, SamplePoints]) -> Any:
        """A function: the chunks in which pairs of sample points meet."""
        first = len(self.left)
        if isinstance(self.left, EntityChunks) and isinstance(self.right, EntityChunks):
            sides = zip((self.left, self.right), points, strict=True)
            chunk = [np.searchsorted(c.starts, p.position, side="right") - 1 for c, p in sides]
            return lambda left, right: (chunk[0][left], chunk[1][right] + first)
        assert isinstance(self.left, RegionChunks) and isinstance(self.right, RegionChunks)
        queries, data = self.left, self.right
        region = host_joiner().regions(points[0].x, queries.regions, **NO_HALO)[0]
        own = queries.own_chunk(region, points[0].position)

        if not isinstance(data, ReachChunks):
            others = host_joiner().regions(points[1].x, data.regions, **NO_HALO)[0]
            there = data.own_chunk(others, points[1].position) + first
            return lambda left, right: (own[left], there[right])

        def meet(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return own[left], data.own_chunk(region[left], points[1].position[right]) + first

        return meet

    @property
    def identity(self) -> Any:
        """What tells two of them apart."""
        return (self.left.identity, self.right.identity, self.norm, self.threshold)
