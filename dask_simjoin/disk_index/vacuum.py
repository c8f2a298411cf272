"""List the versions of an index, and remove old ones with the files that only they use."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from dask_simjoin.disk_index.commits import now
from dask_simjoin.disk_index.components import FOLDER as COMPONENTS
from dask_simjoin.disk_index.files import FOLDERS, PAIRS, listed
from dask_simjoin.disk_index.manifests import (
    OLDEST,
    bury,
    latest,
    manifest_path,
    read_manifest,
    versions,
    whole,
)
from dask_simjoin.disk_index.publishing import Transaction, publish, removed, sweep
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath
from dask_simjoin.disk_index.types import Manifest
from dask_simjoin.errors import VersionGoneError

A_DAY = 24 * 60 * 60
"""Age in seconds above which an unknown file counts as unused: no update takes that long."""


def chain(root: AnyPath, manifest: Manifest, max_versions: float = math.inf) -> list[Manifest]:
    """List a version and its ancestors that still exist, newest first: at most `max_versions`."""
    found = [manifest]
    while found[-1].parent is not None and len(found) < max_versions:
        try:
            found.append(read_manifest(root, found[-1].parent))
        except VersionGoneError:
            break
    return found


def history_of(root: AnyPath, manifest: Manifest) -> pd.DataFrame:
    """Return one row per version, oldest first: its kind, batch, time, rows and files."""
    records = [
        (one.version, one.kind, one.batch, one.time, one.rows, len(one.files))
        for one in reversed(chain(root, manifest))
    ]
    columns = ["version", "kind", "batch", "time", "rows", "files"]
    return pd.DataFrame(records, columns=columns).set_index("version")


def vacuumed(root: AnyPath, keep: int) -> int:
    """Remove all but the last `keep` versions, and the files that only they use; return the bytes freed."""
    return _on_store(root, keep) if isinstance(root, ObjectPath) else _on_disk(root, keep)


def _on_disk(root: Path, keep: int) -> int:
    """Vacuum a folder on a disk.

    Temporaries are removed twice.  After the first time, only updates that began recently can be published.
    So versions that this vacuum does not see have new files only, which it spares.  After the second time,
    no removed number can be published again.
    """
    before, freed = _clock(root) - A_DAY, sweep(root)
    manifest = latest(root)
    kept = chain(root, manifest, keep)
    old = whole(root, (version for version in versions(root) if version < kept[-1].version))
    needed, dropped = files_of(kept), files_of(old)
    freed += sweep(root)
    for version in versions(root):  # ascending: a reader that misses new versions finds no old one
        if version < kept[-1].version:
            freed += removed(manifest_path(root, version))
    for name, path in _data_files(root):
        if name not in needed and (name in dropped or _is_older(path, before)):
            freed += removed(path)
    return freed


def _data_files(root: AnyPath) -> Iterator[tuple[tuple[str, str], AnyPath]]:
    """Yield (folder, name) and the path of each file to remove if no version uses it."""
    for folder in (*FOLDERS, PAIRS, COMPONENTS):
        for path in listed(root / folder):
            ours = folder != COMPONENTS and (folder != FOLDERS[0] or path.suffix == ".parquet")
            if ours or (path.name.startswith(".") and path.name != OLDEST):
                yield (folder, path.name), path


def _on_store(root: ObjectPath, keep: int) -> int:
    """Vacuum a folder on a store."""
    unknown = _fenced_off(root)
    kept = chain(root, latest(root), keep)
    first = kept[-1].version
    gone = [version for version in versions(root) if version < first]
    needed, dropped = files_of(kept), files_of(whole(root, gone))
    freed = sum(bury(root, version) for version in gone)
    if gone:
        (root / FOLDERS[0] / OLDEST).put(str(first - 1).encode())
    for name, path in _data_files(root):
        if name not in needed and (name in dropped or path in unknown):
            freed += removed(path)
    return freed


FENCES = 3
"""How often to try to make a version; if all tries fail, unused files are left to the next vacuum."""


def _fenced_off(root: ObjectPath) -> set[AnyPath]:
    """Return old files that no version names now or will name later.

    They may belong to a writer that is at work.  So this publishes a version without changes, which takes the
    number that the writer needs.  The writer has to begin again with new files.
    """
    before = time.time() - A_DAY
    for _ in range(FENCES):
        manifest = latest(root)
        named = files_of([manifest, *whole(root, versions(root))])
        unknown = {path for name, path in _data_files(root) if name not in named and _is_older(path, before)}
        if not unknown:
            return unknown
        number = manifest.version
        fence = replace(manifest, version=number + 1, parent=number, kind="rewrite", batch=None, time=now())
        if publish(Transaction(root), number, fence):
            return unknown
    return set()


def _clock(root: Path) -> float:
    """Return the time of the file system, which may differ from the time of this machine."""
    folder = root / FOLDERS[0]
    with contextlib.suppress(OSError):  # without it, the time is earlier, which spares more files
        os.utime(folder)
    return folder.stat().st_mtime


def _is_older(path: AnyPath, time: float) -> bool:
    try:
        return path.stat().st_mtime < time
    except FileNotFoundError:
        return False


def files_of(manifests: Iterable[Manifest]) -> set[tuple[str, str]]:
    """Return the folder and the name of each file that some versions use."""
    found = set()
    for one in manifests:
        found |= {("rows", file.name) for file in one.files} | {("rows", one.options.example)}
        found |= {("boxes", file.boxes) for file in one.files}
        found |= {("deleted", file.name) for file in one.deleted}
        found |= {("keys", file.name) for file in one.keys}
        found |= {(PAIRS, file.name) for file in one.pairs.files}
        found |= {(PAIRS, file.name) for file in one.pairs.marks}
        found |= {(FOLDERS[0], name) for name in one.earlier}
    return found
