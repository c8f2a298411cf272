"""Kernels of connected components, greedy selection, and sparse matrices.

Components are found by disjoint-set forests, of two kinds. A forest that is passed as
an array of parents, as in `find`, may be changed by one thread only. A forest that is
passed as the address of int32 parents, as in `root_of` and `unite`, may be changed by
several threads without locks. A root is its own parent, and is smaller than all other
nodes of its set. A thread makes a smaller node the parent of a root by one atomic
compare-and-swap, which fails if the node is no longer a root. All other writes replace
a node's parent by another of its ancestors, so they may happen in any order.
"""

from __future__ import annotations

import numpy as np
from numba import types

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import (
    I32,
    I64,
    Builder,
    Value,
    item_of,
    llvm_function,
)
from dask_simjoin.metrics.norms import Array


@device_function
def find(parent: Array, i: int) -> int:
    """Return the root of a node.

    On the way, every second node is attached to its grandparent (path halving).
    """
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def link(
    parent: Array, left: Array, right: Array, left_nodes: Array, right_nodes: Array
) -> None:
    """Join the components of the two rows of each pair, if both rows are nodes. Other
    rows have the node -1.

    The smaller of both roots becomes the root.
    """
    for n in range(left.size):
        i, j = left_nodes[left[n]], right_nodes[right[n]]
        if i >= 0 and j >= 0:
            a, b = find(parent, i), find(parent, j)
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b


@kernel
def unite_pairs(
    parent: Array, left: Array, right: Array, left_nodes: Array, right_nodes: Array
) -> None:
    """Do what `link` does, in a forest of int32 that several threads change."""
    forest = parent.ctypes.data
    for n in range(left.size):
        i, j = left_nodes[left[n]], right_nodes[right[n]]
        if i >= 0 and j >= 0:
            unite(forest, i, j)


@kernel
def roots_of(parent: Array, start: int, stop: int) -> None:
    """Replace the parents of the nodes `start` ... `stop` - 1 by their roots, in a
    forest of int32. Other threads may do so for other nodes at the same time.
    """
    forest = parent.ctypes.data
    for i in range(start, stop):
        put_parent(forest, i, root_of(forest, i))


@kernel
def link_nodes(parent: Array, left: Array, right: Array) -> None:
    """Join the components of the nodes `left[i]` and `right[i]`, for each edge i."""
    for n in range(left.size):
        a, b = find(parent, left[n]), find(parent, right[n])
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b


@kernel
def roots(parent: Array) -> None:
    """Replace each node's parent by its root. Smaller nodes come first, so a parent's
    parent is a root already.
    """
    for i in range(parent.size):
        parent[i] = parent[parent[i]]


@kernel
def lowest(
    left: Array,
    right: Array,
    left_labels: Array,
    right_labels: Array,
    left_low: Array,
    right_low: Array,
) -> None:
    """For each row without a label (-1), lower `left_low` or `right_low` to the lowest
    label of its neighbors.

    `left`, `right`: the pairs of neighbors.
    """
    for n in range(left.size):
        i, j = left[n], right[n]
        a, b = left_labels[i], right_labels[j]
        if a < 0 <= b:
            left_low[i] = min(left_low[i], b)
        elif b < 0 <= a:
            right_low[j] = min(right_low[j], a)


@kernel
def first_rows(
    parent: Array, order: Array, start: int, stop: int, first: Array
) -> None:
    """Lower `first` (n,), int32, of each root to the smallest row of its nodes `start`
    ... `stop` - 1. Other threads may do so for other nodes at the same time.

    `order`: the row of each node.
    """
    lowest = first.ctypes.data
    for i in range(start, stop):
        root, row = np.int64(parent[i]), np.int64(order[i])
        if row < parent_of(lowest, root):
            lower_to(lowest, root, row)


@kernel
def roots_by_row(
    parent: Array, taking: Array, first: Array, start: int, stop: int, root: Array
) -> None:
    """Store each root among the nodes `start` ... `stop` - 1 that takes part in `root`,
    at the smallest row of its set, which is in `first`.
    """
    for i in range(start, stop):
        if parent[i] == i and taking[i]:
            root[first[i]] = i


@kernel
def number_roots(
    root: Array, start: int, stop: int, number: int, numbers: Array
) -> None:
    """Number the roots that are stored at the rows `start` ... `stop` - 1, from
    `number` on. Other rows have the root -1.
    """
    for row in range(start, stop):
        if root[row] >= 0:
            numbers[root[row]] = number
            number += 1


@kernel
def labels_of_roots(
    parent: Array, core: Array, number: Array, start: int, stop: int, labels: Array
) -> None:
    """Label the nodes `start` ... `stop` - 1: core nodes get the `number` of their
    root, others get -1.
    """
    for i in range(start, stop):
        # read for all nodes, because the processor would mispredict a branch
        label = number[parent[i]]
        labels[i] = label if core[i] else -1


@kernel
def drop_near(
    earlier: Array, later: Array, starts: Array, grouped: Array, dropped: Array
) -> None:
    """Mark the rows to drop (n,): the later row of each pair whose earlier row is kept.

    Pairs are visited in the order of their earlier rows. So all pairs that could drop a
    row come before the pairs that need to know whether this row is kept. `starts` (n +
    2,): zeros. `grouped`: scratch, of the size and dtype of `later`.
    """
    for n in range(earlier.size):
        starts[earlier[n] + 2] += 1
    for row in range(dropped.size):
        starts[row + 2] += starts[row + 1]
    for n in range(earlier.size):
        to = starts[earlier[n] + 1]
        grouped[to], starts[earlier[n] + 1] = later[n], to + 1
    for row in range(dropped.size):
        if not dropped[row]:
            for n in range(starts[row], starts[row + 1]):
                dropped[grouped[n]] = True


