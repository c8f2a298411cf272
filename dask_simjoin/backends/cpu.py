"""The CPU backend: pandas and NumPy, Numba kernels, one core per call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.backends.base import Pairs
from dask_simjoin.index import grid, kdorder, tiles
from dask_simjoin.index.layout import Layout
from dask_simjoin.kernels.cpu import finish, pack, sweep
from dask_simjoin.kernels.cpu import tiles as tile_kernels
from dask_simjoin.kernels.cpu.vectors import SWEEP_LANES

Index = dict[str, Any]

MOST_ROOM = 1 << 28
"""Pairs for which a first segment is reserved at most."""


class PairBuffer:
    """Pairs of int32 numbers in segments: one pass over the data, however many pairs it gives.

    Memory that is not written costs nothing, so segments are generous: one is the rule, and
    what it does not use is given back.
    """

    def __init__(self, room: int) -> None:
        self._full: list[tuple[np.ndarray, np.ndarray]] = []
        self._begin(room)

    def _begin(self, room: int) -> None:
        self.room = room
        self.left = np.empty(room + SWEEP_LANES, np.int32)
        self.right = np.empty(room + SWEEP_LANES, np.int32)

    def _end(self, n: int) -> None:
        # shrinking gives the pages behind back without copying those before
        self.left.resize(n, refcheck=False)
        self.right.resize(n, refcheck=False)
        self._full.append((self.left, self.right))

    def next_segment(self, n: int, least: int) -> None:
        """Begin a segment for `least` pairs or more; the last one holds `n`."""
        self._end(n)
        self._begin(max(2 * self.room, least))

    def finish(self, n: int) -> None:
        """The last segment holds `n` pairs: all of them are now in `done`."""
        self._end(n)
        self.done = self._full[0]
        if len(self._full) > 1:
            left, right = zip(*self._full, strict=True)
            self.done = np.concatenate(left), np.concatenate(right)


class CpuBackend:
    """See `Backend`."""

    xp = np

    def coordinates(self, frame: Any, columns: tuple[Any, ...]) -> np.ndarray:
        x = np.empty((len(frame), len(columns)))
        for k, name in enumerate(columns):
            column = frame[name]
            if isinstance(column.dtype, np.dtype):
                x[:, k] = column.to_numpy()
            else:
                x[:, k] = column.to_numpy(dtype="float64", na_value=np.nan)
        return x

    def build(self, x: np.ndarray, layout: Layout) -> Index:
        if layout.grid is not None:
            return grid.build(x, layout.grid, SWEEP_LANES)
        return _build_tiles(x, layout)

    def pairs(self, q: Index, d: Index, layout: Layout, *, same: bool, distance: bool) -> Pairs:
        q_n, d_n = len(q["order"]) - SWEEP_LANES, len(d["order"]) - SWEEP_LANES
        if not q_n or not d_n:
            none = np.empty(0, np.int32)
            return Pairs(none, none, np.empty(0) if distance else None, 0, 0)
        buffer = PairBuffer(min(32 * max(q_n, d_n), MOST_ROOM) + tiles.TILE**2)
        names = [s["order"] for s in (q, d)]
        if distance:  # coordinates are found by place, not by position
            names = [np.arange(len(name), dtype=np.int32) for name in names]
        run = _sweep_pairs if layout.grid is not None else _tile_pairs
        decided, refused = run(q, d, layout, same, names, buffer)
        left, right = buffer.done
        if not distance:
            return Pairs(left, right, None, decided, refused)
        away = np.empty(len(left))
        q_y, d_y = (s["cols"].T if layout.grid is not None else s["y"] for s in (q, d))
        finish.measure(q_y, q["order"], d_y, d["order"], same, left, right, away)
        return Pairs(left, right, away, decided, refused)

    def counts(self, q: Index, d: Index, layout: Layout, *, same: bool) -> Any:
        counts = [np.zeros(len(s["order"]), np.int64) for s in ((q,) if same else (q, d))]
        if all(len(c) > SWEEP_LANES for c in counts):
            run = _sweep_counts if layout.grid is not None else _tile_counts
            run(q, d, layout, same, counts[0], counts[-1])
        by_position = []
        for side, count in zip((q, d), counts, strict=False):
            n = len(count) - SWEEP_LANES
            out = np.empty(n, np.int64)
            out[side["order"][:n]] = count[:n]
            by_position.append(out)
        return by_position

    def result(self, columns: dict[str, Any]) -> pd.DataFrame:
        return pd.DataFrame(columns, copy=False)

    def series(self, values: np.ndarray, index: pd.Index, name: str) -> pd.Series:
        return pd.Series(values, index, name=name)


BACKEND = CpuBackend()


def _sweep_sides(q: Index, d: Index, layout: Layout, same: bool) -> tuple[Any, ...]:
    assert layout.grid is not None
    offsets = layout.grid.offsets(half=same)
    return offsets, grid.reach(layout.eps2), layout.grid.sweep, np.zeros(len(offsets), np.int64)


def _sweep_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
                 buffer: PairBuffer) -> tuple[int, int]:  # fmt: skip
    offsets, reach, swept, at = _sweep_sides(q, d, layout, same)
    state = np.array([*sweep.FRESH, 0], np.int64)
    while True:
        n = sweep.pairs(
            swept, q["cols"], q["keys"], q["starts"], names[0], d["cols"], d["keys"], d["starts"],
            names[1], offsets, reach, layout.eps2, same, buffer.left, buffer.right, 0, buffer.room,
            state, at,
        )  # fmt: skip
        if state[5] == 0:
            buffer.finish(n)
            return 0, 0
        buffer.next_segment(n, int(state[5]))


def _sweep_counts(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                  d_counts: np.ndarray) -> None:  # fmt: skip
    offsets, reach, swept, at = _sweep_sides(q, d, layout, same)
    sweep.counts(
        swept, q["cols"], q["keys"], q["starts"], d["cols"], d["keys"], d["starts"], offsets, reach,
        layout.eps2, same, q_counts, d_counts, at,
    )  # fmt: skip


def _build_tiles(x: np.ndarray, layout: Layout) -> Index:
    n, d = x.shape
    order = kdorder.kd_order(x, layout.cut, tiles.TILE, layout.fan_out)
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
        index["rows"] = np.empty((n, d), kind)
        index["start"] = tiles.aligned_empty((number, tiles.TILE), kind)
        index["limit"], index["sure"] = np.empty(n, kind), np.empty(n, kind)
        index["tile_sure"] = np.empty(number, kind)
        index["norm"] = pack.pack_filter(
            x, order, np.array(f.centre), f.scale, f.kappa, f.eps2, f.sure, y, z, index["rows"],
            index["start"], index["limit"], index["sure"], index["tile_sure"], low, high,
        )  # fmt: skip
    if n:
        lower, upper, levels = tiles.box_tree(low, high)
        index |= {"lower": lower, "upper": upper, "levels": levels}
    places = np.zeros(n + SWEEP_LANES, np.int32)
    places[:n] = order
    index["order"] = places
    return index


def _tile_join(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray], counting: bool,
               left: np.ndarray, right: np.ndarray, room: int, state: np.ndarray) -> int:  # fmt: skip
    if layout.filter is None:
        limit = np.array([layout.eps2])
        q_terms, d_terms = (q["y"], limit, limit), (d["z"], limit, limit)
        reach: Any = layout.eps2
    else:
        q_terms = (q["rows"], q["limit"], q["sure"])
        d_terms = (d["z"], d["start"], d["tile_sure"])
        reach = layout.filter.box_reach(max(q["norm"], d["norm"]))
    tree = (d["lower"], d["upper"], d["levels"])
    done: int = tile_kernels.join(
        q_terms, q["z"], q["y"], q["low"], q["high"], names[0], d_terms, d["y"], d["low"], d["high"],
        tree, names[1], reach, layout.eps2, same, counting, left, right, 0, room, state,
    )  # fmt: skip
    return done


def _align(q: Index, d: Index) -> tuple[Index, Index]:
    """Vectors that were unpickled may straddle cache lines: copies that do not."""
    names = [name for name in ("z", "start", "lower", "upper") if name in d]
    fixed = d | {name: tiles.aligned(d[name]) for name in names}
    return (fixed if q is d else q | {"z": tiles.aligned(q["z"])}), fixed


def _tile_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
                buffer: PairBuffer) -> tuple[int, int]:  # fmt: skip
    q, d = _align(q, d)
    state = np.zeros(5, np.int64)
    while True:
        n = _tile_join(q, d, layout, same, names, False, buffer.left, buffer.right, buffer.room, state)
        if state[2] == 0:
            buffer.finish(n)
            return int(state[3]), int(state[4])
        buffer.next_segment(n, int(state[2]))


def _tile_counts(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                 d_counts: np.ndarray) -> None:  # fmt: skip
    q, d = _align(q, d)
    names = [s["order"] for s in (q, d)]
    state = np.zeros(5, np.int64)
    _tile_join(q, d, layout, same, names, True, q_counts, d_counts, 0, state)
