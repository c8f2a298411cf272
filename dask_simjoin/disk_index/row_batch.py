"""Rows of an index in memory, and pairs of replaced rows.

A replaced row keeps its row number. So its pairs with unchanged rows, or with other
replaced rows, may exist in both versions. Such pairs are neither added nor removed.
Each task finds and drops them: it computes whether the two rows are also a pair with
their coordinates in the other version. If a kept value or the distance of a pair has
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
from dask_simjoin.sizes import BATCH, FEW, SAMPLED
from dask_simjoin.tasks.chunks import Chunk, indexed
from dask_simjoin.tasks.matches import measured


class RowBatch(TypedDict):
    """A batch of rows. It is a plain dict of arrays and frames, which Dask can spill to
    disk.
    """

    x: Array  # (n, d): embedded coordinates
    seq: Array  # (n,): row numbers
    ids: Ids
    example: Frame  # an empty frame that shows the library and the dtypes
    kept: NotRequired[Frame]
    tiles: NotRequired[Tiled]  # tiles of consecutive rows in this batch
    # marks cells near changed rows; only if this excludes enough other rows
    cell_filter: NotRequired[CellFilter]
    # (n,): mask of rows that do not count; only if comparing them is cheaper than
    # dropping them first
    gone: NotRequired[Array]


def rows_of(frame: Frame, spec: JoinSpec, seq: Array) -> RowBatch:
    """Convert a frame to a batch of rows. `seq`: the row number of each row."""
    x, kept = points(frame, spec)
    if kept is not None:
        frame, x, seq = frame[kept], x[kept], seq[kept]
    # without rows, the frame does not show how long lists are
    if spec.coordinates.lists and not len(x):
        x = module_of(x).zeros((0, spec.coordinates.dims or 1))
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
    found = RowBatch(
        x=x,
        seq=seq,
        ids=joined([part["ids"] for part in parts]),
        example=parts[0]["example"],
    )
    if "kept" in parts[0]:
        found["kept"] = frames.stacked([part["kept"] for part in parts])
    return found


def load_near(
    part: Part, spec: JoinSpec, cell_filter: CellFilter | None = None
) -> RowBatch:
    """Read the rows of a part. Rows that `cell_filter` excludes are dropped before
    their coordinates are gathered.

    If only few rows are deleted, they are not dropped, but marked in `gone`.
    """
    frame, kept = read_every(part, _columns(spec))
    frames = frames_for(frame)
    near = (
        None
        if cell_filter is None or spec.measure.embeds or spec.coordinates.lists
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
    """Read row groups once. Return their unchanged rows, and those deleted rows that
    `listing` lists.
    """
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
    """Return whether the mask `kept` excludes so few rows that it is cheaper to compare
    than to drop them.
    """
    return FEW * int(np.count_nonzero(~kept)) < len(kept)


def _near_of(frame: Frame, spec: JoinSpec, cell_filter: CellFilter) -> Array | None:
    """Return the positions of the rows in marked cells; None if a column is not plain
    float64.
    """
    frames = frames_for(frame)
    columns = [frames.plain(frame, spec.on[k]) for k in cell_filter.dims]
    if any(values is None or values.dtype != np.float64 for values in columns):
        return None
    return rows_in_cells(
        cell_filter, [values for values in columns if values is not None]
    )


def _columns(spec: JoinSpec) -> list[str]:
    return list(dict.fromkeys([SEQ, *map(str, spec.columns)]))


def changed(
    rows: RowBatch,
    cut: Sequence[int],
    spec: JoinSpec,
    ordered: bool,
    marked: bool = True,
) -> RowBatch:
    """Cut changed rows into tiles. If `marked`, also mark the cells near them.

    The rows are sorted in space first. But more than `BATCH` rows keep their
    order, and no cells are marked. The same holds if `ordered` is False, because such
    rows are only compared with each other.
    """
    x, dims = to_host(rows["x"]), np.asarray(cut, np.int64)
    if not ordered or len(x) > BATCH:
        return rows | {"tiles": tiled_in_file_order(x, dims)}
    tiles = tiled(x, dims)
    found = some(rows, module_of(rows["x"]).asarray(tiles.order))
    found["tiles"] = tiles
    cell_filter = (
        make_cell_filter(found["x"], spec.norm, spec.threshold) if marked else None
    )
    if cell_filter is not None:
        found["cell_filter"] = cell_filter
    return found


def some(rows: RowBatch, places: Array, points: bool = True) -> RowBatch:
    """Select the rows at positions `places`. `points`: whether to include their
    coordinates.
    """
    x = rows["x"]
    if not points:
        taken = module_of(places).empty((len(places), 0))
    # copy column by column, because the array is stored by column
    elif x.flags.f_contiguous and x.shape[1] > 1:
        xp = module_of(x)
        taken = xp.empty((len(places), x.shape[1]), order="F")
        for k in range(x.shape[1]):
            taken[:, k] = x[:, k][places]
    else:
        taken = x[places]
    found = RowBatch(
        x=taken,
        seq=rows["seq"][places],
        ids=rows["ids"].take(places),
        example=rows["example"],
    )
    if "kept" in rows:
        found["kept"] = rows["kept"].take(places)
    if "gone" in rows:
        found["gone"] = rows["gone"][places]
    return found


def near_box(
    rows: RowBatch,
    lower: np.ndarray,
    upper: np.ndarray,
    cut: Sequence[int],
    spec: JoinSpec,
) -> RowBatch:
    """Return the changed rows whose tiles are within reach of a box with the corners
    `lower` and `upper`.
    """
    dims = np.asarray(cut, np.int64)
    boxes = CellBoxes(dims, lower[None, dims], upper[None, dims])
    return _of_tiles(
        rows, near_tiles(rows["tiles"], boxes, spec.norm, spec.threshold)[:, 0]
    )


def near_by_tiles(
    rows: RowBatch, others: RowBatch, cut: Sequence[int], spec: JoinSpec
) -> tuple[RowBatch, RowBatch]:
    """From two parts of rows, drop the rows whose tile is not within reach of any tile
    of the other part.

    The changed rows of an update are all over space, so the box of a whole part would
    exclude no rows. If there are too many pairs of tiles to compare, return both parts
    unchanged.
    """
    tiles, theirs = rows["tiles"], others["tiles"]
    if len(tiles.lower) * len(theirs.lower) > BATCH:
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
    places = (
        np.flatnonzero(chosen)[:, None] * tiles.size + np.arange(tiles.size)
    ).ravel()
    return some(rows, module_of(rows["x"]).asarray(places[places < len(tiles.x)]))


def layout_for(sides: Sequence[RowBatch], spec: JoinSpec) -> Layout:
    every = merge_moments([moments(side["x"]) for side in sides])
    sample = [
        to_host(side["x"][:: max(1, len(side["x"]) // SAMPLED)]) for side in sides
    ]
    joiner = joiner_for(sides[0]["example"])
    return joiner.layout(
        spec.search.method,
        every.lower,
        every.upper,
        every.mean,
        every.variance,
        spec.threshold,
        spec.norm,
        JoinSample(sample[0], sample[-1], len(sides[-1]["x"])),
    )


def chunk_of(rows: RowBatch, layout: Layout) -> Chunk:
    extra: dict[str, Any] = {"kept": rows["kept"]} if "kept" in rows else {}
    return indexed(rows["x"], rows["ids"], layout, rows["example"], extra)


class ReplacedRows(TypedDict):
    """The values that replaced rows have in the other version.

    For added rows, the other version is the old one. For deleted rows, it is the new
    one.
    """

    seq: Array  # (m,): row numbers, ascending
    x: Array  # (m, d): embedded coordinates
    kept: NotRequired[Frame]


def replaced_of(own: list[Array], other: RowBatch) -> ReplacedRows:
    """From `other`, select the rows whose row numbers are also in `own`."""
    xp = module_of(other["x"])
    both = xp.flatnonzero(xp.isin(other["seq"], xp.concatenate(own)))
    found = ReplacedRows(seq=other["seq"][both], x=other["x"][both])
    if "kept" in other:
        found["kept"] = other["kept"].take(both)
    return found


def concat_replaced(parts: list[ReplacedRows]) -> ReplacedRows | None:
    """Concatenate the replaced rows of several parts. Return None if no row was
    replaced.
    """
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
    """Look up rows in the other version. `places` (m,): positions of the rows in
    `rows`.

    Return three arrays. The first has the coordinates there (m, d). The others are
    masks (m,) of the rows that exist there, and of the rows that were replaced. A row
    whose kept values changed counts as missing there. `stay`: whether rows that were
    not replaced are in both versions.
    """
    xp = module_of(places)
    at, found = _looked_up(replaced, rows["seq"][places])
    x = xp.where(found[:, None], replaced["x"][at], rows["x"][places])
    there = found | stay
    if "kept" in replaced and "kept" in rows:
        there &= ~_kept_changed(replaced, rows)[places]
    return x, there, found


def _looked_up(replaced: ReplacedRows, seq: Array) -> tuple[Array, Array]:
    """Look up row numbers in `replaced`.

    Return their positions in `replaced`, and a mask of the row numbers that were found.
    """
    xp = module_of(seq)
    at = xp.minimum(xp.searchsorted(replaced["seq"], seq), len(replaced["seq"]) - 1)
    return at, replaced["seq"][at] == seq


def _kept_changed(replaced: ReplacedRows, rows: RowBatch) -> Array:
    """Return a mask (n,) of the rows whose kept values are different in the two
    versions.
    """
    xp = module_of(rows["seq"])
    at, there = _looked_up(replaced, rows["seq"])
    both, found = xp.flatnonzero(there), xp.zeros(len(there), bool)
    if len(both):
        sides = (rows["kept"].take(both), replaced["kept"].take(at[both]))
        columns = zip(*(arrow_of(side).columns for side in sides), strict=True)
        found[both] = xp.asarray(np.any([_unlike(*pair) for pair in columns], axis=0))
    return found


def _unlike(own: pa.ChunkedArray, other: pa.ChunkedArray) -> np.ndarray:
    """Return a mask (n,) of the values that differ. Two missing values count as equal,
    and so do NaN.
    """
    kinds = own.type, other.type
    # compare texts instead of values, because the decimal types of the two columns may
    # differ
    odd = pa.types.is_nested, pa.types.is_decimal
    if any(
        isinstance(kind, pa.BaseExtensionType) or any(is_odd(kind) for is_odd in odd)
        for kind in kinds
    ):
        texts = zip(
            map(repr, own.to_pylist()), map(repr, other.to_pylist()), strict=True
        )
        return np.array([first != second for first, second in texts], bool)
    # all values are missing, so the column takes the type of the other one
    if pa.types.is_null(own.type):
        own = own.cast(
            pa.large_string() if pa.types.is_null(other.type) else other.type
        )
    none = [
        np.asarray(pc.is_null(side, nan_is_null=True), bool) for side in (own, other)
    ]
    values = np.asarray(
        pc.fill_null(pc.not_equal(own, other.cast(own.type)), False), bool
    )
    return np.where(none[0] | none[1], none[0] != none[1], values)


def totals_of(x: Array, y: Array, norm: Norm) -> Array:
    """Return the total of each pair (m,). It is the number that a join compares with
    its threshold.

    `x`, `y` (m, d): coordinates of the two rows of each pair. Terms are added in the
    same order as in a join.
    """
    total = module_of(x).zeros(len(x))
    with np.errstate(over="ignore", under="ignore"):
        for k in range(x.shape[1]):
            total = add(total, abs(x[:, k] - y[:, k]), norm)
    return total


def in_other_version(
    replaced: ReplacedRows,
    left: tuple[RowBatch, Array, bool],
    right: tuple[RowBatch, Array, bool],
    distance: Array | None,
    spec: JoinSpec,
) -> Array:
    """Return a mask (m,) of those pairs of changed rows that also exist in the other
    version.

    `left`, `right`: the left and the right row of each pair, given by a batch,
    positions in it, and `stay` (see `other_values`). `distance`: if given, a pair must
    also have this distance in the other version.
    """
    xp = module_of(left[1])
    (x, there, changed), (y, also, too) = (
        other_values(replaced, *side) for side in (left, right)
    )
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
