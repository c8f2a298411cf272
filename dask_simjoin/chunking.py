"""Which rows make up a chunk, and which chunks meet.

Entity chunks are rows that follow each other in the frame: partitions as they come, small ones
together, large ones in pieces.  Spatial chunks are the points of a region and of its halo, for
which the rows are shuffled first.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.arrays import module_of
from dask_simjoin.backends.base import host
from dask_simjoin.estimate import SamplePoints
from dask_simjoin.index.regions import Regions
from dask_simjoin.norms import Norm, box_gap
from dask_simjoin.partition import PartitionSummary

SERPENTINE = 4
"""Chunks on a side of the squares in which block pairs are numbered."""

Piece = tuple[int, int, int]
"""Number of a partition, and the rows start ... stop-1 of it."""


class Meetings:
    """Chunks that meet in pairs, and what follows from which do."""

    rows: np.ndarray
    """Points expected in each chunk (chunks,), float64."""

    def _near(self) -> Iterator[tuple[int, np.ndarray]]:
        """Chunks, and for each those from it on that it meets, itself first."""
        raise NotImplementedError

    @functools.cached_property
    def visits(self) -> tuple[int, float]:
        """How many blocks there are, and how many rows they visit in all."""
        number, rows = 0, 0.0
        for first, near in self._near():
            number += len(near)
            rows += (len(near) - 1) * self.rows[first] + float(self.rows[near].sum())
        return number, rows

    def blocks(self) -> np.ndarray:
        """Pairs of chunks i <= j that meet."""
        found = [np.zeros((0, 2), np.int64)]
        for first, near in self._near():
            found.append(np.stack([np.full_like(near, first), near], axis=1))
        return serpentine(np.concatenate(found)).astype(np.int32)

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Pairs of points that each block compares, if none is left out."""
        a, b = self.rows[blocks[:, 0]], self.rows[blocks[:, 1]]
        return np.where(blocks[:, 0] == blocks[:, 1], a * (a - 1).clip(0) / 2, a * b)


@dataclass(frozen=True, eq=False)
class EntityChunks(Meetings):
    """Chunks of rows that follow each other.

    Attributes
    ----------
    pieces : tuple of tuple of Piece
        What each chunk is made of.
    starts : array (chunks,), int64
        The first row of each chunk, in the whole frame.
    rows : array (chunks,), float64
        Points of each chunk.
    lower, upper : array (chunks, d), float64
        The chunks' boxes.
    norm : int or float
    threshold : float
        Chunks meet whose boxes the norm says to be within it.
    """

    pieces: tuple[tuple[Piece, ...], ...]
    starts: np.ndarray
    rows: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    norm: Norm
    threshold: float

    kind = "entity"

    def __len__(self) -> int:
        return len(self.pieces)

    def _near(self) -> Iterator[tuple[int, np.ndarray]]:
        """Each chunk that has points, and those from it on whose boxes are within the threshold."""
        filled = np.flatnonzero(self.rows)
        lower, upper = self.lower[filled], self.upper[filled]
        for i, first in enumerate(filled.tolist()):
            gap = box_gap(self.norm, lower[i], upper[i], lower[i:], upper[i:])
            yield first, filled[i:][gap <= self.threshold]

    def chunk_pairs(self, points: SamplePoints) -> Any:
        """A function: the chunks in which pairs of sample points meet."""
        chunk = np.searchsorted(self.starts, points.position, side="right") - 1
        return lambda left, right: (chunk[left], chunk[right])

    @property
    def identity(self) -> Any:
        """What tells two of them apart."""
        return self.pieces


