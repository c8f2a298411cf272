"""The versions of an index, and which files none of them needs."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from dask_simjoin.errors import VersionGoneError
from dask_simjoin.incremental.files import FOLDERS, PAIRS, listed
from dask_simjoin.incremental.groupings import FOLDER as COMPONENTS
from dask_simjoin.incremental.manifests import latest, manifest_path, read_manifest, versions, whole
from dask_simjoin.incremental.publishing import removed, sweep
from dask_simjoin.incremental.types import Manifest

A_DAY = 24 * 60 * 60
"""Age, in seconds, of files that no version has and that nobody writes any more."""


def chain(root: Path, manifest: Manifest, most: float = math.inf) -> list[Manifest]:
    """List a version and those that it was made of, as far as they are there: so many at most, last first."""
    found = [manifest]
    while found[-1].parent is not None and len(found) < most:
        try:
            found.append(read_manifest(root, found[-1].parent))
        except VersionGoneError:
            break
    return found


def history_of(root: Path, manifest: Manifest) -> pd.DataFrame:
    """Tell of each version what made it, when, and how many rows it has, the first one first."""
    told = [
        (one.version, one.kind, one.batch, one.time, one.rows, len(one.files))
        for one in reversed(chain(root, manifest))
    ]
    columns = ["version", "kind", "batch", "time", "rows", "files"]
    return pd.DataFrame(told, columns=columns).set_index("version")


def vacuumed(root: Path, keep: int) -> int:
    """Remove all but so many versions, and the files that none of them has; tells the bytes.

    Temporaries are removed twice.  After the first time only what was written lately is linked: so files of
    versions that are not seen here are new.  After the second time no number that is removed can be linked.
    """
    before, freed = _clock(root) - A_DAY, sweep(root)
    manifest = latest(root)
    kept = chain(root, manifest, keep)
    old = whole(root, (version for version in versions(root) if version < kept[-1].version))
    needed, dropped = files_of(kept), files_of(old)
    freed += sweep(root)
    for version in versions(root):  # ascending, so that whoever misses a new version finds no old one
        if version < kept[-1].version:
            freed += removed(manifest_path(root, version))
    for folder in (*FOLDERS, PAIRS, COMPONENTS):
        for path in listed(root / folder):
            name = (folder, path.name)
            ours = folder != COMPONENTS and (folder != FOLDERS[0] or path.suffix == ".parquet")
            if (
                (ours or path.name.startswith("."))
                and name not in needed
                and (name in dropped or _is_older(path, before))
            ):
                freed += removed(path)
    return freed


def _clock(root: Path) -> float:
    """The time as the file system tells it, which that of this machine may not be."""
    folder = root / FOLDERS[0]
    with contextlib.suppress(OSError):  # an earlier time spares more files
        os.utime(folder)
    return folder.stat().st_mtime


def _is_older(path: Path, time: float) -> bool:
    try:
        return path.stat().st_mtime < time
    except FileNotFoundError:
        return False


def files_of(manifests: Iterable[Manifest]) -> set[tuple[str, str]]:
    """The folder and the name of each file that some versions have."""
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
