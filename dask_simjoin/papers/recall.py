"""Estimate the recall of approximate joins and searches: see `Method.recall_module`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from dask_simjoin.engine.base import joiner_of_library, searcher_of_library
from dask_simjoin.engine.compat import count_up, tally, to_host
from dask_simjoin.engine.protocols import Joiner, Layout, SearchLayout
from dask_simjoin.metrics.norms import Array
from dask_simjoin.papers.cluster_index import KMeansLayout, labels_of
from dask_simjoin.planning.statistics.estimate import Estimate, Recall, Z
from dask_simjoin.planning.statistics.sample import merge_moments, moments
from dask_simjoin.planning.statistics.sample_pairs import Sampled, sample_pairs
from dask_simjoin.planning.tables import JoinStatistics

LEAST_PAIRS = 100
"""Pairs of a sample from which they tell a share."""

MEASURED, LEAST_MEASURED = 10_000, 1_000
"""Rows that are joined exactly with all, to measure it, and pairs of them from which they tell it."""


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


def _labels(x: np.ndarray, layout: KMeansLayout, joiner: Joiner) -> np.ndarray:
    index = joiner.build(joiner.xp.asarray(x), layout)
    labels: np.ndarray = to_host(labels_of(index, layout, joiner.xp))
    return labels


def expected_recall(pairs: Sampled, layout: KMeansLayout, joiner: Joiner) -> Recall:
    """Tell from pairs of samples how many have rows of one cluster.

    Both rows of a pair are drawn: with a residual of each pair, the variance of their sum is about that of
    the sums of the rows' squares (the first projection of a U-statistic, as in `estimate`).
    """
    left = _labels(pairs.first.x, layout, joiner)
    right = left if pairs.same else _labels(pairs.second.x, layout, joiner)
    kept = left[pairs.left] == right[pairs.right]
    if pairs.same:
        value = pairs.first.stands_for(pairs.left, pairs.right) * pairs.share
    else:
        value = pairs.first.weight[pairs.left] * pairs.second.weight[pairs.right] * pairs.share
    sides = zip((pairs.left, pairs.right), pairs[:2], strict=True)
    found, true = zip(
        *(
            [np.bincount(places, some, minlength=len(points.x)) for some in (value * kept, value)]
            for places, points in sides
        ),
        strict=True,
    )
    drawn, number = [float(some.rows) for some in pairs[:2]], float(len(pairs.left))
    if pairs.same:
        one = ratio(found[0] + found[1], true[0] + true[1], drawn[0], number, LEAST_PAIRS)
        return _between(one, 2 * (one.share - one.low), 2 * (one.high - one.share))
    told = [ratio(*one, number, LEAST_PAIRS) for one in zip(found, true, drawn, strict=True)]
    low, high = (math.hypot(*(one[k] - one.share for one in told)) for k in (1, 2))
    return _between(told[0], low, high)


def _between(told: Recall, below: float, above: float) -> Recall:
    """Return a recall whose interval goes so far."""
    if math.isnan(told.share):
        return told
    return told._replace(low=max(0.0, told.share - below), high=min(1.0, told.share + above))


def estimate_lossy(tables: JoinStatistics, layout: KMeansLayout,
                   estimated: Callable[[Layout], Estimate]) -> tuple[Estimate, Recall]:  # fmt: skip
    """Return the pairs that a join by clusters is expected to find, and which share of the true ones.

    `estimated`: the pairs of a join by an exact layout.
    """
    found, recall = estimated(replace(layout, copies=True)), recall_of(tables, layout)
    share, low, high = (1.0, 0.0, 1.0) if math.isnan(recall.share) else recall[:3]
    expected = replace(
        found, pairs=found.pairs * share, low=found.low * low, high=found.high * high,
        total=found.total * share, total_low=found.total_low * low, total_high=found.total_high * high,
    )  # fmt: skip
    return expected, recall


def recall_of(tables: JoinStatistics, layout: KMeansLayout) -> Recall:
    """Expect the recall of a join by clusters, from pairs of rows that they were not made of.

    Clusters of another draw would tell another share: which rows they part is luck.
    """
    joiner, exact = joiner_of_library(tables.spec.library), replace(layout, copies=True)
    points = [table.hidden for table in tables.each]
    return expected_recall(sample_pairs(points[0], points[-1], exact, joiner), exact, joiner)


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
        count_up(true, left)
        kept = labels[rows[left]] == labels[right]
        found[:] += tally(left, len(few), kept.astype(np.float64))

    every = joiner.build(x, exact)
    joiner.visit(joiner.build(x[rows], exact), every, exact, add, same=False)
    ends = float(true.sum())
    return ratio(to_host(found), to_host(true), n, ends / 2 if len(few) == n else ends, LEAST_MEASURED)


PLANNED = 1_000
"""Rows whose neighbours a plan seeks in both ways; a profile does so of `MEASURED`."""

MOST = 1 << 24
"""Neighbours that are sought of them in all, at most, unless that leaves fewer rows than `FEWEST`."""

FEWEST = 100


def measured_neighbors(q: Array, d: Array, layout: SearchLayout, k: int, library: str,
                       max_total: float = math.inf, rows: int = MEASURED) -> Recall:  # fmt: skip
    """Seek the neighbours of some rows of `q` (n, d), drawn at random, among all of `d` (m, d), in two ways.

    What a search finds of a row depends on the rows among which it is sought, and on no other row that asks.
    But it depends on how many they are: a sample of them is less dense, and would tell another share.

    Parameters
    ----------
    q, d : array
        The same array: no row is a neighbour of itself.
    layout : SearchLayout
        Of the search that may miss neighbours.
    k, max_total
        How many are sought of a row, and the largest total of one.
    rows : int
        Whose neighbours are sought.
    """
    n, same = len(q), d is q
    k = min(k, len(d) - same)
    if n < 1 or k < 1:
        return Recall(math.nan, 0.0, 1.0, 0.0)
    every = merge_moments([moments(side) for side in ([q] if same else [q, d])])
    about = every.lower, every.upper, every.mean, every.variance, to_host(d[:: -(-len(d) // rows)])
    exact = searcher_of_library(library).layout(*about, layout.norm)
    few = np.sort(np.random.default_rng(n).permutation(n)[: min(rows, max(FEWEST, MOST // k))])
    near, true = (_names(q, d, few, one, k, max_total, library) for one in (layout, exact))
    there = true >= 0
    first = np.arange(len(few))[:, None] * len(d)
    asking, found = np.nonzero(there)[0], np.isin((first + true)[there], (first + near)[near >= 0])
    theirs, all_of_them = (np.bincount(some, minlength=len(few)) for some in (asking[found], asking))
    return ratio(theirs, all_of_them, n, float(len(asking)), 1 if len(few) == n else LEAST_MEASURED)


def _names(q: Array, d: Array, few: np.ndarray, layout: SearchLayout, k: int, max_total: float,
           library: str) -> np.ndarray:  # fmt: skip
    """Name the neighbours (few, k) of some rows by their places; -1: none."""
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    rows = joiner.xp.asarray(few)
    some = searcher.renamed(joiner.build(joiner.xp.ascontiguousarray(q[rows]), layout), rows)
    totals, names = searcher.fresh(len(few), k)
    every = searcher.renamed(joiner.build(d, layout), 0)
    searcher.nearest(some, every, layout, totals, names, same=d is q, bound2=max_total)
    return to_host(names)
