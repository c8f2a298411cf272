"""Whether the disks that workers spill to have room for what does not fit their memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

from dask.utils import format_bytes

from dask_simjoin.errors import LARGER_DISK, BudgetError, Remedy, ScratchError

IN_MEMORY = Remedy(config={"dataframe.shuffle.method": "tasks"})
"""What shuffles rows without a folder."""


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


def check_folder(needed: float, directory: str) -> None:
    """Refuse to shuffle so many bytes of rows through a folder that cannot hold them."""
    remedy = (
        "Set Dask's configuration temporary-directory to a folder that has the room and can be written to, "
        f"or shuffle in memory: dask.config.set({IN_MEMORY.config})."
    )
    try:
        with tempfile.TemporaryFile(dir=directory):
            free = shutil.disk_usage(directory).free
    except OSError as error:
        raise ScratchError(
            f"Rows would be shuffled through files in {directory!r}, which cannot be written: {error}. "
            f"{remedy}",
            remedies=[IN_MEMORY],
        ) from error
    if needed > free:
        raise ScratchError(
            f"Rows would be shuffled through files in {directory!r}, which take at least "
            f"{format_bytes(int(needed))}, and {format_bytes(free)} are free there. {remedy}",
            remedies=[IN_MEMORY],
        )
