"""Minimum spanning trees: between which chunks there may be edges of them.

An edge of the tree is no heavier than the heaviest one of any other way between its ends.  Two rows of two
chunks are joined by an edge no heavier than the span of a box around both, or the largest core distance
there; and so there is a way from row to row along chunks that surely have rows.  Chunks whose boxes are
further apart than the heaviest edge of the best such way have no edge of the tree between them.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.metrics.norms import Norm, add, box_gap
from dask_simjoin.planning.chunking.base import JoinChunks
from dask_simjoin.planning.chunking.entity import serpentine
from dask_simjoin.planning.searches import largest_totals
from dask_simjoin.planning.tables import Tables


def find_joined(tables: Tables, neighbors: int, chunks: JoinChunks) -> np.ndarray:
    """Find pairs of chunks (n, 2), int32, that may have edges of the tree between them.

    `neighbors`: a core distance is at most that of the neighbour of this number.
    """
    side, norm = chunks.sides[0], tables.spec.norm
    lower, upper, filled = side.boxes()
    if len(filled) < 2:
        return np.zeros((0, 2), np.int32)
    core = largest_totals(tables.right.points.x, lower, upper, neighbors, norm)
    sure = np.flatnonzero(side.rows[filled] > 0)  # of regions: a point of the sample is in it
    place, heaviest = _ways(lower[sure], upper[sure], core[sure], norm)
    places = np.full(len(filled), -1)
    places[sure] = place
    by_place = np.full(len(filled), -1)
    by_place[places[sure]] = sure
    found = []
    for c in range(len(filled)):
        away = box_gap(norm, lower[c], upper[c], lower, upper)
        bound = np.full(len(filled), np.inf)
        at = int(places[c])
        if at >= 0:
            # of two chunks in Prim's order, the heaviest edge of the way is the heaviest that came between
            before = np.maximum.accumulate(heaviest[1 : at + 1][::-1])[::-1]
            after = np.maximum.accumulate(heaviest[at + 1 :])
            bound[by_place[:at]], bound[by_place[at + 1 : len(sure)]] = before, after
        near = np.flatnonzero(~(away > bound))  # so also where gaps are no numbers
        near = near[near > c]
        found.append(np.stack([np.full(len(near), c), near], axis=1))
    pairs = np.sort(filled[np.concatenate(found)], axis=1)
    return serpentine(pairs).astype(np.int32)


def _ways(lower: np.ndarray, upper: np.ndarray, core: np.ndarray,
          norm: Norm) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Put boxes in the order of Prim's algorithm: their places (n,), and by which weight each place came."""
    n = len(lower)
    place, heaviest = np.zeros(n, np.int64), np.zeros(n)
    weight, left = np.full(n, np.inf), np.ones(n, np.bool_)
    at = 0
    for number in range(n):
        if number:
            rest = np.flatnonzero(left)
            at = int(rest[np.argmin(weight[rest])])
            heaviest[number] = weight[at]
        place[at], left[at] = number, False
        total = np.zeros(n)
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(lower.shape[1]):
                span = np.maximum(upper[:, k], upper[at, k]) - np.minimum(lower[:, k], lower[at, k])
                total = add(total, span, norm)
            weight = np.fmin(weight, np.maximum(total, np.maximum(core, core[at])))
    return place, heaviest
