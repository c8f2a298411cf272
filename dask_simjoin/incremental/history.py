"""The versions of an index, and which files none of them needs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from dask_simjoin.errors import VersionGoneError
from dask_simjoin.incremental.files import FOLDERS, PAIRS, listed
from dask_simjoin.incremental.manifests import manifest_path, read_manifest, versions, whole
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


def vacuumed(root: Path, manifest: Manifest, keep: int) -> int:
    """Remove all but so many versions, and the files that none of them has; tells the bytes."""
    kept = chain(root, manifest, keep)
    old = whole(root, (version for version in versions(root) if version < kept[-1].version))
    needed, dropped = files_of(kept), files_of(old)
    before, freed = time.time() - A_DAY, 0
    for version in versions(root):
        if version < kept[-1].version:
            freed += _removed(manifest_path(root, version))
    for folder in (*FOLDERS, *([PAIRS] if manifest.options.store_pairs else ())):
        for path in listed(root / folder):
            name = (folder, path.name)
            unnamed = folder != FOLDERS[0] or path.name.startswith(".") or path.suffix == ".parquet"
            if unnamed and name not in needed and (name in dropped or path.stat().st_mtime < before):
                freed += _removed(path)
    return freed


def _removed(path: Path) -> int:
    """Remove a file; tells its bytes.  A folder that has its name is left alone."""
    if path.is_dir():
        return 0
    size = path.stat().st_size
    path.unlink()
    return size


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
