"""Screening: compare points in a few dimensions first, and in all dimensions only if these do not decide.

If a few columns are much wider than the others, they decide nearly all candidates. Tiles and boxes with only
these dimensions are smaller, are built faster, and have fewer numbers to compare. The total over some
dimensions is at most the total over all, because terms are not negative and rounding is monotone. So points
too far apart in some dimensions are not a pair. The other dimensions add at most the squares of their spans.
So points that are close enough in some dimensions are surely a pair.

If up to three dimensions leave only a few candidates per point, a sweep of these dimensions replaces tiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.metrics.norms import Norm, add, reach

LEAST_DIMS = 3
"""Minimum number of dimensions of the data for screening."""

LARGEST_PART = 0.75
"""Largest share of the dimensions that are compared first; with more, screening would save little."""

MOST_OPEN = 1.0
"""Screening may leave at most this many undecided candidates per point. Each costs about as much as 64
screened candidates."""

CERTAIN = 20.0
"""Screening is rejected early if a rough estimate of the candidates exceeds the limit by this factor.

The estimate assumes that dimensions are independent. It multiplies their shares of pairs within reach.
"""

LEAST_QUERIES, MOST_QUERIES, POINTS = 64, 2048, 2048
"""Minimum and maximum number of sampled queries, and maximum number of points to compare with each query."""

HOPELESS = 0.25
"""Screening is rejected if comparing three dimensions leaves more than this share of the sampled pairs."""

MOST_SEEN = 1 << 15
"""Maximum number of sampled pairs within reach in the first dimension; queries are dropped if necessary."""

SWEPT = 3
"""Maximum number of dimensions of a sweep: each further dimension triples the cells to visit."""

TRIED = 8
"""The dimensions of a sweep are chosen from this many of the widest dimensions."""

MOST_SWEPT = 4.0
"""Up to this number of candidates per point, a sweep is faster than tiles."""


class Drawn(NamedTuple):
    """Samples (m, d) of the two tables of a join; both are the same array in a self-join.

    `rows`: number of rows of the table that `points` were sampled from.
    """

    queries: np.ndarray
    points: np.ndarray
    rows: int


@dataclass(frozen=True)
class Screen:
    """The dimensions to compare first, and how much the others can add.

    Attributes
    ----------
    dims : tuple of int
        The dimensions, ascending.
    rest : float
        Largest sum of squared differences in the other dimensions, for any two points.
    """

    dims: tuple[int, ...]
    rest: float


def make_screen(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, threshold: float,
                drawn: Drawn | None) -> Screen | None:  # fmt: skip
    """Choose as few of the widest dimensions as possible to compare first; None: compare all at once.

    `lower`, `upper`, `variance`: moments (d,) of all points; `threshold`: bound on sums of squares; `drawn`:
    sample to estimate the number of candidates. Without a sample, the result is None.
    """
    dims = len(lower)
    if drawn is None or dims < LEAST_DIMS:
        return None
    queries, points, share = _some(drawn)
    if not len(queries):
        return None
    widest = np.argsort(-variance, kind="stable")
    some = int(dims * LARGEST_PART)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = ((upper - lower)[widest] * (1 + 2.0**-40)) ** 2
        rest = squares[::-1].cumsum()[::-1] * (1 + dims * 2.0**-50)
        if some <= TRIED:
            near = (_near(queries[:, k], points[:, k], threshold, 2) for k in widest[:some].tolist())
            if math.prod(near) * len(queries) * len(points) * share > CERTAIN * MOST_OPEN:
                return None
        found = _within(queries, points, share, int(widest[0]), threshold, 2)
        for number in range(1, some + 1):
            if number > 1:
                found = found.also(int(widest[number - 1]))
            if number == LEAST_DIMS and len(found.total) > HOPELESS * found.compared:
                return None
            still = float(rest[number])
            # plus one, because a small sample without candidates proves little
            if (np.count_nonzero(found.total > threshold - still) + 1) * found.share <= MOST_OPEN:
                return Screen(tuple(sorted(widest[:number].tolist())), still)
    return None


def dims_to_sweep(variance: np.ndarray, threshold: float, norm: Norm, drawn: Drawn) -> tuple[int, ...] | None:
    """Choose dimensions whose sweep leaves few candidates, ascending; None if there are no such dimensions.

    Each step adds the dimension that leaves the fewest candidates. This need not be the widest dimension,
    because a wide column may repeat another column, or have the same value in most rows.
    """
    queries, points, share = _some(drawn)
    tried = [k for k in np.argsort(-variance, kind="stable")[:TRIED].tolist() if variance[k] > 0]
    if len(variance) <= SWEPT or not len(queries) or not tried:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        near = {k: _near(queries[:, k], points[:, k], threshold, norm) for k in tried}
        first = min(tried, key=lambda k: near[k])
        least = math.prod(sorted(near.values())[:SWEPT])
        if least * len(queries) * len(points) * share > CERTAIN * MOST_SWEPT:
            return None
        found = _within(queries, points, share, first, threshold, norm)
        while (len(found.total) + 1) * found.share > MOST_SWEPT:
            rest = [k for k in tried if k not in found.dims]
            if len(found.dims) == SWEPT or not rest:
                return None
            found = min((found.also(k) for k in rest), key=lambda each: len(each.total))
    return tuple(sorted(found.dims))


@dataclass(frozen=True, eq=False)
class _Within:
    """Pairs of a sampled query and a sampled point that are within the threshold in some dimensions, `dims`.

    `i`, `j`: positions of the pairs in `queries` and `points`. `total`: their total over `dims`. `share`:
    candidates per query that one pair represents. `compared`: number of sampled pairs.
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

    def also(self, k: int) -> _Within:
        """Return the pairs that are still within the threshold if dimension `k` is added."""
        away = np.abs(self.queries[self.i, k] - self.points[self.j, k])
        total = add(self.total, away, self.norm)
        left = np.flatnonzero(total <= self.threshold)
        return replace(self, i=self.i[left], j=self.j[left], total=total[left], dims=(*self.dims, k))


