"""Segments: rows of an index on disk that are kept in memory, with a search index.

A segment has all rows of some row groups of a file, including deleted rows. Files never change, so segments
never change, either. A task that compares a segment selects the rows of a snapshot from it. The segment's
search index covers points in a box somewhat larger than the box of its rows. If a changed row outside that
box can still be in a pair, the task makes a new search index of the segment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict, cast

import numpy as np
import pyarrow as pa
from distributed import Future

from dask_simjoin.disk_index.row_batch import SAMPLED_ROWS, RowBatch, changed, joined_rows, load, rows_of
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

BEYOND = 1 / 2
"""A segment's search index covers the box of its rows and a margin of up to this share of their span.

With the margin, filters are up to twice as coarse as without. This costs less than a new search index.
"""

MAX_FLOAT = float(np.finfo(np.float64).max)

Box = tuple[np.ndarray, np.ndarray]
"""Smallest and largest coordinates of some points, arrays (d,)."""


class Segment(TypedDict):
    """Rows in file order, and their search index: a plain dict of arrays and frames, which Dask can spill.

    The arrays of the search index (see `Joiner.build`) are further keys of the same dict.
    """

    ids: Ids
    seq: Array  # row numbers (n,)
    version: Array  # version (n,) that inserted each row
    ages: tuple[int, int]  # smallest and largest of these versions
    example: Frame  # an empty frame
    position: Array  # (n,), int64: the row at each position of the search index
    layout: Layout
    box: Box  # box of the rows, embedded
    reach: Box  # box of all points that can be in a pair with one of the rows
    serves: Box  # box of the points that the search index can compare: all or most of `reach`
    kept: NotRequired[Frame]


@dataclass(frozen=True, eq=False)
class SegmentChoice:
    """The rows of a segment to include."""

    places: (
        np.ndarray
    )  # positions of excluded rows or, if `only_listed`, of the only included rows; ascending
    only_listed: bool
    versions: tuple[int, int]  # only rows with a version above the first, and up to the second


def make_segment(part: Part, spec: JoinSpec) -> Segment:
    """Read all rows of some row groups, at least one, and index them."""
    frame = read_part(part, list(dict.fromkeys([SEQ, VERSION, *map(str, spec.columns)])))
    rows = rows_of(frame, spec, values_of(frame[SEQ]))
    version, summary = values_of(frame[VERSION]), moments(rows["x"])
    (near, serves), n, joiner = _around(summary, spec), len(rows["seq"]), joiner_for(rows["example"])
    sample = to_host(rows["x"][:: max(1, n // SAMPLED_ROWS)])
    layout = joiner.layout(
        spec.method, *serves, summary.mean, summary.variance, spec.threshold, spec.norm,
        JoinSample(sample, sample, n),
    )  # fmt: skip
    index = joiner.build(rows["x"], layout)
    own = Segment(
        ids=rows["ids"], seq=rows["seq"], version=version, ages=(int(version.min()), int(version.max())),
        example=rows["example"], position=index["order"][:n].astype(np.int64), layout=layout,
        box=(summary.lower, summary.upper), reach=near, serves=serves,
    )  # fmt: skip
    if "kept" in rows:
        own["kept"] = rows["kept"]
    assert own.keys().isdisjoint(index)
    return cast(Segment, own | index)


def _around(summary: Moments, spec: JoinSpec) -> tuple[Box, Box]:
    """Return the box of points that may be in pairs with a segment, and the box that its index covers."""
    far = math.nextafter(reach(spec.norm, spec.threshold), math.inf)
    with np.errstate(over="ignore"):
        span = float((summary.upper * 0.5 - summary.lower * 0.5).max()) * 2
        max_margin = span * BEYOND if span > 0 else float(np.abs(summary.upper).max()) or 1.0
        near = _wider(summary, far)
        return near, near if far <= max_margin else _wider(summary, max_margin)


def _wider(summary: Moments, more: float) -> Box:
    """Return the box of the points, wider by `more` on each side and rounded outwards."""
    lower, upper = np.nan_to_num(summary.lower - more), np.nan_to_num(summary.upper + more)
    return np.nextafter(lower, -MAX_FLOAT), np.nextafter(upper, MAX_FLOAT)


def within(x: Array, box: Box) -> Array:
    """Return whether each point (n, d) lies in a box: (n,), bool."""
    xp = module_of(x)
    lower, upper = (xp.asarray(side) for side in box)
    found = xp.ones(len(x), bool)
    for k in range(x.shape[1]):
        found &= (x[:, k] >= lower[k]) & (x[:, k] <= upper[k])
    return found


def index_of(segment: Segment) -> Index:
    """Return a segment as a search index: it has all keys of one, and more."""
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
    """Return a mask (n,) of the rows that `chosen` includes; None: all rows are included."""
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
    return joiner_for(segment["example"]).points(index_of(segment), segment["layout"])[place[rows]]


def rows_at(segment: Segment, rows: Array, spec: JoinSpec, points: bool = True) -> RowBatch:
    """Select some rows; without their coordinates if not `points`."""
    xp = module_of(segment["seq"])
    seq = segment["seq"][rows]
    x = points_at(segment, rows) if points else xp.empty((len(rows), 0))
    ids = frames_for(segment["example"]).index(seq) if spec.id == SEQ else segment["ids"].take(rows)
    found = RowBatch(x=x, seq=seq, ids=ids, example=segment["example"])
    if SEQ in spec.keep:  # segments hold row numbers under the key `seq`
        frames, kept = frames_for(segment["example"]), [name for name in spec.keep if name != SEQ]
        columns = {name: frames.values(segment["kept"], name, rows) for name in kept}
        found["kept"] = frames.result(columns | {SEQ: seq}, len(rows))
    elif spec.keep:
        found["kept"] = segment["kept"].take(rows)
    return found


@dataclass(frozen=True, eq=False)
class SegmentRef:
    key: str  # key of the task that made the segment
    file: str
    groups: tuple[int, int]  # index of its first row group in the file, and the index after its last one
    start: int  # position of its first row in the file
    rows: int
    value: Any  # the segment, or on a cluster its future

    @property
    def is_lost(self) -> bool:
        """Whether the cluster has lost the segment and will not make it again."""
        return isinstance(self.value, Future) and self.value.status in ("cancelled", "lost", "error")

    @property
    def ref(self) -> TaskRef:
        return TaskRef(self.key)

    def in_graph(self) -> Any:
        """Return the value of the segment's key in a graph."""
        return self.value if isinstance(self.value, Future) else Task(self.key, itself, self.value)


