"""Fills the tiles of a tile index."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.compiled import kernel
from dask_simjoin.engine.filters.int8 import STEP
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.types import Array


@kernel
def pack_filter(x: Array, order: Array, centre: Array, scale: float, kappa: float, eps2: float, sure: float,
                y: Array, z: Array, start: Array, limit: Array, q_sure: Array, d_sure: Array, low: Array,
                high: Array) -> float:  # fmt: skip
    """Fill the arrays of a filtering tile index; the largest squared norm.

    `y` (n, d) float64: coordinates in order; `z` (tiles, d, 64) float32: centred and scaled;
    `start` (tiles, 64), `limit` (n,), `q_sure` (n,), `d_sure` (tiles,) float32: the
    filter's terms; `low`, `high` (tiles, d) float32: boxes.
    """
    n, d = x.shape
    largest = 0.0
    up, down = np.float32(np.inf), np.float32(-np.inf)
    for tile in range(z.shape[0]):
        norm_here = 0.0
        for k in range(d):
            low[tile, k], high[tile, k] = up, down
        for t in range(TILE):
            i = tile * TILE + t
            if i >= n:
                for k in range(d):
                    z[tile, k, t] = 0.0
                start[tile, t] = down
                continue
            p = order[i]
            norm = 0.0
            for k in range(d):
                value = x[p, k]
                y[i, k] = value
                f = np.float32((value - centre[k]) * scale)
                z[tile, k, t] = f
                low[tile, k] = min(low[tile, k], f)
                high[tile, k] = max(high[tile, k], f)
                norm += np.float64(f) * np.float64(f)
            start[tile, t] = np.nextafter(np.float32(-0.5 * norm * (1 - kappa)), up)
            limit[i] = np.nextafter(np.float32(0.5 * (norm * (1 - kappa) - eps2)), down)
            q_sure[i] = np.nextafter(np.float32(2 * kappa * norm + sure), up)
            norm_here = max(norm_here, norm)
        d_sure[tile] = np.nextafter(np.float32(2 * kappa * norm_here), up)
        largest = max(largest, norm_here)
    return largest


@kernel
def pack_exact(x: Array, order: Array, y: Array, z: Array, low: Array, high: Array) -> None:
    """Fill the arrays of a float64 tile index: `y` (n, d), `z` (tiles, d, 64), boxes (tiles, d)."""
    n, d = x.shape
    for tile in range(z.shape[0]):
        for k in range(d):
            low[tile, k], high[tile, k] = np.inf, -np.inf
        for t in range(TILE):
            i = tile * TILE + t
            if i >= n:
                for k in range(d):
                    z[tile, k, t] = np.nan
                continue
            p = order[i]
            for k in range(d):
                value = x[p, k]
                y[i, k] = value
                z[tile, k, t] = value
                low[tile, k] = min(low[tile, k], value)
                high[tile, k] = max(high[tile, k], value)


@kernel
def pack_quantized(y: Array, centre: Array, scale: float, outer: float, most: int, bias: int, queries: Array,
                   points: Array, take: Array, first: Array, marked: Array) -> None:  # fmt: skip
    """Fill the arrays of the 8-bit filter: see `filters.int8`.

    `y` (n, d) float64: coordinates in order; `queries` (n, steps, 4) int8 and `points` (tiles, steps, 64, 4)
    uint8: vectors; `take` (n, 2) and `first` (tiles, 64, 2) int16, zeros: their terms of both halves, or
    (n, 1) and (tiles, 64, 1) int32: of all;
    `marked` (tiles,) uint64: which points pass in any case.
    """
    n, d = y.shape
    ones = np.uint64(1)
    for i in range(n):
        tile, t = i // TILE, i % TILE
        total, square_i, square_j = np.zeros(2), np.zeros(2), np.zeros(2)
        rest_i = rest_j = 0.0
        for k in range(d):
            a = (y[i, k] - centre[k]) * scale
            b = min(max(np.rint(a), -64.0), 64.0)
            p = min(max(np.rint(2 * a), -128.0), 127.0)
            queries[i, k // STEP, k % STEP] = np.int8(b)
            points[tile, k // STEP, t, k % STEP] = np.uint8(p + 128)
            half = 2 * (k % STEP) // STEP
            total[half] += b
            square_i[half] += b * b
            square_j[half] += p * p / 4
            rest_i += (a - b) * (a - b)
            rest_j += (a - p / 2) * (a - p / 2)
        for side in range(2):
            square, rest = (square_i, rest_i) if side == 0 else (square_j, rest_j)
            r = np.sqrt(rest) * (1 + 2.0**-40) + np.sqrt(square[0] + square[1]) * 2.0**-50
            own = (outer * outer / 2 + 2 * outer * r + 2 * r * r) * (1 + 2.0**-40) + 2.0**-20
            if not own <= 2 * most:
                marked[tile] |= ones << np.uint64(t)
                own = 2.0 * most
            x = np.ceil(own / 2)
            for half in range(2):
                place = half % take.shape[1]
                if side == 0:
                    take[i, place] += np.int64(square[half] + 128 * total[half] - x) - bias
                else:
                    first[tile, t, place] += np.int64(x - np.floor(square[half]))
    if n % TILE:
        marked[n // TILE] = ~np.uint64(0)
