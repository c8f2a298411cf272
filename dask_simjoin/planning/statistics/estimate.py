"""Estimate how many pairs a join gives, from a join of the samples, and hold estimates of recall.

The number of pairs among points drawn at random, each partition's by itself, times what each pair
stands for, is unbiased.  Its variance is that of a U-statistic of two arguments (Hoeffding 1948, "A
class of statistics with asymptotically normal distribution", section 5): pairs share points, so
points with many neighbours make it vary more than a count would.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dask_simjoin.planning.statistics.sample_pairs import Sampled, SamplePoints

Z = 1.96
"""Of the intervals: 95 %, both sides."""

PRIOR = 0.5
"""How many pairs the belief is worth that pairs are spread like points."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Numbers of pairs, unordered, and where the true ones lie with a chance of 95 %.

    Attributes
    ----------
    pairs, low, high : array (blocks,), float64
    total, total_low, total_high : float
    sampled : int
        Points of the sample that this is from.
    degrees, points : array (k,)
        In how many pairs points of the sample are, the most first, and how many points are in so many.
    """

    pairs: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: float
    total_low: float
    total_high: float
    sampled: int
    degrees: np.ndarray
    points: np.ndarray

    def share(self, part: float) -> float:
        """The largest share of all pairs that this part of all points can have."""
        total = (self.degrees * self.points).sum()
        if not total:
            return 1.0
        before = np.cumsum(self.points) - self.points
        some = np.clip(math.ceil(part * self.sampled) - before, 0, self.points)
        return float((self.degrees * some).sum() / total)


class Recall(NamedTuple):
    """The share of the true pairs that are found, and where it is with a chance of 95 %.

    Attributes
    ----------
    share, low, high : float
        NaN: too few pairs are known to tell.
    pairs : float
        True pairs that tell it.
    """

    share: float
    low: float
    high: float
    pairs: float

    def numbers(self) -> dict[str, float]:
        """Return it as numbers of a profile: of what is exact the share alone."""
        if math.isinf(self.pairs):
            return {"recall": self.share}
        told = {"recall": self.share, "recall_low": self.low, "recall_high": self.high}
        return ({} if math.isnan(self.share) else told) | {"recall_pairs": self.pairs}

    def in_words(self, what: str = "pairs") -> str:
        """Describe it in a report."""
        if math.isnan(self.share):
            return f"not told by {self.pairs:,.0f} true {what}, which are too few"
        interval = f"95 % interval {self.low:.4f} to {self.high:.4f}"
        return f"{self.share:.4f} of the true {what}, {interval}, by {self.pairs:,.0f} of them"


ALL = Recall(1.0, 1.0, 1.0, math.inf)
"""That of what is exact."""

UNKNOWN = Recall(math.nan, 0.0, 1.0, 0.0)
"""That of what nobody told."""


def estimate(sampled: Sampled, blocks: np.ndarray, sizes: np.ndarray, block: np.ndarray) -> Estimate:
    """Estimate the pairs of all blocks.

    Parameters
    ----------
    sampled
        As `sample_pairs` gives it.
    blocks : array (B, 2)
        The chunks that meet.
    sizes : array (B,), float64
        The number of candidates of each block, the product of its sides' sizes.
    block : array (pairs,)
        The block of each sampled pair.
    """
    first, second, same = sampled.first, sampled.second, sampled.same
    exact = all(len(some.x) >= some.rows for some in (first, second))
    if min(len(first.x), len(second.x)) < 1 + same or not len(blocks):
        return _nothing_seen(sizes, blocks, not exact, len(first.x))
    value, degree, shared, each = _within(sampled) if same else _across(sampled)
    seen = np.bincount(block, minlength=len(blocks)).astype(float)
    pairs = np.bincount(block, value, minlength=len(blocks))
    return _from_pairs(Found(pairs, seen, degree, shared, each, exact), sizes)


def estimate_one(points: SamplePoints, degree: np.ndarray, candidates: float) -> Estimate:
    """Estimate the pairs of a table that is one block, from how many each point of its sample is in.

    Its sample is of one partition, so that each pair stands for as many.
    """
    block, sizes, m = np.zeros((1, 2), np.int32), np.array([candidates]), len(points.x)
    exact = m >= points.rows
    if m < 2:
        return _nothing_seen(sizes, block, not exact, m)
    first = np.zeros(1, np.int64)
    seen, value = degree.sum() / 2, points.stands_for(first, first)
    shared, each = _spread_within(points, degree)
    return _from_pairs(Found(seen * value, np.array([seen]), degree, shared, each, exact), sizes)


def block_of(blocks: np.ndarray, chunks: int, pairs: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the block of each sampled pair; `pairs`: the chunks that its points are in."""
    keys = blocks[:, 0].astype(np.int64) * (chunks + 1) + blocks[:, 1]
    order, (i, j) = np.argsort(keys), pairs
    if not len(keys):
        return np.zeros(len(i), np.int64)
    return order[np.searchsorted(keys[order], i * (chunks + 1) + j)]


