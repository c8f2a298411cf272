"""By which dimensions candidates are looked through before all of them decide.

Where a few columns are wide and others narrow, hardly a point is within eps in the wide ones that is no
pair, or is none for want of a close look.  Tiles and boxes of those dimensions alone are smaller, are made
sooner, and tell candidates apart by fewer numbers.  The total of some dimensions, added in their order, is at
most that of all: terms are not negative, and rounding is monotone.  What others can add is at most the
squares of their spans, so that of two points that are close enough in some dimensions no more is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

LEAST_DIMS = 3
"""Dimensions from which some of them may be looked at first."""

LARGEST_PART = 0.75
"""Of the dimensions: with more of them little is saved."""

MOST_OPEN = 1.0
"""Candidates of a point that all dimensions must decide, up to which some are looked at first.  Each takes
about as long as 64 that are looked through."""

LEAST_QUERIES, MOST_QUERIES, POINTS = 64, 2048, 2048
"""Points of the sample whose candidates are counted, and among how many."""

HOPELESS = 0.25
"""Share of the points that three dimensions may leave; if it is more, all of them are needed."""


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
    with np.errstate(over="ignore", invalid="ignore"):
        squares = ((upper - lower)[widest] * (1 + 2.0**-40)) ** 2
        rest = squares[::-1].cumsum()[::-1] * (1 + dims * 2.0**-50)
        i, j = (some.ravel() for some in np.indices((len(queries), len(points))))
        total = np.zeros(len(i))
        for number, k in enumerate(widest[: int(dims * LARGEST_PART)].tolist(), 1):
            total += (queries[i, k] - points[j, k]) ** 2
            left = np.flatnonzero(total <= threshold)
            if number == LEAST_DIMS and len(left) > HOPELESS * len(queries) * len(points):
                return None
            i, j, total = i[left], j[left], total[left]
            still = float(rest[number])
            # one more than was seen: none among few tells little of many
            if (np.count_nonzero(total > threshold - still) + 1) * share <= MOST_OPEN:
                return Screen(tuple(sorted(widest[:number].tolist())), still)
    return None


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
