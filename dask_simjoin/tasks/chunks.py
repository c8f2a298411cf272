"""Read the rows of partitions or of plain frames, and index them as chunks."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.catalog import needs_sample
from dask_simjoin.engine.base import frames_for, frames_of_library, joiner_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.ids import as_id_keys, joined, row_ids
from dask_simjoin.engine.process import numbers_apart, shared_out
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.errors import TABLES, ListError, SourceChangedError, in_table
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index
from dask_simjoin.planning.budget import check_room
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.data_warnings import (
    MIN_ROWS,
    check_share,
    naming_causes,
    raise_warnings,
    warnings_of_left_out,
)
from dask_simjoin.planning.outputs import OutputSpec, directions
from dask_simjoin.planning.partition import (
    RIGHT,
    PartitionScan,
    check_summaries,
    limits,
    points,
    radii,
    scan_partition,
)
from dask_simjoin.planning.plan import Plan, WholePlan, make_plan, make_whole_plan
from dask_simjoin.planning.sample import box
from dask_simjoin.planning.sample_pairs import PROBE
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.request.options import MAX_BYTES
from dask_simjoin.request.spec import JoinSpec


class Chunk(TypedDict):
    """The rows of a chunk: a plain dict of arrays and frames, so that Dask can spill it.

    The dict also has the arrays of the chunk's index (see `Joiner.build`), under other keys.
    """

    ids: Ids  # ids of the rows, in the order of the rows
    # ids as int64 in index order; None if they do not fit int64, or if the result has no ids
    id_keys: Array | None
    example: Frame  # an empty frame of the chunk's library
    order: Array  # positions of rows in the chunk, in index order (n or more); it belongs to the index
    kept: NotRequired[Frame]  # columns that the result keeps, in index order
    own_limit: NotRequired[Array]  # threshold of each row, in index order (n,), if rows have own radii
    ends: NotRequired[np.ndarray]  # only in entity chunks: where the rows of each piece end
    position: NotRequired[Array]  # only in spatial chunks: positions of rows in the whole frame, ascending
    halo: NotRequired[Chunk]  # only in spatial chunks: the rows around the region, as a separate chunk
    # only in chunks of `ClusterChunks`: their own rows come before their halo.  The number of own rows; the
    # rows that may be neighbors of rows in other chunks; the rows of the halo that may not
    own: NotRequired[int]
    shared: NotRequired[np.ndarray]
    far: NotRequired[np.ndarray]


class ReadRows(TypedDict):
    """The columns that were read from a partition, in row order."""

    x: Array  # coordinates (n, d), float64
    ids: Ids
    places: Array | None  # positions of the rows in the partition; None: no row was left out
    rows: int  # number of rows of the partition, including rows that were left out
    example: Frame
    kept: NotRequired[Frame]
    own_limit: NotRequired[Array]


Fingerprint = tuple[int, tuple[int, str]]
"""A partition when the join was planned: (its number, (number of its rows, digest of its box))."""


def read_points(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec, example: Frame | None = None,
                room: Array | None = None) -> ReadRows:  # fmt: skip
    """Read a partition; refuse a partition that has changed since the join was planned.

    `example`: empty frame of another partition, to use as the example; None: make one.  `room`: see `points`.
    """
    return _read_kept(frame, *_planned_points(frame, fingerprint, spec, room), spec, example)


def read_piece(frame: Frame, spec: JoinSpec) -> ReadRows:
    """Read some rows of a partition that `as_planned` returned."""
    return _read_kept(frame, *points(frame, spec), spec)


def as_planned(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> Frame:
    """Return a partition unchanged; refuse a partition that has changed since the join was planned."""
    _planned_points(frame, fingerprint, spec)
    return frame


def _planned_points(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec,
                    room: Array | None = None) -> tuple[Array, Array | None]:  # fmt: skip
    """Read the coordinates of a partition like `points`; refuse a partition that has changed."""
    number, (planned, planned_box) = fingerprint
    try:
        x, kept = points(frame, spec, room)
    except ListError:
        check_source(number, len(frame), planned, False)
        raise
    taking_part = x if kept is None else x[kept]
    check_source(number, len(frame), planned, box(taking_part) == planned_box)
    return x, kept


def _read_kept(frame: Frame, x: Array, kept: Array | None, spec: JoinSpec,
               example: Frame | None = None) -> ReadRows:  # fmt: skip
    """Read the other columns of the rows that `dropna` keeps; `x`, `kept`: results of `points`."""
    rows, places = len(frame), None
    if kept is not None:
        places = module_of(x).flatnonzero(kept)
        frame, x = frame[spec.columns][kept], x[kept]
    own = limits(radii(frame, spec), spec) if spec.radius is not None else None
    return _read(x, frame, places, rows, own, spec, example)


def _read(x: Array, frame: Frame, places: Array | None, rows: int, limit: Array | None,
          spec: JoinSpec, example: Frame | None = None) -> ReadRows:  # fmt: skip
    """Collect the columns of a partition.

    `frame`: the rows that were not left out.  `rows`: number of all rows.
    """
    if not len(x):  # without rows, the length of lists is unknown
        x = module_of(x).empty((0, spec.dims))
    ids = row_ids(frame, spec.id, spec.id_dtype)
    example = frame.iloc[:0].copy() if example is None else example
    read = ReadRows(x=x, ids=ids, places=places, rows=rows, example=example)
    if spec.keep:
        read["kept"] = frame[list(spec.keep)]
    if limit is not None:
        read["own_limit"] = limit
    return read


def check_source(number: int, rows: int, planned: int, same_box: bool = True) -> None:
    """Refuse a partition that has changed since the join was planned.

    `planned`: its number of rows at that time.  `same_box`: whether its box is the same as then.
    """
    if rows != planned:
        what = f"had {planned} rows when the join was planned and has {rows} now"
    elif not same_box:
        what = "has coordinates in another range than when the join was planned"
    else:
        return
    raise SourceChangedError(
        f"Partition {number} {what}: the source changed, or is not deterministic. Write it to parquet "
        "or persist() it, and join that."
    )


def make_chunk(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec,
               layout: Layout | SearchLayout) -> Chunk:  # fmt: skip
    """Index a whole partition."""
    read = read_points(frame, fingerprint, spec)
    return gather_chunk(layout, [(0, read["rows"])], read)


def gather_chunk(layout: Layout | SearchLayout, rows: list[tuple[int, int]], *parts: ReadRows,
                 threads: int = 1, named: bool = True,
                 joined_points: Array | None = None) -> Chunk:  # fmt: skip
    """Index pieces of partitions as one chunk.

    `parts`: partitions that were read.  `rows`: the range (start, stop) of rows to take from each of them.
    `threads`: number of threads that share the work.  `named`: see `named_rows`.  `joined_points`: points of
    all pieces as one array, if they are in one array already.
    """
    x, ids = [], []
    extra: dict[str, list[Array | Frame]] = {name: [] for name in EXTRA if name in parts[0]}
    for (start, stop), part in zip(rows, parts, strict=True):
        places = part["places"]
        if places is not None:
            xp = module_of(places)
            start, stop = xp.searchsorted(places, xp.asarray([start, stop])).tolist()
        x.append(part["x"][start:stop])
        ids.append(part["ids"][start:stop])
        for name, some in extra.items():
            some.append(some_rows(part[name], start, stop))  # type: ignore[literal-required]
    example = parts[0]["example"]
    points = whole_points(x, layout, threads) if joined_points is None else joined_points
    whole = {name: stacked(some, example) for name, some in extra.items()}
    chunk = indexed(points, joined(ids), layout, example, whole, threads, named)
    return chunk | {"ends": np.cumsum([len(some) for some in ids])}


def read_chunk(layout: Layout | SearchLayout, rows: list[tuple[int, int]], fingerprints: list[Fingerprint],
               spec: JoinSpec, threads: int, named: bool, *frames: Frame) -> Chunk:  # fmt: skip
    """Read partitions, and index the given ranges of their rows as one chunk: see `gather_chunk`."""
    ends = list(itertools.accumulate((stop - start for start, stop in rows), initial=0))
    are_whole = all(span == (0, len(frame)) for span, frame in zip(rows, frames, strict=True))
    whole = len(frames) > 1 and not spec.dropna and are_whole
    x = _room(ends[-1], spec, layout, frames[0]) if whole else None

    def read(first: int, last: int) -> list[ReadRows]:
        found: list[ReadRows] = []
        room = None if x is None else np.empty(max(map(len, frames[first:last])) * x.shape[1])
        for n in range(first, last):
            example = found[0]["example"] if found else None
            found.append(read_points(frames[n], fingerprints[n], spec, example, room))
            if x is not None:
                x[ends[n] : ends[n + 1]] = found[-1]["x"]
                found[-1]["x"] = x[ends[n] : ends[n + 1]]
        return found

    most = ends[-1] // LEAST_READ
    parts = itertools.chain.from_iterable(shared_out(read, len(frames), min(threads, most), min_items=1))
    return gather_chunk(layout, rows, *parts, threads=threads, named=named, joined_points=x)


def _room(rows: int, spec: JoinSpec, layout: Layout | SearchLayout, example: Frame) -> Array | None:
    """Allocate host memory for all points of a chunk that is read part by part; None: points are on a GPU.

    To allocate memory for each part would take longer than all other work.
    """
    if frames_for(example).xp is not np or spec.dims is None:
        return None
    return np.empty((rows, spec.dims), order=_order(layout))


def _order(layout: Layout | SearchLayout) -> Literal["C", "F"]:
    """Return the memory order of an index's coordinates: by column for a sweep, else by point."""
    return "F" if layout.method == "sweep" else "C"


