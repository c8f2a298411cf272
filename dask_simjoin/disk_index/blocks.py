"""Choose the row groups that are compared: groups of added or deleted rows, and the old groups near them.

Moved rows are rows that were added or deleted.  They are read here once, and compared with the boxes of old
row groups.  Old row groups are read in tasks, except for few (see `read_gone`).  A task compares at most a
chunk of moved rows with a part of the old row groups within reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from dask.tokenize import tokenize

from dask_simjoin.disk_index.cell_filter import CellBoxes, Tiled, near_tiles, touched
from dask_simjoin.disk_index.files import cut_parts
from dask_simjoin.disk_index.row_batch import ReplacedRows, RowBatch, moved
from dask_simjoin.disk_index.segments import (
    CachedPart,
    CachedRows,
    SegmentRef,
    UnchangedRows,
    loaded,
    whole_segment,
)
from dask_simjoin.disk_index.types import Part, Snapshot
from dask_simjoin.engine.index.kdtree import dims_to_cut, kd_order
from dask_simjoin.metrics.norms import Array, reach
from dask_simjoin.planning.budget import make_budget
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.request.options import current_settings, on_cluster
from dask_simjoin.request.spec import JoinSpec

OWN_BYTES, KEPT_BYTES = 40, 16
"""Bytes per row in memory for its number, its id and its position in an index; and for each kept column."""

TIMES = 3
"""Memory for coordinates while they are indexed, as a multiple of the bytes of the coordinates."""

TASKS_PER_THREAD, FEW_TASKS_PER_THREAD = 4, 2
"""Parts of old rows per thread, which balance the work; and the smaller number if few pairs are expected."""

LEAST_ROWS = 1 << 16
"""Minimum number of old rows that are worth a task."""

MOST_PAIRS = 1 << 24
"""Estimated pairs per task, half a GB; a join of all rows with more pairs gets more tasks."""

OUT_OF_CORE = 4
"""More rows than this multiple of what all threads hold at once may be spilled."""

READ_AGAIN = 12
"""Reading all rows at most this many times is cheaper than spilling them, which costs about 20 reads."""

SENT = 1 << 22
"""Maximum bytes of moved rows to send with a cluster's graph; tasks read more rows again from files."""


class Sizes(NamedTuple):
    """Limits of tasks."""

    rows: int  # rows per task
    threads: int
    hold_bytes: int  # bytes of moved rows that may stay in memory


