"""Minimum spanning trees: between which chunks there may be edges of them, and who finds that of one chunk.

An edge of the tree is no heavier than the heaviest one of any other way between its ends.  The hub of a box
is the row of the sample that is least far from the box's farthest corner: any row in the box has an edge to
it that is no heavier than that, or than their core distances.  So there is a way from row to row by hubs.
Chunks whose boxes are further apart than its heaviest edge have no edge of the tree between them.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.norms import Norm, box_gap
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.chunking.base import JoinChunks
from dask_simjoin.planning.chunking.entity import serpentine
from dask_simjoin.planning.one_chunk import SHARED_DIMS
from dask_simjoin.planning.searches import farthest_totals, largest_totals, used_points
from dask_simjoin.planning.tables import Tables

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


def find_sharing(tables: Tables, chunks: JoinChunks, seconds: np.ndarray, copies: int,
                 have: Resources) -> Sharing:  # fmt: skip
    """Choose who finds the tree together; `seconds`: of searches for nearest rows before."""
    rows = int(chunks.rows.sum())
    if len(chunks) > 1 or (tables.dims or 0) < SHARED_DIMS or rows < SHARED_ROWS:
        return ALONE
    if have.gpu:
        return copies, copies
    if have.workers > 1 and seconds.sum() < SHARED_SECONDS:
        return ALONE
    parts = max(1, min(have.threads, rows // PART_ROWS))
    return parts, min(have.workers, parts)


def find_joined(tables: Tables, neighbors: int, chunks: JoinChunks) -> np.ndarray:
    """Find pairs of chunks (n, 2), int32, that may have edges of the tree between them.

    `neighbors`: a core distance is at most that of the neighbour of this number.
    """
    norm, x = tables.spec.norm, tables.right.points.x
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
