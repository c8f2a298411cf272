"""Decide which row groups are compared: the groups of added or deleted rows, and the old groups near them.

Moved rows are rows that were added or deleted.  They are read here once, and their coordinates and the boxes
of row groups decide.  Few old rows are read here (see `read_gone`).  A task compares at most a chunk of moved
rows with a part of the old row groups within reach.
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

OWN_BYTES = 40
"""Bytes per row in memory besides its coordinates: its number, its id, its position in an index."""

TIMES = 3
"""Memory for coordinates while they are indexed, as a multiple of the bytes of the coordinates."""

KEPT_BYTES = 16
"""Approximate bytes per row in memory for each kept column."""

TASKS_PER_THREAD, FEW_TASKS_PER_THREAD = 4, 2
"""Parts of old rows per thread, for balance: with enough rows, and with few estimated pairs."""

LEAST_ROWS = 1 << 16
"""Minimum number of old rows that are worth a task."""

MOST_PAIRS = 1 << 24
"""Estimated pairs per task, above which a join of all rows gets more tasks: half a GB."""

OUT_OF_CORE = 4
"""Rows may not stay in memory if they exceed this multiple of the rows that all threads hold at once."""

READ_AGAIN = 12
"""Reading all rows at most this often is cheaper than spilling them.

Spilling rows takes as long as reading them about twenty times.
"""

SENT = 1 << 22
"""Maximum bytes of moved rows to send with a cluster's graph; above that, tasks read the rows again."""


class Sizes(NamedTuple):
    """Rows per task, the number of threads, and the bytes of moved rows that may stay in memory."""

    rows: int
    threads: int
    hold_bytes: int


