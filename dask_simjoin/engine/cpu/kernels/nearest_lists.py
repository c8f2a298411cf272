"""Sorted lists of the nearest points of each query in a tile.

Neighbors are ordered by (d2, id). A free slot is (inf, -1). It comes after all
neighbors, because ids are compared as unsigned numbers, and -1 is then the largest. So
a neighbor with d2 = inf replaces a free slot.

A list has at least one slot more than neighbors are asked for. So if two points tie for
the last place, both are in the list.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_source
from dask_simjoin.engine.cpu.kernels.simd import (
    F64,
    I1,
    I32,
    I64,
    Builder,
    Value,
    bits,
    const,
    llvm_function,
    load,
    long_at,
    splat,
    store,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import NONE, ONE, REGISTER, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import larger
from dask_simjoin.engine.index.cpu_tiles import TILE, aligned_empty
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sizes import NUMBER_BYTES

LANES = REGISTER // NUMBER_BYTES

MAX_GROUPS = 16
"""Lists of up to this many vectors are held in registers while points are inserted.

The last of these lists need more registers than there are, but still take half the time
of longer ones. With 32, the kernel takes half as long again to compile.
"""


def list_slots(k: int) -> int:
    """Return the number of slots of a list for k neighbors."""
    return (k // LANES + 1) * LANES


def empty_lists(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return uninitialized lists of a tile: d2 and ids, (64, slots) each."""
    shape = TILE, list_slots(k)
    return aligned_empty(shape, np.float64), aligned_empty(shape, np.int64)


def _moved_up(builder: Builder, below: Value, group: Value) -> Value:
    """The lanes of `group`, moved up by one; lane 0 gets the last lane of `below`."""
    lanes = [LANES - 1, *range(LANES, 2 * LANES - 1)]
    return builder.shuffle_vector(
        below, group, ir.Constant(ir.VectorType(I32, LANES), lanes)
    )


def _insert(
    builder: Builder,
    mask: Value,
    distances: Value,
    names: Value,
    groups: int,
    list_d2: Value,
    list_names: Value,
) -> Value:
    """Emit `insert_apart` for lists of `groups` vectors."""
    kinds = ir.VectorType(F64, LANES), ir.VectorType(I64, LANES)
    starts = list_d2, list_names
    # before the first slot comes an item that no point replaces
    first = [
        ir.Constant(kind, [value] * LANES)
        for kind, value in zip(kinds, (-1.0, -1), strict=True)
    ]
    before = builder.block
    head, body, done = (
        builder.append_basic_block(f"insert.{part}")
        for part in ("head", "body", "done")
    )
    old = [
        [
            load(builder, builder.add(start, const(g * REGISTER)), kind, 8)
            for g in range(groups)
        ]
        for start, kind in zip(starts, kinds, strict=True)
    ]
    builder.branch(head)
    builder.position_at_end(head)
    left = builder.phi(I64)
    left.add_incoming(mask, before)
    slots = [[builder.phi(one.type) for one in some] for some in old]
    for some, values in zip(slots, old, strict=True):
        for slot, value in zip(some, values, strict=True):
            slot.add_incoming(value, before)
    builder.cbranch(builder.icmp_unsigned("!=", left, const(0)), body, done)
    builder.position_at_end(body)
    at = builder.mul(builder.cttz(left, ir.Constant(I1, 1)), const(8))
    rest = builder.and_(left, builder.sub(left, const(1)))
    d2, name = (
        splat(builder, load(builder, builder.add(start, at), kind.element, 8), kind)
        for start, kind in zip((distances, names), kinds, strict=True)
    )
    for g in range(groups):
        own_d2, own_name = (some[g] for some in slots)
        up_d2, up_name = (
            _moved_up(builder, some[g - 1] if g else edge, some[g])
            for some, edge in zip(slots, first, strict=True)
        )
        # the smaller of own and new d2, but not less than the slot below
        nearer = builder.select(builder.fcmp_ordered("<", d2, own_d2), d2, own_d2)
        new_d2 = larger(builder, up_d2, nearer)
        stays = builder.fcmp_ordered("<=", own_d2, d2)
        moves = builder.fcmp_ordered(">", up_d2, d2)
        new_name = builder.select(stays, own_name, builder.select(moves, up_name, name))
        for slot, value in zip((own_d2, own_name), (new_d2, new_name), strict=True):
            slot.add_incoming(value, builder.block)
    left.add_incoming(rest, builder.block)
    builder.branch(head)
    builder.position_at_end(done)
    # equal d2 of two neighbors: their order depends on ids
    infinite = ir.Constant(kinds[0], [float("inf")] * LANES)
    ties: Any = const(0)
    for g in range(groups):
        up = _moved_up(builder, slots[0][g - 1] if g else first[0], slots[0][g])
        tied = builder.and_(
            builder.fcmp_ordered("==", up, slots[0][g]),
            builder.fcmp_ordered("<", up, infinite),
        )
        ties = builder.or_(ties, bits(builder, tied))
    apart = builder.icmp_unsigned("==", ties, const(0))
    with builder.if_then(apart, likely=True):
        for start, some in zip(starts, slots, strict=True):
            for g, slot in enumerate(some):
                store(builder, slot, builder.add(start, const(g * REGISTER)), 8)
    return apart


