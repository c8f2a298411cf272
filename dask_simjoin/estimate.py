"""How many pairs a join will give, from a join of the samples.

The number of pairs among points drawn at random, each partition's by itself, times what each pair
stands for, is unbiased.  Its variance is that of a U-statistic of two arguments (Hoeffding 1948, "A
class of statistics with asymptotically normal distribution", section 5): pairs share points, so
points with many neighbours make it vary more than a count would.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_simjoin.arrays import to_host
from dask_simjoin.backends.base import Backend
from dask_simjoin.sample import Sample

MOST_PAIRS = 1 << 21
"""Pairs of the samples that are looked at: thinner samples tell enough of a join that gives more."""

PROBE = 4096
"""Points of the sample that tell how many pairs all of it would give."""

Z = 1.96
"""Of the intervals: 95 %, both sides."""

PRIOR = 0.5
"""How many pairs the belief is worth that pairs are spread like points."""


@dataclass(frozen=True, eq=False)
class SamplePoints:
    """The samples of all partitions, one after the other.

    Attributes
    ----------
    x : array (m, d), float64
    position : array (m,), int64
        Row numbers in the whole frame, ascending.
    weight : array (m,), float64
        Points that each of them stands for.
    rows : int
        Points that they were drawn from.
    """

    x: np.ndarray
    position: np.ndarray
    weight: np.ndarray
    rows: int

    def take(self, places: np.ndarray) -> SamplePoints:
        """Some of the points, standing for all."""
        scale = len(self.x) / max(1, len(places))
        return SamplePoints(self.x[places], self.position[places], self.weight[places] * scale, self.rows)


@dataclass(frozen=True, eq=False)
class Estimate:
    """Numbers of pairs, unordered, and where the true ones lie with a chance of 95 %.

    Attributes
    ----------
    pairs, low, high : array (blocks,), float64
    total, total_low, total_high : float
    sampled : int
        Points of the sample that this is from.
    degrees : array (sampled,), int64
        How many pairs each of them is in, the most first.
    """

    pairs: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: float
    total_low: float
    total_high: float
    sampled: int
    degrees: np.ndarray

    def share(self, part: float) -> float:
        """The largest share of all pairs that this part of all points can have."""
        total = self.degrees.sum()
        if not total:
            return 1.0
        return float(self.degrees[: math.ceil(part * len(self.degrees))].sum() / total)


def gather_samples(samples: list[Sample], offsets: np.ndarray, dims: int) -> SamplePoints:
    """All samples as one; `offsets`: the number of each partition's first row."""
    parts = [(n, sample) for n, sample in enumerate(samples) if len(sample.x)]
    rows = sum(sample.rows for sample in samples)
    if not parts:
        return SamplePoints(np.zeros((0, dims)), np.zeros(0, np.int64), np.zeros(0), rows)
    return SamplePoints(
        np.concatenate([sample.x for _, sample in parts]),
        np.concatenate([sample.places + offsets[n] for n, sample in parts]),
        np.concatenate([np.full(len(sample.x), sample.rows / len(sample.x)) for _, sample in parts]),
        rows,
    )


def sample_pairs(points: SamplePoints, layout: Any,
                 backend: Backend) -> tuple[SamplePoints, np.ndarray, np.ndarray]:  # fmt: skip
    """The pairs of the sample, or of as many of its points as give not too many; and those points."""
    random = np.random.default_rng(len(points.x))
    m = len(points.x)
    asarray = backend.xp.asarray
    if m > PROBE:
        some = points.x[random.choice(m, PROBE, replace=False)]
        index = backend.build(asarray(some), layout)
        counts = backend.counts(index, index, layout, same=True)[0]
        expected = float(counts.sum()) / 2 * (m / PROBE) ** 2
        if expected > MOST_PAIRS:
            m = max(PROBE // 2, int(m * math.sqrt(MOST_PAIRS / expected)))
            points = points.take(np.sort(random.choice(len(points.x), m, replace=False)))
    index = backend.build(asarray(points.x), layout)
    found: Any = backend.pairs(index, index, layout, same=True)
    return points, to_host(found.left), to_host(found.right)


def estimate(points: SamplePoints, left: np.ndarray, right: np.ndarray, blocks: np.ndarray,
             sizes: np.ndarray,
             block_of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Estimate:  # fmt: skip
    """Estimate the pairs of all blocks.

    Parameters
    ----------
    points, left, right
        As `sample_pairs` gives them.
    blocks : array (B, 2)
        The chunks that meet.
    sizes : array (B,), float64
        Of each block the number of candidates, the product of its sides' sizes.
    block_of : callable
        Blocks of pairs of sample points, by their places.
    """
    m, rows = len(points.x), points.rows
    if m < 2 or not len(blocks):
        none = np.zeros(len(blocks))
        most = sizes if m < rows else none
        return Estimate(none, none, most, 0.0, 0.0, float(most.sum()), m, np.zeros(m, np.int64))
    # a point stands for w points, and a pair for w * w; drawing without replacement, a little less
    own = points.weight[left] == points.weight[right]
    value = points.weight[left] * points.weight[right]
    fraction = m / rows
    value = np.where(own, value * (1 - 1 / rows) / (1 - 1 / m), value)
    block = block_of(left, right)
    seen = np.bincount(block, minlength=len(blocks)).astype(float)
    pairs = np.bincount(block, value, minlength=len(blocks))
    total, n = float(value.sum()), float(len(left))
    degree = np.bincount(left, minlength=m) + np.bincount(right, minlength=m)
    degrees = -np.sort(-degree)
    if fraction >= 1:
        return Estimate(pairs, pairs, pairs, total, total, total, m, degrees)
    per_pair = total / n if n else float(np.mean(points.weight) ** 2)
    # variance of the number of pairs, relative to its square
    shared = 0.0
    if n:
        both = float((degree * (degree - 1.0)).sum()) / (m * (m - 1.0) * max(m - 2.0, 1.0))
        once = 2 * n / (m * (m - 1.0))
        shared = max(0.0, 4 * (both / once**2 - 1) / m) * (1 - fraction)
    spread = sizes / max(float(sizes.sum()), 1.0)
    belief = np.maximum(spread * n, 1e-9)
    smooth = (seen + PRIOR) / (1 + PRIOR / belief) * per_pair
    smooth *= total / max(float(smooth.sum()), 1e-300)
    share = np.maximum(spread, 1e-12)
    blocks_low, blocks_high = _interval(smooth, seen, shared * np.minimum(1 / share, len(blocks)), per_pair)
    low, high = _interval(np.array([total]), np.array([n]), np.array([shared]), per_pair)
    return Estimate(
        smooth,
        blocks_low,
        np.minimum(blocks_high, sizes),
        total,
        float(low[0]),
        float(min(high[0], sizes.sum())),
        m,
        degrees,
    )


def _interval(pairs: np.ndarray, seen: np.ndarray, shared: np.ndarray,
              per_pair: float) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Bounds of numbers of pairs, as of a lognormal variable; three unseen pairs where none was seen."""
    relative = 1 / np.maximum(seen, 1.0) + shared
    factor = np.exp(Z * np.sqrt(np.log1p(relative)))
    few = (3 - np.minimum(seen, 3.0)) * per_pair
    return np.where(seen > 0, pairs / factor, 0.0), pairs * factor + few
