"""Labels of rows by k-means centres, and rows near the borders of clusters, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_simjoin.engine.gpu.kernels import load
from dask_simjoin.engine.gpu.kernels.sources import norm_constant
from dask_simjoin.engine.index.clusters import KMeansLayout
from dask_simjoin.engine.index.members import SIDE
from dask_simjoin.metrics.types import Array, Index

THREADS = 256

LISTED_SHARE = 32
"""Part of a GPU's memory that the rows near to some clusters may take, were all of them near."""


class Near(NamedTuple):
    """Rows that are within a window of the border to some clusters, or in them.

    Attributes
    ----------
    first : int
        The first of these clusters.
    places : array, int32
        Places of the rows, ascending, cluster after cluster.
    starts : array (clusters + 1,), int64
        Where those of each begin.
    """

    first: int
    places: Array
    starts: Array


def _run(layout: KMeansLayout, function: str, rows: int, *arguments: Any) -> None:
    """Launch a kernel with a block for as many rows as it takes."""
    constants = {"DIMS": layout.dims, "EXACT": True} | norm_constant(layout.norm)
    load.kernel("clusters", function, **constants)((-(-rows // SIDE),), (THREADS,), arguments)


def _units(layout: KMeansLayout) -> tuple[np.float64, np.float64]:
    return np.float64(layout.windows.before), np.float64(layout.windows.scale)


def labelled(y: Array, layout: KMeansLayout) -> tuple[Array, Array]:
    """Return the nearest centre of each row (n, d), the first of equal ones, and the total to it."""
    labels, totals = cupy.empty(len(y), cupy.int32), cupy.empty(len(y))
    if len(y):
        centres = cupy.asarray(layout.centres)
        told = np.int32(len(y)), centres, np.int32(len(centres)), *_units(layout), labels, totals
        _run(layout, "label_rows", len(y), y, *told)
    return labels, totals


class Borders:
    """Finds the rows of an index, which lie by cluster, near the borders of clusters.

    Parameters
    ----------
    index : dict of arrays
    layout : KMeansLayout
    share : float
        The window, as a share of eps.
    after : bool
        Whether rows are told near only to clusters of higher numbers than their own.
    """

    def __init__(self, index: Index, layout: KMeansLayout, share: float, *, after: bool) -> None:
        self._index, self._layout, self._share, self._after = index, layout, share, after
        self._centres = cupy.asarray(layout.centres)
        number, w = len(self._centres), layout.windows
        self._apart = cupy.empty((number, number) if layout.norm == 2 else (1, 1))
        if layout.norm == 2:
            slack = np.float64(w.slack), np.float64(w.tiny)
            told = self._centres, np.int32(number), *_units(layout), *slack, self._apart
            _run(layout, "centres_apart", number, *told)

    def _bits(self, first: int, last: int, by_row: Array | np.uint64) -> tuple[Array, Array]:
        """Return bits of the rows near to each of some clusters, and how many each word has."""
        index, w, norm = self._index, self._layout.windows, self._layout.norm
        rows = len(index["y"])
        inside = cupy.zeros((last - first, -(-rows // SIDE)), cupy.uint64)
        sizes = cupy.zeros(inside.shape, cupy.int32)
        root = 0.0 if norm == 2 else 1.0 / (1.0 if norm == np.inf else norm)
        limits = (w.gap * self._share, w.slack, w.tiny, root)
        _run(
            self._layout, "near_clusters", rows, index["y"], np.int32(rows), index["labels"], index["totals"],
            self._centres, np.int32(len(self._centres)), np.int32(first), np.int32(last),
            np.int32(self._after), self._apart, *map(np.float64, limits), *_units(self._layout), inside,
            sizes, by_row,
        )  # fmt: skip
        return inside, sizes

    def by_row(self) -> Array:
        """Return of each row a bit for each cluster that it is near to: (rows, words), uint64."""
        number = len(self._centres)
        found = cupy.zeros((len(self._index["y"]), -(-number // SIDE)), cupy.uint64)
        for first, last in self._ranges():
            self._bits(first, last, found)
        return found

    def _ranges(self) -> list[tuple[int, int]]:
        """Cut the clusters into some at a time, so that what is near to them fits into memory."""
        memory = int(cupy.cuda.Device().mem_info[1]) // LISTED_SHARE
        some = max(1, min(memory, 2**31 - 1) // (4 * SIDE) // len(self._index["y"])) * SIDE
        number = len(self._centres)
        return [(first, min(first + some, number)) for first in range(0, number, some)]

    def near(self) -> Iterator[Near]:
        """Give the rows near to all clusters, those of some at a time."""
        for first, last in self._ranges():
            inside, sizes = self._bits(first, last, np.uint64(0))
            ends = cupy.cumsum(sizes.reshape(-1), dtype=cupy.int64)
            places = cupy.empty(int(ends[-1]), cupy.int32)
            clusters, blocks = inside.shape
            function = load.kernel("clusters", "list_members", **{"DIMS": self._layout.dims, "EXACT": True})
            arguments = inside, ends, sizes, np.int64(ends.size), np.int64(blocks), places
            function((-(-ends.size // THREADS),), (THREADS,), arguments)
            starts = cupy.zeros(clusters + 1, cupy.int64)
            starts[1:] = ends.reshape(clusters, blocks)[:, -1]
            yield Near(first, places, starts)
