"""Join two tile indexes of any number of dimensions.

With arrays in their place it takes half as long again to compile, as references to each are counted.

Points come in tiles of 64.  The tiles' boxes, and the boxes of 64 tiles, and so on, are
themselves stored as tiles, so one SIMD test speaks of 64 points, tiles or groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.marks import (
    ASK,
    COUNT,
    ENDLESS,
    LINK,
    LOWEST,
    MIXED,
    all_pairs,
    mark_nodes,
    mark_tile,
    mark_tiles,
    own_pairs,
    root_of,
    settled,
    unite,
)
from dask_simjoin.engine.cpu.kernels.scan import ALL, NONE, ONE, SCANS, STATES
from dask_simjoin.engine.cpu.kernels.simd import (
    Terms,
    add_long,
    int32_at,
    long_at,
    mask_at,
    number_at,
    put_int32,
    put_long,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import boxes_near, boxes_within, count_bits, lowest_bit
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.index.cpu_tiles import TILE
from dask_simjoin.metrics.norms import Index

STACK = 64 * 8


class TileSide(NamedTuple):
    """A side's tiles: their boxes `low` and `high` (tiles, dims), and `names` (points,) int32.

    `z`: of the vectors by which they are tested against boxes, `z_step` bytes a tile; `first`: of those that
    are read first when tiles are compared, `step` bytes a tile.
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
    """The tree of a side's boxes: `lower` and `upper` (groups, dims, 64), where each of its levels begins.

    `size`: bytes of a bound; `height`: number of levels, of which the first is of `tiles`.
    """

    tiles: int
    dims: int
    size: int
    lower: int
    upper: int
    levels: int
    height: int


class Out(NamedTuple):
    """Where pairs of names are written, int32, and how many there is room for."""

    left: int
    right: int
    cap: int


class Room(NamedTuple):
    """Where a join works: the tiles it found, masks of points, and a stack of boxes with their levels."""

    found: int
    masks: int
    stack: int
    depth: int


def room(tiles: int) -> tuple[np.ndarray, ...]:
    """The arrays of a `Room` for a join with so many tiles."""
    return (
        np.empty(tiles, np.int64), np.zeros(STATES, np.uint64), np.empty(STACK, np.int64),
        np.empty(STACK, np.int64),
    )  # fmt: skip


def points_of(index: Index, names: np.ndarray, first: tuple[int, int]) -> TileSide:
    """What a join is told of a side, while its arrays live; `first`: as there."""
    z = index["z"]
    assert names.dtype == np.int32
    return TileSide(
        len(index["y"]), index["low"].ctypes.data, index["high"].ctypes.data, names.ctypes.data,
        z.ctypes.data, z.strides[0], *first,
    )  # fmt: skip


def boxes_of(index: Index) -> Boxes:
    """What a join is told of the boxes of a side, while its arrays live."""
    low, (lower, upper, levels) = index["low"], (index[name] for name in ("lower", "upper", "levels"))
    return Boxes(
        len(low), low.shape[1], low.itemsize, lower.ctypes.data, upper.ctypes.data, levels.ctypes.data,
        len(levels) - 1,
    )  # fmt: skip


PROBE = 256
"""Candidate tiles after which it is tried anew whether testing points against boxes pays."""

PROBE_TESTS = 8
PREFETCHED = 16384
"""Bytes of a tile up to which two of them fit a core's first cache."""

GROUPS = 16
"""Groups of four queries in a tile, over which the next tile's prefetch is spread."""

MANY = 16
"""Neighbors of a point in a tile from which on all 64 counts are added to at once."""

WORTHWHILE = 58
"""A test costs about a twelfth of what it can save: it pays if fewer points of 64 are kept."""


@device_function
def _within_itself(low: int, high: int, dims: int, sure: Any, norm: Kind) -> bool:
    """Whether all points of a box are within a limit of each other: see `boxes_within`."""
    total = 0.0
    for k in range(dims):
        total = add_term(total, number_at(high, k, sure) - number_at(low, k, sure), norm)
    return bool(total <= sure)


