"""Puts points in the order of a grid's rows, and by one coordinate within a row: what is around a sort."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.types import Array

BLOCK = 2048
"""Points whose keys are made at a time: they stay in a core's first cache."""


@kernel
def pack_keys(x: Array, begin: int, end: int, dims: Array, origin: Array, width: Array, strides: Array,
              scale: float, least: int, sweep: int, low: float, factor: float, value_bits: int,
              position_bits: int, packed: Array, keys: Array) -> None:  # fmt: skip
    """Fill `packed`: each point's row key, less `least`, its fixed-point swept coordinate, and its position.

    Of points `begin` ... `end` - 1.  What is given of the rows is a part of `index.sweep.Grid`;
    `keys` (BLOCK,): scratch.
    """
    for first in range(begin, end, BLOCK):
        stop = min(first + BLOCK, end)
        keys[:] = -least
        for t in range(dims.size):
            zero, wide, stride = origin[t], width[t], strides[t]
            column = x[first:stop, dims[t]]
            for i in range(stop - first):
                # cells count from 1, so that a neighbour is never negative
                keys[i] += (np.int64((column[i] * scale - zero) / wide) + 1) * stride
        column, out = x[first:stop, sweep], packed[first:stop]
        for i in range(stop - first):
            value = np.int64((column[i] - low) * factor)
            key = (keys[i] << value_bits) | value
            out[i] = (key << position_bits) | (first + i)


@kernel
def lay_out(packed: Array, begin: int, end: int, x: Array, sweep: int, value_bits: int, position_bits: int,
            least: int, order: Array, cols: Array, keys: Array, starts: Array) -> int:  # fmt: skip
    """Fill the index's arrays from sorted numbers of `pack_keys`; how many rows, or -1.

    Of numbers `begin` ... `end` - 1, with which rows begin and end; so `keys`, `starts` from there.
    Points of one fixed-point value are put in order here; -1: they are so many that a sort is faster.
    """
    dims = x.shape[1]
    mask = (np.uint64(1) << np.uint64(position_bits)) - np.uint64(1)
    # one loop for each column, and unsigned numbers, keep many reads in flight: a third of the time
    for first in range(begin, end, BLOCK):
        some = packed[first : min(first + BLOCK, end)]
        for k in range(dims):
            column, out = x[:, k], cols[k, first : first + some.size]
            for i in range(some.size):
                out[i] = column[some[i] & mask]
    rows, moves, before, last = begin, 0, np.int64(-1), np.int64(-1)
    for i in range(begin, end):
        value = np.int64(packed[i] >> np.uint64(position_bits))
        order[i] = packed[i] & mask
        key = value >> value_bits
        if key != last:
            keys[rows], starts[rows] = key + least, i
            rows += 1
            last = key
        if value == before:
            j = i
            while j > starts[rows - 1] and cols[sweep, j - 1] > cols[sweep, j]:
                order[j - 1], order[j] = order[j], order[j - 1]
                for k in range(dims):
                    cols[k, j - 1], cols[k, j] = cols[k, j], cols[k, j - 1]
                j -= 1
            moves += i - j
            if moves > end - begin:
                return -1
        before = value
    return rows - begin


@kernel
def count_parts(packed: Array, begin: int, end: int, limits: Array, numbers: Array) -> None:
    """Count the numbers `begin` ... `end` - 1 of each part; those of all but the last have limits."""
    for i in range(begin, end):
        part = 0
        for limit in limits:
            part += packed[i] >= limit
        numbers[part] += 1


@kernel
def deal(packed: Array, begin: int, end: int, limits: Array, at: Array, out: Array) -> None:
    """Write numbers to their parts, to where `at` says that those are written to."""
    for i in range(begin, end):
        part = 0
        for limit in limits:
            part += packed[i] >= limit
        out[at[part]] = packed[i]
        at[part] += 1
