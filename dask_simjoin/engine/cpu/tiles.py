"""Find pairs by comparing tiles of points whose boxes are near."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.catalog import Tiles
from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu import profile
from dask_simjoin.engine.cpu.kernels import marks, pack
from dask_simjoin.engine.cpu.kernels.marks import COUNT, ENDLESS, LINK, LOWEST, Notes
from dask_simjoin.engine.cpu.kernels.product_simd import WAYS
from dask_simjoin.engine.cpu.kernels.scan import Decided, FilterScan, Quantized, QuantizedLongs, Rounded
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.tiles import Out, Scratch, boxes_of, join, points_of
from dask_simjoin.engine.cpu.kernels.tiles import scratch as scratch_of
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import NO_PAIRS, Sides, Sink, fill
from dask_simjoin.engine.filters.quantization import STEP, Int8Filter
from dask_simjoin.engine.index import kdtree
from dask_simjoin.engine.index.cpu_tiles import (
    CUTS,
    FAN_OUT,
    TILE,
    TilesLayout,
    aligned,
    aligned_empty,
    box_tree,
    make_tiles_layout,
)
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.process import numbers_apart, shared_out
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Index, Norm, box_gap


def _at(array: np.ndarray) -> tuple[int, int]:
    """Return the address of an array, and the bytes of each of its items."""
    return array.ctypes.data, array.strides[0]


_KINDS = {"longs": QuantizedLongs, "words": Quantized}


def _way(index: Index) -> str:
    """Return the kind of an index's 8-bit vectors, since chunks may come from another machine."""
    if "tiles" not in index:
        return ""
    return "longs" if index["take"].dtype == np.int32 else "words"


def terms_of(q: Index, d: Index, layout: TilesLayout) -> tuple[Any, Any, tuple[int, int]]:
    """Return the kernel's terms of both sides, and the vectors read first; valid while the arrays live."""
    dims, width = q["z"].shape[1], q["y"].shape[1]
    if layout.rounded is not None:
        f = layout.rounded
        one, two = (
            (Rounded(side["z"].ctypes.data, dims, f.reach, f.sure, side["y"].ctypes.data),) for side in (q, d)
        )
        return one, two, _at(d["z"])
    if layout.filter is None:
        sure = np.uint64(0 if dims < width else 2**64 - 1)
        own, other = (
            (Decided(side["z"].ctypes.data, dims, layout.threshold, side["y"].ctypes.data, width, sure),)
            for side in (q, d)
        )
        return own, other, _at(d["z"])
    terms = ({"term": "limit", "sure": "sure"}, {"term": "start", "sure": "tile_sure"})
    sides: list[tuple[Any, ...]] = []
    for side, names in zip((q, d), terms, strict=True):
        addresses = {name: side[own].ctypes.data for name, own in ({"z": "z", "y": "y"} | names).items()}
        sides.append((FilterScan(dims=dims, width=width, **addresses),))
    way = _way(q)
    if way not in WAYS or way != _way(d):
        return sides[0], sides[1], _at(d["z"])
    assert layout.quantized is not None
    steps, least = q["queries"].shape[1], np.int32(2 * layout.quantized.bias)
    for k, side in enumerate((q, d)):
        at = {name: side[name].ctypes.data for name in ("queries", "take", "tiles", "first", "marked")}
        sides[k] += (_KINDS[way](**at, steps=steps, least=least),)
    return sides[0], sides[1], _at(d["tiles"])


writes_names = False


def layout(options: Tiles, lower: np.ndarray, upper: np.ndarray, mean: np.ndarray, variance: np.ndarray,
           threshold: float, norm: Norm, drawn: Drawn | None = None) -> TilesLayout:  # fmt: skip
    return make_tiles_layout(lower, upper, mean, variance, threshold, norm, drawn)


def points(index: Index) -> np.ndarray:
    return index["y"]


