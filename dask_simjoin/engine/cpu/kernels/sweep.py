"""The row sweep: join two grid indexes of 1 to 4 dimensions in float64.

The points of a grid row ascend along the swept coordinate. A point is compared with 16
points of a row at a time, starting at the first one within reach. The search for the
first and the last of these points is almost branch-free, because the processor would
mispredict most branches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from dask_simjoin.engine.cpu.kernels.components import unite
from dask_simjoin.engine.cpu.kernels.jit import inline_source, kernel
from dask_simjoin.engine.cpu.kernels.simd import (
    F64,
    I32,
    I64,
    SWEEP_LANES,
    Builder,
    NormValue,
    Value,
    bits,
    const,
    llvm_function,
    load,
    splat,
    store,
    store_compressed,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    NONE,
    ONE,
    count_bits,
    lowest_bit,
)
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term, plus, terms
from dask_simjoin.metrics.norms import Array

DIMS = (1, 2, 3, 4)
"""Numbers of dimensions that are supported."""

_NUMBERS = ir.VectorType(F64, SWEEP_LANES)


@llvm_function(types.int64, types.int64, types.float64, types.float64)
def first_within(builder: Builder, numbers: Value, x: Value, reach: Value) -> Value:
    """The index of the first number y with x - y <= reach, among 16 ascending numbers;
    16 if none has it.
    """
    away = builder.fsub(
        splat(builder, x, _NUMBERS), load(builder, numbers, _NUMBERS, 8)
    )
    within = bits(
        builder, builder.fcmp_unordered("<=", away, splat(builder, reach, _NUMBERS))
    )
    within = builder.or_(within, const(1 << SWEEP_LANES))
    return builder.cttz(within, ir.Constant(ir.IntType(1), 1))


@llvm_function(types.uint64, *(types.int64,) * 7, types.float64, None, types.int64)
def sweep_near(
    builder: Builder,
    dims: Value,
    base: Value,
    stride: Value,
    j: Value,
    stop: Value,
    point: Value,
    point_stride: Value,
    threshold: Value,
    norm: NormValue,
    totals: Value,
) -> Value:
    """Decide in float64 which points are near one point, among j ... j+15 and before
    `stop`. Return a mask.

    Terms are added in the order of dimensions, and each difference, product and sum is
    rounded. LLVM does not fuse a product and a sum, because no flag allows it.

    `base`: address of column 0, float64; `stride`: bytes from one column to the next.
    `point`: address of the point's first coordinate; `point_stride`: bytes to its next
    one. `totals`: address for the 16 totals; 0: do not write them.
    """
    first = builder.add(base, builder.mul(j, const(8)))
    done = builder.append_basic_block("near.done")
    blocks = [builder.append_basic_block(f"near.dims{d}") for d in DIMS]
    switch = builder.switch(dims, blocks[-1])
    for d, block in zip(DIMS[:-1], blocks, strict=False):
        switch.add_case(const(d), block)
    results = []
    for d, block in zip(DIMS, blocks, strict=True):
        builder.position_at_end(block)
        total, at, own = None, first, point
        for _ in range(d):
            p = splat(builder, load(builder, own, F64, 8), _NUMBERS)
            difference = builder.fsub(load(builder, at, _NUMBERS, 8), p)
            (term,) = terms(builder, norm, [difference])
            total = term if total is None else plus(builder, norm, total, term)
            at, own = builder.add(at, stride), builder.add(own, point_stride)
        results.append((total, builder.block))
        builder.branch(done)
    builder.position_at_end(done)
    total = builder.phi(_NUMBERS)
    for value, block in results:
        total.add_incoming(value, block)
    with builder.if_then(builder.icmp_signed("!=", totals, const(0)), likely=False):
        store(builder, total, totals, 8)
    near = bits(
        builder, builder.fcmp_ordered("<=", total, splat(builder, threshold, _NUMBERS))
    )
    left = builder.sub(stop, j)
    few = builder.icmp_signed("<", left, const(SWEEP_LANES))
    inside = builder.sub(
        builder.shl(const(1), builder.select(few, left, const(0))), const(1)
    )
    return builder.and_(
        near, builder.select(few, inside, const((1 << SWEEP_LANES) - 1))
    )


@llvm_function(types.uint64, types.int64, types.float64)
def within_limit(builder: Builder, totals: Value, limit: Value) -> Value:
    """A mask of the numbers that are at most `limit`, among 16 float64 at an address."""
    return bits(
        builder,
        builder.fcmp_ordered(
            "<=", load(builder, totals, _NUMBERS, 8), splat(builder, limit, _NUMBERS)
        ),
    )


@llvm_function(types.void, types.uint64, *(types.int64,) * 4, None, *(types.int64,) * 3)
def sweep_write(
    builder: Builder,
    mask: Value,
    j: Value,
    order: Value,
    mine: Value,
    names: Value,
    name: Value,
    orient_by_position: Value,
    left: Value,
    right: Value,
) -> None:
    """Write the names of the pairs of one point with the points that `mask` selects
    from j ... j+15.

    `name`: name of the one point; `mine`: its position. `names`: address of the names
    of the other points, of the same type; `order`: address of their positions, int32.
    `left`, `right`: addresses of the output. `orient_by_position`: write the point with
    the smaller position to `left`.
    """
    kind, size = (I32, 4) if name.type == I32 else (I64, 8)
    vector, longs = ir.VectorType(kind, SWEEP_LANES), ir.VectorType(I32, SWEEP_LANES)
    other = load(builder, builder.add(names, builder.mul(j, const(size))), vector, size)
    own = splat(builder, name, vector)
    pair = [cgutils.alloca_once_value(builder, value) for value in (own, other)]
    with builder.if_then(
        builder.icmp_signed("!=", orient_by_position, const(0)), likely=True
    ):
        positions = load(
            builder, builder.add(order, builder.mul(j, const(4))), longs, 4
        )
        earlier = builder.icmp_signed(
            "<", positions, splat(builder, builder.trunc(mine, I32), longs)
        )
        builder.store(builder.select(earlier, other, own), pair[0])
        builder.store(builder.select(earlier, own, other), pair[1])
    for slot, address in zip(pair, (left, right), strict=True):
        store_compressed(builder, builder.load(slot), mask, address)


@llvm_function(types.void, types.uint64, types.int64, types.int64)
def keep_totals(builder: Builder, mask: Value, totals: Value, out: Value) -> None:
    """Write the selected numbers of 16 float64 side by side to the address `out`;
    `mask` selects them.
    """
    store_compressed(builder, load(builder, totals, _NUMBERS, 8), mask, out)


FRESH = (0, 0, -1, 0, -1)
"""State of a join before it starts.

