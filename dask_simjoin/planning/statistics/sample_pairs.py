"""The samples of all partitions together, and the pairs that they give."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.protocols import Joiner
from dask_simjoin.planning.statistics.sample import Sample

MAX_PAIRS = 1 << 21
"""Pairs of the samples that are looked at: thinner samples tell enough of a join that gives more."""

PROBE = 4096
"""Points of the sample that tell how many pairs all of it would give."""


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
    partition : array (m,), int64
        That each of them is from.
    together : array (m,), float64
        By how much more than the product of their weights a pair of one partition stands for.
    thinned : float
        The same of every pair, for points that were left out again.
    limit : array (m,), float64, or None
        Their own thresholds.
    """

    x: np.ndarray
    position: np.ndarray
    weight: np.ndarray
    rows: int
    partition: np.ndarray
    together: np.ndarray
    thinned: float = 1.0
    limit: np.ndarray | None = None

    def take(self, places: np.ndarray) -> SamplePoints:
        """Some of the points, standing for all."""
        m, fewer = len(self.x), len(places)
        return replace(
            self,
            x=self.x[places],
            position=self.position[places],
            weight=self.weight[places] * (m / max(1, fewer)),
            partition=self.partition[places],
            together=self.together[places],
            thinned=self.thinned * _together(m, fewer),
            limit=None if self.limit is None else self.limit[places],
        )

    def stands_for(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """How many pairs of all points each pair of these points stands for."""
        # partitions are drawn from by themselves: only points of one were drawn without each other
        same = self.partition[left] == self.partition[right]
        product = self.weight[left] * self.weight[right] * self.thinned
        return np.where(same, product * self.together[left], product)


def _together(rows: int, drawn: int) -> float:
    """By how much more than ``(rows / drawn)**2`` a pair stands for, of points drawn without replacement."""
    return (1 - 1 / rows) / (1 - 1 / drawn) if drawn > 1 else 1.0


def gather_samples(samples: list[Sample], offsets: np.ndarray, dims: int) -> SamplePoints:
    """All samples as one; `offsets`: the number of each partition's first row."""
    parts = [(n, sample) for n, sample in enumerate(samples) if len(sample.x)]
    rows = sum(sample.rows for sample in samples)
    if not parts:
        none = np.zeros(0, np.int64)
        return SamplePoints(np.zeros((0, dims)), none, np.zeros(0), rows, none, np.zeros(0))
    sizes = [len(sample.x) for _, sample in parts]
    return SamplePoints(
        np.concatenate([sample.x for _, sample in parts]),
        np.concatenate([sample.places + offsets[n] for n, sample in parts]),
        np.repeat([sample.rows / len(sample.x) for _, sample in parts], sizes),
        rows,
        np.repeat([n for n, _ in parts], sizes),
        np.repeat([_together(sample.rows, len(sample.x)) for _, sample in parts], sizes),
        limit=np.concatenate([s.limit for _, s in parts]) if parts[0][1].limit is not None else None,
    )


Sampled = tuple[Any, np.ndarray, np.ndarray, Any]
"""Points that were joined; of each pair its places, and how much of a pair it is (1.0 without limits)."""


def sample_pairs(points: SamplePoints, layout: Any, joiner: Joiner) -> Sampled:
    """The pairs of the sample, or of as many of its points as give not too many.

    Where points have limits, a pair that is one in one direction only is half of one.
    """
    random = np.random.default_rng(len(points.x))
    m = len(points.x)
    asarray = joiner.xp.asarray
    if m > PROBE:
        some = points.x[random.choice(m, PROBE, replace=False)]
        index = joiner.build(asarray(some), layout)
        counts = joiner.counts(index, index, layout, same=True)[0]
        expected = float(counts.sum()) / 2 * (m / PROBE) ** 2
        if expected > MAX_PAIRS:
            m = max(PROBE // 2, int(m * math.sqrt(MAX_PAIRS / expected)))
            points = points.take(np.sort(random.choice(len(points.x), m, replace=False)))
    index = joiner.build(asarray(points.x), layout)
    made = None if points.limit is None else _itself
    found = joiner.pairs(index, index, layout, same=True, distance=made)
    return points, *_decided(found, points, points)


def _itself(totals: Any) -> Any:
    return totals


def _decided(found: Any, first: SamplePoints, second: SamplePoints) -> tuple[np.ndarray, np.ndarray, Any]:
    left, right = to_host(found.left), to_host(found.right)
    if first.limit is None:
        return left, right, 1.0
    totals = to_host(found.distance)
    share = (totals <= first.limit[left]).astype(float)
    if second.limit is not None:
        share = (share + (totals <= second.limit[right])) / 2
    kept = share > 0
    return left[kept], right[kept], share[kept]


def sample_pairs_two(first: SamplePoints, second: SamplePoints, layout: Any,
                     joiner: Joiner) -> Sampled:  # fmt: skip
    """The same of two tables, of which only the first may have limits."""
    random = np.random.default_rng(len(first.x) + len(second.x))
    asarray = joiner.xp.asarray
    if len(first.x) > PROBE:
        some = joiner.build(asarray(first.x[random.choice(len(first.x), PROBE, replace=False)]), layout)
        whole = joiner.build(asarray(second.x), layout)
        found = float(joiner.counts(some, whole, layout, same=False)[0].sum())
        part = math.sqrt(MAX_PAIRS / max(found * len(first.x) / PROBE, 1.0))
        if part < 1:
            first, second = (_thinned(side, part, random) for side in (first, second))
    left, right = (joiner.build(asarray(side.x), layout) for side in (first, second))
    made = None if first.limit is None else _itself
    pairs = joiner.pairs(left, right, layout, same=False, distance=made)
    return (first, second), *_decided(pairs, first, second)


def _thinned(points: SamplePoints, part: float, random: np.random.Generator) -> SamplePoints:
    m = len(points.x)
    fewer = min(m, max(PROBE // 2, int(m * part)))
    return points.take(np.sort(random.choice(m, fewer, replace=False)))
