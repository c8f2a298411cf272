"""Scratch files of tasks: arrays written piece by piece, and the removal of files of finished runs.

A worker that is killed leaves files, and so does a task that is cancelled while it runs.  Only the scheduler
knows whether a run is still wanted, so the client asks it, as long as there are files.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import dask
import numpy as np
from dask.utils import format_bytes
from distributed import Client

from dask_simjoin.engine.private_files import make_folder
from dask_simjoin.errors import ScratchError
from dask_simjoin.metrics.norms import DType
from dask_simjoin.planning.checks import NO_FILES, WHERE_EDGES_GO
from dask_simjoin.request.options import current_client


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


EVERY = 1.0
"""Seconds between looks."""

ELSEWHERE = 10
"""Looks at this machine for each at those of workers on others."""

AFTER = 30
"""Looks once the client is closed: tasks may run on until their worker is gone."""

LABEL = "simjoin_optics"
"""With which the names of the tasks begin."""

RUNNING = ("waiting", "queued", "processing", "no-worker")

HELD = ("edges", "gather")
"""Steps whose results are files."""

_swept: weakref.WeakKeyDictionary[Client, set[str]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def sweep(client: Client, directory: str) -> None:
    """From now on remove folders in this directory once their runs on the client's cluster are over.

    Names of folders begin with the token in the names of the run's tasks.
    """
    with _lock:
        known = _swept.setdefault(client, set())
        if directory in known:
            return
        known.add(directory)
    what = weakref.ref(client), directory
    threading.Thread(target=_keep_sweeping, args=what, name="simjoin-sweep", daemon=True).start()


def _keep_sweeping(client_of: Callable[[], Client | None], directory: str) -> None:
    look = 0
    while True:
        time.sleep(EVERY)
        client = client_of()
        if client is None or client.status == "closed":
            break
        with contextlib.suppress(Exception):  # whatever keeps the scheduler from answering: ask again
            _sweep(client, directory, elsewhere=look % ELSEWHERE == 0)
        del client
        look += 1
    for _ in range(AFTER):
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(EVERY)


def _sweep(client: Client, directory: str, elsewhere: bool) -> None:
    """Remove what is over."""
    found = folders(directory)
    others = set()
    if elsewhere:
        told = client.run(_told, directory, on_error="ignore")
        others = {name for host, names in told.values() if host != socket.gethostname() for name in names}
    if not found and not others:
        return
    over = client.run_on_scheduler(_over, sorted({name.split("-")[0] for name in {*found, *others}}))
    remove(directory, [name for name in found if name.split("-")[0] in over])
    gone = [name for name in others if name.split("-")[0] in over]
    if gone:
        client.run(remove, directory, gone, on_error="ignore")


def folders(directory: str) -> list[str]:
    """List the folders there."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def remove(directory: str, names: list[str]) -> None:
    """Remove folders there, with all that is in them."""
    for name in names:
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _told(directory: str) -> tuple[str, list[str]]:
    return socket.gethostname(), folders(directory)


def _over(tokens: list[str], dask_scheduler: Any) -> list[str]:
    """List those of the runs of which no task will read or write files."""
    groups = dask_scheduler.task_groups

    def any_in(step: str, token: str, states: tuple[str, ...]) -> bool:
        group = groups.get(f"{LABEL}_{step}-{token}")
        return group is not None and any(group.states.get(state) for state in states)

    return [
        token
        for token in tokens
        if not any(any_in(step, token, (*RUNNING, "memory")) for step in HELD)
        and not any_in("visit", token, RUNNING)
    ]


@dataclass(frozen=True)
class Scratch:
    """Say where the files of runs go.

    Attributes
    ----------
    directory : str
        In which each run has its own folder.
    owner : (str, int)
        The process of the client, which removes folders of runs that are not on a cluster.
    swept : bool
        Whether it also removes those of runs on the cluster, once no task is left that needs them.
    """

    directory: str
    owner: Process
    swept: bool


@functools.cache
def _own(parent: str | None, process: Process) -> str:
    path = os.path.join(parent or tempfile.gettempdir(), f"simjoin-{process[1]}-{uuid.uuid4().hex}")
    atexit.register(_remove, path, process)
    return path


def _remove(path: str, process: Process) -> None:
    if process == this_process():  # and not a fork of it
        shutil.rmtree(path, ignore_errors=True)


def scratch_directory() -> str:
    """Name a folder in Dask's temporary directory that this process removes in the end; who writes makes it.

    It is the client's, where there is one: workers come and go, and their folders with them.
    """
    return _own(dask.config.get("temporary-directory", None), this_process())


def make_scratch() -> Scratch:
    """Choose where the files of a run go that is about to begin."""
    client = current_client()
    if client is None:
        return Scratch(os.path.join(scratch_directory(), "local"), this_process(), False)
    directory = os.path.join(scratch_directory(), client.id)
    sweep(client, directory)
    return Scratch(directory, this_process(), True)


def free_space(directory: str) -> int:
    """Measure the bytes that are free there, on the machine that has least."""
    client = current_client()
    if client is None or client.asynchronous:
        return free_at(directory)
    return min(client.run(free_at, directory).values(), default=0)
