"""Marks of tiles for joins that keep no pairs, and their counters for profiles.

Such a join has one of three tasks.  Each point has a value (int64), by position:

- `COUNT` counts the pairs of each point.  The value is that number.
- `LINK` unites the sets of both ends of pairs.  The value is a node of a disjoint-set forest, or -1 for a
  point that takes no part.
- `LOWEST` finds the lowest label near each query without a label.  The value is a label, or -1.

Each tile has a mark that summarizes its points. The nodes of the tree of boxes follow with theirs.  Two
tiles are not compared if their marks show that no pair of them changes anything.  If all points of two tiles
are within reach of each other, the number of their pairs is known without a comparison.

Several threads may share `COUNT` in one index, and `LOWEST`.  Each has a range of query tiles, writes only
values of these, and has marks of its own.

Kernels take addresses of arrays: with arrays, compilation took 1.5 times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_function, kernel
from dask_simjoin.engine.cpu.kernels.simd import add_long, int32_at, long_at, put_int32, put_long
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Array

COUNT, LINK, LOWEST = range(3)
"""Tasks, and their marks.

- `COUNT`: 1 if all counts are enough, else 0;
- `LINK`: a node of the only set among the points that take part, `MIXED` or `NOBODY`;
- `LOWEST`: of data, the lowest label, or `ENDLESS`; of queries, the highest number that a lower label would
  replace, or -1.
"""

MIXED, NOBODY = -1, -2
ASK = 2

ENDLESS = np.iinfo(np.int64).max
"""Value of `enough` for complete counts: no count is enough."""


class Notes(NamedTuple):
    """Arrays of a join of tiles that keeps no pairs.  Those for queries and data are one in a self-join.

    Attributes
    ----------
    task : int
    enough : int
        For `COUNT`: counts from this on need not be exact.
    q_values, d_values : address of int64 (points or more,)
    q_low : address of int64 (queries or more,)
        For `LOWEST`: the lowest label near each query.
    d_low : int
        0: data have no such labels.
    q_marks, d_marks : address of int64 (tiles and nodes of the tree,)
    parent : address of int32 (nodes,)
        The disjoint-set forest.  The root of a set is its smallest node.
    more : address of int64 (tiles + 1,)
        For `COUNT`: pairs of each point of a tile, minus those for the tile before it.
    first, stop : int
        The tiles of queries.  In a self-join other tiles are only data.
    window : int
        Tiles of a self-join are first compared with this number of tiles from themselves on.
    turns : int
        Turn that ends the call.  In a self-join queries have two turns: with their window, and with the rest.
    both : bool
        Whether pairs count for data, too, which are queries of a self-join.  Else all data are marked 1.
    """

    task: int
    enough: int
    q_values: int
    d_values: int
    q_low: int
    d_low: int
    q_marks: int
    d_marks: int
    parent: int
    more: int
    first: int
    stop: int
    window: int
    turns: int
    both: bool


@inline_function
def _end(tile: int, points: int) -> int:
    """One more than the number of a tile's last point."""
    end = (tile + 1) * TILE
    return end if end < points else points


@device_function
def root_of(parent: int, i: int) -> int:
    """The root of a node; every other node on the way is tied to its grandparent (path halving)."""
    up = int32_at(parent, i)
    while up != i:
        above = int32_at(parent, up)
        put_int32(parent, i, above)
        i = above
        up = int32_at(parent, i)
    return i


@device_function
def unite(parent: int, i: int, j: int) -> int:
    """Join the sets of two nodes; return the root."""
    a, b = root_of(parent, i), root_of(parent, j)
    if a < b:
        put_int32(parent, b, a)
        return a
    put_int32(parent, a, b)
    return b


@device_function
def _both(task: int, parent: int, x: int, y: int) -> int:
    """Return the mark of two parts together, from the mark of each."""
    if task == COUNT:
        return x & y
    if task == LOWEST:
        return x if x < y else y
    if x == NOBODY or y == NOBODY:
        return x if x > y else y
    if x == MIXED or y == MIXED or root_of(parent, x) != root_of(parent, y):
        return MIXED
    return x


