"""Samples of partitions, moments of points, and the estimated fraction of tiles that
are near each other.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.engine.base import spreader_of
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.index.cpu_tiles import CUTS, FAN_OUT, TILE
from dask_simjoin.engine.index.kdtree import dims_to_cut, kd_order
from dask_simjoin.engine.process import together
from dask_simjoin.metrics.norms import Array, Norm, add, power
from dask_simjoin.sizes import BATCH, IN_CACHE, PROBED, SAMPLED

RATE = 0.01
"""Fraction of the rows that is sampled, within the limits below."""

FLOOR = 1 << 16
"""Minimum number of points in all samples together, unless this is more than
`FLOOR_RATE` times the rows.
"""

FLOOR_RATE = 0.1

NUMBERS = 1 << 19
"""Maximum number of coordinates of all samples together, unless these have only
`SAMPLED` points.
"""

FEW = 256
"""A partition of at most this many rows is sampled as a whole.

If all partitions had its size, they must have at most `FLOOR` rows together.
"""


@dataclass(frozen=True, eq=False)
class Sample:
    """Some points of a partition, drawn without replacement."""

    rows: int  # number of points that the sample was drawn from
    # (m,) int64: row numbers of the sampled points in the partition, ascending
    places: np.ndarray
    x: np.ndarray  # (m, d) float64: coordinates of the sampled points
    # (m,) float64: threshold of each sampled point, if rows have own radii
    limit: np.ndarray | None = None


def sample_size(rows: int, dims: int, partitions: int) -> int:
    """Return the number of points to draw from a partition. `partitions`: number of all
    partitions.
    """
    if rows <= FEW and rows * partitions <= FLOOR:
        return rows
    wanted = max(
        min(rows * RATE, BATCH / partitions),
        min(FLOOR / partitions, rows * FLOOR_RATE),
        min(rows, 32),
    )
    most = max(SAMPLED, NUMBERS // dims)
    return min(int(wanted), max(2, most // partitions))


def draw(
    x: Any,
    kept: np.ndarray | None,
    partitions: int,
    seed: int | tuple[int, ...],
    limit: Any = None,
    most: int | None = None,
) -> Sample:
    """Draw a sample of the points `x` (n, d) of a partition.

    `kept`: mask of the partition's rows that are points; None: all rows are. `most`:
    maximum number of points to draw.
    """
    n, dims = x.shape
    size = sample_size(n, dims, partitions)
    size = size if most is None else min(size, most)
    if size == n:
        some = np.arange(n)
    else:
        some = np.sort(
            np.random.default_rng(seed).choice(n, size, replace=False, shuffle=False)
        )
    places = some if kept is None else np.flatnonzero(kept)[some]
    there = module_of(x).asarray(some)
    own = None if limit is None else to_host(limit[there])
    return Sample(n, places, np.ascontiguousarray(to_host(x[there])), own)


def every_point(
    x: Any, kept: np.ndarray | None, partitions: int, limit: Any = None
) -> Sample | None:
    """Return all points of a partition as a sample; None if all partitions would have
    too many points.
    """
    n, dims = x.shape
    if n * dims * partitions > BATCH:
        return None
    places = np.arange(n) if kept is None else np.flatnonzero(kept)
    return Sample(n, places, to_host(x), None if limit is None else to_host(limit))


@dataclass(frozen=True)
class Moments:
    """Number of points, and per dimension their bounds, mean and sum of squared
    deviations (d,), float64.
    """

    rows: int
    lower: np.ndarray
    upper: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    @property
    def variance(self) -> np.ndarray:
        """Variance in each dimension; 0 if there are no points."""
        return self.squares / max(self.rows, 1)


def bounds(x: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest coordinates (d,) of points `x` (n, d); NaN if a
    column has a NaN.
    """
    if not len(x):
        nowhere = np.full(x.shape[1], np.inf)
        return nowhere, -nowhere
    found: tuple[np.ndarray, np.ndarray] | None = spreader_of(x).bounds(x)
    return found if found is not None else _bounds(x)


def _bounds(x: Array) -> tuple[np.ndarray, np.ndarray]:
    return to_host(x.min(axis=0)), to_host(x.max(axis=0))


def box(x: Array) -> str:
    """Return a digest of the box of points (n, d). Without points it is "", for any d."""
    return box_digest(*bounds(x)) if len(x) else ""


def box_digest(lower: np.ndarray, upper: np.ndarray) -> str:
    """Return a hash of a box as text."""
    # turns -0.0 into 0.0, because otherwise the order of rows would decide which of
    # them is the bound
    text = (lower + 0.0).tobytes() + (upper + 0.0).tobytes()
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def moments(x: Array, threads: int = 1) -> Moments:
    """Return the moments of the points `x` (n, d); a column with a NaN has NaN bounds."""
    if module_of(x) is not np or len(x) <= BATCH:
        return _moments(x)
    parts = [x[start : start + BATCH] for start in range(0, len(x), BATCH)]
    calls = [functools.partial(_moments, part) for part in parts]
    return merge_moments(together(calls, threads))


