"""Find pairs and nearest neighbors by lists in Z-order, on GPUs: see
`dask_simjoin.papers.list_index`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cupy
import numpy as np

from dask_simjoin.engine.compat import to_host
from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import NOWHERE, THREADS
from dask_simjoin.engine.gpu.pairs import PairBatch
from dask_simjoin.engine.gpu.sources import norm_constant
from dask_simjoin.engine.index.gpu import WARP
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Array, Index, Norm, reaches
from dask_simjoin.papers.gpu.flow import (
    STATE_SIZE,
    OneKernel,
    bounds_for,
    filtered,
    is_none,
    limits,
)
from dask_simjoin.papers.grid_batches import Batch
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
from dask_simjoin.sizes import BUFFER_SHARE


def blocks(threads: int) -> tuple[tuple[int], tuple[int]]:
    return (-(-threads // THREADS),), (THREADS,)


def kernel(program: str, layout: ZOrderLayout, function: str, **constants: int) -> Any:
    shape = {
        "DIMS": layout.dims,
        "COLUMNS": len(layout.columns),
        "WORDS": layout.options.words,
    }
    return load.kernel(
        f"papers/{program}",
        function,
        **shape,
        **constants,
        **norm_constant(layout.norm),
    )


class Keys:
    """Makes keys on the GPU by the kernels of `program`, which are compiled with
    `constants`.
    """

    def __init__(self, program: str, layout: ZOrderLayout, **constants: int) -> None:
        self.program, self.layout, self.constants = program, layout, constants
        columns, low = np.array(layout.columns, np.int32), np.array(layout.low)
        scales = np.float64(layout.extent), np.float64(layout.scale)
        self.arguments = (cupy.asarray(columns), cupy.asarray(low), *scales)

    def kernel(self, function: str) -> Any:
        return kernel(self.program, self.layout, function, **self.constants)

    def of(self, shift: float) -> tuple[Any, ...]:
        return (*self.arguments, np.float64(shift), np.int32(self.layout.bits))

    def in_order(self, y: Array, shift: float) -> tuple[Array, Array]:
        """Sort points `y` (n, d) by key; return their positions (n,), int32, and the
        sorted keys (n, words).

        The sort is stable: points with equal keys stay in the order of their positions.
        """
        keys = cupy.empty((len(y), self.layout.options.words), cupy.uint64)
        points = y, np.int32(len(y)), *self.of(shift), keys
        self.kernel("make_keys")(*blocks(len(y)), points)
        if keys.shape[1] == 1:
            order = cupy.argsort(keys[:, 0], kind="stable")
        else:
            order = cupy.lexsort(cupy.ascontiguousarray(keys.T[::-1]))
        return order.astype(cupy.int32), cupy.ascontiguousarray(keys[order])


COSTS = ListCosts(entry=8.0, column=0.0, row=0.015, term=0.0, search=2e7)
"""Costs in nanoseconds on an H200, measured with 65,536 to a million rows of 16
columns.