The numbers are: row; offset; point (-1: none yet); start of the point's window; next
place in this window (-1: its start).
"""


class GridRows(NamedTuple):
    """The points of an index, and its grid rows."""

    cols: Array  # coordinates (d, n + 16)
    keys: Array  # key of each grid row, ascending
    starts: Array  # the first point of each row; then the number of points


class Names(NamedTuple):
    """Positions and names of the points of an index, in index order."""

    order: Array
    names: Array


class SweepSearch(NamedTuple):
    """How near points are searched."""

    swept: int  # the swept coordinate
    # the key of each neighbor row minus the key of the row itself
    offsets: Array
    at: Array  # scratch: for each offset, an index into the keys of the data
    reach: float  # largest difference of swept coordinates
    threshold: float  # largest total
    norm: Kind  # see `totals.kind_of`


class PairArrays(NamedTuple):
    """Output: the names of pairs, and their totals unless `totals` is empty."""

    left: Array
    right: Array
    totals: Array
    capacity: int


@inline_source
def _row_at(search: SweepSearch, keys: Array, key: int, o: int) -> int:
    """Return the number of the row with offset `o` from a row of queries; -1 if there
    is none. `keys`: the keys of the data; `key`: the key of the row of queries.
    """
    target, p = key + search.offsets[o], search.at[o]
    while p < keys.size and keys[p] < target:
        p += 1
    search.at[o] = p
    return p if p < keys.size and keys[p] == target else -1


@inline_source
def _near(
    q: GridRows,
    d: GridRows,
    search: SweepSearch,
    i: int,
    j: int,
    stop: int,
    threshold: float,
    totals: int,
) -> np.uint64:
    """Return a mask of the points j ... j+15 before `stop` that are near query `i`.
    `totals`: see `sweep_near`.
    """
    return sweep_near(
        q.cols.shape[0],
        d.cols.ctypes.data,
        d.cols.strides[0],
        j,
        stop,
        q.cols.ctypes.data + 8 * i,
        q.cols.strides[0],
        threshold,
        search.norm,
        totals,
    )


@inline_source
def _opening(x: float, base: int, lo: int, stop: int, reach: float) -> int:
    """The first place of `lo` ... `stop` - 1 that is at most `reach` below `x`; `stop`
    if there is none.
    """
    passed = SWEEP_LANES
    while passed == SWEEP_LANES and lo < stop:
        passed = first_within(base + 8 * lo, x, reach)
        lo += passed
    return min(lo, stop)


@kernel
def pairs(
    q: GridRows,
    q_names: Names,
    d: GridRows,
    d_names: Names,
    search: SweepSearch,
    is_self_join: bool,
    orient_by_position: bool,
    out: PairArrays,
    state: Array,
    behind: Array,
    some: Array,
) -> int:
    """Write the names and totals of pairs to `out`.

    Return the number of pairs. The call stops if 16 more pairs might not fit. It saves
    its progress in `state`, and in ``state[5]`` the capacity that it needs to continue;
    0 means that the join is complete.

    `is_self_join`: both indexes are the same, and only the later half of each
    neighborhood is visited. `orient_by_position`: write the point with the smaller
    position to `left`. Scratch: `behind`, the last 16 names and 16 zeros after them;
    `some`, 16 totals.
    """
    names, order = d_names.names.ctypes.data, d_names.order.ctypes.data
    size = d_names.names.itemsize
    out_l, out_r, out_t = (
        out.left.ctypes.data,
        out.right.ctypes.data,
        out.totals.ctypes.data,
    )
    # names are read 16 at a time; for the last ones this would pass the end, so they
    # are read from a padded copy
    last = max(d_names.names.size - SWEEP_LANES, 0)
    # a loop, because Numba takes seconds to compile a slice
    for n in range(last, d_names.names.size):
        behind[n - last] = d_names.names[n]
    names_behind = behind.ctypes.data - last * size
    some_at = some.ctypes.data if out.totals.size > 0 else 0
    xq, xd = q.cols[search.swept], d.cols[search.swept]
    swept = xd.ctypes.data
    r, o, i, lo, j = state[0], state[1], state[2], state[3], state[4]
    state[5] = 0
    n = 0
    while r < q.keys.size:
        stop_i = q.starts[r + 1]
        while o < search.offsets.size:
            p = _row_at(search, d.keys, q.keys[r], o)
            if p >= 0:
                stop_j = d.starts[p + 1]
                own = is_self_join and search.offsets[o] == 0
                if i < 0:
                    i, lo = q.starts[r], d.starts[p]
                while i < stop_i:
                    x = xq[i]
                    if j < 0:
                        lo = (
                            i + 1
                            if own
                            else _opening(x, swept, lo, stop_j, search.reach)
                        )
                        j = lo
                    while j < stop_j and xd[j] - x <= search.reach:
                        if n + SWEEP_LANES > out.capacity:
                            state[0], state[1], state[2] = r, o, i
                            state[3], state[4], state[5] = lo, j, SWEEP_LANES
                            return n
                        near = _near(
                            q, d, search, i, j, stop_j, search.threshold, some_at
                        )
                        sweep_write(
                            near,
                            j,
                            order,
                            np.int64(q_names.order[i]),
                            names if j <= last else names_behind,
                            q_names.names[i],
                            np.int64(orient_by_position),
                            out_l + n * size,
                            out_r + n * size,
                        )
                        if some_at != 0:
                            keep_totals(near, some_at, out_t + n * 8)
                        n += count_bits(near)
                        j += SWEEP_LANES
                    j = -1
                    i += 1
                i = -1
            o += 1
        o = 0
        r += 1
    return n


@kernel
def counts(
    q: GridRows,
    d: GridRows,
    search: SweepSearch,
    half: bool,
    first: int,
    enough: int,
    q_counts: Array,
) -> None:
    """Add to each query's count the number of points of `d` near it.

    `half`: both indexes are the same, and only points after the query are counted.
    `first`: the query whose count comes first in `q_counts`. `enough`: counts stop at
    about this number.
    """
    xq, xd = q.cols[search.swept], d.cols[search.swept]
    swept = xd.ctypes.data
    for r in range(q.keys.size):
        for o in range(search.offsets.size):
            p = _row_at(search, d.keys, q.keys[r], o)
            if p < 0:
                continue
            stop_j = d.starts[p + 1]
            own = half and search.offsets[o] == 0
            lo = d.starts[p]
            for i in range(q.starts[r], q.starts[r + 1]):
                x = xq[i]
                lo = i + 1 if own else _opening(x, swept, lo, stop_j, search.reach)
                j, found = lo, q_counts[i - first]
                while found < enough and j < stop_j and xd[j] - x <= search.reach:
                    near = _near(q, d, search, i, j, stop_j, search.threshold, 0)
                    found += count_bits(near)
                    j += SWEEP_LANES
                q_counts[i - first] = found


@kernel
def tally(
    q: GridRows,
    d: GridRows,
    search: SweepSearch,
    limits: Array,
    half: bool,
    by_row: bool,
    found: Array,
    totals: Array,
) -> None:
    """Count near points as `counts` does, for each of several ascending limits.

    `found`: output, (queries, limits) if `by_row`, else (1, limits) for all queries
    together. `totals` (16,): scratch.
    """
    most = limits.size - 1
    xq, xd = q.cols[search.swept], d.cols[search.swept]
    swept = xd.ctypes.data
    totals_at = totals.ctypes.data
    for r in range(q.keys.size):
        for o in range(search.offsets.size):
            p = _row_at(search, d.keys, q.keys[r], o)
            if p < 0:
                continue
            stop_j = d.starts[p + 1]
            own = half and search.offsets[o] == 0
            lo = d.starts[p]
            for i in range(q.starts[r], q.starts[r + 1]):
                x = xq[i]
                lo = i + 1 if own else _opening(x, swept, lo, stop_j, search.reach)
                j = lo
                row = i if by_row else 0
                while j < stop_j and xd[j] - x <= search.reach:
                    near = _near(q, d, search, i, j, stop_j, limits[most], totals_at)
                    j += SWEEP_LANES
                    k = most
                    # from the largest limit down, because a point beyond one limit is
                    # beyond all smaller limits
                    while near != NONE:
                        found[row, k] += count_bits(near)
                        if k == 0:
                            break
                        k -= 1
                        near &= within_limit(totals_at, limits[k])


@inline_source
def _is_pair(every: Array, i: int, j: int, search: SweepSearch) -> bool:
    """Whether two points are a pair, if those near each other in the compared dimensions
    must be decided. `every` (d, n): all coordinates; without dimensions: all are pairs.
    """
    total = 0.0
    for k in range(every.shape[0]):
        total = add_term(total, every[k, i] - every[k, j], search.norm)
    return total <= search.threshold


@kernel
def unite_near(
    q: GridRows,
    d: GridRows,
    search: SweepSearch,
    every: Array,
    taking: Array,
    parent: Array,
) -> None:
    """Unite the sets of each point of some grid rows and the later points near it.

    Other threads may do so for other rows at the same time. `q`: these rows of the
    index `d`. `every`: see `_is_pair`. `taking` (n,): whether a point takes part.
    `parent` (n,), int32: the disjoint-set forest, see `components`.
    """
    x, swept = d.cols[search.swept], d.cols[search.swept].ctypes.data
    forest = parent.ctypes.data
    for r in range(q.keys.size):
        for o in range(search.offsets.size):
            p = _row_at(search, d.keys, q.keys[r], o)
            if p < 0:
                continue
            own, lo, stop = search.offsets[o] == 0, d.starts[p], d.starts[p + 1]
            for i in range(q.starts[r], q.starts[r + 1]):
                if not taking[i]:
                    continue
                lo = i + 1 if own else _opening(x[i], swept, lo, stop, search.reach)
                j, root = lo, i
                while j < stop and x[j] - x[i] <= search.reach:
                    near = _near(q, d, search, i, j, stop, search.threshold, 0)
                    while near != NONE:
                        other = j + lowest_bit(near)
                        near &= near - ONE
                        if taking[other] and _is_pair(every, i, other, search):
                            root = unite(forest, root, other)
                    j += SWEEP_LANES


@kernel
def lowest_near(
    q: GridRows,
    d: GridRows,
    search: SweepSearch,
    every: Array,
    labels: Array,
    low: Array,
) -> None:
    """Lower `low` of each point of some grid rows that has no label (-1) to the lowest
    label near it.

    `labels`, `low` (n,), int64. For the other arguments see `unite_near`.
    """
    x, swept = d.cols[search.swept], d.cols[search.swept].ctypes.data
    for r in range(q.keys.size):
        for o in range(search.offsets.size):
            p = _row_at(search, d.keys, q.keys[r], o)
            if p < 0:
                continue
            lo, stop = d.starts[p], d.starts[p + 1]
            for i in range(q.starts[r], q.starts[r + 1]):
                if labels[i] >= 0:
                    continue
                lo = _opening(x[i], swept, lo, stop, search.reach)
                j, best = lo, low[i]
                while j < stop and x[j] - x[i] <= search.reach:
                    near = _near(q, d, search, i, j, stop, search.threshold, 0)
                    while near != NONE:
                        other = j + lowest_bit(near)
                        near &= near - ONE
                        label = labels[other]
                        if 0 <= label < best and _is_pair(every, i, other, search):
                            best = label
                    j += SWEEP_LANES
                low[i] = best