def entity_chunks(summaries: list[PartitionSummary], least: int, most: int, norm: Norm,
                  threshold: float) -> EntityChunks:  # fmt: skip
    """Chunks of at least `least` rows, if there are as many, and at most `most`."""
    pieces: list[tuple[Piece, ...]] = []
    open_: list[Piece] = []
    size = 0

    def close() -> None:
        nonlocal open_, size
        if open_:
            pieces.append(tuple(open_))
        open_, size = [], 0

    for n, summary in enumerate(summaries):
        rows = summary.source_rows
        if rows > most:
            close()
            parts = math.ceil(rows / most)
            cuts = [rows * k // parts for k in range(parts + 1)]
            pieces += [((n, a, b),) for a, b in itertools.pairwise(cuts)]
            continue
        if size and size + rows > most:
            close()
        open_.append((n, 0, rows))
        size += rows
        if size >= least:
            close()
    close()
    offsets = np.cumsum([0, *(s.source_rows for s in summaries)])
    lower, upper, points = [], [], []
    for chunk in pieces:
        moments = [summaries[n].moments for n, _, _ in chunk]
        lower.append(np.min([some.lower for some in moments], axis=0))
        upper.append(np.max([some.upper for some in moments], axis=0))
        points.append(sum(_share(summaries[n], b - a) for n, a, b in chunk))
    starts = np.array([offsets[chunk[0][0]] + chunk[0][1] for chunk in pieces], np.int64)
    boxes = np.array(lower), np.array(upper)
    return EntityChunks(tuple(pieces), starts, np.array(points), *boxes, norm, threshold)


def _share(summary: PartitionSummary, rows: int) -> float:
    """Points among so many rows of a partition."""
    return summary.moments.rows * rows / max(1, summary.source_rows)


def serpentine(blocks: np.ndarray) -> np.ndarray:
    """Block pairs in squares, and squares to and fro: neighbours in the order share chunks."""
    square = blocks // SERPENTINE
    back = (square[:, 0] % 2 == 1, blocks[:, 0] % 2 == 1)
    column = np.where(back[0], -square[:, 1], square[:, 1])
    inner = np.where(back[1], -blocks[:, 1], blocks[:, 1])
    return blocks[np.lexsort((inner, blocks[:, 0], column, square[:, 0]))]


def dealt(first: np.ndarray, parts: np.ndarray, region: Any, position: Any) -> Any:
    """The chunks to which points of regions are dealt by their row numbers.

    `first`, `parts`: the first chunk and the number of chunks of each region.
    """
    start, number = (module_of(region).asarray(some) for some in (first, parts))
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
    everywhere = False

    def __len__(self) -> int:
        return len(self.own_rows)

    @property
    def rows(self) -> np.ndarray:
        """Points expected in each chunk."""
        return self.own_rows + self.halo_rows

    def candidates(self, blocks: np.ndarray) -> np.ndarray:
        """Pairs of points that each block compares, if none is left out."""
        i, j = blocks[:, 0], blocks[:, 1]
        own, others = self.own_rows[i], self.own_rows[j]
        return np.where(i == j, own * (own - 1).clip(0) / 2, own * others) + own * self.halo_rows[j]

    def own_chunk(self, region: Any, position: Any) -> Any:
        """The chunks of points of regions."""
        return dealt(self.first, self.own, region, position)

    def halo_chunk(self, region: Any, position: Any) -> Any:
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

    def chunk_pairs(self, points: SamplePoints) -> Any:
        """A function: the chunks in which pairs of sample points meet."""
        region = host().regions(points.x, self.regions, self.reach, self.threshold, self.norm)[0]

        def meet(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            swap = region[left] > region[right]
            a, b = np.where(swap, right, left), np.where(swap, left, right)
            same = region[a] == region[b]
            i = self.own_chunk(region[a], points.position[a])
            own = self.own_chunk(region[b], points.position[b])
            j = np.where(same, own, self.halo_chunk(region[a], points.position[b]))
            return np.where(same, np.minimum(i, j), i), np.where(same, np.maximum(i, j), j)

        return meet

    @property
    def identity(self) -> Any:
        """What tells two of them apart."""
        tree = self.regions.arrays
        return (tree, self.norm, self.reach, self.threshold, self.own, self.halo, self.method, self.offsets)


def spatial_chunks(points: SamplePoints, regions: Regions, norm: Norm, reach: float, threshold: float,
                   most: float, offsets: np.ndarray, method: str) -> SpatialChunks:  # fmt: skip
    """Chunks of about `most` points at most, as far as the sample tells."""
    own, rows, needing = host().regions(points.x, regions, reach, threshold, norm)
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