@device_function
def mark_tile(notes: Any, values: int, low: int, tile: int, points: int) -> int:
    """The mark of a tile; `low`: `q_low`, or `d_low` for a tile of data."""
    first, last = tile * TILE, _end(tile, points)
    task, enough, parent = notes.task, notes.enough, notes.parent
    if task == COUNT:
        for i in range(first, last):
            if long_at(values, i) < enough:
                return 0
        return 1
    if task == LOWEST:
        mark = ENDLESS if low == 0 else -1
        for i in range(first, last):
            value = long_at(values, i)
            if low == 0:
                mark = value if 0 <= value < mark else mark
            elif value < 0:
                worst = long_at(low, i)
                mark = worst if worst > mark else mark
        return mark
    root = NOBODY
    for i in range(first, last):
        value = long_at(values, i)
        if value >= 0:
            own = root_of(parent, value)
            if root != NOBODY and own != root:
                return MIXED
            root = own
    return root


@device_function
def open_points(task: int, enough: int, values: int, low: int, tile: int, points: int, mark: int) -> Any:
    """Mask of the queries of a tile that pairs with a tile of data with this mark may change."""
    first, mask = tile * TILE, np.uint64(0)
    for i in range(first, _end(tile, points)):
        value = long_at(values, i)
        # branch-free: counts and labels are unpredictable
        may = (value < 0) & (long_at(low, i) > mark) if task == LOWEST else value < enough
        mask |= np.uint64(may) << np.uint64(i - first)
    return mask


@device_function
def mark_tiles(notes: Any, values: int, low: int, marks: int, first: int, stop: int, points: int) -> None:
    """Mark tiles `first` ... `stop` - 1 of a side."""
    for tile in range(first, stop):
        put_long(marks, tile, mark_tile(notes, values, low, tile, points))


@device_function
def mark_nodes(notes: Any, marks: int, tiles: int, levels: int, height: int) -> None:
    """Mark all nodes of a side's tree, whose tiles are marked."""
    below, number = 0, tiles
    for level in range(height):
        begin, end = long_at(levels, level), long_at(levels, level + 1)
        for node in range(end - begin):
            mark = long_at(marks, below + node * TILE)
            for child in range(node * TILE + 1, _end(node, number)):
                mark = _both(notes.task, notes.parent, mark, long_at(marks, below + child))
            put_long(marks, tiles + begin + node, mark)
        below, number = tiles + begin, end - begin


@inline_function
def settled(task: int, x: int, y: int) -> int:
    """Whether pairs between parts with these marks change nothing: 1, 0, or `ASK` to compare their sets.

    `x`: of queries; `y`: of data.
    """
    if task == COUNT:
        return x & y
    if task == LOWEST:
        return int(y >= x)
    if x >= 0 and y >= 0:
        return 1 if x == y else ASK
    return 1 if x == NOBODY or y == NOBODY else 0


@device_function
def _tie_tile(parent: int, values: int, marks: int, tile: int, points: int, root: int) -> int:
    """Join the participating points of a tile with the set of `root`, or with each other if that is -1.

    Return the root of the joined set, or -1.
    """
    mark = long_at(marks, tile)
    if mark == NOBODY:
        return root
    if mark >= 0:
        root = mark if root < 0 else unite(parent, root, mark)
    else:
        for i in range(tile * TILE, _end(tile, points)):
            value = long_at(values, i)
            if value >= 0:
                root = value if root < 0 else unite(parent, root, value)
    put_long(marks, tile, root)
    return root


@device_function
def own_pairs(notes: Any, a: int, points: int) -> None:
    """Record that all points of a tile are near each other."""
    first, last = a * TILE, _end(a, points)
    if notes.task == LINK:
        _tie_tile(notes.parent, notes.q_values, notes.q_marks, a, points, np.int64(-1))
        return
    for i in range(first, last):
        add_long(notes.q_values, i, last - 1 - i)
        add_long(notes.d_values, i, i - first)
    put_long(notes.q_marks, a, mark_tile(notes, notes.q_values, notes.q_low, a, points))


