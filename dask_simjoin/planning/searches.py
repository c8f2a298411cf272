"""Which chunks a nearest-neighbor search or a spanning tree compares.

An edge of the tree is no heavier than the heaviest one of any other way between its ends.  The hub of a box
is the row of the sample that is least far from the box's farthest corner: any row in the box has an edge to
it that is no heavier than that, or than their core distances.  So there is a way from row to row by hubs.
Chunks whose boxes are further apart than its heaviest edge have no edge of the tree between them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.norms import Norm, add, box_gap
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.chunk_limits import SHARED_DIMS
from dask_simjoin.planning.entity_chunks import JoinChunks, serpentine
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.statistics.sample_pairs import SamplePoints
from dask_simjoin.planning.tables import JoinStatistics

GUESSED, ASKED = 1024, 256
"""Points of the sample that are looked at for a first guess of distances; and those whose neighbours are."""

AT_ONCE = 16
"""How many of them are taken at a time: their distances to all stay in the cache."""

MAX_WORK = 1 << 27
"""Distances of points of the sample to boxes that are computed at most."""

FEWEST = 1024
"""Points of the sample that are used for that at least."""


def neighbor_query(statistics: JoinStatistics, output: OutputSpec) -> tuple[JoinStatistics, OutputSpec]:
    """Return the tables with a guess of the neighbors' distance, and an output of as many as there are."""
    assert output.k is not None
    k = min(output.k, max(1, statistics.right.rows - (len(statistics.each) == 1)))  # no row has more
    guess = _guess(statistics.right.points, k, statistics.spec.measure)
    found = output.found_bytes(k)
    return statistics.with_eps(guess), replace(output, k=k, result_bytes_per_row=found, others_per_row=0)


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


def find_searches(
    statistics: JoinStatistics, output: OutputSpec, chunks: JoinChunks
) -> tuple[np.ndarray, ...]:
    """Find the data's chunks that may hold neighbours of each chunk of queries, the nearest first."""
    assert output.k is not None
    queries, first, norm = chunks.sides[0], chunks.first_data, statistics.spec.norm
    lower, upper, filled = queries.boxes()
    others = chunks.sides[-1].boxes()
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(queries)
    if not first and len(filled) == 1:  # it is searched in any case
        found[filled[0]] = filled.astype(np.int64)
        return tuple(found)
    limits = np.minimum(
        largest_totals(statistics.right.points.x, lower, upper, output.k, norm), output.max_total
    )
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


SHARED_ROWS = 1 << 13
"""Rows from which that takes longer than the tasks that it takes."""

SHARED_SECONDS = 0.1
"""Seconds of searches for nearest rows from which it takes longer than its tasks on workers."""

PART_ROWS = 1 << 11
"""Rows for each part of a round, at least."""

Sharing = tuple[int, int]
"""How many threads or GPUs find the tree of the one chunk together, and on how many workers; of each it has a
copy, or is sent to it."""

ALONE: Sharing = (1, 1)


def find_sharing(statistics: JoinStatistics, chunks: JoinChunks, seconds: np.ndarray, copies: int,
                 resources: Resources) -> Sharing:  # fmt: skip
    """Choose who finds the tree together; `seconds`: of searches for nearest rows before."""
    rows = int(chunks.rows.sum())
    if len(chunks) > 1 or (statistics.dims or 0) < SHARED_DIMS or rows < SHARED_ROWS:
        return ALONE
    if resources.gpu:
        return copies, copies
    if resources.workers > 1 and seconds.sum() < SHARED_SECONDS:
        return ALONE
    parts = max(1, min(resources.threads, rows // PART_ROWS))
    return parts, min(resources.workers, parts)


def find_joined(statistics: JoinStatistics, neighbors: int, chunks: JoinChunks) -> np.ndarray:
    """Find pairs of chunks (n, 2), int32, that may have edges of the tree between them.

    `neighbors`: a core distance is at most that of the neighbour of this number.
    """
    norm, x = statistics.spec.norm, statistics.right.points.x
    lower, upper, filled = chunks.sides[0].boxes()
    number = len(filled)
    if number < 2:
        return np.zeros((0, 2), np.int32)
    ends = largest_totals(x, lower, upper, neighbors, norm)
    place, heaviest = np.zeros(number, np.int64), np.full(number, np.inf)
    if len(x):
        hubs, far = _hubs(x, lower, upper, norm)
        ends = np.maximum(ends, far)
        place, heaviest = _ways(hubs, largest_totals(x, hubs, hubs, neighbors, norm), norm)
    by_place = np.empty(number, np.int64)
    by_place[place] = np.arange(number)
    found = []
    for c in range(number):
        away = box_gap(norm, lower[c], upper[c], lower, upper)
        bound, at = np.full(number, np.inf), int(place[c])
        if len(x):
            # of two hubs in Prim's order, the heaviest edge of the way is the heaviest that came between
            before = np.maximum.accumulate(heaviest[1 : at + 1][::-1])[::-1]
            after = np.maximum.accumulate(heaviest[at + 1 :])
            bound[by_place[:at]], bound[by_place[at + 1 :]] = before, after
        bound = np.maximum(bound, np.maximum(ends, ends[c]))
        near = np.flatnonzero(~(away > bound))  # so also where gaps are no numbers
        near = near[near > c]
        found.append(np.stack([np.full(len(near), c), near], axis=1))
    pairs = np.sort(filled[np.concatenate(found)], axis=1)
    return serpentine(pairs).astype(np.int32)


def _hubs(x: np.ndarray, lower: np.ndarray, upper: np.ndarray,
          norm: Norm) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Choose the hub of each box (n, d), and tell the largest total of a point in the box with it."""
    x = used_points(x, lower.size)
    chosen, far = np.empty(len(lower), np.int64), np.empty(len(lower))
    with np.errstate(over="ignore", invalid="ignore"):
        for c in range(len(lower)):
            total = farthest_totals(x, lower[c], upper[c], norm)
            chosen[c] = np.argmin(total)
            far[c] = total[chosen[c]]
    return x[chosen], far


def _ways(hubs: np.ndarray, core: np.ndarray, norm: Norm) -> tuple[np.ndarray, np.ndarray]:
    """Put hubs in the order of Prim's algorithm: their places (n,), and by which weight each place came."""
    n = len(hubs)
    place, heaviest = np.zeros(n, np.int64), np.zeros(n)
    weight, left = np.full(n, np.inf), np.ones(n, np.bool_)
    at = 0
    for number in range(n):
        if number:
            rest = np.flatnonzero(left)
            at = int(rest[np.argmin(weight[rest])])
            heaviest[number] = weight[at]
        place[at], left[at] = number, False
        with np.errstate(over="ignore", invalid="ignore"):
            total = farthest_totals(hubs, hubs[at], hubs[at], norm)
            weight = np.fmin(weight, np.maximum(total, np.maximum(core, core[at])))
    return place, heaviest