def sizes(snapshot: Snapshot, spec: JoinSpec) -> Sizes:
    """Return the limits of tasks, from the workers' memory or the configuration."""
    resources = resources_for(snapshot.library)
    chunk = make_budget(None, current_settings(on_cluster()), resources).chunk
    each = row_bytes(spec)
    return Sizes(max(1, int(chunk // each)), resources.threads, SENT if resources.cluster else chunk)


def row_bytes(spec: JoinSpec) -> int:
    """Return the bytes of a row while it is compared."""
    return TIMES * 8 * (spec.dims or 1) + OWN_BYTES + KEPT_BYTES * len(spec.keep)


def boxes_of(rows: Snapshot) -> CellBoxes:
    """Return the boxes of row groups, by ascending dimension: totals are summed in that order."""
    cut = np.asarray(rows.options.cut, np.int64)
    order = np.argsort(cut, kind="stable")
    low, high = (np.ascontiguousarray(side[:, order]) for side in (rows.groups.low, rows.groups.high))
    return CellBoxes(cut[order], low, high)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The parts of rows that tasks compare.

    Attributes
    ----------
    spec : JoinSpec
    cut : tuple of int
        The dimensions of the boxes.
    moved : tuple of Part, CachedPart or RowBatch
        Rows that were added or deleted: parts that tasks read, or rows that were read already.
    within : tuple of int
        Indexes in `moved` of parts that are compared with themselves.
    across : tuple of (int, int)
        Indexes in `moved` of parts that are compared with each other.
    old : tuple of Part, CachedPart or RowBatch
        Rows in both versions.
    meet : tuple of (int, int)
        Indexes in `moved` and in `old` of parts that are compared.
    replaced : ReplacedRows or None
    touched, read : array, int64
        Row groups of old rows that are compared; the row groups among these that are not in memory.
    moved_rows : int
        Number of moved rows.
    token : str
        A name that no other blocks have.
    read_apart : tuple of tuples of Part
        Parts that a task reads by itself: one that is compared with itself, or two with each other.
    """

    spec: JoinSpec
    cut: tuple[int, ...]
    moved: tuple[Part | CachedPart | RowBatch, ...]
    within: tuple[int, ...]
    across: tuple[tuple[int, int], ...]
    old: tuple[Part | CachedPart | RowBatch, ...]
    meet: tuple[tuple[int, int], ...]
    replaced: ReplacedRows | None
    touched: np.ndarray
    read: np.ndarray
    moved_rows: int
    token: str
    read_apart: tuple[tuple[Part, ...], ...] = ()

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
    """Moved rows after one read: their parts, tiles, sequence numbers and count."""

    parts: list[Part | CachedPart | RowBatch]
    tiles: list[Tiled]
    seqs: list[Array]
    rows: int


def read_side(rows: Snapshot, spec: JoinSpec, size: Sizes, ordered: bool, marked: bool,
              cached: CachedRows) -> BlockSide:  # fmt: skip
    """Read moved rows part by part; keep them in memory if they are few enough."""
    few = rows.rows * row_bytes(spec) <= size.hold_bytes
    cut = boxes_of(rows).dims.tolist()
    parts: list[Part | CachedPart | RowBatch] = []
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
    old: list[Part | CachedPart | RowBatch] = [rest.part(part) for part in some]
    there_too: list[tuple[CachedPart | RowBatch, np.ndarray]] = [
        *_in_memory(segments, rest, chosen),
        *unchanged,
    ]
    old += [part for part, _ in there_too]
    some += [groups for _, groups in there_too]
    meet = [
        (i, j) for j, part in enumerate(some) for i in np.flatnonzero(reached[:, part].any(axis=1)).tolist()
    ]
    return Blocks(
        spec, tuple(boxes.dims.tolist()), tuple(side.parts),
        tuple(range(len(side.parts))), tuple(near_parts(side.tiles, boxes.dims, spec)),
        tuple(old), tuple(meet), replaced, chosen, read, side.rows,
        tokenize(snapshot_token(own, spec), snapshot_token(rest), size.rows, [one.key for one in segments]),
    )  # fmt: skip


def even_parts(rows: np.ndarray, size: Sizes) -> list[np.ndarray]:
    """Cut old row groups into parts with about equally many rows, one per task."""
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
    """Order row groups so that neighbors lie together, in any file."""
    middle = boxes.lower / 2 + boxes.upper / 2
    if len(middle) < 2:
        return np.arange(len(middle))
    with np.errstate(over="ignore"):  # squares overflow: a column of huge numbers is cut first
        variance = np.nan_to_num(middle.var(axis=0))
    return kd_order(middle, dims_to_cut(variance), 1, 2)


def _rows_of_a_task(boxes: CellBoxes, counts: np.ndarray, spec: JoinSpec, threads: int) -> int:
    """Return the maximum rows per task if all rows are joined; `counts` (groups,): rows of each row group.

    Each comparison indexes both of its parts anew.  Updates make row groups overlap, which causes more
    comparisons.  So there are only as many parts as threads and pairs need.  The number of pairs is
    estimated as if rows were uniform in their boxes.
    """
    whole, max_group = int(counts.sum()), int(counts.max(initial=1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        near = np.fmin(1.0, 2 * reach(spec.norm, spec.threshold) / (boxes.upper - boxes.lower)).prod(axis=1)
    min_tasks = FEW_TASKS_PER_THREAD * threads if threads > 1 else 1
    tasks = max(min_tasks, math.ceil(float((near * counts) @ counts) / MOST_PAIRS))
    # parts end between row groups: room for one more group spares the last rows a part of their own
    return max(-(-whole // min(tasks, TASKS_PER_THREAD * threads)) + max_group - 1, LEAST_ROWS)


def all_blocks(rows: Snapshot, spec: JoinSpec, size: Sizes) -> Blocks:
    """Choose blocks that compare all row groups within reach of each other; no rows are read."""
    boxes = boxes_of(rows)
    counts = _named(rows) if rows.named else rows.groups.rows
    near = _side_by_side(boxes)
    max_rows = min(size.rows, _rows_of_a_task(boxes, counts, spec, size.threads))
    parts = [near[some] for some in cut_parts(counts[near], max_rows)]
    apart: list[tuple[np.ndarray, ...]] = [(part,) for part in parts]
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
        # rows that wait for further tasks that compare them would be spilled
        return replace(found, read_apart=tuple(tuple(rows.part(part) for part in some) for some in apart))
    moved_parts = tuple(rows.part(some) for some in parts)
    return replace(found, moved=moved_parts, within=tuple(range(len(parts))), across=tuple(across))
