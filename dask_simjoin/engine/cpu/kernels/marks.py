"""Joins of tiles: tuples that pass addresses to kernels, and the marks of tiles in
joins that write no pairs.

A join that writes no pairs has one of three tasks. Each point has a value (int64), in
index order:

- `COUNT` counts the pairs of each point. The value is this count.
- `LINK` unites the sets of the two points of each pair. The value is the point's node
  in a disjoint-set forest, or -1 if the point takes no part.
- `LOWEST` finds the lowest label near each query without a label. The value is the
  point's label, or -1.

Each tile has a mark, which summarizes the values of its points. So does each node of
the tree of boxes; these marks come after the marks of the tiles. Two tiles are skipped
if their marks show that none of their pairs can change a value. If the boxes of two
tiles show that all their points are near each other, all pairs are recorded without a
comparison.

Several threads may share a task. For `LOWEST`, and for `COUNT` in a self-join, each
thread has its own marks and its own range of query tiles. It changes only values of
these tiles. For `LINK`, all threads change one forest and one array of marks, without
locks. A mark that is a node says that the points of a tile are in the set of that node.
Sets only grow, so this stays true, and a thread may replace a mark by an older one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import root_of, unite
from dask_simjoin.engine.cpu.kernels.jit import device_function, inline_function
from dask_simjoin.engine.cpu.kernels.scan import STATES
from dask_simjoin.engine.cpu.kernels.simd import (
    Terms,
    add_long,
    long_at,
    put_long,
)
from dask_simjoin.engine.cpu.kernels.totals import Kind
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Index


class TileSide(NamedTuple):
    """Number of `points` of an index, and the addresses of its tiles.

    `low`, `high` (tiles, dims): boxes, float32 or float64. `names` (points,), int32:
    what the join writes for a point. `z`: the points' vectors that are tested against
    boxes, `z_step` bytes per tile. `first`: the data that a comparison of tiles reads
    first. It is prefetched, and has `step` bytes per tile.
    """

    points: int
    low: int
    high: int
    names: int
    z: int
    z_step: int
    first: int
    step: int


class Boxes(NamedTuple):
    """The tree of an index's boxes.

    It has the addresses of three arrays: lower and upper bounds (groups, dims, 64), and
    `levels`, the first group of each level. `size`: bytes of one number in these
    bounds. `tiles`: number of boxes in the lowest level. `height`: number of levels.
    """

    tiles: int
    dims: int
    size: int
    lower: int
    upper: int
    levels: int
    height: int


class Out(NamedTuple):
    """Addresses of the output, int32 names of left and of right rows; and its capacity
    in pairs.
    """

    left: int
    right: int
    cap: int


class Scratch(NamedTuple):
    """Addresses of scratch arrays: candidate tiles, masks of points, a stack of boxes,
    and their levels.
    """

    found: int
    masks: int
    stack: int
    depth: int


class TileJoin(NamedTuple):
    """Everything that all comparisons of a join share.

    `q`, `d`: terms of both indexes, see `scan.terms_of`. `boxes`: the boxes of the data.
    `reach`: largest total of the gaps between two boxes that may have a pair.
    `sure_span`: largest total of the spans of two boxes that proves all their points to
    be pairs. `norm`: see `totals.kind_of`.
    """

    q: Terms
    q_side: TileSide
    d: Terms
    d_side: TileSide
    boxes: Boxes
    reach: Any
    sure_span: Any
    threshold: float
    norm: Kind
    is_self_join: bool
    scratch: Scratch


def scratch(tiles: int) -> tuple[np.ndarray, ...]:
    """Allocate the arrays of a `Scratch` for a join whose data have this number of
    tiles.
    """
    # 64 children on each of 8 levels
    return (
        np.empty(tiles, np.int64),
        np.zeros(STATES, np.uint64),
        np.empty(512, np.int64),
        np.empty(512, np.int64),
    )


def new_state(first: int = 0, stop: int = 0) -> np.ndarray:
    """Return the state of a join before it starts: see `kernels.tiles`. The join takes
    the tiles `first` ... `stop` - 1; with `Notes`, these have the tiles.
    """
    return np.array([first, 0, 0, 0, 0, stop], np.int64)


def points_of(index: Index, names: np.ndarray, first: tuple[int, int]) -> TileSide:
    """Return the `TileSide` of an index; `first`: its fields `first` and `step`.

    The addresses are valid as long as the arrays of the index exist.
    """
    z = index["z"]
    assert names.dtype == np.int32
    return TileSide(
        len(index["y"]),
        index["low"].ctypes.data,
        index["high"].ctypes.data,
        names.ctypes.data,
        z.ctypes.data,
        z.strides[0],
        *first,
    )


def boxes_of(index: Index) -> Boxes:
    """Return the `Boxes` of an index. The addresses are valid as long as its arrays
    exist.
    """
    low, (lower, upper, levels) = (
        index["low"],
        (index[name] for name in ("lower", "upper", "levels")),
    )
    return Boxes(
        len(low),
        low.shape[1],
        low.itemsize,
        lower.ctypes.data,
        upper.ctypes.data,
        levels.ctypes.data,
        len(levels) - 1,
    )


COUNT, LINK, LOWEST = range(3)
"""The three tasks. They define the mark of a tile as follows:

