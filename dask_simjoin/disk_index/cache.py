"""Opened indexes, and the rows they hold in memory on workers or in this process.

A slab is a task that read row groups and indexed them.  On a cluster its result stays with a worker, is
spilled as any other, and is made again if that worker dies; without one it is a value of this process.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import dask
import pyarrow as pa
from dask.delayed import Delayed
from dask.tokenize import tokenize
from distributed import Future, wait

from dask_simjoin.disk_index import changes
from dask_simjoin.disk_index.blocks import row_bytes, sizes
from dask_simjoin.disk_index.changes import PairChanges
from dask_simjoin.disk_index.files import cut_parts
from dask_simjoin.disk_index.graph import spec_of
from dask_simjoin.disk_index.manifests import versions, whole
from dask_simjoin.disk_index.reports import MemoryReport
from dask_simjoin.disk_index.schema import read_keys
from dask_simjoin.disk_index.segments import NOTHING, Held, SlabRef, make_slab, slab_bytes
from dask_simjoin.disk_index.snapshots import Version, last_version, version_of
from dask_simjoin.disk_index.types import Options, Part, RowGroups, Snapshot
from dask_simjoin.errors import OptionError, VersionGoneError
from dask_simjoin.graph.dask_private import Task
from dask_simjoin.graph.source import gather
from dask_simjoin.graph.workers import end_without_workers, on_worker
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.resources import resources_for
from dask_simjoin.request.options import current_client
from dask_simjoin.request.spec import JoinSpec

SLAB_ROWS = 1 << 19
"""Rows of a slab, at most: so many are compared with new rows by one index."""

DEVICE_SLABS = 4
"""Slabs for each GPU, if they are not smaller then than others: each costs twenty milliseconds there."""

DEVICE_SHARE = 1 / 32
"""Share of a GPU's memory that comparing a slab may take."""

KEY_BYTES = 28
"""Of each row in memory for its key, its number, its file and its place."""

SHARE = 0.5
"""Of the memory of all workers, or of this process, that is filled at most."""


def hold(version: Version, before: Held, turn: int) -> Held:
    """Hold the files of a version in memory, as many as there is room for; keep those that are held.

    Tasks of another turn have names of their own: a cluster that is told to forget results of one name may
    take those that are made again under it for the ones it was told of.
    """
    rows = version.rows
    spec = spec_of(rows, None, False)
    most, room = _slab_rows(version, spec), _room(version.library) // row_bytes(spec)
    kept = {name: before.slabs[name] for name in rows.files if name in before.slabs}
    room -= sum(slab.rows for slabs in kept.values() for slab in slabs)
    wanted: list[SlabRef] = []
    for name, groups in _files(rows):
        total = int(groups.rows.sum())
        if name not in kept and total <= room:
            room -= total
            wanted += _slabs(rows, name, groups, spec, most, turn)
    for slab in _made(rows, wanted, spec):
        kept[slab.file] = (*kept.get(slab.file, ()), slab)
    return Held(kept, _keys(version, before, room * row_bytes(spec)))


def _slab_rows(version: Version, spec: JoinSpec) -> int:
    """Tell how many rows a slab has at most."""
    most, resources = min(SLAB_ROWS, sizes(version.rows, spec).rows), resources_for(version.library)
    if not resources.gpu or resources.memory is None:
        return most
    return max(most, device_rows(int(version.rows.groups.rows.sum()), row_bytes(spec), resources))


