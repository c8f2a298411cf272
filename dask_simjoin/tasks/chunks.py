"""Read the rows of partitions or of plain frames, and index them as chunks."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.catalog import needs_sample
from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import dims_of, module_of
from dask_simjoin.engine.ids import as_id_keys, joined, row_ids
from dask_simjoin.engine.native import native
from dask_simjoin.engine.process import numbers_apart, shared_out
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.errors import TABLES, ListError, SourceChangedError, in_table
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.data_warnings import (
    MIN_ROWS,
    raise_warnings,
    warnings_of_left_out,
)
from dask_simjoin.planning.left_out import left_out_in_words
from dask_simjoin.planning.limits import PLAIN, Limits
from dask_simjoin.planning.outputs import OutputSpec
from dask_simjoin.planning.partition import (
    RIGHT,
    PartitionScan,
    limits,
    narrow_points,
    points,
    radii,
    scan_partition,
)
from dask_simjoin.planning.plan import Plan, make_plan
from dask_simjoin.planning.sample import box
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.planning.unique_ids import check_summaries
from dask_simjoin.request.options import MAX_WHOLE
from dask_simjoin.request.spec import ChunkOptions, JoinSpec
from dask_simjoin.sizes import BATCH, SAMPLED

LOG = logging.getLogger("dask_simjoin")


class Chunk(TypedDict):
    """The rows of a chunk and its index. It is a plain dict of arrays and frames, which
    Dask can spill to disk.

    All chunks have the keys below. The index adds keys that depend on the method: see
    `Joiner.build`.
    """

    ids: Ids  # ids of the rows, in the order of the rows
    # ids as int64, in index order; None if the ids do not fit into int64, or if the
    # result has no ids
    id_keys: Array | None
    # an empty frame that shows the data frame library. It has no columns, because
    # workers would send each column by itself
    example: Frame
    # (n or more): row at each index position, as a position in the chunk; written by
    # the index
    order: Array
    kept: NotRequired[Frame]  # columns to return with the pairs, in index order
    # (n,): threshold of each row, in index order; only if each row has its own radius
    own_limit: NotRequired[Array]
    # in entity chunks, which consist of pieces of partitions: where the rows of each
    # piece end
    ends: NotRequired[np.ndarray]
    # in spatial chunks: position of each row in the whole frame, ascending
    position: NotRequired[Array]
    # in spatial chunks: rows outside the region that form pairs with rows in it, as a
    # chunk of their own
    halo: NotRequired[Chunk]
    # the last three keys are only in chunks of `ClusterChunks`, where the halo follows
    # the rows of the region
    own: NotRequired[int]  # number of rows in the region; halo rows follow them
    # rows that may be neighbors of rows in other regions
    shared: NotRequired[np.ndarray]
    far: NotRequired[np.ndarray]  # rows of the halo without neighbors in the region


class ReadRows(TypedDict):
    """The columns of one partition as arrays, in the order of the partition's rows."""

    # coordinates (n, d), float64; or narrow float32 rows, as `engine.compat` defines
    # them
    x: Array
    ids: Ids
    # positions in the partition of the rows that `dropna` keeps; None if it removes no
    # row
    places: Array | None
    # number of all rows of the partition, including those that `dropna` removes
    rows: int
    example: Frame
    kept: NotRequired[Frame]
    own_limit: NotRequired[Array]


Fingerprint = tuple[int, tuple[int, str]]
"""Identifies a partition and its contents: (number of the partition, (its number of
rows, digest of its box)).
"""


def read_points(
    frame: Frame,
    fingerprint: Fingerprint,
    spec: JoinSpec,
    example: Frame | None = None,
    buffer: Array | None = None,
) -> ReadRows:
    """Read a partition; raise an error if it has changed since the join was planned.

    `example`: an empty frame to store in the result; None: make it from `frame`.
    `buffer`: see `points`.
    """
    return _read_kept(
        frame, *planned_points(frame, fingerprint, spec, buffer), spec, example
    )


def read_piece(frame: Frame, spec: JoinSpec) -> ReadRows:
    """Read rows of a partition. `as_planned` has checked before that the partition has
    not changed.
    """
    return _read_kept(frame, *points(frame, spec), spec)


