"""Build chunks from partitions, shuffled rows or plain frames."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NotRequired, TypedDict, cast

import numpy as np

from dask_simjoin.catalog.methods import needs_sample
from dask_simjoin.engine.base import frames_for, frames_of_library, joiner_for
from dask_simjoin.engine.compat import module_of
from dask_simjoin.engine.ids import as_id_keys, joined, row_ids
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.engine.threads import numbers_apart, shared_out
from dask_simjoin.errors import TABLES, ListError, SourceChangedError, in_table
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index
from dask_simjoin.planning.budget import check_room
from dask_simjoin.planning.checks import check_rows
from dask_simjoin.planning.data_warnings import MIN_ROWS, check_share, raise_warnings, warnings_of_left_out
from dask_simjoin.planning.outputs import OutputSpec, directions
from dask_simjoin.planning.plan import Plan, WholePlan, make_plan, make_whole_plan
from dask_simjoin.planning.statistics.partition import (
    RIGHT,
    PartitionScan,
    limits,
    points,
    radii,
    scan_partition,
)
from dask_simjoin.planning.statistics.sample import box
from dask_simjoin.planning.statistics.sample_pairs import PROBE
from dask_simjoin.planning.statistics.unique_ids import check_summaries
from dask_simjoin.planning.tables import JoinStatistics, join_statistics
from dask_simjoin.request.options import MAX_BYTES
from dask_simjoin.request.spec import JoinSpec


class Chunk(TypedDict):
    """Hold the rows of a chunk: a plain dict of arrays and frames, so that it spills.

    Besides these it has the arrays of its index (see `Joiner.build`), none of which is called so.
    """

    ids: Ids
    """The rows' names in a result, in their order."""
    id_keys: Array | None
    """The ids as int64, in the order of the index, where they have that form and a result names rows."""
    example: Frame
    """An empty frame of the chunk's library."""
    order: Array
    """The rows' numbers (at least n of them), in the order of the index; of the index."""
    kept: NotRequired[Frame]
    """The columns that the result keeps, in the order of the index."""
    own_limit: NotRequired[Array]
    """Each row's own threshold (n,), in the order of the index."""
    ends: NotRequired[np.ndarray]
    """Where the rows of each of its pieces end: of entity chunks."""
    position: NotRequired[Array]
    """The rows' numbers in the whole frame, ascending: of spatial chunks."""
    halo: NotRequired[Chunk]
    """The rows around its region, a chunk of its own: of spatial chunks."""


class ReadRows(TypedDict):
    """Hold what was read of a partition's rows, in their order."""

    x: Array
    """Coordinates (n, d), float64."""
    ids: Ids
    places: Array | None
    """The rows' numbers in the partition, where some were left out."""
    rows: int
    """Rows of the partition."""
    example: Frame
    kept: NotRequired[Frame]
    own_limit: NotRequired[Array]


Fingerprint = tuple[int, tuple[int, str]]
"""A partition's number, and, as it was planned, its rows and the digest of its box."""


def read_points(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec, example: Frame | None = None,
                room: Array | None = None) -> ReadRows:  # fmt: skip
    """Read coordinates and ids of a partition; refuse one that is not like the plan knows it.

    `example`: an empty frame like it, if one was made of another partition; `room`: see `points`.
    """
    return _read_kept(frame, *_planned_points(frame, fingerprint, spec, room), spec, example)


def read_piece(frame: Frame, spec: JoinSpec) -> ReadRows:
    """Read coordinates and ids of some rows of a partition that `as_planned` has passed on."""
    return _read_kept(frame, *points(frame, spec), spec)


