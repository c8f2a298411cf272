"""Nearest neighbours by lists in Z-order: of rows next to a row in any list, and then of an interval of one.

LSS (Lieberman, Sankaranarayanan & Samet 2008), section V-E: the best of the rows within k places of a row in
each list are its neighbours about; how far away the k-th of them is bounds where nearer ones are, so that an
interval of the best list has all of them.  A row occurs in several lists and counts once, and is no neighbour
of itself: k + 1 places on either side hold k others, if there are so many.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels import zorder as kernels
from dask_simjoin.engine.cpu.kernels import zorder_nearest
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.zorder_walks import keys, sort
from dask_simjoin.engine.index.zorder_nearest import ZOrderSearch
from dask_simjoin.metrics.norms import reaches
from dask_simjoin.metrics.types import Index

QUERIES = 4096
"""Whose corners are made at a time: they take twice the memory of their points."""


def build(x: np.ndarray) -> Index:
    """Index of a chunk's points: as they are, with their places as names; see `cpu.nearest.build`."""
    places = np.arange(len(x))
    return {"y": np.ascontiguousarray(x), "names": places, "order": places}


def nearest(q: Index, d: Index, layout: ZOrderSearch, best_d2: np.ndarray, best_name: np.ndarray, *,
            same: bool, bound2: float = math.inf) -> int:  # fmt: skip
    """Improve neighbours: see `cpu.nearest.nearest`.  Returns how many rows were looked at."""
    n, m, k = len(q["y"]), len(d["y"]), best_d2.shape[1]
    if not (n and m and k):
        return 0
    told = (q["y"], q["names"], q["order"], d["y"], d["names"], same, bound2, kind_of(layout.norm), best_d2)
    every, looked = np.arange(n, dtype=np.int32), 0
    begins, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    lists = []
    for shift in layout.keys.shifts:
        own = keys(d["y"], layout.keys, shift)
        order = sort(own, stable=layout.approximate)
        lists.append((order, own[order]))
        here = keys(q["y"], layout.keys, shift)
        kernels.bounds(lists[-1][1], here, here, begins, ends)
        # of many rows of one key, those in the middle
        middle = (begins + ends) // 2
        first, last = np.maximum(middle - k - 1, 0), np.minimum(middle + k + 1, m)
        looked += zorder_nearest.look(
            every, first, last, order, *told, best_name, np.empty(1), np.empty(1, np.int64)
        )
    if layout.approximate:
        return looked
    for start in range(0, n, QUERIES):
        looked += _rest(slice(start, min(start + QUERIES, n)), lists, q, layout, told, best_name)
    return looked


def _rest(some: slice, lists: list[tuple[np.ndarray, np.ndarray]], q: Index, layout: ZOrderSearch,
          told: Any, best_name: np.ndarray) -> int:  # fmt: skip
    """Look at all rows of the shortest interval that has all neighbours nearer than those that are known."""
    best_d2, bound2 = told[8], told[6]
    x, rows = q["y"][some], q["order"][some]
    far = np.minimum(best_d2[rows, -1], bound2)
    away = np.nextafter(reaches(layout.norm, far), math.inf)[:, None]
    with np.errstate(over="ignore"):
        low, high = np.nextafter(x - away, -math.inf), np.nextafter(x + away, math.inf)
    number = len(x)
    best = np.zeros(number, np.int64), np.zeros(number, np.int64), np.full(number, -1, np.int16)
    begins, ends = np.empty(number, np.int64), np.empty(number, np.int64)
    for place, (shift, (_, own)) in enumerate(zip(layout.keys.shifts, lists, strict=True)):
        corners = (keys(side, layout.keys, shift) for side in (low, high))
        kernels.bounds(own, *corners, begins, ends)
        kernels.shortest(begins, ends, place, *best)
    looked, firsts, lasts = 0, *(np.zeros(len(q["y"]), np.int64) for _ in range(2))
    firsts[some], lasts[some] = best[0], best[1]
    for place, (order, _) in enumerate(lists):
        queries = (some.start + np.flatnonzero(best[2] == place)).astype(np.int32)
        looked += zorder_nearest.look(
            queries, firsts, lasts, order, *told, best_name, np.empty(1), np.empty(1, np.int64)
        )
    return looked
