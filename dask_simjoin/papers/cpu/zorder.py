"""Find pairs, and nearest rows, in the intervals of lists in Z-order.

LSS (Lieberman, Sankaranarayanan & Samet 2008), section V-E: the best of the rows within k places of a row in
each list are its neighbours about; how far away the k-th of them is bounds where nearer ones are, so that an
interval of the best list has all of them.  A row occurs in several lists and counts once, and is no neighbour
of itself: k + 1 places on either side hold k others, if there are so many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import MAX_ROOM, NO_COUNTS, NO_PAIRS, NamedPairs, Sink
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.metrics.norms import Index, Norm, reaches
from dask_simjoin.papers.cpu.kernels import lists as kernels
from dask_simjoin.papers.cpu.unsorted import build as build
from dask_simjoin.papers.cpu.unsorted import end as end
from dask_simjoin.papers.cpu.unsorted import part as part
from dask_simjoin.papers.cpu.unsorted import points as points
from dask_simjoin.papers.list_index import (
    FULL_SHARE,
    ListCosts,
    ZOrderLayout,
    ZOrderSearch,
    fitted,
    make_zorder_layout,
    shifts_of,
)
from dask_simjoin.papers.list_index import search_layout as search_layout
from dask_simjoin.papers.lists import ZOrder


@dataclass(frozen=True)
class Walks:
    """What queries walk through.

    Attributes
    ----------
    orders : list of array (points,), int32
        The places of the rows of each list.
    starts, stops : array (queries,), int64
        Where each query's interval is, in its list.
    lists : array (queries,), int16
    half : bool
        Whether intervals begin behind the query itself, all in one list.
    """

    orders: list[np.ndarray]
    starts: np.ndarray
    stops: np.ndarray
    lists: np.ndarray
    half: bool

    @property
    def lengths(self) -> np.ndarray:
        """How many rows each query walks through."""
        return self.stops - self.starts


def keys(x: np.ndarray, layout: ZOrderLayout, shift: float, corner: float = 0.0) -> np.ndarray:
    """Make the keys (n, words) of points, or of upper or (negative `corner`) lower corners around them."""
    out = np.empty((len(x), layout.options.words), np.uint64)
    columns, low = np.array(layout.columns, np.int64), np.array(layout.low)
    kernels.make_keys(
        x, columns, low, layout.extent, layout.scale, shift, layout.bits, corner, out, np.empty_like(columns)
    )
    return out


def sort(found: np.ndarray, stable: bool = False) -> np.ndarray:
    """Return the order (n,), int32, of keys; `stable`: equal ones stay in theirs, which takes longer."""
    if found.shape[1] > 1:
        return np.lexsort(found.T[::-1]).astype(np.int32)
    return np.argsort(found[:, 0], kind="stable" if stable else None).astype(np.int32)


def intervals(queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout, same: bool) -> Walks:
    """Choose what queries walk through, building list after list of the points."""
    m, walk = len(queries), layout.options.walk if same else "full"
    best = np.zeros(m, np.int64), np.zeros(m, np.int64), np.full(m, -1, np.int16)
    starts, stops = np.empty(m, np.int64), np.empty(m, np.int64)
    orders: list[np.ndarray] = []
    halves: tuple[int, Walks] | None = None
    for number, shift in enumerate(layout.shifts):
        own = keys(points, layout, shift)
        order = sort(own)
        corners = (keys(queries, layout, shift, side) for side in (-layout.corner, layout.corner))
        kernels.bounds(own[order], *corners, starts, stops)
        orders.append(order)
        if walk != "half":
            kernels.shortest(starts, stops, number, *best)
        if walk != "full":  # places tell a row's own, where keys are equal
            behind = np.empty(m, np.int64)
            behind[order] = np.arange(1, m + 1)
            total = int((stops - behind).sum())
            if halves is None or total < halves[0]:
                halves = total, Walks([order], behind, stops.copy(), np.zeros(m, np.int16), True)
    full = Walks(orders, *best, False)
    if halves is None or (walk == "auto" and FULL_SHARE * int(full.lengths.sum()) <= halves[0]):
        return full
    return halves[1]


COSTS = ListCosts(entry=300.0, column=10.0, row=5.0, term=0.03, search=0.0)
"""With 65,536 uniform rows of 4 to 64 columns, on one core."""

writes_names = False
# rows are indexed as they are: lists are made of the smaller side, once it is known


def _mean_length(queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout) -> float:
    return float(intervals(queries, points, layout, False).lengths.mean())


def layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> ZOrderLayout:  # fmt: skip
    made = make_zorder_layout(options, lower, upper, variance, threshold, norm)
    chosen = fitted(options, made, drawn, _mean_length, COSTS)
    return replace(made, options=chosen, shifts=shifts_of(chosen, made.dims))


def _turned(q: Index, d: Index, layout: ZOrderLayout, same: bool) -> bool:
    """Tell whether the first side is sorted, and the second one's rows are queries."""
    asked = layout.options.index
    return not same and (asked == "left" or (asked == "smaller" and len(q["y"]) < len(d["y"])))


