"""Spatial chunks: each has the points of a region, or a part of these points, with or
without a halo.

With halos, a chunk also has the points around its region, so each pair is found within
one chunk.  Without halos, the chunks of neighboring regions are compared with each
other, so rows are visited more often. Clusterings use no halos, because a row must be
in one chunk only: this chunk keeps the results of the row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.base import host_joiner
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.index.kdtree import Regions
from dask_simjoin.metrics.norms import Array, Norm, box_gap, reach, twice
from dask_simjoin.planning.entity_chunks import (
    Boxes,
    HomeChunks,
    OneTable,
    Pieces,
    Sources,
    TwoTableChunks,
)
from dask_simjoin.planning.near_boxes import near_boxes
from dask_simjoin.planning.sample_pairs import Sampled, SamplePoints
from dask_simjoin.request.messages import counted


class OfRegions(OneTable, Sized):
    """Base class of the chunks of regions. Rows are shuffled to these chunks."""

    regions: Regions
    norm: Norm
    # (regions,) int64: number of each region's first chunk, and how many chunks its own
    # points are in
    first: np.ndarray
    own: np.ndarray
    method: str  # how Dask shuffles: "p2p", "tasks" or "disk"
    # (partitions + 1,) int64: the position of each partition's first row in the whole
    # frame
    offsets: np.ndarray

    kind = "spatial"
    in_frame_order = False
    everywhere = False
    mutual = False

    @property
    def pieces(self) -> Pieces:
        return ((),) * len(self)

    def are_partitions(self, sources: Sources) -> bool:
        return False

    def own_chunk(self, region: Array, position: Array) -> Array:
        return dealt(self.first, self.own, region, position)


def dealt(
    first: np.ndarray, parts: np.ndarray, region: Array, position: Array
) -> Array:
    """Return the chunk of each point.

    If a region has several chunks, they get its points in turn, by position.

    `first`, `parts`: the first chunk and the number of chunks of each region.
    `region`, `position`: the region and the position of each point.
    """
    start, number = (module_of(region).asarray(some) for some in (first, parts))
    if parts.max(initial=1) == 1:
        return start[region]
    return start[region] + position % number[region]


@dataclass(frozen=True, eq=False)
class SpatialChunks(OfRegions):
    """Chunks that have the points of a region and of its halo: see `OfRegions`.

    Usually a region's own points and its halo are one chunk.  If too many points are
    equal, the region cannot be cut further. It is then split by positions: own points
    into `own` chunks, the halo into `halo` further chunks.
    """

    regions: Regions
    norm: Norm
    reach: float  # width of the halo in each coordinate
    threshold: float  # largest total between a region and a point of its halo
    first: np.ndarray
    own: np.ndarray
    # (regions,) int64: number of chunks with points of the halo only; 0 if own points
    # and halo are one chunk
    halo: np.ndarray
    # (chunks,) float64: expected number of own points in each chunk, and of points in
    # its halo
    own_rows: np.ndarray
    halo_rows: np.ndarray
    method: str
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.own_rows)

    def boxes(self) -> Boxes:
        region = np.repeat(np.arange(len(self.own)), self.own + self.halo)
        return (
            self.regions.lower[region],
            self.regions.upper[region],
            np.arange(len(self)),
        )

    def describe(self, both: bool = False) -> str:
        halo = self.halo_rows.sum() / max(self.own_rows.sum(), 1.0)
        regions = counted(len(self.regions), "region")
        return f"spatial: {regions}, {100 * halo:.3g} % of the rows in halos as well"

    @property
    def rows(self) -> np.ndarray:
        return self.own_rows + self.halo_rows

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        i, j = blocks[:, 0], blocks[:, 1]
        own, others = self.own_rows[i], self.own_rows[j]
        return (
            np.where(i == j, own * (own - 1).clip(0) / 2, own * others)
            + own * self.halo_rows[j]
        )

    def halo_chunk(self, region: Array, position: Array) -> Array:
        start = self.first + np.where(self.halo > 0, self.own, 0)
        return dealt(start, np.maximum(self.halo, 1), region, position)

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        number = self.own * (self.own + 1) // 2 + self.own * self.halo
        ends = np.append(self.first, len(self))
        rows = np.add.reduceat(self.rows, ends[:-1]) if len(self) else np.zeros(0)
        # each chunk of own points is compared with all chunks of its region
        return int(number.sum()), float((rows * np.maximum(self.own, 1)).sum())

    def blocks(self) -> np.ndarray:
        """Return block pairs: each chunk of own points with itself and with later
        chunks of its region.
        """
        found = []
        for first, own, halo in zip(
            self.first.tolist(), self.own.tolist(), self.halo.tolist(), strict=True
        ):
            for i in range(own):
                found += [(first + i, first + j) for j in range(i, own + halo)]
        return np.array(found, np.int32).reshape(-1, 2)

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        points, left, right = sampled.first, sampled.left, sampled.right
        region = host_joiner().regions(
            points.x, self.regions, self.reach, self.threshold, self.norm
        )[0]
        swap = region[left] > region[right]
        a, b = np.where(swap, right, left), np.where(swap, left, right)
        same = region[a] == region[b]
        i = self.own_chunk(region[a], points.position[a])
        own = self.own_chunk(region[b], points.position[b])
        j = np.where(same, own, self.halo_chunk(region[a], points.position[b]))
        return np.where(same, np.minimum(i, j), i), np.where(same, np.maximum(i, j), j)

    @property
    def identity(self) -> Any:
        tree = self.regions.arrays
        return (
            tree,
            self.norm,
            self.reach,
            self.threshold,
            self.own,
            self.halo,
            self.method,
            self.offsets,
        )


def spatial_chunks(
    points: SamplePoints,
    regions: Regions,
    norm: Norm,
    reach: float,
    threshold: float,
    max_rows: float,
    offsets: np.ndarray,
    method: str,
) -> SpatialChunks:
    """Make chunks with at most about `max_rows` points each. Sizes are estimated from
    the sample `points`.
    """
    own, rows, needing = host_joiner().regions(
        points.x, regions, reach, threshold, norm
    )
    own_rows = np.bincount(own, points.weight, minlength=len(regions))
    halo_rows = np.bincount(needing, points.weight[rows], minlength=len(regions))
    together = own_rows + halo_rows <= 2 * max_rows
    own_parts = np.where(together, 1, np.ceil(own_rows / max_rows).clip(1)).astype(
        np.int64
    )
    halo_parts = np.where(together, 0, np.ceil(halo_rows / max_rows).clip(1)).astype(
        np.int64
    )
    first = np.cumsum([0, *(own_parts + halo_parts)[:-1]])
    own_of, halo_of = [], []
    for r in range(len(regions)):
        own_of += [own_rows[r] / own_parts[r]] * own_parts[r] + [0.0] * halo_parts[r]
        if together[r]:
            halo_of.append(halo_rows[r])
        else:
            halo_of += [0.0] * own_parts[r] + [
                halo_rows[r] / halo_parts[r]
            ] * halo_parts[r]
    return SpatialChunks(
        regions,
        norm,
        reach,
        threshold,
        first,
        own_parts,
        halo_parts,
        np.array(own_of),
        np.array(halo_of),
        method,
        offsets,
    )


@dataclass(frozen=True, eq=False)
class ClusterChunks(SpatialChunks):
    """Chunks that have the points of a region, and all other points near it: within
    the join's distance, or twice the distance.

    So a chunk has all neighbors of its own points. With twice the distance, it also has
    all neighbors of the points near its region, and decides without other chunks which
    of these are core points. `reach` and `threshold` are for the width of the halo.
    """

    # `reach` and `threshold` for the distance itself: only points within these may be
    # neighbors of own points
    near_reach: float
    near_threshold: float

    mutual = True


def cluster_chunks(
    points: SamplePoints,
    regions: Regions,
    norm: Norm,
    threshold: float,
    times: int,
    offsets: np.ndarray,
    method: str,
) -> ClusterChunks:
    """Make one chunk per region. Sizes are estimated from the sample `points`.

    `times`: width of the halos, 1 or 2 times the distance of the join.
    """
    limit = threshold if times == 1 else twice(norm, threshold)
    away = reach(norm, limit)
    own, rows, needing = host_joiner().regions(
        points.x, regions, away, limit, norm, mutual=True
    )
    number = len(regions)
    own_rows = np.bincount(own, points.weight, minlength=number)
    halo_rows = np.bincount(needing, points.weight[rows], minlength=number)
    one, none = np.ones(number, np.int64), np.zeros(number, np.int64)
    return ClusterChunks(
        regions,
        norm,
        away,
        limit,
        np.arange(number),
        one,
        none,
        own_rows,
        halo_rows,
        method,
        offsets,
        reach(norm, threshold),
        threshold,
    )


NO_HALO: dict[str, Any] = {"reach": -math.inf, "threshold": -1.0, "norm": 2}
"""Arguments of `Joiner.regions` that give empty halos."""


@dataclass(frozen=True, eq=False)
class RegionChunks(HomeChunks, OfRegions):
    """Chunks that have the points of a region. A region with too many points has
    several chunks.
    """

    regions: Regions
    norm: Norm
    # two regions are compared if the total between the nearest points of their boxes is
    # at most this
    limit: float
    first: np.ndarray
    own: np.ndarray
    rows: np.ndarray
    method: str
    offsets: np.ndarray

    reach, threshold = NO_HALO["reach"], NO_HALO["threshold"]

    @functools.cached_property
    def region(self) -> np.ndarray:
        """The region of each chunk (chunks,), int64."""
        return np.repeat(np.arange(len(self.own)), self.own)

    def boxes(self) -> Boxes:
        return (
            self.regions.lower[self.region],
            self.regions.upper[self.region],
            np.arange(len(self)),
        )

    def describe(self, both: bool = False) -> str:
        return f"spatial: {counted(len(self.regions), 'region')}{', the same for both tables' * both}"

    def halo_chunk(self, region: Array, position: Array) -> Array:
        return position  # `position` is empty, because there are no halos

    def _near(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield each chunk with itself and with the later chunks of its own region and
        of near regions.
        """
        boxes = self.regions.lower, self.regions.upper
        limits = np.full(len(self.own), self.limit)
        found = near_boxes(self.norm, boxes, boxes, limits, is_self_join=True)
        single = len(self) == len(self.own)
        for r, (numbers, gap) in enumerate(found):
            # with NaN bounds, the region itself would not be near
            near = numbers[(gap <= self.limit) | (numbers == r)]
            # usually each region is one chunk, with the same number
            later = near if single else self._chunks_of(near)
            for k in range(int(self.own[r])):
                yield int(self.first[r]) + k, later[k:]

    def _chunks_of(self, regions: np.ndarray) -> np.ndarray:
        """Return the chunks of some regions, ascending like these (k,)."""
        own, first = self.own[regions], self.first[regions]
        before = np.repeat(np.cumsum(own) - own, own)
        found: np.ndarray = np.repeat(first, own) + np.arange(own.sum()) - before
        return found

    def region_of(self, points: SamplePoints) -> np.ndarray:
        """Return the region of each sample point."""
        region: np.ndarray = host_joiner().regions(points.x, self.regions, **NO_HALO)[0]
        return region

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        points = sampled.first
        chunk = self.own_chunk(self.region_of(points), points.position)
        i, j = chunk[sampled.left], chunk[sampled.right]
        return np.minimum(i, j), np.maximum(i, j)

    @property
    def identity(self) -> Any:
        return (
            self.regions.arrays,
            self.norm,
            self.limit,
            self.own,
            self.method,
            self.offsets,
        )


