"""Where tasks write files, and how much space there is."""

from __future__ import annotations

import functools
import shutil
import tempfile

import dask
from distributed import get_worker

from dask_simjoin.graph.cluster import current_client


@functools.cache
def _own(parent: str | None) -> tempfile.TemporaryDirectory[str]:
    """A directory that is removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="simjoin-", dir=parent)


def scratch_directory() -> str:
    """The worker's local directory, or without one a new one in Dask's temporary directory."""
    try:
        return str(get_worker().local_directory)
    except ValueError:
        return _own(dask.config.get("temporary-directory", None)).name


def _free() -> int:
    return shutil.disk_usage(scratch_directory()).free


def free_space() -> int:
    """Bytes that are free there, on the machine that has least."""
    client = current_client()
    if client is None or client.asynchronous:
        return _free()
    return min(client.run(_free).values(), default=0)
