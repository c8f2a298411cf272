"""Chunks of the points of regions, with or without halos.

Rows are visited more often than with halos, but each row is in one chunk only: what a clustering finds out
about a row is known where the row is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.base import host_joiner
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.index.regions import Regions
from dask_simjoin.metrics.norms import Array, Norm, box_gap
from dask_simjoin.planning.entity_chunks import Boxes, HomeChunks, Pieces, Sources
from dask_simjoin.planning.statistics.sample_pairs import Sampled, SamplePoints
from dask_simjoin.request.messages import counted


def dealt(first: np.ndarray, parts: np.ndarray, region: Array, position: Array) -> Array:
    """The chunks to which points of regions are dealt by their row numbers.

    `first`, `parts`: the first chunk and the number of chunks of each region.
    """
    start, number = (module_of(region).asarray(some) for some in (first, parts))
    if parts.max(initial=1) == 1:
        return start[region]
    return start[region] + position % number[region]


@dataclass(frozen=True, eq=False)
class SpatialChunks:
    """Chunks of the points of regions.

    A region's own points and its halo are one chunk, joined in one go.  Where they are too many
    and cutting space does not help, as with many equal points, they are dealt out to several
    chunks by their row numbers: own points to `own` of them, and the halo to `halo` more.

    Attributes
    ----------
    regions : Regions
    norm : int or float
    reach, threshold : float
        Of the halo, in one coordinate and as the norm decides.
    first, own, halo : array (regions,), int64
        Each region's first chunk; its numbers of chunks for own points and for its halo only
        (0: the halo is part of the chunk of the own points).
    own_rows, halo_rows : array (chunks,), float64
        Points expected in each chunk.
    method : str
        How Dask shuffles: "p2p", "tasks" or "disk".
    offsets : array (partitions + 1,), int64
        The number of each partition's first row, in the whole frame.
    """

    regions: Regions
    norm: Norm
    reach: float
    threshold: float
    first: np.ndarray
    own: np.ndarray
    halo: np.ndarray
    own_rows: np.ndarray
    halo_rows: np.ndarray
    method: str
    offsets: np.ndarray

    kind = "spatial"
    in_frame_order = False
    everywhere = False
    first_data = 0

    def __len__(self) -> int:
        return len(self.own_rows)

    @property
    def sides(self) -> tuple[SpatialChunks]:
        """These chunks, of one table."""
        return (self,)

    @property
    def pieces(self) -> Pieces:
        """None: rows are shuffled."""
        return ((),) * len(self)

    def boxes(self) -> Boxes:
        """Boxes of the regions of all chunks, which their own points are in."""
        region = np.repeat(np.arange(len(self.own)), self.own + self.halo)
        return self.regions.lower[region], self.regions.upper[region], np.arange(len(self))

    def are_partitions(self, sources: Sources) -> bool:
        """Whether partitions are chunks: no region's rows are one."""
        return False

    def describe(self, both: bool = False) -> str:
        """Say in words how rows lie in chunks."""
        halo = self.halo_rows.sum() / max(self.own_rows.sum(), 1.0)
        regions = counted(len(self.regions), "region")
        return f"spatial: {regions}, {100 * halo:.3g} % of the rows in halos as well"

    @property
    def rows(self) -> np.ndarray:
        """Points expected in each chunk."""
        return self.own_rows + self.halo_rows

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Pairs of points that each block compares, if none is left out."""
        i, j = blocks[:, 0], blocks[:, 1]
        own, others = self.own_rows[i], self.own_rows[j]
        return np.where(i == j, own * (own - 1).clip(0) / 2, own * others) + own * self.halo_rows[j]

    def own_chunk(self, region: Array, position: Array) -> Array:
        """The chunks of points of regions."""
        return dealt(self.first, self.own, region, position)

    def halo_chunk(self, region: Array, position: Array) -> Array:
        """The chunks of points in the halos of regions."""
        start = self.first + np.where(self.halo > 0, self.own, 0)
        return dealt(start, np.maximum(self.halo, 1), region, position)

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        """How many blocks there are, and how many rows they visit in all."""
        number = self.own * (self.own + 1) // 2 + self.own * self.halo
        ends = np.append(self.first, len(self))
        rows = np.add.reduceat(self.rows, ends[:-1]) if len(self) else np.zeros(0)
        # a chunk of own points meets all of its region, and one of a halo all of the own points
        return int(number.sum()), float((rows * np.maximum(self.own, 1)).sum())

    def blocks(self) -> np.ndarray:
        """Each chunk of own points with itself, and with the others of its region."""
        found = []
        for first, own, halo in zip(self.first.tolist(), self.own.tolist(), self.halo.tolist(), strict=True):
            for i in range(own):
                found += [(first + i, first + j) for j in range(i, own + halo)]
        return np.array(found, np.int32).reshape(-1, 2)

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        """Return the two chunks (pairs,), the first one first, of each sampled pair."""
        points, left, right = sampled.first, sampled.left, sampled.right
        region = host_joiner().regions(points.x, self.regions, self.reach, self.threshold, self.norm)[0]
        swap = region[left] > region[right]
        a, b = np.where(swap, right, left), np.where(swap, left, right)
        same = region[a] == region[b]
        i = self.own_chunk(region[a], points.position[a])
        own = self.own_chunk(region[b], points.position[b])
        j = np.where(same, own, self.halo_chunk(region[a], points.position[b]))
        return np.where(same, np.minimum(i, j), i), np.where(same, np.maximum(i, j), j)

    @property
    def identity(self) -> Any:
        """What tells two of them apart."""
        tree = self.regions.arrays
        return (tree, self.norm, self.reach, self.threshold, self.own, self.halo, self.method, self.offsets)


def spatial_chunks(points: SamplePoints, regions: Regions, norm: Norm, reach: float, threshold: float,
                   most: float, offsets: np.ndarray, method: str) -> SpatialChunks:  # fmt: skip
    """Chunks of about `most` points at most, as far as the sample tells."""
    own, rows, needing = host_joiner().regions(points.x, regions, reach, threshold, norm)
    own_rows = np.bincount(own, points.weight, minlength=len(regions))
    halo_rows = np.bincount(needing, points.weight[rows], minlength=len(regions))
    together = own_rows + halo_rows <= 2 * most
    own_parts = np.where(together, 1, np.ceil(own_rows / most).clip(1)).astype(np.int64)
    halo_parts = np.where(together, 0, np.ceil(halo_rows / most).clip(1)).astype(np.int64)
    first = np.cumsum([0, *(own_parts + halo_parts)[:-1]])
    own_of, halo_of = [], []
    for r in range(len(regions)):
        own_of += [own_rows[r] / own_parts[r]] * own_parts[r] + [0.0] * halo_parts[r]
        if together[r]:
            halo_of.append(halo_rows[r])
        else:
            halo_of += [0.0] * own_parts[r] + [halo_rows[r] / halo_parts[r]] * halo_parts[r]
    return SpatialChunks(
        regions, norm, reach, threshold, first, own_parts, halo_parts, np.array(own_of), np.array(halo_of),
        method, offsets,
    )  # fmt: skip


NO_HALO: dict[str, Any] = {"reach": -math.inf, "threshold": -1.0, "norm": 2}
"""What makes `Joiner.regions` find no point that another region needs."""


@dataclass(frozen=True, eq=False)
class RegionChunks(HomeChunks):
    """Chunks of the points of regions; those of a region that is too full are dealt to several.

    Attributes
    ----------
    regions : Regions
    norm : int or float
    limit : float
        Regions meet whose boxes the norm says to be within it.
    first, own : array (regions,), int64
        Each region's first chunk, and how many it has.
    rows : array (chunks,), float64
        Points expected in each chunk.
    method : str
        How Dask shuffles: "p2p", "tasks" or "disk".
    offsets : array (partitions + 1,), int64
        The number of each partition's first row, in the whole frame.
    """

    regions: Regions
    norm: Norm
    limit: float
    first: np.ndarray
    own: np.ndarray
    rows: np.ndarray
    method: str
    offsets: np.ndarray

    reach, threshold = NO_HALO["reach"], NO_HALO["threshold"]
    kind = "spatial"
    in_frame_order = False
    everywhere = False

    @property
    def sides(self) -> tuple[RegionChunks]:
        """These chunks, of one table."""
        return (self,)

    @property
    def pieces(self) -> Pieces:
        """None: rows are shuffled."""
        return ((),) * len(self)

    @functools.cached_property
    def region(self) -> np.ndarray:
        """The region of each chunk (chunks,), int64."""
        return np.repeat(np.arange(len(self.own)), self.own)

    def boxes(self) -> Boxes:
        """Boxes of the regions of all chunks."""
        return self.regions.lower[self.region], self.regions.upper[self.region], np.arange(len(self))

    def are_partitions(self, sources: Sources) -> bool:
        """Whether partitions are chunks: no region's rows are one."""
        return False

    def describe(self, both: bool = False) -> str:
        """Say in words how rows lie in chunks; `both`: those of two tables do."""
        return f"spatial: {counted(len(self.regions), 'region')}{', the same of both tables' * both}"

    def own_chunk(self, region: Any, position: Any) -> Any:
        """The chunks of points of regions."""
        return dealt(self.first, self.own, region, position)

    def halo_chunk(self, region: Any, position: Any) -> Any:
        """Those of points in halos, of which there are none."""
        return position

    def _near(self) -> Iterator[tuple[int, np.ndarray]]:
        """Each chunk, and those from it on whose regions are its own or within the limit of it."""
        lower, upper = self.regions.lower, self.regions.upper
        for r in range(len(self.own)):
            near = box_gap(self.norm, lower[r], upper[r], lower[r:], upper[r:]) <= self.limit
            near[0] = True  # also where bounds are no numbers that gaps can be told of
            later = np.flatnonzero(near[self.region[self.first[r] :] - r]) + self.first[r]
            for k in range(int(self.own[r])):
                yield int(self.first[r]) + k, later[k:]

    def region_of(self, points: SamplePoints) -> np.ndarray:
        """The regions of sample points."""
        region: np.ndarray = host_joiner().regions(points.x, self.regions, **NO_HALO)[0]
        return region

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        """Return the two chunks (pairs,), the first one first, of each sampled pair."""
        points = sampled.first
        chunk = self.own_chunk(self.region_of(points), points.position)
        i, j = chunk[sampled.left], chunk[sampled.right]
        return np.minimum(i, j), np.maximum(i, j)

    @property
    def identity(self) -> Any:
        """What tells two of them apart."""
        return (self.regions.arrays, self.norm, self.limit, self.own, self.method, self.offsets)


