"""Make new versions of an index from changes of its rows, check all versions, and
remove old ones.
"""

from __future__ import annotations

import contextlib
import datetime
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd

from dask_simjoin.disk_index.checksums import (
    REMEDY,
    ChecksumWriter,
    VerifiedFile,
    is_checked,
    reading,
)
from dask_simjoin.disk_index.components import grouping_files
from dask_simjoin.disk_index.disks import check_folders
from dask_simjoin.disk_index.files import (
    COMPONENTS,
    EVERY_FOLDER,
    FOLDERS,
    PAIRS,
    call_on_workers,
    check_written,
    encoded,
    listed,
    parquet,
    read_groups,
    write_tables,
)
from dask_simjoin.disk_index.folders import FULL, removed, sync_folder
from dask_simjoin.disk_index.manifests import (
    FILE_NAME,
    OLDEST,
    bury,
    damage_of,
    intact,
    latest,
    manifest_path,
    manifests_of,
    read_manifest,
    versions,
)
from dask_simjoin.disk_index.pair_files import append_pairs, compact_pairs
from dask_simjoin.disk_index.publishing import (
    ATTEMPTS,
    TEMPORARY_NAME,
    Outcome,
    Transaction,
    base_of,
    publish,
    transaction,
    with_batch,
)
from dask_simjoin.disk_index.reports import CheckReport, Damage
from dask_simjoin.disk_index.rows import Written, places_in, write_deleted
from dask_simjoin.disk_index.schema import merged, without_stale
from dask_simjoin.disk_index.segments import NO_CACHED_ROWS, CachedRows
from dask_simjoin.disk_index.snapshots import Version, write_boxes
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import BatchContent, Manifest, RowFile, StoredPairs
from dask_simjoin.errors import (
    IndexConflictError,
    IndexFormatError,
    IndexStoreError,
    IndexWriteError,
    SimJoinError,
    VersionGoneError,
)
from dask_simjoin.request.options import MAX_WHOLE

T = TypeVar("T")

FileName = tuple[str, str]
"""The folder and the name of a file."""


def attempted(
    root: AnyPath,
    last: Callable[[], Version],
    work: Callable[[Version, int, Transaction], T | None],
) -> T:
    """Call `work`, which makes a version with the next free number. Return its result.

    `work` returns None if another writer has made that version first. Then `work` is
    called again. It is also called again if a vacuum has removed a file that it needs.
    """
    gone = None
    for _ in range(ATTEMPTS):
        now = last()
        base = base_of(root, now.manifest)
        if base is None:
            continue
        if base >= MAX_WHOLE:
            raise IndexFormatError(
                f"{str(manifest_path(root, base))!r} has a larger number than any "
                "version of an index. Remove this file, and repeat the call."
            )
        try:
            with transaction(root) as own:
                done = work(now, base, own)
        except VersionGoneError as error:
            if base_of(root, now.manifest) is not None:
                # no newer version exists, so no vacuum has removed the file: it is lost
                raise
            gone = error
            continue
        if done is not None:
            return done
    raise IndexConflictError(
        f"Other writers made versions of the index at {str(root)!r} {ATTEMPTS} times "
        "during this call, so "
        "nothing was changed. Let one process update it, or try again."
    ) from gone


def with_checksums(own: Transaction, manifest: Manifest) -> tuple[Manifest, int]:
    """Copy files without checksums, except row files, to new files with checksums.
    Return the manifest and the bytes written.
    """
    total = 0

    def renewed(folder: str, name: str) -> str:
        nonlocal total
        if is_checked(Path(name)):
            return name
        made, size = _copied(own, folder, name)
        total += size
        return made

    files = tuple(
        replace(one, name=renewed(PAIRS, one.name)) for one in manifest.pairs.files
    )
    marks = tuple(
        replace(one, name=renewed(PAIRS, one.name)) for one in manifest.pairs.marks
    )
    earlier = tuple(renewed(FOLDERS[0], name) for name in manifest.earlier)
    options = replace(
        manifest.options, example=renewed("rows", manifest.options.example)
    )
    if earlier != manifest.earlier:
        sync_folder(own.root / FOLDERS[0])
    return replace(
        manifest, pairs=StoredPairs(files, marks), earlier=earlier, options=options
    ), total


