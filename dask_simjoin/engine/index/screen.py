"""Screening: compare candidates in a few dimensions before all dimensions decide.

If a few columns are wide, nearly all points within eps in these are pairs or clearly none. Tiles and boxes of
these dimensions are smaller, faster to build, and compare fewer numbers. The total of some dimensions is at
most the total of all: terms are not negative, and rounding is monotone. Other dimensions add at most the
squares of their spans. So two points that are close enough in some dimensions need no further comparison.

If up to three dimensions leave about one candidate per point, tiles are not needed. A sweep of these
dimensions finds the candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.metrics.norms import Norm, add, reach

LEAST_DIMS = 3
"""Fewest dimensions for screening."""

LARGEST_PART = 0.75
"""Largest share of the dimensions to screen by: more save little."""

MOST_OPEN = 1.0
"""Largest number of undecided candidates per point for screening.

Each costs about as much as screening 64 candidates.
"""

CERTAIN = 20.0
"""Screening is given up if an estimate for independent dimensions exceeds the limit by this factor.

The estimate is rough: dimensions are correlated, and balls are smaller than cubes.
"""

LEAST_QUERIES, MOST_QUERIES, POINTS = 64, 2048, 2048
"""Sampled queries whose candidates are counted, and points among which they are counted."""

HOPELESS = 0.25
"""Share of the points that three dimensions may leave; above it, screening is not used."""

MOST_SEEN = 1 << 15
"""Largest number of sampled pairs within reach in one dimension; above it, fewer queries are used."""

SWEPT = 3
"""Largest number of swept dimensions: each further one triples the cells to visit."""

TRIED = 8
"""The swept dimensions are among this number of widest ones."""

MOST_SWEPT = 4.0
"""Most candidates per point for a sweep to be faster than tiles."""


class Drawn(NamedTuple):
    """Samples of points (m, d) of both sides, one array twice for one table; `rows`: of the second side."""

    queries: np.ndarray
    points: np.ndarray
    rows: int


@dataclass(frozen=True)
class Screen:
    """Dimensions to compare first.

    Attributes
    ----------
    dims : tuple of int
        The dimensions, ascending.
    rest : float
        Largest sum of squared differences in the other dimensions.
    """

    dims: tuple[int, ...]
    rest: float


def make_screen(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, threshold: float,
                drawn: Drawn | None) -> Screen | None:  # fmt: skip
    """Choose as few of the widest dimensions as possible to compare first; None: all of them.

    Parameters
    ----------
    lower, upper, variance : array (d,), float64
        Moments of all points.
    threshold : float
        Threshold of sums of squares.
    drawn : Drawn or None
        Sample to count candidates in; without it all dimensions are compared.
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
            # one more than counted, because a small sample without candidates proves little
            if (np.count_nonzero(found.total > threshold - still) + 1) * found.share <= MOST_OPEN:
                return Screen(tuple(sorted(widest[:number].tolist())), still)
    return None


def dims_to_sweep(variance: np.ndarray, threshold: float, norm: Norm, drawn: Drawn) -> tuple[int, ...] | None:
    """Choose dimensions whose sweep leaves few candidates, ascending; None: there are none.

    It adds the dimension that leaves fewest candidates, one at a time. Width is not enough: a wide column may
    repeat another one, or have the same value in most rows.
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
    """Pairs of queries and points, by number, that are within the threshold in some dimensions.

    `share`: weight of a sampled pair, as a number of candidates per query; `compared`: number of compared
    pairs.
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
        """Return the pairs that are also within the threshold with dimension `k`."""
        away = np.abs(self.queries[self.i, k] - self.points[self.j, k])
        total = add(self.total, away, self.norm)
        left = np.flatnonzero(total <= self.threshold)
        return replace(self, i=self.i[left], j=self.j[left], total=total[left], dims=(*self.dims, k))


def _near(x: np.ndarray, others: np.ndarray, threshold: float, norm: Norm) -> float:
    """Return the share of query-point pairs within reach in one dimension."""
    return float(_windows(x, np.sort(others), threshold, norm)[1].mean()) / max(1, len(others))


def _windows(
    x: np.ndarray, ordered: np.ndarray, threshold: float, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """Return the first of the values within reach of each of `x`, and their number."""
    away = reach(norm, threshold)
    low = np.searchsorted(ordered, x - away)
    return low, np.searchsorted(ordered, x + away, side="right") - low


def _within(queries: np.ndarray, points: np.ndarray, share: float, k: int, threshold: float,
            norm: Norm) -> _Within:  # fmt: skip
    """Return the pairs within the threshold in dimension `k`, for fewer queries if there are too many."""
    points = points[np.argsort(points[:, k])]
    low, number = _windows(queries[:, k], points[:, k], threshold, norm)
    step = -(-int(number.sum()) // MOST_SEEN) or 1
    queries, low, number, share = queries[::step], low[::step], number[::step], share * step
    i = np.repeat(np.arange(len(queries)), number)
    j = np.arange(len(i)) + np.repeat(low - (number.cumsum() - number), number)
    none, compared = np.zeros(len(i)), len(queries) * len(points)
    return _Within(queries, points, i, j, none, threshold, norm, (), share, compared).also(k)


def _some(drawn: Drawn) -> tuple[np.ndarray, np.ndarray, float]:
    """Return queries, other points, and the candidates per query that each sampled pair stands for."""
    same = drawn.queries is drawn.points
    number = min(max(2 * drawn.rows // POINTS, LEAST_QUERIES), MOST_QUERIES)
    step = max(2, -(-len(drawn.queries) // number))
    queries, rest = drawn.queries[::step], drawn.points
    if same:  # no point is its own candidate
        rest = drawn.points[np.arange(len(drawn.points)) % step != 0]
    points = rest[:: max(1, -(-len(rest) // POINTS))]
    share = drawn.rows / max(1, len(queries) * len(points)) / (2 if same else 1)
    return queries, points, share
