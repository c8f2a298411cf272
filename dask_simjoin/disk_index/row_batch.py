"""Rows of an index in memory; and pairs of replaced rows, which may exist in both versions.

A replaced row keeps its row number. So its pairs with unchanged or replaced rows may exist in both versions,
and are then neither added nor removed. Each task drops such pairs by itself: it computes whether the two rows
are also a pair with their coordinates in the other version. If a kept value or the distance of a pair
changed, the pair counts as removed and added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.disk_index.cell_filter import (
    CellBoxes,
    CellFilter,
    Tiled,
    make_cell_filter,
    near_tiles,
    rows_in_cells,
    tiled,
    tiled_in_file_order,
)
from dask_simjoin.disk_index.rows import read_both, read_every, read_part
from dask_simjoin.disk_index.schema import arrow_of
from dask_simjoin.disk_index.types import SEQ, Part
from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, to_host, values_of
from dask_simjoin.engine.ids import joined, row_ids
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.metrics.norms import Array, Frame, Ids, Norm, add
from dask_simjoin.planning.partition import points
from dask_simjoin.planning.sample import merge_moments, moments
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Chunk, indexed
from dask_simjoin.tasks.matches import measured

SAMPLED_ROWS = 2048
"""Sample about this many rows of each batch to choose an index layout."""

MAX_ORDERED = 1 << 18
"""Sort at most this many changed rows; tiles of more rows are compact even in the order of files."""

MAX_TILE_PAIRS = 1 << 20
"""Compare at most this many pairs of tiles of two parts, which takes a few milliseconds."""

FEW_GONE = 8
"""If less than one in this many rows is deleted, compare all rows, and drop their pairs later."""

MAX_MARKED = 0.5
"""Use no cell filter if a larger share of the cells is marked: it would drop too few rows."""


class RowBatch(TypedDict):
    """A batch of rows: a plain dict of arrays and frames, which Dask can spill."""

    x: Array  # embedded coordinates (n, d)
    seq: Array  # row numbers (n,)
    ids: Ids
    example: Frame  # an empty frame
    kept: NotRequired[Frame]
    tiles: NotRequired[Tiled]  # tiles of consecutive rows of this batch
    cell_filter: NotRequired[CellFilter]  # cells near changed rows, if they exclude enough other rows
    gone: NotRequired[Array]  # mask (n,) of rows to ignore, if comparing them costs less than dropping them


def rows_of(frame: Frame, spec: JoinSpec, seq: Array) -> RowBatch:
    """Convert a frame to a batch of rows. `seq`: their row numbers."""
    x, kept = points(frame, spec)
    if kept is not None:
        frame, x, seq = frame[kept], x[kept], seq[kept]
    if spec.lists and not len(x):  # the length of the lists is unknown
        x = module_of(x).zeros((0, spec.dims or 1))
    found = RowBatch(x=x, seq=seq, ids=row_ids(frame, spec.id), example=frame.iloc[:0])
    if spec.keep:
        found["kept"] = frame[list(spec.keep)]
    return found


def load(part: Part, spec: JoinSpec) -> RowBatch:
    frame = read_part(part, _columns(spec))
    return rows_of(frame, spec, values_of(frame[SEQ]))


def joined_rows(parts: Sequence[RowBatch]) -> RowBatch:
    if len(parts) == 1:
        return parts[0]
    xp, frames = module_of(parts[0]["x"]), frames_for(parts[0]["example"])
    x, seq = (xp.concatenate([part[name] for part in parts]) for name in ("x", "seq"))
    found = RowBatch(x=x, seq=seq, ids=joined([part["ids"] for part in parts]), example=parts[0]["example"])
    if "kept" in parts[0]:
        found["kept"] = frames.stacked([part["kept"] for part in parts])
    return found


def load_near(part: Part, spec: JoinSpec, cell_filter: CellFilter | None = None) -> RowBatch:
    """Read the rows of a part; drop rows that `cell_filter` excludes, before gathering coordinates.

    If few rows are deleted, they are not dropped but marked in `gone`.
    """
    frame, kept = read_every(part, _columns(spec))
    frames = frames_for(frame)
    near = (
        None
        if cell_filter is None or spec.measure.embeds or spec.lists
        else _near_of(frame, spec, cell_filter)
    )
    if kept is not None and not kept.all():
        count = frames.xp.asarray(kept)
        if near is None and _few_gone(kept):
            return rows_of(frame, spec, values_of(frame[SEQ])) | {"gone": ~count}
        near = frames.xp.flatnonzero(count) if near is None else near[count[near]]
    if near is not None and len(near) < len(frame):
        frame = frame.take(near)
    return rows_of(frame, spec, values_of(frame[SEQ]))


def load_both(part: Part, listing: Part, spec: JoinSpec) -> tuple[RowBatch, RowBatch]:
    """Read row groups once; return their unchanged rows, and the deleted rows, which `listing` lists."""
    frame, kept, own = read_both(part, listing, _columns(spec))
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
    """Return whether dropping the rows that the mask `kept` excludes costs more than comparing them."""
    return FEW_GONE * int(np.count_nonzero(~kept)) < len(kept)


def _near_of(frame: Frame, spec: JoinSpec, cell_filter: CellFilter) -> Array | None:
    """Return the positions of the rows in marked cells; None: a column is not plain float64."""
    frames = frames_for(frame)
    columns = [frames.plain(frame, spec.on[k]) for k in cell_filter.dims]
    if any(values is None or values.dtype != np.float64 for values in columns):
        return None
    return rows_in_cells(cell_filter, [values for values in columns if values is not None])


def _columns(spec: JoinSpec) -> list[str]:
    return list(dict.fromkeys([SEQ, *map(str, spec.columns)]))


def changed(
    rows: RowBatch, cut: Sequence[int], spec: JoinSpec, ordered: bool, marked: bool = True
) -> RowBatch:
    """Cut changed rows into tiles and, if `marked`, mark the cells near them.

    Rows are sorted first. More than `MAX_ORDERED` rows keep their order, and no cells are marked. The same
    holds if `ordered` is False, because the rows are only compared with each other.
    """
    x, dims = to_host(rows["x"]), np.asarray(cut, np.int64)
    if not ordered or len(x) > MAX_ORDERED:
        return rows | {"tiles": tiled_in_file_order(x, dims)}
    tiles = tiled(x, dims)
    found = some(rows, module_of(rows["x"]).asarray(tiles.order))
    found["tiles"] = tiles
    cell_filter = make_cell_filter(found["x"], spec.norm, spec.threshold) if marked else None
    if cell_filter is not None and float(cell_filter.table.mean()) < MAX_MARKED:
        found["cell_filter"] = cell_filter
    return found


def some(rows: RowBatch, places: Array, points: bool = True) -> RowBatch:
    """Select the rows at positions `places`; without their coordinates if not `points`."""
    x = rows["x"]
    if not points:
        taken = module_of(places).empty((len(places), 0))
    elif x.flags.f_contiguous and x.shape[1] > 1:  # column by column, which is their memory order
        xp = module_of(x)
        taken = xp.empty((len(places), x.shape[1]), order="F")
        for k in range(x.shape[1]):
            taken[:, k] = x[:, k][places]
    else:
        taken = x[places]
    found = RowBatch(x=taken, seq=rows["seq"][places], ids=rows["ids"].take(places), example=rows["example"])
    if "kept" in rows:
        found["kept"] = rows["kept"].take(places)
    if "gone" in rows:
        found["gone"] = rows["gone"][places]
    return found


def near_box(rows: RowBatch, lower: np.ndarray, upper: np.ndarray, cut: Sequence[int],
             spec: JoinSpec) -> RowBatch:  # fmt: skip
    """Return the changed rows whose tiles are within reach of a box."""
    dims = np.asarray(cut, np.int64)
    boxes = CellBoxes(dims, lower[None, dims], upper[None, dims])
    return _of_tiles(rows, near_tiles(rows["tiles"], boxes, spec.norm, spec.threshold)[:, 0])


def near_by_tiles(
    rows: RowBatch, others: RowBatch, cut: Sequence[int], spec: JoinSpec
) -> tuple[RowBatch, RowBatch]:
    """Drop rows of two parts if their tile is not within reach of a tile of the other part.

    Rows of an update are anywhere in space, so boxes of entire parts would exclude no rows. If there are too
    many pairs of tiles, both parts are returned unchanged.
    """
    tiles, theirs = rows["tiles"], others["tiles"]
    if len(tiles.lower) * len(theirs.lower) > MAX_TILE_PAIRS:
        return rows, others
    boxes = CellBoxes(np.asarray(cut, np.int64), theirs.lower, theirs.upper)
    near = near_tiles(tiles, boxes, spec.norm, spec.threshold)
    mine, own = (np.logical_or.reduce(near, axis) for axis in (1, 0))
    return _of_tiles(rows, mine), _of_tiles(others, own)


def _of_tiles(rows: RowBatch, chosen: np.ndarray) -> RowBatch:
    """Select the rows of the tiles that the mask `chosen` (tiles,) marks."""
    if chosen.all():
        return rows
    tiles = rows["tiles"]
    places = (np.flatnonzero(chosen)[:, None] * tiles.size + np.arange(tiles.size)).ravel()
    return some(rows, module_of(rows["x"]).asarray(places[places < len(tiles.x)]))


def layout_for(sides: Sequence[RowBatch], spec: JoinSpec) -> Layout:
    every = merge_moments([moments(side["x"]) for side in sides])
    sample = [to_host(side["x"][:: max(1, len(side["x"]) // SAMPLED_ROWS)]) for side in sides]
    joiner = joiner_for(sides[0]["example"])
    return joiner.layout(
        spec.method, every.lower, every.upper, every.mean, every.variance, spec.threshold, spec.norm,
        JoinSample(sample[0], sample[-1], len(sides[-1]["x"])),
    )  # fmt: skip


def chunk_of(rows: RowBatch, layout: Layout) -> Chunk:
    extra: dict[str, Any] = {"kept": rows["kept"]} if "kept" in rows else {}
    return indexed(rows["x"], rows["ids"], layout, rows["example"], extra)


class ReplacedRows(TypedDict):
    """The values that replaced rows have in the other version."""

    seq: Array  # row numbers (m,), ascending
    x: Array  # embedded coordinates (m, d)
    kept: NotRequired[Frame]


def replaced_of(own: list[Array], other: RowBatch) -> ReplacedRows:
    """Select the rows of `other` whose row numbers are in `own`."""
    xp = module_of(other["x"])
    both = xp.flatnonzero(xp.isin(other["seq"], xp.concatenate(own)))
    found = ReplacedRows(seq=other["seq"][both], x=other["x"][both])
    if "kept" in other:
        found["kept"] = other["kept"].take(both)
    return found


def concat_replaced(parts: list[ReplacedRows]) -> ReplacedRows | None:
    """Concatenate the replaced rows of several parts; None: no row was replaced."""
    xp = module_of(parts[0]["x"])
    seq, x = (xp.concatenate([part[name] for part in parts]) for name in ("seq", "x"))
    if not len(seq):
        return None
    order = xp.argsort(seq)
    found = ReplacedRows(seq=seq[order], x=x[order])
    if "kept" in parts[0]:
        kept = [part["kept"] for part in parts]
        found["kept"] = frames_for(kept[0]).stacked(kept).take(order)
    return found


def other_values(
    replaced: ReplacedRows, rows: RowBatch, places: Array, stay: bool
) -> tuple[Array, Array, Array]:
    """Look up rows in the other version. `places` (m,): their positions in `rows`.

    Return their coordinates there (m, d), a mask (m,) of those that exist there, and a mask (m,) of those
    that were replaced. A row whose kept values changed counts as missing there. `stay`: whether rows that
    were not replaced are in both versions.
    """
    xp = module_of(places)
    at, found = _looked_up(replaced, rows["seq"][places])
    x = xp.where(found[:, None], replaced["x"][at], rows["x"][places])
    there = found | stay
    if "kept" in replaced and "kept" in rows:
        there &= ~_kept_changed(replaced, rows)[places]
    return x, there, found


def _looked_up(replaced: ReplacedRows, seq: Array) -> tuple[Array, Array]:
    """Look up row numbers in `replaced`; return their positions in it, and a mask of those that it has."""
    xp = module_of(seq)
    at = xp.minimum(xp.searchsorted(replaced["seq"], seq), len(replaced["seq"]) - 1)
    return at, replaced["seq"][at] == seq


def _kept_changed(replaced: ReplacedRows, rows: RowBatch) -> Array:
    """Return a mask (n,) of the rows whose kept values differ between the two versions."""
    xp = module_of(rows["seq"])
    at, there = _looked_up(replaced, rows["seq"])
    both, found = xp.flatnonzero(there), xp.zeros(len(there), bool)
    if len(both):
        sides = (rows["kept"].take(both), replaced["kept"].take(at[both]))
        columns = zip(*(arrow_of(side).columns for side in sides), strict=True)
        found[both] = xp.asarray(np.any([_unlike(*pair) for pair in columns], axis=0))
    return found


def _unlike(own: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """Return a mask (n,) of the values that differ; missing values and NaN are equal."""
    kinds = own.type, other.type
    # compared as texts, because the two decimal types may differ
    odd = pa.types.is_nested, pa.types.is_decimal
    if any(isinstance(kind, pa.BaseExtensionType) or any(is_odd(kind) for is_odd in odd) for kind in kinds):
        texts = zip(map(repr, own.to_pylist()), map(repr, other.to_pylist()), strict=True)
        return np.array([first != second for first, second in texts], bool)
    if pa.types.is_null(own.type):  # all values are missing, so their type is unknown
        own = own.cast(pa.large_string() if pa.types.is_null(other.type) else other.type)
    none = [np.asarray(pc.is_null(side, nan_is_null=True), bool) for side in (own, other)]
    values = np.asarray(pc.fill_null(pc.not_equal(own, other.cast(own.type)), False), bool)
    return np.where(none[0] | none[1], none[0] != none[1], values)


def totals_of(x: Array, y: Array, norm: Norm) -> Array:
    """Return the total of each pair (m,), which a join compares with its threshold.

    `x`, `y` (m, d): coordinates of both rows. Terms are added in the same order as in joins.
    """
    total = module_of(x).zeros(len(x))
    with np.errstate(over="ignore", under="ignore"):
        for k in range(x.shape[1]):
            total = add(total, abs(x[:, k] - y[:, k]), norm)
    return total


def in_other_version(replaced: ReplacedRows, left: tuple[RowBatch, Array, bool],
                     right: tuple[RowBatch, Array, bool], distance: Array | None,
                     spec: JoinSpec) -> Array:  # fmt: skip
    """Return a mask (m,) of the pairs of changed rows that are also pairs in the other version.

    `left`, `right`: the rows of each pair, as a batch, positions in it, and `stay` (see `other_values`).
    `distance`: if given, pairs must also have these distances in the other version.
    """
    xp = module_of(left[1])
    (x, there, changed), (y, also, too) = (other_values(replaced, *side) for side in (left, right))
    places = xp.flatnonzero(there & also & (changed | too))
    found = xp.zeros(len(there), bool)
    if not len(places):
        return found
    total = totals_of(x[places], y[places], spec.norm)
    are_pairs = total <= spec.threshold
    if distance is not None:
        are_pairs &= measured(spec, xp)(total) == distance[places]
    found[places] = are_pairs
    return found
