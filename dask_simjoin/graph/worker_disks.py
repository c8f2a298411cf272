"""The free space on the disks of workers. Dask spills data to these disks."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable

from distributed import (
    Client,
    Worker,
)

from dask_simjoin.planning.resources import WorkerDisk, check_disks

Spill = tuple[str, int, str, int, int | None]
"""The disk of a worker: host, device, folder, free bytes, and the most bytes that Dask
spills (None: no limit).
"""


def check_worker_disks(needed: float, client: Client | None) -> None:
    """Raise an error if a join needs more bytes than are free on the disks of the
    workers.
    """
    if needed > 0 and client is not None and not client.asynchronous:
        check_disks(needed, by_disk(client.run(_spill_of, on_error="ignore").values()))


def _spill_of(dask_worker: Worker) -> Spill:
    directory = dask_worker.local_directory
    most = getattr(dask_worker.memory_manager, "max_spill", None) or None
    return (
        socket.gethostname(),
        os.stat(directory).st_dev,
        directory,
        shutil.disk_usage(directory).free,
        most,
    )


def by_disk(spills: Iterable[Spill]) -> list[WorkerDisk]:
    """Group the disks of workers: workers on the same device of a host share one disk."""
    found: dict[tuple[str, int], list[Spill]] = {}
    for spill in spills:
        found.setdefault(spill[:2], []).append(spill)
    disks = []
    for (host, _), some in found.items():
        free = min(spill[3] for spill in some)
        allowed = sum(free if spill[4] is None else spill[4] for spill in some)
        disks.append(WorkerDisk(host, some[0][2], len(some), min(free, allowed)))
    return disks