LEAST_READ = 1 << 18
"""If several threads read partitions, each reads at least this many rows."""

EXTRA = ("kept", "own_limit")
"""Fields of chunks that only some joins need."""


def some_rows(values: Array | Frame, start: int, stop: int) -> Array | Frame:
    """Return the rows start ... stop-1 of an array or a frame."""
    return (values.iloc if hasattr(values, "columns") else values)[start:stop]


def stacked(parts: list[Array | Frame], example: Frame) -> Array | Frame:
    """Concatenate arrays, or concatenate frames."""
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "columns"):
        return frames_for(example).stacked(parts)
    return module_of(parts[0]).concatenate(parts)


def whole_points(parts: list[Array], layout: Layout | SearchLayout, threads: int) -> Array:
    """Concatenate coordinates in the memory order of the index.

    `threads`: number of threads that share the work.
    """
    xp = module_of(parts[0])
    if len(parts) == 1 or xp is not np:
        return parts[0] if len(parts) == 1 else xp.concatenate(parts)
    ends = np.cumsum([0, *map(len, parts)])
    out = np.empty((int(ends[-1]), parts[0].shape[1]), order=_order(layout))

    def copy(start: int, stop: int) -> None:
        first, last = np.searchsorted(ends, [start, stop])
        for part, at in zip(parts[first:last], ends[first:last].tolist(), strict=True):
            out[at : at + len(part)] = part

    shared_out(copy, len(out), threads, min_items=numbers_apart(out.shape[1]))
    return out


