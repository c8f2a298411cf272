"""Compare rows that came or went with each other, and with rows that stayed: the work of one task."""

from __future__ import annotations

from typing import NamedTuple

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.incremental.loaded import (
    Loaded,
    chunk_of,
    layout_for,
    load_near,
    near_box,
    near_by_tiles,
    some,
)
from dask_simjoin.incremental.marks import near_marks
from dask_simjoin.incremental.replaced import Replaced, in_other_version
from dask_simjoin.incremental.types import Part
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.statistics.moments import bounds
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.matches import Matches, matches
from dask_simjoin.tasks.meeting import Meeting
from dask_simjoin.tasks.pairs import join_block, pair_columns, put_together


class Comparison(NamedTuple):
    """Say how rows are compared.

    Attributes
    ----------
    spec : JoinSpec
    cut : tuple of int
        The dimensions that boxes tell of.
    like : DataFrame
        An empty example of the pairs.
    """

    spec: JoinSpec
    cut: tuple[int, ...]
    like: Frame


def pairs_within(how: Comparison, rows: Loaded, replaced: Replaced | None, columns: list[str]) -> Frame:
    """Find the pairs of rows that came, or of those that went, each once."""
    xp = module_of(rows["seq"])
    if len(rows["seq"]) < 2:
        return how.like[columns]
    rows = some(rows, xp.argsort(rows["seq"]))  # of a pair the row with the smaller place is left
    layout = layout_for([rows], how.spec)
    chunk = chunk_of(rows, layout)
    meeting = Meeting(chunk, chunk, True, how.spec, layout)
    return _pairs(meeting, (rows, rows), (False, False), replaced, columns)


def pairs_across(how: Comparison, rows: Loaded, others: Loaded, replaced: Replaced | None, stay: bool,
                 columns: list[str]) -> Frame:  # fmt: skip
    """Find the pairs of rows that came or went with others; `stay`: those others are in both versions."""
    rows, others = near_each_other(how, rows, others)
    if not len(rows["seq"]) or not len(others["seq"]):
        return how.like[columns]
    sides = ((rows, False), (others, stay))
    if len(rows["seq"]) > len(others["seq"]):  # searched for is the smaller side
        sides = sides[::-1]
    layout = layout_for([others, rows], how.spec)
    q, d = (chunk_of(side, layout) for side, _ in sides)
    meeting = Meeting(q, d, False, how.spec, layout)
    (first, stays), (second, stays_too) = sides
    return _pairs(meeting, (first, second), (stays, stays_too), replaced, columns)


def near_each_other(how: Comparison, rows: Loaded, others: Loaded) -> tuple[Loaded, Loaded]:
    """Leave out rows that are in no pair, as far as marked cells and boxes of tiles tell."""
    if "marks" in rows:
        near = near_marks(rows["marks"], [others["x"][:, k] for k in rows["marks"].dims])
        if len(near) < len(others["seq"]):
            others = some(others, near)
    if "tiles" in others and "tiles" in rows:
        rows, others = near_by_tiles(rows, others, how.cut, how.spec)
    if "tiles" in rows and len(others["seq"]):
        rows = near_box(rows, *bounds(others["x"]), how.cut, how.spec)
    if len(rows["seq"]) and "tiles" in others:
        others = near_box(others, *bounds(rows["x"]), how.cut, how.spec)
    return rows, others


def pairs_with_part(how: Comparison, rows: Loaded, part: Part, replaced: Replaced | None,
                    columns: list[str]) -> Frame:  # fmt: skip
    """Read rows that stayed, and find their pairs with rows that came or went."""
    others = load_near(part, how.spec, rows.get("marks"))
    return pairs_across(how, rows, others, replaced, True, columns)


def _pairs(meeting: Meeting, sides: tuple[Loaded, Loaded], stay: tuple[bool, bool],
           replaced: Replaced | None, columns: list[str]) -> Frame:  # fmt: skip
    """Make rows of the result of two chunks, or of one with itself, in which the lower number is left."""
    before, after = (side["seq"] for side in sides)
    counted = replaced is None and not any("gone" in side for side in sides)
    if counted and (meeting.same or int(before.max()) < int(after.min())):
        return join_block(meeting, columns)
    if counted and int(after.max()) < int(before.min()):
        turn = _turned(meeting.spec)
        found = join_block(meeting, [turn.get(name, name) for name in columns])
        found.columns = columns
        return found
    # which pairs changed does not depend on which of their columns are asked for
    measured = "distance" in columns or (replaced is not None and meeting.spec.return_distance)
    found = matches(meeting, measured, None)
    (q, d), xp = (meeting.q, meeting.d), meeting.xp
    for side, order, which in ((sides[0], q["order"], 0), (sides[1], d["order"], 1)):
        if "gone" in side:
            found = _only(found, ~side["gone"][order[found[which]]])
    left, right, away = q["order"][found.left], d["order"][found.right], found.distance
    if replaced is not None:
        both = [(side, rows, stays) for side, rows, stays in zip(sides, (left, right), stay, strict=True)]
        new = xp.flatnonzero(~in_other_version(replaced, both[0], both[1], away, meeting.spec))
        found, left, right = _only(found, new), left[new], right[new]
    places = found.left, found.right
    of: tuple[Chunk, ...] = (q,)
    if not meeting.same:
        swap = after[right] < before[left]
        ends = found.left, found.right + len(q["ids"])
        places, of = (xp.where(swap, *ends[::-1]), xp.where(swap, *ends)), (q, d)
    part = pair_columns((of, places[0]), (of, places[1]), meeting.spec, columns)
    if "distance" in columns:
        part["distance"] = found.distance
    return put_together([(len(found.left), part)], columns, frames_for(q["example"]))


def _only(found: Matches, which: Array) -> Matches:
    """Take some of the pairs."""
    away = found.distance
    distance = None if away is None else away[which]
    return found._replace(left=found.left[which], right=found.right[which], distance=distance)


def _turned(spec: JoinSpec) -> dict[str, str]:
    """Name the columns that a pair's columns are if its rows change places."""
    both = [("left", "right"), *zip(spec.kept_left, spec.kept_right, strict=True)]
    return {a: b for pair in both for a, b in (pair, pair[::-1])}


def pairs_of_two(how: Comparison, rows: Loaded, others: Loaded, columns: list[str]) -> Frame:
    """Find pairs of the rows of a frame, which are left, with those of an index."""
    rows, others = near_each_other(how, rows, others)
    if not len(rows["seq"]) or not len(others["seq"]):
        return how.like[columns]
    layout = layout_for([rows, others], how.spec)
    q, d = (chunk_of(side, layout) for side in (rows, others))
    return join_block(Meeting(q, d, False, how.spec, layout), columns)
