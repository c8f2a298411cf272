"""Whether the disks that workers spill to have room for what does not fit their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dask.utils import format_bytes

from dask_simjoin.errors import LARGER_DISK, BudgetError


@dataclass(frozen=True)
class WorkerDisk:
    """A disk that workers spill to.

    Attributes
    ----------
    host, directory : str
        A machine, and where the first of the workers writes there.
    workers : int
        That write to this disk.
    free : int
        Bytes that they may write there.
    """

    host: str
    directory: str
    workers: int
    free: int


def check_disks(needed: float, disks: Sequence[WorkerDisk]) -> None:
    """Refuse what needs so many bytes on all disks together, if a disk has no room for its workers' share."""
    workers = sum(disk.workers for disk in disks)
    for disk in disks:
        share = needed * disk.workers / workers
        if share > disk.free:
            many = f"{disk.workers} workers" if disk.workers > 1 else "a worker"
            raise BudgetError(
                f"At least {format_bytes(int(needed))} do not fit the memory of {workers} workers at a time "
                f"and go to their disks, which is {format_bytes(int(needed / workers))} for each. At "
                f"{disk.directory!r} on {disk.host} {format_bytes(disk.free)} are free for {many}. "
                f"{LARGER_DISK}"
            )
