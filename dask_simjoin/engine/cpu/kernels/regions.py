"""Sends points to regions: to the one each lies in, and to those of lower numbers within reach."""

from __future__ import annotations

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.metrics.types import Array


@device_function
def _find_leaves(x: Array, dim: Array, split: Array, child: Array, depth: int, own: Array,
                 place: Array, value: Array, below: Array) -> None:  # fmt: skip
    """Fill `own` with the leaf of each point: all go down as many levels, so that no branch is guessed wrong.

    A leaf that is reached before is a node here whose children are itself.  `place`, `value` (nodes), zeros,
    and `below` (2 of each): to work with.
    """
    nodes = dim.size
    if nodes == 0:
        own[:] = 0
        return
    leaves = nodes + 1
    for node in range(nodes):
        place[node], value[node] = dim[node], split[node]
        for side in range(2):
            to = child[node, side]
            below[2 * node + side] = to if to >= 0 else nodes - 1 - to
    for leaf in range(leaves):
        below[2 * (nodes + leaf)] = below[2 * (nodes + leaf) + 1] = nodes + leaf
    for i in range(x.shape[0]):
        node = 0
        for _ in range(depth):
            node = below[2 * node + (x[i, place[node]] >= value[node])]
        own[i] = node - nodes


def scratch(cuts: int) -> tuple[np.ndarray, ...]:
    """Arrays that `find_regions` works with: a stack, and the cuts of a tree of so many by node."""
    nodes = 2 * cuts + 1
    return (
        np.empty(cuts + 2, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes),
        np.empty(2 * nodes, np.int64),
    )  # fmt: skip


@kernel
def find_regions(x: Array, dim: Array, split: Array, child: Array, middle: Array, lower: Array, upper: Array,
                 depth: int, cut: Array, low_wall: Array, high_wall: Array, everywhere: bool, reach: float,
                 threshold: float, norm: Kind, own: Array, rows: Array, regions: Array, stack: Array,
                 place: Array, value: Array, below: Array) -> int:  # fmt: skip
    """Fill `own` with the region of each point of `x` (n, d), and tell which other regions need it.

    Writes the points that other regions need and those regions, as far as they fit; returns how many.
    A point is needed by every region of a lower number than its own (`everywhere`: by every region)
    whose box is within `threshold`: a gap to a box, computed as a total is, is never larger than
    the total of any point in it, as rounding is monotone.  So a point is needed by no other region that is
    further than `reach` away from all walls of its own: any other lies behind one of them.

    `middle`: the first region right of each cut; `depth`: levels of the tree; `cut`: the dimensions that
    are cut; `low_wall`, `high_wall` (regions, cut): the walls there; `norm`: see `totals.kind_of`;
    the last four: see `scratch`.
    """
    dims = x.shape[1]
    _find_leaves(x, dim, split, child, depth, own, place, value, below)
    n = 0
    for i in range(x.shape[0]):
        home = own[i]
        near = False
        for c in range(cut.size):
            at = x[i, cut[c]]
            near = not (at - low_wall[home, c] > reach and high_wall[home, c] - at > reach)
            if near:
                break
        if not near:
            if everywhere:
                if n < rows.size:
                    rows[n] = i
                    regions[n] = home
                n += 1
            continue
        until = lower.shape[0] if everywhere else home
        if until == 0:
            continue
        size = 1
        stack[0] = 0
        while size > 0:
            size -= 1
            node = stack[size]
            if node < 0:
                region = -1 - node
                if region >= until:
                    continue
                total = 0.0
                for k in range(dims):
                    gap = max(max(lower[region, k] - x[i, k], x[i, k] - upper[region, k]), 0.0)
                    total = add_term(total, gap, norm)
                if total <= threshold:
                    if n < rows.size:
                        rows[n] = i
                        regions[n] = region
                    n += 1
                continue
            away = x[i, dim[node]] - split[node]
            if away >= -reach and middle[node] < until:
                stack[size] = child[node, 1]
                size += 1
            if away <= reach:
                stack[size] = child[node, 0]
                size += 1
    return n


@kernel
def deal(chunk: Array, ends: Array, free: Array, order: Array) -> None:
    """Put the rows of each chunk side by side, in their order.

    `chunk` (n,): of each row; `ends` (chunks + 1,), zeros: filled with where those of each begin and end;
    `free` (chunks + 1,): scratch; `order` (n,): filled with the rows.
    """
    for i in range(chunk.size):
        ends[chunk[i] + 1] += 1
    for c in range(1, ends.size):
        ends[c] += ends[c - 1]
    for c in range(ends.size):
        free[c] = ends[c]
    for i in range(chunk.size):
        order[free[chunk[i]]] = i
        free[chunk[i]] += 1
