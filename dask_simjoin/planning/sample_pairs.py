"""Gather the samples of all partitions, and join them to estimate the number of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.compat import count_up, to_host
from dask_simjoin.engine.protocols import Joiner, Layout, Pairs
from dask_simjoin.metrics.norms import Array
from dask_simjoin.planning.sample import Sample
from dask_simjoin.sizes import PAIRS_AT_ONCE, SAMPLED

FEW_POINTS, FEW_PROBED = 1 << 14, 512
"""`FEW_PROBED` replaces `SAMPLED` for up to `FEW_POINTS` points.

Then all points have so few pairs that a rough guess suffices.
"""


@dataclass(frozen=True, eq=False)
class SamplePoints:
    """The samples of all partitions, one after the other."""

    x: np.ndarray
    position: np.ndarray  # (m,) int64: row numbers in the whole frame, ascending
    # (m,) float64: number of points that each sampled point represents
    weight: np.ndarray
    rows: int  # number of points that the samples were drawn from
    partition: np.ndarray  # (m,) int64: the partition of each sampled point
    # (m,) float64: factor on the weights of pairs within one partition, because samples
    # are without replacement
    together: np.ndarray
    # factor on the weights of all pairs, if some points were left out
    thinned: float = 1.0
    # (m,) float64: threshold of each point, if rows have own radii
    limit: np.ndarray | None = None

    def take(self, places: np.ndarray) -> SamplePoints:
        """Return the points at these positions.

        Their weights are increased, so that they represent all points.
        """
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
        """Return the weight of each pair of points: the number of pairs that it
        represents.
        """
        same = self.partition[left] == self.partition[right]
        product = self.weight[left] * self.weight[right] * self.thinned
        return np.where(same, product * self.together[left], product)


def _together(rows: int, drawn: int) -> float:
    """Return the correction of a pair's weight, ``(rows / drawn)**2``, for samples
    without replacement.
    """
    return (1 - 1 / rows) / (1 - 1 / drawn) if drawn > 1 else 1.0


def gather_samples(
    samples: list[Sample], offsets: np.ndarray, dims: int
) -> SamplePoints:
    """Concatenate the samples of partitions; `offsets`: the position of each
    partition's first row.
    """
    parts = [(n, sample) for n, sample in enumerate(samples) if len(sample.x)]
    rows = sum(sample.rows for sample in samples)
    if not parts:
        none = np.zeros(0, np.int64)
        return SamplePoints(
            np.zeros((0, dims)), none, np.zeros(0), rows, none, np.zeros(0)
        )
    sizes, numbers = (
        [len(sample.x) for _, sample in parts],
        np.array([n for n, _ in parts]),
    )
    return SamplePoints(
        np.concatenate([sample.x for _, sample in parts]),
        np.concatenate([sample.places for _, sample in parts])
        + np.repeat(offsets[numbers], sizes),
        np.repeat([sample.rows / len(sample.x) for _, sample in parts], sizes),
        rows,
        np.repeat(numbers, sizes),
        np.repeat(
            [_together(sample.rows, len(sample.x)) for _, sample in parts], sizes
        ),
        limit=np.concatenate([s.limit for _, s in parts])
        if parts[0][1].limit is not None
        else None,
    )


class Sampled(NamedTuple):
    """The pairs of sample points."""

    # the points that were joined; the same object if a table was joined with itself
    first: SamplePoints
    second: SamplePoints
    # (pairs,): the positions of each pair's points in `first` and `second`
    left: np.ndarray
    right: np.ndarray
    # (pairs,) float64: 0.5 if only one of both points may be on the left; else 1.0. The
    # reason is that points have their own thresholds, or that a range is one-sided
    share: np.ndarray | float

    @property
    def same(self) -> bool:
        """Whether a table was joined with itself."""
        return self.second is self.first


def sample_pairs(
    first: SamplePoints,
    second: SamplePoints,
    layout: Layout,
    joiner: Joiner,
    most: int = PAIRS_AT_ONCE,
) -> Sampled:
    """Join the samples of two tables, or of one table with itself.

    Use fewer points if there would be more than about `most` pairs.
    """
    same = second is first
    random = np.random.default_rng(len(first.x) + (0 if same else len(second.x)))
    expected = _pairs_expected(first, second, layout, joiner, random)
    if expected > most:
        part = math.sqrt(most / expected)
        first = _thinned(first, part, random)
        second = first if same else _thinned(second, part, random)
    return all_pairs(first, second, layout, joiner)


def all_pairs(
    first: SamplePoints, second: SamplePoints, layout: Layout, joiner: Joiner
) -> Sampled:
    """Join points like `sample_pairs`, but use all of them, however many pairs they
    have.
    """
    return _within_limits(_joined(first, second, layout, joiner), first, second)


def number_of_pairs(
    tables: Sequence[list[np.ndarray]], layout: Layout, joiner: Joiner
) -> int:
    """Count the pairs of points of two tables, or of one table with itself, without
    listing them.

    `tables`: for each table, points (n, d) of its partitions.
    """
    whole = [parts[0] if len(parts) == 1 else np.concatenate(parts) for parts in tables]
    index = [joiner.build(joiner.xp.asarray(x), layout) for x in whole]
    return int(
        joiner.weights(index[0], index[-1], layout, is_self_join=len(index) == 1).sum()
    )


def candidates_per_row(
    first: SamplePoints, second: SamplePoints, layout: Layout, joiner: Joiner
) -> float:
    """Estimate from some sample points how many candidates a row of the first table
    has, if a layout's method finds the pairs that gates decide.
    """
    same = second is first
    some = _probed([first] if same else [first, second])
    if not all(len(points.x) for points in some):
        return 0.0
    each = second.rows / len(some[-1].x) / len(some[0].x)
    return _joined(some[0], some[-1], layout, joiner).decided * each * (1 + same)


def effective_dims(x: np.ndarray) -> float:
    """Return in how many dimensions points (n, d) vary: from 1 to d, or 0.

    It is the participation ratio of the eigenvalues of their covariance matrix.
    """
    x = x[:: max(1, len(x) // SAMPLED)]
    widest = float(np.ptp(x, axis=0).max(initial=0.0)) if len(x) else 0.0
    if not 0 < widest < math.inf:
        return 0.0
    covariance = np.atleast_2d(np.cov(x / widest, rowvar=False))
    return float(np.trace(covariance)) ** 2 / float((covariance**2).sum())


def _joined(
    first: SamplePoints, second: SamplePoints, layout: Layout, joiner: Joiner
) -> Pairs:
    same = second is first
    left = joiner.build(joiner.xp.asarray(first.x), layout)
    right = left if same else joiner.build(joiner.xp.asarray(second.x), layout)
    made = None if first.limit is None else (lambda totals: totals)
    # int64 labels, as in joins, so that no other kernels are compiled for samples
    names = tuple(
        side["order"][: len(of.x)].astype(np.int64)
        for side, of in ((left, first), (right, second))
    )
    return joiner.pairs(
        left, right, layout, is_self_join=same, distance=made, labels=names
    )


def _pairs_expected(
    first: SamplePoints,
    second: SamplePoints,
    layout: Layout,
    joiner: Joiner,
    random: np.random.Generator,
) -> float:
    """Estimate from some sample points how many pairs all of them have; 0 if there are
    few sample points.
    """
    every = [first] if second is first else [first, second]
    most = max(len(points.x) for points in every)
    if most <= SAMPLED:
        return 0.0
    some = _probed(every, random)
    found = float(len(_joined(some[0], some[-1], layout, joiner).left))
    for points, probe in ((first, some[0]), (second, some[-1])):
        found *= max(1.0, len(points.x) / len(probe.x))
    return found


def _probed(
    every: list[SamplePoints], random: np.random.Generator | None = None
) -> list[SamplePoints]:
    """Return some points of each table: at most `FEW_PROBED` or `SAMPLED`."""
    most = max(len(points.x) for points in every)
    probe = SAMPLED if most > FEW_POINTS else FEW_PROBED
    random = random or np.random.default_rng(most)
    return [
        points.take(random.choice(len(points.x), min(len(points.x), probe), False))
        for points in every
    ]


def sample_degrees(
    points: SamplePoints, layout: Layout, joiner: Joiner, listed: bool
) -> np.ndarray:
    """Return the number of pairs of each sample point (m,).

    `listed`: whether the join visits each pair. If it does, and the sample has few
    pairs, these are visited as well: then only the kernels of the join are compiled.
    Otherwise pairs are counted, which is faster.
    """
    x = joiner.xp.asarray(points.x)
    m = len(x)
    few = listed
    if listed and m > SAMPLED:
        some = np.random.default_rng(m).choice(m, SAMPLED, replace=False)
        few = (
            int(_list_degrees(x[np.sort(some)], layout, joiner).sum())
            / 2
            * (m / SAMPLED) ** 2
            <= PAIRS_AT_ONCE
        )
    if few:
        return to_host(_list_degrees(x, layout, joiner))
    index = joiner.build(x, layout)
    return to_host(joiner.counts(index, index, layout, is_self_join=True)[0])


def _list_degrees(x: Array, layout: Layout, joiner: Joiner) -> Array:
    index = joiner.build(x, layout)
    degrees = joiner.xp.zeros(len(x), np.int64)

    def visitor(left: Array, right: Array, totals: Array) -> None:
        count_up(degrees, left, right)

    joiner.visit(index, index, layout, visitor, is_self_join=True)
    return degrees


def _thinned(
    points: SamplePoints, part: float, random: np.random.Generator
) -> SamplePoints:
    m = len(points.x)
    fewer = min(m, max(SAMPLED, int(m * part)))
    return points.take(np.sort(random.choice(m, fewer, replace=False)))


def _within_limits(found: Pairs, first: SamplePoints, second: SamplePoints) -> Sampled:
    left, right = to_host(found.left), to_host(found.right)
    if first.limit is None:
        return Sampled(first, second, left, right, 1.0)
    totals = to_host(found.distance)
    share = (totals <= first.limit[left]).astype(float)
    if second.limit is not None:
        share = (share + (totals <= second.limit[right])) / 2
    kept = share > 0
    return Sampled(first, second, left[kept], right[kept], share[kept])
