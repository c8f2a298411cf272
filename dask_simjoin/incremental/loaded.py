"""Rows of an index as tasks hold them: coordinates, numbers, ids, and boxes of those that lie together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, to_host, values_of
from dask_simjoin.engine.ids import joined, row_ids
from dask_simjoin.engine.index.screen import Drawn
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.incremental.marks import Marks, mark, near_marks
from dask_simjoin.incremental.reach import Boxes, Tiled, near_tiles, tiled, tiled_as_they_lie
from dask_simjoin.incremental.rows import read_both, read_every, read_part
from dask_simjoin.incremental.types import SEQ, Part
from dask_simjoin.metrics.types import Array, Frame, Ids
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.statistics.moments import merge_moments, moments
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.tasks.chunks import Chunk, indexed

DRAWN = 2048
"""Rows of each side from which a layout is chosen."""

MOST_ORDERED = 1 << 18
"""Rows that came or went up to which they are put in order first: more lie in the order of their files, by
which they are told apart well enough, and mark most cells."""

MOST_TOLD = 1 << 20
"""Tiles of two parts that are compared at most: some ms."""

FEW = 8
"""Rows that do not count are compared with the others where they are fewer than one of so many."""

FULL = 0.5
"""Share of marked cells from which on they tell too little to be asked."""


class Loaded(TypedDict):
    """Hold rows: a plain dict of arrays and frames, so that it spills.

    `x` (n, d) are embedded coordinates, `seq` (n,) the rows' sequence numbers; `example` is an empty frame.
    """

    x: Array
    seq: Array
    ids: Ids
    example: Frame
    kept: NotRequired[Frame]
    tiles: NotRequired[Tiled]
    """Of rows that came or went, which are in their order."""
    marks: NotRequired[Marks]
    """The same rows' neighbourhood, where it tells them from others."""
    gone: NotRequired[Array]
    """Of rows that stayed, which (n,) did not, where leaving so few out takes longer than their pairs."""


def rows_of(frame: Frame, spec: JoinSpec, seq: Array) -> Loaded:
    """Take what tasks need of a frame; `seq`: the numbers of its rows."""
    x, kept = points(frame, spec)
    if kept is not None:
        frame, x, seq = frame[kept], x[kept], seq[kept]
    if spec.lists and not len(x):  # no list tells how many columns there are
        x = module_of(x).zeros((0, spec.dims or 1))
    found = Loaded(x=x, seq=seq, ids=row_ids(frame, spec.id), example=frame.iloc[:0])
    if spec.keep:
        found["kept"] = frame[list(spec.keep)]
    return found


def load(part: Part, spec: JoinSpec) -> Loaded:
    """Read row groups."""
    frame = read_part(part, _columns(spec))
    return rows_of(frame, spec, values_of(frame[SEQ]))


def joined_rows(parts: Sequence[Loaded]) -> Loaded:
    """Put rows one after the other; there is one part at least."""
    if len(parts) == 1:
        return parts[0]
    xp, frames = module_of(parts[0]["x"]), frames_for(parts[0]["example"])
    x, seq = (xp.concatenate([part[name] for part in parts]) for name in ("x", "seq"))
    found = Loaded(x=x, seq=seq, ids=joined([part["ids"] for part in parts]), example=parts[0]["example"])
    if "kept" in parts[0]:
        found["kept"] = frames.stacked([part["kept"] for part in parts])
    return found


def load_near(part: Part, spec: JoinSpec, marks: Marks | None = None) -> Loaded:
    """Read row groups, but for rows that are told to be in no pair before their coordinates are gathered.

    Among them may be rows that do not count, which are told as `gone`.
    """
    frame, kept = read_every(part, _columns(spec))
    frames = frames_for(frame)
    near = None if marks is None or spec.measure.embeds or spec.lists else _near_of(frame, spec, marks)
    if kept is not None and not kept.all():
        count = frames.xp.asarray(kept)
        if near is None and _few_gone(kept):
            return rows_of(frame, spec, values_of(frame[SEQ])) | {"gone": ~count}
        near = frames.xp.flatnonzero(count) if near is None else near[count[near]]
    if near is not None and len(near) < len(frame):
        frame = frame.take(near)
    return rows_of(frame, spec, values_of(frame[SEQ]))


def load_both(part: Part, named: Part, spec: JoinSpec) -> tuple[Loaded, Loaded]:
    """Read row groups once: rows that stayed, as `load_near` does, and those that another part names."""
    frame, kept, own = read_both(part, named, _columns(spec))
    rows = rows_of(frame, spec, values_of(frame[SEQ]))
    xp = module_of(rows["seq"])
    went = some(rows, xp.asarray(np.flatnonzero(own)))
    if kept is None or kept.all():
        return rows, went
    if _few_gone(kept):
        rows["gone"] = xp.asarray(~kept)
        return rows, went
    return some(rows, xp.asarray(np.flatnonzero(kept))), went