- `COUNT`: 1 if all counts are at least `enough`, else 0;
- `LINK`: a node of the set that all participating points belong to; `MIXED` if they
  belong to several sets; `NOBODY` if no point takes part;
- `LOWEST`, tile of data: the lowest label, or `ENDLESS` if no point has a label;
- `LOWEST`, tile of queries: the highest `q_low` of its queries without a label, or -1
  if all have labels.
"""

MIXED, NOBODY = -1, -2
"""Marks of `LINK` that are not nodes."""

ENDLESS = np.iinfo(np.int64).max
"""Value of `enough` for exact counts: no count reaches it."""


class Notes(NamedTuple):
    """Arguments of a join of tiles that writes no pairs. In a self-join, queries and
    data share arrays.
    """

    task: int  # `COUNT`, `LINK` or `LOWEST`
    enough: int  # for `COUNT`: counts of at least this value need not be exact
    # address of int64 (points or more,): value of each query, and of each point of the
    # data
    q_values: int
    d_values: int
    # for `LOWEST`: address of int64 (queries or more,), the lowest label found near
    # each query
    q_low: int
    d_low: int  # 0, because the data need no such array
    # address of int64 (tiles and nodes of the tree,): marks of the queries, and of the
    # data
    q_marks: int
    d_marks: int
    # for `LINK`: address of int32 (nodes,), the disjoint-set forest. The root of a set
    # is its smallest node
    parent: int
    # for `COUNT`: address of int64 (tiles + 1,). Each is added to the counts of all
    # points in a tile, as the difference from the tile before it
    more: int
    # the tiles `first` ... `stop` - 1 are the queries; in a self-join, other tiles are
    # only data
    first: int
    stop: int
    # in a self-join, each tile is first compared with this number of tiles: itself and
    # the tiles after it
    window: int
    # the call ends before this turn. In a self-join each tile of queries has two turns.
    # In the first it is compared with its window, and in the second with all other
    # tiles
    turns: int
    # for `COUNT`: whether a pair counts for both of its points. If not, either all data
    # are marked 1, or pairs count for the earlier of their places. For `LOWEST`: whether
    # tiles of data have no marks yet
    both: bool
    # for `COUNT` in a self-join: whether a pair counts only for the earlier of its
    # places
    later: bool


@inline_function
def _end(tile: int, points: int) -> int:
    """The end of a tile's range of points: one more than its last point."""
    end = (tile + 1) * TILE
    return end if end < points else points


