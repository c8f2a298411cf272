"""Find pairs and nearest rows in the intervals of lists in Z-order, on CPUs.

The search follows LSS, section V-E (Lieberman, Sankaranarayanan & Samet 2008). It compares a row with the
rows around it in each list. The k nearest of these rows are the row's approximate neighbors. No true neighbor
is farther than the k-th approximate neighbor. So in each list an interval contains all true neighbors, and
the shortest interval is searched. A row that occurs in several lists counts once, and is not its own
neighbor. So k + 1 places on either side have k other rows, if there are k other rows.
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
from dask_simjoin.papers.cpu.nested import build as build
from dask_simjoin.papers.cpu.nested import end as end
from dask_simjoin.papers.cpu.nested import part as part
from dask_simjoin.papers.cpu.nested import points as points
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
    """The intervals of queries.

    Attributes
    ----------
    orders : list of array (points,), int32
        Positions of the rows of each list.
    starts, stops : array (queries,), int64
        Interval of each query in its list.
    lists : array (queries,), int16
        List of each query.
    half : bool
        Whether intervals begin after the query itself, in one list for all queries.
    """

    orders: list[np.ndarray]
    starts: np.ndarray
    stops: np.ndarray
    lists: np.ndarray
    half: bool

    @property
    def lengths(self) -> np.ndarray:
        """Return the number of rows in each interval."""
        return self.stops - self.starts


def keys(x: np.ndarray, layout: ZOrderLayout, shift: float, corner: float = 0.0) -> np.ndarray:
    """Return the keys (n, words) of points, or of their upper or (negative `corner`) lower corners."""
    out = np.empty((len(x), layout.options.words), np.uint64)
    columns, low = np.array(layout.columns, np.int64), np.array(layout.low)
    kernels.make_keys(
        x, columns, low, layout.extent, layout.scale, shift, layout.bits, corner, out, np.empty_like(columns)
    )
    return out


def sort(found: np.ndarray, stable: bool = False) -> np.ndarray:
    """Return the order (n,), int32, of keys; `stable` is slower."""
    if found.shape[1] > 1:
        return np.lexsort(found.T[::-1]).astype(np.int32)
    return np.argsort(found[:, 0], kind="stable" if stable else None).astype(np.int32)


def intervals(queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout, is_self_join: bool) -> Walks:
    """Choose the interval of each query; the lists are built one after the other."""
    m, walk = len(queries), layout.options.walk if is_self_join else "full"
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
        if walk != "full":  # keys may be equal, so positions show which row is the query
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
"""Measured with 65,536 uniform rows of 4 to 64 columns, on one core."""

writes_names = False
# lists are made from the smaller side, once it is known


def _mean_length(queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout) -> float:
    return float(intervals(queries, points, layout, False).lengths.mean())


def layout(options: ZOrder, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> ZOrderLayout:  # fmt: skip
    made = make_zorder_layout(options, lower, upper, variance, threshold, norm)
    chosen = fitted(options, made, drawn, _mean_length, COSTS)
    return replace(made, options=chosen, shifts=shifts_of(chosen, made.dims))


def _sorts_first_side(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool) -> bool:
    """Return whether the first side is sorted, and the rows of the second one are queries."""
    index_side = layout.options.index
    return not is_self_join and (
        index_side == "left" or (index_side == "smaller" and len(q["y"]) < len(d["y"]))
    )


def run(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool, names: Any, sink: Sink | None,
        counts: tuple[np.ndarray, np.ndarray] | None, counters: np.ndarray) -> Walks:  # fmt: skip
    """Write all pairs to a sink, or count them per position; `counters`: see the module of kernels."""
    turned = _sorts_first_side(q, d, layout, is_self_join)
    if turned:
        q, d, names = d, q, names[::-1]
        counts = None if counts is None else counts[::-1]
    walks = intervals(q["y"], d["y"], layout, is_self_join)
    left, right, capacity, n = *NO_PAIRS, 0, 0
    for number, order in enumerate(walks.orders):
        queries = np.flatnonzero(walks.lists == number).astype(np.int32)
        queries = queries[np.argsort(walks.starts[queries], kind="stable")]
        in_order = int(walks.lengths[queries].sum()) > len(
            order
        )  # enough entries to pay for sorting the rows
        points, state = d["y"][order] if in_order else d["y"], np.zeros(3, np.int64)
        while True:
            if sink is not None:
                # pairs of earlier lists stay in the sink
                left, right, capacity = sink.left[n:], sink.right[n:], sink.capacity - n
            n += kernels.walk(
                queries, walks.starts, walks.stops, order, is_self_join and not walks.half, q["y"], names[0],
                points, names[1], in_order, layout.threshold, kind_of(layout.norm), is_self_join,
                *((right, left) if turned else (left, right)), capacity, counts is not None,
                *(counts or NO_COUNTS), state, counters,
            )  # fmt: skip
            if state[2] == 0:
                break
            assert sink is not None
            sink.full(n, int(state[2]))
            n = 0
    if sink is not None:
        sink.end(n)
    return walks


def _ordered(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool, names: list[np.ndarray],
             sink: Sink) -> None:  # fmt: skip
    """Write all pairs to a sink, sorted by left and then right position."""
    found = NamedPairs(min(MAX_ROOM, 64 * max(len(q["y"]), len(d["y"]))), np.int32)
    places = [np.arange(len(side["y"]), dtype=np.int32) for side in (q, d)]
    run(q, d, layout, is_self_join, places, found, None, np.zeros(3, np.int64))
    left, right = found.whole()
    order = np.lexsort((right, left))
    n = 0
    for first in range(0, len(order), sink.capacity):
        if n:
            sink.full(n, 1)
        some = order[first : first + sink.capacity]
        n = len(some)
        sink.left[:n], sink.right[:n] = names[0][left[some]], names[1][right[some]]
    sink.end(n)


def pairs(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool, names: list[np.ndarray],
          sink: Sink, orient_by_position: bool) -> tuple[int, int]:  # fmt: skip
    """Write all pairs of two indexes to a sink; float64 decides all, without a filter."""
    if layout.options.output == "ordered":
        _ordered(q, d, layout, is_self_join, names, sink)
    else:
        run(q, d, layout, is_self_join, names, sink, None, np.zeros(3, np.int64))
    return 0, 0


def counts(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    """Add the pairs of each position to the counts of both sides."""
    names = [side["order"] for side in (q, d)]
    run(q, d, layout, is_self_join, names, None, (q_counts, d_counts), np.zeros(3, np.int64))


def layout_stats(index: Index, layout: ZOrderLayout) -> Numbers:
    """Return the counters of a self-join, from an additional run."""
    counters, found = np.zeros(3, np.int64), np.zeros(len(index["y"]), np.int64)
    walks = run(index, index, layout, True, [index["order"]] * 2, None, (found, found), counters)
    median, p99, longest = np.quantile(walks.lengths, [0.5, 0.99, 1.0]).tolist()
    return {
        "candidates": int(counters[kernels.CANDIDATES]), "comparisons": int(counters[kernels.COMPARISONS]),
        "lists": len(layout.shifts), "walked_lists": len(np.unique(walks.lists)),
        "half_walk": int(walks.half), "interval_mean": float(walks.lengths.mean()),
        "interval_median": median, "interval_p99": p99, "interval_max": longest,
    }  # fmt: skip


def work(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool) -> np.ndarray:
    return np.ones(1)  # no estimate: only the lookup shows the lengths of intervals


QUERY_BATCH = 4096
"""Queries whose corners are computed at a time; corners take twice the memory of their points."""


def build_nearest(x: np.ndarray) -> Index:
    """Return the index of a chunk: points in their order, named by position; see `cpu.nearest.build`."""
    places = np.arange(len(x))
    return {"y": np.ascontiguousarray(x), "names": places, "order": places}


def nearest(q: Index, d: Index, layout: ZOrderSearch, best_d2: np.ndarray, best_name: np.ndarray, *,
            is_self_join: bool, bound2: float = math.inf) -> int:  # fmt: skip
    """Improve neighbors, and return the number of compared rows; see `cpu.nearest.nearest`."""
    n, m, k = len(q["y"]), len(d["y"]), best_d2.shape[1]
    if not (n and m and k):
        return 0
    arguments = (
        q["y"],
        q["names"],
        q["order"],
        d["y"],
        d["names"],
        is_self_join,
        bound2,
        kind_of(layout.norm),
        best_d2,
    )
    every, looked = np.arange(n, dtype=np.int32), 0
    begins, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    lists = []
    for shift in layout.keys.shifts:
        own = keys(d["y"], layout.keys, shift)
        order = sort(own, stable=layout.approximate)
        lists.append((order, own[order]))
        here = keys(q["y"], layout.keys, shift)
        kernels.bounds(lists[-1][1], here, here, begins, ends)
        # the middle of the rows with an equal key
        middle = (begins + ends) // 2
        first, last = np.maximum(middle - k - 1, 0), np.minimum(middle + k + 1, m)
        looked += kernels.look(
            every, first, last, order, *arguments, best_name, np.empty(1), np.empty(1, np.int64)
        )
    if layout.approximate:
        return looked
    for start in range(0, n, QUERY_BATCH):
        looked += _rest(slice(start, min(start + QUERY_BATCH, n)), lists, q, layout, arguments, best_name)
    return looked


def _rest(some: slice, lists: list[tuple[np.ndarray, np.ndarray]], q: Index, layout: ZOrderSearch,
          arguments: Any, best_name: np.ndarray) -> int:  # fmt: skip
    """Compare all rows of the shortest interval that contains all nearer neighbors."""
    best_d2, bound2 = arguments[8], arguments[6]
    x, rows = q["y"][some], q["order"][some]
    far = np.minimum(best_d2[rows, -1], bound2)
    half_widths = np.nextafter(reaches(layout.norm, far), math.inf)[:, None]
    with np.errstate(over="ignore"):
        low, high = np.nextafter(x - half_widths, -math.inf), np.nextafter(x + half_widths, math.inf)
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
            queries, firsts, lasts, order, *arguments, best_name, np.empty(1), np.empty(1, np.int64)
        )
    return looked
