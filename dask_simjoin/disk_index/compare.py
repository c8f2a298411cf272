"""The work of one task: compare changed rows with each other, or with unchanged rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_simjoin.disk_index.cell_filter import rows_in_cells
from dask_simjoin.disk_index.row_batch import (
    ReplacedRows,
    RowBatch,
    chunk_of,
    in_other_version,
    layout_for,
    load_near,
    near_box,
    near_by_tiles,
    some,
)
from dask_simjoin.disk_index.segments import (
    Segment,
    SegmentChoice,
    included_rows,
    index_of,
    points_at,
    rows_at,
    within,
)
from dask_simjoin.disk_index.types import Part
from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import all_of, module_of
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Array, Frame, Index
from dask_simjoin.planning.sample import bounds
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import BlockPair, Matches, matches, measured
from dask_simjoin.tasks.pairs import Side, concat_results, join_block, pair_columns


class Comparison(NamedTuple):
    spec: JoinSpec
    cut: tuple[int, ...]  # dimensions that boxes cover
    like: Frame  # an empty frame with the columns of the pairs


def pairs_within(
    how: Comparison, rows: RowBatch, replaced: ReplacedRows | None, columns: list[str]
) -> Frame:
    """Return the pairs among added rows, or among deleted rows. Each pair is returned
    once.
    """
    xp = module_of(rows["seq"])
    if len(rows["seq"]) < 2:
        return how.like[columns]
    # sort by row number, so that the left row of a pair has the smaller one
    rows = some(rows, xp.argsort(rows["seq"]))
    layout = layout_for([rows], how.spec)
    chunk = chunk_of(rows, layout)
    block_pair = BlockPair(chunk, chunk, True, how.spec, layout)
    return _pairs(block_pair, (rows, rows), (False, False), replaced, columns)


def pairs_across(
    how: Comparison,
    rows: RowBatch,
    others: RowBatch,
    replaced: ReplacedRows | None,
    stay: bool,
    columns: list[str],
) -> Frame:
    """Return the pairs between changed rows and other rows.

    `stay`: whether the other rows are in both versions.
    """
    rows, others = near_each_other(how, rows, others)
    if not len(rows["seq"]) or not len(others["seq"]):
        return how.like[columns]
    sides = ((rows, False), (others, stay))
    if len(rows["seq"]) > len(others["seq"]):  # use the smaller batch as the query
        sides = sides[::-1]
    layout = layout_for([others, rows], how.spec)
    q, d = (chunk_of(side, layout) for side, _ in sides)
    block_pair = BlockPair(q, d, False, how.spec, layout)
    (first, stays), (second, stays_too) = sides
    return _pairs(block_pair, (first, second), (stays, stays_too), replaced, columns)


def near_each_other(
    how: Comparison, rows: RowBatch, others: RowBatch
) -> tuple[RowBatch, RowBatch]:
    """From two batches, drop rows that cannot be in a pair: by marked cells, and by the
    boxes of tiles.
    """
    if "cell_filter" in rows:
        near = rows_in_cells(
            rows["cell_filter"], [others["x"][:, k] for k in rows["cell_filter"].dims]
        )
        if len(near) < len(others["seq"]):
            others = some(others, near)
    if "tiles" in others and "tiles" in rows:
        rows, others = near_by_tiles(rows, others, how.cut, how.spec)
    if "tiles" in rows and len(others["seq"]):
        rows = near_box(rows, *bounds(others["x"]), how.cut, how.spec)
    if len(rows["seq"]) and "tiles" in others:
        others = near_box(others, *bounds(rows["x"]), how.cut, how.spec)
    return rows, others


def pairs_with_part(
    how: Comparison,
    rows: RowBatch,
    part: Part,
    replaced: ReplacedRows | None,
    columns: list[str],
) -> Frame:
    """Read a part of the rows in both versions, and return their pairs with changed
    rows.
    """
    others = load_near(part, how.spec, rows.get("cell_filter"))
    return pairs_across(how, rows, others, replaced, True, columns)


def _pairs(
    block_pair: BlockPair,
    sides: tuple[RowBatch, RowBatch],
    stay: tuple[bool, bool],
    replaced: ReplacedRows | None,
    columns: list[str],
) -> Frame:
    """Return the pairs of two chunks, or within one. The left row of a pair has the
    smaller row number.

    `sides`: the rows of each chunk. `stay`: for each chunk, whether its rows are in
    both versions, or only in one.
    """
    before, after = (side["seq"] for side in sides)
    counted = replaced is None and not any("gone" in side for side in sides)
    if counted and (block_pair.is_self_join or int(before.max()) < int(after.min())):
        return join_block(block_pair, columns)
    if counted and int(after.max()) < int(before.min()):
        other_side = _other_side(block_pair.spec)
        found = join_block(block_pair, [other_side.get(name, name) for name in columns])
        found.columns = columns
        return found
    # a pair is also changed if only its distance changed, so distances are needed even
    # if not requested
    measured = "distance" in columns or (
        replaced is not None and block_pair.spec.result.distance
    )
    (found,) = matches(block_pair, measured, None)
    (q, d), xp = (block_pair.query, block_pair.data), block_pair.xp
    for side, order, which in ((sides[0], q["order"], 0), (sides[1], d["order"], 1)):
        if "gone" in side:
            found = _only(found, ~side["gone"][order[found[which]]])
    left, right, away = q["order"][found.left], d["order"][found.right], found.distance
    if replaced is not None:
        both = [
            (side, rows, stays)
            for side, rows, stays in zip(sides, (left, right), stay, strict=True)
        ]
        new = xp.flatnonzero(
            ~in_other_version(replaced, both[0], both[1], away, block_pair.spec)
        )
        found, left, right = _only(found, new), left[new], right[new]
    places = found.left, found.right
    of: tuple[Chunk, ...] = (q,)
    if not block_pair.is_self_join:
        swap = after[right] < before[left]
        ends = found.left, found.right + len(q["ids"])
        places, of = (xp.where(swap, *ends[::-1]), xp.where(swap, *ends)), (q, d)
    part = pair_columns((of, places[0]), (of, places[1]), block_pair.spec, columns)
    if "distance" in columns:
        part["distance"] = found.distance
    return concat_results([(len(found.left), part)], columns, frames_for(q["example"]))


def _only(found: Matches, which: Array) -> Matches:
    away = found.distance
    distance = None if away is None else away[which]
    return found._replace(
        left=found.left[which], right=found.right[which], distance=distance
    )


def _other_side(spec: JoinSpec) -> dict[str, str]:
    """Map the name of each column of left rows to its name for right rows, and vice
    versa.
    """
    both = [("left", "right"), *zip(spec.kept_left, spec.kept_right, strict=True)]
    return {a: b for pair in both for a, b in (pair, pair[::-1])}


def pairs_of_two(
    how: Comparison, rows: RowBatch, others: RowBatch, columns: list[str]
) -> Frame:
    """Return the pairs between rows of a frame (left) and rows of an index (right)."""
    rows, others = near_each_other(how, rows, others)
    if not len(rows["seq"]) or not len(others["seq"]):
        return how.like[columns]
    layout = layout_for([rows, others], how.spec)
    q, d = (chunk_of(side, layout) for side in (rows, others))
    return join_block(BlockPair(q, d, False, how.spec, layout), columns)


class Hits(NamedTuple):
    """Pairs between changed rows and rows of a segment."""

    own: Array  # (pairs,): positions of the changed rows
    in_segment: Array  # (pairs,): positions of the rows in the segment
    distance: Array | None  # (pairs,); None if distances were not requested

    def only(self, which: Array) -> Hits:
        away = self.distance
        return Hits(
            self.own[which],
            self.in_segment[which],
            None if away is None else away[which],
        )


def pairs_with_segments(
    how: Comparison,
    rows: RowBatch,
    chosen: tuple[SegmentChoice, ...],
    replaced: ReplacedRows | None,
    columns: list[str],
    *segments: Segment,
) -> Frame:
    """Return the pairs between changed rows and those rows of segments that are in both
    versions.
    """
    found = [
        _with_segment(how, rows, segment, one, replaced, columns)
        for segment, one in zip(segments, chosen, strict=True)
    ]
    filled = [part for part in found if len(part)] or [how.like[columns]]
    return filled[0] if len(filled) == 1 else frames_for(how.like).stacked(filled)


def _with_segment(
    how: Comparison,
    rows: RowBatch,
    segment: Segment,
    chosen: SegmentChoice,
    replaced: ReplacedRows | None,
    columns: list[str],
) -> Frame:
    rows = near_box(rows, *segment["box"], how.cut, how.spec)
    near = module_of(rows["x"]).flatnonzero(within(rows["x"], segment["reach"]))
    if not len(near):
        return how.like[columns]
    rows = some(rows, near) if len(near) < len(rows["seq"]) else rows
    # a pair is also changed if only its distance changed, so distances are needed even
    # if not requested
    distance = "distance" in columns or (
        replaced is not None and how.spec.result.distance
    )
    found, count = hits(rows, segment, how, distance), included_rows(segment, chosen)
    if count is not None:
        found = found.only(count[found.in_segment])
    if replaced is not None and len(found.own):
        xp = module_of(found.own)
        every = xp.arange(len(found.own))
        there = RowBatch(
            x=points_at(segment, found.in_segment),
            seq=segment["seq"][found.in_segment],
            ids=segment["ids"][:0],
            example=segment["example"],
        )
        both = (rows, found.own, False), (there, every, True)
        found = found.only(~in_other_version(replaced, *both, found.distance, how.spec))
    if not len(found.own):
        return how.like[columns]
    return _as_frame(how, rows, segment, found, columns)


def hits(rows: RowBatch, segment: Segment, how: Comparison, distance: bool) -> Hits:
    """Return the pairs between rows and all rows of a segment.

    Callers drop pairs with excluded rows later.
    """
    xp, n = module_of(rows["x"]), len(rows["seq"])
    served = within(rows["x"], segment["serves"])
    inside = xp.flatnonzero(served)
    parts = [
        _served(
            rows if len(inside) == n else some(rows, inside), segment, how, distance
        )
    ]
    if len(inside) == n:
        return parts[0]
    outside = xp.flatnonzero(~served)
    parts.append(_not_served(some(rows, outside), segment, how, distance))
    own = [at[part.own] for at, part in zip((inside, outside), parts, strict=True)]
    away = [part.distance for part in parts if part.distance is not None]
    in_segment = xp.concatenate([part.in_segment for part in parts])
    return Hits(xp.concatenate(own), in_segment, xp.concatenate(away) if away else None)


def _served(rows: RowBatch, segment: Segment, how: Comparison, distance: bool) -> Hits:
    """Return the pairs between a segment and rows in the box of its index. This index
    is used.
    """
    return _joined(
        rows,
        segment,
        how,
        distance,
        index_of(segment),
        segment["layout"],
        segment["position"],
    )


def _not_served(
    rows: RowBatch, segment: Segment, how: Comparison, distance: bool
) -> Hits:
    """Return the pairs between a segment and rows outside the box of its index. A new
    index is built.
    """
    joiner, m = joiner_for(segment["example"]), len(segment["seq"])
    x = joiner.points(index_of(segment), segment["layout"])
    in_segment = RowBatch(
        x=x, seq=segment["seq"], ids=segment["ids"], example=segment["example"]
    )
    layout = layout_for([in_segment, rows], how.spec)
    other = joiner.build(x, layout)
    return _joined(
        rows,
        segment,
        how,
        distance,
        other,
        layout,
        segment["position"][other["order"][:m]],
    )


def _joined(
    rows: RowBatch,
    segment: Segment,
    how: Comparison,
    distance: bool,
    other: Index,
    layout: Layout,
    position: Array,
) -> Hits:
    """Return the pairs between rows and a segment. `other`: an index of the segment.

    `position`: for each position in the index, the position of the row in the segment.
    """
    joiner = joiner_for(segment["example"])
    own = joiner.build(rows["x"], layout)
    found = joiner.pairs(
        own,
        other,
        layout,
        is_self_join=False,
        distance=measured(how.spec, joiner.xp) if distance else None,
        labels=(own["order"][: len(rows["seq"])].astype(np.int64), position),
    )
    return Hits(found.left, found.right, found.distance)


def _as_frame(
    how: Comparison, rows: RowBatch, segment: Segment, found: Hits, columns: list[str]
) -> Frame:
    """Return pairs as a frame. The left row of a pair has the smaller row number."""
    xp, n = module_of(found.own), len(found.own)
    own, in_segment = (
        _as_chunk(some(rows, found.own, points=False)),
        _as_chunk(rows_at(segment, found.in_segment, how.spec, False)),
    )
    every = xp.arange(n)
    swap = segment["seq"][found.in_segment] < rows["seq"][found.own]
    left: Side = (in_segment,), every
    right: Side = (own,), every
    if not all_of(swap):
        both = (own, in_segment)
        left, right = (
            (both, xp.where(swap, every + n, every)),
            (both, xp.where(swap, every, every + n)),
        )
    part = pair_columns(left, right, how.spec, columns)
    if "distance" in columns:
        part["distance"] = found.distance
    return concat_results([(n, part)], columns, frames_for(segment["example"]))


def _as_chunk(rows: RowBatch) -> Chunk:
    """Return rows as a chunk in the same order, because `pair_columns` takes columns
    from chunks.
    """
    order = module_of(rows["seq"]).arange(len(rows["seq"]))
    found = Chunk(ids=rows["ids"], id_keys=None, example=rows["example"], order=order)
    if "kept" in rows:
        found["kept"] = rows["kept"]
    return found
