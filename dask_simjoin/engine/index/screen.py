"""By which dimensions candidates are looked through before all of them decide.

Where a few columns are wide and others narrow, hardly a point is within eps in the wide ones that is no
pair, or is none for want of a close look.  Tiles and boxes of those dimensions alone are smaller, are made
sooner, and tell candidates apart by fewer numbers.  The total of some dimensions, added in their order, is at
most that of all: terms are not negative, and rounding is monotone.  What others can add is at most the
squares of their spans, so that of two points that are close enough in some dimensions no more is asked.

Where up to three dimensions leave about a candidate of each point, points need no tiles: a sweep of those
dimensions finds the candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.metrics.norms import Norm, add, reach

LEAST_DIMS = 3
"""Dimensions from which some of them may be looked at first."""

LARGEST_PART = 0.75
"""Of the dimensions: with more of them little is saved."""

MOST_OPEN = 1.0
"""Candidates of a point that all dimensions must decide, up to which some are looked at first.  Each takes
about as long as 64 that are looked through."""

CERTAIN = 20.0
"""How many times too many candidates dimensions must leave, if each says something new, for there to be too
many for certain: of points near in one dimension more are near in another, and balls are less than cubes."""

LEAST_QUERIES, MOST_QUERIES, POINTS = 64, 2048, 2048
"""Points of the sample whose candidates are counted, and among how many."""

HOPELESS = 0.25
"""Share of the points that three dimensions may leave; if it is more, all of them are needed."""

MOST_SEEN = 1 << 15
"""Pairs of the sample that may be within reach in one dimension; if they are more, queries are fewer."""

SWEPT = 3
"""Dimensions that are swept at most: each one more makes three times as many rows of cells to look at."""

TRIED = 8
"""Dimensions, the widest ones, of which those are."""

MOST_SWEPT = 4.0
"""Candidates of a point up to which a sweep finds them sooner than tiles do."""


class Drawn(NamedTuple):
    """Some points (m, d) of both sides of a join, of one table twice the same; how many the second has."""

    queries: np.ndarray
    points: np.ndarray
    rows: int


@dataclass(frozen=True)
class Screen:
    """The dimensions that are looked at first.

    Attributes
    ----------
    dims : tuple of int
        Ascending.
    rest : float
        What squares of differences in the others sum up to at most.
    """

    dims: tuple[int, ...]
    rest: float


def make_screen(lower: np.ndarray, upper: np.ndarray, variance: np.ndarray, threshold: float,
                drawn: Drawn | None) -> Screen | None:  # fmt: skip
    """Choose the dimensions to look at first, as few of the widest as will do; None: all of them.

    Parameters
    ----------
    lower, upper, variance : array (d,), float64
        Of all points.
    threshold : float
        Of sums of squares.
    drawn : Drawn or None
        From which candidates are counted; without it all dimensions are looked at.
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
            # one more than was seen: none among few tells little of many
            if (np.count_nonzero(found.total > threshold - still) + 1) * found.share <= MOST_OPEN:
                return Screen(tuple(sorted(widest[:number].tolist())), still)
    return None


def dims_to_sweep(variance: np.ndarray, threshold: float, norm: Norm, drawn: Drawn) -> tuple[int, ...] | None:
    """Choose dimensions whose sweep leaves few candidates, ascending; None: there are none.

    One after the other, each the one of the widest that leaves fewest: a wide column may say what another
    has said, or the same of most rows.
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

    `share`: how many candidates of a query each of them stands for; `compared`: how many pairs there are.
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
        """Those that are in one dimension more."""
        away = np.abs(self.queries[self.i, k] - self.points[self.j, k])
        total = add(self.total, away, self.norm)
        left = np.flatnonzero(total <= self.threshold)
        return replace(self, i=self.i[left], j=self.j[left], total=total[left], dims=(*self.dims, k))


def _near(x: np.ndarray, others: np.ndarray, threshold: float, norm: Norm) -> float:
    """The share of pairs of queries and points that are within reach in one dimension."""
    return float(_windows(x, np.sort(others), threshold, norm)[1].mean()) / max(1, len(others))


def _windows(
    x: np.ndarray, ordered: np.ndarray, threshold: float, norm: Norm
) -> tuple[np.ndarray, np.ndarray]:
    """Where the values begin that are within reach of each of `x`, and how many they are."""
    away = reach(norm, threshold)
    low = np.searchsorted(ordered, x - away)
    return low, np.searchsorted(ordered, x + away, side="right") - low


def _within(queries: np.ndarray, points: np.ndarray, share: float, k: int, threshold: float,
            norm: Norm) -> _Within:  # fmt: skip
    """Pairs that are within the threshold in one dimension: of fewer queries, if they were too many."""
    points = points[np.argsort(points[:, k])]
    low, number = _windows(queries[:, k], points[:, k], threshold, norm)
    step = -(-int(number.sum()) // MOST_SEEN) or 1
    queries, low, number, share = queries[::step], low[::step], number[::step], share * step
    i = np.repeat(np.arange(len(queries)), number)
    j = np.arange(len(i)) + np.repeat(low - (number.cumsum() - number), number)
    none, compared = np.zeros(len(i)), len(queries) * len(points)
    return _Within(queries, points, i, j, none, threshold, norm, (), share, compared).also(k)


def _some(drawn: Drawn) -> tuple[np.ndarray, np.ndarray, float]:
    """Queries and other points, and how many candidates of a query each that is seen stands for."""
    same = drawn.queries is drawn.points
    number = min(max(2 * drawn.rows // POINTS, LEAST_QUERIES), MOST_QUERIES)
    step = max(2, -(-len(drawn.queries) // number))
    queries, rest = drawn.queries[::step], drawn.points
    if same:  # no point is its own candidate
        rest = drawn.points[np.arange(len(drawn.points)) % step != 0]
    points = rest[:: max(1, -(-len(rest) // POINTS))]
    share = drawn.rows / max(1, len(queries) * len(points)) / (2 if same else 1)
    return queries, points, share
