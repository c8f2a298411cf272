"""Give a manifest the next number, which is never given twice, also beside a vacuum.

docs/explanation/versions.md has the rules and the proof.  In short: a vacuum removes all temporaries before
it removes a manifest, and a writer lists the versions after it has made its temporary.  So either the writer
sees that its number is not the next one, or its temporary is gone and its link fails.
"""

from __future__ import annotations

import math
import os
import uuid
from pathlib import Path

from dask_simjoin.errors import IndexConflictError
from dask_simjoin.incremental.files import FOLDERS, sync_folder, write_new, writing
from dask_simjoin.incremental.manifests import damage_of, encoded, manifest_path, versions
from dask_simjoin.incremental.transactions import Transaction
from dask_simjoin.incremental.types import Manifest

HALF_A_DAY = 12 * 60 * 60
"""Seconds that an attempt may take; a vacuum spares files that no version names until they are a day old."""

TEMPORARY = ".manifest"
"""What names of temporaries end in, of which a vacuum removes all."""


def base_of(root: Path, manifest: Manifest) -> int | None:
    """Return the number that the next version comes after; None if a version newer than `manifest` was made.

    Damaged manifests have numbers, too, so it may be larger than that of `manifest`.
    """
    newer = [number for number in versions(root) if number > manifest.version]
    if not all(damage_of(root, number) for number in newer):
        return None
    return newer[-1] if newer else manifest.version


def publish(own: Transaction, base: int, manifest: Manifest) -> bool:
    """Make a manifest the version after `base`; returns False, and makes none, if there is one already."""
    content, path = encoded(manifest, own.token), manifest_path(own.root, base + 1)
    while (made := _linked(own, base, content, path)) is None:
        pass
    if made:
        sync_folder(path.parent)
    return made


def _linked(own: Transaction, base: int, content: bytes, path: Path) -> bool | None:
    """Try to link a manifest; returns None if a vacuum removed the temporary, and it must be made again."""
    temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY}")
    write_new(temporary, lambda file: file.write(content))
    try:
        if base:  # before the first version there is no vacuum
            _check_age(own, temporary)
        if _largest(own.root) != base:  # listed after the temporary was made: see the proof
            return False
        own.kept = True  # until it is certain that no link was made
        os.link(temporary, path)
        return True
    except OSError as error:
        failure = error
    finally:
        removed(temporary)
    if own.kept and _holds(path, content):
        return True  # the answer of a file system in a network had got lost
    there = path.exists()  # looked up before the listing, which has `base` only if no other came after it
    overtaken = there or _largest(own.root) != base
    # a manifest that was made and removed since may have been this one: then its files stay
    own.kept = own.kept and overtaken and not there
    if isinstance(failure, (FileExistsError, FileNotFoundError)):
        return False if overtaken else None
    with writing(path):
        raise failure


def sweep(root: Path) -> int:
    """Remove all temporaries, so that their writers fail and look again; returns the bytes."""
    folder = root / FOLDERS[0]
    names = [path for path in folder.iterdir() if path.name.startswith(".") and path.suffix == TEMPORARY]
    return sum(map(removed, names))


def removed(path: Path) -> int:
    """Remove a file; returns its bytes, or 0 if somebody else was faster, or it is a folder."""
    try:
        if path.is_dir():
            return 0
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return size


def _largest(root: Path) -> int:
    return max(versions(root), default=0)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def _check_age(own: Transaction, temporary: Path) -> None:
    """Refuse an attempt that took so long that a vacuum may take its files for those of nobody."""
    made = temporary.stat().st_mtime
    try:
        begun = own.lease.stat().st_mtime
    except FileNotFoundError:
        begun = -math.inf
    if made - begun > HALF_A_DAY:
        raise IndexConflictError(
            f"This update of the index at {str(own.root)!r} took longer than half a day, and vacuum() may "
            "remove files that old; nothing was changed. Do it again, with fewer rows at a time."
        )
