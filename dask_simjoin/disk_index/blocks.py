"""Choose the row groups that tasks compare: added or deleted rows, and old row groups
near them.

Added and deleted rows are called changed rows. They are read before any task is made,
to find the old row groups that may have rows near them. Tasks read old row groups,
except for those that `read_gone` has read together with their deleted rows. Each task
compares one part of the changed rows with one part of the old rows.
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
from dask_simjoin.disk_index.row_batch import ReplacedRows, RowBatch, changed
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
from dask_simjoin.planning.resources import READ_COPIES, limits_for
from dask_simjoin.request.options import current_settings, on_cluster
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import MIN_PART, PAIRS_AT_ONCE, PARSED_BYTES, PARTS_PER_THREAD

OWN_BYTES, KEPT_BYTES = 40, 16
"""Bytes of memory per row: for row number, id and index position together; and for each
kept column.
"""

FEW_TASKS_PER_THREAD = 2
"""Number of tasks per thread of a join of all rows if few pairs are expected.

With 1, the pairs of a large index take a quarter longer; with 4, of a small one an
eighth.
"""

OUT_OF_CORE = 4
"""Workers may have to spill rows if there are more rows than this multiple of the rows
that all threads hold at once.
"""

MAX_READS = 12
"""Tasks read rows again, instead of spilling them, if each row is then read at most
this often on average.

