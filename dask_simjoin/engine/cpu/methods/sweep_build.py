"""Makes the index of a sweep on several threads, by sorting one number for each point."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from dask_simjoin.engine.cpu.kernels import rows_order
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.index import sweep as grid
from dask_simjoin.engine.index.sweep import Grid
from dask_simjoin.engine.threads import shared_out, together
from dask_simjoin.metrics.types import Index

SAMPLED = 4096
"""Numbers from which it is told where to cut them into parts."""

LEAST = 1 << 18
"""Points that are worth a thread: to deal numbers out to several costs half of what it is to sort them."""


def build(x: np.ndarray, g: Grid, threads: int) -> Index:
    """Index points (n, d), column by column, as `index.sweep.build` does; `threads`: that may share it."""
    n, d = x.shape
    threads = max(1, min(threads, n // LEAST))
    if n == 0:
        return grid.build(x, g, SWEEP_LANES)
    lower, upper = np.zeros((2, d))

    def bounds(start: int, stop: int) -> tuple[float, float]:
        return float(column[start:stop].min()), float(column[start:stop].max())

    for k in (g.sweep, *g.dims):
        column = x[:, k]
        lower[k], upper[k] = np.min(found := shared_out(bounds, n, threads)), np.max(found)
    rows = [np.array(part) for part in (g.dims, g.origin, g.width, g.strides)]
    if not g.dims:
        rows = [np.zeros(0, kind) for kind in (np.int64, np.float64, np.float64, np.int64)]
    least, most = (int(key) for key in grid.row_keys(np.array([lower, upper]), g, np))
    position_bits, key_bits = max(1, (n - 1).bit_length()), (most - least).bit_length()
    value_bits = min(52, 63 - position_bits - key_bits)
    low = float(lower[g.sweep])
    span = float(upper[g.sweep]) - low
    factor = 2.0**value_bits * (1 - 2.0**-40) / span if span > 0 else 0.0
    if value_bits < grid.MIN_VALUE_BITS or not span < math.inf or not factor < math.inf:
        return grid.build(x, g, SWEEP_LANES)
    packed = np.empty(n, np.uint64)
    bits = value_bits, position_bits

    def pack(start: int, stop: int) -> None:
        keys = np.empty(rows_order.BLOCK, np.int64)
        rows_order.pack_keys(x, start, stop, *rows, g.scale, least, g.sweep, low, factor, *bits, packed, keys)

    shared_out(pack, n, threads)
    packed, ends = _dealt(packed, sum(bits), threads)
    order, cols = np.empty(n + SWEEP_LANES, np.int32), np.empty((d, n + SWEEP_LANES))
    order[n:], cols[:, n:] = 0, 0
    keys, starts = np.empty(n, np.int64), np.empty(n + 1, np.int64)

    def lay_out(start: int, stop: int) -> int:
        packed[start:stop].sort()
        number: int = rows_order.lay_out(
            packed, start, stop, x, g.sweep, *bits, least, order, cols, keys, starts
        )
        return number

    numbers = together([functools.partial(lay_out, *part) for part in itertools.pairwise(ends)])
    if min(numbers) < 0:
        return grid.build(x, g, SWEEP_LANES)
    places = [slice(start, start + number) for start, number in zip(ends, numbers, strict=False)]
    return {
        "order": order, "cols": cols, "keys": np.concatenate([keys[some] for some in places]),
        "starts": np.concatenate([*(starts[some] for some in places), [n]]),
    }  # fmt: skip


def _dealt(packed: np.ndarray, bits: int, parts: int) -> tuple[np.ndarray, list[int]]:
    """Deal numbers to parts that are of about as many rows' keys each, all of one key to one part.

    `bits`: of a number, behind its key.  Returns them, and where parts end.
    """
    n = len(packed)
    some = np.sort(packed[:: -(-n // SAMPLED)])
    limits = some[np.arange(1, parts) * len(some) // parts] >> np.uint64(bits) << np.uint64(bits)
    if parts == 1 or not limits[-1]:
        return packed, [0, n]

    def count(start: int, stop: int) -> tuple[int, int, np.ndarray]:
        numbers = np.zeros(parts, np.int64)
        rows_order.count_parts(packed, start, stop, limits, numbers)
        return start, stop, numbers

    counted = shared_out(count, n, parts)
    numbers = np.array([found for _, _, found in counted])
    ends = np.concatenate([[0], np.cumsum(numbers.sum(axis=0))])
    at = ends[:-1] + np.cumsum(numbers, axis=0) - numbers
    out = np.empty_like(packed)
    together([
        functools.partial(rows_order.deal, packed, start, stop, limits, own, out)
        for (start, stop, _), own in zip(counted, at, strict=True)
    ])  # fmt: skip
    return out, ends.tolist()
