"""Estimate the number of pairs of a join from a join of samples, and the recall of
approximate joins.

The sum of the sampled pairs' weights is an unbiased estimate: a U-statistic of two
arguments. Its variance is in Hoeffding (1948), "A class of statistics with
asymptotically normal distribution", section 5. Points with many neighbors increase the
variance, because pairs with a common point are not independent.

Confidence intervals are computed as for a Poisson variable with the same relative
variance (Garwood 1936, "Fiducial limits for the Poisson distribution").  The variance
is estimated as well, so Student's quantiles are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dask_simjoin.planning.sample_pairs import Sampled, SamplePoints

Z_PAIRS = 2.06
"""Quantile of the normal distribution for two-sided intervals of 96 %.

In tests with random data, fewer than 95 % of the intervals with the quantile for 95 %
contained the true number."""

NONE_SEEN = -math.log(NormalDist().cdf(-Z_PAIRS))
"""Upper bound of the mean of a Poisson variable whose observed value is 0."""

MIN_FREEDOM = 2.0
"""Minimum number of degrees of freedom. For fewer, the series of `_quantile` is wrong.
"""

TOGETHER = 4.0
"""Partitions of the result are planned for at most this many times the upper bound of
all pairs.
"""

PRIOR = 0.5
"""Weight of the prior, as a number of sampled pairs.

The prior is that block pairs have pairs in proportion to their candidates.
"""


@dataclass(frozen=True, eq=False)
class Estimate:
    """Estimated numbers of unordered pairs, with 95 % intervals."""

    # (block pairs,) float64: number of pairs of each block pair, and its lower and
    # upper bound
    pairs: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: float
    total_low: float
    total_high: float
    sampled: int  # number of sample points
    counted: bool  # whether the numbers are exact
    # (k,): the distinct numbers of pairs per sample point, largest first; and how many
    # points have each
    degrees: np.ndarray
    points: np.ndarray

    @property
    def high_together(self) -> np.ndarray:
        """Numbers of pairs to plan partitions of the result for (block pairs,).

        A sample shows few pairs of each of many block pairs. The sum of their upper
        bounds can then be hundreds of times the upper bound of all pairs. These numbers
        add up to at most `TOGETHER` times that bound.
        """
        most = TOGETHER * self.total_high
        return self.high * min(1.0, most / max(float(self.high.sum()), 1.0))

    def share(self, part: float) -> float:
        """Return the largest fraction of all pairs that the fraction `part` of the
        points may have.
        """
        total = (self.degrees * self.points).sum()
        if not total:
            return 1.0
        before = np.cumsum(self.points) - self.points
        some = np.clip(math.ceil(part * self.sampled) - before, 0, self.points)
        return float((self.degrees * some).sum() / total)

    @property
    def dispersion(self) -> float:
        """Variance of the points' expected numbers of neighbors, divided by the square
        of their mean.

        Numbers in a sample vary more: they are Poisson variables, so their mean is
        added to the variance.
        """
        mean = float((self.degrees * self.points).sum()) / max(self.sampled, 1)
        squares = float(
            (self.degrees.astype(np.float64) ** 2 * self.points).sum()
        ) / max(self.sampled, 1)
        return (squares - mean**2 - mean) / mean**2 if mean else 0.0


class Recall(NamedTuple):
    """The fraction of the true pairs that a join finds, with a 95 % interval."""

    # the fraction (NaN if too few true pairs are known), and the bounds of its interval
    share: float
    low: float
    high: float
    # number of true pairs that the estimate is based on; infinite: `share` is exact
    pairs: float

    def numbers(self) -> dict[str, float]:
        """Return the counters for a profile.

        If the recall is exact, there are no counters for the interval and for the
        number of pairs.
        """
        if math.isinf(self.pairs):
            return {"recall": self.share}
        numbers = {
            "recall": self.share,
            "recall_low": self.low,
            "recall_high": self.high,
        }
        return ({} if math.isnan(self.share) else numbers) | {
            "recall_pairs": self.pairs
        }

    def in_words(self, what: str = "pairs") -> str:
        """Describe the recall in a report."""
        if math.isnan(self.share):
            return f"unknown: {self.pairs:,.0f} true {what} are too few to estimate it"
        interval = f"95 % interval {self.low:.4f} to {self.high:.4f}"
        return f"{self.share:.4f} of the true {what}, {interval}, by {self.pairs:,.0f} of them"


ALL = Recall(1.0, 1.0, 1.0, math.inf)
"""The recall of an exact join."""

UNKNOWN = Recall(math.nan, 0.0, 1.0, 0.0)
"""The recall if there is no estimate."""


def estimate(
    sampled: Sampled, blocks: np.ndarray, sizes: np.ndarray, block: np.ndarray
) -> Estimate:
    """Estimate the number of pairs of each block pair.

    `blocks` (B, 2): the chunks of each block pair.  `sizes` (B,): number of its
    candidates.  `block` (pairs,): the block pair of each sampled pair.
    """
    first, second, same = sampled.first, sampled.second, sampled.same
    exact = all(len(some.x) >= some.rows for some in (first, second))
    if min(len(first.x), len(second.x)) < 1 + same or not len(blocks):
        return nothing_seen(sizes, blocks, not exact, len(first.x))
    value, degree, shared, freedom, each = (
        _within(sampled) if same else _across(sampled)
    )
    seen = np.bincount(block, minlength=len(blocks)).astype(float)
    pairs = np.bincount(block, value, minlength=len(blocks))
    return _from_pairs(
        PairSample(pairs, seen, degree, shared, freedom, each, exact), sizes
    )


def counted(pairs: int, found: Estimate) -> Estimate:
    """Replace the estimate `found` of a single block pair by the exact number of pairs."""
    one = np.array([float(pairs)])
    return replace(
        found,
        pairs=one,
        low=one,
        high=one,
        total=pairs,
        total_low=pairs,
        total_high=pairs,
        counted=True,
    )


def estimate_one(
    points: SamplePoints, degree: np.ndarray, candidates: float
) -> Estimate:
    """Estimate the number of pairs of a table with one partition.

    `degree`: number of pairs of each sample point.
    """
    block, sizes, m = np.zeros((1, 2), np.int32), np.array([candidates]), len(points.x)
    exact = m >= points.rows
    if m < 2:
        return nothing_seen(sizes, block, not exact, m)
    first = np.zeros(1, np.int64)
    seen, value = degree.sum() / 2, points.stands_for(first, first)
    shared, freedom, each = _spread_within(points, degree)
    found = PairSample(
        seen * value, np.array([seen]), degree, shared, freedom, each, exact
    )
    return _from_pairs(found, sizes)


def block_of(
    blocks: np.ndarray, chunks: int, pairs: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return the number of the block pair of each sampled pair.

    `chunks`: number of chunks.  `pairs`: the chunks of the two points of each sampled
    pair.
    """
    keys = blocks[:, 0].astype(np.int64) * (chunks + 1) + blocks[:, 1]
    order, (i, j) = np.argsort(keys), pairs
    if not len(keys):
        return np.zeros(len(i), np.int64)
    return order[np.searchsorted(keys[order], i * (chunks + 1) + j)]


