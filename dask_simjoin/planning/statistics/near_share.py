"""How many tiles of points will be near each other, from a sample."""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT
from dask_simjoin.engine.index.kdorder import dims_to_cut, kd_order
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.norms import Norm, box_gap

MOST = 1 << 14
"""Points of the sample that are looked at."""

TRIED = 48
"""Tiles of the sample that are compared with all others."""

DRAWN = 1 << 15
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
    halvings = max(0, math.ceil(math.log2(max(rows, 1) / MOST)))
    wanted = max(TILE, math.ceil(rows / 2**halvings))
    if len(x) > wanted:
        x = x[np.sort(np.random.default_rng(len(x)).choice(len(x), wanted, replace=False))]
    else:
        halvings = max(0, round(math.log2(max(rows, 1) / max(len(x), 1))))
    m, dims = x.shape
    number = m // TILE
    if number < 2:
        return 1.0, 1.0
    cuts = dims_to_cut(x.var(axis=0)).first(rows, TILE, CUTS)
    order = kd_order(x, cuts, TILE, FAN_OUT)
    tiles = np.sort(x[order[: number * TILE]].reshape(number, TILE, dims), axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        whole, quarter = (
            _share(tiles, list(cuts.dims), max(0, times), threshold, norm)
            for times in (halvings, halvings - 2)
        )
    if halvings < 2:  # the sample has more points than a quarter of all
        quarter = min(1.0, whole * 4.0 ** (1 / max(1, len(cuts.dims))))
    return whole, max(whole, quarter)


def _share(tiles: np.ndarray, cut: list[int], halvings: int, threshold: float, norm: Norm) -> float:
    """Estimate the share of near pairs among parts of tiles (n, 64, d), sorted in each dimension."""
    number, _, dims = tiles.shape
    low, high = tiles[:, 0], tiles[:, -1]
    parts = _parts(high - low, cut, halvings)
    # a part of space that is cut lies a little around its points, and so do parts of it
    more = np.where(parts > 1, (high - low) / (TILE - 1), 0.0)
    low, high = low - more, high + more
    ends = np.concatenate([low[:, None], tiles, high[:, None]], axis=1)
    random = np.random.default_rng(number)
    some = np.unique(np.linspace(0, number - 1, TRIED).astype(np.int64))
    near = [np.flatnonzero(box_gap(norm, low[t], high[t], low, high) <= threshold) for t in some]
    found = sum(map(len, near))
    if not halvings or not found:
        return found / (len(some) * number)
    each = min(OF_EACH, max(1, DRAWN // found))

    def drawn(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into = parts[chosen]
        place = np.floor(random.random(into.shape) * into)
        lower, upper = (_at(ends, chosen, (place + k) / into) for k in range(2))
        less = np.where(into > 1, (upper - lower) * ((1 - INNER) / 2), 0.0)
        return lower + less, upper - less

    first = drawn(np.repeat(np.repeat(some, [len(tiles) for tiles in near]), each))
    second = drawn(np.repeat(np.concatenate(near), each))
    within = np.count_nonzero(box_gap(norm, *first, *second) <= threshold)
    return float(within) / (each * len(some) * number)


def _at(ends: np.ndarray, chosen: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Where so large a share (m, d) of the points of some tiles ends along each dimension."""
    place = share * (ends.shape[1] - 1)
    before = np.minimum(place.astype(np.int64), ends.shape[1] - 2)
    dims = np.arange(ends.shape[2])
    start, stop = (ends[chosen[:, None], before + k, dims] for k in range(2))
    between: np.ndarray = start + (stop - start) * (place - before)
    return between


def _parts(width: np.ndarray, cut: list[int], halvings: int) -> np.ndarray:
    """Into how many parts boxes of these widths (n, d) are cut along each dimension: where they are widest."""
    parts, rows = np.ones(width.shape), np.arange(len(width))
    each = FAN_OUT.bit_length() - 1
    while halvings > 0:
        widest = np.asarray(cut)[(width[:, cut] / parts[:, cut]).argmax(axis=1)]
        parts[rows, widest] *= 2.0 ** min(each, halvings)
        halvings -= each
    return parts