def _within(sampled: Sampled) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Tell what pairs of one table's sample stand for: a U-statistic of two arguments; see `Found`."""
    points, left, right = sampled.first, sampled.left, sampled.right
    m = len(points.x)
    degree = np.bincount(left, minlength=m) + np.bincount(right, minlength=m)
    return points.stands_for(left, right) * sampled.share, degree, *_spread_within(points, degree)


def _spread_within(points: SamplePoints, degree: np.ndarray) -> tuple[float, float]:
    """Return `shared` and `each` of a `Found` of a table with itself."""
    m, shared = len(points.x), 0.0
    if degree.any():
        once = degree.sum() / (m * (m - 1.0))
        shared = max(0.0, 4 * _shared(degree, once, m - 1.0)) * (1 - m / points.rows)
    return shared, float(np.mean(points.weight) ** 2)


def _across(sampled: Sampled) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Tell what pairs of two tables' samples stand for: a U-statistic of two samples; see `Found`."""
    first, second, left, right, share = sampled
    n, shared = len(left), 0.0
    degree = np.bincount(left, minlength=len(first.x))
    if n:
        once = n / (len(first.x) * len(second.x))
        for some, places, others in ((first, left, second), (second, right, first)):
            own = np.bincount(places, minlength=len(some.x))
            variance = _shared(own, once, float(len(others.x)))
            shared += max(0.0, variance) * (1 - len(some.x) / some.rows)
    value = first.weight[left] * second.weight[right] * share
    each = float(np.mean(first.weight) * np.mean(second.weight))
    return value, degree, shared, each


class Found(NamedTuple):
    """Pairs of samples.

    Attributes
    ----------
    pairs, seen : array (blocks,), float64
        How many pairs those of each block stand for, and how many they are.
    degree : array (points,), int64
        How many pairs each point is in.
    shared : float
        Variance of the number of pairs that comes from pairs that share points, relative to its square.
    each : float
        Pairs that one would stand for, had there been one.
    exact : bool
        Whether the samples are all there is.
    """

    pairs: np.ndarray
    seen: np.ndarray
    degree: np.ndarray
    shared: float
    each: float
    exact: bool


def _shared(degree: np.ndarray, once: float, others: float) -> float:
    """The relative variance from pairs that share one of these points, each of which meets `others`."""
    m = len(degree)
    both = float((degree * (degree - 1.0)).sum()) / (m * others * max(others - 1.0, 1.0))
    return (both / once**2 - 1) / m


def no_estimate(blocks: np.ndarray) -> Estimate:
    """Return what stands where numbers of pairs are not asked for."""
    return _nothing_seen(np.zeros(len(blocks)), blocks, False, 0)


def _nothing_seen(sizes: np.ndarray, blocks: np.ndarray, unknown: bool, points: int) -> Estimate:
    none = np.zeros(len(blocks))
    most = sizes if unknown else none
    degrees = _numbers_of(np.zeros(points, np.int64))
    return Estimate(none, none, most, 0.0, 0.0, float(most.sum()), points, *degrees)


def _from_pairs(found: Found, sizes: np.ndarray) -> Estimate:
    """What pairs of samples tell of all blocks."""
    pairs, seen = found.pairs, found.seen
    total, n = float(pairs.sum()), float(seen.sum())
    degrees, m = _numbers_of(found.degree), len(found.degree)
    if found.exact:
        return Estimate(pairs, pairs, pairs, total, total, total, m, *degrees)
    per_pair = total / n if n else found.each
    spread = sizes / max(float(sizes.sum()), 1.0)
    belief = np.maximum(spread * n, 1e-9)
    smooth = (seen + PRIOR) / (1 + PRIOR / belief) * per_pair
    smooth *= total / max(float(smooth.sum()), 1e-300)
    share = np.maximum(spread, 1e-12)
    apart = found.shared * np.minimum(1 / share, len(sizes))
    blocks_low, blocks_high = _interval(smooth, seen, apart, per_pair)
    low, high = _interval(np.array([total]), np.array([n]), np.array([found.shared]), per_pair)
    return Estimate(
        smooth,
        blocks_low,
        np.minimum(blocks_high, sizes),
        total,
        float(low[0]),
        float(min(high[0], sizes.sum())),
        m,
        *degrees,
    )


def _numbers_of(degree: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """List the degrees (m,) that there are, the largest first, and how many points have each."""
    points = np.bincount(degree)
    degrees = np.flatnonzero(points)[::-1]
    return degrees, points[degrees]


def _interval(pairs: np.ndarray, seen: np.ndarray, shared: np.ndarray,
              per_pair: float) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Bounds of numbers of pairs, as of a lognormal variable; three unseen pairs where none was seen."""
    relative = 1 / np.maximum(seen, 1.0) + shared
    factor = np.exp(Z * np.sqrt(np.log1p(relative)))
    few = (3 - np.minimum(seen, 3.0)) * per_pair
    return np.where(seen > 0, pairs / factor, 0.0), pairs * factor + few
