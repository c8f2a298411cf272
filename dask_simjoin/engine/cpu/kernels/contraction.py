"""What is known of the tree of two indexes before any edge between them is sought."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import find
from dask_simjoin.engine.cpu.kernels.jit import kernel
from dask_simjoin.metrics.types import Array

SPREAD, BITS = 2654435769, 2**32 - 1
"""2**32 by the golden ratio: products with it are spread evenly in their upper bits (Knuth, TAOCP 3, 6.4)."""


@kernel
def nodes_of(names: Array, first: int, ends: Array, table: Array, found: Array) -> None:
    """Find the nodes of ends that are called by names; `first`: node of the first name.

    `table`: as many as a power of two that is at least twice the number of names, all -1.
    """
    last, shift = table.size - 1, 32
    while (1 << (32 - shift)) < table.size:
        shift -= 1
    for i in range(names.size):
        at = ((np.int64(names[i]) * SPREAD) & BITS) >> shift
        while table[at] >= 0:
            at = (at + 1) & last
        table[at] = i
    for e in range(ends.size):
        at = ((np.int64(ends[e]) * SPREAD) & BITS) >> shift
        while names[table[at]] != ends[e]:
            at = (at + 1) & last
        found[e] = first + table[at]


@kernel
def contract(component: Array, bound: Array, weight: Array, low: Array, high: Array, parent: Array,
             joined: Array, sizes: Array) -> tuple[int, int]:  # fmt: skip
    """Join nodes along those edges that are in the tree of both for sure, and number what is joined.

    An edge of one side's tree, in its order, joins two components, of each of which it is the least edge that
    leaves it on its side.  If all edges of either to the other side are heavier, it is in the tree of both.

    Parameters
    ----------
    component : array (nodes,), int32
        -1 where there is no node; else overwritten by the number of what the node is in.
    bound : array (nodes,), float64
        What edges to the other side are at least; overwritten.
    weight, low, high : array (edges,)
        Edges of each tree in order, and their nodes: those that are not sure are moved to the front.
    parent, joined, sizes : array (nodes,), int32
        Room; `sizes` gets the nodes of each component.

    Returns
    -------
    int, int
        How many components, and edges that are not sure.
    """
    for i in range(component.size):
        parent[i] = joined[i] = i
    kept = 0
    for e in range(weight.size):
        i, j = low[e], high[e]
        a, b = find(parent, i), find(parent, j)
        if max(bound[a], bound[b]) > weight[e]:
            p, q = find(joined, i), find(joined, j)
            joined[max(p, q)] = min(p, q)
        else:
            weight[kept], low[kept], high[kept] = weight[e], i, j
            kept += 1
        parent[max(a, b)] = min(a, b)
        bound[min(a, b)] = min(bound[a], bound[b])
    number = 0
    for i in range(component.size):
        if component[i] < 0:
            continue
        above = find(joined, i)
        if above == i:  # the first node of its component
            component[i], sizes[number] = number, 0
            number += 1
        component[i] = component[above]
        sizes[component[i]] += 1
    return number, kept