def device_rows(rows: int, each: float, resources: Resources) -> int:
    """Tell how many rows a slab on a GPU has, of so many in all, `each` bytes: threads here share one GPU."""
    gpus = resources.threads if resources.cluster else 1
    beside = resources.threads // gpus
    room = (resources.memory or 0) * beside * DEVICE_SHARE / max(1.0, beside * 2 * DEVICE_SHARE)
    return min(rows // (DEVICE_SLABS * gpus), int(room / each))


def _keys(version: Version, before: Held, room: float) -> dict[str, pa.Table]:
    """Hold keys of ids in this process, where it is the one that computes, as far as there is room."""
    found: dict[str, pa.Table] = {}
    for one in version.manifest.keys if current_client() is None else ():
        room -= KEY_BYTES * one.rows
        if room >= 0:
            known = before.keys.get(one.name)
            found[one.name] = read_keys(version.root, one) if known is None else known
    return found


def _files(rows: Snapshot) -> Iterator[tuple[str, RowGroups]]:
    """Go through the files of a snapshot, and all row groups of each."""
    for number, name in enumerate(rows.files):
        groups = rows.groups[rows.groups.file == number]
        if len(groups):
            yield name, groups


def _room(library: str) -> float:
    """Bytes that may be held."""
    resources = resources_for(library)
    each = resources.memory if resources.memory is not None else resources.shared
    return float("inf") if each is None else SHARE * each * resources.threads


def _slabs(
    rows: Snapshot, name: str, groups: RowGroups, spec: JoinSpec, most: int, turn: int
) -> Iterator[SlabRef]:
    """Cut the row groups of a file into slabs of so many rows, at most about."""
    for part in cut_parts(groups.rows, most):
        some = groups[part]
        numbers = int(some.group[0]), int(some.group[-1]) + 1
        key = f"simjoin_held-{tokenize(str(rows.root), name, numbers, rows.library, spec, turn)}"
        yield SlabRef(key, name, numbers, int(some.start[0]), int(some.rows.sum()), None)


def _made(rows: Snapshot, slabs: list[SlabRef], spec: JoinSpec) -> Iterator[SlabRef]:
    """Read and index slabs, and wait until that is done."""
    tasks = []
    for slab in slabs:
        piece = slab.file, tuple(range(*slab.groups))
        part = Part(rows.root, rows.options, rows.library, (piece,), False, None)
        tasks.append(Delayed(slab.key, {slab.key: Task(slab.key, on_worker, make_slab, part, spec)}))
    held: tuple[Any, ...] = dask.persist(*tasks, optimize_graph=False) if tasks else ()
    values = [one.dask[one.key] for one in held]
    futures = [value for value in values if isinstance(value, Future)]
    if futures:
        wait(futures)
    for slab, value in zip(slabs, values, strict=True):
        if isinstance(value, Future) and value.status == "error":
            value.result()  # raises what the task raised
        yield SlabRef(slab.key, slab.file, slab.groups, slab.start, slab.rows, value)


def memory_of(version: Version, held: Held) -> MemoryReport:
    """Tell what of a version is held."""
    files = {one.name: one.rows for one in version.manifest.files}
    slabs = [slab for name in files for slab in held.slabs.get(name, ())]
    graph: dict[Any, Any] = {slab.key: slab.in_graph() for slab in slabs}
    keys = [f"simjoin_bytes-{slab.key}" for slab in slabs]
    graph |= {key: Task(key, slab_bytes, slab.ref) for key, slab in zip(keys, slabs, strict=True)}
    rows, there = sum(slab.rows for slab in slabs), sum(name in held.slabs for name in files)
    return MemoryReport(
        rows, sum(files.values()) - rows, there, len(files) - there, len(slabs),
        sum(gather(graph, keys)) + sum(table.nbytes for table in held.keys.values()),
    )  # fmt: skip


class Holder:
    """Keeps the last version of an index in memory, as it changes.

    Without a cluster of its own that is still there, what is held is made again where Dask computes now.
    """

    def __init__(self) -> None:
        self._held, self._where, self._number, self._turn = Held(), _where(), -1, 0

    def follow(self, version: Version) -> Held:
        """Hold a version: what it has of the one before stays, and what is new is read."""
        lost = any(slab.is_lost for slabs in self._held.slabs.values() for slab in slabs)
        if lost or self._where != _where():
            self._held, self._where, self._number = Held(), _where(), -1
            self._turn += 1
        if self._number != version.number:
            self._held, self._number = hold(version, self._held, self._turn), version.number
        return self._held


def _where() -> str:
    """Name what computes: a cluster, by its client, or this process."""
    client = current_client()
    return "" if client is None else str(client.id)


class Opened:
    """The versions of an index in a folder."""

    def __init__(self, root: Path, library: str, version: int | None = None) -> None:
        self._root, self._library, self._pinned = root, library, version
        self._last = last_version(root, library) if version is None else version_of(root, library, version)
        self._holder: Holder | None = None

    def __repr__(self) -> str:
        manifest = self._now().manifest
        on = ", ".join(map(repr, manifest.options.on[:3])) + ", ..." * (len(manifest.options.on) > 3)
        return (
            f"<Index of {manifest.rows:,} rows on {on}, {manifest.options.metric}, "
            f"eps={manifest.options.eps!r}, version {manifest.version}, at {str(self._root)!r}>"
        )

    def _repr_html_(self) -> str:
        verbs = [name for name in dir(type(self)) if name[0] != "_" and callable(getattr(type(self), name))]
        lines = {name: (inspect.getdoc(getattr(type(self), name)) or "").partition("\n")[0] for name in verbs}
        rows = "".join(
            f'<tr><th style="text-align:left">{name}</th>'
            f'<td style="text-align:left">{html.escape(line)}</td></tr>'
            for name, line in lines.items()
        )
        return f"<div><p><b>{html.escape(repr(self)[1:-1])}</b></p><table><tbody>{rows}</tbody></table></div>"

    @property
    def path(self) -> Path:
        """The folder."""
        return self._root

    @property
    def version(self) -> int:
        """The number of the last version, or of the one that the index was opened at."""
        return self._now().number

    @property
    def options(self) -> Options:
        """What the index was made for."""
        return self._last.manifest.options

    def persist(self) -> Self:
        """Hold rows in memory, of the cluster's workers or of this process, so that updates do not read them.

        What holds them is this object, as long as it lives or until `release`. Coordinates, ids and kept
        columns are read once and indexed; updates and `changes` find pairs by them, and read new files only,
        also those of other writers.  Nothing else changes: each update writes its version as before.

        Up to half of the memory is filled: of files for which there is no room rows are read each time,
        as `memory` tells.  Workers spill what they hold as Dask's configuration says, and what a worker that
        dies has held is read again.

        Returns
        -------
        Index
            This one.
        """
        self._holder = self._holder or Holder()
        self._now()
        return self

    def release(self) -> None:
        """Hold nothing in memory any more."""
        self._holder, self._last = None, replace(self._last, held=NOTHING)

    @property
    def memory(self) -> MemoryReport:
        """What is held in memory, of how much, in numbers."""
        now = self._now()
        return memory_of(now, now.held)

    def _now(self) -> Version:
        """The version that is asked about: the last one, if none was named when the index was opened."""
        end_without_workers(current_client())
        found = self._last if self._pinned is not None else last_version(self._root, self._library)
        if found.number != self._last.number:
            self._last = replace(found, held=self._last.held)
        if self._holder is not None:
            held = self._holder.follow(self._last)
            if held is not self._last.held:
                self._last = replace(self._last, held=held)
        return self._last

    def _at(self, version: int) -> Version:
        now = self._now()
        if version == now.number:
            return now
        return replace(version_of(self._root, self._library, version), held=now.held)

    def _latest(self, what: str) -> Version:
        if self._pinned is not None:
            raise OptionError(
                f"The index was opened at version {self._pinned}, which never changes; open it without "
                f"version= to {what}."
            )
        return self._now()

    def _to_restore(self) -> Version:
        """The version that a restored one is made of: the last one, or this one, if all later are damaged."""
        later = [] if self._pinned is None else [n for n in versions(self._root) if n > self._pinned]
        return self._now() if later and not whole(self._root, later) else self._latest("restore")

    def _changed(self, since: int, until: int) -> PairChanges:
        return changes_to(self._at(until))(since, until)


def changes_to(version: Version) -> Callable[[int, int], PairChanges]:
    """Give what tells the changes to a version, from one that is named first."""

    def found(since: int, until: int) -> PairChanges:
        if until < since:
            raise VersionGoneError(f"since={since} is after until={until}; name the older version first.")
        return changes.changes(version.since(since), version.manifest.options.return_distance, version.held)

    return found