def build(x: np.ndarray, layout: TilesLayout, threads: int = 1) -> Index:
    """Build the tile index of points."""
    n, d = x.shape
    order = kdtree.kd_order(x, layout.cut.first(n, TILE, CUTS), TILE, FAN_OUT, threads=threads)
    x = np.ascontiguousarray(x)  # points are gathered row by row
    number = -(-n // TILE)
    kind, rounded = layout.kind, layout.rounded
    dims = np.arange(d) if layout.screen is None else np.array(layout.screen.dims)
    z = aligned_empty((number, len(dims), TILE), kind)
    y = np.empty((n, d))
    low, high = np.empty((number, len(dims)), kind), np.empty((number, len(dims)), kind)
    index: Index = {"y": y, "z": z, "low": low, "high": high}
    if layout.filter is None:
        centre, scale = (np.zeros(d), 1.0) if rounded is None else (np.array(rounded.centre), rounded.scale)

        def pack_some(a: int, b: int) -> float:
            some = slice(a // TILE, -(-b // TILE))
            pack.pack_exact(x, order[a:b], dims, centre, scale, y[a:b], z[some], low[some], high[some])
            return 0.0

        shared_out(pack_some, n, threads, TILE, numbers_apart(d))
    else:
        f = layout.filter
        index["start"] = aligned_empty((number, TILE), kind)
        index["limit"], index["sure"] = np.empty(n, kind), np.empty(n, kind)
        index["tile_sure"] = np.empty(number, kind)

        def pack_some(a: int, b: int) -> float:
            some, own = slice(a // TILE, -(-b // TILE)), slice(a, b)
            largest: float = pack.pack_filter(
                x, order[own], dims, np.array(f.centre), f.scale, f.kappa, f.eps2, layout.sure, y[own],
                z[some], index["start"][some], index["limit"][own], index["sure"][own],
                index["tile_sure"][some], low[some], high[some], np.empty(TILE),
            )  # fmt: skip
            return largest

        index["norm"] = max(shared_out(pack_some, n, threads, TILE, numbers_apart(d)))
        if layout.quantized is not None and WAYS:
            index |= _quantized(y, layout.quantized, WAYS[0], threads)
    if n:
        lower, upper, levels = box_tree(low, high)
        index |= {"lower": lower, "upper": upper, "levels": levels}
    places = np.zeros(n + SWEEP_LANES, np.int32)
    places[:n] = order
    index["order"] = places
    return index


def _quantized(y: np.ndarray, c: Int8Filter, way: str, threads: int) -> Index:
    n, d = y.shape
    tile, steps = -(-n // TILE), -(-d // STEP)
    numbers, kind = ((1,), np.int32) if way == "longs" else ((2,), np.int16)
    found = {
        "queries": np.zeros((n, steps, STEP), np.int8),
        "tiles": aligned_empty((tile, steps, TILE, STEP), np.uint8),
        "take": np.zeros((n, *numbers), kind),
        "first": aligned_empty((tile, TILE, *numbers), kind),
        "marked": np.zeros(tile, np.uint64),
    }
    found["tiles"][...] = 128
    found["first"][...] = 0

    def pack_some(a: int, b: int) -> None:
        rows, tiles = slice(a, b), slice(a // TILE, -(-b // TILE))
        out = (found[name][rows if name in ("queries", "take") else tiles] for name in found)
        pack.pack_quantized(
            y[rows], np.array(c.centre), c.scale, c.outer, c.max_x, c.bias, *out, np.empty((3, 2))
        )

    shared_out(pack_some, n, threads, TILE, numbers_apart(d))
    return found


def part(index: Index, start: int, stop: int) -> Index:
    """Return the index of the points at positions start ... stop-1; `start` begins a tile."""
    some, tile = slice(start, stop), slice(start // TILE, -(-stop // TILE))
    found: Index = {
        name: index[name][tile]
        for name in ("z", "low", "high", "start", "tile_sure", "tiles", "first", "marked")
        if name in index
    }
    found |= {name: index[name][some] for name in ("y", "limit", "sure", "queries", "take") if name in index}
    if "norm" in index:
        found["norm"] = index["norm"]
    if stop > start:
        lower, upper, levels = box_tree(found["low"], found["high"])
        found |= {"lower": lower, "upper": upper, "levels": levels}
    found["order"] = index["order"][start : stop + SWEEP_LANES]
    return found


MOST_NEXT, POINTS_PER_NEXT = 32, 32
"""To count up to a number, each tile is first compared with the next tiles.

Their number is at most `MOST_NEXT`, and one for each `POINTS_PER_NEXT` of the count."""

_NONE, _NO_NODES = np.empty(0, np.int64), np.empty(0, np.int32)


def _tile_join(q: Index, d: Index, layout: TilesLayout, is_self_join: bool, names: list[np.ndarray],
               state: np.ndarray, out: tuple[np.ndarray, np.ndarray] = NO_PAIRS, cap: int = 0,
               notes: Notes | None = None) -> int:  # fmt: skip
    most, sure = layout.box_reach(q, d), layout.box_sure(q, d)
    q_terms, d_terms, swept = terms_of(q, d, layout)
    scratch = scratch_of(len(d["low"]))
    told = Out(out[0].ctypes.data, out[1].ctypes.data, cap), notes, state.ctypes.data
    done: int = join(
        q_terms, points_of(q, names[0], swept), d_terms, points_of(d, names[1], swept), boxes_of(d), most,
        sure, layout.threshold, kind_of(layout.norm), is_self_join, *told,
        Scratch(*(each.ctypes.data for each in scratch)),
    )  # fmt: skip
    return done


def _align(q: Index, d: Index) -> tuple[Index, Index]:
    """Copy unpickled vectors that straddle cache lines."""
    names = [name for name in ("z", "start", "tiles", "first", "lower", "upper") if name in d]
    fixed = d | {name: aligned(d[name]) for name in names}
    return (fixed if q is d else q | {"z": aligned(q["z"])}), fixed


def pairs(q: Index, d: Index, layout: TilesLayout, is_self_join: bool, names: list[np.ndarray],
               sink: Sink, orient_by_position: bool) -> tuple[int, int]:  # fmt: skip
    """Write all pairs of two indexes to a sink; return how many float64 decided, and how many it refused."""
    q, d = _align(q, d)
    state = np.zeros(5, np.int64)

    def write() -> tuple[int, int]:
        n = _tile_join(q, d, layout, is_self_join, names, state, (sink.left, sink.right), sink.capacity)
        return n, int(state[2])

    fill(sink, write)
    return int(state[3]), int(state[4])


def layout_stats(index: Index, layout: TilesLayout) -> Numbers:
    """Count the work of a self-join of an index: tiles, queries near them, and candidates."""
    told = np.zeros(3, np.int64)
    boxes = index["low"], index["high"], index["z"]
    most = np.float64(layout.box_reach(index, index))
    marks.tiles(*boxes, len(index["y"]), most, kind_of(layout.norm), told)
    tile_pairs, queries, candidates = told.tolist()
    return {"tile_pairs": tile_pairs, "near_queries": queries, "candidates": candidates}


def _note(q: Index, d: Index, layout: TilesLayout, is_self_join: bool, task: int, values: Sides, *,
          low: np.ndarray = _NONE, parent: np.ndarray = _NO_NODES, enough: int = ENDLESS,
          rows: Rows | None = None) -> np.ndarray:  # fmt: skip
    """Run a task on all pairs without keeping them; `values`: by position.  Return `more` of its notes.

    `rows`: only these queries; in a self-join, pairs count only for them.
    """
    assert all(each.dtype == np.int64 for each in (*values, low)) and parent.dtype == np.int32
    q, d = _align(q, d)
    tiles = len(d["z"])
    d_marks = np.zeros(tiles + len(d["lower"]), np.int64)
    q_marks = d_marks if task == LINK and is_self_join else np.zeros(len(q["z"]), np.int64)
    more = np.zeros(tiles + 1, np.int64)
    start, stop = rows or (0, len(q["y"]))
    first, last = start // TILE, -(-stop // TILE)
    own_round = last - first if is_self_join else 0
    some = enough != ENDLESS and is_self_join  # counting may stop early
    if task == COUNT and is_self_join:
        d_marks[:first] = d_marks[last:tiles] = 1
    notes = Notes(
        task, enough, values[0].ctypes.data, values[1].ctypes.data, q_low=low.ctypes.data, d_low=0,
        q_marks=q_marks.ctypes.data, d_marks=d_marks.ctypes.data, parent=parent.ctypes.data,
        more=more.ctypes.data,
        first=first, stop=last, window=1 + min(MOST_NEXT, enough // POINTS_PER_NEXT) if some else 1,
        turns=own_round if some else own_round + last - first, both=True,
    )  # fmt: skip
    names, state = [q["order"], d["order"]], np.zeros(5, np.int64)
    _tile_join(q, d, layout, is_self_join, names, state, notes=notes)
    if some:  # few queries search alone, and leave out what others would need
        left = np.count_nonzero(values[0][start:stop] < enough)
        both = bool(2 * left > stop - start)
        if not both:
            d_marks[:] = 1
        _tile_join(q, d, layout, is_self_join, names, state, notes=notes._replace(
            turns=own_round + last - first, both=both,
        ))  # fmt: skip
    return more


def counts(q: Index, d: Index, layout: TilesLayout, is_self_join: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None = None) -> None:  # fmt: skip
    """Count the pairs of each place of both sides; from `enough` on, counts need not be exact."""
    _count(q, d, layout, is_self_join, q_counts, d_counts, enough)


def _count(q: Index, d: Index, layout: TilesLayout, is_self_join: bool, q_counts: np.ndarray,
           d_counts: np.ndarray, enough: int | None, rows: Rows | None = None) -> None:  # fmt: skip
    """Do as `counts`, or with `rows` as `counts_of`."""
    most = ENDLESS if enough is None else enough
    more = _note(q, d, layout, is_self_join, COUNT, (q_counts, d_counts), enough=most, rows=rows)
    n = len(d["y"])
    d_counts[:n] += np.repeat(np.cumsum(more[:-1]), TILE)[:n]


def counts_of(
    index: Index, layout: TilesLayout, rows: Rows, counts_: np.ndarray, enough: int | None = None
) -> None:
    """Count all pairs of the places `rows`; they begin with a tile, as the places behind them do."""
    _count(index, index, layout, True, counts_, counts_, enough, rows)


def connect(
    q: Index, d: Index, layout: TilesLayout, is_self_join: bool, nodes: Sides, parent: np.ndarray
) -> None:
    """Join the sets of both ends of pairs; `nodes`: of each place, or -1; `parent`: int32."""
    _note(q, d, layout, is_self_join, LINK, nodes, parent=parent)


def lowest(q: Index, d: Index, layout: TilesLayout, is_self_join: bool, labels: Sides, low: Sides) -> None:
    """Lower `low` of places without a label to the labels of their neighbors."""
    _note(q, d, layout, False, LOWEST, labels, low=low[0])
    if not is_self_join:
        _note(d, q, layout, False, LOWEST, labels[::-1], low=low[1])


def lowest_of(index: Index, layout: TilesLayout, rows: Rows, labels: np.ndarray, low: np.ndarray) -> None:
    """Do the same for the places `rows` in one index; they begin with a tile."""
    _note(index, index, layout, False, LOWEST, (labels, labels), low=low, rows=rows)


def tallies(q: Index, d: Index, layout: TilesLayout, limits: np.ndarray) -> bool:
    return profile.worthwhile(_ENGINE, q, d, layout, limits)


def tally(q: Index, d: Index, layout: TilesLayout, limits: np.ndarray, is_self_join: bool, by_row: bool,
          q_found: np.ndarray, d_found: np.ndarray) -> None:  # fmt: skip
    profile.tally(_ENGINE, q, d, layout, limits, is_self_join, by_row, q_found, d_found)


_ENGINE = profile.CpuWork(part, counts, pairs)

SAMPLED = 128
"""Sampled tiles of queries that estimate the work of all; fewer from `MANY` dimensions on, at least `LEAST`.

Each sample takes time in proportion to its dimensions, and each part of the work takes samples.  In 384
dimensions sampling cost more than it saved, and few tiles are left out there anyway.
"""

MANY, LEAST = 64, 16


def work(q: Index, d: Index, layout: TilesLayout, is_self_join: bool) -> np.ndarray:
    """Estimate work by the number of near tiles; a skipped tile costs about a fortieth of a compared one."""
    number = len(q["low"])
    if not number or not len(d["low"]):
        return np.ones(1)
    samples = max(LEAST, SAMPLED * MANY // max(MANY, q["low"].shape[1]))
    some = np.unique(np.linspace(0, number - 1, samples).astype(np.int64))
    most = layout.box_reach(q, d)
    found = np.empty(len(some))
    for n, tile in enumerate(some.tolist()):
        first = tile if is_self_join else 0
        gap = box_gap(layout.norm, q["low"][tile], q["high"][tile], d["low"][first:], d["high"][first:])
        found[n] = np.count_nonzero(gap <= most) + len(gap) / 40
    return found


def end(index: Index, stop: int, layout: TilesLayout) -> int:
    return len(index["y"])
