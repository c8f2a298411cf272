"""Finds pairs by sweeping along the rows of an eps-grid."""

from __future__ import annotations

import math

import numpy as np

from dask_simjoin.engine.cpu.kernels import rows_order, seen, sweep
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.kernels.vectors import SWEEP_LANES
from dask_simjoin.engine.cpu.methods.sinks import Sink
from dask_simjoin.engine.index import sweep as grid
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.index.sweep import SweepLayout, make_sweep_layout
from dask_simjoin.engine.methods import Sweep
from dask_simjoin.engine.profile import Numbers
from dask_simjoin.metrics.norms import Norm, reach
from dask_simjoin.metrics.types import Index

writes_names = True


def layout(options: Sweep, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> SweepLayout:  # fmt: skip
    return make_sweep_layout(lower, upper, variance, threshold, norm)


def build(x: np.ndarray, layout: SweepLayout) -> Index:
    """The index of points for the row sweep: that of `index.sweep.build`, in less time."""
    g, (n, d) = layout.grid, x.shape
    x = np.asfortranarray(x)  # as chunks have it: kernels are compiled for one order
    if n == 0:
        return grid.build(x, g, SWEEP_LANES)
    lower, upper = (np.array([least(x[:, k]) for k in range(d)]) for least in (np.min, np.max))
    rows = [np.array(part) for part in (g.dims, g.origin, g.width, g.strides)]
    if d == 1:
        rows = [np.zeros(0, kind) for kind in (np.int64, np.float64, np.float64, np.int64)]
    least, most = (int(key) for key in grid.row_keys(np.array([lower, upper]), g, np))
    position_bits, key_bits = max(1, (n - 1).bit_length()), (most - least).bit_length()
    value_bits = min(52, 63 - position_bits - key_bits)
    low = float(lower[g.sweep])
    span = float(upper[g.sweep]) - low
    factor = 2.0**value_bits * (1 - 2.0**-40) / span if span > 0 else 0.0
    if value_bits < grid.MIN_VALUE_BITS or not span < math.inf or not factor < math.inf:
        return grid.build(x, g, SWEEP_LANES)
    packed = np.empty(n, np.uint64)
    rows_order.pack_keys(x, *rows, g.scale, least, g.sweep, low, factor, value_bits, position_bits, packed)
    packed.sort()
    order, cols = np.empty(n + SWEEP_LANES, np.int32), np.empty((d, n + SWEEP_LANES))
    order[n:], cols[:, n:] = 0, 0
    keys, starts = np.empty(n, np.int64), np.empty(n + 1, np.int64)
    number = rows_order.lay_out(
        packed, x, g.sweep, value_bits, position_bits, least, order, cols, keys, starts
    )
    if number < 0:
        return grid.build(x, g, SWEEP_LANES)
    return {"order": order, "cols": cols, "keys": keys[:number].copy(), "starts": starts[: number + 1].copy()}


def part(index: Index, start: int, stop: int) -> Index:
    return grid.part(index, start, stop, SWEEP_LANES)


def points(index: Index) -> np.ndarray:
    return index["cols"].T


def _swept(q: Index, d: Index, layout: SweepLayout, half: bool) -> tuple[np.ndarray, float, np.ndarray]:
    offsets = layout.grid.offsets(half=half)
    return offsets, reach(layout.norm, layout.threshold), np.zeros(len(offsets), np.int64)


def pairs(q: Index, d: Index, layout: SweepLayout, same: bool, names: list[np.ndarray], sink: Sink,
          turn: bool) -> tuple[int, int]:  # fmt: skip
    offsets, most, at = _swept(q, d, layout, same)
    state = np.array([*sweep.FRESH, 0], np.int64)
    while True:
        n = sweep.pairs(
            layout.grid.sweep, q["cols"], q["keys"], q["starts"], q["order"], names[0], d["cols"], d["keys"],
            d["starts"], d["order"], names[1], offsets, most, layout.threshold, kind_of(layout.norm), same,
            turn, sink.left, sink.right, sink.totals, sink.room, state, at,
        )  # fmt: skip
        if state[5] == 0:
            sink.end(n)
            return 0, 0
        sink.full(n, int(state[5]))


def tell(index: Index, layout: SweepLayout) -> Numbers:
    """Count what a join of an index with itself looks at: rows of cells, and points in windows."""
    offsets, most, _ = _swept(index, index, layout, True)
    told, x = np.zeros(3, np.int64), index["cols"][layout.grid.sweep]
    seen.windows(x, index["keys"], index["starts"], offsets, most, told)
    lookups, found, candidates = told.tolist()
    return {"cells": len(index["keys"]), "lookups": lookups, "found": found, "candidates": candidates}


def counts(q: Index, d: Index, layout: SweepLayout, same: bool, q_counts: np.ndarray,
                  d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    # adding to both points of a pair would take longer than to meet it from both
    half = same and d_counts is not q_counts
    _count(q, d, layout, half, q_counts)
    if same and not half:
        q_counts[: len(q["order"]) - SWEEP_LANES] -= 1  # which itself is near
    if not same:
        _count(d, q, layout, False, d_counts)


def _count(q: Index, d: Index, layout: SweepLayout, half: bool, found: np.ndarray) -> None:
    offsets, most, at = _swept(q, d, layout, half)
    sweep.counts(
        layout.grid.sweep, q["cols"], q["keys"], q["starts"], d["cols"], d["keys"], d["starts"], offsets,
        most, layout.threshold, kind_of(layout.norm), half, found, at,
    )  # fmt: skip


def work(q: Index, d: Index, layout: SweepLayout, same: bool) -> np.ndarray:
    return np.ones(1)  # a row of the grid meets those around it, wherever it is


def one_sided(q: Index, d: Index, layout: SweepLayout, q_counts: np.ndarray) -> None:
    _count(q, d, layout, False, q_counts)


def end(index: Index, stop: int, layout: SweepLayout) -> int:
    keys, starts = index["keys"], index["starts"]
    if not stop:
        return 0
    row = int(np.searchsorted(starts, stop - 1, side="right")) - 1
    most = keys[row] + layout.grid.offsets(half=True)[-1]
    return int(starts[np.searchsorted(keys, most, side="right")])
