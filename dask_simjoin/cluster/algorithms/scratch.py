"""Write arrays part by part to scratch files, and remove the files of finished runs.

A worker that is killed leaves files, and so does a task that is canceled while it runs.
Only the scheduler knows whether a run still needs its files. So the client asks the
scheduler regularly while there are files.
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
from typing import TYPE_CHECKING, Any, BinaryIO

import dask
import numpy as np

from dask_simjoin.engine.process import forkable, make_folder
from dask_simjoin.errors import ScratchError
from dask_simjoin.metrics.norms import DType
from dask_simjoin.planning.checks import NO_FILES, WHERE_EDGES_GO
from dask_simjoin.request.messages import size_text
from dask_simjoin.request.options import current_client

if TYPE_CHECKING:
    from distributed import Client


def free_at(directory: str) -> int:
    """Return how many bytes can be written to a folder, which need not exist yet; 0 if
    it is not writable.
    """
    there = os.path.abspath(directory)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there) or not os.access(there, os.W_OK | os.X_OK):
        return 0
    return shutil.disk_usage(there).free


Process = tuple[str, int]
"""Identifies a process: host name and process id."""


def this_process() -> Process:
    return socket.gethostname(), os.getpid()


class Folder:
    """Owns the files of one run. The folder for them is created when the first file is
    written.

    If `owner` is this process, deleting this object removes the files. In another
    process, or if `owner` is None, the files stay.
    """

    def __init__(self, path: str, owner: Process | None) -> None:
        self.path, self._owner = path, owner
        if owner == this_process():
            weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)

    def __reduce__(self) -> Any:
        return Folder, (self.path, self._owner)


def new_folder(directory: str, label: str, owner: Process | None) -> Folder:
    return Folder(os.path.join(directory, f"{label}-{uuid.uuid4().hex}"), owner)


@dataclass(frozen=True)
class StoredArray:
    """An array that an `ArrayWriter` wrote: a plain object, which Dask can send and
    spill to disk.
    """

    values: np.ndarray | None  # None: the array is in a file
    path: str  # the file; "": there is none
    host: str  # name of the host that wrote the file
    dtype: np.dtype[Any]
    size: int  # number of items

    def array(self) -> np.ndarray:
        """Return the array; if it is in a file, memory-map it."""
        if self.values is not None:
            return self.values
        try:
            return np.asarray(
                np.memmap(self.path, self.dtype, mode="r", shape=(self.size,))
            )
        except FileNotFoundError:
            raise ScratchError(
                f"The file {self.path!r}, written on {self.host!r}, does not exist on "
                f"{socket.gethostname()!r}. Set Dask's configuration "
                "temporary-directory of the client to a "
                "folder that all workers share and that nothing else clears. Or use "
                "mode='forest', which "
                "writes no files.",
                remedies=[NO_FILES],
            ) from None

    def __getitem__(self, piece: slice) -> np.ndarray:
        return self.array()[piece]

    def discard(self) -> None:
        """Remove the file, if there is one. Arrays that were read from it stay valid."""
        if self.values is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


class ArrayWriter:
    """Writes an array part by part: in memory up to `max_bytes`, and beyond that in a
    file in `directory`.
    """

    def __init__(self, dtype: DType, directory: str, max_bytes: int) -> None:
        self._dtype, self._directory, self._max_bytes = (
            np.dtype(dtype),
            directory,
            max_bytes,
        )
        self._parts: list[np.ndarray] = []
        self._file: BinaryIO | None = None
        self._path = ""
        self.size = 0

    def append(self, values: np.ndarray) -> None:
        assert values.dtype == self._dtype
        self.size += values.size
        if self._file is None:
            self._parts.append(values)
            if self.size * self._dtype.itemsize <= self._max_bytes:
                return
            with self._writing():
                # the folder is created only now, since most runs write no file, and a
                # sweep may have removed it
                make_folder(Path(self._directory), 0o700)
                handle, self._path = tempfile.mkstemp(
                    ".edges", "simjoin-", self._directory
                )
                self._file = os.fdopen(handle, "wb")
                for part in self._parts:
                    part.tofile(self._file)
            self._parts = []
        else:
            with self._writing():
                values.tofile(self._file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """If writing fails, add to the error: the folder, the bytes that are needed,
        and advice.
        """
        try:
            yield
        except OSError as error:
            need = size_text(self.size * self._dtype.itemsize)
            raise ScratchError(
                f"A file of edges could not be written to {self._directory!r} on "
                f"{socket.gethostname()!r}: "
                f"{error}. It is one of several files, and needs at least {need}. "
                "There are "
                f"{size_text(free_at(self._directory))} free in the folder. "
                f"{WHERE_EDGES_GO}",
                remedies=[NO_FILES],
            ) from error

    def abandon(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def finish(self) -> StoredArray:
        """Close the file, if there is one, and return the array. Nothing can be
        appended any more.
        """
        common = (socket.gethostname(), self._dtype, self.size)
        if self._file is not None:
            with self._writing():
                self._file.close()
            return StoredArray(None, self._path, *common)
        parts = self._parts or [np.empty(0, self._dtype)]
        return StoredArray(
            parts[0] if len(parts) == 1 else np.concatenate(parts), "", *common
        )


@contextlib.contextmanager
def discard_on_error(*stores: ArrayWriter) -> Iterator[None]:
    """If an error is raised in the block, such as a full disk, remove the files of the
    arrays.
    """
    try:
        yield
    except BaseException:
        for store in stores:
            store.abandon()
        raise


SWEEP_SECONDS = 1.0
"""A sweep removes the folders of finished runs; the next one starts this many seconds
later.
"""

WORKER_SWEEPS = 10
"""Every sweep covers the client's host. Every tenth sweep also covers the hosts of
workers, by messages.
"""

FINAL_SWEEPS = 30
"""After the client is closed, sweep this many times more, because tasks may write files
until their worker stops.
"""

LABEL = "simjoin_optics"
"""Prefix of the names of tasks that use scratch files."""

RUNNING = ("waiting", "queued", "processing", "no-worker")

FILE_STEPS = ("edges", "gather")
"""Steps whose results may refer to scratch files, so the files are needed while a
result is in memory.
"""

_swept: weakref.WeakKeyDictionary[Client, set[str]] = weakref.WeakKeyDictionary()
_lock = forkable(threading.Lock())


def sweep(client: Client, directory: str) -> None:
    """Start a thread that removes the folders of this client's finished runs below
    `directory`.

    The name of a folder starts with the run's token, which is also in the names of the
    run's tasks.
    """
    with _lock:
        directories = _swept.setdefault(client, set())
        if directory in directories:
            return
        directories.add(directory)
    what = weakref.ref(client), directory
    threading.Thread(
        target=_keep_sweeping, args=what, name="simjoin-sweep", daemon=True
    ).start()


def _keep_sweeping(client_of: Callable[[], Client | None], directory: str) -> None:
    sweeps = 0
    while True:
        time.sleep(SWEEP_SECONDS)
        client = client_of()
        if client is None or client.status == "closed":
            break
        # the scheduler may be busy; the next sweep tries again
        with contextlib.suppress(Exception):
            _sweep(client, directory, elsewhere=sweeps % WORKER_SWEEPS == 0)
        del client
        sweeps += 1
    for _ in range(FINAL_SWEEPS):
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(SWEEP_SECONDS)


def _sweep(client: Client, directory: str, elsewhere: bool) -> None:
    """Remove the folders of finished runs. `elsewhere`: also on the hosts of workers."""
    found = folders(directory)
    others = set()
    if elsewhere:
        found_by = client.run(_folders_of_host, directory, on_error="ignore")
        others = {
            name
            for host, names in found_by.values()
            if host != socket.gethostname()
            for name in names
        }
    if not found and not others:
        return
    over = client.run_on_scheduler(
        _finished_runs, sorted({name.split("-")[0] for name in {*found, *others}})
    )
    remove(directory, [name for name in found if name.split("-")[0] in over])
    gone = [name for name in others if name.split("-")[0] in over]
    if gone:
        client.run(remove, directory, gone, on_error="ignore")


def folders(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def remove(directory: str, names: list[str]) -> None:
    for name in names:
        shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _folders_of_host(directory: str) -> tuple[str, list[str]]:
    return socket.gethostname(), folders(directory)


def _finished_runs(tokens: list[str], dask_scheduler: Any) -> list[str]:
    """Return the tokens of the runs whose remaining tasks, if any, use no files."""
    groups = dask_scheduler.task_groups

    def any_in(step: str, token: str, states: tuple[str, ...]) -> bool:
        group = groups.get(f"{LABEL}_{step}-{token}")
        return group is not None and any(group.states.get(state) for state in states)

    return [
        token
        for token in tokens
        if not any(any_in(step, token, (*RUNNING, "memory")) for step in FILE_STEPS)
        and not any_in("visit", token, RUNNING)
    ]


@dataclass(frozen=True)
class Scratch:
    """The folder for the files of a run, and how the files are removed."""

    directory: str  # each run has a folder below this one
    owner: Process  # without a cluster, this process removes the run's folder
    swept: bool  # whether the run is on a cluster; then `sweep` removes its folder


@functools.cache
def _process_folder(parent: str | None, process: Process) -> str:
    path = os.path.join(
        parent or tempfile.gettempdir(), f"simjoin-{process[1]}-{uuid.uuid4().hex}"
    )
    atexit.register(_remove, path, process)
    return path


def _remove(path: str, process: Process) -> None:
    # a forked process inherits this handler, but must not remove its parent's folder
    if process == this_process():
        shutil.rmtree(path, ignore_errors=True)


def scratch_directory() -> str:
    """Return the path of this process's folder below Dask's temporary directory. It is
    removed when the process ends.

    The first writer creates the folder. On a cluster it belongs to the client, because
    workers may leave any time.
    """
    return _process_folder(dask.config.get("temporary-directory", None), this_process())


def make_scratch() -> Scratch:
    """For a new run, choose the folder for files, and how the files are removed."""
    client = current_client()
    if client is None:
        return Scratch(
            os.path.join(scratch_directory(), "local"), this_process(), False
        )
    directory = os.path.join(scratch_directory(), client.id)
    sweep(client, directory)
    return Scratch(directory, this_process(), True)


def free_space(directory: str) -> int:
    """Return how many bytes are free in a directory: on a cluster, the minimum over all
    hosts.
    """
    client = current_client()
    if client is None or client.asynchronous:
        return free_at(directory)
    return min(client.run(free_at, directory).values(), default=0)
