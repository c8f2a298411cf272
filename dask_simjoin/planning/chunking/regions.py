"""Chunks of the points of regions, without halos: each region meets those around it.

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
from dask_simjoin.engine.index.regions import Regions
from dask_simjoin.metrics.norms import Norm, box_gap
from dask_simjoin.options.messages import counted
from dask_simjoin.planning.chunking.base import Boxes, Pieces, Sources
from dask_simjoin.planning.chunking.entity import HomeChunks
from dask_simjoin.planning.chunking.spatial import dealt
from dask_simjoin.planning.statistics.estimate import Meet
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints

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

    def chunk_pairs(self, points: SamplePoints, others: SamplePoints) -> Meet:
        """Return what tells the chunks in which pairs of sample points meet."""
        chunk = self.own_chunk(self.region_of(points), points.position)

        def meet(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            i, j = chunk[left], chunk[right]
            return np.minimum(i, j), np.maximum(i, j)

        return meet

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
