"""Find pairs and nearest neighbors by lists in Z-order, on CPUs: see
`dask_simjoin.papers.list_index`.

The search for neighbors follows LSS, section V-E (Lieberman, Sankaranarayanan & Samet
2008). It compares each query with the k + 1 rows before it and the k + 1 rows after it
in each list. The k nearest of these rows are the approximate neighbors. No true
neighbor is farther than the k-th of them, so all true neighbors lie in a box around the
query. In each list, some interval contains all rows of this box. The exact search
compares the rows of the shortest interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.columns import MAX_CAPACITY
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.nearest_lists import take_in, worse
from dask_simjoin.engine.cpu.kernels.totals import (
    STEP,
    Kind,
    add_term,
    kind_of,
)
from dask_simjoin.engine.cpu.sinks import NamedPairs, Sink
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.metrics.norms import Array, Index, Norm, reaches
from dask_simjoin.papers.cpu.nested import Counts, Target, entry_points, target_of
from dask_simjoin.papers.cpu.nested import build as build
from dask_simjoin.papers.cpu.nested import end as end
from dask_simjoin.papers.cpu.nested import part as part
from dask_simjoin.papers.cpu.nested import points as points
from dask_simjoin.papers.list_index import (
    ListCosts,
    ZOrderLayout,
    ZOrderSearch,
    fitted,
    make_zorder_layout,
    shifts_of,
)
from dask_simjoin.papers.list_index import search_layout as search_layout
from dask_simjoin.papers.lists import ZOrder
from dask_simjoin.sizes import IN_CACHE

CANDIDATES, COMPARISONS, PAIRS = range(3)
"""Indexes in `counters`: rows in intervals, compared rows, pairs."""


@kernel
def make_keys(
    x: Array,
    columns: Array,
    low: Array,
    extent: float,
    scale: float,
    shift: float,
    bits: int,
    corner: float,
    out: Array,
    cells: Array,
) -> None:
    """Write to `out` (n, words), uint64, the keys of points, or of a corner of the box
    around each point.

    `corner`: 0 for the points themselves. Positive: the upper corner, at this distance
    in each dimension. Negative: the lower corner. `cells`: scratch with one entry per
    column.
    """
    k = columns.size
    limit = 2.0**bits - 1.0
    half = 2.0 ** (bits - 1)
    one = np.uint64(1)
    for i in range(len(x)):
        for j in range(k):
            value = x[i, columns[j]] + corner
            cell = ((value * scale - low[j]) / extent + shift) * half
            cells[j] = np.int64(min(max(cell, 0.0), limit))
        word, filled = 0, 0
        key = np.uint64(0)
        for bit in range(bits - 1, -1, -1):
            for j in range(k):
                key = (key << one) | np.uint64((cells[j] >> bit) & 1)
                filled += 1
                if filled == 64:
                    out[i, word] = key
                    word, filled, key = word + 1, 0, np.uint64(0)
        if word < out.shape[1]:
            out[i, word] = key
            for rest in range(word + 1, out.shape[1]):
                out[i, rest] = 0


@device_function
def before(one: Array, other: Array) -> bool:
    """Return whether the key `one` is smaller than the key `other`."""
    for w in range(one.size):
        if one[w] != other[w]:
            return one[w] < other[w]
    return False


@kernel
def find_intervals(
    keys: Array, low: Array, high: Array, starts: Array, stops: Array
) -> None:
    """For each query, write the start and stop of the range in `keys` (ascending) from
    `low` to `high`.
    """
    for i in range(len(low)):
        begin, end = 0, len(keys)
        while begin < end:
            middle = (begin + end) // 2
            if before(keys[middle], low[i]):
                begin = middle + 1
            else:
                end = middle
        starts[i] = begin
        end = len(keys)
        while begin < end:
            middle = (begin + end) // 2
            if before(high[i], keys[middle]):
                end = middle
            else:
                begin = middle + 1
        stops[i] = begin


@kernel
def keep_shortest(
    starts: Array,
    stops: Array,
    number: int,
    best_start: Array,
    best_stop: Array,
    best_list: Array,
) -> None:
    """If a query's interval in list `number` is shorter than its best one so far, it
    becomes the best one.
    """
    for i in range(starts.size):
        if best_list[i] < 0 or stops[i] - starts[i] < best_stop[i] - best_start[i]:
            best_start[i], best_stop[i], best_list[i] = starts[i], stops[i], number


class ListParts(NamedTuple):
    """Positions of rows in list order, and the part that each query is compared with.

    `later`: whether to compare only rows with larger positions than the query's.
    `in_order`: whether the coordinates are in list order, too.
    """

    listed: Array
    starts: Array
    stops: Array
    later: bool
    in_order: bool


@kernel
def walk_list(
    queries: Array,
    parts: ListParts,
    q_y: Array,
    d_y: Array,
    names: tuple[Array, Array],
    threshold: float,
    norm: Kind,
    is_self_join: bool,
    target: Target,
    state: Array,
    counters: Array,
) -> int:
    """Write pairs of ids to `target`, or count the pairs of each row; return the number
    written.

    `queries`: positions of the queries. `names`: ids of both. The kernel stops when the
    capacity is reached. Then `state` has the query, its progress in the list, and 1. At
    the end, the last value is 0.

    Rounded terms are not negative. So if a partial sum is above the threshold, the full
    sum is above it, too.
    """
    listed, starts, stops, later, in_order = parts
    left, right, cap, counting, q_counts, d_counts = target
    q_names, d_names = names
    dims = q_y.shape[1]
    n = 0
    for s in range(state[0], queries.size):
        p = np.int64(queries[s])
        for j in range(max(starts[p], state[1]), stops[p]):
            other = np.int64(listed[j])
            counters[CANDIDATES] += 1
            if later and other <= p:
                continue
            counters[COMPARISONS] += 1
            row = j if in_order else other
            total, k = 0.0, 0
            while k < dims:
                for m in range(k, min(k + STEP, dims)):
                    total = add_term(total, q_y[p, m] - d_y[row, m], norm)
                k += STEP
                if total > threshold:
                    break
            if total > threshold:
                continue
            if counting:
                q_counts[other if is_self_join and other < p else p] += 1
                d_counts[p if is_self_join and other < p else other] += 1
            elif n == cap:
                counters[CANDIDATES] -= 1
                counters[COMPARISONS] -= 1
                state[0], state[1], state[2] = s, j, 1
                return n
            else:
                one, two = q_names[p], d_names[other]
                if is_self_join and two < one:
                    one, two = two, one
                left[n], right[n] = one, two
                n += 1
            counters[PAIRS] += 1
        state[1] = 0
    state[2] = 0
    return n


@kernel
def look(
    queries: Array,
    firsts: Array,
    lasts: Array,
    listed: Array,
    q: tuple[Array, Array, Array],
    d: tuple[Array, Array],
    is_self_join: bool,
    bound: float,
    norm: Kind,
    best: tuple[Array, Array],
    new: tuple[Array, Array],
) -> int:
    """Update the neighbors of queries with a part of a list; return the number of
    compared rows.

    `queries`: positions of the queries. `listed`: positions of the rows in list order;
    a query is compared with the part from `firsts` to `lasts`. `q`, `d`: points and
    row ids; for queries also their rows in `best`. `best`: totals and row ids of the
    neighbors. `new`: scratch for one of each. A row that is a neighbor already, from
    another list, is skipped. Rounded terms are not negative. So if a partial sum is
    above the worst neighbor's total, the full sum is above it, too.
    """
    q_y, q_names, rows = q
    d_y, d_names = d
    best_d2, best_name = best
    new_d2, new_name = new
    dims, k, compared = q_y.shape[1], best_d2.shape[1], 0
    for s in range(queries.size):
        p = np.int64(queries[s])
        row, name = np.int64(rows[p]), q_names[p]
        for j in range(firsts[p], lasts[p]):
            place = np.int64(listed[j])
            other = d_names[place]
            if is_self_join and other == name:
                continue
            compared += 1
            limit = min(bound, best_d2[row, k - 1])
            total, m = 0.0, 0
            while m < dims:
                for c in range(m, min(m + STEP, dims)):
                    total = add_term(total, q_y[p, c] - d_y[place, c], norm)
                m += STEP
                if total > limit:
                    break
            if total > limit or not worse(
                best_d2[row, k - 1], best_name[row, k - 1], total, other
            ):
                continue
            is_neighbor = False
            for n in range(k):
                if best_name[row, n] == other:
                    is_neighbor = True
                    break
            if not is_neighbor:
                new_d2[0], new_name[0] = total, other
                take_in(best_d2, best_name, row, new_d2, new_name, 1)
    return compared


@dataclass(frozen=True)
class Walks:
    """For each query, the list to search and the interval in that list."""

    # for each list, the positions of its rows (points,), int32
    orders: list[np.ndarray]
    starts: np.ndarray  # start of each interval (queries,), int64
    stops: np.ndarray
    lists: np.ndarray  # number of the list of each query (queries,), int16
    # whether intervals begin after the query itself; all queries then use the same list
    half: bool

    @property
    def lengths(self) -> np.ndarray:
        return self.stops - self.starts


def keys(
    x: np.ndarray, layout: ZOrderLayout, shift: float, corner: float = 0.0
) -> np.ndarray:
    """Return the keys (n, words) of points, or of a corner of the box around each
    point: see `make_keys`.
    """
    out = np.empty((len(x), layout.options.words), np.uint64)
    columns, low = np.array(layout.columns, np.int64), np.array(layout.low)
    make_keys(
        x,
        columns,
        low,
        layout.extent,
        layout.scale,
        shift,
        layout.bits,
        corner,
        out,
        np.empty_like(columns),
    )
    return out


def sort(found: np.ndarray, stable: bool = False) -> np.ndarray:
    """Return the positions that sort the keys `found` (n, words), int32; a stable sort
    is slower.
    """
    if found.shape[1] > 1:
        return np.lexsort(found.T[::-1]).astype(np.int32)
    return np.argsort(found[:, 0], kind="stable" if stable else None).astype(np.int32)


def intervals(
    queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout, is_self_join: bool
) -> Walks:
    """Build the lists of `points` one after the other, and choose a list and an
    interval for each query.
    """
    m, walk = len(queries), layout.options.walk if is_self_join else "full"
    best = np.zeros(m, np.int64), np.zeros(m, np.int64), np.full(m, -1, np.int16)
    starts, stops = np.empty(m, np.int64), np.empty(m, np.int64)
    orders: list[np.ndarray] = []
    halves: tuple[int, Walks] | None = None
    for number, shift in enumerate(layout.shifts):
        own = keys(points, layout, shift)
        order = sort(own)
        corners = (
            keys(queries, layout, shift, side)
            for side in (-layout.corner, layout.corner)
        )
        find_intervals(own[order], *corners, starts, stops)
        orders.append(order)
        if walk != "half":
            keep_shortest(starts, stops, number, *best)
        # start after the query's own place; its key would not do, because other rows
        # may have the same key
        if walk != "full":
            behind = np.empty(m, np.int64)
            behind[order] = np.arange(1, m + 1)
            total = int((stops - behind).sum())
            if halves is None or total < halves[0]:
                halves = (
                    total,
                    Walks([order], behind, stops.copy(), np.zeros(m, np.int16), True),
                )
    full = Walks(orders, *best, False)
    if halves is None or (walk == "auto" and int(full.lengths.sum()) <= halves[0]):
        return full
    return halves[1]


COSTS = ListCosts(entry=300.0, column=10.0, row=5.0, term=0.03, search=0.0)
"""Costs on one CPU core, measured with 65,536 uniform rows of 4 to 64 columns."""

writes_names = False


def _mean_length(
    queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout
) -> float:
    return float(intervals(queries, points, layout, False).lengths.mean())


def layout(
    options: ZOrder,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> ZOrderLayout:
    made = make_zorder_layout(options, lower, upper, variance, threshold, norm)
    chosen = fitted(options, made, sample, _mean_length, COSTS)
    return replace(made, options=chosen, shifts=shifts_of(chosen, made.dims))


def run(
    q: Index,
    d: Index,
    layout: ZOrderLayout,
    is_self_join: bool,
    names: Any,
    sink: Sink | None,
    counts: Counts | None,
    counters: np.ndarray | None = None,
) -> Walks:
    """Write all pairs to a sink, or count the pairs of each row; add to `counters` (see
    `CANDIDATES`).
    """
    counters = np.zeros(3, np.int64) if counters is None else counters
    side = layout.options.index
    first_is_sorted = side == "left" or (
        side == "smaller" and len(q["y"]) < len(d["y"])
    )
    turned = first_is_sorted and not is_self_join
    if turned:
        q, d, names = d, q, names[::-1]
        counts = None if counts is None else counts[::-1]
    walks = intervals(q["y"], d["y"], layout, is_self_join)
    target, n = target_of(sink, counts), 0
    for number, order in enumerate(walks.orders):
        queries = np.flatnonzero(walks.lists == number).astype(np.int32)
        queries = queries[np.argsort(walks.starts[queries], kind="stable")]
        # copy the rows in list order only if a row is read more than once on average
        in_order = int(walks.lengths[queries].sum()) > len(order)
        points, state = d["y"][order] if in_order else d["y"], np.zeros(3, np.int64)
        later = is_self_join and not walks.half
        parts = ListParts(order, walks.starts, walks.stops, later, in_order)
        while True:
            if sink is not None:
                # append after the pairs of earlier lists, because these are still in
                # the sink's arrays
                left, right = sink.left[n:], sink.right[n:]
                if turned:
                    left, right = right, left
                target = target._replace(left=left, right=right, cap=sink.capacity - n)
            n += walk_list(
                queries,
                parts,
                q["y"],
                points,
                (names[0], names[1]),
                layout.threshold,
                kind_of(layout.norm),
                is_self_join,
                target,
                state,
                counters,
            )
            if state[2] == 0:
                break
            assert sink is not None
            sink.full(n, int(state[2]))
            n = 0
    if sink is not None:
        sink.end(n)
    return walks


_in_any_order, counts = entry_points(run)


def _ordered(
    q: Index,
    d: Index,
    layout: ZOrderLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
) -> None:
    """Write all pairs to a sink, sorted by left position, then by right position."""
    found = NamedPairs(min(MAX_CAPACITY, 64 * max(len(q["y"]), len(d["y"]))), np.int32)
    places = [np.arange(len(side["y"]), dtype=np.int32) for side in (q, d)]
    run(q, d, layout, is_self_join, places, found, None)
    left, right = found.take_columns()
    order = np.lexsort((right, left))
    n = 0
    for first in range(0, len(order), sink.capacity):
        if n:
            sink.full(n, 1)
        some = order[first : first + sink.capacity]
        n = len(some)
        sink.left[:n], sink.right[:n] = names[0][left[some]], names[1][right[some]]
    sink.end(n)


def pairs(
    q: Index,
    d: Index,
    layout: ZOrderLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
) -> tuple[int, int]:
    if layout.options.output != "ordered":
        return _in_any_order(
            q, d, layout, is_self_join, names, sink, orient_by_position
        )
    _ordered(q, d, layout, is_self_join, names, sink)
    return 0, 0


def layout_stats(index: Index, layout: ZOrderLayout) -> Numbers:
    counters, found = np.zeros(3, np.int64), np.zeros(len(index["y"]), np.int64)
    walks = run(
        index, index, layout, True, [index["order"]] * 2, None, (found, found), counters
    )
    median, p99, longest = np.quantile(walks.lengths, [0.5, 0.99, 1.0]).tolist()
    return {
        "candidates": int(counters[CANDIDATES]),
        "comparisons": int(counters[COMPARISONS]),
        "lists": len(layout.shifts),
        "walked_lists": len(np.unique(walks.lists)),
        "half_walk": int(walks.half),
        "interval_mean": float(walks.lengths.mean()),
        "interval_median": median,
        "interval_p99": p99,
        "interval_max": longest,
    }


def work(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool) -> np.ndarray:
    # assume that all parts have equal work, because intervals are unknown before they
    # are looked up
    return np.ones(1)


def build_nearest(x: np.ndarray) -> Index:
    """Return an index that keeps the points `x` (n, d) in their order; ids are
    positions.
    """
    places = np.arange(len(x))
    return {"y": np.ascontiguousarray(x), "names": places, "order": places}


def nearest(
    q: Index,
    d: Index,
    layout: ZOrderSearch,
    best_d2: np.ndarray,
    best_name: np.ndarray,
    *,
    is_self_join: bool,
    bound2: float = math.inf,
) -> int:
    """Update the neighbors, and return the number of compared rows: see
    `engine.cpu.nearest`.
    """
    n, m, k = len(q["y"]), len(d["y"]), best_d2.shape[1]
    if not (n and m and k):
        return 0
    arguments = (
        (q["y"], q["names"], q["order"]),
        (d["y"], d["names"]),
        is_self_join,
        bound2,
        kind_of(layout.norm),
        (best_d2, best_name),
        (np.empty(1), np.empty(1, np.int64)),
    )
    every, compared = np.arange(n, dtype=np.int32), 0
    begins, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    lists = []
    for shift in layout.keys.shifts:
        own = keys(d["y"], layout.keys, shift)
        order = sort(own, stable=layout.approximate)
        lists.append((order, own[order]))
        here = keys(q["y"], layout.keys, shift)
        find_intervals(lists[-1][1], here, here, begins, ends)
        # if several rows have the same key as the query, start in the middle of them
        middle = (begins + ends) // 2
        first, last = np.maximum(middle - k - 1, 0), np.minimum(middle + k + 1, m)
        compared += look(every, first, last, order, *arguments)
    if layout.approximate:
        return compared
    for start in range(0, n, IN_CACHE):
        compared += _rest(
            slice(start, min(start + IN_CACHE, n)), lists, q, layout, arguments
        )
    return compared


def _rest(
    some: slice,
    lists: list[tuple[np.ndarray, np.ndarray]],
    q: Index,
    layout: ZOrderSearch,
    arguments: Any,
) -> int:
    """Compare queries `some` with the shortest interval that contains all rows of the
    box around them.
    """
    _, _, _, bound2, _, (best_d2, _), _ = arguments
    x, rows = q["y"][some], q["order"][some]
    far = np.minimum(best_d2[rows, -1], bound2)
    half_widths = np.nextafter(reaches(layout.norm, far), math.inf)[:, None]
    with np.errstate(over="ignore"):
        low, high = (
            np.nextafter(x - half_widths, -math.inf),
            np.nextafter(x + half_widths, math.inf),
        )
    number = len(x)
    best = (
        np.zeros(number, np.int64),
        np.zeros(number, np.int64),
        np.full(number, -1, np.int16),
    )
    begins, ends = np.empty(number, np.int64), np.empty(number, np.int64)
    for place, (shift, (_, own)) in enumerate(
        zip(layout.keys.shifts, lists, strict=True)
    ):
        corners = (keys(side, layout.keys, shift) for side in (low, high))
        find_intervals(own, *corners, begins, ends)
        keep_shortest(begins, ends, place, *best)
    compared, firsts, lasts = 0, *(np.zeros(len(q["y"]), np.int64) for _ in range(2))
    firsts[some], lasts[some] = best[0], best[1]
    for place, (order, _) in enumerate(lists):
        queries = (some.start + np.flatnonzero(best[2] == place)).astype(np.int32)
        compared += look(queries, firsts, lasts, order, *arguments)
    return compared