def _few_gone(kept: np.ndarray) -> bool:
    """Tell whether leaving rows out, those that are not kept (n,), takes longer than their pairs."""
    return FEW * int(np.count_nonzero(~kept)) < len(kept)


def _near_of(frame: Frame, spec: JoinSpec, marks: Marks) -> Array | None:
    """Tell which rows of a frame are near marked ones; None: its columns are no plain numbers."""
    frames = frames_for(frame)
    columns = [frames.plain(frame, spec.on[k]) for k in marks.dims]
    if any(values is None or values.dtype != np.float64 for values in columns):
        return None
    return near_marks(marks, [values for values in columns if values is not None])


def _columns(spec: JoinSpec) -> list[str]:
    return list(dict.fromkeys([SEQ, *map(str, spec.columns)]))


def moved(rows: Loaded, cut: Sequence[int], spec: JoinSpec, ordered: bool, marked: bool = True) -> Loaded:
    """Put rows that came or went in order, with their tiles and, if `marked`, their neighbourhood.

    Rows that are compared with none but themselves, and are not `ordered`, stay as they lie; so do very many.
    """
    x, dims = to_host(rows["x"]), np.asarray(cut, np.int64)
    if not ordered or len(x) > MOST_ORDERED:
        return rows | {"tiles": tiled_as_they_lie(x, dims)}
    tiles = tiled(x, dims)
    found = some(rows, module_of(rows["x"]).asarray(tiles.order))
    found["tiles"] = tiles
    marks = mark(found["x"], spec.norm, spec.threshold) if marked else None
    if marks is not None and float(marks.table.mean()) < FULL:
        found["marks"] = marks
    return found


def some(rows: Loaded, places: Array) -> Loaded:
    """Take rows at some places."""
    x = rows["x"]
    if x.flags.f_contiguous and x.shape[1] > 1:  # column by column, as coordinates of few columns lie
        xp = module_of(x)
        taken = xp.empty((len(places), x.shape[1]), order="F")
        for k in range(x.shape[1]):
            taken[:, k] = x[:, k][places]
    else:
        taken = x[places]
    found = Loaded(x=taken, seq=rows["seq"][places], ids=rows["ids"].take(places), example=rows["example"])
    if "kept" in rows:
        found["kept"] = rows["kept"].take(places)
    if "gone" in rows:
        found["gone"] = rows["gone"][places]
    return found


def near_box(rows: Loaded, lower: np.ndarray, upper: np.ndarray, cut: Sequence[int],
             spec: JoinSpec) -> Loaded:  # fmt: skip
    """Take those of the rows that came or went whose tiles are within reach of a box."""
    dims = np.asarray(cut, np.int64)
    boxes = Boxes(dims, lower[None, dims], upper[None, dims])
    return _of_tiles(rows, near_tiles(rows["tiles"], boxes, spec.norm, spec.threshold)[:, 0])


def near_by_tiles(rows: Loaded, others: Loaded, cut: Sequence[int], spec: JoinSpec) -> tuple[Loaded, Loaded]:
    """Take those of two parts' rows whose tiles are within reach of one of the other's, if that is soon told.

    Where a part has rows of updates, which lie across all others, the box of all of it tells nothing.
    """
    tiles, theirs = rows["tiles"], others["tiles"]
    if len(tiles.lower) * len(theirs.lower) > MOST_TOLD:
        return rows, others
    boxes = Boxes(np.asarray(cut, np.int64), theirs.lower, theirs.upper)
    near = near_tiles(tiles, boxes, spec.norm, spec.threshold)
    mine, own = (np.logical_or.reduce(near, axis) for axis in (1, 0))
    return _of_tiles(rows, mine), _of_tiles(others, own)


def _of_tiles(rows: Loaded, chosen: np.ndarray) -> Loaded:
    """Take the rows of some tiles (tiles,), bool."""
    if chosen.all():
        return rows
    tiles = rows["tiles"]
    places = (np.flatnonzero(chosen)[:, None] * tiles.size + np.arange(tiles.size)).ravel()
    return some(rows, module_of(rows["x"]).asarray(places[places < len(tiles.x)]))


def layout_for(sides: Sequence[Loaded], spec: JoinSpec) -> Layout:
    """Choose how rows that are compared are indexed."""
    every = merge_moments([moments(side["x"]) for side in sides])
    drawn = [to_host(side["x"][:: max(1, len(side["x"]) // DRAWN)]) for side in sides]
    joiner = joiner_for(sides[0]["example"])
    return joiner.layout(
        spec.method, every.lower, every.upper, every.mean, every.variance, spec.threshold, spec.norm,
        Drawn(drawn[0], drawn[-1], len(sides[-1]["x"])),
    )  # fmt: skip


def chunk_of(rows: Loaded, layout: Layout) -> Chunk:
    """Index rows."""
    extra: dict[str, Any] = {"kept": rows["kept"]} if "kept" in rows else {}
    return indexed(rows["x"], rows["ids"], layout, rows["example"], extra)
