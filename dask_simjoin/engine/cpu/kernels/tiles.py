"""Join two tile indexes of any number of dimensions.

Points are stored in tiles of 64. The boxes of tiles are stored in groups of 64, and so
are the boxes of groups. So one vector test covers 64 points, tiles or groups.

Two kernels do the same for each tile of queries. They find the tiles of data whose
boxes are near (`candidates`), and compare the points of two tiles (`compare`). One
kernel writes the pairs. The other has a task of `marks`: it records the pairs in the
values of points, and skips tiles whose values cannot change.

Kernels get addresses instead of arrays. With arrays, compilation would take 1.5 times
as long, because Numba would count references to each of them. Functions with one caller
are inlined, because each call would put some 60 fields of tuples on the stack.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import unite
from dask_simjoin.engine.cpu.kernels.jit import (
    device_function,
    inline_function,
    inline_source,
    kernel,
)
from dask_simjoin.engine.cpu.kernels.marks import (
    COUNT,
    ENDLESS,
    LINK,
    LOWEST,
    MIXED,
    Notes,
    Out,
    TileJoin,
    all_pairs,
    mark_nodes,
    mark_tile,
    mark_tiles,
    open_points,
    own_pairs,
    settled,
)
from dask_simjoin.engine.cpu.kernels.scan import SCANS
from dask_simjoin.engine.cpu.kernels.simd import (
    add_long,
    int32_at,
    long_at,
    mask_at,
    number_at,
    put_int32,
    put_long,
)
from dask_simjoin.engine.cpu.kernels.tile_simd import (
    ALL,
    NONE,
    ONE,
    boxes_near,
    boxes_within,
    count_bits,
    lowest_bit,
)
from dask_simjoin.engine.cpu.kernels.totals import add_term
from dask_simjoin.engine.index.cpu_tiles import TILE

MIN_WHOLE_MASK = 16
"""If a query has at least this many neighbors in a tile, adding its mask to all 64
counts is faster than visiting each neighbor."""


class Turn(NamedTuple):
    """A tile of queries, the addresses of its box, and the tiles that it skips:
    `skip_from` ... `skip_to` - 1.
    """

    tile: int
    low: int
    high: int
    skip_from: int
    skip_to: int


class Trial(NamedTuple):
    """Number of candidate tiles whose box was tested, and of the queries that remained."""

    tested: int
    kept: int


class Comparison(NamedTuple):
    """Two tiles to compare, as queries and data, and a mask of the queries.

    `one_way`: whether their pairs change only values of queries. `enough`: whether one
    pair is enough, because each tile is in one set.
    """

    one: int
    other: int
    near: Any
    one_way: bool
    enough: bool


@inline_function
def _lanes_before(stop: int) -> Any:
    """Return the mask of all lanes before lane `stop`, which may exceed 64."""
    if stop >= TILE:
        return ALL
    return (ONE << np.uint64(stop)) - ONE if stop > 0 else NONE


@inline_function
def _turn(join: TileJoin, tile: int, skip_from: int, skip_to: int) -> Turn:
    at = tile * (join.boxes.dims * join.boxes.size)
    return Turn(tile, join.q_side.low + at, join.q_side.high + at, skip_from, skip_to)


@device_function
def candidates(join: TileJoin, turn: Turn, notes: Any) -> int:
    """Find the tiles whose boxes are near the box of a tile: write their numbers to
    `scratch.found`, and count them.

    With `notes`, the pairs of a tile are missing if they need no comparison: see
    `_undecided`.
    """
    boxes, scratch = join.boxes, join.scratch
    least = turn.skip_to if turn.skip_from == 0 else 0
    found, size = 0, 1
    put_long(scratch.stack, 0, 0)
    put_long(scratch.depth, 0, boxes.height - 1)
    while size > 0:
        size -= 1
        group, level = long_at(scratch.stack, size), long_at(scratch.depth, size)
        begin = long_at(boxes.levels, level)
        at = (begin + group) * (boxes.dims * TILE * boxes.size)
        mask = boxes_near(
            boxes.lower + at,
            boxes.upper + at,
            boxes.dims,
            turn.low,
            turn.high,
            join.reach,
            join.norm,
        )
        first = group * TILE
        number = boxes.tiles
        if level > 0:
            number = begin - long_at(boxes.levels, level - 1)
        mask &= _lanes_before(number - first)
        mask &= ~_lanes_before((least >> (6 * level)) - first)
        if notes is not None and mask != NONE:
            mask = _undecided(join, turn, notes, group, level, mask)
        while mask != NONE:
            child = first + lowest_bit(mask)
            mask &= mask - ONE
            if level == 0:
                put_long(scratch.found, found, child)
                found += 1
            else:
                put_long(scratch.stack, size, child)
                put_long(scratch.depth, size, level - 1)
                size += 1
    return found


@inline_source
def _undecided(
    join: TileJoin, turn: Turn, notes: Notes, group: int, level: int, mask: Any
) -> Any:
    """Return which boxes of a mask hold points that must be compared with the queries.

    The turn skips other boxes, or their pairs cannot change a value. Or the boxes show
    that all their points are near all queries: then these pairs are recorded.
    """
    boxes, a = join.boxes, turn.tile
    begin = long_at(boxes.levels, level)
    whole = NONE
    if notes.task != LOWEST:
        at = (begin + group) * (boxes.dims * TILE * boxes.size)
        whole = boxes_within(
            boxes.lower + at,
            boxes.upper + at,
            boxes.dims,
            turn.low,
            turn.high,
            join.sure_span,
            join.norm,
        )
    marks = boxes.tiles + long_at(boxes.levels, level - 1) if level > 0 else 0
    counted, counted_to = _counted(join, notes)
    undecided = mask
    while mask != NONE:
        lane = mask & (~mask + ONE)
        mask &= ~lane
        child = group * TILE + lowest_bit(lane)
        node = marks + child
        first, last = child << (6 * level), (child + 1) << (6 * level)
        last = min(last, boxes.tiles)
        if settled(notes, long_at(notes.q_marks, a), long_at(notes.d_marks, node)) or (
            first >= turn.skip_from and last <= turn.skip_to
        ):
            undecided &= ~lane
            continue
        both = first >= counted and last <= counted_to
        apart = first >= counted_to or last <= counted
        if (
            whole & lane != NONE
            and (first >= turn.skip_to or last <= turn.skip_from)
            and (notes.task == LINK or both or apart)
        ):
            q_points, d_points = join.q_side.points, join.d_side.points
            all_pairs(notes, a, q_points, node, first, last, d_points, both)
            undecided &= ~lane
    return undecided


@inline_source
def _counted(join: TileJoin, notes: Notes) -> Any:
    """Return the range of tiles of data whose points record their pairs, too."""
    if not notes.both:
        return 0, 0
    if join.is_self_join:
        return notes.first, notes.stop
    return 0, join.boxes.tiles


@inline_source
def _near_queries(join: TileJoin, two: Comparison, c: int, trial: Trial) -> Any:
    """Leave out queries that are far from the box of the other tile, if that saves time.

    Return the mask of the others, and the trial that decides about the next candidate.
    `c`: number of the candidate.
    """
    # decide again after 256 candidates
    if c % 256 == 0:
        trial = Trial(0, 0)
    # a trial has 8 candidates. Tests cost 1/12 of comparing all 64 queries, so they must
    # leave out more than 5
    if trial.tested >= 8 and trial.kept >= 58 * trial.tested:
        return two.near, trial
    boxes, q_side, d_side = join.boxes, join.q_side, join.d_side
    z = q_side.z + two.one * q_side.z_step
    at = two.other * (boxes.dims * boxes.size)
    near = two.near & boxes_near(
        z, z, boxes.dims, d_side.low + at, d_side.high + at, join.reach, join.norm
    )
    return near, Trial(trial.tested + 1, trial.kept + count_bits(near))


def _comparison(scan: Any, within: Any) -> tuple[Any, Any]:
    """Make the functions that compare two tiles. `scan`, `within`: see `SCANS`."""

    @inline_source
    def compare(join: TileJoin, one: int, other: int, near: Any, following: int) -> Any:
        """Return a mask of the queries that may have pairs with points of tile `other`:
        the mask `near` selects queries of tile `one`.

        `following`: the tile that is compared next.
        """
        d_side = join.d_side
        # each group of four queries prefetches its share of the following tile
        # prefetch tiles if two of them fit into a core's first-level cache
        share = d_side.step // (64 * 16) if d_side.step <= 16384 else 0
        ahead = d_side.first + following * d_side.step
        masks = join.scratch.masks
        return scan(join.q, join.d, one, other, near, ahead, share, masks, join.norm)

    @inline_source
    def neighbors(join: TileJoin, one: int, other: int, t: int, state: int) -> Any:
        """Return a mask of the points that are pairs of query `t`, after `compare`."""
        mask = mask_at(join.scratch.masks, t)
        if join.is_self_join and one == other:
            # only later points, so that each pair is found once, and no point is paired
            # with itself
            mask &= ~_lanes_before(t + 1)
        unsure = mask & ~mask_at(join.scratch.masks, TILE + t)
        while unsure != NONE:
            bit = lowest_bit(unsure)
            unsure &= unsure - ONE
            i, j = one * TILE + t, other * TILE + bit
            add_long(state, 3, 1)
            if not within(join.q, join.d, i, j, join.threshold, join.norm):
                add_long(state, 4, 1)
                mask &= ~(ONE << np.uint64(bit))
        return mask

    return compare, neighbors


def _writer(compare: Any, neighbors: Any, variant: str) -> Any:
    def write_pairs(join: TileJoin, out: Out, state: int) -> int:
        """Write the names of pairs to `out`; return the number of pairs.

        The call stops if the pairs of two tiles might not fit. `state` is the address
        of six int64:

        - 0: the current tile of queries;
        - 1: number of its candidate tiles that are done;
        - 2: the capacity that the join needs to continue; 0: the join is complete;
        - 3: number of candidates that only float64 could decide;
        - 4: how many of these are not pairs;
        - 5: the tile of queries before which the join ends.
        """
        n, begin = 0, long_at(state, 1)
        found, tiles = join.scratch.found, long_at(state, 5)
        for a in range(long_at(state, 0), tiles):
            count = candidates(
                join, _turn(join, a, 0, a if join.is_self_join else 0), None
            )
            trial = Trial(0, 0)
            for c in range(begin, count):
                if n + TILE * TILE > out.cap:
                    put_long(state, 0, a)
                    put_long(state, 1, c)
                    put_long(state, 2, TILE * TILE)
                    return n
                b = long_at(found, c)
                valid = _lanes_before(join.q_side.points - a * TILE)
                two = Comparison(a, b, valid, False, False)
                near, trial = _near_queries(join, two, c, trial)
                following = long_at(found, min(c + 1, count - 1))
                hit = compare(join, a, b, near, following)
                while hit != NONE:
                    t = lowest_bit(hit)
                    hit &= hit - ONE
                    mask = neighbors(join, a, b, t, state)
                    n = _write(join, a * TILE + t, b, mask, out, n)
            begin = 0
        put_long(state, 0, tiles)
        put_long(state, 1, 0)
        put_long(state, 2, 0)
        return n

    return kernel(write_pairs, variant)


@inline_source
def _write(join: TileJoin, i: int, b: int, mask: Any, out: Out, n: int) -> int:
    """Write the pairs of query `i` after the first `n`; return how many there are now."""
    name = int32_at(join.q_side.names, i)
    while mask != NONE:
        other = int32_at(join.d_side.names, b * TILE + lowest_bit(mask))
        mask &= mask - ONE
        turned = join.is_self_join and other < name
        put_int32(out.left, n, other if turned else name)
        put_int32(out.right, n, name if turned else other)
        n += 1
    return n


def _recorder(compare: Any, neighbors: Any, variant: str) -> Any:
    def record_pairs(join: TileJoin, notes: Notes, state: int) -> None:
        """Do a task of `marks` for all pairs. `state`: see `write_pairs`; item 0 is the
        next turn.
        """
        task, found = notes.task, join.scratch.found
        updates = task != COUNT or notes.enough != ENDLESS
        # compare each tile with itself and its successors first: that often settles
        # most tiles, and later turns skip these
        own_round = notes.stop - notes.first if join.is_self_join else 0
        _mark_all(join, notes)
        for number in range(long_at(state, 0), notes.turns):
            later = number - own_round
            a = notes.first + (number if later < 0 else later)
            # the marks of nodes are computed again before the turns 0, 1, 2, 4, 8 ...
            if later == 0 or (
                updates and task != LOWEST and later > 0 and later & (later - 1) == 0
            ):
                boxes = join.boxes
                mark_nodes(
                    notes, notes.d_marks, boxes.tiles, boxes.levels, boxes.height
                )
            # earlier turns may have changed counts in this tile
            if updates and task == COUNT:
                _mark_queries(join, notes, a)
            if later < 0:
                count = _successors(join, notes, a)
            elif task == COUNT and not notes.both and long_at(notes.q_marks, a) == 1:
                count = 0
            else:
                count = candidates(join, _searching(join, notes, a), notes)
            # first compare tiles that are near in the index, then all others
            near_first = later >= 0 and updates and (task == LOWEST or not notes.both)
            trial = Trial(0, 0)
            for step in range(2 * count if near_first else count):
                c = step if step < count else step - count
                b = long_at(found, c)
                if near_first and (-TILE < b - a < TILE) == (step >= count):
                    continue
                two = _undecided_queries(join, notes, a, b)
                if two.near == NONE:
                    continue
                near, trial = _near_queries(join, two, c, trial)
                following = long_at(found, min(c + 1, count - 1))
                hit = compare(join, two.one, two.other, near, following)
                pairs = 0
                while hit != NONE:
                    t = lowest_bit(hit)
                    hit &= hit - ONE
                    mask = neighbors(join, two.one, two.other, t, state)
                    pairs += _record(join, notes, two, two.one * TILE + t, mask)
                    if pairs > 0 and two.enough:
                        hit = NONE
                if updates and pairs >= (1 if two.one_way else MIN_WHOLE_MASK):
                    _mark_again(join, notes, a, b)
            if (
                updates
                and task == COUNT
                and join.is_self_join
                and notes.both
                and long_at(notes.q_marks, a) == 1
            ):
                put_long(notes.d_marks, a, 1)
        put_long(state, 0, notes.turns)

    return kernel(record_pairs, variant)


@inline_source
def _mark_all(join: TileJoin, notes: Notes) -> None:
    """Compute the marks of all tiles whose values may change."""
    counted, counted_to = _counted(join, notes)
    mark_tiles(
        notes,
        notes.d_values,
        notes.d_low,
        notes.d_marks,
        counted,
        counted_to,
        join.d_side.points,
    )
    if notes.q_marks != notes.d_marks:
        mark_tiles(
            notes,
            notes.q_values,
            notes.q_low,
            notes.q_marks,
            notes.first,
            notes.stop,
            join.q_side.points,
        )


@device_function
def _mark_queries(join: TileJoin, notes: Notes, a: int) -> None:
    mark = mark_tile(notes, notes.q_values, notes.q_low, a, join.q_side.points)
    put_long(notes.q_marks, a, mark)


@device_function
def _mark_again(join: TileJoin, notes: Notes, a: int, b: int) -> None:
    """Compute the marks of two tiles again, unless they are final."""
    unsettled = MIXED if notes.task == LINK else 0
    if notes.task == LOWEST or long_at(notes.q_marks, a) == unsettled:
        _mark_queries(join, notes, a)
    if notes.task != LOWEST and long_at(notes.d_marks, b) == unsettled:
        mark = mark_tile(notes, notes.d_values, notes.d_low, b, join.d_side.points)
        put_long(notes.d_marks, b, mark)


@inline_source
def _successors(join: TileJoin, notes: Notes, a: int) -> int:
    """Write to `scratch.found` the tiles of the window of tile `a`; return their number.

    If the box of tile `a` shows that every two of its points are a pair, these pairs
    are recorded. The first candidate is then the next tile.
    """
    turn, first, sure = _turn(join, a, 0, 0), a, join.sure_span
    total = 0.0
    for k in range(join.boxes.dims):
        span = number_at(turn.high, k, sure) - number_at(turn.low, k, sure)
        total = add_term(total, span, join.norm)
    if total <= sure:
        mark = long_at(notes.q_marks, a)
        if not settled(notes, mark, mark):
            own_pairs(notes, a, join.q_side.points)
        first = a + 1
    stop = min(a + notes.window, notes.stop)
    for tile in range(first, stop):
        put_long(join.scratch.found, tile - first, tile)
    return max(stop - first, 0)


@inline_source
def _searching(join: TileJoin, notes: Notes, a: int) -> Turn:
    """Return the turn of tile `a` that searches all tiles outside its window, except
    tiles that have had their turn.
    """
    if not join.is_self_join:
        return _turn(join, a, 0, 0)
    before = a + 1 - notes.window
    if notes.task == LINK or notes.later:  # each pair of tiles once, from the earlier
        before = 0
    elif notes.both or before < notes.first:
        before = notes.first
    return _turn(join, a, before, min(a + notes.window, notes.stop))


@inline_source
def _undecided_queries(join: TileJoin, notes: Notes, a: int, b: int) -> Comparison:
    """Return how the tiles `a` and `b` are compared; the mask is 0 if no value can
    change.
    """
    task, enough, points = notes.task, notes.enough, join.q_side.points
    x, y = long_at(notes.q_marks, a), long_at(notes.d_marks, b)
    if settled(notes, x, y):
        return Comparison(a, b, NONE, False, False)
    if task == COUNT and x == 1 and join.is_self_join:
        # tile a needs no more counts, so the points of tile b become the queries
        near = open_points(task, enough, notes.q_values, notes.q_low, b, points, y)
        return Comparison(b, a, near, True, False)
    if task == LOWEST or (task == COUNT and y == 1):
        near = open_points(task, enough, notes.q_values, notes.q_low, a, points, y)
        return Comparison(a, b, near, True, False)
    alike = task == LINK and x >= 0 and y >= 0
    return Comparison(a, b, _lanes_before(points - a * TILE), notes.later, alike)


@inline_source
def _record(join: TileJoin, notes: Notes, two: Comparison, i: int, mask: Any) -> int:
    """Record the pairs of query `i`; return the number of pairs that took part."""
    if notes.task == COUNT:
        return _count(join, notes, two, i, mask)
    if notes.task == LINK:
        return _link(notes, two, i, mask)
    pairs, low = count_bits(mask), long_at(notes.q_low, i)
    while mask != NONE:
        label = long_at(notes.d_values, two.other * TILE + lowest_bit(mask))
        mask &= mask - ONE
        low = label if 0 <= label < low else low
    put_long(notes.q_low, i, low)
    return pairs


@inline_source
def _count(join: TileJoin, notes: Notes, two: Comparison, i: int, mask: Any) -> int:
    """Add pairs to the count of query `i`, and unless `one_way` to counts of the data."""
    pairs, first = count_bits(mask), two.other * TILE
    add_long(notes.q_values, i, pairs)
    if not two.one_way and pairs >= MIN_WHOLE_MASK:
        for j in range(first, min(first + TILE, join.d_side.points)):
            near = np.int64((mask >> np.uint64(j - first)) & ONE)
            add_long(notes.d_values, j, near)
    elif not two.one_way:
        while mask != NONE:
            add_long(notes.d_values, first + lowest_bit(mask), 1)
            mask &= mask - ONE
    return pairs


@inline_source
def _link(notes: Notes, two: Comparison, i: int, mask: Any) -> int:
    """Unite the set of query `i` with the sets of its neighbors."""
    pairs, x = 0, long_at(notes.q_values, i)
    while x >= 0 and mask != NONE:
        y = long_at(notes.d_values, two.other * TILE + lowest_bit(mask))
        mask &= mask - ONE
        if y >= 0:
            unite(notes.parent, x, y)
            pairs += 1
            if two.enough:
                mask = NONE
    return pairs


def _kernels(scan: Any, within: Any, variant: str) -> tuple[Any, Any]:
    functions = _comparison(scan, within)
    return _writer(*functions, variant), _recorder(*functions, variant)


_JOINS = {
    kind: _kernels(*functions, kind.__name__) for kind, functions in SCANS.items()
}


def write_pairs(join: TileJoin, out: Out, state: int) -> int:
    """Call the kernel for the terms of the join: see `_writer`."""
    n: int = _JOINS[type(join.q[-1])][0](join, out, state)
    return n


def record_pairs(join: TileJoin, notes: Notes, state: int) -> None:
    """Call the kernel for the terms of the join: see `_recorder`."""
    _JOINS[type(join.q[-1])][1](join, notes, state)
