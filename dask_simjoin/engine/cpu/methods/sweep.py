"""Finds pairs by sweeping along the rows of an eps-grid."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels import sweep
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods.sinks import Sink
from dask_simjoin.engine.index import sweep as grid
from dask_simjoin.engine.index.sweep import SweepLayout, make_sweep_layout
from dask_simjoin.metrics.norms import Norm, reach
from dask_simjoin.metrics.types import Index


def layout(lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray, threshold: float,
           norm: Norm) -> SweepLayout:  # fmt: skip
    return make_sweep_layout(lower, upper, variance, threshold, norm)


def build(x: np.ndarray, layout: SweepLayout) -> Index:
    return grid.build(x, layout.grid, SWEEP_LANES)


def part(index: Index, start: int, stop: int) -> Index:
    return grid.part(index, start, stop, SWEEP_LANES)


def points(index: Index) -> np.ndarray:
    return index["cols"].T


def _swept(q: Index, d: Index, layout: SweepLayout, same: bool) -> tuple[np.ndarray, float, int, np.ndarray]:
    offsets = layout.grid.offsets(half=same)
    most = reach(layout.norm, layout.threshold)
    return offsets, most, layout.grid.sweep, np.zeros(len(offsets), np.int64)


def pairs(q: Index, d: Index, layout: SweepLayout, same: bool, names: list[np.ndarray],
                 sink: Sink) -> tuple[int, int]:  # fmt: skip
    offsets, most, swept, at = _swept(q, d, layout, same)
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


def counts(q: Index, d: Index, layout: SweepLayout, same: bool, q_counts: np.ndarray,
                  d_counts: np.ndarray) -> None:  # fmt: skip
    offsets, most, swept, at = _swept(q, d, layout, same)
    sweep.counts(
        swept, q["cols"], q["keys"], q["starts"], d["cols"], d["keys"], d["starts"], offsets, most,
        layout.threshold, kind_of(layout.norm), same, q_counts, d_counts, at,
    )  # fmt: skip
