"""Searches for nearest neighbours: in which chunks the neighbours of each chunk's rows may be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Norm, add, box_gap
from dask_simjoin.planning.chunking.base import JoinChunks
from dask_simjoin.planning.goal import Goal
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints
from dask_simjoin.planning.tables import Tables

GUESSED, ASKED = 1024, 256
"""Points of the sample that are looked at for a first guess of distances; and those whose neighbours are."""

AT_ONCE = 16
"""How many of them are taken at a time: their distances to all stay in the cache."""

MAX_WORK = 1 << 27
"""Distances of points of the sample to boxes that are computed at most."""

FEWEST = 1024
"""Points of the sample that are used for that at least."""


def sought(tables: Tables, goal: Goal) -> tuple[Tables, Goal]:
    """Return the tables with a guess of the neighbours' distance, and the goal of as many as there are."""
    assert goal.k is not None
    k = min(goal.k, max(1, tables.right.rows - (len(tables.each) == 1)))  # no row has more
    guess = _guess(tables.right.points, k, tables.spec.measure)
    found = goal.found_bytes(k)
    return tables.with_eps(guess), replace(goal, k=k, result_bytes_per_row=found, others_per_row=0)


def _guess(points: SamplePoints, neighbors: int, metric: Metric) -> float:
    """About how far the neighbours of a row are; only how rows are cut into regions goes by it."""
    m = len(points.x)
    if m < 2:
        return 0.0
    random = np.random.default_rng(m)
    some = points.x[random.choice(m, min(m, GUESSED), replace=False)]
    share = len(some) / max(1, points.rows)
    place = min(len(some) - 1, max(1, math.ceil(neighbors * share)))
    columns, far = np.ascontiguousarray(some.T), np.empty(min(ASKED, len(some)))
    with np.errstate(over="ignore"):
        for start in range(0, len(far), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            total = np.zeros((len(far[rows]), len(some)))
            for column in columns:
                total = add(total, np.abs(column - column[rows, None]), metric.norm)
            far[rows] = np.partition(total, place, axis=1)[:, place]
        typical = float(np.median(metric.distance(far, np)))
    return typical if math.isfinite(typical) else 0.0


def find_searches(tables: Tables, goal: Goal, chunks: JoinChunks) -> tuple[np.ndarray, ...]:
    """Find the data's chunks that may hold neighbours of each chunk of queries, the nearest first."""
    assert goal.k is not None
    queries, first, norm = chunks.sides[0], chunks.first_data, tables.spec.norm
    lower, upper, filled = queries.boxes()
    others = chunks.sides[-1].boxes()
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(queries)
    if not first and len(filled) == 1:  # it is searched in any case
        found[filled[0]] = filled.astype(np.int64)
        return tuple(found)
    limits = np.minimum(largest_totals(tables.right.points.x, lower, upper, goal.k, norm), goal.max_total)
    for at, (c, limit) in enumerate(zip(filled.tolist(), limits, strict=True)):
        away = box_gap(norm, lower[at], upper[at], others[0], others[1])
        if not first:
            away[at] = -1.0
        near = np.flatnonzero(~(away > limit))  # so also where gaps are no numbers
        found[c] = others[2][near[np.argsort(away[near], kind="stable")]] + first
    return tuple(found)


def largest_totals(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, neighbors: int,
            norm: Norm = 2) -> np.ndarray:  # fmt: skip
    """For each box the largest total that a point in it can have with one of its neighbours.

    Points of the sample are rows: so many, and one more as one may be the point itself, within that total
    of the whole box are as many neighbours, or nearer ones.  Totals with the box's far ends are computed
    with the operations of all totals in their order, and rounding is monotone: no point in the box has
    a larger one as computed.
    """
    limits = np.full(len(lower), np.inf)
    if len(x) <= neighbors:
        return limits
    x = used_points(x, lower.size, neighbors + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for c in range(len(lower)):
            limits[c] = np.partition(farthest_totals(x, lower[c], upper[c], norm), neighbors)[neighbors]
    return limits


def used_points(x: np.ndarray, numbers: int, least: int = 0) -> np.ndarray:
    """Take some of the sample's points, if there are too many for boxes of so many numbers in all."""
    most = max(FEWEST, least, MAX_WORK // max(1, numbers))
    if len(x) <= most:
        return x
    return x[np.sort(np.random.default_rng(len(x)).choice(len(x), most, replace=False))]


def farthest_totals(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, norm: Norm) -> np.ndarray:
    """The largest total (n,) that each of some points can have with a point in a box."""
    total = np.zeros(len(x))
    for k in range(x.shape[1]):
        far = np.maximum(np.abs(x[:, k] - lower[k]), np.abs(upper[k] - x[:, k]))
        total = add(total, far, norm)
    return total
