"""Kernels that build and condense cluster hierarchies, and merge forests.

Clusters are numbered so that children have larger numbers than their parent. Cluster 0
contains all rows.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import find
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.tile_simd import prefetch
from dask_simjoin.metrics.norms import Array
from dask_simjoin.sizes import RUN


@kernel
def merge_rows(
    left: Array, right: Array, parent: Array, node: Array, size: Array
) -> None:
    """Build the single-linkage dendrogram of a tree: merge rows along its edges, the
    lightest first.

    `left`, `right` (n-1,): the two rows of each edge, in ascending order of weight.
    They are overwritten with the two operands of each merge: an operand is a row, or n
    + the number of an earlier merge. `size` (n-1,): output, the number of rows in each
    merge. `parent`, `node` (n,): scratch.
    """
    n = parent.size
    for i in range(n):
        parent[i], node[i] = i, i
    for e in range(left.size):
        a, b = find(parent, left[e]), find(parent, right[e])
        left[e], right[e] = node[a], node[b]
        rows = 0
        for child in (node[a], node[b]):
            rows += size[child - n] if child >= n else 1
        size[e] = rows
        parent[max(a, b)] = min(a, b)
        node[min(a, b)] = n + e


AHEAD = 16
"""The nodes of an edge are prefetched this many edges earlier."""


@device_function
def _root(nodes: Array, i: int) -> np.int64:
    """Return the root of a node, with path halving: see `components.find`.

    `nodes` (n, 2): the first number of a node is its parent, or minus the number of
    rows below a root.
    """
    at, up = np.int64(i), nodes[i, 0]
    while up >= 0:
        above = nodes[up, 0]
        if above < 0:
            return np.int64(up)
        nodes[at, 0] = above
        at, up = np.int64(above), nodes[above, 0]
    return at


@device_function
def _join_rings(ring: Array, a: np.int64, b: np.int64) -> np.int64:
    """Make one ring of two, and return a member of it. -1 stands for an empty ring.

    `ring`: the next member of each member.
    """
    if a < 0 or b < 0:
        return max(a, b)
    ring[a], ring[b] = ring[b], ring[a]
    return a


@kernel
def condense(
    edges: tuple[Array, Array, Array],
    min_rows: int,
    nodes: Array,
    own: Array,
    leaves: Array,
    last: Array,
    parent: Array,
    birth: Array,
    rows: Array,
    ring: Array,
    waiting: Array,
) -> int:
    """Find the clusters of at least `min_rows` rows in a tree. Return how many numbers
    of clusters were given.

    Components of rows are joined along the edges, the shortest first. Edges of the same
    length are one step. After a step, a component with fewer than `min_rows` rows
    waits. Any other one is a cluster. If the step joined no cluster, it is a new one. A
    single cluster continues. Several clusters are children of a new one. Rows that
    waited leave this cluster at the length of the step.

    `edges`: the two rows and the length of each edge (n-1,). `min_rows`: at most n.
    `nodes` (n, 2), int32: -1 and the row itself, for each row. `own` (n,), `ring`,
    `waiting`: scratch. Output: the second column of `nodes` has, for each row, an edge
    of the step that makes it leave its cluster. `leaves` (n-1,): this cluster, for
    these edges. `last`: for each cluster, the last edge that joins rows to it; -1 if
    the number is not used. `parent`, `birth`, `rows`: parent of each cluster, 1 /
    distance where it splits off, and its number of rows.
    """
    # The second column of `nodes` has rings of rows that wait. In a component of at
    # least `min_rows` rows, `own` of the root is a cluster. During a step, the clusters
    # of a component are in a ring. `waiting` of this cluster is a row of the component
    # that waits, or -1.
    left, right, away = edges
    number, stop = 0, 0
    next_row, first_node = nodes[:, 1], nodes.ctypes.data
    while stop < left.size:
        start = stop
        while stop < left.size and away[stop] == away[start]:
            if stop + AHEAD < left.size:
                prefetch(first_node + 8 * np.int64(left[stop + AHEAD]))
                prefetch(first_node + 8 * np.int64(right[stop + AHEAD]))
            a, b = _root(nodes, left[stop]), _root(nodes, right[stop])
            some, others, c, d = a, b, np.int64(-1), np.int64(-1)
            if -nodes[a, 0] >= min_rows:
                c = np.int64(own[a])
                some = np.int64(waiting[c])
            if -nodes[b, 0] >= min_rows:
                d = np.int64(own[b])
                others = np.int64(waiting[d])
            some = _join_rings(next_row, some, others)
            nodes[min(a, b), 0] += nodes[max(a, b), 0]
            nodes[max(a, b), 0] = min(a, b)
            if -nodes[min(a, b), 0] >= min_rows:
                if c < 0 and d < 0:
                    c, number = np.int64(number), number + 1
                    ring[c], last[c], parent[c], birth[c] = c, -1, -1, 0.0
                c = _join_rings(ring, c, d)
                own[min(a, b)], waiting[c] = c, some
            stop += 1
        density = 1.0 / away[start] if away[start] > 0 else np.inf
        for e in range(stop - 1, start - 1, -1):
            root = _root(nodes, left[e])
            if -nodes[root, 0] < min_rows:
                continue
            first = np.int64(own[root])
            if last[first] >= start:  # a later edge of the step belongs to it as well
                continue
            c, joined, one = first, 0, first
            while True:
                if last[c] >= 0:
                    joined, one = joined + 1, c
                c = np.int64(ring[c])
                if c == first:
                    break
            if joined > 1:
                one, number = np.int64(number), number + 1
                parent[one], birth[one] = -1, 0.0
                while True:
                    if last[c] >= 0:
                        parent[c], birth[c] = one, density
                    c = np.int64(ring[c])
                    if c == first:
                        break
            row = np.int64(waiting[first])
            while row >= 0 and nodes[row, 1] >= 0:
                after = np.int64(nodes[row, 1])
                nodes[row, 1], row = -1 - e, after
            ring[one], waiting[one], last[one] = one, -1, e
            own[root], leaves[e], rows[one] = one, one, -nodes[root, 0]
    return number


@kernel
def leave_clusters(
    nodes: Array,
    leaves: Array,
    away: Array,
    number: Array,
    start: int,
    stop: int,
    row_parent: Array,
    row_lambda: Array,
) -> None:
    """Find the last cluster of the rows `start` ... `stop` - 1, and 1 / distance where
    they leave it.

    `nodes`, `leaves`, `away`: see `condense`. `number`: new number of each cluster.
    """
    for i in range(start, stop):
        e = -1 - np.int64(nodes[i, 1])
        row_parent[i] = number[leaves[e]]
        row_lambda[i] = 1.0 / away[e] if away[e] > 0 else np.inf


@kernel
def measure_rows(
    row_parent: Array,
    row_lambda: Array,
    birth: Array,
    left: Array,
    run: Array,
    first: Array,
    stability: Array,
    death: Array,
) -> None:
    """Measure the rows that leave each cluster: see `RowMeasures` in
    `dask_simjoin.engine.protocols`.

    `left`, `run`: scratch. `first`, `stability`, `death`: output.
    """
    for c in range(birth.size):
        left[c], run[c] = 0, 0.0
        first[c], stability[c], death[c] = -1, 0.0, 0.0
    for i in range(row_parent.size):
        c = row_parent[i]
        if left[c] == 0:
            first[c] = i
        run[c] += row_lambda[i] - birth[c]
        death[c] = max(death[c], row_lambda[i])
        left[c] += 1
        if left[c] % RUN == 0:
            stability[c] += run[c]
            run[c] = 0.0
    for c in range(birth.size):
        stability[c] += run[c]


@kernel
def measure(
    parent: Array,
    birth: Array,
    rows: Array,
    stability: Array,
    death: Array,
    deepest: Array,
) -> None:
    """Add to the measures of rows what child clusters contribute.

    `stability`, `death`: see `measure_rows`. Afterwards, they are those of the cluster:
    child clusters leave it, too. `deepest`: the largest `death` among the cluster and
    all its descendants.
    """
    for c in range(1, parent.size):
        p = parent[c]
        stability[p] += (birth[c] - birth[p]) * rows[c]
        death[p] = max(death[p], birth[c])
    # a loop, because Numba takes 1.5 seconds to compile `deepest[:] = death`
    for c in range(death.size):
        deepest[c] = death[c]
    for c in range(parent.size - 1, 0, -1):
        deepest[parent[c]] = max(deepest[parent[c]], deepest[c])


@kernel
def most_stable(
    parent: Array,
    rows: Array,
    stability: Array,
    max_rows: float,
    single: bool,
    below: Array,
    chosen: Array,
) -> None:
    """Choose disjoint clusters with the largest total stability, each with at most
    `max_rows` rows.

    `single`: whether cluster 0, with all rows, may be chosen. `below`: scratch, zeros
    before.
    """
    for c in range(parent.size - 1, -1, -1):
        if c == 0 and not single:
            chosen[c] = False
            break
        kept = stability[c]
        chosen[c] = not (below[c] > kept or rows[c] > max_rows)
        if not chosen[c]:
            kept = below[c]
        if c > 0:
            below[parent[c]] += kept
    # from here on, `below` is -1 for descendants of chosen clusters
    for c in range(1, parent.size):
        inside = chosen[parent[c]] or below[parent[c]] < 0
        below[c] = -1.0 if inside else 0.0
        chosen[c] &= not inside


@kernel
def widen(
    parent: Array,
    birth: Array,
    eps: float,
    single: bool,
    chosen: Array,
    passed: Array,
    found: Array,
) -> None:
    """Replace each chosen cluster that splits off at a distance below `eps` by an
    ancestor.

    This is `cluster_selection_epsilon`. `found`: output, mask of the clusters that are
    chosen now. `passed`: scratch, zeros before.
    """
    found[:] = False
    for c in range(1, parent.size):
        if passed[parent[c]]:
            passed[c] = True
        if not chosen[c]:
            continue
        if 1.0 / birth[c] >= eps:
            found[c] = True
            continue
        if passed[c]:
            continue
        at = c
        while True:
            up = parent[at]
            if up == 0:
                at = up if single else at
                break
            at = up
            if 1.0 / birth[at] > eps:
                break
        found[at] = True
        # mark the descendants of `at` up to c; the outer loop marks those after c
        passed[at] = True
        for below in range(at + 1, c + 1):
            if passed[parent[below]]:
                passed[below] = True


@kernel
def first_rows(parent: Array, chosen: Array, of: Array, first: Array) -> None:
    """Find the first row of each chosen cluster.

    `of`: output, the chosen cluster that contains each cluster, or -1. `first`: the
    first row that leaves each cluster, or -1; afterwards, for chosen clusters, the
    first row that leaves it or a descendant.
    """
    for c in range(parent.size):
        of[c] = c if chosen[c] else (of[parent[c]] if c > 0 else -1)
        at = of[c]
        if at >= 0 and first[c] >= 0 and (first[at] < 0 or first[c] < first[at]):
            first[at] = first[c]


@kernel
def label_rows(
    row_parent: Array,
    row_lambda: Array,
    of: Array,
    names: Array,
    death: Array,
    deepest: Array,
    enough: float,
    label: Array,
    probability: Array,
    score: Array,
) -> None:
    """Fill the label, probability and outlier score of each row.

    `of`: see `first_rows`. `names`: the number of each chosen cluster. A row of cluster
    0 gets a label only if its 1 / distance is at least `enough`.
    """
    for i in range(row_parent.size):
        own, at = row_parent[i], row_lambda[i]
        most = deepest[own]
        score[i] = 0.0
        if most > 0 and at < np.inf:
            score[i] = (most - at) / most if most < np.inf else 1.0
        c = of[own]
        label[i], probability[i] = -1, 0.0
        if c < 0 or (c == 0 and at < enough):
            continue
        label[i], most = names[c], death[c]
        probability[i] = 1.0 if most == 0 or at == np.inf else min(at, most) / most


@device_function
def top(above: Array, i: int) -> int:
    """Return the root of a node.

    `above`: 1 + the parent of each node, and 0 for roots. So the initial array is all
    zeros, and its pages take no physical memory until they are written.
    """
    while above[i] > 0:
        up = above[i] - 1
        if above[up] > 0:
            above[i] = above[up]
        i = up
    return i


@kernel
def merge(
    a_weight: Array,
    a_low: Array,
    a_high: Array,
    b_weight: Array,
    b_low: Array,
    b_high: Array,
    above: Array,
    weight: Array,
    low: Array,
    high: Array,
) -> int:
    """Find the minimum spanning forest of the union of two forests; return its number
    of edges.

    Both forests are in the order of (weight, smaller id, larger id). `above`: scratch,
    a zero for each row. `weight`, `low`, `high`: output, the edges that close no cycle.
    """
    i, j, number = 0, 0, 0
    many, others = a_weight.size, b_weight.size
    while i < many or j < others:
        first = j >= others
        if i < many and not first:
            first = a_weight[i] < b_weight[j]
            if a_weight[i] == b_weight[j]:
                first = a_low[i] < b_low[j] or (
                    a_low[i] == b_low[j] and a_high[i] < b_high[j]
                )
        if first:
            w, one, other = a_weight[i], a_low[i], a_high[i]
            i += 1
        else:
            w, one, other = b_weight[j], b_low[j], b_high[j]
            j += 1
        p, q = top(above, one), top(above, other)
        if p != q:
            above[max(p, q)] = min(p, q) + 1
            weight[number], low[number], high[number] = w, one, other
            number += 1
    return number