@kernel
def best_of_groups(group: Array, keys: Array, rows: Array, best: Array) -> None:
    """For each group, find the index of the largest key, or of the smallest row among
    equal keys. `best`: output; the caller fills it with -1.
    """
    for i in range(group.size):
        b = best[group[i]]
        if b < 0 or keys[i] > keys[b] or (keys[i] == keys[b] and rows[i] < rows[b]):
            best[group[i]] = i


GAPS = np.array([1750, 701, 301, 132, 57, 23, 10, 4, 1])
"""Gaps for Shellsort (Ciura 2001, "Best increments for the average case of Shellsort").

The list is extended for longer rows: each further gap is 2.25 times the previous one.
"""


@kernel
def put(
    rows: Array, columns: Array, values: Array, at: Array, out: Array, out_values: Array
) -> None:
    """Write entries of a sparse matrix; `at` (n,): index in `out` of each row's next
    entry, updated.
    """
    for n in range(rows.size):
        to = at[rows[n]]
        at[rows[n]] = to + 1
        out[to], out_values[to] = columns[n], values[n]


@kernel
def move(
    starts: Array,
    columns: Array,
    values: Array,
    at: Array,
    out: Array,
    out_values: Array,
) -> None:
    """Append the entries of one sparse matrix to the rows of another, `out` and
    `out_values`.

    `starts` (n + 1,): start of each row's entries. `at` (n,): index in `out` of each
    row's next entry, updated.
    """
    for i in range(at.size):
        to = at[i]
        for e in range(starts[i], starts[i + 1]):
            out[to], out_values[to] = columns[e], values[e]
            to += 1
        at[i] = to


@device_function
def _insert(columns: Array, values: Array, first: int, stop: int, gap: int) -> None:
    """Sort each sequence of entries that are `gap` apart, among `first` ... `stop` - 1,
    by value, then by column.
    """
    for n in range(first + gap, stop):
        value, column = values[n], columns[n]
        at = n
        while at >= first + gap:
            before = values[at - gap]
            if before < value or (before == value and columns[at - gap] <= column):
                break
            values[at], columns[at] = before, columns[at - gap]
            at -= gap
        values[at], columns[at] = value, column


@kernel
def sort(starts: Array, columns: Array, values: Array) -> None:
    """Sort the entries of each row of a sparse matrix by value and then by column, in
    place.
    """
    for i in range(starts.size - 1):
        first, stop = starts[i], starts[i + 1]
        if stop - first <= 12:
            _insert(columns, values, first, stop, 1)
            continue
        gap = np.int64(GAPS[0])
        while np.int64(2.25 * gap) < stop - first:
            gap = np.int64(2.25 * gap)
        while gap > GAPS[0]:
            _insert(columns, values, first, stop, gap)
            gap = np.int64(gap / 2.25)
        for gap in GAPS:
            if gap < stop - first:
                _insert(columns, values, first, stop, gap)


RELAXED = "monotonic"
"""LLVM's weakest order of atomic accesses.

It suffices, because accesses to different nodes may be reordered.
"""


@llvm_function(types.int64, types.int64, types.int64)
def parent_of(builder: Builder, parent: Value, node: Value) -> Value:
    return builder.sext(
        builder.load_atomic(item_of(builder, parent, node, I32), RELAXED, 4), I64
    )


@llvm_function(types.void, types.int64, types.int64, types.int64)
def put_parent(builder: Builder, parent: Value, node: Value, to: Value) -> None:
    """Replace the parent of a node that is not a root by another ancestor."""
    builder.store_atomic(
        builder.trunc(to, I32), item_of(builder, parent, node, I32), RELAXED, 4
    )


@llvm_function(types.void, types.int64, types.int64, types.int64)
def lower_to(builder: Builder, values: Value, at: Value, to: Value) -> None:
    """Replace an int32 value by `to` if that is smaller, as one atomic step."""
    value = builder.trunc(to, I32)
    builder.atomic_rmw("min", item_of(builder, values, at, I32), value, RELAXED)


@llvm_function(types.boolean, types.int64, types.int64, types.int64)
def tie_root(builder: Builder, parent: Value, root: Value, to: Value) -> Value:
    """Make `to` the parent of a root; return False if the node is no longer a root."""
    old, new = builder.trunc(root, I32), builder.trunc(to, I32)
    done = builder.cmpxchg(item_of(builder, parent, root, I32), old, new, RELAXED)
    return builder.extract_value(done, 1)


@device_function
def root_of(parent: int, node: int) -> int:
    """Return the root of a node. On the way, each node is attached to its grandparent
    (path splitting).
    """
    up = parent_of(parent, node)
    while up != node:
        above = parent_of(parent, up)
        if above != up:
            put_parent(parent, node, above)
        node, up = up, above
    return node


@device_function
def _united(parent: int, i: int, j: int) -> tuple[int, bool]:
    """Unite the sets of two nodes. Return their common root, and whether this call has
    united different sets.
    """
    a, b = root_of(parent, i), root_of(parent, j)
    while a != b:
        if a < b:
            a, b = b, a
        if tie_root(parent, a, b):
            return b, True
        a, b = root_of(parent, a), root_of(parent, b)
    return a, False


@device_function
def unite_different(parent: int, i: int, j: int) -> bool:
    """Unite the sets of two nodes; return whether this call has united different sets."""
    return _united(parent, i, j)[1]


@device_function
def unite(parent: int, i: int, j: int) -> int:
    """Unite the sets of two nodes.

    Return their common root, which may be outdated: other threads unite sets, too.
    """
    return _united(parent, i, j)[0]