def indexed(x: Array, ids: Ids, layout: Layout | SearchLayout, example: Frame,
            extra: dict[str, Array | Frame], threads: int = 1, named: bool = True) -> Chunk:  # fmt: skip
    """Index points as a chunk; `extra`: further fields of the chunk, in the order of the points.

    `threads`: number of threads that share the work.  `named`: see `named_rows`.
    """
    return named_rows(joiner_for(example).build(x, layout, threads), ids, example, extra, named)


def named_rows(index: Index, ids: Ids, example: Frame, extra: dict[str, Array | Frame],
               named: bool = True) -> Chunk:  # fmt: skip
    """Make a chunk from an index and the ids of its rows; `extra`: see `indexed`.

    `named`: whether the result has ids; then the chunk also has the ids in index order.
    """
    frames = frames_for(example)
    places = index["order"][: len(ids)]
    own = {"ids": ids, "id_keys": as_id_keys(ids, places) if named else None, "example": example}
    assert index.keys().isdisjoint([*own, *extra])
    chunk = cast(Chunk, own | index)
    if "kept" in extra:
        kept = extra["kept"]
        columns = {name: frames.values(kept, name, places) for name in kept.columns}
        chunk["kept"] = frames.result(columns, len(ids))
    if "own_limit" in extra:
        chunk["own_limit"] = extra["own_limit"][places]
    return chunk


Refine = Callable[[Any, Array], Any]
"""A function that changes a layout: it takes the planned layout and the points (n, d) of the only chunk."""


def whole_chunks(frames: Sequence[Frame], spec: JoinSpec, output: OutputSpec, sampled: bool = False,
                 refine: Refine | None = None,
                 threads: int = 1) -> tuple[list[Chunk], WholePlan]:  # fmt: skip
    """Plan a join of one or two plain frames, and make a chunk of each frame.

    `sampled`: whether the plan must estimate pairs from a full sample; without it a small sample is drawn,
    which is enough for warnings.  `refine`: changes the planned layout.  `threads`: number of threads that
    share the work.
    """
    statistics, scans = _scan(frames, spec, output, sampled)
    plan = make_whole_plan(statistics, output)
    _check_ids(statistics, frames, spec)
    _check_result(plan, statistics, spec, output)
    if refine is not None and plan.meets and scans[0] is not None:
        plan = replace(plan, layout=refine(plan.layout, scans[0].x))
    chunks = []
    for scan, (frame, own) in zip(scans, _sides(frames, spec), strict=True):
        if scan is not None:  # if it is None, `join_statistics` has refused the frame
            places = None if scan.kept is None else module_of(scan.x).flatnonzero(scan.kept)
            own = replace(own, dims=plan.dims)
            read = _read(scan.x, scan.frame, places, len(frame), scan.limit, own)
            chunks.append(gather_chunk(plan.layout, [(0, len(frame))], read, threads=threads))
    return chunks, plan


