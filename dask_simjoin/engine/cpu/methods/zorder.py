"""Finds pairs in the intervals of lists in Z-order: see `dask_simjoin.engine.zorder`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels import zorder as kernels
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.methods.sinks import MAX_ROOM, NO_COUNTS, NO_PAIRS, Named, Sink
from dask_simjoin.engine.cpu.methods.unsorted import build as build
from dask_simjoin.engine.cpu.methods.unsorted import end as end
from dask_simjoin.engine.cpu.methods.unsorted import part as part
from dask_simjoin.engine.cpu.methods.unsorted import points as points
from dask_simjoin.engine.cpu.zorder_walks import Walks, intervals
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.index.zorder import ZOrderLayout, make_zorder_layout, shifts_of
from dask_simjoin.engine.index.zorder_choice import Costs, fitted
from dask_simjoin.engine.profile import Numbers
from dask_simjoin.engine.zorder import ZOrder
from dask_simjoin.metrics.norms import Norm
from dask_simjoin.metrics.types import Index

COSTS = Costs(entry=300.0, column=10.0, row=5.0, term=0.03, search=0.0)
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
    found = Named(min(MAX_ROOM, 64 * max(len(q["y"]), len(d["y"]))), np.int32)
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


def tell(index: Index, layout: ZOrderLayout) -> Numbers:
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
