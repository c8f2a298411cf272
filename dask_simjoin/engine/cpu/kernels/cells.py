"""Density clusters by grid cells so small that all points of a cell are usually near each other.

Wang, Gu & Shun (2020), "Theoretically-efficient and practical parallel DBSCAN", call a cell a core cell if it
has enough points.  All its points are core points of one cluster, and no distance is computed for them.

Results do not depend on the width of cells, which is rounded: each cell has the bounds of its own points.
The largest total of two boxes is computed from their bounds with the operations of a point's total, in the
same order.  Rounding is monotone, so it is at least the computed total of any two of their points.  Likewise,
the least total of two boxes is at most that computed total (see `norms.box_gap`).  So decisions by boxes and
by points agree.

Cells are in ascending order of their keys, and the last dimension of the grid has stride 1.  So the neighbors
of a cell are a few runs of consecutive cells.  The keys of a run are within `REACH` of the key in its middle.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import root_of, unite
from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source, kernel
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.sweep import sweep_near
from dask_simjoin.engine.cpu.kernels.tile_simd import NONE, ONE, count_bits, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.index.grids import REACH
from dask_simjoin.metrics.norms import Array

RUN = 64
"""If a run of cells has more points than this, its cells are searched one by one, to leave out far cells."""

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd factor whose products with keys have well mixed high bits: 2**64 / the golden ratio."""


@kernel
def sample_cells(x: Array, dims: Array, origin: Array, width: Array, strides: Array, scale: float, bits: int,
                 begin: int, end: int, keys: Array, found: Array) -> int:  # fmt: skip
    """Write keys of points `begin` ... `end` - 1 whose cells are in a sample of one of 2**`bits` cells.

    Return their number, at most the size of `found`.  `keys` (BLOCK,): scratch.
    """
    n, shift = 0, np.uint64(64 - bits)
    for first in range(begin, end, keys.size):
        stop = min(first + keys.size, end)
        for i in range(keys.size):
            keys[i] = 0
        for t in range(dims.size):
            zero, wide, stride, column = origin[t], width[t], strides[t], dims[t]
            for i in range(stop - first):
                keys[i] += np.int64((x[first + i, column] * scale - zero) / wide) * stride
        for i in range(stop - first):
            found[n] = keys[i]
            n += (np.uint64(keys[i]) * FACTOR) >> shift == np.uint64(0)
            if n == found.size:
                return n
    return n


@inline_source
def _run_start(keys: Array, p: int, least: int) -> int:
    """The first cell from `p` on with a key of at least `least`."""
    while p < keys.size and keys[p] < least:
        p += 1
    return p


@inline_source
def _run_stop(keys: Array, p: int, most: int) -> int:
    """The first cell from `p` on with a key above `most`."""
    while p < keys.size and keys[p] <= most:
        p += 1
    return p


@device_function
def least_total(low: Array, high: Array, c: int, e: int, norm: Kind) -> float:
    """A lower bound of the totals of any two points of two cells."""
    total = 0.0
    for k in range(low.shape[1]):
        gap = max(low[e, k] - high[c, k], low[c, k] - high[e, k])
        total = add_term(total, max(gap, 0.0), norm)
    return total


@device_function
def largest_total(low: Array, high: Array, c: int, e: int, norm: Kind) -> float:
    """An upper bound of the totals of any two points of two cells."""
    total = 0.0
    for k in range(low.shape[1]):
        total = add_term(total, max(high[e, k] - low[c, k], high[c, k] - low[e, k]), norm)
    return total


@device_function
def point_total(cols: Array, i: int, low: Array, high: Array, e: int, norm: Kind) -> float:
    """A lower bound of the totals of a point with the points of a cell."""
    total = 0.0
    for k in range(low.shape[1]):
        gap = max(low[e, k] - cols[k, i], cols[k, i] - high[e, k])
        total = add_term(total, max(gap, 0.0), norm)
    return total


@kernel
def bound(cols: Array, starts: Array, threshold: float, norm: Kind, begin: int, end: int, low: Array,
          high: Array, whole: Array) -> None:  # fmt: skip
    """Fill bounds of cells `begin` ... `end` - 1; `whole`: whether all points of a cell are near each other.

    The bounds of an empty cell are not near any point.
    """
    dims = cols.shape[0]
    for c in range(begin, end):
        for k in range(dims):
            least, most = np.inf, -np.inf
            for i in range(starts[c], starts[c + 1]):
                value = cols[k, i]
                least, most = min(least, value), max(most, value)
            low[c, k], high[c, k] = least, most
        whole[c] = starts[c] < starts[c + 1] and largest_total(low, high, c, c, norm) <= threshold