@device_function
def all_pairs(notes: Any, a: int, q_points: int, node: int, first: int, last: int, d_points: int,
              both: Any) -> None:  # fmt: skip
    """Record that all points of a tile are near all points of tiles first ... last-1, below a marked node.

    `both`: whether these points are counted, too.
    """
    parent, q_marks, d_marks = notes.parent, notes.q_marks, notes.d_marks
    if notes.task == LINK:
        root = long_at(d_marks, node)
        if root == NOBODY or long_at(q_marks, a) == NOBODY:
            return
        if root < 0:
            for tile in range(first, last):
                root = _tie_tile(parent, notes.d_values, d_marks, tile, d_points, root)
        root = _tie_tile(parent, notes.q_values, q_marks, a, q_points, root)
        put_long(d_marks, node, root)
        return
    number = _end(last - 1, d_points) - first * TILE
    begin, end = a * TILE, _end(a, q_points)
    for i in range(begin, end):
        add_long(notes.q_values, i, number)
    put_long(q_marks, a, mark_tile(notes, notes.q_values, notes.q_low, a, q_points))
    if both and last == first + 1 and notes.enough != ENDLESS:  # their mark shows counts of points only
        for j in range(first * TILE, _end(first, d_points)):
            add_long(notes.d_values, j, end - begin)
        put_long(d_marks, first, mark_tile(notes, notes.d_values, notes.d_low, first, d_points))
    elif both:
        add_long(notes.more, first, end - begin)
        add_long(notes.more, last, begin - end)


@kernel
def windows(x: Array, keys: Array, starts: Array, offsets: Array, reach: float, told: Array) -> None:
    """Count rows of cells that the sweep looks up, those that exist, and points in its windows.

    `told` (3,): the three counters; `x`: the swept coordinate (n or more,); `offsets`: differences of keys
    between a row and its neighbor rows, 0 first.
    """
    for r in range(keys.size):
        for o in range(offsets.size):
            told[0] += 1
            p = np.searchsorted(keys, keys[r] + offsets[o])
            if p == keys.size or keys[p] != keys[r] + offsets[o]:
                continue
            told[1] += 1
            lo, stop = starts[p], starts[p + 1]
            hi = lo
            for i in range(starts[r], starts[r + 1]):
                if offsets[o] == 0:
                    lo = i + 1
                while lo < stop and x[i] - x[lo] > reach:
                    lo += 1
                hi = max(hi, lo)
                while hi < stop and x[hi] - x[i] <= reach:
                    hi += 1
                told[2] += hi - lo


@kernel
def tiles(low: Array, high: Array, z: Array, points: int, reach: float, norm: Kind, told: Array) -> None:
    """Count pairs of tiles whose boxes are near, queries near a tile's box, and their candidates.

    `told` (3,): the three counters; `low`, `high` (tiles, k): the boxes; `z` (tiles, k, 64): the points.
    """
    number, k = low.shape
    for a in range(number):
        for b in range(a, number):
            total = 0.0
            for m in range(k):
                gap = max(np.float64(low[b, m]) - high[a, m], np.float64(low[a, m]) - high[b, m])
                total = add_term(total, max(gap, 0.0), norm)
                if total > reach:
                    break
            if total > reach:
                continue
            told[0] += 1
            for t in range(min(TILE, points - a * TILE)):
                total = 0.0
                for m in range(k):
                    at = np.float64(z[a, m, t])
                    gap = max(low[b, m] - at, at - high[b, m])
                    total = add_term(total, max(gap, 0.0), norm)
                if total <= reach:
                    told[1] += 1
                    told[2] += min(TILE, points - b * TILE) - (t + 1 if a == b else 0)