def sizes(snapshot: Snapshot, spec: JoinSpec) -> Sizes:
    """Return the limits of tasks, from the workers' memory or the configuration."""
    resources = resources_for(snapshot.library)
    chunk = make_budget(None, current_settings(on_cluster()), resources).chunk
    each = row_bytes(spec)
    return Sizes(max(1, int(chunk // each)), resources.threads, SENT if resources.cluster else chunk)


AnyPart = Part | CachedPart | RowBatch
"""Rows that a task reads, rows in memory that a task selects, or rows that were read already."""


def row_bytes(spec: JoinSpec) -> int:
    """Return the bytes of a row while it is compared."""
    return TIMES * 8 * (spec.dims or 1) + OWN_BYTES + KEPT_BYTES * len(spec.keep)


def boxes_of(rows: Snapshot) -> CellBoxes:
    """Return the boxes of row groups with ascending dimensions, since totals are summed in this order."""
    cut = np.asarray(rows.options.cut, np.int64)
    order = np.argsort(cut, kind="stable")
    low, high = (np.ascontiguousarray(side[:, order]) for side in (rows.groups.low, rows.groups.high))
    return CellBoxes(cut[order], low, high)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The parts of rows that tasks compare."""

    spec: JoinSpec
    cut: tuple[int, ...]  # the dimensions of the boxes
    moved: tuple[AnyPart, ...]  # rows that were added or deleted
    within: tuple[int, ...]  # indexes in `moved` of parts that are compared with themselves
    across: tuple[tuple[int, int], ...]  # indexes in `moved` of two parts that are compared with each other
    old: tuple[AnyPart, ...]  # rows in both versions
    meet: tuple[tuple[int, int], ...]  # indexes in `moved` and in `old` of two parts that are compared
    replaced: ReplacedRows | None
    touched: np.ndarray  # indexes of the old row groups that are compared
    read: np.ndarray  # indexes of the row groups in `touched` that are not in memory
    moved_rows: int  # number of moved rows
    token: str  # a name that no other blocks have
    read_apart: tuple[tuple[Part, ...], ...] = ()
    """Parts that only one task reads: a part to compare with itself, or two to compare with each other."""

    def __len__(self) -> int:
        return len(self.read_apart) + len(self.within) + len(self.across) + len(self.meet)

    def __dask_tokenize__(self) -> str:
        return self.token

    def __repr__(self) -> str:
        return f"<{len(self)} blocks>"


def snapshot_token(rows: Snapshot, *more: object) -> str:
    """Return a unique name for a snapshot, from the names of its files: files never change."""
    groups = [values.tobytes() for values in vars(rows.groups).values()]
    return tokenize(
        str(rows.root), rows.library, rows.files, groups, rows.deleted, rows.named, rows.versions, *more
    )


class BlockSide(NamedTuple):
    """Moved rows after one read: for each part its rows, tiles and sequence numbers; and the total count."""

    parts: list[AnyPart]
    tiles: list[Tiled]
    seqs: list[Array]
    rows: int


def read_side(rows: Snapshot, spec: JoinSpec, size: Sizes, ordered: bool, marked: bool,
              cached: CachedRows) -> BlockSide:  # fmt: skip
    """Read moved rows part by part; keep them in memory if they are few enough."""
    few = rows.rows * row_bytes(spec) <= size.hold_bytes
    cut = boxes_of(rows).dims.tolist()
    parts: list[AnyPart] = []
    tiles, seqs = [], []
    for chosen in cut_parts(rows.groups.rows if not rows.named else _named(rows), size.rows):
        part = cached.part(rows, chosen)
        read = moved(loaded(part, spec), cut, spec, ordered and few, marked)
        if len(read["seq"]):
            parts.append(read if few else part)
            tiles.append(read["tiles"])
            seqs.append(read["seq"])
    return BlockSide(parts, tiles, seqs, sum(len(some.x) for some in tiles))


def _named(rows: Snapshot) -> np.ndarray:
    """Count the rows of each row group that `rows.places` names: (g,)."""
    counts = np.zeros(len(rows.groups), np.int64)
    for n, (file, start, size) in enumerate(
        zip(rows.groups.file.tolist(), rows.groups.start.tolist(), rows.groups.rows.tolist(), strict=True)
    ):
        places = rows.places.get(file)
        if places is not None:
            counts[n] = np.searchsorted(places, start + size) - np.searchsorted(places, start)
    return counts


def near_parts(tiles: Sequence[Tiled], dims: np.ndarray, spec: JoinSpec) -> Iterator[tuple[int, int]]:
    """Yield pairs of parts of moved rows that may contain a close pair."""
    for i, first in enumerate(tiles):
        for j in range(i + 1, len(tiles)):
            boxes = CellBoxes(np.arange(len(dims)), tiles[j].lower, tiles[j].upper)
            if near_tiles(first, boxes, spec.norm, spec.threshold).any():
                yield i, j


def blocks_of(side: BlockSide, own: Snapshot, rest: Snapshot, spec: JoinSpec, size: Sizes,
              replaced: ReplacedRows | None, cached: CachedRows,
              unchanged: Sequence[UnchangedRows] = ()) -> Blocks:  # fmt: skip
    """Choose the blocks that compare added or deleted rows with each other and with rows in both versions.

    `unchanged`: rows in both versions that have been read already.
    """
    boxes = boxes_of(rest)
    reached = np.zeros((len(side.tiles), len(rest.groups)), bool)
    for i, tiles in enumerate(side.tiles):
        near = near_tiles(tiles, boxes, spec.norm, spec.threshold)
        reached[i] = touched(tiles, near, boxes, spec.norm, spec.threshold)
    chosen = np.flatnonzero(reached.any(axis=0))
    segments, there = cached.among(rest, chosen)
    read = chosen[~there]
    fresh = np.setdiff1d(read, [group for one in unchanged for group in one.groups.tolist()])
    some = [fresh[part] for part in even_parts(rest.groups.rows[fresh], size)]
    old: list[AnyPart] = [rest.part(part) for part in some]
    there_too: list[tuple[AnyPart, np.ndarray]] = [*_in_memory(segments, rest, chosen), *unchanged]
    old += [part for part, _ in there_too]
    some += [groups for _, groups in there_too]
    meet = [
        (i, j)
        for j, groups in enumerate(some)
        for i in np.flatnonzero(reached[:, groups].any(axis=1)).tolist()
    ]
    return Blocks(
        spec, tuple(boxes.dims.tolist()), tuple(side.parts),
        tuple(range(len(side.parts))), tuple(near_parts(side.tiles, boxes.dims, spec)),
        tuple(old), tuple(meet), replaced, chosen, read, side.rows,
        tokenize(snapshot_token(own, spec), snapshot_token(rest), size.rows, [one.key for one in segments]),
    )  # fmt: skip


def even_parts(rows: np.ndarray, size: Sizes) -> list[np.ndarray]:
    """Cut old row groups into parts with similar numbers of rows, one per task."""
    even = -(-int(rows.sum()) // (TASKS_PER_THREAD * size.threads))
    return cut_parts(rows, min(size.rows, max(even, LEAST_ROWS)))


def _in_memory(segments: list[SegmentRef], rest: Snapshot,
               chosen: np.ndarray) -> Iterator[tuple[CachedPart, np.ndarray]]:  # fmt: skip
    """Yield parts of cached segments with the row groups in them; small segments share a part."""
    for part in cut_parts(np.array([segment.rows for segment in segments], np.int64), LEAST_ROWS):
        own = [segments[n] for n in part.tolist()]
        files = {segment.file: tuple(one for one in own if one.file == segment.file) for segment in own}
        there = CachedRows(files).among(rest, chosen)[1]
        yield CachedPart(tuple(own), tuple(whole_segment(rest, segment) for segment in own)), chosen[there]


def _side_by_side(boxes: CellBoxes) -> np.ndarray:
    """Order the row groups of all files so that neighbors in space follow each other."""
    middle = boxes.lower / 2 + boxes.upper / 2
    if len(middle) < 2:
        return np.arange(len(middle))
    with np.errstate(over="ignore"):  # squares of huge numbers overflow: such a column is cut first
        variance = np.nan_to_num(middle.var(axis=0))
    return kd_order(middle, dims_to_cut(variance), 1, 2)


def _rows_of_a_task(boxes: CellBoxes, counts: np.ndarray, spec: JoinSpec, threads: int) -> int:
    """Return the maximum rows per task if all rows are joined; `counts` (groups,): rows of each row group.

    Each comparison indexes both of its parts anew, and updates make more row groups overlap.  So rows are cut
    into no more parts than threads and pairs need.  The estimated number of pairs assumes that rows are
    uniform in their boxes.
    """
    whole, max_group = int(counts.sum()), int(counts.max(initial=1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        near = np.fmin(1.0, 2 * reach(spec.norm, spec.threshold) / (boxes.upper - boxes.lower)).prod(axis=1)
    min_tasks = FEW_TASKS_PER_THREAD * threads if threads > 1 else 1
    tasks = max(min_tasks, math.ceil(float((near * counts) @ counts) / MOST_PAIRS))
    # parts end between row groups: without room for one more group, the last rows would need another part
    return max(-(-whole // min(tasks, TASKS_PER_THREAD * threads)) + max_group - 1, LEAST_ROWS)


def all_blocks(rows: Snapshot, spec: JoinSpec, size: Sizes) -> Blocks:
    """Choose blocks that compare all row groups within reach of each other; no rows are read."""
    boxes = boxes_of(rows)
    counts = _named(rows) if rows.named else rows.groups.rows
    near = _side_by_side(boxes)
    max_rows = min(size.rows, _rows_of_a_task(boxes, counts, spec, size.threads))
    parts = [near[some] for some in cut_parts(counts[near], max_rows)]
    apart: list[tuple[np.ndarray, ...]] = [(part,) for part in parts]  # row groups that a task reads
    across = []
    for i, own in enumerate(parts):
        for j in range(i + 1, len(parts)):
            sides = [boxes.some(some) for some in (own, parts[j])]
            first = Tiled(sides[0].lower, own, 1, sides[0].lower, sides[0].upper)
            reached = near_tiles(first, sides[1], spec.norm, spec.threshold)
            if reached.any():
                across.append((i, j))
                apart.append((own[reached.any(axis=1)], parts[j][reached.any(axis=0)]))
    found = Blocks(
        spec, tuple(boxes.dims.tolist()), (), (), (), (), (), None, np.arange(0), np.arange(0),
        int(counts.sum()), tokenize(snapshot_token(rows, spec), size.rows),
    )  # fmt: skip
    read = sum(int(counts[part].sum()) for some in apart for part in some)
    if counts.sum() > OUT_OF_CORE * size.rows * size.threads and read <= READ_AGAIN * counts.sum():
        # rows that stay in memory for several tasks would be spilled, so each task reads its rows
        return replace(found, read_apart=tuple(tuple(rows.part(part) for part in some) for some in apart))
    moved_parts = tuple(rows.part(some) for some in parts)
    return replace(found, moved=moved_parts, within=tuple(range(len(parts))), across=tuple(across))