def _copied(own: Transaction, folder: str, name: str) -> tuple[str, int]:
    with parquet(own.root / folder / name) as old:
        schema, groups = old.schema_arrow, range(old.num_row_groups)

        def write(file: ChecksumWriter) -> None:
            tables = (read_groups(old, [group]) for group in groups)
            write_tables(tables, file, schema, encoded(schema))

        return own.write(folder, write)


@dataclass(frozen=True)
class Change:
    """The changes that make a version from its parent."""

    kind: str  # see `Manifest`
    written: Sequence[Written] = ()  # the new row files
    # name of a row file -> positions of the rows to delete in it
    deleted: dict[str, np.ndarray] = field(default_factory=dict)
    # names of row files that are left out, because their rows were rewritten to other
    # files
    dropped: frozenset[str] = frozenset()
    batch: str | None = None
    # identifies the rows of the batch, so that a repeated batch can be compared
    content: BatchContent | None = None
    taken: int = 0  # how many row numbers the change has assigned
    counters: dict[str, float] = field(default_factory=dict)
    """Counters with new values. The other counters of the parent stay."""
    gone: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """(n,), int64: row numbers of the deleted rows."""
    # whether some of the deleted rows are added again, with other values
    again: bool = False


def commit(
    own: Transaction,
    parent: Manifest,
    base: int,
    change: Change,
    library: str,
    cached: CachedRows = NO_CACHED_ROWS,
) -> tuple[Manifest, int] | None:
    """Publish a version after `base`. Return its manifest, and the bytes written in
    addition to row files.

    Return None if another writer has made that version first. `base`: the largest
    version number in the folder. It is above the parent's number if later versions are
    damaged. `library`: the data frame library that finds the pairs to store. `cached`:
    those rows of the parent that are in memory.
    """
    root, version = own.root, base + 1
    if change.written:
        with own.held():
            for one in change.written:
                check_written(root / "rows" / one.name, one.size, one.rows, "rows")
    files = [one for one in parent.files if one.name not in change.dropped]
    keys, bytes_written = parent.keys, 0
    if change.written:
        boxes, bytes_written = write_boxes(
            own, [(one.name, one.groups) for one in change.written]
        )
        files += [RowFile(one.name, one.rows, boxes) for one in change.written]
        keys += tuple(one.keys for one in change.written)
    names = {one.name for one in files}
    for tidy in (without_stale, merged) if change.dropped else (merged,):
        keys, size = tidy(keys, own, names)
        bytes_written += size
    deleted = parent.deleted
    if change.dropped:
        deleted = tuple(
            one for one in deleted if not names.isdisjoint(places_in(root, one.name))
        )
    gone = sum(map(len, change.deleted.values()))
    if gone:
        listed, size = write_deleted(own, change.deleted, version)
        deleted += (listed,)
        bytes_written += size
    came = sum(one.rows for one in change.written)
    batches = with_batch(own, parent, change.batch, version, change.content)
    manifest = replace(
        parent,
        version=version,
        parent=parent.version or None,
        kind=change.kind,
        batch=change.batch,
        time=now(),
        files=tuple(files),
        deleted=deleted,
        keys=keys,
        rows=parent.rows + (0 if change.kind == "rewrite" else came - gone),
        next_seq=parent.next_seq + change.taken,
        batches=batches.last,
        earlier=batches.earlier,
        contents=batches.contents,
        counters=dict(parent.counters) | change.counters,
    )
    if parent.options.store_pairs:
        made = Version(root, library, manifest, cached)
        keeps_files = not {one.name for one in files} & {
            one.name for one in parent.files
        }
        rewrite = change.kind == "rewrite"
        pairs, size = (
            compact_pairs(own, made, keeps_files)
            if rewrite
            else append_pairs(own, made, change.gone, change.again)
        )
        manifest, bytes_written = replace(manifest, pairs=pairs), bytes_written + size
    if change.kind == "rewrite" and change.dropped.issuperset(
        one.name for one in parent.files
    ):
        manifest, size = with_checksums(own, manifest)
        bytes_written += size
    if parent.options.store_pairs:
        sync_folder(root / PAIRS)
    for name in FOLDERS[1:]:
        sync_folder(root / name)
    if publish(own, base, manifest) is Outcome.OVERTAKEN:
        return None
    return manifest, bytes_written + batches.size


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


