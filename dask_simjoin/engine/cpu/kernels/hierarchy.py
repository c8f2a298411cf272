"""Kernels that build and condense cluster hierarchies, and merge forests.

Clusters are numbered so that children have larger numbers than their parent. Cluster 0
contains all rows.
"""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import find
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.norms import Array


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


@kernel
def condense(
    left: Array,
    right: Array,
    size: Array,
    away: Array,
    min_rows: int,
    owner: Array,
    stack: Array,
    row_parent: Array,
    row_lambda: Array,
    parent: Array,
    birth: Array,
    rows: Array,
) -> int:
    """Find the clusters of at least `min_rows` rows in a dendrogram; return their
    number.

    Merges are undone from the last to the first. Nested merges with the same distance
    are undone in one step. Each step splits a cluster into parts. If at least two parts
    have `min_rows` rows, they become new clusters. If only one part has that many, the
    cluster continues as this part. Rows of smaller parts leave the cluster. Clusters
    are numbered by their last merges, the last merge first.

    `left`, `right`, `size`: see `merge_rows`; `away`: distance of each merge. `owner`
    (n-1,), `stack` (n,): scratch. Output: `row_parent` (n,), the last cluster of each
    row, and `row_lambda` (n,), 1 / distance where the row leaves it. `parent`, `birth`,
    `rows`: parent of each cluster, 1 / distance where it splits off, and its number of
    rows.
    """
    n = row_parent.size
    parent[0], birth[0], rows[0] = -1, 0.0, n
    number = 1
    last = left.size - 1
    owner[:] = -1
    owner[last] = 0
    for e in range(last, -1, -1):
        own = owner[e]
        # a later merge has split this cluster already, or its rows are noise
        if own == -1:
            continue
        # this merge is a large part of a cluster that was split, so it becomes a new
        # cluster
        if own < -1:
            split = -2 - own
            parent[number], birth[number], rows[number] = (
                owner[split],
                1.0 / away[split],
                size[e],
            )
            own = np.int32(number)
            owner[e] = own
            number += 1
        # the stack is used from both ends: parts at its end, merges that are still to
        # undo at its beginning
        stack[0], todo, parts, large = e, 1, n, 0
        while todo > 0:
            todo -= 1
            merge = stack[todo]
            for child in (left[merge], right[merge]):
                if child >= n and away[child - n] == away[e]:
                    owner[child - n] = -1
                    stack[todo] = child - n
                    todo += 1
                else:
                    parts -= 1
                    stack[parts] = child
                    large += child >= n and size[child - n] >= min_rows
        density = 1.0 / away[e] if away[e] > 0 else np.inf
        for p in range(parts, n):
            child = stack[p]
            if child >= n and size[child - n] >= min_rows:
                owner[child - n] = -2 - e if large > 1 else own
                continue
            # the entries of the stack have disjoint rows, so it never has more than n
            stack[0], todo = child, 1
            while todo > 0:
                todo -= 1
                child = stack[todo]
                if child >= n:
                    stack[todo], stack[todo + 1] = left[child - n], right[child - n]
                    todo += 2
                else:
                    row_parent[child], row_lambda[child] = own, density
    return number


@kernel
def measure(
    row_parent: Array,
    row_lambda: Array,
    parent: Array,
    birth: Array,
    rows: Array,
    stability: Array,
    death: Array,
    deepest: Array,
) -> None:
    """Compute the stability of each cluster, and the largest 1 / distance where rows
    leave it.

    `death`: largest 1 / distance where rows leave the cluster itself, or where a child
    cluster splits off. `deepest`: the largest `death` among the cluster and all its
    descendants.
    """
    stability[:] = 0.0
    death[:] = 0.0
    for i in range(row_parent.size):
        c = row_parent[i]
        stability[c] += row_lambda[i] - birth[c]
        death[c] = max(death[c], row_lambda[i])
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
def name_clusters(
    row_parent: Array,
    row_lambda: Array,
    parent: Array,
    chosen: Array,
    enough: float,
    of: Array,
    names: Array,
) -> None:
    """Number the chosen clusters in the order of their first rows.

    `names`: output, the number of each cluster, -1 if it is not chosen. `of`: output,
    the chosen cluster that contains each cluster, or -1. `enough`: a row of cluster 0
    gets a label only if its 1 / distance is at least this number.
    """
    for c in range(parent.size):
        of[c] = c if chosen[c] else (of[parent[c]] if c > 0 else -1)
        names[c] = -1
    known = 0
    for i in range(row_parent.size):
        c = of[row_parent[i]]
        if c < 0 or names[c] >= 0 or (c == 0 and row_lambda[i] < enough):
            continue
        names[c] = known
        known += 1


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
    """Fill the label, probability and outlier score of each row; `of`, `names`: see
    `name_clusters`.
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