def _moments(x: Array) -> Moments:
    n, d = x.shape
    if n == 0:
        return Moments(0, *bounds(x), np.zeros(d), np.zeros(d))
    found = spreader_of(x).spread(x)
    if found is not None:
        return Moments(n, *found)
    lower, upper = _bounds(x)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = to_host(x.mean(axis=0))
        # computed again with smaller numbers, because the sum of finite numbers may
        # have overflowed
        for k in np.flatnonzero(~np.isfinite(mean)):
            mean[k] = float((x[:, k] * 0.5**10).mean()) * 2.0**10
        centre, squares = module_of(x).asarray(mean), np.zeros(d)
        step = n if module_of(x) is not np else IN_CACHE
        for start in range(0, n, step):
            squares += to_host(((x[start : start + step] - centre) ** 2).sum(axis=0))
    return Moments(n, lower, upper, mean, squares)


def merge_moments(parts: list[Moments]) -> Moments:
    """Merge moments pairwise (Chan, Golub & LeVeque 1979)."""
    filled = [part for part in parts if part.rows]
    if len(filled) < 2:
        return filled[0] if filled else parts[0]
    rows = np.array([part.rows for part in filled], float)
    lower = np.min([part.lower for part in filled], axis=0)
    upper = np.max([part.upper for part in filled], axis=0)
    mean, squares = (
        np.array([getattr(part, name) for part in filled])
        for name in ("mean", "squares")
    )
    with np.errstate(over="ignore", invalid="ignore"):
        while len(rows) > 1:
            even = len(rows) // 2 * 2
            first, second = rows[:even:2], rows[1:even:2]
            both, delta = first + second, mean[1:even:2] - mean[:even:2]
            far = delta**2 * (first * second / both)[:, None]
            together = mean[:even:2] + delta * (second / both)[:, None]
            added = squares[:even:2] + squares[1:even:2] + far
            rows = np.concatenate([both, rows[even:]])
            mean, squares = (
                np.concatenate([together, mean[even:]]),
                np.concatenate([added, squares[even:]]),
            )
    return Moments(sum(part.rows for part in filled), lower, upper, mean[0], squares[0])


MAX_POINTS = 1 << 13
"""`near_share` uses at most this many sample points."""

DRAWN, OF_EACH = 1 << 13, 64
"""Maximum number of random pairs that `near_share` draws: in total, and per pair of
tiles.
"""

FEW_ROWS, FEW_DRAWN = 1 << 17, 1 << 11
"""If at most `FEW_ROWS` points are indexed, `near_share` draws `FEW_DRAWN` pairs in
total instead of `DRAWN`.

A join of at most `FEW_ROWS` points takes only milliseconds, but drawing 8,192 pairs
takes 4 ms.
"""


