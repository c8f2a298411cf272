"""Publish a manifest under the next number, which is never given twice.

Their names begin with a token of the attempt: so files of tasks whose results never arrived are found, too.
A lease, an empty file, is there as long as the attempt lasts.  Each task looks for it after it has written:
so a task that is still running when the attempt fails removes its own file.

docs/explanation/versions.md has the rules and the proof.  In short: a vacuum removes all temporaries before
it removes a manifest, and a writer lists the versions after it has made its temporary.  So either the writer
sees that its number is not the next one, or its temporary is gone and its link fails.
"""

from __future__ import annotations

import contextlib
import math
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.disk_index.checksums import SummedFile
from dask_simjoin.disk_index.files import (
    FOLDERS,
    PAIRS,
    read_whole,
    sync_folder,
    write_named,
    write_new,
    write_table,
    writing,
)
from dask_simjoin.disk_index.manifests import damage_of, encoded, manifest_path, versions
from dask_simjoin.disk_index.types import Manifest
from dask_simjoin.errors import IndexConflictError

DIGITS, OWN_DIGITS = 16, 8
"""Hexadecimal digits of a token, and of what tells a file from others of its attempt."""


@dataclass(eq=False)
class Transaction:
    """One attempt to make a version.

    Attributes
    ----------
    root : Path
        The folder of the index.
    token : str
        What the names of its files begin with.
    kept : bool
        Whether a version names its files, or may do so: then they stay.
    """

    root: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:DIGITS])
    kept: bool = False

    @property
    def lease(self) -> Path:
        """The file that is there while the attempt lasts."""
        return self.root / FOLDERS[0] / f".{self.token}.lease"

    def write(self, folder: str, write: Callable[[SummedFile], object]) -> tuple[str, int]:
        """Write a new file and wait until the disk has it; returns its name and bytes."""
        first = f"{self.token}-{uuid.uuid4().hex[:OWN_DIGITS]}"
        name, size = write_named(self.root / folder, write, first)
        if not self.lease.exists():
            (self.root / folder / name).unlink(missing_ok=True)
            raise IndexConflictError(
                f"An update of the index at {str(self.root)!r} was given up, or took longer than a day, as a "
                "task wrote for it; nothing was changed. Do it again, with fewer rows at a time."
            )
        return name, size

    def end(self) -> None:
        """Give up the lease; removes the files, unless they are kept."""
        with contextlib.suppress(OSError):  # what stays is removed by a vacuum, a day later
            self.lease.unlink(missing_ok=True)
        if self.kept:
            return
        for folder in (*FOLDERS, PAIRS):
            with contextlib.suppress(OSError):
                for path in (self.root / folder).iterdir():
                    if self.token in path.name:
                        path.unlink(missing_ok=True)


@contextlib.contextmanager
def transaction(root: Path) -> Iterator[Transaction]:
    """Begin an attempt; however it ends, files that no version names are removed."""
    own = Transaction(root)
    with writing(own.lease):
        own.lease.touch(exist_ok=False)
    try:
        yield own
    finally:
        own.end()


MOST = 512
"""Names in a manifest, at most: then they go into a file that all later versions share."""

BATCH, MADE = "batch", "version"


class Batches(NamedTuple):
    """What a manifest tells of named updates: see `Manifest`; and the bytes that were written for it."""

    last: dict[str, int]
    earlier: tuple[str, ...]
    size: int


def made_by(root: Path, manifest: Manifest, batch: str | None) -> int | None:
    """Tell the version that the update of a name made; None: there was none."""
    if batch is None or batch in manifest.batches:
        return None if batch is None else manifest.batches[batch]
    for name in reversed(manifest.earlier):
        table = read_whole(root / FOLDERS[0] / name)
        row = pc.index(table[BATCH], batch).as_py()
        if row >= 0:
            return int(table[MADE][row].as_py())
    return None


def with_batch(own: Transaction, parent: Manifest, batch: str | None, version: int) -> Batches:
    """Add the name of an update to those that a manifest has, all of which become a file if they are many."""
    last, earlier, size = dict(parent.batches), parent.earlier, 0
    if batch is not None:
        if len(last) >= MOST:
            table = pa.table({BATCH: list(last), MADE: list(last.values())})
            name, size = own.write(FOLDERS[0], lambda file: write_table(table, file))
            sync_folder(own.root / FOLDERS[0])
            last, earlier = {}, (*earlier, name)
        last[batch] = version
    return Batches(last, earlier, size)


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