def as_planned(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> Frame:
    """Return the partition itself; raise an error if it has changed since the join was
    planned.
    """
    planned_points(frame, fingerprint, spec)
    return frame


def planned_points(
    frame: Frame, fingerprint: Fingerprint, spec: JoinSpec, buffer: Array | None = None
) -> tuple[Array, Array | None]:
    """Read the coordinates of a partition like `points`. Raise an error if it has
    changed since planning.

    If the plan uses narrow points, return those.
    """
    number, (planned, planned_box) = fingerprint
    try:
        x, kept, narrow = (
            narrow_points(frame, spec)
            if spec.coordinates.narrow
            else (*points(frame, spec, buffer), None)
        )
    except ListError:
        check_source(number, len(frame), planned, False)
        raise
    taking_part = x if kept is None else x[kept]
    can_be_narrow = not spec.coordinates.narrow or narrow is not None
    check_source(
        number, len(frame), planned, can_be_narrow and box(taking_part) == planned_box
    )
    return x if narrow is None else narrow, kept


def _read_kept(
    frame: Frame,
    x: Array,
    kept: Array | None,
    spec: JoinSpec,
    example: Frame | None = None,
) -> ReadRows:
    """Read ids and other columns of the rows that `dropna` keeps. `x`, `kept`: the
    results of `points`.
    """
    rows, places = len(frame), None
    if kept is not None:
        places = module_of(x).flatnonzero(kept)
        frame, x = native(frame[spec.columns])[kept], x[kept]
    own = limits(radii(frame, spec), spec) if spec.radius is not None else None
    return _read(x, frame, places, rows, own, spec, example)


def _read(
    x: Array,
    frame: Frame,
    places: Array | None,
    rows: int,
    limit: Array | None,
    spec: JoinSpec,
    example: Frame | None = None,
) -> ReadRows:
    """Collect the columns of a partition in a `ReadRows`.

    `frame`: the rows that `dropna` keeps. `rows`: number of all rows.
    """
    if not len(x):  # without rows, the array does not show how long lists are
        assert spec.coordinates.dims is not None
        x = module_of(x).empty(
            (0, spec.coordinates.dims + x.shape[1] - dims_of(x)), x.dtype
        )
    ids = row_ids(frame, spec.id, spec.id_dtype)
    example = frame.iloc[:0, :0].copy() if example is None else example
    read = ReadRows(x=x, ids=ids, places=places, rows=rows, example=example)
    if spec.keep:
        # Dask may describe big-endian columns as native ones
        read["kept"] = native(frame[list(spec.keep)])
    if limit is not None:
        read["own_limit"] = limit
    return read


def check_source(number: int, rows: int, planned: int, same_box: bool = True) -> None:
    """Raise an error if a partition has changed since the join was planned.

    `rows`: number of rows now. `planned`: number of rows in the plan. `same_box`:
    whether the smallest and the largest coordinates are still the same.
    """
    if rows != planned:
        what = f"had {planned} rows when the join was planned and has {rows} now"
    elif not same_box:
        what = "has coordinates in another range than when the join was planned"
    else:
        return
    raise SourceChangedError(
        f"Partition {number} {what}: the source changed, or is not deterministic. "
        "Write it to parquet "
        "or persist() it, and join the result."
    )


def make_chunk(
    frame: Frame,
    fingerprint: Fingerprint,
    spec: JoinSpec,
    layout: Layout | SearchLayout,
) -> Chunk:
    read = read_points(frame, fingerprint, spec)
    return gather_chunk(layout, [(0, read["rows"])], read)


def gather_chunk(
    layout: Layout | SearchLayout,
    rows: list[tuple[int, int]],
    *parts: ReadRows,
    threads: int = 1,
    with_ids: bool = True,
    joined_points: Array | None = None,
) -> Chunk:
    """Index pieces of partitions together as one chunk.

    `parts`: the partitions. `rows`: for each partition, the range (start, stop) of rows
    to take. `threads`: number of threads to use. `with_ids`: see `named_rows`.
    `joined_points`: the points of all pieces in one array, if it exists already.
    """
    x, ids = [], []
    extra: dict[str, list[Array | Frame]] = {
        name: [] for name in OPTIONAL_FIELDS if name in parts[0]
    }
    for (start, stop), part in zip(rows, parts, strict=True):
        places = part["places"]
        if places is not None:
            xp = module_of(places)
            start, stop = xp.searchsorted(places, xp.asarray([start, stop])).tolist()
        x.append(part["x"][start:stop])
        ids.append(part["ids"][start:stop])
        for name, some in extra.items():
            some.append(slice_rows(part[name], start, stop))  # type: ignore[literal-required]
    example = parts[0]["example"]
    points = (
        concat_points(x, layout, threads) if joined_points is None else joined_points
    )
    whole = {name: stacked(some, example) for name, some in extra.items()}
    chunk = indexed(points, joined(ids), layout, example, whole, threads, with_ids)
    return chunk | {"ends": np.cumsum([len(some) for some in ids])}


def read_chunk(
    layout: Layout | SearchLayout,
    rows: list[tuple[int, int]],
    fingerprints: list[Fingerprint],
    spec: JoinSpec,
    threads: int,
    with_ids: bool,
    *frames: Frame,
) -> Chunk:
    """Read partitions, and index ranges of their rows as one chunk: see `gather_chunk`."""
    ends = list(itertools.accumulate((stop - start for start, stop in rows), initial=0))
    are_whole = all(
        span == (0, len(frame)) for span, frame in zip(rows, frames, strict=True)
    )
    whole = len(frames) > 1 and not spec.coordinates.dropna and are_whole
    x = _point_buffer(ends[-1], spec, layout, frames[0]) if whole else None

    def read(first: int, last: int) -> list[ReadRows]:
        found: list[ReadRows] = []
        buffer = None
        if isinstance(x, np.ndarray):
            buffer = np.empty(max(map(len, frames[first:last])) * x.shape[1])
        for n in range(first, last):
            example = found[0]["example"] if found else None
            found.append(read_points(frames[n], fingerprints[n], spec, example, buffer))
            if x is not None:
                x[ends[n] : ends[n + 1]] = found[-1]["x"]
                found[-1]["x"] = x[ends[n] : ends[n + 1]]
        return found

    max_parts = ends[-1] // BATCH
    parts = itertools.chain.from_iterable(
        shared_out(read, len(frames), min(threads, max_parts), min_items=0)
    )
    return gather_chunk(
        layout, rows, *parts, threads=threads, with_ids=with_ids, joined_points=x
    )


def index_partitions(
    layout: Layout | SearchLayout,
    spec: JoinSpec,
    threads: int,
    with_ids: bool,
    sizes: list[int],
    frame: Frame,
) -> Chunk:
    """Index whole partitions as one chunk. Their rows are in one frame, which cannot
    have changed since planning.

    `sizes`: number of rows in each partition. For the other arguments, see
    `gather_chunk`.
    """
    read = read_piece(frame, spec)
    chunk = gather_chunk(
        layout, [(0, len(frame))], read, threads=threads, with_ids=with_ids
    )
    ends, places = np.cumsum(sizes), read["places"]
    return chunk | {"ends": ends if places is None else np.searchsorted(places, ends)}


def _point_buffer(
    rows: int, spec: JoinSpec, layout: Layout | SearchLayout, example: Frame
) -> Array | None:
    """Allocate one array for the points of a chunk's partitions. Return None if the
    array cannot be used.

    One array per partition would take longer to allocate than all other work.
    """
    if spec.coordinates.dims is None or spec.coordinates.narrow:
        return None
    xp = frames_for(example).xp
    return xp.empty((rows, spec.coordinates.dims), order=_order(layout))


def _order(layout: Layout | SearchLayout) -> Literal["C", "F"]:
    """Return the memory order of coordinates: "F" (by column) if the sweep searches,
    else "C" (by row).
    """
    return "F" if layout.method == "sweep" else "C"


OPTIONAL_FIELDS = ("kept", "own_limit")
"""Keys that only the chunks of some joins have."""


def slice_rows(values: Array | Frame, start: int, stop: int) -> Array | Frame:
    return (values.iloc if hasattr(values, "columns") else values)[start:stop]


def stacked(parts: list[Array | Frame], example: Frame) -> Array | Frame:
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "columns"):
        return frames_for(example).stacked(parts)
    return module_of(parts[0]).concatenate(parts)


