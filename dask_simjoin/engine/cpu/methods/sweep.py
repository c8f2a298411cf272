"""Runs the CPU's join kernels on indexes: row sweeps, and those of `cpu_tiles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels import sweep
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods.sinks import Sink
from dask_simjoin.engine.cpu.methods.tiles import part_of_tiles, tile_counts, tile_pairs
from dask_simjoin.engine.index import sweep as grid
from dask_simjoin.engine.index.cpu import Layout
from dask_simjoin.metrics.norms import reach

Index = dict[str, Any]


def find_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
               sink: Sink) -> tuple[int, int]:  # fmt: skip
    """Write all pairs, by these names of the places of both sides, to a sink.

    Returns how many pairs only float64 could tell, and how many of them it refused.
    """
    run = _sweep_pairs if layout.grid is not None else tile_pairs
    return run(q, d, layout, same, names, sink)


def count_pairs(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                d_counts: np.ndarray) -> None:  # fmt: skip
    """Add up the pairs of each place of both sides."""
    run = _sweep_counts if layout.grid is not None else tile_counts
    run(q, d, layout, same, q_counts, d_counts)


def part(index: Index, layout: Layout, start: int, stop: int) -> Index:
    """The index of the points at places start ... stop-1 of an index, with their positions in the whole."""
    if layout.grid is not None:
        return grid.part(index, start, stop, SWEEP_LANES)
    return part_of_tiles(index, start, stop)


def _sweep_sides(q: Index, d: Index, layout: Layout, same: bool) -> tuple[Any, ...]:
    assert layout.grid is not None
    offsets = layout.grid.offsets(half=same)
    most = reach(layout.norm, layout.threshold)
    return offsets, most, layout.grid.sweep, np.zeros(len(offsets), np.int64)


def _sweep_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
                 sink: Sink) -> tuple[int, int]:  # fmt: skip
    offsets, most, swept, at = _sweep_sides(q, d, layout, same)
    state = np.array([*sweep.FRESH, 0], np.int64)
    while True:
        n = sweep.pairs(
            swept, q["cols"], q["keys"], q["starts"], names[0], d["cols"], d["keys"], d["starts"],
            names[1], offsets, most, layout.threshold, kind_of(layout.norm), same, sink.left,
            sink.right, 0, sink.room, state, at,
        )  # fmt: skip
        if state[5] == 0:
            sink.end(n)
            return 0, 0
        sink.full(n, int(state[5]))


def _sweep_counts(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                  d_counts: np.ndarray) -> None:  # fmt: skip
    offsets, most, swept, at = _sweep_sides(q, d, layout, same)
    sweep.counts(
        swept, q["cols"], q["keys"], q["starts"], d["cols"], d["keys"], d["starts"], offsets, most,
        layout.threshold, kind_of(layout.norm), same, q_counts, d_counts, at,
    )  # fmt: skip
