"""How many of the true pairs a join finds that may leave some out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.index.clusters import KMeansLayout, labels_of
from dask_simjoin.engine.protocols import Joiner, Layout
from dask_simjoin.metrics.types import Array
from dask_simjoin.planning.statistics.estimate import Z
from dask_simjoin.planning.statistics.sample_pairs import Sampled, SamplePoints, sample_pairs

LEAST_PAIRS = 100
"""Pairs of a sample from which they tell a share."""

MEASURED, LEAST_MEASURED = 10_000, 1_000
"""Rows that are joined exactly with all, to measure it, and pairs of them from which they tell it."""


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

    def in_words(self) -> str:
        """Describe it in a report."""
        if math.isnan(self.share):
            return f"not told by {self.pairs:,.0f} true pairs, which are too few"
        interval = f"95 % interval {self.low:.4f} to {self.high:.4f}"
        return f"{self.share:.4f} of the true pairs, {interval}, by {self.pairs:,.0f} of them"


ALL = Recall(1.0, 1.0, 1.0, math.inf)
"""That of what is exact."""

UNKNOWN = Recall(math.nan, 0.0, 1.0, 0.0)
"""That of what nobody told."""


def ratio(found: np.ndarray, true: np.ndarray, of: float, pairs: float, least: float) -> Recall:
    """Return the recall from what each of some rows drawn at random finds, and should find.

    The variance is that of a ratio estimator (Cochran 1977, "Sampling techniques", section 6.4), and of no
    use where next to all residuals are zero: a share is then taken from three pairs that were not seen.

    Parameters
    ----------
    found, true : array (rows,)
        Pairs of each row.
    of : float
        Rows that they are drawn from.
    pairs, least : float
        True pairs that are known, and how many are needed to tell.
    """
    rows, total = len(true), float(true.sum())
    if not total or pairs < least:
        return Recall(math.nan, 0.0, 1.0, pairs)
    share = float(found.sum()) / total
    residuals = found - share * true
    left = max(0.0, 1 - rows / of)
    away = Z * math.sqrt(left * rows / max(1, rows - 1) * float((residuals**2).sum())) / total
    unseen = 3 / pairs * (left > 0)
    low, high = share - max(away, unseen * share), share + max(away, unseen * (1 - share))
    return Recall(share, max(0.0, low), min(1.0, high), pairs)


class Labelled(NamedTuple):
    """Pairs of samples, and the clusters of their points."""

    pairs: Sampled
    left: np.ndarray
    right: np.ndarray


def labelled(first: SamplePoints, second: SamplePoints, layout: KMeansLayout, joiner: Joiner) -> Labelled:
    """Find all pairs of samples, by the layout of an exact join, and the clusters of their points."""
    pairs = sample_pairs(first, second, layout, joiner)
    left = _labels(pairs.first.x, layout, joiner)
    return Labelled(pairs, left, left if pairs.same else _labels(pairs.second.x, layout, joiner))


def _labels(x: np.ndarray, layout: KMeansLayout, joiner: Joiner) -> np.ndarray:
    index = joiner.build(joiner.xp.asarray(x), layout)
    labels: np.ndarray = to_host(labels_of(index, layout, joiner.xp))
    return labels


def expected_recall(parts: Sequence[Labelled], least: float = LEAST_PAIRS) -> Recall:
    """Tell from pairs of samples, which have no point in common, how many have rows of one cluster.

    Both rows of a pair are drawn: with a residual of each pair, the variance of their sum is about that of
    the sums of the rows' squares (the first projection of a U-statistic, as in `estimate`).
    """
    same, number = parts[0].pairs.same, float(sum(len(part.pairs.left) for part in parts))
    ends: list[list[tuple[np.ndarray, np.ndarray]]] = [[], []]
    for pairs, left, right in parts:
        kept = left[pairs.left] == right[pairs.right]
        value = pairs.first.weight[pairs.left] * pairs.second.weight[pairs.right] * pairs.share
        if same:
            value = pairs.first.stands_for(pairs.left, pairs.right) * pairs.share
        for side, places, points in zip(ends, (pairs.left, pairs.right), pairs[:2], strict=True):
            each = [np.bincount(places, some, minlength=len(points.x)) for some in (value * kept, value)]
            side.append((each[0], each[1]))
    found, true = ([np.concatenate([part[k] for part in side]) for side in ends] for k in range(2))
    drawn = [float(some.rows) for some in parts[0].pairs[:2]]
    if same:
        one = ratio(found[0] + found[1], true[0] + true[1], drawn[0], number, least)
        return _widened(one, 2.0)
    told = [ratio(*one, number, least) for one in zip(found, true, drawn, strict=True)]
    low, high = (math.hypot(*(one[k] - one.share for one in told)) for k in (1, 2))
    return _between(told[0], low, high)


def between(every: Recall, parts: Sequence[Recall]) -> Recall:
    """Widen an interval by how much more the shares of parts differ than their pairs explain.

    Each part is told by clusters of its own, as a join has clusters of its own.
    """
    known = [part for part in parts if not math.isnan(part.share)]
    if math.isnan(every.share) or len(known) < 2:
        return every
    shares = np.array([part.share for part in known])
    # an interval's wider side, as the other may end at 0 or 1
    explained = [max(one.share - one.low, one.high - one.share) / Z for one in known]
    more = Z * math.sqrt(max(0.0, float(shares.var(ddof=1) - np.mean(np.square(explained)))))
    return _between(
        every, math.hypot(every.share - every.low, more), math.hypot(every.high - every.share, more)
    )


def _widened(told: Recall, times: float) -> Recall:
    """Return a recall whose interval is so many times as wide."""
    return _between(told, times * (told.share - told.low), times * (told.high - told.share))


def _between(told: Recall, below: float, above: float) -> Recall:
    """Return a recall whose interval goes so far."""
    if math.isnan(told.share):
        return told
    return told._replace(low=max(0.0, told.share - below), high=min(1.0, told.share + above))


def measured_recall(x: Array, layout: KMeansLayout, exact: Layout, joiner: Joiner) -> Recall:
    """Join some rows of `x` (n, d), drawn at random, with all, and tell how many pairs have one label.

    `exact`: the layout of a join that finds all.
    """
    xp, n = joiner.xp, len(x)
    few = np.sort(np.random.default_rng(n).permutation(n)[:MEASURED])
    rows = xp.asarray(few)
    labels = labels_of(joiner.build(x, layout), layout, xp)
    true, found = xp.zeros(len(few), xp.int64), xp.zeros(len(few))

    def add(left: Array, right: Array, totals: Array) -> None:
        other = rows[left] != right
        left, right = left[other], right[other]
        if not len(left):
            return
        true[:] += xp.bincount(left, minlength=len(few))
        kept = labels[rows[left]] == labels[right]
        found[:] += xp.bincount(left, kept.astype(np.float64), minlength=len(few))

    every = joiner.build(x, exact)
    joiner.visit(joiner.build(x[rows], exact), every, exact, add, same=False)
    ends = float(true.sum())
    return ratio(to_host(found), to_host(true), n, ends / 2 if len(few) == n else ends, LEAST_MEASURED)