@llvm_function(types.boolean, types.uint64, *(types.int64,) * 5)
def insert_apart(
    builder: Builder,
    mask: Value,
    distances: Value,
    names: Value,
    slots: Value,
    list_d2: Value,
    list_names: Value,
) -> Value:
    """Insert the points `mask` of a tile into a list, if all d2 in the list differ then.

    Return whether they do. If not, or if the list is longer than `MAX_GROUPS` vectors,
    the list remains as it is.

    `distances`, `names`: addresses of the d2, which are finite, and of the ids of the
    tile's points. `slots`: length of the list. `list_d2`, `list_names`: its addresses.

    A step inserts one point. It has no branches, and is short: a smaller and a larger
    d2 of each slot.
    """
    start, done = builder.block, builder.append_basic_block("groups.done")
    builder.position_at_end(done)
    found = builder.phi(I1)
    builder.position_at_end(start)
    switch = builder.switch(slots, done)
    found.add_incoming(ir.Constant(I1, 0), start)
    for groups in range(1, MAX_GROUPS + 1):
        block = builder.append_basic_block(f"groups.{groups}")
        switch.add_case(const(groups * LANES), block)
        builder.position_at_end(block)
        apart = _insert(builder, mask, distances, names, groups, list_d2, list_names)
        found.add_incoming(apart, builder.block)
        builder.branch(done)
    builder.position_at_end(done)
    return found


@inline_source
def worse(d2: float, name: int, other_d2: float, other: int) -> bool:
    """Whether (d2, name) comes after (other_d2, other)."""
    return bool(
        d2 > other_d2 or (d2 == other_d2 and np.uint64(name) > np.uint64(other))
    )


@device_function
def take_in(
    list_d2: Array, list_names: Array, row: int, new_d2: Array, new_names: Array, m: int
) -> None:
    """Merge `m` new neighbors into the k neighbors of a row, and keep the k best.

    The new neighbors may have any order; they are sorted in place. Then one pass from
    the end of the row merges them.
    """
    k = list_d2.shape[1]
    for n in range(1, m):
        d2, name = new_d2[n], new_names[n]
        at = n
        while at > 0 and worse(new_d2[at - 1], new_names[at - 1], d2, name):
            new_d2[at], new_names[at] = new_d2[at - 1], new_names[at - 1]
            at -= 1
        new_d2[at], new_names[at] = d2, name
    old, new = k - 1, m - 1
    for _ in range(m):  # drop the m worst of the k + m neighbors
        if old < 0 or (
            new >= 0
            and worse(
                new_d2[new], new_names[new], list_d2[row, old], list_names[row, old]
            )
        ):
            new -= 1
        else:
            old -= 1
    at = k - 1
    while new >= 0:
        if old >= 0 and worse(
            list_d2[row, old], list_names[row, old], new_d2[new], new_names[new]
        ):
            list_d2[row, at], list_names[row, at] = (
                list_d2[row, old],
                list_names[row, old],
            )
            old -= 1
        else:
            list_d2[row, at], list_names[row, at] = new_d2[new], new_names[new]
            new -= 1
        at -= 1


@inline_source
def keep(
    lists: Any,
    t: int,
    mask: np.uint64,
    distances: Array,
    names: int,
    is_finite: bool,
    new: Any,
) -> None:
    """Insert the points `mask` of a tile into the list of query `t`.

    `distances`: d2 of the tile's points; `names`: address of their ids. `is_finite`:
    whether all these d2 are known to be finite. `new`: scratch.
    """
    list_d2, list_names = lists
    new_d2, new_names = new
    slots = list_d2.shape[1]
    if is_finite and insert_apart(
        mask,
        distances.ctypes.data,
        names,
        slots,
        list_d2.ctypes.data + t * list_d2.strides[0],
        list_names.ctypes.data + t * list_names.strides[0],
    ):
        return
    m = 0
    while mask != NONE:
        bit = lowest_bit(mask)
        mask &= mask - ONE
        new_d2[m], new_names[m] = distances[bit], long_at(names, bit)
        m += 1
    take_in(list_d2, list_names, t, new_d2, new_names, m)


@device_function
def begin_lists(
    lists: Any, order: Array, first: int, count: int, best_d2: Array, best_name: Array
) -> None:
    """Copy the neighbors so far of `count` queries from place `first` on to the lists
    of a tile.
    """
    list_d2, list_names = lists
    k = best_d2.shape[1]
    for t in range(count):
        row = order[first + t]
        for n in range(k):
            list_d2[t, n], list_names[t, n] = best_d2[row, n], best_name[row, n]
        for n in range(k, list_d2.shape[1]):
            list_d2[t, n], list_names[t, n] = np.inf, -1


@device_function
def end_lists(
    lists: Any, order: Array, first: int, count: int, best_d2: Array, best_name: Array
) -> None:
    """Copy the lists of a tile back: see `begin_lists`."""
    list_d2, list_names = lists
    k = best_d2.shape[1]
    for t in range(count):
        row = order[first + t]
        for n in range(k):
            best_d2[row, n], best_name[row, n] = list_d2[t, n], list_names[t, n]
