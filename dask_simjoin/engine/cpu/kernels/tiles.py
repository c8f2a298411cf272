"""Join two tile indexes of any number of dimensions.

Points are stored in tiles of 64. The boxes of tiles are stored in groups of 64, and so
are the boxes of groups. So one vector test covers 64 points, tiles or groups.

Kernels get addresses instead of arrays. With arrays, compilation would take 1.5 times
as long, because Numba would count references to each of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.cpu.kernels.components import root_of, unite
from dask_simjoin.engine.cpu.kernels.jit import device_function, kernel
from dask_simjoin.engine.cpu.kernels.marks import (
    ASK,
    COUNT,
    ENDLESS,
    LINK,
    LOWEST,
    MIXED,
    Boxes,
    Out,
    Scratch,
    TileSide,
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
    Terms,
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
from dask_simjoin.engine.cpu.kernels.totals import Kind, add_term
from dask_simjoin.engine.index.cpu_tiles import TILE

PROBE = 256
"""Before two tiles are compared, each query can be tested against the other tile's box.

After this many candidate tiles, a trial decides again whether these tests save time.
"""

PROBE_TESTS = 8
"""Number of candidate tiles that a trial tests."""

PREFETCHED = 16384
"""Tiles of at most this many bytes are prefetched: two of them fit into a core's
first-level cache.
"""

GROUPS = 16
"""Number of groups of four queries in a tile. Each group prefetches its share of the
next tile.
"""

MIN_WHOLE_MASK = 16
"""If a query has at least this many neighbors in a tile, adding its mask to all 64
counts is faster than visiting each neighbor."""

WORTHWHILE = 58
"""A test saves time if fewer than this many of 64 queries remain after it.

