"""Screening: compare points in a few dimensions first, and in all dimensions only if
these do not decide.

If a few columns are much wider than the others, they decide nearly all candidates.
Tiles and boxes with only these dimensions are smaller, are built faster, and have fewer
numbers to compare. The total over some dimensions is at most the total over all,
because terms are not negative and rounding is monotone. So two points are not a pair if
their total over some dimensions is too large. The other dimensions add at most the
squares of their spans. So two points are surely a pair if their total plus these
squares is small enough.

If at most three dimensions leave only a few candidates per point, a sweep of these
dimensions is used instead of tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.metrics.norms import Norm, add, reach
from dask_simjoin.sizes import FEW

MIN_DIMS = 3
"""Minimum dimensions of the data for screening, and maximum dimensions of a sweep. Each
further dimension would triple the number of cells to visit.
"""

EARLY_FACTOR = 20.0
"""Screening is rejected early if a rough estimate of the undecided candidates is this
many times the limit.

The estimate multiplies, over the dimensions, the fraction of pairs within reach, as if
dimensions were independent.
"""

MIN_QUERIES, MAX_QUERIES, MAX_POINTS = 64, 2048, 2048
"""Minimum and maximum number of sampled queries; maximum number of points that each is
compared with.
"""

MAX_SWEPT_CANDIDATES = 4.0
"""Up to this many candidates per point, a sweep is faster than tiles."""


class JoinSample(NamedTuple):
    """Samples (m, d) of the two tables of a join; a self-join has the same array twice.

    `rows`: number of rows in the table that `points` is a sample of.
    """

    queries: np.ndarray
    points: np.ndarray
    rows: int


@dataclass(frozen=True)
class Screen:
    """The dimensions to compare first, and how much the other dimensions can add to a
    total.
    """

    dims: tuple[int, ...]  # the dimensions, ascending
    # largest sum of squared differences in the other dimensions, for any two points
    rest: float


def make_screen(
    lower: np.ndarray,
    upper: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    sample: JoinSample | None,
) -> Screen | None:
    """Choose as few of the widest dimensions as possible to compare first.

    None: compare all dimensions at once.

    `lower`, `upper`, `variance`: moments (d,) of all points. `threshold`: largest sum
    of squares of a pair. Without a sample, the result is None.
    """
    dims = len(lower)
    if sample is None or dims < MIN_DIMS:
        return None
    queries, points, share = _thin_sample(sample)
    if not len(queries):
        return None
    widest = np.argsort(-variance, kind="stable")
    # comparing more than 3/4 of the dimensions first would save little
    some = int(dims * 0.75)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = ((upper - lower)[widest] * (1 + 2.0**-40)) ** 2
        rest = squares[::-1].cumsum()[::-1] * (1 + dims * 2.0**-50)
        if some <= FEW:
            near = (
                _share_near(queries[:, k], points[:, k], threshold, 2)
                for k in widest[:some].tolist()
            )
            if math.prod(near) * len(queries) * len(points) * share > EARLY_FACTOR:
                return None
        found = _pairs_within(queries, points, share, int(widest[0]), threshold, 2)
        for number in range(1, some + 1):
            if number > 1:
                found = found.also(int(widest[number - 1]))
            # screening fails if the three widest dimensions leave more than 1/4 of the
            # pairs
            if number == MIN_DIMS and len(found.total) > 0.25 * found.compared:
                return None
            still = float(rest[number])
            # plus one, because a small sample without any candidate proves little
            if (
                np.count_nonzero(found.total > threshold - still) + 1
            ) * found.share <= 1:
                return Screen(tuple(sorted(widest[:number].tolist())), still)
    return None


def dims_to_sweep(
    variance: np.ndarray, threshold: float, norm: Norm, sample: JoinSample
) -> tuple[int, ...] | None:
    """Choose the dimensions, ascending, of a sweep that leaves few candidates; None if
    there is none.

    Each step adds the dimension that leaves the fewest candidates. This need not be the
    widest dimension: a wide column may repeat another column, or have the same value in
    most rows.
    """
    queries, points, share = _thin_sample(sample)
    tried = [
        k
        for k in np.argsort(-variance, kind="stable")[:FEW].tolist()
        if variance[k] > 0
    ]
    if len(variance) <= MIN_DIMS or not len(queries) or not tried:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        near = {
            k: _share_near(queries[:, k], points[:, k], threshold, norm) for k in tried
        }
        first = min(tried, key=lambda k: near[k])
        least = math.prod(sorted(near.values())[:MIN_DIMS])
        if (
            least * len(queries) * len(points) * share
            > EARLY_FACTOR * MAX_SWEPT_CANDIDATES
        ):
            return None
        found = _pairs_within(queries, points, share, first, threshold, norm)
        while (len(found.total) + 1) * found.share > MAX_SWEPT_CANDIDATES:
            rest = [k for k in tried if k not in found.dims]
            if len(found.dims) == MIN_DIMS or not rest:
                return None
            found = min((found.also(k) for k in rest), key=lambda each: len(each.total))
    return tuple(sorted(found.dims))


@dataclass(frozen=True, eq=False)
class _NearPairs:
    """Sampled pairs of a query and a point that are within the threshold in the
    dimensions `dims`.

    `i`, `j`: positions in `queries` and `points` of the two rows of each pair. `total`:
    totals over `dims`. `share`: number of candidates per query that one sampled pair
    represents. `compared`: number of sampled pairs, within the threshold or not.
    """

    queries: np.ndarray
    points: np.ndarray
    i: np.ndarray
    j: np.ndarray
    total: np.ndarray
    threshold: float
    norm: Norm
    dims: tuple[int, ...]
    share: float
    compared: int

    def also(self, k: int) -> _NearPairs:
        """Return the pairs that are still within the threshold if dimension `k` is
        added.
        """
        away = np.abs(self.queries[self.i, k] - self.points[self.j, k])
        total = add(self.total, away, self.norm)
        left = np.flatnonzero(total <= self.threshold)
        return replace(
            self,
            i=self.i[left],
            j=self.j[left],
            total=total[left],
            dims=(*self.dims, k),
        )


def _share_near(
    x: np.ndarray, others: np.ndarray, threshold: float, norm: Norm
) -> float:
    """Return the fraction of all pairs of a query and a point that are within reach in
    one dimension.
    """
    return float(_windows(x, np.sort(others), threshold, norm)[1].mean()) / max(
        1, len(others)
    )


def _windows(
    x: np.ndarray, ordered: np.ndarray, threshold: float, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """For each value of `x`, return the first position in `ordered` within reach, and
    the number of positions.
    """
    away = reach(norm, threshold)
    low = np.searchsorted(ordered, x - away)
    return low, np.searchsorted(ordered, x + away, side="right") - low


def _pairs_within(
    queries: np.ndarray,
    points: np.ndarray,
    share: float,
    k: int,
    threshold: float,
    norm: Norm,
) -> _NearPairs:
    """Return the sampled pairs within the threshold in dimension `k`.

    If there are too many, drop some queries.
    """
    points = points[np.argsort(points[:, k])]
    low, number = _windows(queries[:, k], points[:, k], threshold, norm)
    # drop queries if more pairs than this are within reach in the first dimension
    step = -(-int(number.sum()) // 2**15) or 1
    queries, low, number, share = (
        queries[::step],
        low[::step],
        number[::step],
        share * step,
    )
    i = np.repeat(np.arange(len(queries)), number)
    j = np.arange(len(i)) + np.repeat(low - (number.cumsum() - number), number)
    none, compared = np.zeros(len(i)), len(queries) * len(points)
    return _NearPairs(
        queries, points, i, j, none, threshold, norm, (), share, compared
    ).also(k)


def _thin_sample(sample: JoinSample) -> tuple[np.ndarray, np.ndarray, float]:
    """Return sampled queries, sampled points, and the candidates per query that one
    sampled pair represents."""
    is_self_join = sample.queries is sample.points
    number = min(max(2 * sample.rows // MAX_POINTS, MIN_QUERIES), MAX_QUERIES)
    step = max(2, -(-len(sample.queries) // number))
    queries, rest = sample.queries[::step], np.arange(len(sample.points))
    if is_self_join:  # leave out the queries, because a point is not its own candidate
        rest = rest[rest % step != 0]
    points = sample.points[rest[:: max(1, -(-len(rest) // MAX_POINTS))]]
    share = (
        sample.rows / max(1, len(queries) * len(points)) / (2 if is_self_join else 1)
    )
    return queries, points, share