@device_function
def _count(cols: Array, dims: int, first: int, stop: int, start: int, end: int, threshold: float, norm: Kind,
           enough: int, counts: Array, core: Array) -> int:  # fmt: skip
    """Count the points `start` ... `end` - 1 near each of `first` ... `stop` - 1, until `enough` are found.

    Return how many of the points `first` ... `stop` - 1 reached `enough` in this call.
    """
    base, stride = cols.ctypes.data, cols.strides[0]
    done = 0
    for i in range(first, stop):
        found = np.int64(counts[i])
        if found >= enough:
            continue
        j = start
        while j < end and found < enough:
            near = sweep_near(dims, base, stride, j, end, base + 8 * i, stride, threshold, norm, 0)
            found += count_bits(near)
            j += SWEEP_LANES
        counts[i] = found
        if found >= enough:
            core[i] = True
            done += 1
    return done


@kernel
def find_cores(cols: Array, keys: Array, starts: Array, low: Array, high: Array, whole: Array, offsets: Array,
               threshold: float, norm: Kind, enough: int, begin: int, end: int, at: Array, counts: Array,
               core: Array) -> None:  # fmt: skip
    """Fill `core` for points of the cells `begin` ... `end` - 1: whether they have `enough` near points.

    A point is near itself.  `offsets`: differences of keys between a cell and its runs of neighbor cells; the
    cell's own run is first, and the nearest runs follow.  `at`: scratch, the first cell that each run may
    begin with.  `counts` (points,): scratch.
    """
    dims = cols.shape[0]
    for c in range(begin, end):
        first, stop = starts[c], starts[c + 1]
        own = stop - first if whole[c] else 0
        for i in range(first, stop):
            counts[i], core[i] = own, own >= enough
        left = 0 if own >= enough else stop - first
        for o in range(offsets.size):
            if left == 0:
                break
            p = at[o] = _run_start(keys, at[o], keys[c] + offsets[o] - REACH)
            q = _run_stop(keys, p, keys[c] + offsets[o] + REACH)
            if p == q:
                continue
            if starts[q] - starts[p] <= RUN and (own == 0 or o > 0):
                left -= _count(cols, dims, first, stop, starts[p], starts[q], threshold, norm, enough, counts,
                               core)  # fmt: skip
                continue
            for e in range(p, q):
                if left == 0:
                    break
                if (e == c and own > 0) or least_total(low, high, c, e, norm) > threshold:
                    continue
                if largest_total(low, high, c, e, norm) <= threshold:
                    for i in range(first, stop):
                        before = counts[i]
                        counts[i] = before + starts[e + 1] - starts[e]
                        if before < enough <= counts[i]:
                            core[i] = True
                            left -= 1
                    continue
                left -= _count(cols, dims, first, stop, starts[e], starts[e + 1], threshold, norm, enough,
                               counts, core)  # fmt: skip


@kernel
def tie_cells(cols: Array, starts: Array, whole: Array, threshold: float, norm: Kind, begin: int, end: int,
              parent: Array) -> None:  # fmt: skip
    """Make a forest that joins the near points of each of the cells `begin` ... `end` - 1."""
    dims, forest = cols.shape[0], parent.ctypes.data
    base, stride = cols.ctypes.data, cols.strides[0]
    for c in range(begin, end):
        first, stop = starts[c], starts[c + 1]
        for i in range(first, stop):
            parent[i] = first if whole[c] else i
        if whole[c]:
            continue
        for i in range(first, stop):
            for j in range(i + 1, stop, SWEEP_LANES):
                near = sweep_near(dims, base, stride, j, stop, base + 8 * i, stride, threshold, norm, 0)
                while near != NONE:
                    unite(forest, i, j + lowest_bit(near))
                    near &= near - ONE


@device_function
def _near_cells(cols: Array, starts: Array, low: Array, high: Array, c: int, e: int, sweep: int, reach: float,
                threshold: float, norm: Kind) -> bool:  # fmt: skip
    """Whether any two points of two cells are near."""
    if least_total(low, high, c, e, norm) > threshold:
        return False
    if largest_total(low, high, c, e, norm) <= threshold:
        return True
    dims, base, stride = cols.shape[0], cols.ctypes.data, cols.strides[0]
    for i in range(starts[c], starts[c + 1]):
        if point_total(cols, i, low, high, e, norm) > threshold:
            continue
        for j in range(starts[e], starts[e + 1], SWEEP_LANES):
            # points of a cell ascend along the swept coordinate
            if cols[sweep, j] - cols[sweep, i] > reach:
                break
            if (
                sweep_near(dims, base, stride, j, starts[e + 1], base + 8 * i, stride, threshold, norm, 0)
                != NONE
            ):
                return True
    return False


@device_function
def _link_cells(cols: Array, starts: Array, c: int, e: int, threshold: float, norm: Kind,
                forest: int) -> None:  # fmt: skip
    """Join the sets of all pairs of near points of two cells."""
    dims, base, stride = cols.shape[0], cols.ctypes.data, cols.strides[0]
    for i in range(starts[c], starts[c + 1]):
        for j in range(starts[e], starts[e + 1], SWEEP_LANES):
            near = sweep_near(dims, base, stride, j, starts[e + 1], base + 8 * i, stride, threshold, norm, 0)
            while near != NONE:
                unite(forest, i, j + lowest_bit(near))
                near &= near - ONE