`search` is about 20 ms, the time to choose the number of lists.
"""


@dataclass(frozen=True)
class GpuWalks:
    """For each query, the list to search and the interval in that list. Arrays are
    int32.
    """

    starts: Array  # start of each interval (queries,)
    stops: Array
    lists: Array  # number of the list of each query (queries,)
    orders: Array  # for each list, the positions of its rows (lists, points)
    # whether intervals begin after the query itself; all queries then use the same list
    half: bool


def _constants(layout: ZOrderLayout, **constants: int) -> dict[str, int]:
    return {"EXACT": layout.bounds is None, "COUNTING": 0} | constants


def keep_shortest(
    best: list[Array], starts: Array, stops: Array, number: int
) -> list[Array]:
    """If a query's interval in list `number` is shorter than its best one so far, it
    becomes the best one.

    `best`: starts, stops and lists of the best intervals; the result has the same form.
    """
    better, found = (
        stops - starts < best[1] - best[0],
        (starts, stops, np.int32(number)),
    )
    return [cupy.where(better, new, old) for new, old in zip(found, best, strict=True)]


def intervals(q: Index, d: Index, layout: ZOrderLayout, is_self_join: bool) -> GpuWalks:
    """Build the lists of `d` one after the other, and choose a list and an interval for
    each row of `q`.
    """
    x, y = q["y"], d["y"]
    walk = layout.options.walk if is_self_join else "full"
    made = Keys("zorder", layout, **_constants(layout))
    starts, stops = cupy.empty(len(x), cupy.int32), cupy.empty(len(x), cupy.int32)
    best = [cupy.zeros(len(x), cupy.int32) for _ in range(3)]
    best[1] += np.int32(2**31 - 1)
    orders = cupy.empty((len(layout.shifts), len(y)), cupy.int32)
    half: tuple[int, GpuWalks] | None = None
    for number, shift in enumerate(layout.shifts):
        order, keys = made.in_order(y, shift)
        orders[number] = order
        limits = np.float64(layout.corner), keys, np.int32(len(y)), starts, stops
        made.kernel("find_intervals")(
            *blocks(len(x)), (x, np.int32(len(x)), *made.of(shift), *limits)
        )
        if walk != "half":
            best = keep_shortest(best, starts, stops, number)
        # start after the query's own place; its key would not do, because other rows
        # may have the same key
        if walk != "full":
            after = cupy.empty(len(x), cupy.int32)
            after[order] = cupy.arange(1, len(x) + 1, dtype=cupy.int32)
            total = int((stops - after).astype(cupy.int64).sum())
            if half is None or total < half[0]:
                one = cupy.full(len(x), number, cupy.int32)
                half = total, GpuWalks(after, stops.copy(), one, orders, True)
    full = GpuWalks(best[0], best[1], best[2].astype(cupy.int32), orders, False)
    if half is None or (
        walk == "auto"
        and int((full.stops - full.starts).astype(cupy.int64).sum()) <= half[0]
    ):
        return full
    return half[1]


@dataclass(frozen=True)
class ZOrderLaunch:
    """A `Launch` of a join by lists.

    `places`: the queries in the order of their processing, as positions. `turned`:
    whether queries are rows of the right table.
    """

    q: Index
    d: Index
    layout: ZOrderLayout
    is_self_join: bool
    turned: bool
    walks: GpuWalks
    places: Array
    constants: dict[str, int]

    @classmethod
    def of(
        cls,
        q: Index,
        d: Index,
        layout: ZOrderLayout,
        is_self_join: bool,
        rows: Rows | None = None,
        **constants: int,
    ) -> ZOrderLaunch:
        """Choose which index is sorted, and the order of the queries.

        `rows`: range of positions of the requested queries.
        """
        index_side = layout.options.index
        smaller = index_side == "left" or (
            index_side == "smaller" and len(q["y"]) < len(d["y"])
        )
        # with `rows`, the tables are not swapped, because `rows` are queries of `q`
        turned = smaller and not is_self_join and rows is None
        if turned:
            q, d = d, q
        walks = intervals(q, d, layout, is_self_join)
        places = cupy.lexsort(cupy.stack([walks.starts, walks.lists])).astype(
            cupy.int32
        )
        if rows is not None:
            places = places[(places >= rows[0]) & (places < rows[1])]
        return cls(q, d, layout, is_self_join, turned, walks, places, constants)

    @property
    def queries(self) -> int:
        return len(self.places)

    def slots(self, batch: Batch) -> Array:
        """Return the slot of each query's first candidate (number + 1,).

        Slots are prefix sums of interval lengths.
        """
        some = self.places[batch.first :: batch.step][: batch.number]
        found = cupy.zeros(batch.number + 1, cupy.int64)
        cupy.cumsum(
            (self.walks.stops - self.walks.starts)[some],
            dtype=cupy.int64,
            out=found[1:],
        )
        return found

    def run(
        self,
        batch: Batch,
        capacity: int,
        out: Array | np.uint64,
        counts: tuple[Any, Any],
        state: Array,
    ) -> None:
        layout, options, q, d, walks = (
            self.layout,
            self.layout.options,
            self.q,
            self.d,
            self.walks,
        )
        name = "y" if layout.bounds is None else "z"
        each, slots = options.assign == "candidate", NOWHERE
        work = batch.number * options.threads
        if each or self.constants.get("BOUNDED"):
            slots = self.slots(batch)
            work = int(slots[-1]) if each else work
        if work == 0:
            return
        arguments = (
            self.places,
            np.int64(batch.first),
            np.int64(batch.step),
            np.uint32(batch.number),
            np.int32(options.threads),
            walks.starts,
            walks.stops,
            walks.lists,
            walks.orders,
            np.int32(len(d["y"])),
            np.int32(self.is_self_join and not walks.half),
            np.int32(self.turned),
            q[name],
            q["y"],
            d[name],
            d["y"],
            *limits(layout.threshold, layout.bounds),
            np.uint64(capacity),
            out,
            *(counts[::-1] if self.turned else counts),
            state,
            slots,
        )
        function = "walk_candidates" if each else "walk_lists"
        kernel("zorder", layout, function, **_constants(layout, **self.constants))(
            *blocks(work), arguments
        )


def _mean_length(
    queries: np.ndarray, points: np.ndarray, layout: ZOrderLayout
) -> float:
    q, d = (
        {"y": cupy.ascontiguousarray(cupy.asarray(x, np.float64))}
        for x in (queries, points)
    )
    walks = intervals(q, d, layout, False)
    return float((walks.stops - walks.starts).astype(cupy.float64).mean())


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
    bounds = bounds_for(options.precision, lower, upper, mean, threshold, norm)
    made = replace(
        make_zorder_layout(options, lower, upper, variance, threshold, norm),
        bounds=bounds,
    )
    chosen = fitted(options, made, sample, _mean_length, COSTS)
    return replace(made, options=chosen, shifts=shifts_of(chosen, made.dims))


def build(x: Array, layout: ZOrderLayout) -> Index:
    """Return an index that keeps the rows in their order.

    Lists are made by the join, because they depend on both indexes.
    """
    order, y = cupy.arange(len(x), dtype=cupy.int32), cupy.ascontiguousarray(x)
    if layout.bounds is None:
        return {"order": order, "y": y}
    return {
        "order": order,
        "y": y,
        "z": cupy.ascontiguousarray(filtered(y, layout.bounds)),
    }


_KERNEL = OneKernel(ZOrderLaunch.of)
count, pass_to = _KERNEL.count, _KERNEL.pass_to


def batches(
    q: Index,
    d: Index,
    layout: ZOrderLayout,
    *,
    is_self_join: bool,
    rows: Rows | None = None,
    max_pairs: int | None = None,
) -> Iterator[PairBatch]:
    """See `GpuMethod.batches`; with the option output="ordered" there is a single
    batch.
    """
    if is_none(q, d, rows):
        return
    if layout.options.output == "bounded":
        yield from _bounded(
            ZOrderLaunch.of(q, d, layout, is_self_join, rows, BOUNDED=1), max_pairs
        )
        return
    found = _KERNEL.batches(
        q, d, layout, is_self_join=is_self_join, rows=rows, max_pairs=max_pairs
    )
    if layout.options.output == "staged":
        yield from found
        return
    parts, decisions = [cupy.empty((0, 2), cupy.int32)], (0, 0)
    for one in found:
        parts.append(
            cupy.sort(one.places, axis=1) if is_self_join else one.places.copy()
        )
        decisions = one.decided, one.refused
    places = cupy.concatenate(parts)
    yield PairBatch(
        places[cupy.lexsort(cupy.stack([places[:, 1], places[:, 0]]))], *decisions
    )


def _bounded(join: ZOrderLaunch, max_pairs: int | None) -> Iterator[PairBatch]:
    """Yield batches of pairs for output="bounded".

    Each candidate has its own slot, and empty slots are removed.

    A batch has as many queries as fit into the buffer with all their candidates, but at
    least one (section V-A, algorithm 3).
    """
    ends = to_host(join.slots(Batch(0, 1, join.queries)))
    memory = int(cupy.cuda.Device().mem_info[1]) // BUFFER_SHARE // 8
    batch_limit = min(join.layout.options.buffer, memory, max_pairs or memory)
    first = decided = refused = written = 0
    while first < join.queries:
        stop = max(
            int(np.searchsorted(ends, ends[first] + batch_limit, side="right")) - 1,
            first + 1,
        )
        state = cupy.zeros(STATE_SIZE, cupy.uint64)
        out = cupy.full((int(ends[stop] - ends[first]), 2), -1, cupy.int32)
        join.run(
            Batch(first, 1, stop - first), len(out), out, (NOWHERE, NOWHERE), state
        )
        pairs = out[out[:, 0] >= 0]
        _, _, new, no = (int(one) for one in to_host(state)[:4])
        decided, refused, written, first = (
            decided + new,
            refused + no,
            written + len(pairs),
            stop,
        )
        yield PairBatch(
            pairs, decided, refused, int(written * (join.queries - stop) / stop)
        )


def build_nearest(x: Array) -> Index:
    """Return an index that keeps the points `x` (n, d) in their order."""
    return {
        "y": cupy.ascontiguousarray(x),
        "order": cupy.arange(len(x), dtype=cupy.int32),
    }


class _Search:
    """A search for the neighbors of the rows of `q` among the rows of `d`: see
    `papers.cpu.zorder`.
    """

    def __init__(
        self,
        q: Index,
        d: Index,
        layout: ZOrderSearch,
        best_d2: Array,
        best_name: Array,
        is_self_join: bool,
        bound2: float,
    ) -> None:
        self.q, self.d, self.layout, self.best_d2, self.bound2 = (
            q,
            d,
            layout,
            best_d2,
            bound2,
        )
        self.keys = Keys("zorder_nearest", layout.keys, EXACT=True)
        sides = q["y"], q["names"], q["order"], d["y"], d["names"]
        self.arguments = (*sides, np.int32(is_self_join), np.float64(bound2))
        self.state = np.int32(best_d2.shape[1]), best_d2, best_name
        self.starts, self.stops = (
            cupy.empty(len(q["y"]), cupy.int32) for _ in range(2)
        )

    def find(self, keys: Array, shift: float, half_widths: Array | None) -> None:
        """For each query, find the part of a sorted list that has all rows in the
        query's box.

        `keys`: keys of the list, ascending. `shift`: the shift of the list.
        `half_widths`: half the width of each box. If it is None, find the rows with the
        same key as the query.
        """
        x, boxes = self.q["y"], np.int32(half_widths is not None)
        # without boxes, the kernel does not read this argument, so any array will do
        sides = self.best_d2 if half_widths is None else half_widths
        limits = sides, boxes, keys, np.int32(len(keys)), self.starts, self.stops
        find = self.keys.kernel("find_boxes")
        find(*blocks(len(x)), (x, np.int32(len(x)), *self.keys.of(shift), *limits))

    def look(
        self, queries: Array, starts: Array, stops: Array, lists: Array, orders: Array
    ) -> None:
        """Update the neighbors of queries with the rows from `starts` to `stops` of
        their lists.
        """
        places = (
            queries,
            np.int32(len(queries)),
            starts,
            stops,
            lists,
            orders,
            np.int32(orders.shape[-1]),
        )
        grid = -(-len(queries) * WARP // THREADS), THREADS
        self.keys.kernel("look")(
            (grid[0],), (grid[1],), (*places, *self.arguments, *self.state)
        )

    def next_to(self, order: Array) -> None:
        """Compare each query with the adjacent rows in the list that `find` has just
        searched.
        """
        n, m, k = len(self.q["y"]), len(order), self.best_d2.shape[1]
        # if several rows have the same key as the query, start in the middle of them
        middle = self.starts + (self.stops - self.starts) // 2
        first = cupy.maximum(middle - (k + 1), 0).astype(cupy.int32)
        last = cupy.minimum(middle + (k + 1), m).astype(cupy.int32)
        every = cupy.arange(n, dtype=cupy.int32)
        self.look(every, first, last, cupy.zeros(n, cupy.int32), order)

    def rest(self, lists: list[Array], orders: Array) -> None:
        """Compare each query with the shortest interval that contains all rows of the
        box around it.
        """
        n, layout = len(self.q["y"]), self.layout.keys
        worst = to_host(self.best_d2[self.q["order"], -1])
        far = reaches(layout.norm, np.minimum(worst, self.bound2))
        half_widths = cupy.asarray(np.nextafter(far, np.inf))
        best = [cupy.zeros(n, cupy.int32) for _ in range(3)]
        best[1] += np.int32(2**31 - 1)
        for number, (shift, keys) in enumerate(zip(layout.shifts, lists, strict=True)):
            self.find(keys, shift, half_widths)
            best = keep_shortest(best, self.starts, self.stops, number)
        starts, stops, which = (one.astype(cupy.int32) for one in best)
        queries = cupy.lexsort(cupy.stack([starts, which])).astype(cupy.int32)
        self.look(queries, starts, stops, which, orders)


def nearest(
    q: Index,
    d: Index,
    layout: ZOrderSearch,
    best_d2: Array,
    best_name: Array,
    *,
    is_self_join: bool,
    bound2: float,
) -> None:
    n, m, k = len(q["y"]), len(d["y"]), best_d2.shape[1]
    if not (n and m and k):
        return
    search = _Search(q, d, layout, best_d2, best_name, is_self_join, bound2)
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