MAX_FILES = 64
"""A task checks this many files. This many files of similar size are always merged,
because each manifest must list all files.
"""

A_DAY = datetime.timedelta(days=1).total_seconds()
"""A file that no version lists counts as unused once it is this many seconds old.

No update takes that long.
"""


def chain(
    root: AnyPath,
    manifest: Manifest,
    max_versions: float = math.inf,
    known: Mapping[int, Manifest] = MappingProxyType({}),
) -> list[Manifest]:
    """List a version and its ancestors, as far as they exist, the newest first. There
    are at most `max_versions`.

    `known`: manifests that were read before, by number.
    """
    found = [manifest]
    while (parent := found[-1].parent) is not None and len(found) < max_versions:
        try:
            found.append(known.get(parent) or read_manifest(root, parent))
        except VersionGoneError:
            break
    return found


def history_of(root: AnyPath, manifest: Manifest) -> pd.DataFrame:
    """Return one row per version, the oldest first: its kind, batch and time, and its
    numbers of rows and files.
    """
    records = [
        (one.version, one.kind, one.batch, one.time, one.rows, len(one.files))
        for one in reversed(chain(root, manifest))
    ]
    columns = ["version", "kind", "batch", "time", "rows", "files"]
    return pd.DataFrame(records, columns=columns).set_index("version")


def vacuumed(root: AnyPath, keep: int) -> int:
    """Remove all but the last `keep` versions, and the files that only they use. Return
    the bytes freed.
    """
    if isinstance(root, Path):
        check_folders(root, EVERY_FOLDER)
    found = _fenced_off(root)
    kept = chain(root, found.known[max(found.known)], keep, found.known)
    first = kept[-1].version
    old = [version for version in versions(root) if version < first]
    dropped = files_of(found.known[one] for one in old if one in found.known)
    freed = 0
    if old:
        # a power loss must not remove the last version, nor bring back an old one
        # without its files
        sync_folder(root / FOLDERS[0])
        # in ascending order, so that a listing that runs meanwhile never ends with an
        # old version
        freed += sum(bury(root, version) for version in old)
        sync_folder(root / FOLDERS[0])
    needless = (dropped | found.unknown) & found.files.keys()
    for name in sorted(needless and needless - files_of(kept)):
        freed += removed(found.files[name])
    if old:
        manifests_of(root).replace(OLDEST, str(first - 1).encode())
    return freed


def _data_files(root: AnyPath) -> dict[FileName, AnyPath]:
    """List the files that a vacuum removes if no version uses them. Other files, with
    names that the index never uses, stay.
    """
    return {
        (folder, path.name): path
        # leases are listed last, and removed first: so whenever another file of an
        # attempt is removed, its lease is gone
        for folder in reversed(EVERY_FOLDER)
        for path in listed(root / folder)
        # `write_grouping` removes old files of components
        if TEMPORARY_NAME.fullmatch(path.name)
        or (folder != COMPONENTS and FILE_NAME.fullmatch(path.name))
    }


class Survey(NamedTuple):
    """The versions and the files that a vacuum has found."""

    known: dict[int, Manifest]  # the intact versions, by number
    files: dict[FileName, AnyPath]
    # old files that no version lists, and that no version can list later
    unknown: set[FileName]


def _fenced_off(root: AnyPath) -> Survey:
    """List the versions and files of an index, and the old files that no version needs.

    Such a file may belong to a writer that is still running. So this function publishes
    a fence: a version without changes, which takes the number that the writer needs.
    The writer must then begin again, with new files.
    """
    before = time.time() - A_DAY
    for _ in range(ATTEMPTS):
        every = [latest(root), *intact(root, versions(root))]
        known, named = {one.version: one for one in every}, files_of(every)
        files = _data_files(root)
        unknown = {
            name
            for name, path in files.items()
            if name not in named and _is_older(path, before)
        }
        if not unknown:
            return Survey(known, files, unknown)
        last = known[max(known)]
        fence = replace(
            last,
            version=last.version + 1,
            parent=last.version,
            kind="rewrite",
            batch=None,
            time=now(),
        )
        try:
            outcome = publish(Transaction(root), last.version, fence)
        except IndexWriteError as error:
            if error.errno in FULL:
                break  # the vacuum may make room
            raise
        if outcome is Outcome.PUBLISHED:
            return Survey(known | {fence.version: fence}, files, unknown)
    return Survey(known, files, set())


