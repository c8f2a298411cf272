"""Density clusters by grid cells. Most cells are so small that all their points are
near each other.

If such a cell has enough points, all of them are core points of one cluster, so their
distances need not be computed. Wang, Gu & Shun (2020), "Theoretically-efficient and
practical parallel DBSCAN", call it a core cell.

Decisions use the box of a cell's points, not the cell's borders, so rounding errors of
the borders do not matter. The largest total of two boxes is computed from their bounds
as the total of two points is, in the same order. Rounding is monotone, so this bound is
at least the computed total of any two points of the boxes. Likewise, the smallest total
of two boxes is at most the computed total (see `norms.box_gap`). So decisions by boxes
agree with decisions by points.

Cells are in ascending order of their keys, and the last dimension of the grid has
stride 1. So the neighbors of a cell are a few runs of consecutive cells. The keys of a
run differ by at most `REACH` from the key in its middle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import root_of, unite
from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_function,
    inline_source,
    kernel,
)
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.sweep import sweep_near
from dask_simjoin.engine.cpu.kernels.tile_simd import NONE, ONE, count_bits, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.index.grids import REACH
from dask_simjoin.metrics.norms import Array

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Factor for Fibonacci hashing, 2**64 / the golden ratio: products with keys have well
mixed high bits.
"""


class Cells(NamedTuple):
    """The points of an index, and its cells."""

    cols: Array  # coordinates (d, n + 16)
    keys: Array  # key of each cell, ascending
    starts: Array  # the first point of each cell; then the number of points


class CellBoxes(NamedTuple):
    """Boxes of the points in cells (cells, d), and whether all points of a cell are near
    each other.
    """

    low: Array
    high: Array
    all_near: Array


class Runs(NamedTuple):
    """Runs of neighbor cells."""

    offsets: Array  # for each run, the key in its middle minus the cell's key
    # scratch: for each run, a cell where the search for it starts, which must not be
    # after the run's first cell
    at: Array


@kernel
def sample_cells(
    x: Array,
    dims: Array,
    origin: Array,
    width: Array,
    strides: Array,
    scale: float,
    bits: int,
    begin: int,
    end: int,
    keys: Array,
    found: Array,
) -> int:
    """Among the points `begin` ... `end` - 1, find points in sampled cells: one in
    2**`bits` cells is sampled.

    Write the keys of their cells to `found`, and return the number of keys, at most the
    size of `found`. `keys` (BLOCK,): scratch.
    """
    n, shift = 0, np.uint64(64 - bits)
    for first in range(begin, end, keys.size):
        stop = min(first + keys.size, end)
        for i in range(keys.size):
            keys[i] = 0
        for t in range(dims.size):
            zero, wide, stride, column = origin[t], width[t], strides[t], dims[t]
            for i in range(stop - first):
                keys[i] += (
                    np.int64((x[first + i, column] * scale - zero) / wide) * stride
                )
        for i in range(stop - first):
            found[n] = keys[i]
            n += (np.uint64(keys[i]) * FACTOR) >> shift == np.uint64(0)
            if n == found.size:
                return n
    return n


@inline_source
def _run_start(keys: Array, p: int, least: int) -> int:
    """The first cell whose key is at least `least`; the search starts at cell `p`."""
    while p < keys.size and keys[p] < least:
        p += 1
    return p


@inline_source
def _run_stop(keys: Array, p: int, most: int) -> int:
    """The first cell whose key is above `most`; the search starts at cell `p`."""
    while p < keys.size and keys[p] <= most:
        p += 1
    return p


@device_function
def least_total(low: Array, high: Array, c: int, e: int, norm: Kind) -> float:
    """A lower bound of the total between any point of cell `c` and any point of cell
    `e`.
    """
    total = 0.0
    for k in range(low.shape[1]):
        gap = max(low[e, k] - high[c, k], low[c, k] - high[e, k])
        total = add_term(total, max(gap, 0.0), norm)
    return total


@device_function
def largest_total(low: Array, high: Array, c: int, e: int, norm: Kind) -> float:
    """An upper bound of the total between any point of cell `c` and any point of cell
    `e`.
    """
    total = 0.0
    for k in range(low.shape[1]):
        total = add_term(
            total, max(high[e, k] - low[c, k], high[c, k] - low[e, k]), norm
        )
    return total


@device_function
def point_total(
    cols: Array, i: int, low: Array, high: Array, e: int, norm: Kind
) -> float:
    """A lower bound of the total between point `i` and any point of cell `e`."""
    total = 0.0
    for k in range(low.shape[1]):
        gap = max(low[e, k] - cols[k, i], cols[k, i] - high[e, k])
        total = add_term(total, max(gap, 0.0), norm)
    return total