def as_planned(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> Frame:
    """Pass a partition on; refuse one that is not like the plan knows it."""
    _planned_points(frame, fingerprint, spec)
    return frame


def _planned_points(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec,
                    room: Array | None = None) -> tuple[Array, Array | None]:  # fmt: skip
    """Read the coordinates of a partition that is like the plan knows it, and which rows take part."""
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
    """Read what else is told of the rows that take part; `x`, `kept`: see `points`."""
    rows, places = len(frame), None
    if kept is not None:
        places = module_of(x).flatnonzero(kept)
        frame, x = frame[spec.columns][kept], x[kept]
    own = limits(radii(frame, spec), spec) if spec.radius is not None else None
    return _read(x, frame, places, rows, own, spec, example)


def _read(x: Array, frame: Frame, places: Array | None, rows: int, limit: Array | None,
          spec: JoinSpec, example: Frame | None = None) -> ReadRows:  # fmt: skip
    """Put together what was read of a partition of so many rows, those of `frame` being left."""
    if not len(x):
        x = module_of(x).empty((0, spec.dims))  # of lists, which tell it, there are none
    ids = row_ids(frame, spec.id, spec.id_dtype)
    example = frame.iloc[:0].copy() if example is None else example
    read = ReadRows(x=x, ids=ids, places=places, rows=rows, example=example)
    if spec.keep:
        read["kept"] = frame[list(spec.keep)]
    if limit is not None:
        read["own_limit"] = limit
    return read


def check_source(number: int, rows: int, planned: int, same_box: bool = True) -> None:
    """Refuse a partition that is not like the plan knows it."""
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


def scanned_chunk(seen: PartitionScan, rows: int, spec: JoinSpec, layout: Layout | SearchLayout) -> Chunk:
    """Index all of a frame of so many rows, as it was seen when it was summarised: nothing is read again."""
    places = None if seen.kept is None else module_of(seen.x).flatnonzero(seen.kept)
    read = _read(seen.x, seen.frame, places, rows, seen.limit, spec)
    return gather_chunk(layout, [(0, rows)], read)


def gather_chunk(layout: Layout | SearchLayout, rows: list[tuple[int, int]], *parts: ReadRows,
                 threads: int = 1, named: bool = True, together: Array | None = None) -> Chunk:  # fmt: skip
    """Index pieces of partitions as one chunk: rows start ... stop-1 of each of the parts.

    `threads`: that share the work; `named`: see `named_rows`; `together`: all points of the parts, where they
    lie one after the other.
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
    points = whole_points(x, layout, threads) if together is None else together
    whole = {name: stacked(some, example) for name, some in extra.items()}
    chunk = indexed(points, joined(ids), layout, example, whole, threads, named)
    return chunk | {"ends": np.cumsum([len(some) for some in ids])}


def read_chunk(layout: Layout | SearchLayout, rows: list[tuple[int, int]], fingerprints: list[Fingerprint],
               spec: JoinSpec, threads: int, named: bool, *frames: Frame) -> Chunk:  # fmt: skip
    """Read partitions, and index those of their rows as one chunk: see `gather_chunk`."""
    ends = list(itertools.accumulate((stop - start for start, stop in rows), initial=0))
    whole = len(frames) > 1 and not spec.dropna and all(map(_is_all, rows, frames))
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
    parts = itertools.chain.from_iterable(shared_out(read, len(frames), min(threads, most), least=1))
    return gather_chunk(layout, rows, *parts, threads=threads, named=named, together=x)


def _is_all(rows: tuple[int, int], frame: Frame) -> bool:
    return rows == (0, len(frame))


def _room(rows: int, spec: JoinSpec, layout: Layout | SearchLayout, example: Frame) -> Array | None:
    """Make room on the host for the points of a chunk that is read part by part; None: they lie elsewhere.

    What each part is read to is used for the next one: new memory takes longer than all else.
    """
    if frames_for(example).xp is not np or spec.dims is None:
        return None
    return np.empty((rows, spec.dims), order=_order(layout))


def _order(layout: Layout | SearchLayout) -> Literal["C", "F"]:
    """How an index reads coordinates: a sweep column by column, all else point by point."""
    return "F" if layout.method == "sweep" else "C"


LEAST_READ = 1 << 18
"""Rows of partitions that are worth a thread to read them."""


EXTRA = ("kept", "own_limit")


def some_rows(values: Array | Frame, start: int, stop: int) -> Array | Frame:
    return (values.iloc if hasattr(values, "columns") else values)[start:stop]


def stacked(parts: list[Array | Frame], example: Frame) -> Array | Frame:
    """Put arrays or frames one after the other."""
    if len(parts) == 1:
        return parts[0]
    if hasattr(parts[0], "columns"):
        return frames_for(example).stacked(parts)
    return module_of(parts[0]).concatenate(parts)


def whole_points(parts: list[Array], layout: Layout | SearchLayout, threads: int) -> Array:
    """Put coordinates one after the other, as the index reads them; `threads`: that share the work."""
    xp = module_of(parts[0])
    if len(parts) == 1 or xp is not np:
        return parts[0] if len(parts) == 1 else xp.concatenate(parts)
    ends = np.cumsum([0, *map(len, parts)])
    out = np.empty((int(ends[-1]), parts[0].shape[1]), order=_order(layout))

    def copy(start: int, stop: int) -> None:
        first, last = np.searchsorted(ends, [start, stop])
        for part, at in zip(parts[first:last], ends[first:last].tolist(), strict=True):
            out[at : at + len(part)] = part

    shared_out(copy, len(out), threads, least=numbers_apart(out.shape[1]))
    return out


def indexed(x: Array, ids: Ids, layout: Layout | SearchLayout, example: Frame,
            extra: dict[str, Array | Frame], threads: int = 1, named: bool = True) -> Chunk:  # fmt: skip
    """Index points; `extra`: what else is known of them, in their order; `threads`: that share the work.

    `named`: see `named_rows`.
    """
    return named_rows(joiner_for(example).build(x, layout, threads), ids, example, extra, named)


def named_rows(index: Index, ids: Ids, example: Frame, extra: dict[str, Array | Frame],
               named: bool = True) -> Chunk:  # fmt: skip
    """Make a chunk of an index and of the names of its rows; `extra`: see `indexed`.

    `named`: whether a result will name rows by their places in the index.
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


def whole_chunks(frames: Sequence[Frame], spec: JoinSpec, output: OutputSpec,
                 sampled: bool = False) -> tuple[list[Chunk], WholePlan]:  # fmt: skip
    """Make one chunk of each of one plain frame or two, and plan their join.

    `sampled`: the plan estimates the pairs, and not only for what is in doubt.
    """
    statistics, seen = _scan(frames, spec, output, sampled)
    plan = make_whole_plan(statistics, output)
    _check_ids(statistics, frames, spec)
    if output.materialise:
        own = plan.rows if spec.include_self else 0
        rows, low = plan.estimate.total_low * directions(spec) + own, plan.estimate.total_low
        device = frames_of_library(spec.library).memory()
        check_share(plan.data_warnings, low / max(1.0, statistics.candidates), rows, plan.pair_bytes, spec)
    raise_warnings(plan.data_warnings, None)
    if output.materialise:
        check_room(rows, plan.pair_bytes, spec.request, True, device)
    chunks = [
        scanned_chunk(one, len(frame), replace(own_spec, dims=plan.dims), plan.layout)
        for one, (frame, own_spec) in zip(seen, _sides(frames, spec), strict=True)
        if one is not None  # else what was seen was refused
    ]
    return chunks, plan


def whole_chunk(
    frame: Frame, spec: JoinSpec, output: OutputSpec, sampled: bool = False
) -> tuple[Chunk, WholePlan]:
    """Make one chunk of a plain frame, and plan its join with itself."""
    (chunk,), plan = whole_chunks([frame], spec, output, sampled)
    return chunk, plan


def plan_whole(frames: Sequence[Frame], spec: JoinSpec, output: OutputSpec, sampled: bool = False) -> Plan:
    """Plan a join of one plain frame or two in all that can be told of it; `sampled`: see `whole_chunks`."""
    statistics, _ = _scan(frames, spec, output, sampled or output.k is not None)
    # chunks need no room, as there is one of each frame, which is searched however far away it is
    output = replace(output, result_bytes_per_row=0, others_per_row=0, max_total=math.inf)
    plan = make_plan(statistics, output)
    _check_ids(statistics, frames, spec)
    raise_warnings(plan.data_warnings, None)
    return plan


def layout_seconds(frame: Frame, spec: JoinSpec, output: OutputSpec) -> float:
    """Return the seconds that a method takes to choose clusters, lists or dimensions from a sample.

    A plan does so once; a second time everything it needs is compiled.
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
    """Summarise frames as tables that are one chunk each, and give what was read of them."""
    raise_warnings(
        [
            data_warning
            for frame, own in _sides(frames, spec)
            for data_warning in warnings_of_left_out(frame, own)
        ]
    )
    # clusters are those that a plan tells the recall of, so they are made of the same sample
    sampled = sampled or spec.approximate
    probed = sampled or output.k is not None or min(map(len, frames)) >= MIN_ROWS or needs_sample(spec.method)
    found = [
        scan_partition(frame, number, own, output.with_ids, int(probed), None if sampled else PROBE)
        for number, (frame, own) in zip((0, RIGHT), _sides(frames, spec), strict=False)
    ]
    for summary, _ in found:
        check_rows(summary.source_rows, 0)
    # it comes out as one frame, whatever size partitions of a result are set to have
    settings = replace(spec.settings, output=None)
    whole = replace(spec, partitioning="entity", blocksize=MAX_BYTES, settings=settings)
    return join_statistics([[summary] for summary, _ in found], whole), [seen for _, seen in found]


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