@device_function
def _both(task: int, parent: int, x: int, y: int) -> int:
    """Return the mark for all points below two nodes of the tree, from the nodes' marks
    `x` and `y`.
    """
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
    """Return the mark of a tile; `low`: `q_low` for a tile of queries, `d_low` for a
    tile of data.
    """
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
def open_points(
    task: int, enough: int, values: int, low: int, tile: int, points: int, mark: int
) -> Any:
    """Return a mask of a tile's queries that must be compared with a tile of data.
    `mark`: mark of the data.

    The values of the other queries cannot change.
    """
    first, mask = tile * TILE, np.uint64(0)
    for i in range(first, _end(tile, points)):
        value = long_at(values, i)
        # `&` instead of `and` avoids a branch, which would be mispredicted
        may = (
            (value < 0) & (long_at(low, i) > mark) if task == LOWEST else value < enough
        )
        mask |= np.uint64(may) << np.uint64(i - first)
    return mask


@device_function
def mark_tiles(
    notes: Any, values: int, low: int, marks: int, first: int, stop: int, points: int
) -> None:
    for tile in range(first, stop):
        put_long(marks, tile, mark_tile(notes, values, low, tile, points))


@device_function
def mark_nodes(notes: Any, marks: int, tiles: int, levels: int, height: int) -> None:
    """Compute the marks of all nodes of the tree from the marks of the tiles."""
    below, number = 0, tiles
    for level in range(height):
        begin, end = long_at(levels, level), long_at(levels, level + 1)
        for node in range(end - begin):
            mark = long_at(marks, below + node * TILE)
            for child in range(node * TILE + 1, _end(node, number)):
                mark = _both(
                    notes.task, notes.parent, mark, long_at(marks, below + child)
                )
            put_long(marks, tiles + begin + node, mark)
        below, number = tiles + begin, end - begin


@inline_function
def settled(notes: Any, x: int, y: int) -> bool:
    """Return whether no pair of queries with mark `x` and data with mark `y` can change
    a value.
    """
    if notes.task == COUNT:
        return bool(x & y)
    if notes.task == LOWEST:
        return y >= x
    if x >= 0 and y >= 0:
        return x == y or root_of(notes.parent, x) == root_of(notes.parent, y)
    return x == NOBODY or y == NOBODY


@device_function
def _tie_tile(
    parent: int, values: int, marks: int, tile: int, points: int, root: int
) -> int:
    """Unite the participating points of a tile with each other, and with the set of
    `root` unless it is -1.

    Return the root of the united set; -1 if `root` is -1 and no point takes part.
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
    """Record all pairs of points within tile `a`, because they are all near each other."""
    first, last = a * TILE, _end(a, points)
    if notes.task == LINK:
        _tie_tile(notes.parent, notes.q_values, notes.q_marks, a, points, np.int64(-1))
        return
    for i in range(first, last):
        add_long(notes.q_values, i, last - 1 - i)
        if not notes.later:
            add_long(notes.d_values, i, i - first)
    put_long(notes.q_marks, a, mark_tile(notes, notes.q_values, notes.q_low, a, points))


@device_function
def all_pairs(
    notes: Any,
    a: int,
    q_points: int,
    node: int,
    first: int,
    last: int,
    d_points: int,
    both: Any,
) -> None:
    """Record all pairs between points of tile `a` and of tiles `first` ... `last` - 1,
    which are all near.

    `node`: index in the marks of the box that holds these tiles. `both`: whether to
    record each pair for both of its points.
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
    # counts in `more` would not update the tile's mark
    if both and last == first + 1 and notes.enough != ENDLESS:
        for j in range(first * TILE, _end(first, d_points)):
            add_long(notes.d_values, j, end - begin)
        put_long(
            d_marks,
            first,
            mark_tile(notes, notes.d_values, notes.d_low, first, d_points),
        )
    elif both:
        add_long(notes.more, first, end - begin)
        add_long(notes.more, last, begin - end)
