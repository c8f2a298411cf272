"""Open the files of an index on a disk: only regular files, and only in its own folder.

Links could lead to files of other programs, which `vacuum` would remove. Reading a
named pipe could wait forever.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from io import FileIO
from pathlib import Path

from dask_simjoin.errors import IndexFormatError

KINDS = (
    (stat.S_ISLNK, "a symbolic link, and an index reads no file outside of its folder"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
)
"""Kinds of paths that are not regular files: a test, and the text of messages."""


def check_folder(folder: Path) -> None:
    """Raise an error if a folder of an index is a link. A missing folder is allowed."""
    if folder.is_symlink():
        raise IndexFormatError(
            f"{str(folder)!r} is a symbolic link, and an index reads and removes files "
            "only in its own folder. Replace the link by the folder that it points to. "
            "To keep an index on another disk, move the whole index, and link that or "
            "open it there."
        )


def check_folders(root: Path, names: Iterable[str]) -> None:
    for name in names:
        check_folder(root / name)


def names_in(folder: Path) -> list[str]:
    """List the names in a folder of an index, in any order. A missing one counts as
    empty, because copies of an index may lack empty folders.
    """
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise IndexFormatError(
            f"{str(folder)!r} cannot be read: {error.strerror or error}. This process "
            "must be able to read the folder of the index."
        ) from error


def paths_in(folder: Path) -> list[Path]:
    return [folder / name for name in names_in(folder)]


def check_regular(path: Path) -> None:
    """Raise `OSError` if a file of an index is missing or not a regular file. Raise
    `IndexFormatError` if its folder is a link.

    This is checked before the file is opened, because opening a pipe or a device may
    wait.
    """
    check_folder(path.parent)
    mode = os.lstat(path).st_mode
    if not stat.S_ISREG(mode):
        kind = next((text for test, text in KINDS if test(mode)), "a device")
        raise OSError(f"it is {kind}")


def open_regular(path: Path) -> FileIO:
    """Open a file of an index for unbuffered reading; see `check_regular` for errors."""
    check_regular(path)
    return open(path, "rb", buffering=0)


def read_regular(path: Path) -> bytes:
    """Return the content of a file of an index; see `check_regular` for errors."""
    with open_regular(path) as file:
        return file.read()
