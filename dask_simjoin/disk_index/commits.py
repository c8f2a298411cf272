"""Make a version of the last one: write its files, publish it, and retry after a conflict."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.parquet as pq

from dask_simjoin.disk_index.checksums import SummedFile, is_checked
from dask_simjoin.disk_index.files import (
    FOLDERS,
    PAIRS,
    encoded,
    parquet,
    read_groups,
    sync_folder,
    write_tables,
)
from dask_simjoin.disk_index.pair_files import taken_in, tidied
from dask_simjoin.disk_index.publishing import Transaction, base_of, publish, transaction, with_batch
from dask_simjoin.disk_index.rows import Written, places_in, write_deleted
from dask_simjoin.disk_index.schema import merged, without_stale
from dask_simjoin.disk_index.segments import NOTHING, Held
from dask_simjoin.disk_index.snapshots import Version, write_boxes
from dask_simjoin.disk_index.types import DeletedFile, Manifest, RowFile, StoredPairs
from dask_simjoin.errors import IndexConflictError, IndexFormatError, VersionGoneError

T = TypeVar("T")

TRIES = 3
"""Versions of other writers that one gives way to."""


def attempted(root: Path, last: Callable[[], Version],
              work: Callable[[Version, int, Transaction], T | None]) -> T:  # fmt: skip
    """Return what `work` gives, which makes the version after a number of the last one.

    Where that is None, as another writer was faster, or a file went that a vacuum removed, it works again.
    """
    gone = None
    for _ in range(TRIES):
        now = last()
        base = base_of(root, now.manifest)
        if base is None:
            continue
        try:
            with transaction(root) as own:
                done = work(now, base, own)
        except VersionGoneError as error:
            if base_of(root, now.manifest) is not None:
                raise  # nobody made a version meanwhile: it is not there at all
            gone = error
            continue
        if done is not None:
            return done
    raise IndexConflictError(
        f"Other writers made versions of the index at {str(root)!r} {TRIES} times while this one worked; "
        "nothing was changed. Let one process update it, or try again."
    ) from gone


def with_checksums(own: Transaction, manifest: Manifest) -> tuple[Manifest, int]:
    """Write those files anew that rewriting rows leaves as they are, if they have none; tells the bytes."""
    total = 0

    def renewed(folder: str, name: str) -> str:
        nonlocal total
        if is_checked(Path(name)):
            return name
        made, size = _copied(own, folder, name)
        total += size
        return made

    files = tuple(replace(one, name=renewed(PAIRS, one.name)) for one in manifest.pairs.files)
    marks = tuple(replace(one, name=renewed(PAIRS, one.name)) for one in manifest.pairs.marks)
    earlier = tuple(renewed(FOLDERS[0], name) for name in manifest.earlier)
    options = replace(manifest.options, example=renewed("rows", manifest.options.example))
    if earlier != manifest.earlier:
        sync_folder(own.root / FOLDERS[0])
    return replace(manifest, pairs=StoredPairs(files, marks), earlier=earlier, options=options), total


def _copied(own: Transaction, folder: str, name: str) -> tuple[str, int]:
    with parquet(own.root / folder / name) as old:
        schema, groups = old.schema_arrow, range(old.num_row_groups)

        def write(file: SummedFile) -> None:
            tables = (read_groups(old, [group]) for group in groups)
            write_tables(tables, file, schema, encoded(schema))

        return own.write(folder, write)


@dataclass(frozen=True)
class Change:
    """What a version changes of the one before it.

    Attributes
    ----------
    kind : str
        See `Manifest`.
    written : sequence of Written
        New row files.
    deleted : mapping of str to array
        The places (n,) of rows that go, by the name of the file they are in.
    dropped : set of str
        Names of row files whose other rows were rewritten.
    batch : str or None
    taken : int
        Sequence numbers that were given out.
    counters : mapping
        Numbers that take the place of those of these names.
    gone : array (n,), int64
        The numbers of the rows that go.
    again : bool
        Whether some of them come back with it, with other values.
    """

    kind: str
    written: Sequence[Written] = ()
    deleted: dict[str, np.ndarray] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    batch: str | None = None
    taken: int = 0
    counters: dict[str, float] = field(default_factory=dict)
    gone: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    again: bool = False


def commit(own: Transaction, parent: Manifest, base: int, change: Change, library: str,
           held: Held = NOTHING) -> tuple[Manifest, int] | None:  # fmt: skip
    """Make a version of what was written, the one after `base`; None: another writer was faster.

    `base`: the largest number of a version that there is, that of `parent` unless later ones are damaged;
    `library`: of the frames by which pairs are found, if they are stored; `held`: what is in memory of the
    version before.  Tells the manifest, and the bytes that were written besides the rows.
    """
    root, version = own.root, base + 1
    check_written(root, change.written)
    files = [one for one in parent.files if one.name not in change.dropped]
    keys, bytes_written = parent.keys, 0
    if change.written:
        boxes, bytes_written = write_boxes(own, [(one.name, one.groups) for one in change.written])
        files += [RowFile(one.name, one.rows, boxes) for one in change.written]
        keys += tuple(one.keys for one in change.written)
    names = {one.name for one in files}
    for tidy in (without_stale, merged) if change.dropped else (merged,):
        keys, size = tidy(keys, own, names)
        bytes_written += size
    deleted = parent.deleted if not change.dropped else _still(root, parent, names)
    gone = sum(map(len, change.deleted.values()))
    if gone:
        listed, size = write_deleted(own, change.deleted, version)
        deleted += (listed,)
        bytes_written += size
    came = sum(one.rows for one in change.written)
    batches = with_batch(own, parent, change.batch, version)
    manifest = replace(
        parent, version=version, parent=parent.version or None, kind=change.kind, batch=change.batch,
        time=now(), files=tuple(files), deleted=deleted, keys=keys,
        rows=parent.rows + (0 if change.kind == "rewrite" else came - gone),
        next_seq=parent.next_seq + change.taken,
        batches=batches.last, earlier=batches.earlier,
        counters=dict(parent.counters) | change.counters,
    )  # fmt: skip
    if parent.options.store_pairs:
        made = Version(root, library, manifest, held)
        whole = not {one.name for one in files} & {one.name for one in parent.files}
        rewrite = change.kind == "rewrite"
        pairs, size = tidied(own, made, whole) if rewrite else taken_in(own, made, change.gone, change.again)
        manifest, bytes_written = replace(manifest, pairs=pairs), bytes_written + size
    if change.kind == "rewrite" and change.dropped.issuperset(one.name for one in parent.files):
        manifest, size = with_checksums(own, manifest)
        bytes_written += size
    if parent.options.store_pairs:
        sync_folder(root / PAIRS)
    for name in FOLDERS[1:]:
        sync_folder(root / name)
    return (manifest, bytes_written + batches.size) if publish(own, base, manifest) else None


def _still(root: Path, parent: Manifest, names: set[str]) -> tuple[DeletedFile, ...]:
    """Files of deletions that name rows of files that are still there."""
    return tuple(one for one in parent.deleted if not names.isdisjoint(places_in(root, one.name)))


def check_written(root: Path, written: Sequence[Written]) -> None:
    """Refuse row files that are not what a task said that it wrote."""
    for one in written:
        path = root / "rows" / one.name
        try:
            rows = pq.read_metadata(path).num_rows if path.stat().st_size == one.size else -1
        except (OSError, ValueError):
            rows = -1
        if rows != one.rows:
            raise IndexFormatError(
                f"A worker wrote {one.rows:,} rows to {str(path)!r}, and that file is not there as it "
                "was written; all workers and this process must see the same folder: use one that they share."
            )


def now() -> str:
    """The time, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
