"""Runs the CPU's join kernels on indexes: row sweeps and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.backends.cpu_buffers import Sink
from dask_simjoin.index import grid, kdorder, tiles
from dask_simjoin.index.layout import Layout
from dask_simjoin.kernels.cpu import pack, sweep
from dask_simjoin.kernels.cpu import tiles as tile_kernels
from dask_simjoin.kernels.cpu.totals import kind_of
from dask_simjoin.kernels.cpu.vectors import SWEEP_LANES
from dask_simjoin.norms import reach

Index = dict[str, Any]


def find_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
               sink: Sink) -> tuple[int, int]:  # fmt: skip
    """Write all pairs, by these names of the places of both sides, to a sink.

    Returns how many pairs only float64 could tell, and how many of them it refused.
    """
    run = _sweep_pairs if layout.grid is not None else _tile_pairs
    return run(q, d, layout, same, names, sink)


def count_pairs(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                d_counts: np.ndarray) -> None:  # fmt: skip
    """Add up the pairs of each place of both sides."""
    run = _sweep_counts if layout.grid is not None else _tile_counts
    run(q, d, layout, same, q_counts, d_counts)


def part(index: Index, layout: Layout, start: int, stop: int) -> Index:
    """The index of the points at places start ... stop-1 of an index, with their positions in the whole."""
    if layout.grid is not None:
        return grid.part(index, start, stop, SWEEP_LANES)
    return _part_of_tiles(index, start, stop)


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


def build_tiles(x: np.ndarray, layout: Layout) -> Index:
    """The index of points for tiles."""
    n, d = x.shape
    order = kdorder.kd_order(x, layout.cut, tiles.TILE, layout.fan_out)
    x = np.ascontiguousarray(x)  # points are gathered row by row
    number = -(-n // tiles.TILE)
    kind = np.float64 if layout.filter is None else np.float32
    z = tiles.aligned_empty((number, d, tiles.TILE), kind)
    y = np.empty((n, d))
    low, high = np.empty((number, d), kind), np.empty((number, d), kind)
    index: Index = {"y": y, "z": z, "low": low, "high": high}
    if layout.filter is None:
        pack.pack_exact(x, order, y, z, low, high)
    else:
        f = layout.filter
        index["start"] = tiles.aligned_empty((number, tiles.TILE), kind)
        index["limit"], index["sure"] = np.empty(n, kind), np.empty(n, kind)
        index["tile_sure"] = np.empty(number, kind)
        index["norm"] = pack.pack_filter(
            x, order, np.array(f.centre), f.scale, f.kappa, f.eps2, f.sure, y, z,
            index["start"], index["limit"], index["sure"], index["tile_sure"], low, high,
        )  # fmt: skip
    if n:
        lower, upper, levels = tiles.box_tree(low, high)
        index |= {"lower": lower, "upper": upper, "levels": levels}
    places = np.zeros(n + SWEEP_LANES, np.int32)
    places[:n] = order
    index["order"] = places
    return index


def _part_of_tiles(index: Index, start: int, stop: int) -> Index:
    some, tile = slice(start, stop), slice(start // tiles.TILE, -(-stop // tiles.TILE))
    part: Index = {
        name: index[name][tile] for name in ("z", "low", "high", "start", "tile_sure") if name in index
    }
    part |= {name: index[name][some] for name in ("y", "limit", "sure") if name in index}
    if "norm" in index:
        part["norm"] = index["norm"]
    if stop > start:
        lower, upper, levels = tiles.box_tree(part["low"], part["high"])
        part |= {"lower": lower, "upper": upper, "levels": levels}
    part["order"] = index["order"][start : stop + SWEEP_LANES]
    return part


_NO_PAIRS, _NO_COUNTS = (np.empty(0, np.int32),) * 2, (np.empty(0, np.int64),) * 2


def _tile_join(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray], state: np.ndarray,
               out: tuple[np.ndarray, np.ndarray] = _NO_PAIRS, room: int = 0,
               counts: tuple[np.ndarray, np.ndarray] | None = None) -> int:  # fmt: skip
    if layout.filter is None:
        limit = np.array([layout.threshold])
        q_terms, d_terms = (q["z"], limit, limit), (d["z"], limit, limit)
        most: Any = layout.threshold
    else:
        q_terms = (q["z"], q["limit"], q["sure"])
        d_terms = (d["z"], d["start"], d["tile_sure"])
        most = layout.filter.box_reach(max(q["norm"], d["norm"]))
    tree = (d["lower"], d["upper"], d["levels"])
    done: int = tile_kernels.join(
        q_terms, q["z"], q["y"], q["low"], q["high"], names[0], d_terms, d["y"], d["low"], d["high"],
        tree, names[1], most, layout.threshold, kind_of(layout.norm), same, *out, 0, room,
        counts is not None, *(counts or _NO_COUNTS), state,
    )  # fmt: skip
    return done


def _align(q: Index, d: Index) -> tuple[Index, Index]:
    """Vectors that were unpickled may straddle cache lines: copies that do not."""
    names = [name for name in ("z", "start", "lower", "upper") if name in d]
    fixed = d | {name: tiles.aligned(d[name]) for name in names}
    return (fixed if q is d else q | {"z": tiles.aligned(q["z"])}), fixed


def _tile_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
                sink: Sink) -> tuple[int, int]:  # fmt: skip
    q, d = _align(q, d)
    state = np.zeros(5, np.int64)
    while True:
        n = _tile_join(q, d, layout, same, names, state, (sink.left, sink.right), sink.room)
        if state[2] == 0:
            sink.end(n)
            return int(state[3]), int(state[4])
        sink.full(n, int(state[2]))


def _tile_counts(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                 d_counts: np.ndarray) -> None:  # fmt: skip
    q, d = _align(q, d)
    names = [s["order"] for s in (q, d)]
    state = np.zeros(5, np.int64)
    _tile_join(q, d, layout, same, names, state, counts=(q_counts, d_counts))
