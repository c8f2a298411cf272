"""Method "sweep": find pairs by a sweep along the rows of an eps-grid. See `CpuMethod`
for the functions.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dask_simjoin.catalog import Sweep
from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu import sorting
from dask_simjoin.engine.cpu.kernels import components, pack, reductions, sweep
from dask_simjoin.engine.cpu.kernels.marks import ENDLESS
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import kind_of
from dask_simjoin.engine.cpu.sinks import (
    CallbackSink,
    Deciding,
    Sides,
    Sink,
    decided_by_totals,
    fill,
    link_pairs,
    places_of,
)
from dask_simjoin.engine.index import grids
from dask_simjoin.engine.index.grids import SweepGrid, SweepLayout, make_sweep_layout
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.process import shared_out, together
from dask_simjoin.engine.protocols import Rows
from dask_simjoin.metrics.norms import Index, Norm, reach
from dask_simjoin.sizes import IN_CACHE


def column_bounds(x: np.ndarray, dims: Iterable[int], threads: int) -> np.ndarray:
    """Return the smallest and the largest value (2, d) of columns of points (n, d).

    `dims`: the columns to reduce; other columns get the bounds 0, as all do without a
    point.
    """
    found, columns = np.zeros((2, x.shape[1])), list(dims)

    def bounds(start: int, stop: int) -> list[tuple[float, float]]:
        parts = (x[start:stop, k] for k in columns)
        return [(float(part.min()), float(part.max())) for part in parts]

    if len(x):
        some = np.array(shared_out(bounds, len(x), threads))
        found[0, columns], found[1, columns] = some.min(axis=(0, 2)), some.max((0, 2))
    return found


def build_grid(x: np.ndarray, g: SweepGrid, bounds: np.ndarray, threads: int) -> Index:
    """Index points (n, d), stored by column, as `index.grids.build` does, but with
    several threads.

    `bounds` (2, d): the bounds of the columns that the grid has: see `column_bounds`.
    """
    n, d = x.shape
    threads = sorting.threads_to_sort(n, threads)
    if n == 0:
        return grids.build(x, g, SWEEP_LANES)
    lower, upper = bounds
    rows = [np.array(part) for part in (g.dims, g.origin, g.width, g.strides)]
    if not g.dims:
        rows = [
            np.zeros(0, kind) for kind in (np.int64, np.float64, np.float64, np.int64)
        ]
    least, most = (int(key) for key in grids.row_keys(np.array([lower, upper]), g, np))
    position_bits, key_bits = max(1, (n - 1).bit_length()), (most - least).bit_length()
    value_bits = min(52, 63 - position_bits - key_bits)
    low = float(lower[g.sweep])
    span = float(upper[g.sweep]) - low
    factor = 2.0**value_bits * (1 - 2.0**-40) / span if span > 0 else 0.0
    if (
        value_bits < grids.MIN_VALUE_BITS
        or not span < math.inf
        or not factor < math.inf
    ):
        return grids.build(x, g, SWEEP_LANES)
    packed = np.empty(n, np.uint64)
    bits = value_bits, position_bits
    cells = pack.GridCells(rows[0], rows[1], rows[2], rows[3], g.scale)
    swept = pack.SweptBits(g.sweep, low, factor, *bits)

    def fill_keys(start: int, stop: int) -> None:
        keys = np.empty(IN_CACHE, np.int64)
        pack.pack_keys(x, start, stop, cells, swept, least, packed, keys)

    shared_out(fill_keys, n, threads)
    packed, ends = sorting.dealt(packed, sum(bits), threads)
    order, cols = np.empty(n + SWEEP_LANES, np.int32), np.empty((d, n + SWEEP_LANES))
    order[n:], cols[:, n:] = 0, 0
    keys, starts = np.empty(n, np.int64), np.empty(n + 1, np.int64)

    def lay_out(start: int, stop: int) -> int:
        sorting.sort_keys(
            packed[start:stop], position_bits, keys[start:stop], len(ends) - 1
        )
        return pack.lay_out(
            packed, start, stop, x, g.sweep, *bits, least, order, cols, keys, starts
        )

    numbers = together(
        [functools.partial(lay_out, *part) for part in itertools.pairwise(ends)]
    )
    if min(numbers) < 0:
        return grids.build(x, g, SWEEP_LANES)
    places = [
        slice(start, start + number)
        for start, number in zip(ends, numbers, strict=False)
    ]
    return {
        "order": order,
        "cols": cols,
        "keys": np.concatenate([keys[some] for some in places]),
        "starts": np.concatenate([*(starts[some] for some in places), [n]]),
    }


writes_names = True

NO_COORDINATES = np.empty((0, 0))
"""Passed to kernels if the compared dimensions decide alone."""


def layout(
    options: Sweep,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> SweepLayout:
    return make_sweep_layout(lower, upper, variance, threshold, norm)


def build(x: np.ndarray, layout: SweepLayout, threads: int = 1) -> Index:
    """Index points for the row sweep: see `index.grids.build`.

    If the sweep compares only some dimensions, the index also has "x" (d, n + lanes):
    all coordinates.
    """
    # stored by column, because kernels are compiled only for such arrays
    x, grid = np.asfortranarray(x), layout.grid
    bounds = column_bounds(x, (grid.sweep, *grid.dims), threads)
    found = build_grid(x, grid, bounds, threads)
    if layout.dims is None:
        return found
    return found | {"x": found["cols"], "cols": found["cols"][list(layout.dims)]}


def part(index: Index, start: int, stop: int) -> Index:
    found = loose_part(index, start, stop)
    return found | {
        name: np.ascontiguousarray(found[name])
        for name in ("cols", "x")
        if name in found
    }


def loose_part(index: Index, start: int, stop: int) -> Index:
    found = grids.part(index, start, stop, SWEEP_LANES, copied=False)
    if "x" in index:
        found["x"] = index["x"][:, start : stop + SWEEP_LANES]
    return found


def points(index: Index) -> np.ndarray:
    return index["x" if "x" in index else "cols"].T


def _rows(index: Index) -> sweep.GridRows:
    return sweep.GridRows(index["cols"], index["keys"], index["starts"])


def _search(q: Index, d: Index, layout: SweepLayout, half: bool) -> sweep.SweepSearch:
    """Return how neighbors are searched. `half`: only in the later half of each
    neighborhood.
    """
    offsets = layout.grid.offsets(half=half)
    at = (
        np.searchsorted(d["keys"], q["keys"][:1] + offsets)
        if len(q["keys"])
        else np.zeros_like(offsets)
    )
    return sweep.SweepSearch(
        layout.swept,
        offsets,
        at,
        reach(layout.norm, layout.threshold),
        layout.threshold,
        kind_of(layout.norm),
    )


def pairs(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
) -> tuple[int, int]:
    if layout.dims is None:
        _candidates(q, d, layout, is_self_join, names, sink, orient_by_position)
        return 0, 0
    decide = decided_by_totals(q, d, layout.threshold, kind_of(layout.norm))
    deciding = Deciding(sink, (q, d), names, decide, orient_by_position)
    _candidates(q, d, layout, is_self_join, places_of(q, d), deciding, False)
    return deciding.decided, deciding.refused


def pairs_of(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
    rows: Rows,
) -> tuple[int, int]:
    some = grids.queries(q, *rows)
    return pairs(some, d, layout, is_self_join, names, sink, orient_by_position)


def _candidates(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    names: list[np.ndarray],
    sink: Sink,
    orient_by_position: bool,
) -> None:
    """Write all pairs of points whose total in the compared dimensions is at most the
    threshold.
    """
    search = _search(q, d, layout, is_self_join)
    state = np.array([*sweep.FRESH, 0], np.int64)
    scratch = np.zeros(2 * SWEEP_LANES, names[1].dtype), np.empty(SWEEP_LANES)

    def write() -> tuple[int, int]:
        n = sweep.pairs(
            _rows(q),
            sweep.Names(q["order"], names[0]),
            _rows(d),
            sweep.Names(d["order"], names[1]),
            search,
            is_self_join,
            orient_by_position,
            sweep.PairArrays(sink.left, sink.right, sink.totals, sink.capacity),
            state,
            *scratch,
        )
        return n, int(state[5])

    fill(sink, write)


def _chosen(index: Index, places: np.ndarray) -> Index:
    """Return an index of the points at these places.

    Its "order" has their places instead of their positions.
    """
    found = grids.chosen(index, places, SWEEP_LANES)
    if "x" in index:
        found["x"] = grids.chosen({**index, "cols": index["x"]}, places, SWEEP_LANES)[
            "cols"
        ]
    return found


def connect(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    nodes: Sides,
    parent: np.ndarray,
) -> None:
    """Unite the sets of the two points of each pair. Only points that have a node are
    compared.
    """
    one = _chosen(q, np.flatnonzero(nodes[0] >= 0))
    other = one if is_self_join else _chosen(d, np.flatnonzero(nodes[1] >= 0))
    _show_pairs(
        one,
        other,
        layout,
        is_self_join,
        lambda *pair: link_pairs(parent, *pair, *nodes),
    )


def lowest(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    labels: Sides,
    low: Sides,
) -> None:
    """Lower `low` for points without a label. They are compared only with points that
    have a label.
    """
    sides = (q, d), labels, low

    def meet(first: int, second: int) -> None:
        """Compare points of index `first` that have no label with points of index
        `second` that have a label.

        The smaller of these two sets becomes the queries.
        """
        places = [
            np.flatnonzero(labels[first] < 0),
            np.flatnonzero(labels[second] >= 0),
        ]
        turns = (first, 0), (second, 1)
        a, b = turns if len(places[0]) <= len(places[1]) else turns[::-1]
        one, other = (_chosen(sides[0][side], places[k]) for side, k in (a, b))
        named = [each[side] for each in sides[1:] for side, _ in (a, b)]
        _show_pairs(
            one, other, layout, False, lambda *pair: components.lowest(*pair, *named)
        )

    meet(0, 1)
    if not is_self_join:
        meet(1, 0)


def _show_pairs(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    visit: Callable[[np.ndarray, np.ndarray], None],
) -> None:
    """Call `visit` with the places of both points of all pairs; `q`, `d`: indexes from
    `_chosen`.
    """
    if all(len(side["order"]) > SWEEP_LANES for side in (q, d)):
        pairs(
            q,
            d,
            layout,
            is_self_join,
            [q["order"], d["order"]],
            CallbackSink(visit),
            False,
        )


def layout_stats(index: Index, layout: SweepLayout) -> Numbers:
    """Count the row lookups and the candidates of a self-join."""
    search = _search(index, index, layout, True)
    counters, x = np.zeros(3, np.int64), index["cols"][layout.swept]
    reductions.count_windows(
        x, index["keys"], index["starts"], search.offsets, search.reach, counters
    )
    lookups, found, candidates = counters.tolist()
    return {
        "cells": len(index["keys"]),
        "lookups": lookups,
        "found": found,
        "candidates": candidates,
    }


def counts(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    q_counts: np.ndarray,
    d_counts: np.ndarray,
    enough: int | None = None,
) -> None:
    if layout.dims is not None:
        _add_up(q, d, layout, is_self_join, (q_counts, d_counts))
        return
    # each pair is found twice, once from each point: this is faster than updating two
    # counts per pair
    half = is_self_join and d_counts is not q_counts
    if enough is not None:
        enough += is_self_join
    _count(q, d, layout, half, q_counts, enough)
    if is_self_join and not half:
        # each point was counted as its own neighbor
        q_counts[: len(q["order"]) - SWEEP_LANES] -= 1
    if not is_self_join:
        _count(d, q, layout, False, d_counts, enough)


def _count(
    q: Index,
    d: Index,
    layout: SweepLayout,
    half: bool,
    found: np.ndarray,
    enough: int | None = None,
    first: int = 0,
) -> None:
    search = _search(q, d, layout, half)
    most = ENDLESS if enough is None else enough
    sweep.counts(_rows(q), _rows(d), search, half, first, most, found)


def _add_up(
    q: Index,
    d: Index,
    layout: SweepLayout,
    is_self_join: bool,
    counts: tuple[np.ndarray, ...],
    first: int = 0,
) -> None:
    """Count pairs by finding each of them. `counts`: the array for `q`, and the array
    for `d` if it is wanted. `first`: the query whose count comes first.
    """

    def add(*places: np.ndarray) -> None:
        for own, some, begin in zip(counts, places, (first, 0), strict=False):
            own += np.bincount(some - begin, minlength=len(own))

    pairs(q, d, layout, is_self_join, places_of(q, d), CallbackSink(add), False)


def tallies(q: Index, d: Index, layout: SweepLayout, limits: np.ndarray) -> bool:
    return layout.dims is None


def tally(
    q: Index,
    d: Index,
    layout: SweepLayout,
    limits: np.ndarray,
    is_self_join: bool,
    by_row: bool,
    q_found: np.ndarray,
    d_found: np.ndarray,
) -> None:
    # by row, each pair is found twice, once from each of its points
    half = is_self_join and not by_row
    sides = (
        ((q, d, q_found),)
        if is_self_join or not by_row
        else ((q, d, q_found), (d, q, d_found))
    )
    for one, other, found in sides:
        sweep.tally(
            _rows(one),
            _rows(other),
            _search(one, other, layout, half),
            limits,
            half,
            by_row,
            found,
            np.empty(SWEEP_LANES),
        )
    if is_self_join and by_row:
        q_found -= 1  # each point was counted as its own neighbor


def work(q: Index, d: Index, layout: SweepLayout, is_self_join: bool) -> np.ndarray:
    # all parts have equal work, because a grid row is compared only with adjacent rows
    return np.ones(1)


one_sided = True


def weights_of(
    q: Index,
    d: Index,
    layout: SweepLayout,
    rows: Rows,
    found: np.ndarray,
    *,
    is_self_join: bool,
    enough: int | None = None,
) -> None:
    some = grids.queries(q, *rows)
    if layout.dims is not None:
        _add_up(some, d, layout, is_self_join, (found,), rows[0])
        return
    _count(some, d, layout, is_self_join, found, enough, rows[0])


def counts_of(
    index: Index,
    layout: SweepLayout,
    rows: Rows,
    counts_: np.ndarray,
    enough: int | None = None,
) -> None:
    own = counts_[slice(*rows)]
    # each point is counted as its own neighbor
    most = None if enough is None else enough + 1
    weights_of(index, index, layout, rows, own, is_self_join=False, enough=most)
    own -= 1


def _in_place(
    index: Index, layout: SweepLayout, rows: Rows, half: bool
) -> tuple[Any, ...]:
    """Return the first arguments of kernels that compare the places `rows` of an index
    with the whole index.
    """
    some = grids.queries(index, *rows)
    search = _search(some, index, layout, half)
    return _rows(some), _rows(index), search, index.get("x", NO_COORDINATES)


steps = 1


def shared_to_connect(index: Index, taking: np.ndarray) -> tuple[np.ndarray, ...]:
    return (taking,)


def connect_of(
    index: Index,
    layout: SweepLayout,
    rows: Rows,
    shared: tuple[np.ndarray, ...],
    parent: np.ndarray,
    step: int,
) -> None:
    sweep.unite_near(*_in_place(index, layout, rows, True), *shared, parent)


def shared_to_label(labels: np.ndarray) -> tuple[np.ndarray, ...]:
    return ()


def lowest_of(
    index: Index,
    layout: SweepLayout,
    rows: Rows,
    labels: np.ndarray,
    low: np.ndarray,
    shared: tuple[np.ndarray, ...],
) -> None:
    sweep.lowest_near(*_in_place(index, layout, rows, False), labels, low)


def end(index: Index, stop: int, layout: SweepLayout) -> int:
    keys, starts = index["keys"], index["starts"]
    if not stop:
        return 0
    row = int(np.searchsorted(starts, stop - 1, side="right")) - 1
    most = keys[row] + layout.grid.offsets(half=True)[-1]
    return int(starts[np.searchsorted(keys, most, side="right")])