@dataclass(frozen=True, eq=False)
class CachedPart:
    """A part of rows to compare; all or some of them are in memory."""

    segments: tuple[SegmentRef, ...]
    chosen: tuple[SegmentChoice, ...]  # rows to include, for each segment
    rest: Part | None = None  # further rows, which are read from files


@dataclass(frozen=True, eq=False)
class CachedRows:
    """Segments and keys of an index in memory."""

    segments: Mapping[str, tuple[SegmentRef, ...]] = field(default_factory=dict)
    """Name of a row file -> segments with all of its row groups."""
    keys: Mapping[str, pa.Table] = field(default_factory=dict)
    """Name of a key file -> its keys; empty on a cluster."""

    def among(self, rows: Snapshot, groups: np.ndarray) -> tuple[list[SegmentRef], np.ndarray]:
        """Return the segments that have some of the row groups `groups` of a snapshot.

        Also return a mask (g,) of the row groups that are in a segment.
        """
        found: list[SegmentRef] = []
        file, number = rows.groups.file[groups], rows.groups.group[groups]
        there = np.zeros(len(groups), bool)
        for one in np.unique(file).tolist():
            for segment in self.segments.get(rows.files[one], ()):
                own = (file == one) & (number >= segment.groups[0]) & (number < segment.groups[1])
                if own.any():
                    found.append(segment)
                    there |= own
        return found, there

    def part(self, rows: Snapshot, groups: np.ndarray) -> Part | CachedPart:
        """Return a part with some row groups of a snapshot, from memory if possible."""
        segments, there = self.among(rows, groups)
        if not segments:
            return rows.part(groups)
        rest = rows.part(groups[~there]) if not there.all() else None
        return CachedPart(tuple(segments), tuple(_only(rows, groups, segment) for segment in segments), rest)