@device_function
def candidates(boxes: Boxes, low: int, high: int, reach: Any, sure: Any, least: int, norm: Kind,
               notes: Any, a: int, q_points: int, d_points: int, room: Room) -> int:  # fmt: skip
    """Write the numbers of the tiles >= `least` within `reach` of tile `a` to the room; how many.

    `low`, `high`: the tile's box.  With `notes` those are left out of which nothing is to be found
    out, and those of which all pairs are within `sure` are noted at once.
    """
    d, tiles, levels = boxes.dims, boxes.tiles, boxes.levels
    n = 0
    size = 1
    put_long(room.stack, 0, 0)
    put_long(room.depth, 0, boxes.height - 1)
    while size > 0:
        size -= 1
        group, level = long_at(room.stack, size), long_at(room.depth, size)
        begins = long_at(levels, level)
        at = (begins + group) * (d * TILE * boxes.size)
        mask = boxes_near(boxes.lower + at, boxes.upper + at, d, low, high, reach, norm)
        first = least >> (6 * level)
        if first > group * TILE:
            skip = first - group * TILE
            mask = mask & (ALL << np.uint64(skip)) if skip < TILE else NONE
        whole = NONE
        if notes is not None and mask != NONE and notes.task != LOWEST:
            whole = mask & boxes_within(boxes.lower + at, boxes.upper + at, d, low, high, sure, norm)
        below = long_at(levels, level - 1) if level > 0 else 0
        limit = begins - below if level > 0 else tiles
        marks = tiles + below if level > 0 else 0
        while mask != NONE:
            bit = lowest_bit(mask)
            child = group * TILE + bit
            mask &= mask - ONE
            if child >= limit:
                break
            if notes is not None:
                x, y = long_at(notes.q_marks, a), long_at(notes.d_marks, marks + child)
                told = settled(notes.task, x, y)
                if told == 1 or (told == ASK and root_of(notes.parent, x) == root_of(notes.parent, y)):
                    continue
                begin = child << (6 * level)
                if (whole >> np.uint64(bit)) & ONE and begin >= least:
                    end = (child + 1) << (6 * level)
                    end = end if end < tiles else tiles
                    all_pairs(notes, a, q_points, marks + child, begin, end, d_points)
                    continue
            if level == 0:
                put_long(room.found, n, child)
                n += 1
            else:
                put_long(room.stack, size, child)
                put_long(room.depth, size, level - 1)
                size += 1
    return n


