"""How many lists in Z-order cost least, as a sample of the points tells."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.index.zorder import ZOrderLayout, lists_of, shifts_of
from dask_simjoin.engine.zorder import ZOrder

CHOICES = (1, 3, 5, 9, 17, 33, 65)
"""Numbers of lists that are tried, and that of the theory: odd ones, see `lists_of`."""

QUERIES, POINTS = 512, 4096
"""Points of the sample that look their intervals up, and among how many."""

FULL_SHARE = 0.9
"""What a row of a full interval costs of one of a half, as measured: earlier ones are only looked at."""

MeanLength = Callable[[np.ndarray, np.ndarray, ZOrderLayout], float]
"""How many of some points lie in the interval of a query, on average."""


class Costs(NamedTuple):
    """What lists cost, in nanoseconds, as measured.

    Attributes
    ----------
    entry, column : float
        Of a row in a list: keys of it and of its corners, sorting and two searches; what each column adds.
    row, term : float
        Of a row that is walked past, and each column of it.
    search : float
        Of all this choosing: below it the number of lists that a sample is not needed for is taken.
    """

    entry: float
    column: float
    row: float
    term: float
    search: float


def fitted(options: ZOrder, layout: ZOrderLayout, drawn: Drawn | None, mean_length: MeanLength,
           costs: Costs) -> ZOrder:  # fmt: skip
    """Return the options with a number of lists instead of "auto": that of least cost on a sample.

    More lists only make intervals shorter, and cost more to make: the search ends once they alone cost more
    than the best.
    """
    if options.lists != "auto" or drawn is None or not len(drawn.queries) or not len(drawn.points):
        return options
    same = drawn.queries is drawn.points
    step = max(2, -(-len(drawn.queries) // QUERIES))
    queries, points = drawn.queries[::step], drawn.points
    if same:  # no row is its own neighbour
        points = points[np.arange(len(points)) % step != 0]
    points = points[:: max(1, -(-len(points) // POINTS))]
    if not len(points):
        return options

    def walking(number: int) -> float:
        tried = replace(options, lists=number, walk="full")
        of_so_many = replace(layout, options=tried, shifts=shifts_of(tried, layout.dims))
        share = mean_length(queries, points, of_so_many) / len(points)
        return share * drawn.rows * (costs.row + costs.term * layout.dims) * FULL_SHARE

    if costs.search and drawn.rows * walking(lists_of(options, layout.dims)) < costs.search:
        return options
    best, least = options, math.inf
    for number in sorted({*CHOICES, lists_of(replace(options, lists="d+1"), layout.dims)}):
        lists = number * (costs.entry + costs.column * layout.dims)
        if lists >= least:
            break
        cost = lists + walking(number)
        if cost < least:
            best, least = replace(options, lists=number), cost
    return best