def region_chunks(
    points: SamplePoints,
    regions: Regions,
    norm: Norm,
    limit: float,
    max_rows: float,
    offsets: np.ndarray,
    method: str,
) -> RegionChunks:
    """Make chunks with at most about `max_rows` points each. Sizes are estimated from
    the sample `points`.
    """
    region = host_joiner().regions(points.x, regions, **NO_HALO)[0]
    first, own, rows = _split(region, points.weight, len(regions), max_rows)
    return RegionChunks(regions, norm, limit, first, own, rows, method, offsets)


def _split(
    region: np.ndarray, weight: np.ndarray, regions: int, max_rows: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each region's first chunk and number of chunks, and the expected rows of
    each chunk.

    `region`: the region of each sample point. `weight`: the number of points that each
    sample point represents.
    """
    rows = np.bincount(region, weight, minlength=regions)
    own = np.ceil(rows / max_rows).clip(1).astype(np.int64)
    return np.cumsum([0, *own[:-1]]), own, np.repeat(rows / own, own)


@dataclass(frozen=True, eq=False)
class ReachChunks(RegionChunks):
    """Chunks that have all points within reach of a region. A point may be in several
    chunks.
    """

    # width of the halo in each coordinate; `limit` is the largest total between the
    # region and a point of its halo
    reach: float = 0.0

    everywhere = True

    @property
    def threshold(self) -> float:
        return self.limit

    @property
    def identity(self) -> Any:
        return (*super().identity, self.reach)


def reach_chunks(
    points: SamplePoints,
    regions: Regions,
    norm: Norm,
    reach: float,
    limit: float,
    max_rows: float,
    offsets: np.ndarray,
    method: str,
) -> ReachChunks:
    """Make chunks with at most about `max_rows` points each. Sizes are estimated from
    the sample `points`.
    """
    _, places, region = host_joiner().regions(
        points.x, regions, reach, limit, norm, everywhere=True
    )
    first, own, rows = _split(region, points.weight[places], len(regions), max_rows)
    return ReachChunks(regions, norm, limit, first, own, rows, method, offsets, reach)


@dataclass(frozen=True, eq=False)
class RegionPairs(TwoTableChunks):
    """Chunks of two tables that are cut into the same regions.

    If the chunks of the right table have all points within reach of their regions, left
    and right chunks of the same region are compared. Otherwise, chunks of near regions
    are compared.
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
                near |= (
                    box_gap(left.norm, lower[r], upper[r], lower, upper) <= left.limit
                )[region]
            others = np.flatnonzero(near) + self.first_data
            found.append(
                np.stack(np.meshgrid(own, others, indexing="ij"), axis=-1).reshape(
                    -1, 2
                )
            )
        return np.concatenate(found)

    def chunk_pairs(self, sampled: Sampled) -> tuple[np.ndarray, np.ndarray]:
        data, others, left, right = (
            self.right,
            sampled.second,
            sampled.left,
            sampled.right,
        )
        region = self.left.region_of(sampled.first)
        own = self.left.own_chunk(region, sampled.first.position)
        if data.everywhere:
            there = data.own_chunk(region[left], others.position[right])
        else:
            there = data.own_chunk(data.region_of(others), others.position)[right]
        return own[left], there + self.first_data
