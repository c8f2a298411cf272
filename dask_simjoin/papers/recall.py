"""Estimate the recall of approximate joins and searches; see `Method.recall_module`."""

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
from dask_simjoin.planning.estimate import Z_PAIRS, Estimate, Recall
from dask_simjoin.planning.sample import merge_moments, moments
from dask_simjoin.planning.sample_pairs import Sampled, sample_pairs
from dask_simjoin.planning.tables import JoinStatistics
from dask_simjoin.sizes import PAIRS_AT_ONCE

MEASURED_ROWS, MIN_MEASURED_PAIRS = 10_000, 1_000
"""A profile compares up to `MEASURED_ROWS` random rows with all rows.

If that finds fewer than `MIN_MEASURED_PAIRS` pairs, no recall is given.
"""

PLANNED = 1_000
"""Number of random rows whose neighbors a plan searches exactly."""

MIN_ROWS = 100


def ratio(
    found: np.ndarray, true: np.ndarray, of: float, pairs: float, min_pairs: float
) -> Recall:
    """Estimate the recall from random rows. `found`, `true`: their numbers of found and
    of true pairs (rows,).

    `of`: number of rows that these random rows were drawn from. `pairs`: number of
    known true pairs. If it is below `min_pairs`, there is no estimate.

    The variance is computed as for a ratio estimator (Cochran 1977, "Sampling
    techniques", section 6.4). This variance is too small if nearly all residuals are
    zero. So the interval allows for at least three unseen pairs.
    """
    rows, total = len(true), float(true.sum())
    if not total or pairs < min_pairs:
        return Recall(math.nan, 0.0, 1.0, pairs)
    share = float(found.sum()) / total
    residuals = found - share * true
    left = max(0.0, 1 - rows / of)
    half_width = (
        Z_PAIRS
        * math.sqrt(left * rows / max(1, rows - 1) * float((residuals**2).sum()))
        / total
    )
    unseen = 3 / pairs * (left > 0)
    low, high = (
        share - max(half_width, unseen * share),
        share + max(half_width, unseen * (1 - share)),
    )
    return Recall(share, max(0.0, low), min(1.0, high), pairs)


def _labels(x: np.ndarray, layout: KMeansLayout, joiner: Joiner) -> np.ndarray:
    index = joiner.build(joiner.xp.asarray(x), layout)
    return to_host(labels_of(index, layout, joiner.xp))


def expected_recall(pairs: Sampled, layout: KMeansLayout, joiner: Joiner) -> Recall:
    """Estimate the recall of a join by clusters: the fraction of sampled pairs with
    both rows in one cluster.

    Both rows of a pair are random. So the variance is about the sum of the squared
    residuals of rows. This is the first projection of a U-statistic, as in
    `planning.estimate`.
    """
    left = _labels(pairs.first.x, layout, joiner)
    right = left if pairs.same else _labels(pairs.second.x, layout, joiner)
    kept = left[pairs.left] == right[pairs.right]
    if pairs.same:
        value = pairs.first.stands_for(pairs.left, pairs.right) * pairs.share
    else:
        value = (
            pairs.first.weight[pairs.left]
            * pairs.second.weight[pairs.right]
            * pairs.share
        )
    sides = list(zip((pairs.left, pairs.right), pairs[:2], strict=True))
    found, true = (
        [np.bincount(places, some, minlength=len(points.x)) for places, points in sides]
        for some in (value * kept, value)
    )
    sample_rows, number = (
        [float(some.rows) for some in pairs[:2]],
        float(len(pairs.left)),
    )
    if pairs.same:
        one = ratio(
            found[0] + found[1], true[0] + true[1], sample_rows[0], number, MIN_ROWS
        )
        return _between(one, 2 * (one.share - one.low), 2 * (one.high - one.share))
    recalls = [
        ratio(*one, number, MIN_ROWS)
        for one in zip(found, true, sample_rows, strict=True)
    ]
    low, high = (math.hypot(*(one[k] - one.share for one in recalls)) for k in (1, 2))
    return _between(recalls[0], low, high)


def _between(recall: Recall, below: float, above: float) -> Recall:
    """Return the recall with another interval: from `recall.share` - `below` to
    `recall.share` + `above`.
    """
    if math.isnan(recall.share):
        return recall
    return recall._replace(
        low=max(0.0, recall.share - below), high=min(1.0, recall.share + above)
    )