def region_chunks(points: SamplePoints, regions: Regions, norm: Norm, limit: float, most: float,
                  offsets: np.ndarray, method: str) -> RegionChunks:  # fmt: skip
    """Chunks of about `most` points at most, as far as the sample tells."""
    region = host_joiner().regions(points.x, regions, **NO_HALO)[0]
    rows = np.bincount(region, points.weight, minlength=len(regions))
    own = np.ceil(rows / most).clip(1).astype(np.int64)
    first = np.cumsum([0, *own[:-1]])
    return RegionChunks(regions, norm, limit, first, own, np.repeat(rows / own, own), method, offsets)


@dataclass(frozen=True, eq=False)
class ReachChunks(RegionChunks):
    """Chunks of all points within reach of regions: one in several of them, where it meets other points.

    Attributes
    ----------
    reach : float
        Of a region, in one coordinate; `limit` is that of the norm.
    """

    reach: float = 0.0

    everywhere = True

    @property
    def threshold(self) -> float:
        """How far from a region's box its points are at most."""
        return self.limit

    @property
    def identity(self) -> Any:
        """What tells two of them apart."""
        return (*super().identity, self.reach)


def reach_chunks(points: SamplePoints, regions: Regions, norm: Norm, reach: float, limit: float, most: float,
                 offsets: np.ndarray, method: str) -> ReachChunks:  # fmt: skip
    """Chunks of about `most` points at most, as far as the sample tells."""
    _, places, region = host_joiner().regions(points.x, regions, reach, limit, norm, everywhere=True)
    rows = np.bincount(region, points.weight[places], minlength=len(regions))
    own = np.ceil(rows / most).clip(1).astype(np.int64)
    first = np.cumsum([0, *own[:-1]])
    expected = np.repeat(rows / own, own)
    return ReachChunks(regions, norm, limit, first, own, expected, method, offsets, reach)
