"""Choose where tasks write files, and measure the space that there is."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import uuid
from dataclasses import dataclass

import dask

from dask_simjoin.cluster.algorithms.scratch import Process, free_at, this_process
from dask_simjoin.cluster.expressions.scratch_sweeper import sweep
from dask_simjoin.options.settings import current_client


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
