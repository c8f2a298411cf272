"""The CPU backend: pandas and NumPy, Numba kernels, one core per call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from dask_simjoin.backends import cpu_nearest
from dask_simjoin.backends.base import Pairs, Visitor, columns_like
from dask_simjoin.backends.cpu_buffers import MOST_ROOM, Labels, Positions, Shown, Sink
from dask_simjoin.index import grid, kdorder, tiles
from dask_simjoin.index.layout import METHODS, Layout, make_layout
from dask_simjoin.index.nearest import NearestLayout
from dask_simjoin.index.regions import Regions
from dask_simjoin.kernels.cpu import components, finish, pack, sweep
from dask_simjoin.kernels.cpu import regions as region_kernels
from dask_simjoin.kernels.cpu import tiles as tile_kernels
from dask_simjoin.kernels.cpu.vectors import SWEEP_LANES

Index = dict[str, Any]

ROOM_PER_POINT = 32
"""Pairs of each point for which memory is reserved at first."""


class CpuBackend:
    """See `Backend`."""

    xp = np

    methods = METHODS
    most_dims = None

    def layout(self, method: str, lower: Any, upper: Any, mean: Any, variance: Any,
               eps2: float) -> Layout:  # fmt: skip
        return make_layout(method, lower, upper, mean, variance, eps2)

    def coordinates(self, frame: Any, columns: tuple[Any, ...]) -> np.ndarray:
        x = np.empty((len(frame), len(columns)), order="F")
        for k, name in enumerate(columns):
            column = frame[name]
            if isinstance(column.dtype, np.dtype):
                x[:, k] = column.to_numpy()
            else:
                x[:, k] = column.to_numpy(dtype="float64", na_value=np.nan)
        return x

    def build(self, x: np.ndarray, layout: Layout | NearestLayout) -> Index:
        if isinstance(layout, NearestLayout):
            return cpu_nearest.build(x, np.arange(len(x)), layout)
        if layout.grid is not None:
            return grid.build(x, layout.grid, SWEEP_LANES)
        return _build_tiles(x, layout)

    def pairs(self, q: Index, d: Index, layout: Layout, *, same: bool, distance: bool = False,
              labels: tuple[Any, Any] | None = None,
              rows: tuple[int, int] | None = None) -> Pairs:  # fmt: skip
        if rows is None:
            return _pairs(q, d, layout, same, same, distance, labels)
        start, stop = rows
        some = _part(q, layout, start, stop)
        own = other = None
        if labels is not None:
            own = other = labels[0][start:stop], labels[1]
        if not same:
            return _pairs(some, d, layout, False, False, distance, other)
        rest = _part(q, layout, stop, len(q["order"]) - SWEEP_LANES)
        if labels is not None:
            own, other = (own[0], own[0]), (own[0], labels[0][stop:])  # type: ignore[index]
        found = [
            _pairs(some, some, layout, True, True, distance, own),
            _pairs(some, rest, layout, False, True, distance, other),
        ]
        left, right = (np.concatenate([f[k] for f in found]) for k in range(2))
        away = np.concatenate([f.distance for f in found]) if distance else None
        return Pairs(left, right, away, sum(f.decided for f in found), sum(f.refused for f in found))

    def visit(self, q: Index, d: Index, layout: Layout, visitor: Visitor, *, same: bool) -> None:
        y = [s["cols"].T if layout.grid is not None else s["y"] for s in (q, d)]

        def show(left: np.ndarray, right: np.ndarray) -> None:
            squared = np.empty(len(left))
            finish.square(*y, left, right, squared)
            visitor(q["order"][left], d["order"][right], squared)

        places = [np.arange(len(s["order"]), dtype=np.int32) for s in (q, d)]
        _show(q, d, layout, same, places, show)

    def connect(self, q: Index, d: Index, layout: Layout, parent: np.ndarray, taking: tuple[Any, Any],
                offset: int, *, same: bool) -> None:  # fmt: skip
        def link(left: np.ndarray, right: np.ndarray) -> None:
            components.link(parent, left, right, *taking, offset)

        _show(q, d, layout, same, [s["order"] for s in (q, d)], link)

    def link(self, parent: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
        every = np.ones(len(parent), bool)
        components.link(parent, left, right, every, every, 0)

    def roots(self, parent: np.ndarray) -> None:
        components.roots(parent)

    def lowest(self, q: Index, d: Index, layout: Layout, labels: tuple[Any, Any], low: tuple[Any, Any], *,
               same: bool) -> None:  # fmt: skip
        def lower(left: np.ndarray, right: np.ndarray) -> None:
            components.lowest(left, right, *labels, *low)

        _show(q, d, layout, same, [s["order"] for s in (q, d)], lower)

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

    def weights(self, q: Index, d: Index, layout: Layout, *, same: bool) -> Any:
        counts = [np.zeros(len(s["order"]), np.int64) for s in (q, d)]
        if all(len(c) > SWEEP_LANES for c in counts):
            run = _sweep_counts if layout.grid is not None else _tile_counts
            # of one index with itself the kernels meet each pair once, from its earlier place
            run(q, d, layout, same, *counts)
        return counts[0][: len(counts[0]) - SWEEP_LANES]

    def regions(self, x: np.ndarray, regions: Regions, reach: float,
                threshold: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
        own = np.empty(len(x), np.int64)
        region_kernels.own_regions(x, regions.dim, regions.split, regions.child, own)
        room = len(x) // 4 + 64
        while True:
            rows, needing = np.empty(room, np.int64), np.empty(room, np.int64)
            n = region_kernels.halo_regions(x, *regions.arrays, own, reach, threshold, rows, needing)
            if n <= room:
                return own, rows[:n], needing[:n]
            room = n

    def result(self, columns: dict[str, Any], rows: int) -> pd.DataFrame:
        return pd.DataFrame(columns, index=pd.RangeIndex(rows), copy=False)

    def series(self, values: np.ndarray, index: pd.Index, name: str) -> pd.Series:
        return pd.Series(values, index, name=name)

    def rows(self, values: np.ndarray, index: pd.Index, example: Any) -> Any:
        if example.ndim == 1:
            return self.series(values.view(example.dtype), index, example.name)
        return pd.DataFrame(columns_like(values, example, np), index)

    def index(self, values: Any) -> pd.Index:
        return pd.Index(values)

    def memory(self) -> None:
        return None


BACKEND = CpuBackend()


def _pairs(q: Index, d: Index, layout: Layout, same: bool, one_chunk: bool, distance: bool,
           labels: tuple[Any, Any] | None) -> Pairs:  # fmt: skip
    """Pairs of two indexes; `one_chunk`: of parts of one chunk, so that the smaller position is left."""
    sides, room = (q, d), 0
    if all(len(s["order"]) > SWEEP_LANES for s in sides):
        room = min(ROOM_PER_POINT * max(len(s["order"]) for s in sides), MOST_ROOM) + tiles.TILE**2
    sink: Positions | Labels
    if labels is None and not distance:
        sink = Positions(room)
        names = [s["order"] for s in sides]
    else:  # what the sink looks up lies in the index's order
        names = [np.arange(len(s["order"]), dtype=np.int32) for s in sides]
        sink = Labels(
            room // 2,
            [
                (s["cols"].T if layout.grid is not None else s["y"], s["order"], label)
                for s, label in zip(sides, labels or [s["order"] for s in sides], strict=True)
            ],
            same=one_chunk,
            distance=distance,
        )
    decided = refused = 0
    if room:
        run = _sweep_pairs if layout.grid is not None else _tile_pairs
        decided, refused = run(q, d, layout, same, names, sink)
    else:
        sink.end(0)
    left, right, *away = sink.segments.whole
    if one_chunk and not same and isinstance(sink, Positions):
        left, right = np.minimum(left, right), np.maximum(left, right)
    return Pairs(left, right, away[0] if away else None, decided, refused)


def _show(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
          function: Callable[[np.ndarray, np.ndarray], None]) -> None:  # fmt: skip
    """Show all pairs to a function, some at a time, by these names of the places of both sides."""
    if all(len(s["order"]) > SWEEP_LANES for s in (q, d)):
        run = _sweep_pairs if layout.grid is not None else _tile_pairs
        run(q, d, layout, same, names, Shown(function))


def _part(index: Index, layout: Layout, start: int, stop: int) -> Index:
    """The index of the points at places start ... stop-1 of an index, with their positions in the whole."""
    if layout.grid is not None:
        return grid.part(index, start, stop, SWEEP_LANES)
    return _part_of_tiles(index, start, stop)


def _sweep_sides(q: Index, d: Index, layout: Layout, same: bool) -> tuple[Any, ...]:
    assert layout.grid is not None
    offsets = layout.grid.offsets(half=same)
    return offsets, grid.reach(layout.eps2), layout.grid.sweep, np.zeros(len(offsets), np.int64)


def _sweep_pairs(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray],
                 sink: Sink) -> tuple[int, int]:  # fmt: skip
    offsets, reach, swept, at = _sweep_sides(q, d, layout, same)
    state = np.array([*sweep.FRESH, 0], np.int64)
    while True:
        n = sweep.pairs(
            swept, q["cols"], q["keys"], q["starts"], names[0], d["cols"], d["keys"], d["starts"],
            names[1], offsets, reach, layout.eps2, same, sink.left, sink.right, 0, sink.room,
            state, at,
        )  # fmt: skip
        if state[5] == 0:
            sink.end(n)
            return 0, 0
        sink.full(n, int(state[5]))


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


def _tile_join(q: Index, d: Index, layout: Layout, same: bool, names: list[np.ndarray], counting: bool,
               left: np.ndarray, right: np.ndarray, room: int, state: np.ndarray) -> int:  # fmt: skip
    if layout.filter is None:
        limit = np.array([layout.eps2])
        q_terms, d_terms = (q["z"], limit, limit), (d["z"], limit, limit)
        reach: Any = layout.eps2
    else:
        q_terms = (q["z"], q["limit"], q["sure"])
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
                sink: Sink) -> tuple[int, int]:  # fmt: skip
    q, d = _align(q, d)
    state = np.zeros(5, np.int64)
    while True:
        n = _tile_join(q, d, layout, same, names, False, sink.left, sink.right, sink.room, state)
        if state[2] == 0:
            sink.end(n)
            return int(state[3]), int(state[4])
        sink.full(n, int(state[2]))


def _tile_counts(q: Index, d: Index, layout: Layout, same: bool, q_counts: np.ndarray,
                 d_counts: np.ndarray) -> None:  # fmt: skip
    q, d = _align(q, d)
    names = [s["order"] for s in (q, d)]
    state = np.zeros(5, np.int64)
    _tile_join(q, d, layout, same, names, True, q_counts, d_counts, 0, state)
