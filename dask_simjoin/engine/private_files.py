"""Read and write files that code is loaded from, if no other user can have written them.

The open file, its folder and the folder above are checked. This package makes both folders. Folders above
these two may be open to all, like /tmp: a folder that another user makes there belongs to that user.
``__pycache__`` is not checked: whoever can write there can change the package itself.
"""

from __future__ import annotations

import functools
import os
import uuid
from pathlib import Path

FOLDER, FILE = 0o755, 0o644
"""Modes of new folders and files, before the umask. Others can read: a file of an image may be root's."""


def check_private(found: os.stat_result, path: Path) -> None:
    """Refuse files and folders that other users can write, except root.

    Raises
    ------
    PermissionError
    """
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            f"{path} belongs to another user (uid {found.st_uid}), so nothing is loaded from it"
        )
    if found.st_mode & 0o022:
        raise PermissionError(f"other users can write to {path}; run chmod go-w on it")


def read_private(path: Path) -> bytes:
    """Return the content of a file that only this user or root can have written.

    Raises
    ------
    OSError
        A PermissionError if another user could write the file, its folder or the folder above.
    """
    _check_folders(path.parent)
    with open(path, "rb") as file:
        check_private(os.fstat(file.fileno()), path)
        return file.read()


def write_private(path: Path, content: bytes) -> None:
    """Write a file atomically; refuse folders that `read_private` would refuse."""
    _check_folders(path.parent)
    part = path.with_name(f"{uuid.uuid4().hex}.part")
    try:
        with open(part, "xb", opener=functools.partial(os.open, mode=FILE)) as file:
            file.write(content)
        part.replace(path)
    finally:  # partial files would keep a full disk full
        part.unlink(missing_ok=True)


def make_folder(folder: Path, mode: int = FOLDER) -> None:
    """Make a folder and all missing parents, writable for this user only, whatever the umask.

    `os.makedirs` applies its mode to the last folder only.
    """
    if not folder.exists():
        make_folder(folder.parent, mode)
        folder.mkdir(mode, exist_ok=True)


def _check_folders(folder: Path) -> None:
    for one in (folder, folder.parent):
        if one.name != "__pycache__":
            check_private(one.stat(), one)
