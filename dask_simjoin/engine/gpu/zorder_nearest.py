"""Nearest neighbours by lists in Z-order, on GPUs: see `dask_simjoin.engine.cpu.zorder_nearest`."""

from __future__ import annotations

import cupy
import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu.zorder_lists import THREADS, Keys, blocks
from dask_simjoin.engine.index.zorder_nearest import ZOrderSearch
from dask_simjoin.metrics.norms import reaches
from dask_simjoin.metrics.types import Array, Index

WARP = 32


def build(x: Array) -> Index:
    """Index of a chunk's points: as they are; see `gpu.nearest.build`."""
    return {"y": cupy.ascontiguousarray(x), "order": cupy.arange(len(x), dtype=cupy.int32)}


class _Search:
    """One search of the rows of `q` in those of `d`; see `nearest`."""

    def __init__(self, q: Index, d: Index, layout: ZOrderSearch, best_d2: Array, best_name: Array, same: bool,
                 bound2: float) -> None:  # fmt: skip
        self.q, self.d, self.layout, self.best_d2, self.bound2 = q, d, layout, best_d2, bound2
        self.keys = Keys("zorder_nearest", layout.keys, EXACT=True)
        self.told = q["y"], q["names"], q["order"], d["y"], d["names"], np.int32(same), np.float64(bound2)
        self.state = np.int32(best_d2.shape[1]), best_d2, best_name
        self.starts, self.stops = (cupy.empty(len(q["y"]), cupy.int32) for _ in range(2))

    def find(self, keys: Array, shift: float, away: Array | None) -> None:
        """Find where boxes around the queries begin and end in a list; `away`: how large they are."""
        x, boxes = self.q["y"], np.int32(away is not None)
        sides = self.best_d2 if away is None else away  # which is not read then
        limits = sides, boxes, keys, np.int32(len(keys)), self.starts, self.stops
        find = self.keys.kernel("find_boxes")
        find(*blocks(len(x)), (x, np.int32(len(x)), *self.keys.of(shift), *limits))

    def look(self, queries: Array, starts: Array, stops: Array, lists: Array, orders: Array) -> None:
        """Improve what is known of queries by rows of their lists."""
        places = queries, np.int32(len(queries)), starts, stops, lists, orders, np.int32(orders.shape[-1])
        grid = -(-len(queries) * WARP // THREADS), THREADS
        self.keys.kernel("look")((grid[0],), (grid[1],), (*places, *self.told, *self.state))

    def next_to(self, order: Array) -> None:
        """Look at the rows next to each query in the list that was searched last."""
        n, m, k = len(self.q["y"]), len(order), self.best_d2.shape[1]
        middle = self.starts + (self.stops - self.starts) // 2  # of many rows of one key, those in the middle
        first = cupy.maximum(middle - (k + 1), 0).astype(cupy.int32)
        last = cupy.minimum(middle + (k + 1), m).astype(cupy.int32)
        every = cupy.arange(n, dtype=cupy.int32)
        self.look(every, first, last, cupy.zeros(n, cupy.int32), order)

    def rest(self, lists: list[Array], orders: Array) -> None:
        """Look at all rows of the shortest interval that has all neighbours nearer than those known."""
        n, layout = len(self.q["y"]), self.layout.keys
        known = to_host(self.best_d2[self.q["order"], -1])
        far = reaches(layout.norm, np.minimum(known, self.bound2))
        away = cupy.asarray(np.nextafter(far, np.inf))
        best = [cupy.zeros(n, cupy.int32) for _ in range(3)]
        best[1] += np.int32(2**31 - 1)
        for number, (shift, keys) in enumerate(zip(layout.shifts, lists, strict=True)):
            self.find(keys, shift, away)
            better = self.stops - self.starts < best[1] - best[0]
            found = self.starts, self.stops, np.int32(number)
            best = [cupy.where(better, new, old) for new, old in zip(found, best, strict=True)]
        starts, stops, which = (one.astype(cupy.int32) for one in best)
        queries = cupy.lexsort(cupy.stack([starts, which])).astype(cupy.int32)
        self.look(queries, starts, stops, which, orders)


def nearest(q: Index, d: Index, layout: ZOrderSearch, best_d2: Array, best_name: Array, *, same: bool,
            bound2: float) -> None:  # fmt: skip
    """Improve neighbours: see `gpu.nearest.GpuSearcher.nearest`."""
    n, m, k = len(q["y"]), len(d["y"]), best_d2.shape[1]
    if not (n and m and k):
        return
    search = _Search(q, d, layout, best_d2, best_name, same, bound2)
    lists: list[Array] = []
    orders = cupy.empty((len(layout.keys.shifts), m), cupy.int32)
    for number, shift in enumerate(layout.keys.shifts):
        orders[number], keys = search.keys.in_order(d["y"], shift)
        search.find(keys, shift, None)
        search.next_to(orders[number])
        if not layout.approximate:
            lists.append(keys)
    if lists:
        search.rest(lists, orders)
