"""Find pairs by looking up the cells of a grid, on CPUs; see `dask_simjoin.papers.grid`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import NO_COUNTS, NO_PAIRS, Sink, fill
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.metrics.norms import Index, Norm, reach
from dask_simjoin.papers import grid as grid_index
from dask_simjoin.papers.cpu.kernels.grid import join, scratch, workloads
from dask_simjoin.papers.cpu.nested import points as points
from dask_simjoin.papers.grid import PATTERNS, Grid, GridLayout, make_grid_layout
from dask_simjoin.papers.grid_batches import facts

writes_names = False


def layout(options: Grid, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> GridLayout:  # fmt: skip
    return make_grid_layout(options, lower, upper, variance, threshold, norm)


def build(x: np.ndarray, layout: GridLayout, threads: int = 1) -> Index:
    return grid_index.build(x, layout, SWEEP_LANES)


def part(index: Index, start: int, stop: int) -> Index:
    return grid_index.part(index, start, stop, SWEEP_LANES)


def _pattern(layout: GridLayout, is_self_join: bool) -> int:
    """Return the number of the pattern; two indexes need all adjacent cells."""
    return PATTERNS.index(layout.options.pattern if is_self_join else "full")


def workload(q: Index, d: Index, layout: GridLayout, is_self_join: bool) -> np.ndarray:
    """Return the candidates of the queries of each cell."""
    work = np.zeros(len(q["keys"]), np.int64)
    strides = np.array(layout.cells.strides, np.int64)
    cells = d["mask"], d["mask_starts"], strides, d["keys"], d["starts"]
    some = scratch(q["coords"].shape[1], len(d["keys"]))
    workloads(q["coords"], *cells, _pattern(layout, is_self_join), work, *some, np.zeros(6, np.int64))
    return work


def sequence(q: Index, d: Index, layout: GridLayout, is_self_join: bool) -> np.ndarray:
    """Return the positions of the queries, as one core takes them one after the other."""
    options = layout.options
    work = np.empty(0, np.int64) if options.order == "given" else workload(q, d, layout, is_self_join)
    places = grid_index.queries(q, work, options)
    if options.order == "queue":
        return places
    return np.concatenate([places[first :: options.batches] for first in range(options.batches)])


def layout_stats(index: Index, layout: GridLayout) -> Numbers:
    """Return the counters of a self-join, from an additional run."""
    counters = np.zeros(6, np.int64)
    n = len(index["y"])
    counts = np.zeros(n, np.int64)
    run(index, index, layout, True, [index["order"]] * 2, None, (counts, counts), counters)
    lookups, found, candidates, comparisons, terms, pairs = counters.tolist()
    work = workload(index, index, layout, True)
    places = grid_index.queries(index, work, layout.options)
    numbers = {"lookups": lookups, "found": found, "candidates": candidates, "comparisons": comparisons}
    return numbers | {"terms": terms} | facts(index, layout, places, work, pairs, comparisons)


def run(q: Index, d: Index, layout: GridLayout, is_self_join: bool, names: Any, sink: Sink | None,
        counts: tuple[np.ndarray, np.ndarray] | None, counters: np.ndarray) -> None:  # fmt: skip
    """Write all pairs to a sink, or count them per position; `counters`: see the module of kernels."""
    order = sequence(q, d, layout, is_self_join)
    strides = np.array(layout.cells.strides, np.int64)
    state, some = np.zeros(3, np.int64), scratch(q["coords"].shape[1], len(d["keys"]))

    def write() -> tuple[int, int]:
        left, right, capacity = (*NO_PAIRS, 0) if sink is None else (sink.left, sink.right, sink.capacity)
        n = join(
            order, q["y"], q["coords"], q["starts"], names[0], d["y"], d["keys"], d["starts"], names[1],
            d["mask"], d["mask_starts"], strides, _pattern(layout, is_self_join), layout.sort_dim,
            layout.options.short_circuit, reach(layout.norm, layout.threshold), layout.threshold,
            kind_of(layout.norm), is_self_join, left, right, capacity, counts is not None,
            *(counts or NO_COUNTS), state, counters, *some,
        )  # fmt: skip
        return n, int(state[2])

    if sink is None:
        write()
    else:
        fill(sink, write)


def pairs(q: Index, d: Index, layout: GridLayout, is_self_join: bool, names: list[np.ndarray],
          sink: Sink, orient_by_position: bool) -> tuple[int, int]:  # fmt: skip
    """Write all pairs of two indexes to a sink; float64 decides all, without a filter."""
    run(q, d, layout, is_self_join, names, sink, None, np.zeros(6, np.int64))
    return 0, 0


def counts(q: Index, d: Index, layout: GridLayout, is_self_join: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    """Add the pairs of each position to the counts of both sides."""
    names = [side["order"] for side in (q, d)]
    run(q, d, layout, is_self_join, names, None, (q_counts, d_counts), np.zeros(6, np.int64))


def work(q: Index, d: Index, layout: GridLayout, is_self_join: bool) -> np.ndarray:
    return np.ones(1)  # equal at any position: a cell meets only adjacent cells


def end(index: Index, stop: int, layout: GridLayout) -> int:
    return len(index["order"]) - SWEEP_LANES