def concat_points(
    parts: list[Array], layout: Layout | SearchLayout, threads: int
) -> Array:
    """Concatenate points in the memory order that the index needs."""
    xp = module_of(parts[0])
    if len(parts) == 1 or xp is not np:
        return parts[0] if len(parts) == 1 else xp.concatenate(parts)
    out = np.empty(
        (sum(map(len, parts)), parts[0].shape[1]),
        parts[0].dtype,
        order=_order(layout),
    )
    copy_parts(parts, out, threads)
    return out


def copy_parts(parts: list[Array], out: np.ndarray, threads: int) -> None:
    """Copy arrays on the host to `out`, one after the other, with several threads."""
    ends = np.cumsum([0, *map(len, parts)])

    def copy(start: int, stop: int) -> None:
        first, last = np.searchsorted(ends, [start, stop])
        for part, at in zip(parts[first:last], ends[first:last].tolist(), strict=True):
            out[at : at + len(part)] = part

    dims = out.shape[1] if out.ndim > 1 else 1
    shared_out(copy, len(out), threads, min_items=numbers_apart(dims))


def indexed(
    x: Array,
    ids: Ids,
    layout: Layout | SearchLayout,
    example: Frame,
    extra: dict[str, Array | Frame],
    threads: int = 1,
    with_ids: bool = True,
) -> Chunk:
    """Index points as a chunk. `extra`: further fields of the chunk, in the same order
    as the points.

    `with_ids`: see `named_rows`.
    """
    index = joiner_for(example).build(x, layout, threads)
    return named_rows(index, ids, example, extra, with_ids, threads)


