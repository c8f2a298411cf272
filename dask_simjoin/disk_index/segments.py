"""Segments: rows of an index on disk that are in memory, together with a search index
for them.

A segment has all rows of some row groups of a file, including deleted rows. Files never
change, so segments do not change either. Before a task compares a segment, it selects
the rows that belong to a snapshot. The search index covers points in a box, which is
somewhat larger than the box of the segment's rows. If a changed row is outside this
box, but can still be in a pair, the task builds another search index of the segment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import numpy as np
import pyarrow as pa
from distributed import Future

from dask_simjoin.disk_index.row_batch import (
    RowBatch,
    changed,
    joined_rows,
    load,
    rows_of,
)
from dask_simjoin.disk_index.rows import read_part
from dask_simjoin.disk_index.types import SEQ, VERSION, Part, Snapshot
from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, to_host, values_of
from dask_simjoin.engine.index.screen import JoinSample
from dask_simjoin.engine.protocols import Layout
from dask_simjoin.graph.base import itself
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.graph.source import gather
from dask_simjoin.metrics.norms import Array, Frame, Ids, Index, reach
from dask_simjoin.planning.sample import Moments, moments
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import SAMPLED

MAX_FLOAT = float(np.finfo(np.float64).max)

Box = tuple[np.ndarray, np.ndarray]
"""The smallest and the largest coordinate of some points in each dimension: two arrays
(d,).
"""


class Segment(TypedDict):
    """Rows in the order of their file, with a search index. It is a plain dict, which
    Dask can spill to disk.

    Further keys of the dict are the arrays of the search index: see `Joiner.build`.
    """

    ids: Ids
    seq: Array  # (n,): row numbers
    version: Array  # (n,): for each row, the version that inserted it
    ages: tuple[int, int]  # the smallest and the largest of these versions
    example: Frame  # an empty frame that shows the library and the dtypes
    # (n,), int64: for each position in the search index, the position of its row in the
    # segment
    position: Array
    layout: Layout
    box: Box  # box of the rows, in embedded coordinates
    reach: Box  # box of all points that can form a pair with one of the rows
    # box of the points that the search index may be used for: all of `reach`, or most
    # of it
    serves: Box
    kept: NotRequired[Frame]


@dataclass(frozen=True, eq=False)
class SegmentChoice:
    """Says which rows of a segment to include."""

    # positions, ascending: of the rows to exclude; or, if `only_listed`, of the only
    # rows to include
    places: np.ndarray
    only_listed: bool
    # include only rows whose version is above the first number, and at most the second
    versions: tuple[int, int]


def make_segment(part: Part, spec: JoinSpec) -> Segment:
    """Read all rows of some row groups, which have at least one row, and build a search
    index for them.
    """
    frame = read_part(
        part, list(dict.fromkeys([SEQ, VERSION, *map(str, spec.columns)]))
    )
    rows = rows_of(frame, spec, values_of(frame[SEQ]))
    version, summary = values_of(frame[VERSION]), moments(rows["x"])
    (near, serves), n, joiner = (
        _around(summary, spec),
        len(rows["seq"]),
        joiner_for(rows["example"]),
    )
    sample = to_host(rows["x"][:: max(1, n // SAMPLED)])
    layout = joiner.layout(
        spec.search.method,
        *serves,
        summary.mean,
        summary.variance,
        spec.threshold,
        spec.norm,
        JoinSample(sample, sample, n),
    )
    index = joiner.build(rows["x"], layout)
    own = Segment(
        ids=rows["ids"],
        seq=rows["seq"],
        version=version,
        ages=(int(version.min()), int(version.max())),
        example=rows["example"],
        position=index["order"][:n].astype(np.int64),
        layout=layout,
        box=(summary.lower, summary.upper),
        reach=near,
        serves=serves,
    )
    if "kept" in rows:
        own["kept"] = rows["kept"]
    assert own.keys().isdisjoint(index)
    return cast(Segment, own | index)


def _around(summary: Moments, spec: JoinSpec) -> tuple[Box, Box]:
    """Return the box of the points that may form pairs with the rows, and the box that
    the index covers.
    """
    far = math.nextafter(reach(spec.norm, spec.threshold), math.inf)
    with np.errstate(over="ignore"):
        span = float((summary.upper * 0.5 - summary.lower * 0.5).max()) * 2
        # filters of the index are then up to three times as coarse, which costs less than
        # building another index
        max_margin = span if span > 0 else float(np.abs(summary.upper).max()) or 1.0
        near = _wider(summary, far)
        return near, near if far <= max_margin else _wider(summary, max_margin)


def _wider(summary: Moments, more: float) -> Box:
    """Return the box of the points, extended by `more` on each side, and rounded
    outwards so that no point is lost.
    """
    lower, upper = (
        np.nan_to_num(summary.lower - more),
        np.nan_to_num(summary.upper + more),
    )
    return np.nextafter(lower, -MAX_FLOAT), np.nextafter(upper, MAX_FLOAT)


def within(x: Array, box: Box) -> Array:
    """Return a mask of the points (n, d) that are in a box: (n,), bool."""
    xp = module_of(x)
    lower, upper = (xp.asarray(side) for side in box)
    found = xp.ones(len(x), bool)
    for k in range(x.shape[1]):
        found &= (x[:, k] >= lower[k]) & (x[:, k] <= upper[k])
    return found


def index_of(segment: Segment) -> Index:
    """Use a segment as a search index. It has all the keys that a search index has."""
    return cast(Index, segment)


def segment_bytes(segment: Segment) -> int:
    total = 0
    for value in segment.values():
        memory_usage: Any = getattr(value, "memory_usage", None)
        if memory_usage is not None:
            found = memory_usage(deep=True)
            total += int(found.sum() if hasattr(found, "sum") else found)
        else:
            total += int(getattr(value, "nbytes", 0))
    return total


def included_rows(segment: Segment, chosen: SegmentChoice) -> Array | None:
    """Return a mask (n,) of the rows that `chosen` includes; None if it includes all
    rows.
    """
    version, n = segment["version"], len(segment["seq"])
    above, to = chosen.versions
    xp = module_of(version)
    places = xp.asarray(chosen.places)
    is_whole = segment["ages"][0] > above and segment["ages"][1] <= to
    if chosen.only_listed:
        found = xp.zeros(n, bool)
        found[places] = True
        return found if is_whole else found & (version > above) & (version <= to)
    if is_whole and not len(places):
        return None
    found = xp.ones(n, bool) if is_whole else (version > above) & (version <= to)
    found[places] = False
    return found


def points_at(segment: Segment, rows: Array) -> Array:
    xp = module_of(segment["position"])
    place = xp.empty_like(segment["position"])
    place[segment["position"]] = xp.arange(len(place))
    return joiner_for(segment["example"]).points(index_of(segment), segment["layout"])[
        place[rows]
    ]


def rows_at(
    segment: Segment, rows: Array, spec: JoinSpec, points: bool = True
) -> RowBatch:
    """Select some rows of a segment. `points`: whether to include their coordinates."""
    xp = module_of(segment["seq"])
    seq = segment["seq"][rows]
    x = points_at(segment, rows) if points else xp.empty((len(rows), 0))
    ids = (
        frames_for(segment["example"]).index(seq)
        if spec.id == SEQ
        else segment["ids"].take(rows)
    )
    found = RowBatch(x=x, seq=seq, ids=ids, example=segment["example"])
    # in a segment, row numbers are under the key `seq` and not among the kept columns
    if SEQ in spec.keep:
        frames, kept = (
            frames_for(segment["example"]),
            [name for name in spec.keep if name != SEQ],
        )
        columns = {}
        if kept:
            named = {name: name for name in kept}
            columns = frames.columns_at(segment["kept"], named, rows)
        found["kept"] = frames.result(columns | {SEQ: seq}, len(rows))
    elif spec.keep:
        found["kept"] = segment["kept"].take(rows)
    return found


@dataclass(frozen=True, eq=False)
class SegmentRef:
    key: str  # key of the task that makes the segment
    file: str
    # index of the segment's first row group in the file, and one more than the index of
    # its last
    groups: tuple[int, int]
    start: int  # position of the segment's first row in the file
    rows: int
    value: Any  # the segment itself; on a cluster, its future

    @property
    def is_lost(self) -> bool:
        """Whether the cluster has lost the segment and will not make it again by
        itself.
        """
        return isinstance(self.value, Future) and self.value.status in (
            "cancelled",
            "lost",
            "error",
        )

    @property
    def ref(self) -> TaskRef:
        return TaskRef(self.key)

    def in_graph(self) -> Any:
        """Return the value for the segment's key in a graph: a future, or a task that
        returns the segment.
        """
        return (
            self.value
            if isinstance(self.value, Future)
            else Task(self.key, itself, self.value)
        )


@dataclass(frozen=True, eq=False)
class CachedPart:
    """Rows to compare. Some or all of them are in memory."""

    segments: tuple[SegmentRef, ...]
    chosen: tuple[SegmentChoice, ...]  # for each segment, the rows to include
    rest: Part | None = None  # further rows, which must be read from files


@dataclass(frozen=True, eq=False)
class CachedRows:
    """The rows and the keys of an index that are in memory."""

    segments: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    """Name of a row file -> the segments that together have all of its row groups."""
    keys: Mapping[str, pa.Table] = field(default_factory=dict)
    """Name of a key file -> its table. It is empty on a cluster."""

    def among(
        self, rows: Snapshot, groups: np.ndarray
    ) -> tuple[list[SegmentRef], np.ndarray]:
        """Return the segments that have some of the row groups `groups` of a snapshot.

        Also return a mask (g,) of those row groups that are in a segment.
        """
        found: list[SegmentRef] = []
        file, number = rows.groups.file[groups], rows.groups.group[groups]
        there = np.zeros(len(groups), bool)
        for one in np.unique(file).tolist():
            for segment in self.segments.get(rows.files[one], ()):
                own = (
                    (file == one)
                    & (number >= segment.groups[0])
                    & (number < segment.groups[1])
                )
                if own.any():
                    found.append(segment)
                    there |= own
        return found, there

    def part(self, rows: Snapshot, groups: np.ndarray) -> Part | CachedPart:
        """Return a part that has some row groups of a snapshot. Rows come from memory
        if they are there.
        """
        segments, there = self.among(rows, groups)
        if not segments:
            return rows.part(groups)
        rest = rows.part(groups[~there]) if not there.all() else None
        return CachedPart(
            tuple(segments),
            tuple(_only(rows, groups, segment) for segment in segments),
            rest,
        )


class UnchangedRows(NamedTuple):
    """Unchanged rows that were read together with deleted rows, and the row groups that
    they are in.
    """

    rows: RowBatch
    groups: np.ndarray


NO_CACHED_ROWS = CachedRows()


def whole_segment(rows: Snapshot, segment: SegmentRef) -> SegmentChoice:
    """Choose all rows of a segment that belong to a snapshot."""
    return SegmentChoice(_places(rows, segment), rows.only_listed, rows.versions)


def _only(rows: Snapshot, groups: np.ndarray, segment: SegmentRef) -> SegmentChoice:
    """From a segment, choose the rows that belong to a snapshot and are in some of its
    row groups.
    """
    chosen = rows.groups[groups]
    own = chosen[chosen.file == rows.files.index(segment.file)]
    own = own[(own.group >= segment.groups[0]) & (own.group < segment.groups[1])]
    within = np.zeros(segment.rows, bool)
    for start, number in zip(
        (own.start - segment.start).tolist(), own.rows.tolist(), strict=True
    ):
        within[start : start + number] = True
    places = _places(rows, segment)
    if rows.only_listed:
        return SegmentChoice(places[within[places]], True, rows.versions)
    within[places] = False
    return SegmentChoice(np.flatnonzero(within), True, rows.versions)


def _places(rows: Snapshot, segment: SegmentRef) -> np.ndarray:
    """Return the part of `Snapshot.places` that is in a segment, counted from the
    segment's first row.
    """
    places = rows.places.get(rows.files.index(segment.file), np.zeros(0, np.int64))
    first, behind = np.searchsorted(
        places, [segment.start, segment.start + segment.rows]
    )
    return places[first:behind] - segment.start


def load_cached(
    rest: Part | None,
    chosen: tuple[SegmentChoice, ...],
    spec: JoinSpec,
    *segments: Segment,
) -> RowBatch:
    """Take the included rows from segments in memory, and read the other rows from
    files.
    """
    found = []
    for segment, one in zip(segments, chosen, strict=True):
        count, xp = included_rows(segment, one), module_of(segment["seq"])
        rows = (
            xp.arange(len(segment["seq"])) if count is None else xp.flatnonzero(count)
        )
        found.append(rows_at(segment, rows, spec))
    return joined_rows(found if rest is None else [*found, load(rest, spec)])


def load_changed(
    spec: JoinSpec,
    cut: Sequence[int],
    marked: bool,
    rest: Part | None,
    chosen: tuple[SegmentChoice, ...],
    *segments: Segment,
) -> RowBatch:
    """Return changed rows that are cut into tiles: see the function `changed`. Some may
    be in segments.
    """
    return changed(load_cached(rest, chosen, spec, *segments), cut, spec, marked)


def loaded(part: Part | CachedPart | RowBatch, spec: JoinSpec) -> RowBatch:
    """Return the rows of a part in the memory of this process."""
    if isinstance(part, Part):
        return load(part, spec)
    if not isinstance(part, CachedPart):
        return part
    if not any(isinstance(segment.value, Future) for segment in part.segments):
        return load_cached(
            part.rest, part.chosen, spec, *(segment.value for segment in part.segments)
        )
    graph: dict[Any, Any] = {
        segment.key: segment.in_graph() for segment in part.segments
    }
    keys = []
    # each task runs on the worker that has the segment, so only the included rows are
    # sent
    for segment, chosen in zip(part.segments, part.chosen, strict=True):
        key = f"simjoin_taken-{segment.key}"
        graph[key] = Task(key, load_cached, None, (chosen,), spec, segment.ref)
        keys.append(key)
    found: Sequence[RowBatch] = gather(graph, keys)
    return joined_rows(
        [*found, *([] if part.rest is None else [load(part.rest, spec)])]
    )