def run(q: Index, d: Index, layout: ZOrderLayout, same: bool, names: Any, sink: Sink | None,
        counts: tuple[np.ndarray, np.ndarray] | None, told: np.ndarray) -> Walks:  # fmt: skip
    """Write all pairs to a sink, or count them by place; `told`: numbers that the kernels' module names."""
    turned = _turned(q, d, layout, same)
    if turned:
        q, d, names = d, q, names[::-1]
        counts = None if counts is None else counts[::-1]
    walks = intervals(q["y"], d["y"], layout, same)
    left, right, room, n = *NO_PAIRS, 0, 0
    for number, order in enumerate(walks.orders):
        queries = np.flatnonzero(walks.lists == number).astype(np.int32)
        queries = queries[np.argsort(walks.starts[queries], kind="stable")]
        lying = int(walks.lengths[queries].sum()) > len(order)  # then it pays to put rows in that order
        points, state = d["y"][order] if lying else d["y"], np.zeros(3, np.int64)
        while True:
            if sink is not None:
                # what lists before have written stays where it is
                left, right, room = sink.left[n:], sink.right[n:], sink.room - n
            n += kernels.walk(
                queries, walks.starts, walks.stops, order, same and not walks.half, q["y"], names[0], points,
                names[1], lying, layout.threshold, kind_of(layout.norm), same,
                *((right, left) if turned else (left, right)), room, counts is not None,
                *(counts or NO_COUNTS), state, told,
            )  # fmt: skip
            if state[2] == 0:
                break
            assert sink is not None
            sink.full(n, int(state[2]))
            n = 0
    if sink is not None:
        sink.end(n)
    return walks


def _ordered(q: Index, d: Index, layout: ZOrderLayout, same: bool, names: list[np.ndarray],
             sink: Sink) -> None:  # fmt: skip
    """Write all pairs to a sink in the order of their left and then of their right places."""
    found = NamedPairs(min(MAX_ROOM, 64 * max(len(q["y"]), len(d["y"]))), np.int32)
    places = [np.arange(len(side["y"]), dtype=np.int32) for side in (q, d)]
    run(q, d, layout, same, places, found, None, np.zeros(3, np.int64))
    left, right = found.whole()
    order = np.lexsort((right, left))
    n = 0
    for first in range(0, len(order), sink.room):
        if n:
            sink.full(n, 1)
        some = order[first : first + sink.room]
        n = len(some)
        sink.left[:n], sink.right[:n] = names[0][left[some]], names[1][right[some]]
    sink.end(n)


def pairs(q: Index, d: Index, layout: ZOrderLayout, same: bool, names: list[np.ndarray],
          sink: Sink, turn: bool) -> tuple[int, int]:  # fmt: skip
    """Write all pairs of two indexes to a sink; all are decided in float64, and none by a filter before."""
    if layout.options.output == "ordered":
        _ordered(q, d, layout, same, names, sink)
    else:
        run(q, d, layout, same, names, sink, None, np.zeros(3, np.int64))
    return 0, 0


def counts(q: Index, d: Index, layout: ZOrderLayout, same: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    """Add up the pairs of each place of both sides."""
    names = [side["order"] for side in (q, d)]
    run(q, d, layout, same, names, None, (q_counts, d_counts), np.zeros(3, np.int64))


def layout_stats(index: Index, layout: ZOrderLayout) -> Numbers:
    """Count what a join of an index with itself does: it counts by itself, and is done once more."""
    told, found = np.zeros(3, np.int64), np.zeros(len(index["y"]), np.int64)
    walks = run(index, index, layout, True, [index["order"]] * 2, None, (found, found), told)
    median, late, most = np.quantile(walks.lengths, [0.5, 0.99, 1.0]).tolist()
    return {
        "candidates": int(told[kernels.CANDIDATES]), "comparisons": int(told[kernels.COMPARISONS]),
        "lists": len(layout.shifts), "walked_lists": len(np.unique(walks.lists)),
        "half_walk": int(walks.half), "interval_mean": float(walks.lengths.mean()),
        "interval_median": median, "interval_p99": late, "interval_max": most,
    }  # fmt: skip


def work(q: Index, d: Index, layout: ZOrderLayout, same: bool) -> np.ndarray:
    return np.ones(1)  # which rows have long intervals is known once they are found


QUERIES = 4096
"""Whose corners are made at a time: they take twice the memory of their points."""


def build_nearest(x: np.ndarray) -> Index:
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
        looked += kernels.look(
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
        looked += kernels.look(
            queries, firsts, lasts, order, *told, best_name, np.empty(1), np.empty(1, np.int64)
        )
    return looked