@kernel
def bound(
    cols: Array,
    starts: Array,
    threshold: float,
    norm: Kind,
    begin: int,
    end: int,
    low: Array,
    high: Array,
    all_near: Array,
) -> None:
    """Compute the boxes `low`, `high` of cells `begin` ... `end` - 1.

    `all_near`: output, whether all points of a cell are near each other. An empty cell
    gets a box that is not near any point.
    """
    dims = cols.shape[0]
    for c in range(begin, end):
        for k in range(dims):
            least, most = np.inf, -np.inf
            for i in range(starts[c], starts[c + 1]):
                value = cols[k, i]
                least, most = min(least, value), max(most, value)
            low[c, k], high[c, k] = least, most
        all_near[c] = (
            starts[c] < starts[c + 1]
            and largest_total(low, high, c, c, norm) <= threshold
        )


@device_function
def _count(
    cols: Array,
    dims: int,
    first: int,
    stop: int,
    start: int,
    end: int,
    threshold: float,
    norm: Kind,
    enough: int,
    counts: Array,
    core: Array,
) -> int:
    """For each of the points `first` ... `stop` - 1, count the near points among
    `start` ... `end` - 1.

    Counting for a point stops at `enough`: it is then a core point. Return how many
    points reached `enough` in this call.
    """
    base, stride = cols.ctypes.data, cols.strides[0]
    done = 0
    for i in range(first, stop):
        found = np.int64(counts[i])
        if found >= enough:
            continue
        j = start
        while j < end and found < enough:
            near = sweep_near(
                dims, base, stride, j, end, base + 8 * i, stride, threshold, norm, 0
            )
            found += count_bits(near)
            j += SWEEP_LANES
        counts[i] = found
        if found >= enough:
            core[i] = True
            done += 1
    return done


@kernel
def find_cores(
    cells: Cells,
    boxes: CellBoxes,
    runs: Runs,
    threshold: float,
    norm: Kind,
    enough: int,
    begin: int,
    end: int,
    counts: Array,
    core: Array,
) -> None:
    """Find the core points in the cells `begin` ... `end` - 1: they have `enough` near
    points.

    A point is near itself. The run with the cell itself comes first, then the nearest
    runs. `counts` (points,): scratch. `core`: output.
    """
    cols, keys, starts = cells
    low, high, all_near = boxes
    offsets, at = runs
    dims = cols.shape[0]
    for c in range(begin, end):
        first, stop = starts[c], starts[c + 1]
        own = stop - first if all_near[c] else 0
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
            # test a long run cell by cell, which skips far cells
            if starts[q] - starts[p] <= 64 and (own == 0 or o > 0):
                left -= _count(
                    cols,
                    dims,
                    first,
                    stop,
                    starts[p],
                    starts[q],
                    threshold,
                    norm,
                    enough,
                    counts,
                    core,
                )
                continue
            for e in range(p, q):
                if left == 0:
                    break
                if (e == c and own > 0) or least_total(
                    low, high, c, e, norm
                ) > threshold:
                    continue
                if largest_total(low, high, c, e, norm) <= threshold:
                    for i in range(first, stop):
                        before = counts[i]
                        counts[i] = before + starts[e + 1] - starts[e]
                        if before < enough <= counts[i]:
                            core[i] = True
                            left -= 1
                    continue
                left -= _count(
                    cols,
                    dims,
                    first,
                    stop,
                    starts[e],
                    starts[e + 1],
                    threshold,
                    norm,
                    enough,
                    counts,
                    core,
                )


@inline_function
def _near(
    cols: Array, i: int, j: int, stop: int, threshold: float, norm: Kind
) -> np.uint64:
    """Return a mask of the points near point `i`, among `SWEEP_LANES` points from `j`
    on that are before `stop`.
    """
    base, stride = cols.ctypes.data, cols.strides[0]
    return sweep_near(
        cols.shape[0], base, stride, j, stop, base + 8 * i, stride, threshold, norm, 0
    )


@inline_function
def _unite_near(
    cols: Array,
    i: int,
    begin: int,
    stop: int,
    threshold: float,
    norm: Kind,
    forest: int,
) -> None:
    """Unite point `i` with all near points in `begin` ... `stop` - 1."""
    for j in range(begin, stop, SWEEP_LANES):
        near = _near(cols, i, j, stop, threshold, norm)
        while near != NONE:
            unite(forest, i, j + lowest_bit(near))
            near &= near - ONE


@kernel
def tie_cells(
    cols: Array,
    starts: Array,
    all_near: Array,
    threshold: float,
    norm: Kind,
    begin: int,
    end: int,
    parent: Array,
) -> None:
    """Initialize the forest for the cells `begin` ... `end` - 1: unite near points of
    the same cell.
    """
    forest = parent.ctypes.data
    for c in range(begin, end):
        first, stop = starts[c], starts[c + 1]
        for i in range(first, stop):
            parent[i] = first if all_near[c] else i
        if all_near[c]:
            continue
        for i in range(first, stop):
            _unite_near(cols, i, i + 1, stop, threshold, norm, forest)


