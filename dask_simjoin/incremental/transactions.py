"""The new files of one attempt to make a version: removed together if the attempt fails.

Their names begin with a token of the attempt: so files of tasks whose results never arrived are found, too.
A lease, an empty file, is there as long as the attempt lasts.  Each task looks for it after it has written:
so a task that is still running when the attempt fails removes its own file.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dask_simjoin.errors import IndexConflictError
from dask_simjoin.incremental.checked import SummedFile
from dask_simjoin.incremental.files import FOLDERS, PAIRS, write_named, writing

DIGITS, OWN_DIGITS = 16, 8
"""Hexadecimal digits of a token, and of what tells a file from others of its attempt."""


@dataclass(eq=False)
class Transaction:
    """One attempt to make a version.

    Attributes
    ----------
    root : Path
        The folder of the index.
    token : str
        What the names of its files begin with.
    kept : bool
        Whether a version names its files, or may do so: then they stay.
    """

    root: Path
    token: str = field(default_factory=lambda: uuid.uuid4().hex[:DIGITS])
    kept: bool = False

    @property
    def lease(self) -> Path:
        """The file that is there while the attempt lasts."""
        return self.root / FOLDERS[0] / f".{self.token}.lease"

    def write(self, folder: str, write: Callable[[SummedFile], object]) -> tuple[str, int]:
        """Write a new file and wait until the disk has it; returns its name and bytes."""
        first = f"{self.token}-{uuid.uuid4().hex[:OWN_DIGITS]}"
        name, size = write_named(self.root / folder, write, first)
        if not self.lease.exists():
            (self.root / folder / name).unlink(missing_ok=True)
            raise IndexConflictError(
                f"An update of the index at {str(self.root)!r} was given up, or took longer than a day, as a "
                "task wrote for it; nothing was changed. Do it again, with fewer rows at a time."
            )
        return name, size

    def end(self) -> None:
        """Give up the lease; removes the files, unless they are kept."""
        with contextlib.suppress(OSError):  # what stays is removed by a vacuum, a day later
            self.lease.unlink(missing_ok=True)
        if self.kept:
            return
        for folder in (*FOLDERS, PAIRS):
            with contextlib.suppress(OSError):
                for path in (self.root / folder).iterdir():
                    if self.token in path.name:
                        path.unlink(missing_ok=True)


@contextlib.contextmanager
def transaction(root: Path) -> Iterator[Transaction]:
    """Begin an attempt; however it ends, files that no version names are removed."""
    own = Transaction(root)
    with writing(own.lease):
        own.lease.touch(exist_ok=False)
    try:
        yield own
    finally:
        own.end()
