"""Publish a manifest under the next version number. No number is used twice.

An attempt is one try to make a version. The names of its files begin with the token of
the attempt, so files of lost tasks can be found, too. The lease is an empty file that
exists as long as the attempt lasts. After writing a file, each task checks whether the
lease still exists. If not, the attempt is over, and the task removes its file again.

The rules and a proof are in docs/explanation/versions.md. In short: a writer makes a
temporary file, then lists the versions, and then links the temporary file to its final
name. A vacuum removes all temporary files before it removes a manifest. So a writer
with an outdated number finds a newer version, or its link fails.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.disk_index.checksums import ChecksumWriter
from dask_simjoin.disk_index.disks import read_regular
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
from dask_simjoin.disk_index.manifests import (
    damage_of,
    encoded,
    manifest_path,
    versions,
    written_by,
)
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath
from dask_simjoin.disk_index.types import BatchContent, Manifest
from dask_simjoin.errors import IndexConflictError, IndexStoreError

DIGITS, OWN_DIGITS = 16, 8
"""Numbers of hexadecimal digits: of a token, and of the part that makes a name unique
within the attempt.
"""


@dataclass(eq=False)
class Transaction:
    """One attempt to make a version."""

    root: AnyPath  # folder of the index
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:DIGITS])
    """The names of the attempt's files begin with this token."""
    # whether files stay after the attempt, because a version lists them, or may list
    # them
    kept: bool = False

    @property
    def lease(self) -> AnyPath:
        """The file that exists as long as the attempt lasts."""
        return self.root / FOLDERS[0] / f".{self.token}.lease"

    def write(
        self, folder: str, write: Callable[[ChecksumWriter], object]
    ) -> tuple[str, int]:
        """Write and sync a new file; return its name and its size in bytes."""
        first = f"{self.token}-{uuid.uuid4().hex[:OWN_DIGITS]}"
        name, size = write_named(self.root / folder, write, first)
        if not self.lease.exists():
            (self.root / folder / name).unlink(missing_ok=True)
            raise IndexConflictError(
                f"The update of the index at {str(self.root)!r} ended before this task "
                "had written its "
                "file: it failed, or took longer than a day. Nothing was changed. "
                "Repeat the update with "
                "fewer rows at a time."
            )
        return name, size

    def end(self) -> None:
        """Remove the lease, and also the files unless a version needs them."""
        # if the store cannot be reached, give up, because each request may wait for
        # minutes
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
    """Ignore errors when files are removed from a disk, because a later vacuum removes
    these files.
    """
    try:
        yield
    except IndexStoreError:
        raise
    except OSError:
        pass


@contextlib.contextmanager
def transaction(root: AnyPath) -> Iterator[Transaction]:
    """Begin an attempt. When it ends, remove its files, unless a version lists them."""
    own = Transaction(root)
    with writing(own.lease):
        own.lease.touch(exist_ok=False)
    try:
        yield own
    finally:
        own.end()


MAX_BATCHES = 512
"""A manifest has at most this many batch names. If there are more, they move to a file
that later versions share.
"""

BATCH, MADE, CONTENT = "batch", "version", "content"


class Batches(NamedTuple):
    """The batches that a manifest lists."""

    last: dict[str, int]  # see `Manifest.batches`
    earlier: tuple[str, ...]  # see `Manifest.earlier`
    contents: dict[str, str]  # see `Manifest.contents`
    size: int  # number of bytes written to move batches to a file


class CommittedBatch(NamedTuple):
    """A batch that was committed."""

    version: int  # the version that the batch made
    # None if the version was made by a release of this package that did not record the
    # content
    content: BatchContent | None


def made_by(
    root: AnyPath, manifest: Manifest, batch: str | None
) -> CommittedBatch | None:
    """Return the committed batch with this name; None if there is none."""
    if batch is None:
        return None
    if batch in manifest.batches:
        return _committed(manifest.batches[batch], manifest.contents.get(batch))
    for name in reversed(manifest.earlier):
        table = read_file(root / FOLDERS[0] / name)
        row = pc.index(table[BATCH], batch).as_py()
        if row >= 0:
            content = (
                table[CONTENT][row].as_py() if CONTENT in table.column_names else None
            )
            return _committed(table[MADE][row].as_py(), content)
    return None


def _committed(version: int, content: str | None) -> CommittedBatch:
    return CommittedBatch(version, BatchContent.parse(content) if content else None)


def with_batch(
    own: Transaction,
    parent: Manifest,
    batch: str | None,
    version: int,
    content: BatchContent | None = None,
) -> Batches:
    """Add a batch to the batches of a manifest. If there are too many, they move to a
    file.
    """
    last, contents, earlier, size = (
        dict(parent.batches),
        dict(parent.contents),
        parent.earlier,
        0,
    )
    if batch is not None:
        if len(last) >= MAX_BATCHES:
            texts = pa.array([contents.get(name) for name in last], pa.string())
            table = pa.table(
                {BATCH: list(last), MADE: list(last.values()), CONTENT: texts}
            )
            name, size = own.write(FOLDERS[0], lambda file: write_table(table, file))
            sync_folder(own.root / FOLDERS[0])
            last, contents, earlier = {}, {}, (*earlier, name)
        last[batch] = version
        if content is not None:
            contents[batch] = str(content)
    return Batches(last, earlier, contents, size)


