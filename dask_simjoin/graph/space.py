"""Where tasks write files, and how much space there is."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile

import dask

from dask_simjoin.graph.cluster import current_client


@functools.cache
def _own(parent: str | None) -> tempfile.TemporaryDirectory[str]:
    if parent is not None:
        os.makedirs(parent, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="simjoin-", dir=parent)


def scratch_directory() -> str:
    """A new directory in Dask's temporary directory; it is removed when this process ends.

    It is the client's, where there is one: workers come and go, and their directories with them.
    """
    return _own(dask.config.get("temporary-directory", None)).name


def _free(directory: str) -> int:
    os.makedirs(directory, exist_ok=True)
    return shutil.disk_usage(directory).free


def free_space(directory: str) -> int:
    """Bytes that are free there, on the machine that has least."""
    client = current_client()
    if client is None or client.asynchronous:
        return _free(directory)
    return min(client.run(_free, directory).values(), default=0)