def _is_older(path: AnyPath, time: float) -> bool:
    try:
        return path.stat().st_mtime < time
    except FileNotFoundError:
        return False


def files_of(manifests: Iterable[Manifest]) -> set[FileName]:
    """Return each file that at least one of the versions uses."""
    found = set()
    for one in manifests:
        found |= {("rows", file.name) for file in one.files} | {
            ("rows", one.options.example)
        }
        found |= {("boxes", file.boxes) for file in one.files}
        found |= {("deleted", file.name) for file in one.deleted}
        found |= {("keys", file.name) for file in one.keys}
        found |= {(PAIRS, file.name) for file in one.pairs.files}
        found |= {(PAIRS, file.name) for file in one.pairs.marks}
        found |= {(FOLDERS[0], name) for name in one.earlier}
    return found


def check_index(root: AnyPath) -> CheckReport:
    """Read all files of all versions of an index, and report those that are damaged.

    Raise an error for a folder without an index.
    """
    known = versions(root)
    if not known:
        raise IndexFormatError(
            f"{str(root)!r} holds no index; name the folder of an index."
        )
    needed: dict[tuple[str, str], list[int]] = {}
    broken = [
        (version, what) for version in known if (what := damage_of(root, version))
    ]
    whole = intact(root, sorted(set(known) - {version for version, _ in broken}))
    there = {version for version, _ in broken} | {one.version for one in whole}
    first = whole[0].version if whole else math.inf
    replaced = [one for one in known if one > first and one not in there]
    # a vacuum removes versions in ascending order, so it has not removed these
    if replaced and intact(root, [whole[0].version]):
        broken += [(one, "a removed version has replaced it") for one in replaced]
    known = sorted({one.version for one in whole}.union(one for one, _ in broken))
    for one in whole:
        for name in files_of([one]):
            needed.setdefault(name, []).append(one.version)
    for number, path in grouping_files(root):
        needed[path.parent.name, path.name] = [number]
    found = [
        Damage(f"{FOLDERS[0]}/{manifest_path(root, one).name}", what, (one,))
        for one, what in broken
    ]
    paths = [root.joinpath(*name) for name in needed]
    some = (
        (paths[start : start + MAX_FILES],) for start in range(0, len(paths), MAX_FILES)
    )
    wrong = [
        what
        for found in call_on_workers("simjoin_check", _damages, some)
        for what in found
    ]
    for (name, numbers), what in zip(needed.items(), wrong, strict=True):
        if what:
            found.append(Damage("/".join(name), what, tuple(sorted(numbers))))
    every = [*paths, *(manifest_path(root, version) for version in known)]
    plain = sum(not is_checked(path) for path in paths)
    return CheckReport(
        len(known), len(every), sum(map(_size, every)), plain, len(found), tuple(found)
    )


def _damages(paths: Sequence[AnyPath]) -> list[str]:
    return [_damage(path) for path in paths]


def _damage(path: AnyPath) -> str:
    """Describe the damage of a file. Return "" if the file is intact, or if it was
    removed meanwhile, together with its versions.
    """
    try:
        if is_checked(path):
            with reading(path, True), contextlib.closing(VerifiedFile(path)) as file:
                file.verify()
        with parquet(path) as read:
            for group in () if is_checked(path) else range(read.num_row_groups):
                read_groups(read, [group])
    except VersionGoneError:
        return ""
    except IndexStoreError:
        raise
    except SimJoinError as error:
        # the report shows the file's name and the remedy elsewhere
        text = str(error).removeprefix(f"{str(path)!r} is ")
        return text.removeprefix("damaged: ").removesuffix(f". {REMEDY}")
    return ""


def _size(path: AnyPath) -> int:
    with contextlib.suppress(OSError):
        return path.stat().st_size
    return 0