def named_rows(
    index: Index,
    ids: Ids,
    example: Frame,
    extra: dict[str, Array | Frame],
    with_ids: bool = True,
    threads: int = 1,
) -> Chunk:
    """Make a chunk from an index and the ids of its rows. `extra`: see `indexed`.

    `with_ids`: whether the result has ids. If so, they are also stored in index order.
    """
    frames = frames_for(example)
    places = index["order"][: len(ids)]
    own = {
        "ids": ids,
        "id_keys": as_id_keys(ids, places, threads) if with_ids else None,
        "example": example,
    }
    assert index.keys().isdisjoint([*own, *extra])
    chunk = cast(Chunk, own | index)
    if "kept" in extra:
        kept = extra["kept"]
        columns = frames.columns_at(kept, {name: name for name in kept.columns}, places)
        chunk["kept"] = frames.result(columns, len(ids))
    if "own_limit" in extra:
        chunk["own_limit"] = extra["own_limit"][places]
    return chunk


Refine = Callable[[Any, Array], Any]
"""A function that adapts the planned layout to the points (n, d) of a frame that forms
a single chunk.
"""


def whole_chunks(
    frames: Sequence[Frame],
    spec: JoinSpec,
    output: OutputSpec,
    sampled: bool = False,
    refine: Refine | None = None,
    threads: int = 1,
) -> tuple[list[Chunk], Plan]:
    """Plan a join of one or two plain frames, and make each frame a chunk. Log how many
    rows `dropna` leaves out.

    `sampled`: see `plan_whole`. `refine`: adapts the planned layout.
    """
    plan, scans = _planned(
        frames, spec, output, sampled, is_shown=False, threads=threads
    )
    text = left_out_in_words(plan.tables.left_out)
    if text is not None:
        LOG.info("left out %s", text)
    if refine is not None and plan.meets and scans[0] is not None:
        plan = replace(plan, layout=refine(plan.layout, scans[0].x))
    chunks = []
    for scan, (frame, own) in zip(scans, _sides(frames, spec), strict=True):
        # None occurs only for a frame that `join_statistics` has refused
        if scan is not None:
            places = (
                None if scan.kept is None else module_of(scan.x).flatnonzero(scan.kept)
            )
            own = own.with_dims(plan.tables.dims)
            read = _read(scan.x, scan.frame, places, len(frame), scan.limit, own)
            chunks.append(
                gather_chunk(plan.layout, [(0, len(frame))], read, threads=threads)
            )
    return chunks, plan


