"""Search nearest neighbors in few dimensions on the GPU, with one thread per row; needs
CuPy, but no cuDF.

`kernels/nearest_rows.cu` describes the search, and `kernels/leaves.cu` its tree.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import cupy
import numpy as np

from dask_simjoin.engine.gpu import load
from dask_simjoin.engine.gpu.load import NOWHERE
from dask_simjoin.engine.gpu.sources import LEAF, ROW_NORMS, nearest_rows
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.engine.index.gpu import ROW_DIMS, NearestDeviceLayout
from dask_simjoin.metrics.norms import Array, Index

WARPS = 4
"""Warps per block of `leaves.cu` and `nearest_rows.cu`."""

MAX_NEIGHBORS = {4: 128, 5: 64, 6: 32}
"""Dimensions -> largest number of neighbors that rows search on their own.

More neighbors take several passes over the tree, and in more dimensions each pass
visits more boxes.
"""

USUAL = 10
"""Usual number of neighbors. Programs are compiled in advance for it."""


def programs(layout: NearestDeviceLayout) -> list[load.Program]:
    """Return the programs that a search usually needs."""
    name, constants = nearest_rows(layout.dims, USUAL, layout.norm)
    leaves = "leaves", "order_leaves", _constants(layout.dims)
    return [leaves, (name, "search_rows", constants)]


def _constants(dims: int) -> dict[str, int]:
    return {"DIMS": dims, "EXACT": True, "LEAF": LEAF}


def _run(name: str, items: int, dims: int, *arguments: Any) -> None:
    blocks, threads = -(-items // (32 * WARPS)), 32 * WARPS
    load.kernel("leaves", name, **_constants(dims))((blocks,), (threads,), arguments)


def ordered(y: Array) -> Array:
    """Return the order of points (n, d) that are in kd order, so that leaves are small:
    positions in `y` (n,), int32.
    """
    place = cupy.empty(len(y), cupy.int32)
    rows, tiles = np.int32(len(y)), -(-len(y) // TILE)
    _run("order_leaves", 32 * tiles, y.shape[1], y, rows, np.int32(tiles), place)
    return place


class Tree(NamedTuple):
    """The points of an index in a binary tree of boxes."""

    place: Array  # (n,), int32: positions of the points in the index
    points: Array  # (leaves, d, LEAF), float32: coordinates
    names: Array  # (n,), int64: ids of the points
    pairs: Array  # (nodes above leaves, d, 4), float32: boxes of the two children
    least: Array  # (nodes,), int64: smallest ids
    starts: Array  # (levels + 1,), int32: number of the first node of each level


def make_tree(index: Index) -> Tree | None:
    """Make the tree of an index with ids (see `relabelled`) that is not empty.

    Return None if a coordinate is not a float32 number of a usual size: see
    `kernels/leaves.cu`.
    """
    y, place = index["y"], ordered(index["y"])
    rows, dims = y.shape
    sizes = [-(-rows // LEAF)]
    while sizes[-1] > 1:
        sizes.append(-(-sizes[-1] // 2))
    starts, leaves = np.cumsum([0, *sizes], dtype=np.int32), sizes[0]
    count, above = (np.int32(rows), np.int32(leaves)), -(-leaves // 2)
    names, differ = cupy.empty(rows, cupy.int64), cupy.zeros(1, cupy.int32)
    points = cupy.empty((leaves, dims, LEAF), cupy.float32)
    given = y, place, index["names"], *count
    _run("fill_leaves", leaves * LEAF, dims, *given, points, names, differ)
    if int(differ[0]):
        return None
    nodes = int(starts[-1])
    pairs = cupy.empty((max(above, nodes - leaves), dims, 4), cupy.float32)
    least = cupy.empty(nodes, cupy.int64)
    given = points, names, *count, np.int32(above)
    _run("pair_leaves", above, dims, *given, pairs, least)
    for (first, _), (start, stop) in pairwise(pairwise(starts.tolist())):
        some = (np.int32(one) for one in (stop - start, start, first, leaves))
        _run("pair_nodes", stop - start, dims, *some, pairs, least)
    return Tree(place, points, names, pairs, least, cupy.asarray(starts))


def tree_of(d: Index, layout: NearestDeviceLayout, k: int) -> Tree | None:
    """Return the tree for a search of k neighbors in `d`, and store it there for
    further searches. None: the search by tiles is faster.
    """
    dims = layout.dims
    if (
        dims > ROW_DIMS
        or k > MAX_NEIGHBORS.get(dims, k)
        or layout.norm not in ROW_NORMS
    ):
        return None
    if "tree" not in d:
        d["tree"] = make_tree(d)
    tree: Tree | None = d["tree"]
    return tree


def search(
    q: Index,
    d: Index,
    tree: Tree,
    layout: NearestDeviceLayout,
    best_d2: Array,
    best_name: Array,
    is_self_join: bool,
    bound2: float,
) -> None:
    """Do the work of `GpuSearcher.nearest` with the tree of `d`."""
    own, k, rows = q["y"] is d["y"], best_d2.shape[1], len(q["names"])
    known = int(best_name.max()) >= 0
    old = (best_d2.copy(), best_name.copy()) if known else (NOWHERE, NOWHERE)
    name, constants = nearest_rows(layout.dims, k, layout.norm)
    function = load.kernel(name, "search_rows", **constants)
    function(
        (-(-rows // (32 * WARPS)),),
        (32 * WARPS,),
        (
            np.int32(rows),
            q["y"],
            tree.place if own else ordered(q["y"]),
            q["order"],
            q["names"],
            tree.points,
            tree.names,
            np.int32(len(tree.names)),
            tree.pairs,
            tree.least,
            tree.starts,
            np.int32(len(tree.starts) - 1),
            np.int32(len(tree.points)),
            np.int32(is_self_join),
            np.int32(own),
            np.float64(bound2),
            np.int32(k),
            *old,
            best_d2,
            best_name,
        ),
    )