def _within(sampled: Sampled) -> tuple[np.ndarray, np.ndarray, float, float, float]:
    """Return the fields of a `PairSample` for a self-join: a U-statistic of two
    arguments.
    """
    points, left, right = sampled.first, sampled.left, sampled.right
    m = len(points.x)
    degree = np.bincount(left, minlength=m) + np.bincount(right, minlength=m)
    return (
        points.stands_for(left, right) * sampled.share,
        degree,
        *_spread_within(points, degree),
    )


def _spread_within(
    points: SamplePoints, degree: np.ndarray
) -> tuple[float, float, float]:
    """Return the fields `shared`, `freedom` and `each` of a `PairSample` for a
    self-join.
    """
    m, shared = len(points.x), 0.0
    if degree.any():
        once = degree.sum() / (m * (m - 1.0))
        shared = max(0.0, 4 * _shared(degree, once, m - 1.0)) * (1 - m / points.rows)
    return shared, _freedom(degree), float(np.mean(points.weight) ** 2)


def _across(sampled: Sampled) -> tuple[np.ndarray, np.ndarray, float, float, float]:
    """Return the fields of a `PairSample` for two tables: a U-statistic of two samples."""
    first, second, left, right, share = sampled
    n, shared, freedom = len(left), 0.0, math.inf
    degree = np.bincount(left, minlength=len(first.x))
    if n:
        once = n / (len(first.x) * len(second.x))
        for some, places, others in ((first, left, second), (second, right, first)):
            own = np.bincount(places, minlength=len(some.x))
            variance = _shared(own, once, float(len(others.x)))
            shared += max(0.0, variance) * (1 - len(some.x) / some.rows)
            freedom = min(freedom, _freedom(own))
    value = first.weight[left] * second.weight[right] * share
    each = float(np.mean(first.weight) * np.mean(second.weight))
    return value, degree, shared, freedom, each


class PairSample(NamedTuple):
    """Counts of sampled pairs."""

    # (block pairs,) float64: for the sampled pairs of each block pair, the sum of their
    # weights, and their number
    pairs: np.ndarray
    seen: np.ndarray
    degree: np.ndarray  # (points,) int64: number of pairs of each point
    # the part of the relative variance that comes from pairs with a common point
    shared: float
    freedom: float  # degrees of freedom of `shared`, because that is itself an estimate
    each: float  # weight of a pair; used if no pair was sampled
    exact: bool  # whether the samples have all points