def near_share(
    x: np.ndarray, rows: int, threshold: float, norm: Norm, few: bool = False
) -> tuple[float, float]:
    """Estimate the fraction of all pairs of tiles whose boxes are within the threshold.

    `rows`: number of points that are indexed. `few`: whether to use few sample points,
    because the join takes little time.

    The sample `x` (m, d) is sorted in kd order, as all points will be. It has fewer
    points than the table, so its tiles are larger than the table's will be. Therefore
    its tiles are halved along their widest dimensions, and random parts of near tiles
    are compared. The second result is the fraction if only a quarter of the points were
    indexed.
    """
    most = SAMPLED if few else MAX_POINTS
    max_points = min(most, max(2 * TILE, NUMBERS // x.shape[1]))
    halvings = math.ceil(math.log2(max(rows, max_points) / max_points))
    wanted = max(2 * TILE, math.ceil(rows / 2**halvings))
    if len(x) > wanted:
        x = x[
            np.sort(np.random.default_rng(len(x)).choice(len(x), wanted, replace=False))
        ]
    elif len(x):
        halvings = max(0, round(math.log2(max(rows, len(x)) / len(x))))
    number = len(x) // TILE
    if number < 2:
        return 1.0, 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        cuts = dims_to_cut(x.var(axis=0)).first(rows, TILE, CUTS)
    order = kd_order(x, cuts, TILE, FAN_OUT)
    tiles = x[order[: number * TILE]].reshape(number, TILE, -1)
    drawn = DRAWN if rows > FEW_ROWS else FEW_DRAWN
    with np.errstate(over="ignore", invalid="ignore"):
        whole = _share(tiles, cuts.dims, halvings, threshold, norm, drawn)
        # extrapolate, because a quarter of the points would have larger tiles than the
        # sample
        if few or halvings < 2:
            quarter = whole * 4 ** (1 / len(cuts.dims))
        else:
            quarter = _share(tiles, cuts.dims, halvings - 2, threshold, norm, drawn)
    return whole, min(1.0, max(whole, quarter))


def _share(
    tiles: np.ndarray,
    cut: tuple[int, ...],
    halvings: int,
    threshold: float,
    norm: Norm,
    max_pairs: int,
) -> float:
    """Estimate the fraction of near pairs among all pairs of parts of tiles.

    Each tile is halved `halvings` times.

    `tiles` (n, 64, d): points of each tile. `cut`: dimensions that tiles are halved in.
    `max_pairs`: maximum number of pairs of parts to draw, although at least one is
    drawn for each pair of near tiles.
    """
    number, _, dims = tiles.shape
    others = [k for k in range(dims) if k not in cut]
    sides = np.sort(tiles[:, :, cut], axis=1)
    low, high = sides[:, 0], sides[:, -1]
    parts = _parts(high - low, halvings)
    # the part of space that belongs to a tile is a little larger than the box around
    # its points
    more = np.where(parts > 1, (high - low) / (TILE - 1), 0.0)
    low, high = low - more, high + more
    ends = np.concatenate([low[:, None], sides, high[:, None]], axis=1)
    random = np.random.default_rng(number)
    some = np.repeat(
        np.unique(np.linspace(0, number - 1, PROBED).astype(np.int64)), number
    )
    pairs = some, np.tile(np.arange(number), len(some) // number)
    rest = tiles[:, :, others].min(axis=1), tiles[:, :, others].max(axis=1)
    away = _gaps(norm, *(side[tile] for tile in pairs for side in rest))
    whole = _gaps(norm, *(side[tile] for tile in pairs for side in (low, high)))
    near = np.flatnonzero(
        (np.maximum(away, whole) if norm == math.inf else away + whole) <= threshold
    )
    if halvings <= 0 or not len(near):
        return len(near) / len(some)
    each = min(OF_EACH, max(1, max_pairs // len(near)))

    def drawn(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        into = parts[chosen]
        place = np.floor(random.random(into.shape) * into)
        lower, upper = (_at(ends, chosen, (place + k) / into) for k in range(2))
        # the box around a tile's points is narrower than the space that it covers
        less = np.where(into > 1, (upper - lower) / (TILE + 1), 0.0)
        return lower + less, upper - less

    first, second = (drawn(np.repeat(tile[near], each)) for tile in pairs)
    total, gap = (
        np.repeat(away[near], each),
        np.maximum(first[0] - second[1], second[0] - first[1]),
    )
    for k in range(len(cut)):
        total = add(total, np.maximum(gap[:, k], 0.0), norm)
    return float(np.count_nonzero(total <= threshold)) / (each * len(some))


def _gaps(
    norm: Norm,
    lower: np.ndarray,
    upper: np.ndarray,
    other_lower: np.ndarray,
    other_upper: np.ndarray,
) -> np.ndarray:
    """Return the same as `box_gap`, ten times faster, by computing all dimensions at
    once.

    The rounding differs, so use the results for estimates only.
    """
    powers = power(
        np.maximum(np.maximum(lower - other_upper, other_lower - upper), 0.0), norm
    )
    gaps: np.ndarray = (
        powers.max(axis=1, initial=0.0) if norm == math.inf else powers.sum(axis=1)
    )
    return gaps


def _at(ends: np.ndarray, chosen: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Return the quantiles of the tiles' coordinates (m, d) by linear interpolation.

    `ends`: sorted coordinates of each tile. `chosen` (m,): numbers of tiles. `share`
    (m, d): the level of the quantile in each dimension, from 0 to 1.
    """
    place = share * (ends.shape[1] - 1)
    before = np.minimum(place.astype(np.int64), ends.shape[1] - 2)
    dims = np.arange(ends.shape[2])
    start, stop = (ends[chosen[:, None], before + k, dims] for k in range(2))
    between: np.ndarray = start + (stop - start) * (place - before)
    return between


def _parts(width: np.ndarray, halvings: int) -> np.ndarray:
    """Return into how many parts each box is cut in each dimension (n, d). The widest
    dimension is cut first.

    `width` (n, d): widths of the boxes.
    """
    parts, rows = np.ones(width.shape), np.arange(len(width))
    each = FAN_OUT.bit_length() - 1
    while halvings > 0:
        parts[rows, (width / parts).argmax(axis=1)] *= 2.0 ** min(each, halvings)
        halvings -= each
    return parts
