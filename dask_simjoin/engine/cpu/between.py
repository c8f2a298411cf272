"""What is known of the tree of two indexes before any edge between them is sought."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_simjoin.engine.cpu.kernels import contraction
from dask_simjoin.engine.index import tiles
from dask_simjoin.engine.spanner import Edges
from dask_simjoin.metrics.norms import Norm, box_gap
from dask_simjoin.metrics.types import Index

COARSE = 16
"""Boxes of an index, at most, which say how far another one's tiles are."""

AT_ONCE = 256
"""Tiles whose gaps are computed at a time: workers give larger arrays back, and to take them anew costs."""


def _nodes_of(index: Index, first: int, ends: np.ndarray) -> np.ndarray:
    """Find the nodes of ends of edges, which are called by their names; `first`: the index's first node."""
    names = index["names"].astype(np.int32)
    found, table = np.empty(len(ends), np.int32), np.full(1 << (2 * len(names)).bit_length(), -1, np.int32)
    contraction.nodes_of(names, first, ends, table, found)
    return found


def _boxes(index: Index) -> tuple[np.ndarray, np.ndarray]:
    """Tell the smallest and largest coordinates of each tile (tiles, d)."""
    if "y" not in index:
        return index["low"], index["high"]
    y = index["y"]  # boxes are there, but as the filter sees them
    starts = np.arange(0, len(y), tiles.TILE)
    return np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)


def _least_across(index: Index, core: np.ndarray, other: Index, other_core: np.ndarray,
                 norm: Norm) -> np.ndarray:  # fmt: skip
    """Bound the weights of edges of each place (n,) to another index from below.

    An edge is no lighter than the gap between its place's tile and the nearest boxes of the other index, nor
    than core distances.  Neither index is empty.
    """
    (low, high), (far_low, far_high) = _boxes(index), _boxes(other)
    some = np.arange(0, len(far_low), -(-len(far_low) // COARSE))
    far_low, far_high = np.minimum.reduceat(far_low, some), np.maximum.reduceat(far_high, some)
    far_core, least = np.minimum.reduceat(other_core, some * tiles.TILE), np.empty(len(low))
    for start in range(0, len(low), AT_ONCE):
        own = slice(start, start + AT_ONCE)
        gap = box_gap(norm, low[own, None], high[own, None], far_low[None], far_high[None])
        least[own] = np.maximum(gap, far_core).min(axis=1)
    return np.maximum(np.repeat(least, tiles.TILE)[: len(core)], core)


def contracted(sides: Sequence[tuple[Index, int]], component: np.ndarray, core: np.ndarray,
               trees: Sequence[Edges],
               norm: Norm) -> tuple[np.ndarray, np.ndarray, int, tuple[np.ndarray, ...]]:  # fmt: skip
    """Join the nodes of two indexes that are joined in the tree of both for sure.

    Parameters
    ----------
    sides
        Each index, and its first node.
    component : array (nodes,), int32
        -1 where there is no node; else overwritten by the number of the component that the node is in.
    core : array (nodes,)
        Core distances, as totals.
    trees
        Of each side, by names.
    norm
        Of totals.

    Returns
    -------
    tuple
        What edges of each node to the other side are at least; the nodes of each component; how many
        components; and those edges of trees that are not sure to be in the tree of both, by nodes.
    """
    least = np.full(len(component), -1.0)
    own, far = (slice(first, first + len(index["names"])) for index, first in sides)
    if min(len(index["names"]) for index, _ in sides):
        (a, _), (b, _) = sides
        least[own] = _least_across(a, core[own], b, core[far], norm)
        least[far] = _least_across(b, core[far], a, core[own], norm)
    weight = np.concatenate([tree[0] for tree in trees])
    nodes = [_nodes_of(*side, np.concatenate(tree[1:])) for side, tree in zip(sides, trees, strict=True)]
    ends = [np.concatenate(column) for column in zip(*(np.split(both, 2) for both in nodes), strict=True)]
    parent, joined, sizes = (np.empty(len(component), np.int32) for _ in range(3))
    number, kept = contraction.contract(component, least.copy(), weight, *ends, parent, joined, sizes)
    return least, sizes, number, tuple(column[:kept] for column in (weight, *ends))
