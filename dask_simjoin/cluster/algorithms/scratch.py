"""Write arrays piece by piece: to memory while they are small, else to files of a run's folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from dask.utils import format_bytes

from dask_simjoin.engine.private_files import make_folder
from dask_simjoin.errors import ScratchError
from dask_simjoin.metrics.types import DType
from dask_simjoin.planning.checks import NO_FILES, WHERE_EDGES_GO


def free_at(directory: str) -> int:
    """Measure the bytes that can be written below a folder that need not be there; 0: nothing can."""
    there = os.path.abspath(directory)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        return 0
    return shutil.disk_usage(there).free


Process = tuple[str, int]
"""A machine, and the number of a process there."""


def this_process() -> Process:
    """Name the process that runs this."""
    return socket.gethostname(), os.getpid()


class Folder:
    """Own the files of one run: a folder that is made by whoever first writes there.

    Parameters
    ----------
    path : str
    owner : (str, int) or None
        The process in which the run's files go once this object, of which others may have copies, is gone
        there; None: someone else sees to it.
    """

    def __init__(self, path: str, owner: Process | None) -> None:
        self.path, self._owner = path, owner
        if owner == this_process():
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    def __reduce__(self) -> Any:
        return Folder, (self.path, self._owner)


def new_folder(directory: str, label: str, owner: Process | None) -> Folder:
    """Name a folder that no other run has; its name begins with a label."""
    return Folder(os.path.join(directory, f"{label}-{uuid.uuid4().hex}"), owner)


@dataclass(frozen=True)
class StoredArray:
    """Hold an array that an `ArrayWriter` wrote: a plain object, to be sent and spilled.

    Attributes
    ----------
    values : array or None
        If it is in memory.
    path, host : str
        Else its file, and the machine that wrote it.
    dtype : dtype
    size : int
        Numbers that it has.
    """

    values: np.ndarray | None
    path: str
    host: str
    dtype: np.dtype[Any]
    size: int

    def array(self) -> np.ndarray:
        """Read the array, from its file only where it is looked at."""
        if self.values is not None:
            return self.values
        try:
            return np.asarray(np.memmap(self.path, self.dtype, mode="r", shape=(self.size,)))
        except FileNotFoundError:
            raise ScratchError(
                f"The file {self.path!r}, written on {self.host!r}, is not there on "
                f"{socket.gethostname()!r}. Set Dask's configuration temporary-directory of the client to a "
                "folder that all workers share and that nothing else clears, or use mode='forest', which "
                "writes no files.",
                remedies=[NO_FILES],
            ) from None

    def __getitem__(self, piece: slice) -> np.ndarray:
        found: np.ndarray = self.array()[piece]
        return found

    def discard(self) -> None:
        """Remove the file, if there is one; arrays that were read stay valid."""
        if self.values is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


class ArrayWriter:
    """Write an array that grows at its end.

    Parameters
    ----------
    dtype : dtype
    directory : str
        For its file.
    most : int
        Bytes up to which it stays in memory.
    """

    def __init__(self, dtype: DType, directory: str, most: int) -> None:
        self._dtype, self._directory, self._most = np.dtype(dtype), directory, most
        self._parts: list[np.ndarray] = []
        self._file: BinaryIO | None = None
        self._path = ""
        self.size = 0

    def append(self, values: np.ndarray) -> None:
        """Add numbers of the array's type at the end."""
        assert values.dtype == self._dtype
        self.size += values.size
        if self._file is None:
            self._parts.append(values)
            if self.size * self._dtype.itemsize <= self._most:
                return
            with self._writing():
                # made here, and not beforehand: most runs write no file, and a cleaner may have come by
                make_folder(Path(self._directory), 0o700)
                handle, self._path = tempfile.mkstemp(".edges", "simjoin-", self._directory)
                self._file = os.fdopen(handle, "wb")
                for part in self._parts:
                    part.tofile(self._file)
            self._parts = []
        else:
            with self._writing():
                values.tofile(self._file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Say of errors where it was, what is needed there, and what helps."""
        try:
            yield
        except OSError as error:
            need = format_bytes(self.size * self._dtype.itemsize)
            raise ScratchError(
                f"A file of edges could not be written to {self._directory!r} on {socket.gethostname()!r}: "
                f"{error}. It is one of several and needs at least {need}, and "
                f"{format_bytes(free_at(self._directory))} are free there. {WHERE_EDGES_GO}",
                remedies=[NO_FILES],
            ) from error

    def abandon(self) -> None:
        """Remove the file, if there is one: nothing will be read."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def finish(self) -> StoredArray:
        """Finish the array; nothing can be added any more."""
        known = (socket.gethostname(), self._dtype, self.size)
        if self._file is not None:
            with self._writing():
                self._file.close()
            return StoredArray(None, self._path, *known)
        parts = self._parts or [np.empty(0, self._dtype)]
        return StoredArray(parts[0] if len(parts) == 1 else np.concatenate(parts), "", *known)


@contextlib.contextmanager
def discard_on_error(*stores: ArrayWriter) -> Iterator[None]:
    """Remove the files of arrays that are written in this context if that fails, as on a full disk."""
    try:
        yield
    except BaseException:
        for store in stores:
            store.abandon()
        raise
