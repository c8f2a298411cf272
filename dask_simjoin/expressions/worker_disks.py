"""Ask workers how much they may write to their disks."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable

from distributed import Client, Worker

from dask_simjoin.planning.free_disk import WorkerDisk, check_disks

Spill = tuple[str, int, str, int, int | None]
"""Where a worker spills: host, device, folder, free bytes there, and the most that Dask lets it write."""


def check_worker_disks(needed: float, client: Client | None) -> None:
    """Refuse what needs so many bytes on the workers' disks, if these have no room."""
    if needed > 0 and client is not None and not client.asynchronous:
        check_disks(needed, by_disk(client.run(_spill_of, on_error="ignore").values()))


def _spill_of(dask_worker: Worker) -> Spill:
    directory = dask_worker.local_directory
    most = getattr(dask_worker.memory_manager, "max_spill", None) or None
    return socket.gethostname(), os.stat(directory).st_dev, directory, shutil.disk_usage(directory).free, most


def by_disk(spills: Iterable[Spill]) -> list[WorkerDisk]:
    """Put together workers that share a disk."""
    found: dict[tuple[str, int], list[Spill]] = {}
    for spill in spills:
        found.setdefault(spill[:2], []).append(spill)
    disks = []
    for (host, _), some in found.items():
        free = min(spill[3] for spill in some)
        allowed = sum(free if spill[4] is None else spill[4] for spill in some)
        disks.append(WorkerDisk(host, some[0][2], len(some), min(free, allowed)))
    return disks