@kernel
def connect(cols: Array, keys: Array, starts: Array, low: Array, high: Array, whole: Array, sweep: int,
            offsets: Array, reach: float, threshold: float, norm: Kind, begin: int, end: int, at: Array,
            roots: Array, parent: Array) -> None:  # fmt: skip
    """Join the sets of near points of the cells `begin` ... `end` - 1 and of their later neighbor cells.

    `offsets`: differences of keys between a cell and its runs of neighbor cells, at least 0.  `roots`
    (cells,): the set of each cell in an earlier step; two cells of one set are not compared.
    """
    forest = parent.ctypes.data
    for c in range(begin, end):
        if starts[c] == starts[c + 1]:
            continue
        root = root_of(forest, starts[c])
        for o in range(offsets.size):
            p = at[o] = _run_start(keys, at[o], keys[c] + offsets[o] - REACH)
            if offsets[o] == 0:
                p = c + 1
            q = _run_stop(keys, p, keys[c] + offsets[o] + REACH)
            for e in range(p, q):
                if starts[e] == starts[e + 1]:
                    continue
                if not (whole[c] and whole[e]):
                    if least_total(low, high, c, e, norm) <= threshold:
                        _link_cells(cols, starts, c, e, threshold, norm, forest)
                    continue
                if roots[c] == roots[e]:
                    continue
                other = root_of(forest, starts[e])
                if other != root:
                    root = root_of(forest, starts[c])
                    if other != root and _near_cells(cols, starts, low, high, c, e, sweep, reach, threshold,
                                                     norm):  # fmt: skip
                        root = unite(forest, root, other)


@kernel
def roots_of_cells(starts: Array, parent: Array, begin: int, end: int, roots: Array) -> None:
    """Fill the roots of the first points of the cells `begin` ... `end` - 1."""
    forest = parent.ctypes.data
    for c in range(begin, end):
        if starts[c] < starts[c + 1]:
            roots[c] = root_of(forest, starts[c])


@kernel
def roots_of_points(starts: Array, whole: Array, parent: Array, places: Array, begin: int, end: int,
                    out: Array) -> None:  # fmt: skip
    """Write the place of the root of each point of cells `begin` ... `end` - 1; `places`: of all points."""
    forest = parent.ctypes.data
    for c in range(begin, end):
        root = 0
        for i in range(starts[c], starts[c + 1]):
            if i == starts[c] or not whole[c]:
                root = root_of(forest, i)
            out[places[i]] = places[root]


@kernel
def lowest_labels(starts: Array, labels: Array, begin: int, end: int, lowest: Array) -> None:
    """Fill the lowest label of points of the cells `begin` ... `end` - 1."""
    for c in range(begin, end):
        least = np.int64(2**62)
        for i in range(starts[c], starts[c + 1]):
            least = min(least, labels[i])
        lowest[c] = least


@kernel
def lower(cols: Array, keys: Array, starts: Array, core: Array, core_cols: Array, core_starts: Array,
          low: Array, high: Array, labels: Array, lowest: Array, offsets: Array, threshold: float, norm: Kind,
          begin: int, end: int, at: Array, found: Array) -> None:  # fmt: skip
    """Lower `found` for points of the cells `begin` ... `end` - 1 that are not core points.

    Each value becomes the lowest label of the core points near the point.  `core_cols`, `core_starts`, `low`,
    `high`, `labels` and `lowest` describe core points only.
    """
    dims, base, stride = cols.shape[0], cols.ctypes.data, cols.strides[0]
    core_base, core_stride = core_cols.ctypes.data, core_cols.strides[0]
    for c in range(begin, end):
        if core_starts[c + 1] - core_starts[c] == starts[c + 1] - starts[c]:
            continue
        for o in range(offsets.size):
            p = at[o] = _run_start(keys, at[o], keys[c] + offsets[o] - REACH)
            q = _run_stop(keys, p, keys[c] + offsets[o] + REACH)
            for i in range(starts[c], starts[c + 1]):
                if core[i]:
                    continue
                best = found[i]
                one_by_one = core_starts[q] - core_starts[p] > SWEEP_LANES
                e = p
                while e < q and best > 0:
                    stop = e + 1 if one_by_one else q
                    if one_by_one and (lowest[e] >= best
                                       or point_total(cols, i, low, high, e, norm) > threshold):  # fmt: skip
                        e = stop
                        continue
                    for j in range(core_starts[e], core_starts[stop], SWEEP_LANES):
                        near = sweep_near(dims, core_base, core_stride, j, core_starts[stop], base + 8 * i,
                                          stride, threshold, norm, 0)  # fmt: skip
                        while near != NONE:
                            best = min(best, labels[j + lowest_bit(near)])
                            near &= near - ONE
                        if one_by_one and best <= lowest[e]:
                            break
                    e = stop
                found[i] = best