def whole_chunk(frame: Frame, spec: JoinSpec, output: OutputSpec, sampled: bool = False,
                refine: Refine | None = None, threads: int = 1) -> tuple[Chunk, WholePlan]:  # fmt: skip
    """Plan the join of a plain frame with itself, and make a chunk of the frame: see `whole_chunks`."""
    (chunk,), plan = whole_chunks([frame], spec, output, sampled, refine, threads)
    return chunk, plan


def plan_whole(frames: Sequence[Frame], spec: JoinSpec, output: OutputSpec, sampled: bool = False) -> Plan:
    """Plan a join of one or two plain frames with everything that a report shows.

    `sampled`: see `whole_chunks`.
    """
    statistics, _ = _scan(frames, spec, output, sampled or output.k is not None)
    # each frame is one chunk, so the plan does not depend on the sizes of results and the largest distance
    output = replace(output, result_bytes_per_row=0, others_per_row=0, max_total=math.inf)
    plan = make_plan(statistics, output)
    _check_ids(statistics, frames, spec)
    _check_result(plan, statistics, spec, output)
    return plan


def _check_result(plan: Plan | WholePlan, statistics: JoinStatistics, spec: JoinSpec,
                  output: OutputSpec) -> None:  # fmt: skip
    """Issue the warnings of a plan, and refuse pairs that do not fit in the memory that is free now."""
    found, own = plan.estimate, plan.rows if spec.include_self else 0
    rows = found.total_low * directions(spec) + own
    if output.materialise:
        share = found.total_low / max(1.0, statistics.candidates)
        check_share(plan.data_warnings, share, rows, plan.pair_bytes, spec)
        device = frames_of_library(spec.library).memory()
        with naming_causes(lambda: plan.data_warnings):
            check_room(rows, plan.pair_bytes, spec.request, not found.counted, device)
    raise_warnings(plan.data_warnings, None)


def layout_seconds(frame: Frame, spec: JoinSpec, output: OutputSpec) -> float:
    """Return the seconds to choose a layout, for example to find clusters of a sample.

    Make a plan before you call this, so that kernels are compiled already.
    """
    statistics, _ = _scan([frame], spec, output, output.k is not None)
    began = time.perf_counter()
    if output.k is None:
        statistics.layout()
    else:
        statistics.search_layout()
    return time.perf_counter() - began


def _scan(frames: Sequence[Frame], spec: JoinSpec, output: OutputSpec,
          sampled: bool) -> tuple[JoinStatistics, list[PartitionScan | None]]:  # fmt: skip
    """Return the statistics of plain frames, each planned as one chunk, and a scan of each frame."""
    for frame, own in _sides(frames, spec):
        raise_warnings(warnings_of_left_out(frame, own))
    # a join and its plan make clusters from the same sample, so that the plan shows the recall of the join
    sampled = sampled or spec.approximate
    probed = sampled or output.k is not None or min(map(len, frames)) >= MIN_ROWS or needs_sample(spec.method)
    found = [
        scan_partition(frame, number, own, output.with_ids, int(probed), None if sampled else PROBE)
        for number, (frame, own) in zip((0, RIGHT), _sides(frames, spec), strict=False)
    ]
    for summary, _ in found:
        check_rows(summary.source_rows, 0)
    # the result is one frame, so a configured size of partitions does not matter
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES, settings=settings)
    return join_statistics([[summary] for summary, _ in found], whole), [scan for _, scan in found]


def _check_ids(statistics: JoinStatistics, frames: Sequence[Frame], spec: JoinSpec) -> None:
    for which, table, (_, own) in zip(
        TABLES if len(frames) > 1 else [None], statistics.each, _sides(frames, spec), strict=True
    ):
        for summary in table.summaries:
            if summary.ids is not None:
                with in_table(which):
                    check_summaries([summary.ids], own.id)


def _sides(frames: Sequence[Frame], spec: JoinSpec) -> list[tuple[Frame, JoinSpec]]:
    return [(frames[0], spec), *((frame, spec.right) for frame in frames[1:])]