def estimate_lossy(
    tables: JoinStatistics,
    layout: KMeansLayout,
    estimate_exact: Callable[[Layout], Estimate],
) -> tuple[Estimate, Recall]:
    """Estimate the number of pairs and the recall of an approximate join by clusters.

    `estimate_exact`: function that estimates the pairs of an exact layout.
    """
    exact, joiner = replace(layout, copies=True), joiner_of_library(tables.spec.library)
    found = estimate_exact(exact)
    # use rows that did not define the clusters, because the recall of rows that did
    # would be too high
    points = [table.hidden for table in tables.each]
    recall = expected_recall(
        sample_pairs(points[0], points[-1], exact, joiner), exact, joiner
    )
    share, low, high = (1.0, 0.0, 1.0) if math.isnan(recall.share) else recall[:3]
    expected = replace(
        found,
        pairs=found.pairs * share,
        low=found.low * low,
        high=found.high * high,
        total=found.total * share,
        total_low=found.total_low * low,
        total_high=found.total_high * high,
    )
    return expected, recall


def measured_recall(
    x: Array, layout: KMeansLayout, exact: Layout, joiner: Joiner
) -> Recall:
    """Measure the recall of a join by clusters: the fraction of pairs with both rows in
    one cluster.

    Random rows of `x` (n, d) are joined with all rows exactly. `layout`: layout of the
    approximate join. `exact`: layout of the exact join.
    """
    xp, n = joiner.xp, len(x)
    few = np.sort(np.random.default_rng(n).permutation(n)[:MEASURED_ROWS])
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
    joiner.visit(joiner.build(x[rows], exact), every, exact, add, is_self_join=False)
    ends = float(true.sum())
    return ratio(
        to_host(found),
        to_host(true),
        n,
        ends / 2 if len(few) == n else ends,
        MIN_MEASURED_PAIRS,
    )


def measured_neighbors(
    q: Array,
    d: Array,
    layout: SearchLayout,
    k: int,
    library: str,
    max_total: float = math.inf,
    rows: int = MEASURED_ROWS,
) -> Recall:
    """Measure the recall of an approximate search of the neighbors of `q` (n, d) among
    `d` (m, d).

    The neighbors of random rows of `q` are searched approximately and exactly.
    `layout`: layout of the approximate search. `k`: number of neighbors. `max_total`:
    largest total of a neighbor. `rows`: number of random rows. If `q` and `d` are the
    same array, no row is its own neighbor.

    A sample of queries does not bias the recall, because queries do not affect each
    other. But a sample of `d` would be less dense, and have another recall. So all rows
    of `d` are searched.
    """
    n, is_self_join = len(q), d is q
    k = min(k, len(d) - is_self_join)
    if n < 1 or k < 1:
        return Recall(math.nan, 0.0, 1.0, 0.0)
    every = merge_moments([moments(side) for side in ([q] if is_self_join else [q, d])])
    about = (
        every.lower,
        every.upper,
        every.mean,
        every.variance,
        to_host(d[:: -(-len(d) // rows)]),
    )
    exact = searcher_of_library(library).layout(*about, layout.norm)
    few = np.sort(
        np.random.default_rng(n).permutation(n)[
            : min(rows, max(MIN_ROWS, PAIRS_AT_ONCE // k))
        ]
    )
    near, true = (
        _neighbors(q, d, few, one, k, max_total, library) for one in (layout, exact)
    )
    exists = true >= 0
    first = np.arange(len(few))[:, None] * len(d)
    queries, found = (
        np.nonzero(exists)[0],
        np.isin((first + true)[exists], (first + near)[near >= 0]),
    )
    hits, totals = (
        np.bincount(some, minlength=len(few)) for some in (queries[found], queries)
    )
    return ratio(
        hits, totals, n, float(len(queries)), 1 if len(few) == n else MIN_MEASURED_PAIRS
    )


def _neighbors(
    q: Array,
    d: Array,
    few: np.ndarray,
    layout: SearchLayout,
    k: int,
    max_total: float,
    library: str,
) -> np.ndarray:
    """Return neighbors of the rows `few` of `q`: positions in `d` (rows, k); -1 if a
    row has fewer than k.
    """
    joiner, searcher = joiner_of_library(library), searcher_of_library(library)
    rows = joiner.xp.asarray(few)
    some = searcher.renamed(
        joiner.build(joiner.xp.ascontiguousarray(q[rows]), layout), rows
    )
    totals, names = searcher.fresh(len(few), k)
    every = searcher.renamed(joiner.build(d, layout), 0)
    searcher.nearest(
        some, every, layout, totals, names, is_self_join=d is q, bound2=max_total
    )
    return to_host(names)