class UnchangedRows(NamedTuple):
    """Unchanged rows that were read along with deleted rows, and their row groups."""

    rows: RowBatch
    groups: np.ndarray


NO_CACHED_ROWS = CachedRows()


def whole_segment(rows: Snapshot, segment: SegmentRef) -> SegmentChoice:
    """Select all rows of a segment that belong to a snapshot."""
    return SegmentChoice(_places(rows, segment), rows.only_listed, rows.versions)


def _only(rows: Snapshot, groups: np.ndarray, segment: SegmentRef) -> SegmentChoice:
    """Select the rows of a segment that belong to a snapshot and are in some row groups."""
    chosen = rows.groups[groups]
    own = chosen[chosen.file == rows.files.index(segment.file)]
    own = own[(own.group >= segment.groups[0]) & (own.group < segment.groups[1])]
    within = np.zeros(segment.rows, bool)
    for start, number in zip((own.start - segment.start).tolist(), own.rows.tolist(), strict=True):
        within[start : start + number] = True
    places = _places(rows, segment)
    if rows.only_listed:
        return SegmentChoice(places[within[places]], True, rows.versions)
    within[places] = False
    return SegmentChoice(np.flatnonzero(within), True, rows.versions)


def _places(rows: Snapshot, segment: SegmentRef) -> np.ndarray:
    """Return `Snapshot.places` in a segment, counted from the segment's first row."""
    places = rows.places.get(rows.files.index(segment.file), np.zeros(0, np.int64))
    first, behind = np.searchsorted(places, [segment.start, segment.start + segment.rows])
    return places[first:behind] - segment.start


def load_cached(
    rest: Part | None, chosen: tuple[SegmentChoice, ...], spec: JoinSpec, *segments: Segment
) -> RowBatch:
    """Select the included rows of segments, and read the rest from files."""
    found = []
    for segment, one in zip(segments, chosen, strict=True):
        count, xp = included_rows(segment, one), module_of(segment["seq"])
        rows = xp.arange(len(segment["seq"])) if count is None else xp.flatnonzero(count)
        found.append(rows_at(segment, rows, spec))
    return joined_rows(found if rest is None else [*found, load(rest, spec)])


def load_changed(spec: JoinSpec, cut: Sequence[int], marked: bool, rest: Part | None,
               chosen: tuple[SegmentChoice, ...], *segments: Segment) -> RowBatch:  # fmt: skip
    """Select changed rows, and cut them into tiles: see `changed`."""
    return changed(load_cached(rest, chosen, spec, *segments), cut, spec, marked)


def loaded(part: Part | CachedPart | RowBatch, spec: JoinSpec) -> RowBatch:
    """Return the rows of a part, in this process."""
    if isinstance(part, Part):
        return load(part, spec)
    if not isinstance(part, CachedPart):
        return part
    if not any(isinstance(segment.value, Future) for segment in part.segments):
        return load_cached(part.rest, part.chosen, spec, *(segment.value for segment in part.segments))
    graph: dict[Any, Any] = {segment.key: segment.in_graph() for segment in part.segments}
    keys = []
    for segment, chosen in zip(part.segments, part.chosen, strict=True):  # each on the worker of its segment
        key = f"simjoin_taken-{segment.key}"
        graph[key] = Task(key, load_cached, None, (chosen,), spec, segment.ref)
        keys.append(key)
    found: Sequence[RowBatch] = gather(graph, keys)
    return joined_rows([*found, *([] if part.rest is None else [load(part.rest, spec)])])