It costs 1/12 of comparing all 64.
"""


@device_function
def _within_itself(low: int, high: int, dims: int, sure: Any, norm: Kind) -> bool:
    """Return whether the box is so small that every two of its points are a pair.

    `sure`: see `boxes_within`.
    """
    total = 0.0
    for k in range(dims):
        total = add_term(
            total, number_at(high, k, sure) - number_at(low, k, sure), norm
        )
    return bool(total <= sure)


@device_function
def candidates(
    boxes: Boxes,
    low: int,
    high: int,
    reach: Any,
    sure: Any,
    skip_from: int,
    skip_to: int,
    norm: Kind,
    notes: Any,
    a: int,
    q_points: int,
    d_points: int,
    counted: int,
    counted_to: int,
    scratch: Scratch,
) -> int:
    """Find the tiles whose boxes are near tile `a`: write their numbers to `scratch`,
    and count them.

    `low`, `high`: box of tile `a`. Tiles `skip_from` ... `skip_to` - 1 are skipped.
    With `notes`, tiles whose pairs cannot change a value are skipped, too. If the boxes
    show by `sure` that all points of two tiles are pairs, these pairs are recorded
    here. If the other tile is one of `counted` ... `counted_to` - 1, these pairs also
    count for its points.
    """
    least = skip_to if skip_from == 0 else 0
    d, tiles, levels = boxes.dims, boxes.tiles, boxes.levels
    n = 0
    size = 1
    put_long(scratch.stack, 0, 0)
    put_long(scratch.depth, 0, boxes.height - 1)
    while size > 0:
        size -= 1
        group, level = long_at(scratch.stack, size), long_at(scratch.depth, size)
        begins = long_at(levels, level)
        at = (begins + group) * (d * TILE * boxes.size)
        mask = boxes_near(boxes.lower + at, boxes.upper + at, d, low, high, reach, norm)
        first = least >> (6 * level)
        if first > group * TILE:
            skip = first - group * TILE
            mask = mask & (ALL << np.uint64(skip)) if skip < TILE else NONE
        whole = NONE
        if notes is not None and mask != NONE and notes.task != LOWEST:
            whole = mask & boxes_within(
                boxes.lower + at, boxes.upper + at, d, low, high, sure, norm
            )
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
                verdict = settled(notes.task, x, y)
                if verdict == 1 or (
                    verdict == ASK
                    and root_of(notes.parent, x) == root_of(notes.parent, y)
                ):
                    continue
                begin, end = child << (6 * level), (child + 1) << (6 * level)
                end = end if end < tiles else tiles
                if begin >= skip_from and end <= skip_to:
                    continue
                both = begin >= counted and end <= counted_to
                apart = begin >= counted_to or end <= counted
                if (
                    (whole >> np.uint64(bit)) & ONE
                    and (begin >= skip_to or end <= skip_from)
                    and (notes.task == LINK or both or apart)
                ):
                    all_pairs(
                        notes, a, q_points, marks + child, begin, end, d_points, both
                    )
                    continue
            if level == 0:
                put_long(scratch.found, n, child)
                n += 1
            else:
                put_long(scratch.stack, size, child)
                put_long(scratch.depth, size, level - 1)
                size += 1
    return n


def _join_of(scan: Any, within: Any, variant: str) -> Any:
    """Make the kernel for one type of terms. `scan`, `within`: the functions for this
    type in `SCANS`.
    """

    def join(
        q: Terms,
        q_side: TileSide,
        d: Terms,
        d_side: TileSide,
        boxes: Boxes,
        reach: Any,
        sure_span: Any,
        threshold: float,
        norm: Kind,
        is_self_join: bool,
        out: Out,
        notes: Any,
        state: int,
        scratch: Scratch,
    ) -> int:
        """Write the names of pairs to `out`, or with `notes` record them there; return
        the number of pairs.

        The call stops if the pairs of two tiles might not fit. `state` is the address
        of five int64:

        - 0: the current tile of queries;
        - 1: number of its candidate tiles that are done;
        - 2: the capacity that the join needs to continue; 0: the join is complete;
        - 3: number of candidates that only float64 could decide;
        - 4: how many of these are not pairs.

        `q`, `d`: see `scan.terms_of`; `norm`: see `totals.kind_of`. `reach`: largest
        total of the gaps between two boxes that may have a pair. `sure_span`: largest
        total of the spans of two boxes that proves all their points to be pairs.
        """
        dims, tiles, masks = boxes.dims, boxes.tiles, scratch.masks
        box = dims * boxes.size
        q_points, d_points = q_side.points, d_side.points
        n, checked, refused = 0, 0, 0
        needed = 0
        share = d_side.step // (64 * GROUPS) if d_side.step <= PREFETCHED else 0
        begin, own_round, first_tile, turns, both = (
            long_at(state, 1),
            0,
            0,
            long_at(state, 5),
            True,
        )
        counted, counted_to = 0, 0
        if notes is not None:
            task, enough, parent = notes.task, notes.enough, notes.parent
            counting = task == COUNT and enough != ENDLESS
            marking = task == LINK or counting
            unsettled = MIXED if task == LINK else 0
            first_tile, turns, both = notes.first, notes.turns, notes.both
            if both:
                counted, counted_to = (
                    (first_tile, notes.stop) if is_self_join else (0, tiles)
                )
            # compare each tile with itself and its successors first: that often settles
            # most tiles, and later turns skip these
            own_round = notes.stop - first_tile if is_self_join else 0
            # before this turn, the marks of the tree's nodes are computed again
            again = own_round
            mark_tiles(
                notes,
                notes.d_values,
                notes.d_low,
                notes.d_marks,
                counted,
                counted_to,
                d_points,
            )
            if notes.q_marks != notes.d_marks:
                mark_tiles(
                    notes,
                    notes.q_values,
                    notes.q_low,
                    notes.q_marks,
                    first_tile,
                    notes.stop,
                    q_points,
                )
        turn = long_at(state, 0)
        while turn < turns and needed == 0:
            a = first_tile + (turn if turn < own_round else turn - own_round)
            low, high = q_side.low + a * box, q_side.high + a * box
            skip_from, skip_to = 0, a if is_self_join else 0
            if notes is not None and turn == again:
                mark_nodes(notes, notes.d_marks, tiles, boxes.levels, boxes.height)
                k = turn - own_round
                again = own_round + (2 * k if k > 0 else 1) if marking else -1
            if notes is not None and is_self_join:
                before = a + 1 - notes.window
                skip_from = first_tile if both or before < first_tile else before
                # each pair of tiles unites sets once, from the earlier tile
                skip_from = 0 if task == LINK else skip_from
                skip_to = a + notes.window
                skip_to = skip_to if skip_to < notes.stop else notes.stop
            # update its mark, because earlier turns may have changed counts in this
            # tile
            if notes is not None and counting:
                put_long(
                    notes.q_marks,
                    a,
                    mark_tile(notes, notes.q_values, notes.q_low, a, q_points),
                )
            if notes is not None and turn < own_round:
                count = skip_to - a
                for c in range(count):
                    put_long(scratch.found, c, a + c)
                if task != LOWEST and _within_itself(low, high, dims, sure_span, norm):
                    mark = long_at(notes.q_marks, a)
                    if settled(task, mark, mark) != 1:
                        own_pairs(notes, a, q_points)
                    put_long(scratch.found, 0, -1)
            elif notes is not None and not both and long_at(notes.q_marks, a) == 1:
                count = 0
            else:
                count = candidates(
                    boxes,
                    low,
                    high,
                    reach,
                    sure_span,
                    skip_from,
                    skip_to,
                    norm,
                    notes,
                    a,
                    q_points,
                    d_points,
                    counted,
                    counted_to,
                    scratch,
                )
            valid = (
                ALL
                if (a + 1) * TILE <= q_points
                else (ONE << np.uint64(q_points - a * TILE)) - ONE
            )
            tested, kept = 0, 0
            rounds = 1
            if notes is not None:
                near_first = turn >= own_round and (task == LOWEST or not both)
                rounds = 2 if near_first else 1
            for step in range(begin, rounds * count):
                c = step if step < count else step - count
                if notes is None and n + TILE * TILE > out.cap:
                    put_long(state, 0, turn)
                    put_long(state, 1, c)
                    needed = TILE * TILE
                    break
                b = long_at(scratch.found, c)
                one, other, near = a, b, valid
                if notes is not None:
                    if b < 0 or (
                        near_first and (-TILE < b - a < TILE) == (step >= count)
                    ):
                        continue
                    x, y = long_at(notes.q_marks, a), long_at(notes.d_marks, b)
                    verdict = settled(task, x, y)
                    if verdict == 1 or (
                        verdict == ASK and root_of(parent, x) == root_of(parent, y)
                    ):
                        continue
                    # both tiles are in one set each, so a single pair unites them
                    alike = task == LINK and x >= 0 and y >= 0
                    one_way = task == LOWEST or (task == COUNT and y == 1)
                    # tile a needs no more counts, so the points of tile b become the
                    # queries
                    if task == COUNT and x == 1 and is_self_join:
                        one, other, one_way = b, a, True
                    if one_way:
                        near = open_points(
                            task, enough, notes.q_values, notes.q_low, one, q_points, y
                        )
                        if near == NONE:
                            continue
                if c % PROBE == 0:
                    tested, kept = 0, 0
                if tested < PROBE_TESTS or kept < WORTHWHILE * tested:
                    at = q_side.z + one * q_side.z_step
                    there = other * box
                    near &= boxes_near(
                        at,
                        at,
                        dims,
                        d_side.low + there,
                        d_side.high + there,
                        reach,
                        norm,
                    )
                    tested += 1
                    kept += count_bits(near)
                ahead = (
                    d_side.first
                    + long_at(scratch.found, c + 1 if c + 1 < count else c)
                    * d_side.step
                )
                hit = scan(q, d, one, other, near, ahead, share, masks, norm)
                hits = 0
                while hit != NONE:
                    t = lowest_bit(hit)
                    hit &= hit - ONE
                    mask, sure = mask_at(masks, t), mask_at(masks, TILE + t)
                    i = one * TILE + t
                    if is_self_join and one == other:
                        # keep only later points, so that each pair is found once, and
                        # no point is paired with itself
                        upto = ONE << np.uint64(t)
                        mask &= ~(upto | (upto - ONE))
                    if notes is not None and task == COUNT and mask & ~sure == NONE:
                        if one_way:
                            hits += 1
                            add_long(notes.q_values, i, count_bits(mask))
                            continue
                        if count_bits(mask) >= MIN_WHOLE_MASK:
                            hits += 1
                            add_long(notes.q_values, i, count_bits(mask))
                            for k in range(
                                TILE
                                if (other + 1) * TILE <= d_points
                                else d_points - other * TILE
                            ):
                                add_long(
                                    notes.d_values,
                                    other * TILE + k,
                                    np.int64((mask >> np.uint64(k)) & ONE),
                                )
                            continue
                    name = int32_at(q_side.names, i)
                    while mask != NONE:
                        bit = lowest_bit(mask)
                        mask &= mask - ONE
                        j = other * TILE + bit
                        if (sure >> np.uint64(bit)) & ONE == NONE:
                            checked += 1
                            if not within(q, d, i, j, threshold, norm):
                                refused += 1
                                continue
                        if notes is not None:
                            hits += 1
                            if task == COUNT:
                                add_long(notes.q_values, i, 1)
                                if not one_way:
                                    add_long(notes.d_values, j, 1)
                                continue
                            x, y = (
                                long_at(notes.q_values, i),
                                long_at(notes.d_values, j),
                            )
                            if task == LOWEST:
                                if 0 <= y < long_at(notes.q_low, i):
                                    put_long(notes.q_low, i, y)
                            elif x >= 0 and y >= 0:
                                unite(parent, x, y)
                                if alike:
                                    mask, hit = NONE, NONE
                            continue
                        name_there = int32_at(d_side.names, j)
                        turned = is_self_join and name_there < name
                        put_int32(out.left, n, name_there if turned else name)
                        put_int32(out.right, n, name if turned else name_there)
                        n += 1
                if (
                    notes is not None
                    and (marking or task == LOWEST)
                    and hits >= (1 if one_way else MIN_WHOLE_MASK)
                ):
                    if task == LOWEST or long_at(notes.q_marks, a) == unsettled:
                        put_long(
                            notes.q_marks,
                            a,
                            mark_tile(notes, notes.q_values, notes.q_low, a, q_points),
                        )
                    if task != LOWEST and long_at(notes.d_marks, b) == unsettled:
                        put_long(
                            notes.d_marks,
                            b,
                            mark_tile(notes, notes.d_values, notes.d_low, b, d_points),
                        )
            if (
                notes is not None
                and counting
                and is_self_join
                and both
                and long_at(notes.q_marks, a) == 1
            ):
                put_long(notes.d_marks, a, 1)
            if needed == 0:
                begin = 0
                turn += 1
        put_long(state, 2, needed)
        if needed == 0:
            put_long(state, 0, turn)
            put_long(state, 1, 0)
        add_long(state, 3, checked)
        add_long(state, 4, refused)
        return n

    return kernel(join, variant)


_JOINS = {
    kind: _join_of(*functions, kind.__name__) for kind, functions in SCANS.items()
}


def join(q: Terms, *args: Any) -> int:
    """Call the kernel for the type of the terms `q`: see `_join_of`."""
    return _JOINS[type(q[-1])](q, *args)