def _shared(degree: np.ndarray, once: float, others: float) -> float:
    """Return the part of the relative variance that pairs with a common point cause.

    `once`: fraction of candidates that are pairs. `others`: number of candidates of
    each point.
    """
    m = len(degree)
    both = float((degree * (degree - 1.0)).sum()) / (
        m * others * max(others - 1.0, 1.0)
    )
    return (both / once**2 - 1) / m


def _freedom(degree: np.ndarray) -> float:
    """Return the degrees of freedom of the variance of `degree`.

    They are few if few points have most of the pairs.
    """
    apart = (degree - degree.mean()) ** 2
    variance = float(apart.mean())
    if not variance:
        return math.inf
    kurtosis = float((apart**2).mean()) / variance**2
    return 2 * len(degree) / max(kurtosis - 1, 1e-9)


def _quantile(freedom: float) -> float:
    """Return the quantile of Student's t that is used instead of `Z_PAIRS` (Cornish &
    Fisher 1938).
    """
    df, z = max(freedom, MIN_FREEDOM), Z_PAIRS
    terms = (
        (z**3 + z) / (4 * df),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3),
    )
    return z + sum(terms)


def no_estimate(blocks: np.ndarray) -> Estimate:
    """Return an estimate of 0 pairs, for joins that need no estimate."""
    return replace(nothing_seen(np.zeros(len(blocks)), blocks, False, 0), counted=False)


def nothing_seen(
    sizes: np.ndarray, blocks: np.ndarray, unknown: bool, points: int
) -> Estimate:
    """Return the estimate if the sample of `points` points has no possible pair.

    `sizes`: number of candidates of each block pair. `unknown`: whether any of them may
    be a pair.
    """
    none = np.zeros(len(blocks))
    most = sizes if unknown else none
    degrees = _numbers_of(np.zeros(points, np.int64))
    total_high = float(most.sum())
    return Estimate(
        none, none, most, 0.0, 0.0, total_high, points, not total_high, *degrees
    )


def _from_pairs(found: PairSample, sizes: np.ndarray) -> Estimate:
    """Estimate the pairs of all blocks from sampled pairs."""
    pairs, seen = found.pairs, found.seen
    total, n = float(pairs.sum()), float(seen.sum())
    degrees, m = _numbers_of(found.degree), len(found.degree)
    if found.exact:
        return Estimate(pairs, pairs, pairs, total, total, total, m, True, *degrees)
    per_pair = total / n if n else found.each
    spread = sizes / max(float(sizes.sum()), 1.0)
    belief = np.maximum(spread * n, 1e-9)
    smooth = (seen + PRIOR) / (1 + PRIOR / belief) * per_pair
    smooth *= total / max(float(smooth.sum()), 1e-300)
    share = np.maximum(spread, 1e-12)
    apart = found.shared * np.minimum(1 / share, len(sizes))
    t = _quantile(found.freedom)
    blocks_low, blocks_high = _interval(smooth, seen, apart, t, per_pair)
    low, high = _interval(
        np.array([total]), np.array([n]), np.array([found.shared]), t, per_pair
    )
    total_low, total_high = float(low[0]), float(min(high[0], sizes.sum()))
    blocks_high = np.minimum(blocks_high, sizes)
    return Estimate(
        smooth,
        blocks_low,
        blocks_high,
        total,
        total_low,
        total_high,
        m,
        False,
        *degrees,
    )


def _numbers_of(degree: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct degrees (m,), the largest first, and the number of points
    with each.
    """
    points = np.bincount(degree)
    degrees = np.flatnonzero(points)[::-1]
    return degrees, points[degrees]


def _interval(
    pairs: np.ndarray, seen: np.ndarray, shared: np.ndarray, t: float, per_pair: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return lower and upper bounds of numbers of pairs.

    `seen`: number of sampled pairs.  `shared`: see `PairSample`.  `t`: quantile for the
    variance `shared`.
    """
    alone = 1 / np.maximum(seen, 1.0)
    relative = alone + shared
    z = Z_PAIRS + (t - Z_PAIRS) * shared / relative
    # a Poisson variable with this mean has the same relative variance
    number = 1 / relative
    low, high = _chi_square(number, -z) / number, _chi_square(number + 1, z) / number
    return np.where(seen > 0, pairs * low, 0.0), pairs * high + np.where(
        seen > 0, 0.0, NONE_SEEN * per_pair
    )


def _chi_square(half: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Return half the quantile of chi-square with 2 * half degrees of freedom (Wilson &
    Hilferty 1931).
    """
    root: np.ndarray = 1 - 1 / (9 * half) + z / (3 * np.sqrt(half))
    return half * np.maximum(root, 0.0) ** 3