@device_function
def _near_cells(
    cols: Array,
    starts: Array,
    low: Array,
    high: Array,
    c: int,
    e: int,
    sweep: int,
    reach: float,
    threshold: float,
    norm: Kind,
) -> bool:
    """Whether a point of cell `c` is near a point of cell `e`."""
    if least_total(low, high, c, e, norm) > threshold:
        return False
    if largest_total(low, high, c, e, norm) <= threshold:
        return True
    for i in range(starts[c], starts[c + 1]):
        if point_total(cols, i, low, high, e, norm) > threshold:
            continue
        for j in range(starts[e], starts[e + 1], SWEEP_LANES):
            # points of a cell ascend along the swept coordinate, so all later points
            # are farther away
            if cols[sweep, j] - cols[sweep, i] > reach:
                break
            if _near(cols, i, j, starts[e + 1], threshold, norm) != NONE:
                return True
    return False


@device_function
def _link_cells(
    cols: Array,
    starts: Array,
    c: int,
    e: int,
    threshold: float,
    norm: Kind,
    forest: int,
) -> None:
    """Unite the sets of any two near points, one of cell `c` and one of cell `e`."""
    for i in range(starts[c], starts[c + 1]):
        _unite_near(cols, i, starts[e], starts[e + 1], threshold, norm, forest)


@kernel
def connect(
    cells: Cells,
    boxes: CellBoxes,
    sweep: int,
    runs: Runs,
    reach: float,
    threshold: float,
    norm: Kind,
    begin: int,
    end: int,
    roots: Array,
    parent: Array,
) -> None:
    """Unite the sets of near points: one in a cell of `begin` ... `end` - 1, one in a
    later neighbor cell.

    No offset of `runs` is negative. `roots` (cells,): the set that each cell was in
    after an earlier step. Two cells of the same set are not compared.
    """
    cols, keys, starts = cells
    low, high, all_near = boxes
    offsets, at = runs
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
                if not (all_near[c] and all_near[e]):
                    if least_total(low, high, c, e, norm) <= threshold:
                        _link_cells(cols, starts, c, e, threshold, norm, forest)
                    continue
                if roots[c] == roots[e]:
                    continue
                other = root_of(forest, starts[e])
                if other != root:
                    root = root_of(forest, starts[c])
                    if other != root and _near_cells(
                        cols, starts, low, high, c, e, sweep, reach, threshold, norm
                    ):
                        root = unite(forest, root, other)


@kernel
def roots_of_cells(
    starts: Array, parent: Array, begin: int, end: int, roots: Array
) -> None:
    """Fill `roots` for the cells `begin` ... `end` - 1: the root of the first point of
    each cell.
    """
    forest = parent.ctypes.data
    for c in range(begin, end):
        if starts[c] < starts[c + 1]:
            roots[c] = root_of(forest, starts[c])


@kernel
def roots_of_points(
    starts: Array,
    all_near: Array,
    parent: Array,
    places: Array,
    begin: int,
    end: int,
    out: Array,
) -> None:
    """Fill `out`: the place of the root of each point in the cells `begin` ... `end` -
    1.

    The cells contain only core points. `places`: place of each of them in the index of
    all points.
    """
    forest = parent.ctypes.data
    for c in range(begin, end):
        root = 0
        for i in range(starts[c], starts[c + 1]):
            if i == starts[c] or not all_near[c]:
                root = root_of(forest, i)
            out[places[i]] = places[root]


@kernel
def lowest_labels(
    starts: Array, labels: Array, begin: int, end: int, lowest: Array
) -> None:
    """Fill `lowest` for the cells `begin` ... `end` - 1: the lowest label of the points
    in each cell.
    """
    for c in range(begin, end):
        least = np.int64(2**62)
        for i in range(starts[c], starts[c + 1]):
            least = min(least, labels[i])
        lowest[c] = least


@kernel
def lower(
    cells: Cells,
    core: Array,
    cores: Cells,
    boxes: CellBoxes,
    labels: Array,
    lowest: Array,
    runs: Runs,
    threshold: float,
    norm: Kind,
    begin: int,
    end: int,
    found: Array,
) -> None:
    """Lower `found` for points that are not core points, in the cells `begin` ... `end`
    - 1.

    The entry of a point becomes the lowest label of the core points near it. `core`: a
    mask of the points. `cores`, `boxes`, `labels` and `lowest` describe core points
    only.
    """
    cols, keys, starts = cells
    core_cols, core_starts = cores.cols, cores.starts
    low, high = boxes.low, boxes.high
    offsets, at = runs
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
                    if one_by_one and (
                        lowest[e] >= best
                        or point_total(cols, i, low, high, e, norm) > threshold
                    ):
                        e = stop
                        continue
                    for j in range(core_starts[e], core_starts[stop], SWEEP_LANES):
                        near = sweep_near(
                            dims,
                            core_base,
                            core_stride,
                            j,
                            core_starts[stop],
                            base + 8 * i,
                            stride,
                            threshold,
                            norm,
                            0,
                        )
                        while near != NONE:
                            best = min(best, labels[j + lowest_bit(near)])
                            near &= near - ONE
                        if one_by_one and best <= lowest[e]:
                            break
                    e = stop
                found[i] = best
