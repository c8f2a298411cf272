"""Publish a manifest under the next version number; numbers are never reused.

An attempt is one try to make a version. The names of its files begin with its token, so files of lost tasks
are found, too. The lease is an empty file that exists as long as the attempt lasts. Each task checks the
lease after it has written a file. So a task that outlives its attempt removes the file again.

docs/explanation/versions.md has the rules and the proof. In short: a writer makes a temporary file, lists the
versions, and links the temporary file to its final name. A vacuum removes all temporary files before it
removes a manifest. So a writer with an outdated number finds a newer version, or its link fails.
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

from dask_simjoin.disk_index.checksums import ChecksumWriter
from dask_simjoin.disk_index.files import (
    FOLDERS,
    PAIRS,
    of_attempt,
    read_file,
    sync_folder,
    write_named,
    write_new,
    write_table,
    writing,
)
from dask_simjoin.disk_index.manifests import damage_of, encoded, manifest_path, versions, written_by
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath
from dask_simjoin.disk_index.types import BatchContent, Manifest
from dask_simjoin.errors import IndexConflictError, IndexStoreError

DIGITS, OWN_DIGITS = 16, 8
"""Hexadecimal digits of a token, and of the part of a name that is unique within an attempt."""


@dataclass(eq=False)
class Transaction:
    """One attempt to make a version."""

    root: AnyPath  # folder of the index
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:DIGITS])
    """Names of its files begin with this token."""
    kept: bool = False  # whether files stay after the attempt, because a version names them or may name them

    @property
    def lease(self) -> AnyPath:
        """The file that exists while the attempt lasts."""
        return self.root / FOLDERS[0] / f".{self.token}.lease"

    def write(self, folder: str, write: Callable[[ChecksumWriter], object]) -> tuple[str, int]:
        """Write and sync a new file; return its name and its size in bytes."""
        first = f"{self.token}-{uuid.uuid4().hex[:OWN_DIGITS]}"
        name, size = write_named(self.root / folder, write, first)
        if not self.lease.exists():
            (self.root / folder / name).unlink(missing_ok=True)
            raise IndexConflictError(
                f"The update of the index at {str(self.root)!r} ended before this task had written its "
                "file: it failed, or took longer than a day. Nothing was changed. Repeat the update with "
                "fewer rows at a time."
            )
        return name, size

    def end(self) -> None:
        """Remove the lease and, unless they are kept, the files."""
        # a lost store ends the removal, because each request may wait for minutes
        with contextlib.suppress(IndexStoreError):
            self._remove()

    def _remove(self) -> None:
        with _leftovers():
            self.lease.unlink(missing_ok=True)
        if self.kept:
            return
        for folder in (*FOLDERS, PAIRS):
            with _leftovers():
                for path in of_attempt(self.root / folder, self.token):
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def _leftovers() -> Iterator[None]:
    """Ignore errors of removing files on a disk, because a later vacuum removes them."""
    try:
        yield
    except IndexStoreError:
        raise
    except OSError:
        pass


@contextlib.contextmanager
def transaction(root: AnyPath) -> Iterator[Transaction]:
    """Begin an attempt; at its end, remove its files if no version names them."""
    own = Transaction(root)
    with writing(own.lease):
        own.lease.touch(exist_ok=False)
    try:
        yield own
    finally:
        own.end()


MAX_BATCHES = 512
"""Maximum batch names in a manifest. More names move to a file that later versions share."""

BATCH, MADE, CONTENT = "batch", "version", "content"


class Batches(NamedTuple):
    """The batches of a manifest."""

    last: dict[str, int]  # see `Manifest.batches`
    earlier: tuple[str, ...]  # see `Manifest.earlier`
    contents: dict[str, str]  # see `Manifest.contents`
    size: int  # bytes that were written to move batches to a file


class CommittedBatch(NamedTuple):
    """A batch that was committed."""

    version: int  # version that it made
    content: BatchContent | None  # None: an early version of the package did not record it


def made_by(root: AnyPath, manifest: Manifest, batch: str | None) -> CommittedBatch | None:
    """Return the committed batch with this name; None if there is none."""
    if batch is None:
        return None
    if batch in manifest.batches:
        return _committed(manifest.batches[batch], manifest.contents.get(batch))
    for name in reversed(manifest.earlier):
        table = read_file(root / FOLDERS[0] / name)
        row = pc.index(table[BATCH], batch).as_py()
        if row >= 0:
            content = table[CONTENT][row].as_py() if CONTENT in table.column_names else None
            return _committed(table[MADE][row].as_py(), content)
    return None


def _committed(version: int, content: str | None) -> CommittedBatch:
    return CommittedBatch(version, BatchContent.parse(content) if content else None)


def with_batch(own: Transaction, parent: Manifest, batch: str | None, version: int,
               content: BatchContent | None = None) -> Batches:  # fmt: skip
    """Add a batch to the batches of a manifest; if these are too many, they move to a file."""
    last, contents, earlier, size = dict(parent.batches), dict(parent.contents), parent.earlier, 0
    if batch is not None:
        if len(last) >= MAX_BATCHES:
            texts = pa.array([contents.get(name) for name in last], pa.string())
            table = pa.table({BATCH: list(last), MADE: list(last.values()), CONTENT: texts})
            name, size = own.write(FOLDERS[0], lambda file: write_table(table, file))
            sync_folder(own.root / FOLDERS[0])
            last, contents, earlier = {}, {}, (*earlier, name)
        last[batch] = version
        if content is not None:
            contents[batch] = str(content)
    return Batches(last, earlier, contents, size)


HALF_A_DAY = 12 * 60 * 60
"""Maximum seconds of an attempt: a vacuum removes files that no version names once they are a day old."""

TEMPORARY = ".manifest"
"""Suffix of the names of temporary manifests; a vacuum removes all of these files."""


def base_of(root: AnyPath, manifest: Manifest) -> int | None:
    """Return the largest version number in use; None if there is an intact version newer than `manifest`.

    The number is above `manifest.version` if newer manifests are damaged.
    """
    newer = versions(root, manifest.version)
    if not all(damage_of(root, number) for number in newer):
        return None
    return newer[-1] if newer else manifest.version


def publish(own: Transaction, base: int, manifest: Manifest) -> bool:
    """Publish a manifest as the version after `base`; return False if another attempt took that number."""
    content, path = encoded(manifest, own.token), manifest_path(own.root, base + 1)
    if isinstance(path, ObjectPath):
        return _created(own, content, path)
    while (made := _linked(own, base, content, path)) is None:
        pass
    if made:
        sync_folder(path.parent)
    return made


PUTS = 3
"""How often to put a manifest if no reply comes; the client itself repeats each put, too."""


def _created(own: Transaction, content: bytes, path: ObjectPath) -> bool:
    """Put a manifest on a store if its name is free; return False if another attempt took the name.

    A name stays in use even after its version was removed. So a put succeeds only for the next version.
    """
    own.kept = True  # files must stay until it is certain that another attempt took the number
    failure: OSError | None = None
    for _ in range(PUTS):
        try:
            path.create(content)
            return True
        except FileExistsError as error:  # an earlier put of this attempt may have worked without a reply
            failure = error
        except IndexStoreError as error:
            failure = error
            continue
        with contextlib.suppress(FileNotFoundError):  # the name is free after all: try again
            own.kept = written_by(path.read_bytes()) == own.token
            return own.kept
    raise IndexStoreError(
        f"The store did not confirm {str(path)!r}, so the version may or may not exist: {failure}"
    ) from failure


def _linked(own: Transaction, base: int, content: bytes, path: Path) -> bool | None:
    """Try to link a manifest, and return whether this worked; None: a vacuum removed the temporary file."""
    temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY}")
    write_new(temporary, lambda file: file.write(content))
    try:
        if base:  # no vacuum runs before the first version
            _check_age(own, temporary)
        if _largest(own.root) != base:  # the proof needs a temporary file that is older than this listing
            return False
        own.kept = True  # files must stay until it is certain that the link was not made
        os.link(temporary, path)
        return True
    except OSError as error:
        failure = error
    finally:
        removed(temporary)
    if own.kept and _holds(path, content):
        return True  # the reply of a network file system was lost
    there = path.exists()  # before the listing: the proof needs this order
    overtaken = there or _largest(own.root) != base
    # a vacuum may have removed the link after it was made; then files must stay
    own.kept = own.kept and overtaken and not there
    if isinstance(failure, (FileExistsError, FileNotFoundError)):
        return False if overtaken else None
    with writing(path):
        raise failure


def sweep(root: Path) -> int:
    """Remove all temporary manifests, so that their writers fail and retry; return the bytes freed."""
    folder = root / FOLDERS[0]
    names = [path for path in folder.iterdir() if path.name.startswith(".") and path.suffix == TEMPORARY]
    return sum(map(removed, names))


def removed(path: AnyPath) -> int:
    """Remove a file and return its size in bytes; return 0 if it is gone already, or is a folder."""
    try:
        if path.is_dir():
            return 0
        size = path.stat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return size


def _largest(root: AnyPath) -> int:
    return max(versions(root), default=0)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


def _check_age(own: Transaction, temporary: Path) -> None:
    """Refuse an attempt that took so long that a vacuum may already remove its files as unused."""
    made = temporary.stat().st_mtime
    try:
        begun = own.lease.stat().st_mtime
    except FileNotFoundError:
        begun = -math.inf
    if made - begun > HALF_A_DAY:
        raise IndexConflictError(
            f"This update of the index at {str(own.root)!r} took longer than half a day, and vacuum() may "
            "remove files that old; nothing was changed. Repeat it with fewer rows at a time."
        )
