"""What joins of tiles that keep no pairs know of each tile, so that most pairs need not be found.

A join counts the pairs of each point, links the sets of both ends of pairs, or lowers what points without
a label know to the labels near them: its `task`.  Each point has a value (int64) by its place: how many pairs
it has; its node in a disjoint-set forest, or -1 if it takes no part; its label, or -1.  Each tile, and behind
the tiles each node of the tree of boxes, has a mark of all points below it.  Two whose marks say that no pair
of their points changes anything are not compared; and of two tiles that lie wholly within reach of each other
all pairs are known by their number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.compiled import callee, inlined
from dask_simjoin.engine.cpu.kernels.components import find
from dask_simjoin.engine.index.tiles import TILE
from dask_simjoin.metrics.types import Array

COUNT, LINK, LOWEST = range(3)
"""Tasks.  Marks of `COUNT`: 1 if all counts are enough.  Of `LINK`: a node of the one set that all points
which take part are in; or one of the following.  Of `LOWEST`: `OPEN` if a point has no label, plus `KNOWN` if
one has."""

MIXED, NOBODY = -1, -2
OPEN, KNOWN = 1, 2
ASK = 2

ENDLESS = np.iinfo(np.int64).max
"""Of counts: none is enough."""


class Notes(NamedTuple):
    """What a join of tiles that keeps no pairs works on; arrays of both sides are one if the sides are.

    Attributes
    ----------
    task : int
    enough : int
        Of counts: what is known to be at least this need not be right.
    q_values, d_values : array (points or more,), int64
    q_low, d_low : array (points or more,), int64
        Of `LOWEST`: the lowest label near each point.
    q_marks, d_marks : array (tiles and nodes of the tree,), int64
    parent : array (nodes,), int32
        The disjoint-set forest, in which the smallest node of a set is its root.
    more : array (tiles + 1,), int64
        Of counts: how many more pairs each point of a tile has than one of the tile before it.
    """

    task: int
    enough: int
    q_values: Array
    d_values: Array
    q_low: Array
    d_low: Array
    q_marks: Array
    d_marks: Array
    parent: Array
    more: Array


@inlined
def _end(tile: int, points: int) -> int:
    """One more than the number of a tile's last point."""
    end = (tile + 1) * TILE
    return end if end < points else points


@callee
def unite(parent: Array, i: int, j: int) -> int:
    """Join the sets of two nodes; the root."""
    a, b = find(parent, i), find(parent, j)
    if a < b:
        parent[b] = a
        return a
    parent[a] = b
    return b


@callee
def _both(task: int, parent: Array, x: int, y: int) -> int:
    """The mark of two parts together, of which these are the marks."""
    if task == COUNT:
        return x & y
    if task == LOWEST:
        return x | y
    if x == NOBODY or y == NOBODY:
        return x if x > y else y
    if x == MIXED or y == MIXED or find(parent, x) != find(parent, y):
        return MIXED
    return x


@callee
def mark_tile(task: int, enough: int, parent: Array, values: Array, tile: int, points: int) -> int:
    """The mark of a tile."""
    first, last = tile * TILE, _end(tile, points)
    if task == COUNT:
        for i in range(first, last):
            if values[i] < enough:
                return 0
        return 1
    if task == LOWEST:
        mark = 0
        for i in range(first, last):
            mark |= OPEN if values[i] < 0 else KNOWN
        return mark
    root = NOBODY
    for i in range(first, last):
        if values[i] >= 0:
            own = find(parent, values[i])
            if root != NOBODY and own != root:
                return MIXED
            root = own
    return root


@callee
def mark_tiles(notes: Any, values: Array, marks: Array, points: int) -> None:
    """Mark all tiles of a side."""
    for tile in range(-(-points // TILE)):
        marks[tile] = mark_tile(notes.task, notes.enough, notes.parent, values, tile, points)


@callee
def mark_nodes(notes: Any, marks: Array, tiles: int, levels: Array) -> None:
    """Mark all nodes of a side's tree, whose tiles are marked."""
    below, number = 0, tiles
    for level in range(levels.size - 1):
        begin = tiles + levels[level]
        for node in range(levels[level + 1] - levels[level]):
            mark = marks[below + node * TILE]
            for child in range(node * TILE + 1, _end(node, number)):
                mark = _both(notes.task, notes.parent, mark, marks[below + child])
            marks[begin + node] = mark
        below, number = begin, levels[level + 1] - levels[level]


@inlined
def settled(task: int, x: int, y: int) -> int:
    """Whether pairs between what has these marks change nothing: 1, 0, or `ASK`: if the nodes are in one set.

    It is given no arrays, whose references would be counted with every call.
    """
    if task == COUNT:
        return x & y
    if task == LOWEST:
        return ((x & (y >> 1)) | ((x >> 1) & y)) & 1 ^ 1
    if x >= 0 and y >= 0:
        return 1 if x == y else ASK
    return 1 if x == NOBODY or y == NOBODY else 0


@callee
def _tie_tile(notes: Any, values: Array, marks: Array, tile: int, points: int, root: int) -> int:
    """Join all points of a tile that take part with a set, or with each other (-1); its root or -1."""
    if marks[tile] == NOBODY:
        return root
    if marks[tile] >= 0:
        root = marks[tile] if root < 0 else unite(notes.parent, root, marks[tile])
    else:
        for i in range(tile * TILE, _end(tile, points)):
            if values[i] >= 0:
                root = values[i] if root < 0 else unite(notes.parent, root, values[i])
    marks[tile] = root
    return root


@callee
def own_pairs(notes: Any, a: int, points: int) -> None:
    """Note that all points of a tile are near each other."""
    first, last = a * TILE, _end(a, points)
    if notes.task == LINK:
        _tie_tile(notes, notes.q_values, notes.q_marks, a, points, np.int64(-1))
        return
    for i in range(first, last):
        notes.q_values[i] += last - 1 - i
        notes.d_values[i] += i - first
    notes.q_marks[a] = 1 if last - first - 1 >= notes.enough else 0


@callee
def all_pairs(notes: Any, a: int, q_points: int, node: int, first: int, last: int, d_points: int) -> None:
    """Note that all points of a tile are near all those of tiles first ... last-1, marked as a node's."""
    if notes.task == LINK:
        root = notes.d_marks[node]
        if root == NOBODY or notes.q_marks[a] == NOBODY:
            return
        if root < 0:
            for tile in range(first, last):
                root = _tie_tile(notes, notes.d_values, notes.d_marks, tile, d_points, root)
        root = _tie_tile(notes, notes.q_values, notes.q_marks, a, q_points, root)
        notes.d_marks[node] = root
        return
    number = _end(last - 1, d_points) - first * TILE
    begin, end = a * TILE, _end(a, q_points)
    for i in range(begin, end):
        notes.q_values[i] += number
    notes.more[first] += end - begin
    notes.more[last] -= end - begin
    if number >= notes.enough:
        notes.q_marks[a] = 1
