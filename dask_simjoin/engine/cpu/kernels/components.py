"""Connected components of pairs that pass by, and the lowest label among neighbours."""

from __future__ import annotations

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.metrics.types import Array


@device_function
def find(parent: Array, i: int) -> int:
    """The root of a node; every other node on the way is tied to its grandparent (path halving)."""
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@kernel
def link(parent: Array, left: Array, right: Array, left_nodes: Array, right_nodes: Array) -> None:
    """Join the components of pairs of rows that have nodes (not -1); the smaller root becomes the root."""
    for n in range(left.size):
        i, j = left_nodes[left[n]], right_nodes[right[n]]
        if i >= 0 and j >= 0:
            a, b = find(parent, i), find(parent, j)
            if a < b:
                parent[b] = a
            elif b < a:
                parent[a] = b


@kernel
def link_nodes(parent: Array, left: Array, right: Array) -> None:
    """Join the components of both ends of edges between nodes."""
    for n in range(left.size):
        a, b = find(parent, left[n]), find(parent, right[n])
        if a < b:
            parent[b] = a
        elif b < a:
            parent[a] = b


@kernel
def roots(parent: Array) -> None:
    """Tie every node to its root: the parent of each, which is smaller, has been tied before."""
    for i in range(parent.size):
        parent[i] = parent[parent[i]]


@kernel
def lowest(left: Array, right: Array, left_labels: Array, right_labels: Array, left_low: Array,
           right_low: Array) -> None:  # fmt: skip
    """Lower what rows without a label (-1) have in `left_low`, `right_low` to their neighbours' labels."""
    for n in range(left.size):
        i, j = left[n], right[n]
        a, b = left_labels[i], right_labels[j]
        if a < 0 <= b:
            left_low[i] = min(left_low[i], b)
        elif b < 0 <= a:
            right_low[j] = min(right_low[j], a)


@kernel
def first_rows(parent: Array, order: Array, start: int, stop: int, first: Array) -> None:
    """Lower what roots have in `first` to the least row of the nodes `start` ... `stop` - 1 tied to them.

    `order`: the row of each node.  Roots before `start` are left alone: others may be at them.
    """
    for i in range(start, stop):
        root = parent[i]
        if root >= start:
            first[root] = min(first[root], order[i])


@kernel
def labels_of_roots(parent: Array, core: Array, number: Array, start: int, stop: int, labels: Array) -> None:
    """Fill the labels of nodes `start` ... `stop` - 1: of core nodes what their roots have, of others -1."""
    for i in range(start, stop):
        label = number[parent[i]]  # looked up for all: which are core nodes no processor guesses
        labels[i] = label if core[i] else -1
