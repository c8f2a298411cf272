"""Indexes that are open, and the rows that they cache in memory: on workers, or in this
process.

A segment is the result of a task that reads row groups and builds a search index for
their rows. On a cluster, it stays on a worker, which may spill it. If the worker dies,
the segment is made again. Without a cluster, a segment is a value in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import dask
import pyarrow as pa
from dask.delayed import Delayed
from dask.tokenize import tokenize
from distributed import Future, wait

from dask_simjoin.disk_index.blocks import row_bytes, sizes
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.disks import check_folders
from dask_simjoin.disk_index.files import EVERY_FOLDER, cut_parts
from dask_simjoin.disk_index.graph import spec_of
from dask_simjoin.disk_index.manifests import intact, versions
from dask_simjoin.disk_index.reports import MemoryReport
from dask_simjoin.disk_index.schema import read_keys
from dask_simjoin.disk_index.segments import (
    NO_CACHED_ROWS,
    CachedRows,
    SegmentRef,
    make_segment,
    segment_bytes,
)
from dask_simjoin.disk_index.snapshots import Version, last_version, version_of
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import Options, Part, RowGroups, Snapshot
from dask_simjoin.errors import OptionError, VersionGoneError
from dask_simjoin.graph.dask_private import Task
from dask_simjoin.graph.source import gather
from dask_simjoin.graph.workers import end_without_workers, on_worker
from dask_simjoin.planning.limits import Limits
from dask_simjoin.planning.resources import limits_for
from dask_simjoin.reports.facts import summaries_html
from dask_simjoin.request.options import current_client
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import (
    BUFFER_SHARE,
    ENTRY_BYTES,
    HELD_SHARE,
    PARTITION,
    PARTS_PER_THREAD,
    TRIES,
)

T = TypeVar("T")


def cache_rows(version: Version, before: CachedRows, times_lost: int) -> CachedRows:
    """Cache as many files of a version as fit in memory. Files that are in the cache
    `before` stay.

    `times_lost`: how often the cache was lost. The number is part of task names, since
    a cluster may still release results of the lost cache. With equal names, it would
    also release the new ones.
    """
    rows = version.rows
    spec = spec_of(rows, None, False)
    max_rows, capacity = (
        _segment_rows(version, spec),
        _capacity(version.library) // row_bytes(spec),
    )
    kept = {
        name: before.segments[name] for name in rows.files if name in before.segments
    }
    capacity -= sum(segment.rows for segments in kept.values() for segment in segments)
    wanted: list[SegmentRef] = []
    for name, groups in _files(rows):
        total = int(groups.rows.sum())
        if name not in kept and total <= capacity:
            capacity -= total
            wanted += _segments(rows, name, groups, spec, max_rows, times_lost)
    for segment in _made(rows, wanted, spec):
        kept[segment.file] = (*kept.get(segment.file, ()), segment)
    return CachedRows(kept, _keys(version, before, capacity * row_bytes(spec)))


def _segment_rows(version: Version, spec: JoinSpec) -> int:
    max_rows, limits = (
        min(PARTITION, sizes(version.rows, spec).rows),
        limits_for(version.library),
    )
    if not limits.gpu or limits.memory is None:
        return max_rows
    return max(
        max_rows,
        device_rows(int(version.rows.groups.rows.sum()), row_bytes(spec), limits),
    )


def device_rows(rows: int, each: float, limits: Limits) -> int:
    """Return the maximum rows of a segment on a GPU. Several threads may share the GPU.

    `rows`: number of rows in all segments. `each`: bytes per row.
    """
    gpus = limits.threads if limits.cluster else 1
    sharing = limits.threads // gpus
    capacity = (limits.memory or 0) * sharing / max(BUFFER_SHARE, sharing * 2)
    return min(rows // (PARTS_PER_THREAD * gpus), int(capacity / each))


def _keys(version: Version, before: CachedRows, capacity: float) -> dict[str, pa.Table]:
    """Return the key files to cache, by name: as many as fit in `capacity` bytes, and
    none on a cluster.
    """
    found: dict[str, pa.Table] = {}
    for one in version.manifest.keys if current_client() is None else ():
        capacity -= 2 * ENTRY_BYTES * one.rows
        if capacity >= 0:
            known = before.keys.get(one.name)
            found[one.name] = read_keys(version.root, one) if known is None else known
    return found


def _files(rows: Snapshot) -> Iterator[tuple[str, RowGroups]]:
    for number, name in enumerate(rows.files):
        groups = rows.groups[rows.groups.file == number]
        if len(groups):
            yield name, groups


def _capacity(library: str) -> float:
    limits = limits_for(library)
    each = limits.memory if limits.memory is not None else limits.shared
    return float("inf") if each is None else HELD_SHARE * each * limits.threads


def _segments(
    rows: Snapshot,
    name: str,
    groups: RowGroups,
    spec: JoinSpec,
    max_rows: int,
    times_lost: int,
) -> Iterator[SegmentRef]:
    """Cut the row groups of a file into segments of at most `max_rows` rows, or of one
    row group.
    """
    for part in cut_parts(groups.rows, max_rows):
        some = groups[part]
        numbers = int(some.group[0]), int(some.group[-1]) + 1
        key = f"simjoin_held-{tokenize(str(rows.root), name, numbers, rows.library, spec, times_lost)}"
        yield SegmentRef(
            key, name, numbers, int(some.start[0]), int(some.rows.sum()), None
        )


def _made(
    rows: Snapshot, segments: list[SegmentRef], spec: JoinSpec
) -> Iterator[SegmentRef]:
    """Make segments in tasks, and wait for the tasks. Yield references that contain the
    segments.
    """
    tasks = []
    for segment in segments:
        piece = segment.file, tuple(range(*segment.groups))
        part = Part(rows.root, rows.options, rows.library, (piece,), False, None)
        tasks.append(
            Delayed(
                segment.key,
                {segment.key: Task(segment.key, on_worker, make_segment, part, spec)},
            )
        )
    persisted: tuple[Any, ...] = (
        dask.persist(*tasks, optimize_graph=False) if tasks else ()
    )
    values = [one.dask[one.key] for one in persisted]
    futures = [value for value in values if isinstance(value, Future)]
    if futures:
        wait(futures)
    for segment, value in zip(segments, values, strict=True):
        if isinstance(value, Future) and value.status == "error":
            value.result()  # raises the error that the task has raised
        yield replace(segment, value=value)


def memory_of(version: Version, cached: CachedRows) -> MemoryReport:
    """Report how many rows of a version are cached, and their memory."""
    files = {one.name: one.rows for one in version.manifest.files}
    segments = [segment for name in files for segment in cached.segments.get(name, ())]
    graph: dict[Any, Any] = {segment.key: segment.in_graph() for segment in segments}
    keys = [f"simjoin_bytes-{segment.key}" for segment in segments]
    graph |= {
        key: Task(key, segment_bytes, segment.ref)
        for key, segment in zip(keys, segments, strict=True)
    }
    rows, there = (
        sum(segment.rows for segment in segments),
        sum(name in cached.segments for name in files),
    )
    return MemoryReport(
        rows,
        sum(files.values()) - rows,
        there,
        len(files) - there,
        len(segments),
        sum(gather(graph, keys)) + sum(table.nbytes for table in cached.keys.values()),
    )


class RowCache:
    """The cached rows of an index, which follow it from version to version.

    If the cluster that had the rows is gone, they are cached again by the current
    scheduler.
    """

    def __init__(self) -> None:
        self._cached, self._where, self._number, self._times_lost = (
            CachedRows(),
            _where(),
            -1,
            0,
        )

    def follow(self, version: Version) -> CachedRows:
        """Update the cache for a version: keep files that are cached already, and read
        the others.
        """
        lost = any(
            segment.is_lost
            for segments in self._cached.segments.values()
            for segment in segments
        )
        if lost or self._where != _where():
            self._cached, self._where, self._number = CachedRows(), _where(), -1
            self._times_lost += 1
        if self._number != version.number:
            self._cached, self._number = (
                cache_rows(version, self._cached, self._times_lost),
                version.number,
            )
        return self._cached


def _where() -> str:
    """Identify where tasks run: return the id of the cluster's client, or "" for this
    process.
    """
    client = current_client()
    return "" if client is None else str(client.id)


class IndexReader:
    """Reads the versions of an index in a folder.

    A vacuum may run at any time. It keeps the last version, and removes the manifest of
    a version before it removes files that only this version needs. So if a reader does
    not find a file of the last version, there is a newer version by now, or the file is
    lost. Each method therefore reads the last version again, until it finds all files
    or no newer version. A lazy frame belongs to the version that made it: computing it
    later raises `VersionGoneError` if its files were removed. The same holds for an
    index that was opened at a version.
    """

    def __init__(self, root: AnyPath, library: str, version: int | None = None) -> None:
        if isinstance(root, Path):
            check_folders(root, EVERY_FOLDER)
        self._root, self._library, self._pinned = root, library, version
        self._last = (
            last_version(root, library)
            if version is None
            else version_of(root, library, version)
        )
        self._cache: RowCache | None = None

    def __repr__(self) -> str:
        manifest = self._now().manifest
        on = ", ".join(map(repr, manifest.options.on[:3])) + ", ..." * (
            len(manifest.options.on) > 3
        )
        return (
            f"<Index of {manifest.rows:,} rows on {on}, {manifest.options.metric}, "
            f"eps={manifest.options.eps_in_unit}, version {manifest.version}, at "
            f"{str(self._root)!r}>"
        )

    def _repr_html_(self) -> str:
        verbs = [
            name
            for name in dir(type(self))
            if name[0] != "_" and callable(getattr(type(self), name))
        ]
        return summaries_html(
            repr(self)[1:-1], {name: getattr(type(self), name) for name in verbs}
        )

    @property
    def path(self) -> AnyPath:
        """The folder: a `Path`, or for an object store an object that ``str`` converts
        to a URL.
        """
        return self._root

    @property
    def version(self) -> int:
        """The number of the last version, or of the version that the index was opened
        at.
        """
        return self._now().number

    @property
    def options(self) -> Options:
        """The options that the index was made with."""
        return self._last.manifest.options

    def persist(self) -> Self:
        """Cache rows in memory, on the workers or in this process, so that updates do
        not read them.

        This object keeps the rows until `release`, or as long as it lives. Coordinates,
        ids and kept columns are read and indexed once. Then updates and `changes` find
        pairs with the cached rows. They read only new files, including files that other
        processes wrote. Updates write the same versions as without a cache.

        The cache fills up to half of the memory. Files that do not fit are read each
        time, and `memory` counts them. Workers spill cached rows as Dask is configured.
        If a worker dies, its rows are read again.

        Returns
        -------
        Index
            This object.
        """
        self._cache = self._cache or RowCache()
        self._now()
        return self

    def release(self) -> None:
        """Remove all rows from memory."""
        self._cache, self._last = None, replace(self._last, cached=NO_CACHED_ROWS)

    @property
    def memory(self) -> MemoryReport:
        """How many rows are cached and how many are not, and the memory that the cache
        takes.
        """
        return self._reading(lambda now: memory_of(now, now.cached))

    def _now(self) -> Version:
        """Return the version to read: the last one, or the version that the index was
        opened at.
        """
        end_without_workers(current_client())
        found = (
            self._last
            if self._pinned is not None
            else last_version(self._root, self._library)
        )
        if found.number != self._last.number:
            self._last = replace(found, cached=self._last.cached)
        if self._cache is not None:
            cached = self._followed(self._cache)
            if cached is not self._last.cached:
                self._last = replace(self._last, cached=cached)
        return self._last

    def _followed(self, cache: RowCache) -> CachedRows:
        """Update the cache for the last version. If vacuums remove files too often, some
        files stay out of the cache until the next call.
        """
        for _ in range(TRIES):
            try:
                return cache.follow(self._last)
            except VersionGoneError:
                if not self._look_again():
                    raise
        return self._last.cached

    def _look_again(self) -> bool:
        """Read the last version after a file was missing. Return whether it is a newer
        one, so that the call can be repeated.
        """
        if self._pinned is not None:
            return False
        found = last_version(self._root, self._library)
        if found.number == self._last.number:
            return False
        self._last = replace(found, cached=self._last.cached)
        return True

    def _reading(self, work: Callable[[Version], T]) -> T:
        """Call `work` with the version to read. Call it again with a newer version if a
        vacuum has removed a file meanwhile.
        """
        for _ in range(TRIES - 1):
            now = self._now()
            try:
                return work(now)
            except VersionGoneError:
                if self._now().number == now.number:
                    raise
        return work(self._now())

    def _at(self, version: int) -> Version:
        now = self._now()
        if version == now.number:
            return now
        return replace(
            version_of(self._root, self._library, version), cached=now.cached
        )

    def _latest(self, what: str) -> Version:
        if self._pinned is not None:
            raise OptionError(
                f"The index was opened at version {self._pinned}, which never changes; "
                "open it without "
                f"version= to {what}."
            )
        return self._now()

    def _to_restore(self) -> Version:
        """Return the version that a restore would follow: normally the last one.

        If all versions after the opened one are damaged, it is the opened one instead.
        """
        later = (
            []
            if self._pinned is None
            else [n for n in versions(self._root) if n > self._pinned]
        )
        return (
            self._now()
            if later and not intact(self._root, later)
            else self._latest("restore")
        )

    def _changed(self, since: int, until: int) -> PairChanges:
        return changes_to(self._at(until))(since, until)


def changes_to(version: Version) -> Callable[[int, int], PairChanges]:
    """Return a function that takes two version numbers, `since` and `until`, and finds
    the changes of pairs between them.

    `version`: the version with the number `until`.
    """

    def found(since: int, until: int) -> PairChanges:
        if until < since:
            raise VersionGoneError(
                f"since={since} is after until={until}; pass the older version as "
                "since=."
            )
        distance = version.manifest.options.return_distance
        return PairChanges(version.since(since), distance, cached=version.cached)

    return found
