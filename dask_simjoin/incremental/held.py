"""Which rows of an index are held in memory: of the cluster's workers, or of this process.

A slab is a task that read row groups and indexed them.  On a cluster its result stays with a worker, is
spilled as any other, and is made again if that worker dies; without one it is a value of this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import dask
import pyarrow as pa
from dask.delayed import Delayed
from dask.tokenize import tokenize
from distributed import Future, wait

from dask_simjoin.expressions.dask_private import Task
from dask_simjoin.expressions.source import gather
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.blocks import row_bytes, sizes
from dask_simjoin.incremental.cuts import cut_parts
from dask_simjoin.incremental.keys import read_keys
from dask_simjoin.incremental.lazy import spec_of
from dask_simjoin.incremental.parts import Held, SlabRef
from dask_simjoin.incremental.report import Told
from dask_simjoin.incremental.slabs import make_slab, slab_bytes
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import Groups, Part, Snapshot
from dask_simjoin.options.settings import current_client
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import Resources
from dask_simjoin.planning.resources import resources

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


@dataclass(frozen=True, repr=False)
class Memory(Told):
    """Tell what of an index is held in memory; see `Index.persist`.

    Attributes
    ----------
    rows, rows_on_disk : int
        Rows that are held, deleted ones too, and those for which there is no room: they are read each time.
    files, files_on_disk : int
    slabs : int
        Parts of them, each with an index of its own.
    bytes_held : int
    """

    title: ClassVar[str] = "Rows of an index in memory"
    bytes_of: ClassVar[tuple[str, ...]] = ("bytes_held",)

    rows: int
    rows_on_disk: int
    files: int
    files_on_disk: int
    slabs: int
    bytes_held: int


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
    most, have = min(SLAB_ROWS, sizes(version.rows, spec).rows), resources(version.library)
    if not have.gpu or have.memory is None:
        return most
    return max(most, device_rows(int(version.rows.groups.rows.sum()), row_bytes(spec), have))


def device_rows(rows: int, each: float, have: Resources) -> int:
    """Tell how many rows a slab on a GPU has, of so many in all, `each` bytes: threads here share one GPU."""
    gpus = have.threads if have.cluster else 1
    beside = have.threads // gpus
    room = (have.memory or 0) * beside * DEVICE_SHARE / max(1.0, beside * 2 * DEVICE_SHARE)
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


def _files(rows: Snapshot) -> Iterator[tuple[str, Groups]]:
    """Go through the files of a snapshot, and all row groups of each."""
    for number, name in enumerate(rows.files):
        groups = rows.groups[rows.groups.file == number]
        if len(groups):
            yield name, groups


def _room(library: str) -> float:
    """Bytes that may be held."""
    have = resources(library)
    each = have.memory if have.memory is not None else have.shared
    return float("inf") if each is None else SHARE * each * have.threads


def _slabs(
    rows: Snapshot, name: str, groups: Groups, spec: JoinSpec, most: int, turn: int
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


def memory_of(version: Version, held: Held) -> Memory:
    """Tell what of a version is held."""
    files = {one.name: one.rows for one in version.manifest.files}
    slabs = [slab for name in files for slab in held.slabs.get(name, ())]
    graph: dict[Any, Any] = {slab.key: slab.in_graph() for slab in slabs}
    keys = [f"simjoin_bytes-{slab.key}" for slab in slabs]
    graph |= {key: Task(key, slab_bytes, slab.ref) for key, slab in zip(keys, slabs, strict=True)}
    rows, there = sum(slab.rows for slab in slabs), sum(name in held.slabs for name in files)
    return Memory(
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