HALF_A_DAY = 12 * 60 * 60
"""An attempt may take at most this many seconds.

After a day, a vacuum removes files that no version lists.
"""

TEMPORARY = ".manifest"
"""The names of temporary manifests end like this. A vacuum removes all such files."""

TEMPORARY_NAME = re.compile(
    r"\.(?:[0-9a-f]{16}\.lease|[0-9a-f]{32}\.manifest"
    r"|(?:(?:[0-9a-f]{16}-[0-9a-f]{8}|[0-9]{20})-)?[0-9a-f]{32}\.tmp)"
)
"""The names of the temporary files of an index: leases, temporary manifests, and files
that are being written.
"""


def base_of(root: AnyPath, manifest: Manifest) -> int | None:
    """Return the largest version number in use. Return None if an intact version is
    newer than `manifest`.

    The number is above `manifest.version` if there are newer manifests, but all of them
    are damaged.
    """
    newer = versions(root, manifest.version)
    if not all(damage_of(root, number) for number in newer):
        return None
    return newer[-1] if newer else manifest.version


def publish(own: Transaction, base: int, manifest: Manifest) -> bool:
    """Publish a manifest as the version after `base`.

    Return False if another attempt has taken that number.
    """
    content, path = encoded(manifest, own.token), manifest_path(own.root, base + 1)
    if isinstance(path, ObjectPath):
        return _created(own, content, path)
    while (made := _linked(own, base, content, path)) is None:
        pass
    if made:
        sync_folder(path.parent)
    return made


PUTS = 3
"""If no reply comes, a manifest is put at most this many times. The client also repeats
each put by itself.
"""


def _created(own: Transaction, content: bytes, path: ObjectPath) -> bool:
    """Put a manifest on a store if its name is free. Return False if another attempt
    has taken the name.

    A name stays in use even after its version has been removed. So a put can succeed
    only for the next version.
    """
    # from now on the files must stay, unless another attempt has certainly taken the
    # number
    own.kept = True
    failure: OSError | None = None
    for _ in range(PUTS):
        try:
            path.create(content)
            return True
        # the name is taken, perhaps by an earlier put of this attempt whose reply was
        # lost
        except FileExistsError as error:
            failure = error
        except IndexStoreError as error:
            failure = error
            continue
        # if the manifest is gone, the name is free after all, so try again
        with contextlib.suppress(FileNotFoundError):
            own.kept = written_by(path.read_bytes()) == own.token
            return own.kept
    raise IndexStoreError(
        f"The store did not confirm {str(path)!r}, so the version may or may not "
        f"exist: {failure}"
    ) from failure


def _linked(own: Transaction, base: int, content: bytes, path: Path) -> bool | None:
    """Try to link a manifest. Return whether this worked; None if a vacuum has removed
    the temporary file.
    """
    temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY}")
    write_new(temporary, lambda file: file.write(content))
    try:
        # before the first version there is no vacuum, so the age does not matter
        if base:
            _check_age(own, temporary)
        # the proof needs a listing that begins after the temporary file was made
        if _largest(own.root) != base:
            return False
        # from now on the files must stay, unless the link was certainly not made
        own.kept = True
        os.link(temporary, path)
        return True
    except OSError as error:
        failure = error
    finally:
        with _leftovers():
            removed(temporary)
    if own.kept and _holds(path, content):
        return True  # the link was made, but a network file system lost the reply
    there = path.exists()  # the proof needs this check before the listing
    overtaken = there or _largest(own.root) != base
    # a vacuum may already have removed a link that was made; in this case files must
    # stay
    own.kept = own.kept and overtaken and not there
    if isinstance(failure, (FileExistsError, FileNotFoundError)):
        return False if overtaken else None
    with writing(path):
        raise failure


def sweep(root: Path) -> int:
    """Remove all temporary manifests, so that their writers fail and try again. Return
    the bytes freed.
    """
    folder = root / FOLDERS[0]
    names = [
        path
        for path in folder.iterdir()
        if TEMPORARY_NAME.fullmatch(path.name) and path.suffix == TEMPORARY
    ]
    return sum(map(removed, names))


def removed(path: AnyPath) -> int:
    """Remove a file, and return its size in bytes. Return 0 if it is gone already, or
    if it is not a regular file, such as a folder or a link.
    """
    with writing(path, "removed"):
        try:
            if isinstance(path, Path):
                about = path.lstat()
                if not stat.S_ISREG(about.st_mode):
                    return 0
                size = about.st_size
            else:
                size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
    return size


def _largest(root: AnyPath) -> int:
    return max(versions(root), default=0)


def _holds(path: Path, content: bytes) -> bool:
    try:
        return read_regular(path) == content
    except FileNotFoundError:
        return False


def _check_age(own: Transaction, temporary: Path) -> None:
    """Raise an error if the attempt has taken so long that a vacuum may soon remove its
    files as unused.
    """
    made = temporary.stat().st_mtime
    try:
        begun = own.lease.stat().st_mtime
    except FileNotFoundError:
        begun = -math.inf
    if made - begun > HALF_A_DAY:
        raise IndexConflictError(
            f"This update of the index at {str(own.root)!r} took longer than half a "
            "day, so vacuum() may "
            "remove its files. Nothing was changed. Repeat it with fewer rows at a "
            "time."
        )
