"""Kernels that order points by a kd tree: see `engine.cpu.order`."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.edge_order import MAX_INSERTION
from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_source,
    kernel,
)
from dask_simjoin.engine.index.kdtree import SAMPLE, VALUE_BITS
from dask_simjoin.metrics.norms import Array

LEAST = np.int32(-(1 << 31))

POINT = np.uint64((1 << VALUE_BITS) - 1)
"""The bits of a sort key that have the point."""

SHIFT = np.uint64(VALUE_BITS)
"""A sort key has its number above this many bits."""

PIVOTS = 15
"""Number of sampled keys. One of them divides the keys in two parts."""


@kernel
def number_columns(
    x: Array,
    start: int,
    stop: int,
    dims: Array,
    centre: Array,
    scale: float,
    out: Array,
) -> None:
    """Store differences from a central point as 32-bit numbers, column by column. The
    numbers are in the order of the differences.

    `x` (n, d): points. `start`, `stop`: the points to read. `dims` (m,): the columns to
    read. `centre` (m,): their central values. `out` (m, n), uint32: output.
    """
    for i in range(start, stop):
        for k in range(dims.size):
            away = np.float32((x[i, dims[k]] - centre[k]) * scale)
            bits = away.view(np.int32)
            out[k, i] = np.uint32(bits ^ ((bits >> 31) | LEAST))


@inline_source
def _value(number: np.uint32) -> float:
    """Return the difference that `number_columns` stored as this number."""
    bits = np.int32(number)
    return np.float64(np.int32(bits ^ (~(bits >> 31) | LEAST)).view(np.float32))


@device_function
def _widest(numbers: Array, points: Array, start: int, stop: int) -> int:
    """Return the widest column of a block of points, from a sample of them.

    `numbers` (m, n): see `number_columns`. `points`: the points of all blocks. This
    block has the places `start` ... `stop` - 1.
    """
    best, found = -1.0, 0
    for k in range(numbers.shape[0] if numbers.shape[0] > 1 else 0):
        first, total, squares = _value(numbers[k, points[start]]), 0.0, 0.0
        for t in range(SAMPLE):
            place = start + t * (stop - start) // SAMPLE
            away = _value(numbers[k, points[place]]) - first
            total += away
            squares += away * away
        spread = squares - total * total / SAMPLE
        if spread > best:
            best, found = spread, k
    return found


@kernel
def pack_blocks(
    numbers: Array, order: Array, size: int, start: int, stop: int, keys: Array
) -> None:
    """Pack points into 64-bit sort keys: a number of the point in the widest column of
    its block, and the point.

    `order`: points, block by block, each of `size` points. `start`, `stop`: the places
    to pack. `keys`: output.
    """
    for first in range(start - start % size, stop, size):
        last = min(first + size, order.size)
        column = _widest(numbers, order, first, last)
        for i in range(max(first, start), min(last, stop)):
            point = np.uint64(order[i])
            keys[i] = (np.uint64(numbers[column, order[i]]) << SHIFT) | point


@kernel
def unpack_blocks(keys: Array, order: Array) -> None:
    """Store the points of keys in `order`."""
    for i in range(keys.size):
        order[i] = keys[i] & POINT


@device_function
def _insert(keys: Array, start: int, stop: int) -> None:
    """Sort the keys at `start` ... `stop` - 1 by insertion."""
    for i in range(start + 1, stop):
        key, j = keys[i], i
        while j > start and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@device_function
def _select(keys: Array, start: int, stop: int, place: int, some: Array) -> None:
    """Reorder different keys, so that those before `place` are smaller than the others.

    `some` (PIVOTS,): scratch, for sampled keys.
    """
    while stop - start > MAX_INSERTION:
        for t in range(PIVOTS):
            some[t] = keys[start + (2 * t + 1) * (stop - start) // (2 * PIVOTS)]
        _insert(some, 0, PIVOTS)
        # at least one key is smaller than the pivot, so that both parts are shorter
        at = (place - start) * PIVOTS // (stop - start)
        pivot, middle = some[max(1, at)], start
        for i in range(start, stop):  # without a branch that depends on keys
            key = keys[i]
            keys[i] = keys[middle]
            keys[middle] = key
            middle += key < pivot
        if place < middle:
            stop = middle
        else:
            start = middle
    _insert(keys, start, stop)


@kernel
def order_run(
    numbers: Array,
    order: Array,
    sizes: Array,
    own: Array,
    points: Array,
    keys: Array,
    some: Array,
) -> None:
    """Cut the points of a run of blocks into smaller and smaller blocks.

    `numbers` (m, n): see `number_columns`. `order` (r,): the points of the run, in and
    out. `sizes`: the sizes of the blocks to cut, level by level, and of the last parts.
    Scratch: `own` (m, r), the numbers of these points, `points` (r,), `keys` (r,),
    `some` (PIVOTS,).
    """
    n = order.size
    for k in range(numbers.shape[0]):
        for i in range(n):
            own[k, i] = numbers[k, order[i]]
    for i in range(n):
        points[i] = i
    for level in range(sizes.size - 1):
        size, part = sizes[level], sizes[level + 1]
        for start in range(0, n, size):
            stop = min(start + size, n)
            column = _widest(own, points, start, stop)
            for i in range(start, stop):
                point = np.uint64(points[i])
                keys[i] = (np.uint64(own[column, points[i]]) << SHIFT) | point
            width = size
            while width > part:
                for first in range(start, stop, width):
                    middle = first + width // 2
                    if middle < stop:
                        last = min(first + width, stop)
                        _select(keys, first, last, middle, some)
                width //= 2
            for i in range(start, stop):
                points[i] = keys[i] & POINT
    for i in range(n):
        keys[i] = order[points[i]]
    for i in range(n):
        order[i] = keys[i]