def plan_whole(
    frames: Sequence[Frame],
    spec: JoinSpec,
    output: OutputSpec,
    sampled: bool = False,
    threads: int = 1,
) -> Plan:
    """Plan a join of one or two plain frames.

    `sampled`: whether to estimate the number of pairs from a full sample. Otherwise a
    small sample is drawn, which is enough for warnings. `threads`: number of threads
    that would join; they change only the expected seconds.
    """
    machine = replace(PLAIN, threads=threads, together=threads)
    return _planned(frames, spec, output, sampled, True, threads, machine)[0]


def _planned(
    frames: Sequence[Frame],
    spec: JoinSpec,
    output: OutputSpec,
    sampled: bool,
    is_shown: bool,
    threads: int = 1,
    machine: Limits = PLAIN,
) -> tuple[Plan, list[PartitionScan | None]]:
    """Plan a join of plain frames, and return the scan of each frame. Issue the
    warnings of the plan.
    """
    statistics, scans = _scan(frames, spec, output, sampled, threads)
    # each frame is a single chunk, so the size of the results cannot change the plan
    output = replace(output, result_bytes_per_row=0, others_per_row=0)
    plan = make_plan(statistics, output, machine, is_shown)
    _check_ids(statistics, frames, spec)
    raise_warnings(plan.tables.warnings, None)
    return plan, scans


def layout_seconds(frame: Frame, spec: JoinSpec, output: OutputSpec) -> float:
    """Measure how many seconds it takes to choose a layout, for example by clustering a
    sample.

    Call this after making a plan: the kernels are then compiled, so the time does not
    include their compilation.
    """
    statistics, _ = _scan([frame], spec, output, False)
    began = time.perf_counter()
    if output.k is None:
        statistics.layout()
    else:
        statistics.search_layout(output)
    return time.perf_counter() - began


def _scan(
    frames: Sequence[Frame],
    spec: JoinSpec,
    output: OutputSpec,
    sampled: bool,
    threads: int = 1,
) -> tuple[JoinStatistics, list[PartitionScan | None]]:
    """Return the statistics of plain frames that form one chunk each, and the scan of
    each frame.
    """
    for frame, own in _sides(frames, spec):
        raise_warnings(warnings_of_left_out(frame, own))
    # the clusters must come from the same sample as in the join, otherwise the plan
    # would show another recall
    sampled = sampled or spec.search.approximate
    probed = (
        sampled
        or output.k is not None
        or min(map(len, frames)) >= MIN_ROWS
        or needs_sample(spec.search.method)
    )
    found = [
        scan_partition(
            frame,
            number,
            own,
            output.with_ids,
            int(probed),
            None if sampled else SAMPLED,
            threads=threads,
        )
        for number, (frame, own) in zip((0, RIGHT), _sides(frames, spec), strict=False)
    ]
    for summary, _ in found:
        check_rows(summary.source_rows, 0)
    # the result is a single frame, so the configured size of partitions does not apply
    settings = replace(spec.settings, output=None)
    one = ChunkOptions("entity", MAX_WHOLE)
    whole = replace(spec, chunks=one, settings=settings)
    return join_statistics([[summary] for summary, _ in found], whole), [
        scan for _, scan in found
    ]


def _check_ids(
    statistics: JoinStatistics, frames: Sequence[Frame], spec: JoinSpec
) -> None:
    for which, table, (_, own) in zip(
        TABLES if len(frames) > 1 else [None],
        statistics.each,
        _sides(frames, spec),
        strict=True,
    ):
        for summary in table.summaries:
            if summary.ids is not None:
                with in_table(which):
                    check_summaries([summary.ids], own.id)


def _sides(frames: Sequence[Frame], spec: JoinSpec) -> list[tuple[Frame, JoinSpec]]:
    return [(frames[0], spec), *((frame, spec.right) for frame in frames[1:])]