def _near(x: np.ndarray, others: np.ndarray, threshold: float, norm: Norm) -> float:
    """Return the share of query-point pairs within reach in one dimension, from values of both."""
    return float(_windows(x, np.sort(others), threshold, norm)[1].mean()) / max(1, len(others))


def _windows(
    x: np.ndarray, ordered: np.ndarray, threshold: float, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """For each value of `x`, return the first position in `ordered` within reach, and how many are."""
    away = reach(norm, threshold)
    low = np.searchsorted(ordered, x - away)
    return low, np.searchsorted(ordered, x + away, side="right") - low


def _within(queries: np.ndarray, points: np.ndarray, share: float, k: int, threshold: float,
            norm: Norm) -> _Within:  # fmt: skip
    """Return sampled pairs within the threshold in dimension `k`; drop queries if there are too many."""
    points = points[np.argsort(points[:, k])]
    low, number = _windows(queries[:, k], points[:, k], threshold, norm)
    step = -(-int(number.sum()) // MOST_SEEN) or 1
    queries, low, number, share = queries[::step], low[::step], number[::step], share * step
    i = np.repeat(np.arange(len(queries)), number)
    j = np.arange(len(i)) + np.repeat(low - (number.cumsum() - number), number)
    none, compared = np.zeros(len(i)), len(queries) * len(points)
    return _Within(queries, points, i, j, none, threshold, norm, (), share, compared).also(k)


def _some(drawn: Drawn) -> tuple[np.ndarray, np.ndarray, float]:
    """Return sampled queries, sampled points, and how many candidates per query a sampled pair represents."""
    same = drawn.queries is drawn.points
    number = min(max(2 * drawn.rows // POINTS, LEAST_QUERIES), MOST_QUERIES)
    step = max(2, -(-len(drawn.queries) // number))
    queries, rest = drawn.queries[::step], drawn.points
    if same:  # no point is its own candidate
        rest = drawn.points[np.arange(len(drawn.points)) % step != 0]
    points = rest[:: max(1, -(-len(rest) // POINTS))]
    share = drawn.rows / max(1, len(queries) * len(points)) / (2 if same else 1)
    return queries, points, share