Spilling a row costs about as much as 20 reads.
"""


class Sizes(NamedTuple):
    rows: int  # maximum number of rows in a part
    threads: int
    hold_bytes: int  # maximum bytes of changed rows that are kept in memory


def sizes(snapshot: Snapshot, spec: JoinSpec) -> Sizes:
    """Return the limits of tasks, from the configuration and the memory of the workers."""
    limits = limits_for(snapshot.library)
    chunk = limits.sized(None, current_settings(on_cluster())).chunk
    each = row_bytes(spec)
    return Sizes(
        max(1, int(chunk // each)),
        limits.threads,
        PARSED_BYTES if limits.cluster else chunk,
    )


AnyPart = Part | CachedPart | RowBatch
"""Rows to compare: row groups to read, rows of segments in memory, or rows that have
been read.
"""


def row_bytes(spec: JoinSpec) -> int:
    """Return the bytes of memory that a row takes while rows are compared."""
    return (
        math.ceil(READ_COPIES * 8 * (spec.coordinates.dims or 1))
        + OWN_BYTES
        + KEPT_BYTES * len(spec.keep)
    )


def boxes_of(rows: Snapshot) -> CellBoxes:
    """Return the bounding boxes of row groups, with their dimensions in ascending
    order.

    The distance of a pair is summed over dimensions in the same order, so rounding is
    the same for boxes.
    """
    cut = np.asarray(rows.options.cut, np.int64)
    order = np.argsort(cut, kind="stable")
    low, high = (
        np.ascontiguousarray(side[:, order])
        for side in (rows.groups.low, rows.groups.high)
    )
    return CellBoxes(cut[order], low, high)


@dataclass(frozen=True, eq=False)
class Blocks:
    """The parts of rows to compare, and for each task the parts that it compares."""

    spec: JoinSpec
    cut: tuple[int, ...]  # the dimensions that boxes cover
    changed: tuple[AnyPart, ...]  # rows that were added or deleted
    # indexes in `changed`: each of these parts is compared with itself
    within: tuple[int, ...]
    # pairs of indexes in `changed`: these two parts are compared with each other
    across: tuple[tuple[int, int], ...]
    old: tuple[AnyPart, ...]  # rows that are in both versions
    against_old: tuple[
        tuple[int, int], ...
    ]  # an index in `changed` and an index in `old`: these two parts are compared with each other
    replaced: ReplacedRows | None
    # indexes of the old row groups that may have rows near changed rows
    touched: np.ndarray
    # those row groups in `touched` that must be read, because they are not in memory
    read: np.ndarray
    changed_rows: int  # number of changed rows
    token: str  # a name that is different for other blocks
    read_by_task: tuple[tuple[Part, ...], ...] = ()
    """If tasks read their rows themselves: for each task, one part to compare with
    itself, or two parts to compare with each other.
    """

    def __len__(self) -> int:
        return (
            len(self.read_by_task)
            + len(self.within)
            + len(self.across)
            + len(self.against_old)
        )

    def __dask_tokenize__(self) -> str:
        return self.token

    def __repr__(self) -> str:
        return f"<{len(self)} blocks>"


def snapshot_token(rows: Snapshot, *more: object) -> str:
    """Return a name that identifies the contents of a snapshot. It is made from file
    names, because files never change.
    """
    groups = [values.tobytes() for values in vars(rows.groups).values()]
    return tokenize(
        str(rows.root),
        rows.library,
        rows.files,
        groups,
        rows.deleted,
        rows.only_listed,
        rows.versions,
        *more,
    )


class BlockSide(NamedTuple):
    """The added rows, or the deleted rows, after one read. Lists have one item per
    part.
    """

    parts: list[AnyPart]
    tiles: list[Tiled]
    seqs: list[Array]  # row numbers of each part
    rows: int  # number of rows in all parts


def read_side(
    rows: Snapshot,
    spec: JoinSpec,
    size: Sizes,
    ordered: bool,
    marked: bool,
    cached: CachedRows,
) -> BlockSide:
    """Read added or deleted rows part by part. If they are few enough, keep them in
    memory.

    `ordered`, `marked`: see the function `changed`.
    """
    few = rows.rows * row_bytes(spec) <= size.hold_bytes
    cut = boxes_of(rows).dims.tolist()
    parts: list[AnyPart] = []
    tiles, seqs = [], []
    for chosen in cut_parts(
        rows.groups.rows if not rows.only_listed else _listed_rows(rows), size.rows
    ):
        part = cached.part(rows, chosen)
        read = changed(loaded(part, spec), cut, spec, ordered and few, marked)
        if len(read["seq"]):
            parts.append(read if few else part)
            tiles.append(read["tiles"])
            seqs.append(read["seq"])
    return BlockSide(parts, tiles, seqs, sum(len(some.x) for some in tiles))


def _listed_rows(rows: Snapshot) -> np.ndarray:
    """For each row group, return how many of its rows `rows.places` lists (g,)."""
    counts = np.zeros(len(rows.groups), np.int64)
    for n, (file, start, size) in enumerate(
        zip(
            rows.groups.file.tolist(),
            rows.groups.start.tolist(),
            rows.groups.rows.tolist(),
            strict=True,
        )
    ):
        places = rows.places.get(file)
        if places is not None:
            counts[n] = np.searchsorted(places, start + size) - np.searchsorted(
                places, start
            )
    return counts


def near_parts(
    tiles: Sequence[Tiled], dims: np.ndarray, spec: JoinSpec
) -> Iterator[tuple[int, int]]:
    """Yield (i, j) for every two parts of changed rows that may form pairs, because
    their boxes are near.
    """
    for i, first in enumerate(tiles):
        for j in range(i + 1, len(tiles)):
            boxes = CellBoxes(np.arange(len(dims)), tiles[j].lower, tiles[j].upper)
            if near_tiles(first, boxes, spec.norm, spec.threshold).any():
                yield i, j


def blocks_of(
    side: BlockSide,
    own: Snapshot,
    rest: Snapshot,
    spec: JoinSpec,
    size: Sizes,
    replaced: ReplacedRows | None,
    cached: CachedRows,
    unchanged: Sequence[UnchangedRows] = (),
) -> Blocks:
    """Choose the blocks for added or for deleted rows. They are compared with each
    other, and with rows in both versions.

    `side`: the added or deleted rows. `own`: their snapshot. `rest`: the snapshot of
    the rows in both versions. `unchanged`: rows of `rest` that have been read already.
    """
    boxes = boxes_of(rest)
    reached = np.zeros((len(side.tiles), len(rest.groups)), bool)
    for i, tiles in enumerate(side.tiles):
        near = near_tiles(tiles, boxes, spec.norm, spec.threshold)
        reached[i] = touched(tiles, near, boxes, spec.norm, spec.threshold)
    chosen = np.flatnonzero(reached.any(axis=0))
    segments, there = cached.among(rest, chosen)
    read = chosen[~there]
    fresh = np.setdiff1d(
        read, [group for one in unchanged for group in one.groups.tolist()]
    )
    some = [fresh[part] for part in even_parts(rest.groups.rows[fresh], size)]
    old: list[AnyPart] = [rest.part(part) for part in some]
    there_too: list[tuple[AnyPart, np.ndarray]] = [
        *_in_memory(segments, rest, chosen),
        *unchanged,
    ]
    old += [part for part, _ in there_too]
    some += [groups for _, groups in there_too]
    against_old = [
        (i, j)
        for j, groups in enumerate(some)
        for i in np.flatnonzero(reached[:, groups].any(axis=1)).tolist()
    ]
    return Blocks(
        spec,
        tuple(boxes.dims.tolist()),
        tuple(side.parts),
        tuple(range(len(side.parts))),
        tuple(near_parts(side.tiles, boxes.dims, spec)),
        tuple(old),
        tuple(against_old),
        replaced,
        chosen,
        read,
        side.rows,
        tokenize(
            snapshot_token(own, spec),
            snapshot_token(rest),
            size.rows,
            [one.key for one in segments],
        ),
    )


def even_parts(rows: np.ndarray, size: Sizes) -> list[np.ndarray]:
    """Cut old row groups into parts with similar numbers of rows.

    `rows`: number of rows in each row group.
    """
    even = -(-int(rows.sum()) // (PARTS_PER_THREAD * size.threads))
    return cut_parts(rows, min(size.rows, max(even, MIN_PART)))


def _in_memory(
    segments: list[SegmentRef], rest: Snapshot, chosen: np.ndarray
) -> Iterator[tuple[CachedPart, np.ndarray]]:
    """Yield parts of segments in the cache, each with its row groups.

    Several small segments form one part.
    """
    for part in cut_parts(
        np.array([segment.rows for segment in segments], np.int64), MIN_PART
    ):
        own = [segments[n] for n in part.tolist()]
        files = {
            segment.file: tuple(one for one in own if one.file == segment.file)
            for segment in own
        }
        there = CachedRows(files).among(rest, chosen)[1]
        yield (
            CachedPart(
                tuple(own), tuple(whole_segment(rest, segment) for segment in own)
            ),
            chosen[there],
        )


def _side_by_side(boxes: CellBoxes) -> np.ndarray:
    """Return the indexes of all row groups, in an order where neighbors in space are
    close to each other.
    """
    middle = boxes.lower / 2 + boxes.upper / 2
    if len(middle) < 2:
        return np.arange(len(middle))
    # squares of huge numbers overflow; infinity becomes the largest float, so such a
    # dimension is cut first
    with np.errstate(over="ignore"):
        variance = np.nan_to_num(middle.var(axis=0))
    return kd_order(middle, dims_to_cut(variance), 1, 2)


def _rows_of_a_task(
    boxes: CellBoxes, counts: np.ndarray, spec: JoinSpec, threads: int
) -> int:
    """For a join of all rows, return the maximum rows per task. `counts` (groups,):
    rows in each row group.

    More parts mean more comparisons, and each comparison indexes its two parts again.
    So rows are cut into as few parts as threads and pairs allow. The number of pairs is
    estimated as if rows were uniform in their boxes.
    """
    whole, max_group = int(counts.sum()), int(counts.max(initial=1))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        near = np.fmin(
            1.0, 2 * reach(spec.norm, spec.threshold) / (boxes.upper - boxes.lower)
        ).prod(axis=1)
    min_tasks = FEW_TASKS_PER_THREAD * threads if threads > 1 else 1
    tasks = max(min_tasks, math.ceil(float((near * counts) @ counts) / PAIRS_AT_ONCE))
    # parts have only complete row groups, so the last part needs space for one more row
    # group
    return max(
        -(-whole // min(tasks, PARTS_PER_THREAD * threads)) + max_group - 1, MIN_PART
    )


def all_blocks(rows: Snapshot, spec: JoinSpec, size: Sizes) -> Blocks:
    """Choose the blocks of a join of all rows. Only the boxes of row groups are used;
    no rows are read.
    """
    boxes = boxes_of(rows)
    counts = _listed_rows(rows) if rows.only_listed else rows.groups.rows
    near = _side_by_side(boxes)
    max_rows = min(size.rows, _rows_of_a_task(boxes, counts, spec, size.threads))
    parts = [near[some] for some in cut_parts(counts[near], max_rows)]
    # the row groups that each task would read
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
        spec,
        tuple(boxes.dims.tolist()),
        (),
        (),
        (),
        (),
        (),
        None,
        np.arange(0),
        np.arange(0),
        int(counts.sum()),
        tokenize(snapshot_token(rows, spec), size.rows),
    )
    read = sum(int(counts[part].sum()) for some in apart for part in some)
    if (
        counts.sum() > OUT_OF_CORE * size.rows * size.threads
        and read <= MAX_READS * counts.sum()
    ):
        # if tasks shared rows, workers would have to spill them, so each task reads its
        # rows itself
        return replace(
            found,
            read_by_task=tuple(
                tuple(rows.part(part) for part in some) for some in apart
            ),
        )
    changed_parts = tuple(rows.part(some) for some in parts)
    return replace(
        found,
        changed=changed_parts,
        within=tuple(range(len(parts))),
        across=tuple(across),
    )
