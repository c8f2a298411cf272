"""The folder of manifests, on a disk or an object store.

Versions are made and removed by these operations only: see
docs/explanation/versions.md. Each of them takes effect at once, or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from dask_simjoin.disk_index.disks import check_folder, names_in, read_regular
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath, is_read_only
from dask_simjoin.errors import (
    IndexStoreError,
    IndexWriteError,
    OptionError,
    SimJoinError,
)

REMOVED = "removed"
"""The field that marks a tombstone."""

TOMBSTONE = json.dumps({REMOVED: True}).encode()
"""The content that replaces the manifest of a removed version. So its name stays taken,
and no number is assigned twice.
"""

SHARED = ".removed"
"""On a disk, all tombstones are hard links to this file, so they take no space."""

NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Error numbers of a file system without hard links."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Error numbers of a full disk and of an exceeded quota."""

REFUSALS = (*NO_LINKS, *FULL, errno.EMLINK)
"""Error numbers of a link that is certainly not made."""


class Unconfirmed(Exception):
    """No answer has said whether a file was made. It may still be made later."""


class Folder(Protocol):
    """The small files in a folder that several processes use."""

    def create(self, name: str, content: bytes) -> None:
        """Make a file. Raise `FileExistsError` if its name is taken, and `Unconfirmed`
        if the file may exist. After any other error, it does not exist.
        """

    def read(self, name: str) -> bytes:
        """Return the content of a file, or raise `OSError`."""

    def names(self, after: str = "") -> list[str]:
        """List the names that sort after `after`, ascending. A missing folder counts as
        empty.

        A file that is made or replaced meanwhile may be missing.
        """

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file, or make it."""

    def bury(self, name: str) -> None:
        """Replace a file by a tombstone."""

    def sync(self) -> None:
        """Make all changes durable."""


@dataclass(frozen=True)
class DiskFolder:
    """A folder on a disk. Files appear under their names by hard links."""

    path: Path

    def create(self, name: str, content: bytes) -> None:
        path, temporary = self.path / name, self._written(content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise
        except OSError as error:
            if error.errno in REFUSALS or is_read_only(error):
                with writing(path):
                    raise
            # a network file system may have made the link
            raise Unconfirmed(error.strerror or str(error)) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()

    def read(self, name: str) -> bytes:
        return read_regular(self.path / name)

    def names(self, after: str = "") -> list[str]:
        check_folder(self.path)
        return sorted(name for name in names_in(self.path) if name > after)

    def replace(self, name: str, content: bytes) -> None:
        self._renamed(self._written(content), name)

    def bury(self, name: str) -> None:
        temporary = self._temporary()
        with writing(temporary):
            try:
                os.link(self.path / SHARED, temporary)
            except OSError as error:
                # there is no tombstone yet, or it has as many links as can be
                if error.errno not in (errno.ENOENT, errno.EMLINK):
                    raise
                self.replace(SHARED, TOMBSTONE)
                os.link(self.path / SHARED, temporary)
        self._renamed(temporary, name)

    def sync(self) -> None:
        with writing(self.path):
            self.path.mkdir(exist_ok=True)
            number = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(number)
            finally:
                os.close(number)

    def _temporary(self) -> Path:
        return self.path / f".{uuid.uuid4().hex}.tmp"

    def _written(self, content: bytes) -> Path:
        temporary = self._temporary()
        write_new(temporary, lambda file: file.write(content))
        return temporary

    def _renamed(self, temporary: Path, name: str) -> None:
        with writing(self.path / name):
            try:
                os.replace(temporary, self.path / name)
            finally:
                # nothing is renamed if both are links to one file
                temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class StoreFolder:
    """A folder on an object store. Requests take effect at once, and are durable."""

    path: ObjectPath

    def create(self, name: str, content: bytes) -> None:
        try:
            (self.path / name).create(content)
        except IndexStoreError as error:
            raise Unconfirmed(str(error)) from error

    def read(self, name: str) -> bytes:
        return (self.path / name).read_bytes()

    def names(self, after: str = "") -> list[str]:
        try:
            return [one.name for one in self.path.after(after)]
        except FileNotFoundError:
            return []

    def replace(self, name: str, content: bytes) -> None:
        (self.path / name).put(content)

    def bury(self, name: str) -> None:
        self.replace(name, TOMBSTONE)

    def sync(self) -> None:
        pass


def folder_of(path: AnyPath) -> Folder:
    return StoreFolder(path) if isinstance(path, ObjectPath) else DiskFolder(path)


def sync_folder(path: AnyPath) -> None:
    """Make the names of the files in a folder durable."""
    folder_of(path).sync()


def check_creates(path: AnyPath) -> None:
    """Raise an error for a file system or a store where two writers could both publish
    the same version.
    """
    folder, name = folder_of(path), f".{uuid.uuid4().hex}.tmp"
    try:
        folder.create(name, b"")
        folder.create(name, b"")
    except FileExistsError:
        return
    except IndexWriteError as error:
        if error.errno not in NO_LINKS:
            raise
        raise OptionError(
            f"path={str(path.parent)!r} is on a file system without hard links "
            f"({os.strerror(error.errno)}). The index needs them to order its writers; "
            "use another file system that all workers share."
        ) from None
    except Unconfirmed as error:
        raise IndexStoreError(str(error)) from error
    finally:
        (path / name).unlink(missing_ok=True)
    raise OptionError(
        f"path={str(path.parent)!r} is on a store that replaces objects in spite of "
        "'If-None-Match: *'. The index needs such conditional puts to order its "
        "writers; use another store, or a local disk."
    )


def is_tombstone(content: bytes) -> bool:
    return field_of(content, REMOVED) is True


def field_of(content: bytes, name: str) -> Any:
    """Return a field of a manifest or a tombstone; None if it is damaged."""
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return body.get(name) if isinstance(body, dict) else None


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


@contextlib.contextmanager
def writing(path: AnyPath, what: str = "written") -> Iterator[None]:
    """Convert errors while writing a file to errors that name the file and a remedy.

    `what`: "written" or "removed".
    """
    try:
        yield
    except SimJoinError:
        raise
    except OSError as error:
        remedy = (
            "The index is read-only for this process: make its folder writable"
            if is_read_only(error)
            else "Free disk space, or repair the disk"
        )
        again = (
            " If the update has a batch=, it is not applied twice."
            if what == "written"
            else ""
        )
        raise IndexWriteError(
            error.errno or 0,
            f"{str(path)!r} cannot be {what}: {error.strerror or error}. {remedy}, and "
            f"repeat the call.{again}",
        ) from error


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write and sync a new file, and return its size in bytes. If that fails, leave no
    file.
    """
    with writing(path), open(path, "xb") as file:
        try:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
