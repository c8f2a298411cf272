"""Kernels of OPTICS: find the k smallest distances of each row, group edges by row, and
order the rows.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import find
from dask_simjoin.engine.cpu.kernels.edge_order import MAX_INSERTION
from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.engine.cpu.kernels.simd import float64_at, int32_at
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.norms import Array


@kernel
def keep_smallest(best: Array, rows: Array, values: Array) -> None:
    """Update the k smallest values of each row with new values; `best` (n, k):
    ascending in each row.
    """
    k = best.shape[1]
    for n in range(rows.size):
        row, value = best[rows[n]], values[n]
        at = k
        while at > 0 and row[at - 1] > value:
            at -= 1
        for m in range(k - 1, at, -1):
            row[m] = row[m - 1]
        if at < k:
            row[at] = value


@kernel
def by_row(
    rows: Array,
    others: Array,
    values: Array,
    ends: Array,
    out: Array,
    out_values: Array,
) -> None:
    """Group edges by row: write their other ends to `out`, and their values to
    `out_values`.

    `ends` (n + 1,): output; the caller fills it with zeros. The edges of row i are at
    `ends[i]` ... `ends[i + 1]` - 1.
    """
    for n in range(rows.size):
        ends[rows[n] + 1] += 1
    for i in range(1, ends.size):
        ends[i] += ends[i - 1]
    for n in range(rows.size - 1, -1, -1):
        # from the last edge to the first, so `ends` falls to the starts of the rows
        at = ends[rows[n] + 1] - 1
        ends[rows[n] + 1] = at
        out[at], out_values[at] = others[n], values[n]
    for i in range(1, ends.size - 1):
        ends[i] = ends[i + 1]
    ends[ends.size - 1] = rows.size


@kernel
def append_rows(
    ends: Array,
    others: Array,
    values: Array,
    node: int,
    at: Array,
    out: Array,
    out_values: Array,
) -> None:
    """Append a batch of grouped edges to the edges of each row.

    `ends` (n + 1,): see `by_row`. `others`: the other ends; `node` is added to each of
    them. `at` (n,): index in `out` for the next edge of each row; updated.
    """
    for i in range(at.size):
        to = at[i]
        for e in range(ends[i], ends[i + 1]):
            out[to], out_values[to] = others[e] + node, values[e]
            to += 1
        at[i] = to


@kernel
def kth_smallest(ends: Array, values: Array, k: int, out: Array, some: Array) -> None:
    """Find the k-th smallest value of each row that has at least k values.

    `ends` (n + 1,): see `by_row`. `some`: scratch, as long as the longest row.

    This is Hoare's FIND (1961, Communications of the ACM 4, algorithm 65) on a copy of
    the row. We do not use `numpy.partition`, because compiling it takes four seconds.
    """
    for i in range(out.size):
        n = ends[i + 1] - ends[i]
        if n < k:
            continue
        for m in range(n):
            some[m] = values[ends[i] + m]
        low, high = np.int64(0), n - 1
        while low < high:
            pivot = some[(low + high) >> 1]
            left, right = low, high
            while left <= right:
                while some[left] < pivot:
                    left += 1
                while pivot < some[right]:
                    right -= 1
                if left <= right:
                    some[left], some[right] = some[right], some[left]
                    left += 1
                    right -= 1
            if k - 1 <= right:
                high = right
            elif k - 1 >= left:
                low = left
            else:  # the k-th value is between the two parts, so it is the pivot
                break
        out[i] = some[k - 1]


SIZE, SEED, DONE, PAUSED = range(4)
"""Indexes in the state of `order`: number of nodes in the heap; lowest rank that may be
unvisited; number of ordered nodes. The last is the node whose edges are missing, or -1.
"""


@kernel
def totals_from(y: Array, places: Array, norm: Kind, totals: Array) -> None:
    """Fill `totals` (places, n) with the totals of rows to all rows, and with infinity
    for a row and itself.

    `y` (n, d): coordinates in index order; `norm`: see `kind_of`.
    """
    for k in range(places.size):
        i = places[k]
        for j in range(totals.shape[1]):
            total = 0.0
            for c in range(y.shape[1]):
                total = add_term(total, y[i, c] - y[j, c], norm)
            totals[k, j] = total
        totals[k, i] = np.inf


@kernel
def order(
    rank: Array,
    by_rank: Array,
    expands: Array,
    degree: Array,
    nodes_at: Array,
    weights_at: Array,
    reach: Array,
    before: Array,
    place: Array,
    heap: Array,
    where: Array,
    state: Array,
) -> None:
    """Compute the order of nodes. The next node is always the node that is nearest to
    the nodes visited so far.

    Ties go to the lowest rank. A binary heap holds the nodes that have been reached but
    not visited. If it is empty, the unvisited node of lowest rank is next.

    `rank`: rank of each node; `by_rank`: nodes in the order of their ranks. `expands`:
    mask of core nodes; other nodes are reached only from these. `degree`: number of
    edges of each node; `nodes_at`, `weights_at`: addresses of their other ends (int32)
    and weights (float64). `heap`, `where`: scratch.

    If the degree of the next node is negative, the kernel stops. The caller then sets
    the degree and both addresses of node `state[PAUSED]`, and calls the kernel again.
    `state` (4,): see `DONE`; at first zeros, and -1 for the paused node.

    Output (the caller fills each array with the value in parentheses): `reach`, the
    smallest weight of an edge that reached each node (inf); `before`, the node that
    this edge came from (-1); `place`, the node's number in the order (-1).
    """
    size, seed, p = state[SIZE], state[SEED], state[PAUSED]
    for done in range(state[DONE], rank.size):
        if p >= 0:
            pass
        elif size == 0:
            while place[by_rank[seed]] >= 0:
                seed += 1
            p = np.int64(by_rank[seed])
        else:
            p = np.int64(heap[0])
            size -= 1
            last = heap[size]
            at = 0
            while True:
                child = 2 * at + 1
                if child >= size:
                    break
                if child + 1 < size:
                    a, b = heap[child], heap[child + 1]
                    if reach[b] < reach[a] or (
                        reach[b] == reach[a] and rank[b] < rank[a]
                    ):
                        child += 1
                c = heap[child]
                if reach[last] < reach[c] or (
                    reach[last] == reach[c] and rank[last] < rank[c]
                ):
                    break
                heap[at] = c
                where[c] = at
                at = child
            if size:
                heap[at] = last
                where[last] = at
        place[p] = done
        node, p = p, np.int64(-1)
        if not expands[node]:
            continue
        if degree[node] < 0:
            state[SIZE], state[SEED] = size, seed
            state[DONE], state[PAUSED] = done, node
            return
        for e in range(degree[node]):
            q = int32_at(nodes_at[node], e)
            weight = float64_at(weights_at[node], e)
            if place[q] >= 0 or not weight < reach[q]:
                continue
            if before[q] < 0:
                at = size
                size += 1
            else:
                at = where[q]
            reach[q] = weight
            before[q] = node
            while at > 0:
                c = heap[(at - 1) // 2]
                if reach[c] < weight or (reach[c] == weight and rank[c] < rank[q]):
                    break
                heap[at] = c
                where[c] = at
                at = (at - 1) // 2
            heap[at] = q
            where[q] = at
    state[DONE] = rank.size


@kernel
def spanning(left: Array, right: Array, parent: Array, kept: Array) -> int:
    """Find the spanning forest of edges that are sorted by weight; return its number of
    edges.

    `kept`: output, the indexes of the forest's edges.
    """
    number = 0
    for n in range(left.size):
        a, b = find(parent, left[n]), find(parent, right[n])
        if a != b:
            if a < b:
                parent[b] = a
            else:
                parent[a] = b
            kept[number] = n
            number += 1
    return number


@kernel
def _sort_short_runs(order: Array, weight: Array, key: Array, many: Array) -> int:
    """Sort the short runs for `sort_ties`.

    Write start and stop of each longer run to `many`; return their number.
    """
    start, number = 0, 0
    for stop in range(1, order.size + 1):
        if stop < order.size and weight[order[stop]] == weight[order[start]]:
            continue
        if stop - start > MAX_INSERTION:
            many[number, 0], many[number, 1] = start, stop
            number += 1
        else:
            for n in range(start + 1, stop):
                moved = order[n]
                at = n
                while at > start and key[order[at - 1]] > key[moved]:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = moved
        start = stop
    return number


def sort_ties(order: Array, weight: Array, key: Array) -> None:
    """Sort entries of `order` with equal weights by a second key; `order` is already
    sorted by weight.

    NumPy sorts the longer runs, because compiling a sort with Numba takes two seconds.
    """
    many = np.empty((len(order) // MAX_INSERTION, 2), np.int64)
    for start, stop in many[: _sort_short_runs(order, weight, key, many)].tolist():
        some = order[start:stop]
        some[:] = some[np.argsort(key[some])]


@kernel
def attach(
    rows: Array, names: Array, weights: Array, best: Array, best_name: Array
) -> None:
    """For each row, keep the smallest (weight, id) of its edges.

    `rows`, `names`, `weights`: row, id of the other end, and weight of each edge.
    `best`, `best_name`: the result, updated.
    """
    for n in range(rows.size):
        i, w = rows[n], weights[n]
        if w < best[i] or (w == best[i] and names[n] < best_name[i]):
            best[i] = w
            best_name[i] = names[n]
