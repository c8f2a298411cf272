"""How many lists in Z-order cost least, as a sample of the points tells."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dask_simjoin.engine.cpu.zorder_walks import FULL_SHARE, intervals
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.index.zorder import ZOrderLayout, lists_of, shifts_of
from dask_simjoin.engine.zorder import ZOrder

CHOICES = (1, 3, 5, 9, 17, 33, 65)
"""Numbers of lists that are tried, and that of the theory: odd ones, see `lists_of`."""

QUERIES, POINTS = 512, 4096
"""Points of the sample that look their intervals up, and among how many."""

LIST, COLUMN, ROW, TERM = 300.0, 10.0, 5.0, 0.03
"""Nanoseconds of a row in a list: keys of it and of its corners, sorting and two searches, and what each
column adds; and of a row that is walked past, and each column of it.  Measured with 65,536 uniform rows of 4
to 64 columns."""


def fitted(options: ZOrder, layout: ZOrderLayout, drawn: Drawn | None) -> ZOrder:
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
    best, least = options, math.inf
    for number in sorted({*CHOICES, lists_of(replace(options, lists="d+1"), layout.dims)}):
        lists = number * (LIST + COLUMN * layout.dims)
        if lists >= least or not len(points):
            break
        tried = replace(options, lists=number, walk="full")
        of_so_many = replace(layout, options=tried, shifts=shifts_of(tried, layout.dims))
        walks = intervals(queries, points, of_so_many, False)
        share = float(walks.lengths.mean()) / len(points)
        cost = lists + share * drawn.rows * (ROW + TERM * layout.dims) * FULL_SHARE
        if cost < least:
            best, least = replace(options, lists=number), cost
    return best
