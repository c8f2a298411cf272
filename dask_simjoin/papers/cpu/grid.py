"""Find pairs by looking up the cells of a grid, on CPUs: see
`dask_simjoin.papers.grid`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.base import Numbers
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import SWEEP_LANES
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term, kind_of
from dask_simjoin.engine.cpu.sinks import Sink, fill
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.metrics.norms import Array, Index, Norm, reach
from dask_simjoin.papers import grid as grid_index
from dask_simjoin.papers.cpu.nested import Counts, Target, entry_points, target_of
from dask_simjoin.papers.cpu.nested import points as points
from dask_simjoin.papers.grid import PATTERNS, Grid, GridLayout, make_grid_layout
from dask_simjoin.papers.grid_batches import facts

FULL, UNICOMP, LID = range(3)
"""Patterns: they determine which adjacent cells a query visits. See `Grid`."""

LOOKUPS, FOUND, CANDIDATES, COMPARISONS, TERMS, PAIRS = range(6)
"""Indexes in `counters`: cells looked up, cells found, points in them, compared points,
terms, pairs.
"""


@device_function
def find(sorted_numbers: Array, begin: int, end: int, number: int) -> int:
    """Return the position of `number` in `sorted_numbers[begin:end]`; -1 if it is not
    there.
    """
    stop = end
    while begin < end:
        middle = (begin + end) // 2
        if sorted_numbers[middle] < number:
            begin = middle + 1
        else:
            end = middle
    return begin if begin < stop and sorted_numbers[begin] == number else -1


@device_function
def visited_cells(
    coords: Array,
    mask: Array,
    mask_starts: Array,
    strides: Array,
    keys: Array,
    pattern: int,
    there: Array,
    digits: Array,
    out: Array,
    counters: Array,
) -> int:
    """Write to `out` the non-empty cells that a query in the cell `coords` visits;
    return their number.

    The query's own cell comes first. Then stage i visits adjacent cells that differ
    from the query's cell in dimension i, but in no later dimension. UNICOMP visits all
    of these if the query's coordinate i is odd. LID visits adjacent cells whose
    coordinate i is larger than the query's. Their cell numbers are then larger, too,
    because the first dimension varies fastest. `there` (k, 3) and `digits` (k,) are
    scratch.
    """
    k = coords.size
    own, first, missing = 0, 0, False
    for j in range(k):
        own += coords[j] * strides[j]
        for s in range(3):
            there[j, s] = (
                find(mask, mask_starts[j], mask_starts[j + 1], coords[j] + s - 1) >= 0
            )
        # no cell has the query's coordinate j, so stages before j would find nothing
        if not there[j, 1]:
            first, missing = j, True
    n = 0
    if not missing:
        counters[LOOKUPS] += 1
        at = find(keys, 0, keys.size, own)
        if at >= 0:
            out[n] = at
            n += 1
    for i in range(first, k):
        if pattern == UNICOMP and coords[i] % 2 == 0:
            continue
        for s in range(2 if pattern == LID else 0, 3, 2):
            if not there[i, s]:
                continue
            target = own + (s - 1) * strides[i]
            for j in range(i):
                digits[j] = 0 if there[j, 0] else (1 if there[j, 1] else 2)
                if not there[j, digits[j]]:
                    target = -1
                    break
                target += (digits[j] - 1) * strides[j]
            while target >= 0:
                counters[LOOKUPS] += 1
                at = find(keys, 0, keys.size, target)
                if at >= 0:
                    out[n] = at
                    n += 1
                j = 0
                # go on to the next combination of coordinates in the dimensions before
                # i
                while j < i:
                    old = digits[j]
                    new = old + 1
                    while new < 3 and not there[j, new]:
                        new += 1
                    if new < 3:
                        digits[j] = new
                        target += (new - old) * strides[j]
                        break
                    new = 0 if there[j, 0] else (1 if there[j, 1] else 2)
                    digits[j] = new
                    target += (new - old) * strides[j]
                    j += 1
                if j == i:
                    target = -1
    counters[FOUND] += n
    return n


def scratch(dims: int, cells: int) -> tuple[np.ndarray, ...]:
    """Return the scratch arrays `there`, `digits` and `out` of `visited_cells`."""
    return (
        np.empty((dims, 3), np.bool_),
        np.empty(dims, np.int64),
        np.empty(cells, np.int64),
    )


@kernel
def workloads(
    q_coords: Array,
    mask: Array,
    mask_starts: Array,
    strides: Array,
    keys: Array,
    starts: Array,
    pattern: int,
    out: Array,
    there: Array,
    digits: Array,
    found: Array,
    counters: Array,
) -> None:
    """For each cell, write to `out` the number of candidates that a query in it has;
    see also `visited_cells`.
    """
    for c in range(len(q_coords)):
        total = 0
        for t in range(
            visited_cells(
                q_coords[c],
                mask,
                mask_starts,
                strides,
                keys,
                pattern,
                there,
                digits,
                found,
                counters,
            )
        ):
            total += starts[found[t] + 1] - starts[found[t]]
        out[c] = total


class Queries(NamedTuple):
    """Arrays of the index of the queries: see `papers.grid.build`."""

    y: Array
    coords: Array
    starts: Array
    names: Array


class Data(NamedTuple):
    """Arrays of the index of the data. `strides`: factors of cell numbers."""

    y: Array
    keys: Array
    starts: Array
    names: Array
    mask: Array
    mask_starts: Array
    strides: Array


class Rule(NamedTuple):
    """How rows are compared.

    `pattern`: see `FULL`. `sort_dim`: the rows of a cell are sorted by this dimension;
    -1 if they are not. `short`: whether a sum ends above the threshold. `reach`: the
    largest difference of a pair in one dimension.
    """

    pattern: int
    sort_dim: int
    short: bool
    reach: float
    threshold: float


@kernel
def join(
    sequence: Array,
    q: Queries,
    d: Data,
    rule: Rule,
    norm: Kind,
    is_self_join: bool,
    target: Target,
    state: Array,
    counters: Array,
    scratch: tuple[Array, Array, Array],
) -> int:
    """Write pairs of ids to `target`, or count the pairs of each row; return the number
    written.

    `sequence`: the queries in order, as positions in the index. The kernel stops before
    a cell whose pairs might exceed the capacity. Then `state` has the query, the
    visited cell, and the needed capacity. At the end, the needed capacity is 0. In a
    self-join, a pair may be found from both of its rows. It is written only from the
    row with the smaller position.

    Rounded terms are not negative. So if a partial sum is above the threshold, the full
    sum is above it, too. The binary search needs no tolerance for rounding, because
    rounded differences have the same order as the sorted values.
    """
    pattern, sort_dim, short, reach, threshold = rule
    left, right, cap, counting, q_counts, d_counts = target
    there, digits, found = scratch
    q_y, d_y, dims = q.y, d.y, q.y.shape[1]
    n = 0
    for s in range(state[0], sequence.size):
        p = np.int64(sequence[s])
        cell = np.searchsorted(q.starts, p, side="right") - 1
        before = counters[LOOKUPS], counters[FOUND]
        number = visited_cells(
            q.coords[cell],
            d.mask,
            d.mask_starts,
            d.strides,
            d.keys,
            pattern,
            there,
            digits,
            found,
            counters,
        )
        # this query continues after a stop, so its lookups have been counted before
        if state[1]:
            counters[LOOKUPS], counters[FOUND] = before
        for t in range(state[1], number):
            c = found[t]
            lo, hi = d.starts[c], d.starts[c + 1]
            if not counting and n + hi - lo > cap:
                state[0], state[1], state[2] = s, t, hi - lo
                return n
            counters[CANDIDATES] += hi - lo
            if sort_dim >= 0:
                x, end = q_y[p, sort_dim], hi
                while lo < end:
                    middle = (lo + end) // 2
                    if x - d_y[middle, sort_dim] > reach:
                        lo = middle + 1
                    else:
                        end = middle
                begin = lo
                while begin < hi:
                    middle = (begin + hi) // 2
                    if d_y[middle, sort_dim] - x > reach:
                        hi = middle
                    else:
                        begin = middle + 1
            counters[COMPARISONS] += hi - lo
            twice = is_self_join and (pattern == FULL or c == cell)
            for j in range(lo, hi):
                total, m = 0.0, 0
                while m < dims:
                    total = add_term(total, q_y[p, m] - d_y[j, m], norm)
                    m += 1
                    if short and total > threshold:
                        break
                counters[TERMS] += m
                if total > threshold or (twice and j <= p):
                    continue
                counters[PAIRS] += 1
                if counting:
                    q_counts[j if is_self_join and j < p else p] += 1
                    d_counts[p if is_self_join and j < p else j] += 1
                else:
                    one, other = q.names[p], d.names[j]
                    if is_self_join and other < one:
                        one, other = other, one
                    left[n], right[n] = one, other
                    n += 1
        state[1] = 0
    state[2] = 0
    return n


writes_names = False


def layout(
    options: Grid,
    lower: np.ndarray,
    upper: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    threshold: float,
    norm: Norm,
    sample: JoinSample | None = None,
) -> GridLayout:
    return make_grid_layout(options, lower, upper, variance, threshold, norm)


def build(x: np.ndarray, layout: GridLayout, threads: int = 1) -> Index:
    return grid_index.build(x, layout, SWEEP_LANES)


def part(index: Index, start: int, stop: int) -> Index:
    return grid_index.part(index, start, stop, SWEEP_LANES)


def _pattern(layout: GridLayout, is_self_join: bool) -> int:
    """Return the pattern of the join.

    It is "full" for two different indexes, which need all adjacent cells.
    """
    return PATTERNS.index(layout.options.pattern if is_self_join else "full")


def workload(q: Index, d: Index, layout: GridLayout, is_self_join: bool) -> np.ndarray:
    """For each cell of `q`, return the number of candidates that a query in this cell
    has (cells,), int64.
    """
    work = np.zeros(len(q["keys"]), np.int64)
    strides = np.array(layout.cells.strides, np.int64)
    cells = d["mask"], d["mask_starts"], strides, d["keys"], d["starts"]
    some = scratch(q["coords"].shape[1], len(d["keys"]))
    workloads(
        q["coords"],
        *cells,
        _pattern(layout, is_self_join),
        work,
        *some,
        np.zeros(6, np.int64),
    )
    return work


def sequence(q: Index, d: Index, layout: GridLayout, is_self_join: bool) -> np.ndarray:
    """Return the queries, as positions in the index `q`, in the order of their
    processing.
    """
    options = layout.options
    work = (
        np.empty(0, np.int64)
        if options.order == "given"
        else workload(q, d, layout, is_self_join)
    )
    places = grid_index.queries(q, work, options)
    if options.order == "queue":
        return places
    return np.concatenate(
        [places[first :: options.batches] for first in range(options.batches)]
    )


def layout_stats(index: Index, layout: GridLayout) -> Numbers:
    counters, counts = np.zeros(6, np.int64), np.zeros(len(index["y"]), np.int64)
    run(
        index,
        index,
        layout,
        True,
        [index["order"]] * 2,
        None,
        (counts, counts),
        counters,
    )
    work = workload(index, index, layout, True)
    places = grid_index.queries(index, work, layout.options)
    names = ("lookups", "found", "candidates", "comparisons", "terms")
    numbers: Numbers = dict(zip(names, counters[:PAIRS].tolist(), strict=True))
    return numbers | facts(
        index, layout, places, work, int(counters[PAIRS]), int(counters[COMPARISONS])
    )


def run(
    q: Index,
    d: Index,
    layout: GridLayout,
    is_self_join: bool,
    names: Any,
    sink: Sink | None,
    counts: Counts | None,
    counters: np.ndarray | None = None,
) -> None:
    """Write all pairs to a sink, or count the pairs of each row; add to `counters` (see
    `LOOKUPS`).
    """
    counters = np.zeros(6, np.int64) if counters is None else counters
    order = sequence(q, d, layout, is_self_join)
    strides = np.array(layout.cells.strides, np.int64)
    state, some = np.zeros(3, np.int64), scratch(q["coords"].shape[1], len(d["keys"]))

    queries = Queries(q["y"], q["coords"], q["starts"], names[0])
    own = d["mask"], d["mask_starts"], strides
    data = Data(d["y"], d["keys"], d["starts"], names[1], *own)
    rule = Rule(
        _pattern(layout, is_self_join),
        layout.sort_dim,
        layout.options.short_circuit,
        reach(layout.norm, layout.threshold),
        layout.threshold,
    )

    def write() -> tuple[int, int]:
        n = join(
            order,
            queries,
            data,
            rule,
            kind_of(layout.norm),
            is_self_join,
            target_of(sink, counts),
            state,
            counters,
            some,
        )
        return n, int(state[2])

    if sink is None:
        write()
    else:
        fill(sink, write)


pairs, counts = entry_points(run)


def work(q: Index, d: Index, layout: GridLayout, is_self_join: bool) -> np.ndarray:
    # assume that all parts have equal work, because a cell is compared only with
    # adjacent cells
    return np.ones(1)


def end(index: Index, stop: int, layout: GridLayout) -> int:
    return len(index["order"]) - SWEEP_LANES
