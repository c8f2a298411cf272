"""Find the density clusters of one chunk on a GPU by a tree of boxes; needs CuPy, but no
cuDF.

`kernels/dense_boxes.cu` describes the tree and the search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.gpu import arrays, components, load
from dask_simjoin.engine.gpu.load import NOWHERE, THREADS
from dask_simjoin.engine.gpu.sources import LEAF, norm_constant
from dask_simjoin.engine.index.gpu import DeviceLayout
from dask_simjoin.metrics.norms import Array, Index, reach

MAX_DIMS = 3
"""Maximum dimensions for density clusters by a tree of boxes."""

SPAN = 8
"""Number of levels that a thread block of `bound_levels` writes."""

MAX_BITS = 31
"""Maximum number of bits of a coordinate on the Hilbert curve."""

MAX_INT32 = np.iinfo(np.int32).max


@dataclass(frozen=True)
class BoxLayout:
    """Index settings of one chunk for density clusters. Such an index is never compared
    with another one.

    `tiles`: the settings for a join. `low`, `side`: the corner and the side of a cube
    that holds all points. `bits`: of a coordinate on the Hilbert curve.
    """

    tiles: DeviceLayout
    low: tuple[float, ...]
    side: float
    bits: int

    @property
    def method(self) -> str:
        """Name of this layout. Users cannot choose it as a method."""
        return "boxes"

    def program(self, function: str) -> load.Program:
        """Return the program of a function of `dense_boxes.cu`."""
        exact = self.tiles.bounds is None
        constants = {
            "DIMS": self.tiles.dims,
            "EXACT": exact,
            "LEAF": LEAF,
            "SPAN": SPAN,
        }
        return "dense_boxes", function, constants | norm_constant(self.tiles.norm)

    def run(self, function: str, items: int, *arguments: Any) -> None:
        """Run a function of `dense_boxes.cu` with one thread for each item."""
        name, function, constants = self.program(function)
        blocks = max(1, -(-items // THREADS))
        load.kernel(name, function, **constants)((blocks,), (THREADS,), arguments)

    @property
    def limits(self) -> tuple[np.generic, np.generic]:
        """Bounds of totals: no pair is above the first, and up to the second all are
        pairs.
        """
        bounds, threshold = self.tiles.bounds, np.float64(self.tiles.threshold)
        return (threshold, threshold) if bounds is None else (bounds.reach, bounds.sure)


def layout_of(
    x: Array, tiles: DeviceLayout, min_samples: int, threads: int
) -> BoxLayout | None:
    """Return the settings for points `x` (n, d), float64; None: the join `tiles` finds
    clusters of any points.
    """
    n, dims = x.shape
    if not n or dims > MAX_DIMS:
        return None
    found = arrays.bounds(cupy.asfortranarray(x))
    if found is None:
        return None
    lower, upper = found
    with np.errstate(over="ignore"):
        side, away = float((upper - lower).max()), reach(tiles.norm, tiles.threshold)
    # points in one cell of the curve are in no order; a search compares those that are
    # not near each other
    if not side * 2.0 ** (1 - MAX_BITS) <= away < math.inf:
        return None
    wanted = max(1, math.ceil(math.log2(side / away)) + 1) if side else 1
    passes = -(-wanted // _bits_per_sort(n, dims))
    bits = min(MAX_BITS, passes * _bits_per_sort(n, dims))
    return BoxLayout(tiles, tuple(lower.tolist()), side, bits)


def _bits_per_sort(n: int, dims: int) -> int:
    """Return how many bits of each coordinate fit into a key with the position of a
    point.
    """
    return (64 - _place_bits(n)) // dims


def _place_bits(n: int) -> int:
    return max(1, (n - 1).bit_length())


def build(x: Array, layout: BoxLayout) -> Index:
    """Return the index of points `x` (n, d), float64.

    ``order`` (n,), int32: positions of the points in `x`, along a Hilbert curve.
    ``spots``: the points in that order, as filters compare them. ``columns`` (d, n):
    their coordinates, in the order of `x`.
    """
    n, dims = x.shape
    tiles, exact = layout.tiles, layout.tiles.bounds is None
    width = (8 if exact else 4) * (dims if dims < 3 else -(-dims // 4) * 4)
    by_row, spots = (cupy.empty((n, width), cupy.uint8) for _ in range(2))
    centre, scale = layout.low, 1.0
    if tiles.bounds is not None:
        centre, scale = tiles.bounds.centre, tiles.bounds.scale
    bits, place_bits = layout.bits, np.int32(_place_bits(n))
    per_cell = np.float64(2.0**bits / layout.side if layout.side else 0.0)
    keys, last = cupy.empty(n, cupy.uint64), NOWHERE
    columns = cupy.asfortranarray(x).T
    corner, middle = cupy.asarray(layout.low), cupy.asarray(centre)
    each = _bits_per_sort(n, dims)
    for shift in range(0, bits, each):
        cut = (np.int32(some) for some in (bits, shift, min(shift + each, bits)))
        curve = corner, per_cell, *cut, place_bits
        out = by_row if shift == 0 else NOWHERE
        how = *curve, middle, np.float64(scale)
        given = columns, last, np.int32(n), *how, out, keys
        layout.run("make_keys", n, *given)
        keys.sort()
        order = cupy.empty(n, cupy.int32)
        taken = keys, place_bits, last, by_row, np.int32(n), order, spots
        layout.run("take_spots", n, *taken)
        last = order
    return {"order": order, "spots": spots, "columns": columns}


class DensityClusters:
    """Find density clusters in three steps, in this order: `cores`, `components`,
    `borders`.

    All arrays are in index order. `index`: see `build`.
    """

    def __init__(self, index: Index, layout: BoxLayout, threads: int = 1) -> None:
        self._index, self._layout = index, layout
        self._rows = len(index["order"])
        self._leaves = -(-self._rows // LEAF)
        sizes = [self._leaves]
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // 2))
        starts = np.cumsum([0, *sizes], dtype=np.int32)
        self._starts, self._sizes = cupy.asarray(starts), sizes
        dims, real = layout.tiles.dims, 4 if layout.tiles.bounds is not None else 8
        size = -(-(2 * dims * real + 8) // 16) * 16
        self._nodes = cupy.empty((int(starts[-1]), size), cupy.uint8)
        sure = layout.limits[1]
        shape = np.int32(self._rows), np.int32(self._leaves)
        given = index["spots"], *shape, sure, self._nodes
        layout.run("bound_leaves", self._leaves, *given)
        self._bound_levels(named=False)

    def cores(self, min_samples: int) -> Array:
        """Return a mask of core points (n,). A core point has `min_samples` near
        points, counting itself.
        """
        n = self._rows
        self._min_samples = np.int32(min(min_samples, n + 1, MAX_INT32))
        if min_samples <= 2:
            return self._united(min_samples)
        core = cupy.empty(n, bool)
        self._run("find_cores", n, core)
        shape = np.int32(n), np.int32(self._leaves)
        self._layout.run("name_leaves", self._leaves, core, *shape, self._nodes)
        self._bound_levels(named=True)
        self._core = core
        self._parent = self._connect(core)
        return core

    def components(self) -> Array:
        """Return the smallest place in the component of each core point (n,), int32.

        A point that is not a core point gets its own place.
        """
        return self._parent

    def borders(self, labels: Array) -> tuple[()]:
        """Write the label of each border point to `labels` (n,), int64: the lowest one
        of the core points near it.

        `labels` has the labels of core points, and -1 for other points.
        """
        if self._min_samples > 2:
            self._run("label_borders", self._rows, self._core, labels)
        return ()

    def _united(self, min_samples: int) -> Array:
        """Connect the points, and return the core points: those that have as many near
        points, as sets show.
        """
        self._parent = self._connect(NOWHERE)
        if min_samples == 1:
            return cupy.ones(self._rows, bool)
        core = cupy.zeros(self._rows, bool)
        self._layout.run(
            "mark_united", self._rows, self._parent, np.int32(self._rows), core
        )
        return core

    def _connect(self, core: Array | np.uint64) -> Array:
        """Unite the sets of near core points. Return the root of each point."""
        parent = cupy.empty(self._rows, cupy.int32)
        cells, others = (cupy.empty(self._leaves, cupy.int32) for _ in range(2))
        number = cupy.zeros(2, cupy.int32)
        listed = cells, others, number
        self._run("begin_sets", self._leaves, core, *listed, parent)
        self._run("unite_cells", self._leaves, core, *listed, parent)
        points = self._leaves * LEAF
        self._run("unite_points", points, core, others, number, parent)
        n = self._rows
        components.run(parent, "tie_to_roots", n, parent, np.int64(n))
        return parent

    def _run(self, function: str, items: int, *arguments: Any) -> None:
        index, layout = self._index, self._layout
        numbers = len(self._sizes), self._rows, self._min_samples
        tree = self._nodes, self._starts, *(np.int32(one) for one in numbers)
        points = index["spots"], index["order"], index["columns"]
        limits = *layout.limits, np.float64(layout.tiles.threshold)
        layout.run(function, items, *tree, *points, *limits, *arguments)

    def _bound_levels(self, *, named: bool) -> None:
        """Write the nodes above the leaves. `named`: only their first core points."""
        last, sure = len(self._sizes) - 1, self._layout.limits[1]
        for level in range(0, last, SPAN):
            ends = np.int32(level), np.int32(min(level + SPAN, last))
            threads = -(-self._sizes[level] // 2**SPAN) * THREADS
            given = self._starts, *ends, sure, np.int32(named), self._nodes
            self._layout.run("bound_levels", threads, *given)