def _join_of(scan: Any, within: Any, variant: str) -> Any:
    """Make the kernel for a kind of terms; `scan`, `within`: see `SCANS`."""

    def join(q: Terms, q_side: TileSide, d: Terms, d_side: TileSide, boxes: Boxes, reach: Any, sure_span: Any,
             threshold: float, norm: Kind, same: bool, out: Out, notes: Any, state: int,
             room: Room) -> int:  # fmt: skip
        """Append pairs of names to `out`; the new number of pairs.

        Stops where the pairs of two tiles might not fit into it.  `state`: address of int64: number 0 is the
        tile of queries and number 1 the number of its candidate tiles that are done; number 2 is
        the room it needs (0: the join is complete).  Numbers 3 and 4 count the
        pairs that only float64 could decide and those of them that it refused.

        With `notes` nothing is written but them, which are of one side twice if `same`; with None there is
        nothing of them in what is compiled.

        `q` and `d` are what is known of the two sides: see `sides`; `norm`: see
        `totals.kind_of`; `reach`: largest gap of boxes that hold a pair, and `sure_span`: largest span of
        those that hold nothing else, as totals.
        """
        dims, tiles, masks = boxes.dims, boxes.tiles, room.masks
        box = dims * boxes.size
        q_points, d_points = q_side.points, d_side.points
        q_tiles = -(-q_points // TILE)
        n, asked, refused = 0, 0, 0
        needed = 0
        share = d_side.step // (64 * GROUPS) if d_side.step <= PREFETCHED else 0
        begin, own_round = long_at(state, 1), 0
        if notes is not None:
            task, enough, parent = notes.task, notes.enough, notes.parent
            marking = task == LINK or (task == COUNT and enough != ENDLESS)
            unsettled = MIXED if task == LINK else 0
            # tiles meet themselves first, where that tells much of them
            own_round = q_tiles if same else 0
            again = own_round  # when marks of nodes are made anew
            mark_tiles(notes, notes.q_values, notes.q_marks, q_points)
            if not same:
                mark_tiles(notes, notes.d_values, notes.d_marks, d_points)
        turn = long_at(state, 0)
        while turn < own_round + q_tiles and needed == 0:
            a = turn if turn < own_round else turn - own_round
            low, high = q_side.low + a * box, q_side.high + a * box
            if notes is not None and turn == again:
                mark_nodes(notes, notes.d_marks, tiles, boxes.levels, boxes.height)
                again = own_round + (2 * a if a > 0 else 1) if marking else -1
            if notes is not None and turn < own_round:
                count = 1
                put_long(room.found, 0, a)
                mark = long_at(notes.q_marks, a)
                if settled(task, mark, mark) == 1:
                    count = 0
                elif task != LOWEST and _within_itself(low, high, dims, sure_span, norm):
                    own_pairs(notes, a, q_points)
                    count = 0
            else:
                least = 0 if not same else (a if notes is None else a + 1)
                count = candidates(boxes, low, high, reach, sure_span, least, norm, notes, a, q_points,
                                   d_points, room)  # fmt: skip
            valid = ALL if (a + 1) * TILE <= q_points else (ONE << np.uint64(q_points - a * TILE)) - ONE
            at = q_side.z + a * q_side.z_step
            tested, kept = 0, 0
            for c in range(begin, count):
                if notes is None and n + TILE * TILE > out.cap:
                    put_long(state, 0, turn)
                    put_long(state, 1, c)
                    needed = TILE * TILE
                    break
                b = long_at(room.found, c)
                if notes is not None:
                    x, y = long_at(notes.q_marks, a), long_at(notes.d_marks, b)
                    told = settled(task, x, y)
                    if told == 1 or (told == ASK and root_of(parent, x) == root_of(parent, y)):
                        continue
                    alike = task == LINK and x >= 0 and y >= 0  # two sets: one pair is enough
                near = valid
                if c % PROBE == 0:
                    tested, kept = 0, 0
                if tested < PROBE_TESTS or kept < WORTHWHILE * tested:
                    near &= boxes_near(at, at, dims, d_side.low + b * box, d_side.high + b * box, reach, norm)
                    tested += 1
                    kept += count_bits(near)
                ahead = d_side.first + long_at(room.found, c + 1 if c + 1 < count else c) * d_side.step
                hit = scan(q, d, a, b, near, ahead, share, masks, norm)
                hits = 0
                while hit != NONE:
                    t = lowest_bit(hit)
                    hit &= hit - ONE
                    mask, sure = mask_at(masks, t), mask_at(masks, TILE + t)
                    i = a * TILE + t
                    if same and a == b:
                        # later points only: each pair once, and no point with itself
                        upto = ONE << np.uint64(t)
                        mask &= ~(upto | (upto - ONE))
                    if (
                        notes is not None
                        and task == COUNT
                        and mask & ~sure == NONE
                        and count_bits(mask) >= MANY
                    ):
                        hits += 1
                        add_long(notes.q_values, i, count_bits(mask))
                        for k in range(TILE if (b + 1) * TILE <= d_points else d_points - b * TILE):
                            add_long(notes.d_values, b * TILE + k, np.int64((mask >> np.uint64(k)) & ONE))
                        continue
                    name = int32_at(q_side.names, i)
                    while mask != NONE:
                        bit = lowest_bit(mask)
                        mask &= mask - ONE
                        j = b * TILE + bit
                        if (sure >> np.uint64(bit)) & ONE == NONE:
                            asked += 1
                            if not within(q, d, i, j, threshold, norm):
                                refused += 1
                                continue
                        if notes is not None:
                            if task == COUNT:
                                add_long(notes.q_values, i, 1)
                                add_long(notes.d_values, j, 1)
                                hits += 1
                                continue
                            x, y = long_at(notes.q_values, i), long_at(notes.d_values, j)
                            if task == LOWEST:
                                if x < 0 <= y and y < long_at(notes.q_low, i):
                                    put_long(notes.q_low, i, y)
                                elif y < 0 <= x and x < long_at(notes.d_low, j):
                                    put_long(notes.d_low, j, x)
                            elif x >= 0 and y >= 0:
                                unite(parent, x, y)
                                if alike:
                                    mask, hit = NONE, NONE
                            hits += 1
                            continue
                        other = int32_at(d_side.names, j)
                        turned = same and other < name
                        put_int32(out.left, n, other if turned else name)
                        put_int32(out.right, n, name if turned else other)
                        n += 1
                if notes is not None and marking and hits >= MANY:
                    if long_at(notes.q_marks, a) == unsettled:
                        put_long(
                            notes.q_marks, a, mark_tile(task, enough, parent, notes.q_values, a, q_points)
                        )
                    if long_at(notes.d_marks, b) == unsettled:
                        put_long(
                            notes.d_marks, b, mark_tile(task, enough, parent, notes.d_values, b, d_points)
                        )
            if needed == 0:
                begin = 0
                turn += 1
        put_long(state, 2, needed)
        if needed == 0:
            put_long(state, 0, turn)
            put_long(state, 1, 0)
        add_long(state, 3, asked)
        add_long(state, 4, refused)
        return n

    return kernel(join, variant)


_JOINS = {kind: _join_of(*functions, kind.__name__) for kind, functions in SCANS.items()}


def join(q: Terms, *args: Any) -> int:
    """Join two sides by the kernel for their terms: see `_join_of`."""
    found: int = _JOINS[type(q[-1])](q, *args)
    return found
