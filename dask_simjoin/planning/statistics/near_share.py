"""How many tiles of points will be near each other, from a sample."""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm, add, power

MOST, MOST_NUMBERS = 1 << 13, 1 << 19
"""Points of the sample that are looked at, and coordinates of them."""

TRIED = 32
"""Tiles of the sample that are compared with all others."""

DRAWN = 1 << 13
"""Pairs of parts of them that are drawn, and at most so many of each pair."""

OF_EACH = 64

INNER = (TILE - 1) / (TILE + 1)
"""Share of a part of space that is within the box of a tile's points, along one dimension."""


def near_share(x: np.ndarray, rows: int, threshold: float, norm: Norm) -> tuple[float, float]:
    """Estimate the share of pairs of tiles of `rows` points whose boxes are within the threshold.

    Points of a sample `x` (m, d) are put in order like all points, and their tiles cut further, where they
    are widest, as those are that have as many more points; of tiles that are near, parts are drawn at random.
    The second number is of a quarter of the points.  Only how work is cut goes by it.
    """
    most = min(MOST, max(2 * TILE, MOST_NUMBERS // x.shape[1]))
    halvings = math.ceil(math.log2(max(rows, most) / most))
    wanted = max(2 * TILE, math.ceil(rows / 2**halvings))
    if len(x) > wanted:
        x = x[np.sort(np.random.default_rng(len(x)).choice(len(x), wanted, replace=False))]
    elif len(x):
        halvings = max(0, round(math.log2(max(rows, len(x)) / len(x))))
    number = len(x) // TILE
    if number < 2:
        return 1.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(x.var(axis=0)).first(rows, TILE, CUTS)
    order = kd_order(x, cuts, TILE, FAN_OUT)
    tiles = x[order[: number * TILE]].reshape(number, TILE, -1)
    with np.errstate(over="ignore", invalid="ignore"):
        whole, quarter = (
            _share(tiles, cuts.dims, times, threshold, norm) for times in (halvings, halvings - 2)
        )
    if halvings < 2:  # the sample has more points than a quarter of all
        quarter = whole * 4 ** (1 / len(cuts.dims))
    return whole, min(1.0, max(whole, quarter))


def _share(tiles: np.ndarray, cut: tuple[int, ...], halvings: int, threshold: float,
           norm: Norm) -> float:  # fmt: skip
    """Estimate the share of near pairs among parts of tiles (n, 64, d), each halved so often."""
    number, _, dims = tiles.shape
    others = np.setdiff1d(np.arange(dims), cut)
    sides = np.sort(tiles[:, :, cut], axis=1)
    low, high = sides[:, 0], sides[:, -1]
    parts = _parts(high - low, halvings)
    # a part of space that is cut lies a little around its points, and so do parts of it
    more = np.where(parts > 1, (high - low) / (TILE - 1), 0.0)
    low, high = low - more, high + more
    ends = np.concatenate([low[:, None], sides, high[:, None]], axis=1)
    random = np.random.default_rng(number)
    some = np.repeat(np.unique(np.linspace(0, number - 1, TRIED).astype(np.int64)), number)
    pairs = some, np.tile(np.arange(number), len(some) // number)
    rest = tiles[:, :, others].min(axis=1), tiles[:, :, others].max(axis=1)
    away = _gaps(norm, *(side[tile] for tile in pairs for side in rest))
    whole = _gaps(norm, *(side[tile] for tile in pairs for side in (low, high)))
    near = np.flatnonzero((np.maximum(away, whole) if norm == math.inf else away + whole) <= threshold)
    if halvings <= 0 or not len(near):
        return len(near) / len(some)
    each = min(OF_EACH, max(1, DRAWN // len(near)))

    def drawn(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into = parts[chosen]
        place = np.floor(random.random(into.shape) * into)
        lower, upper = (_at(ends, chosen, (place + k) / into) for k in range(2))
        less = np.where(into > 1, (upper - lower) * ((1 - INNER) / 2), 0.0)
        return lower + less, upper - less

    first, second = (drawn(np.repeat(tile[near], each)) for tile in pairs)
    total, gap = np.repeat(away[near], each), np.maximum(first[0] - second[1], second[0] - first[1])
    for k in range(len(cut)):
        total = add(total, np.maximum(gap[:, k], 0.0), norm)
    return float(np.count_nonzero(total <= threshold)) / (each * len(some))


def _gaps(norm: Norm, lower: np.ndarray, upper: np.ndarray, other_lower: np.ndarray,
          other_upper: np.ndarray) -> np.ndarray:  # fmt: skip
    """Do what `box_gap` does of all dimensions at once: rounded otherwise, in a tenth of the time of many."""
    powers = power(np.maximum(np.maximum(lower - other_upper, other_lower - upper), 0.0), norm)
    gaps: np.ndarray = powers.max(axis=1, initial=0.0) if norm == math.inf else powers.sum(axis=1)
    return gaps


def _at(ends: np.ndarray, chosen: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Where so large a share (m, d) of the points of some tiles ends along each dimension."""
    place = share * (ends.shape[1] - 1)
    before = np.minimum(place.astype(np.int64), ends.shape[1] - 2)
    dims = np.arange(ends.shape[2])
    start, stop = (ends[chosen[:, None], before + k, dims] for k in range(2))
    between: np.ndarray = start + (stop - start) * (place - before)
    return between


def _parts(width: np.ndarray, halvings: int) -> np.ndarray:
    """Into how many parts boxes of these widths (n, d) are cut along each dimension, the widest first."""
    parts, rows = np.ones(width.shape), np.arange(len(width))
    each = FAN_OUT.bit_length() - 1
    while halvings > 0:
        parts[rows, (width / parts).argmax(axis=1)] *= 2.0 ** min(each, halvings)
        halvings -= each
    return parts
