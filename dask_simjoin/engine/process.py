"""Resources of this process: threads, the garbage collector, and files that only its user can write.

Code is loaded from such files only. The open file, its folder and the folder above are checked. This package
makes both folders. Folders above these two may be open to all, like /tmp: a folder that another user makes
there belongs to that user. ``__pycache__`` is not checked: whoever can write there can change the package.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")

LEAST_NUMBERS = 1 << 18
"""Minimum number of numbers per thread: for fewer numbers, starting a thread takes longer than it saves."""

LEAST = 1 << 16
"""Minimum number of items per thread, by default."""


def numbers_apart(dims: int) -> int:
    """Return the minimum number of points in `dims` dimensions for each thread."""
    return max(1, min(LEAST, LEAST_NUMBERS // max(1, dims)))


def together(calls: Sequence[Callable[[], Made]]) -> list[Made]:
    """Run calls concurrently, the first in this thread; return their results."""
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls) - 1) as helpers:
        others = [helpers.submit(call) for call in calls[1:]]
        return [calls[0](), *(other.result() for other in others)]


def shared_out(work: Callable[[int, int], Made], n: int, threads: int, grain: int = 1,
               min_items: int | None = None) -> list[Made]:  # fmt: skip
    """Call `work(start, stop)` concurrently for parts of n items that begin at multiples of `grain`.

    `min_items`: minimum number of items for each thread; None: `LEAST`. Return the results.
    """
    number = max(1, min(threads, n // (LEAST if min_items is None else min_items)))
    cuts = [min(round(n * k / number / grain) * grain, n) for k in range(number)]
    parts = [(a, b) for a, b in itertools.pairwise([*cuts, n]) if b > a] or [(0, n)]
    return together([functools.partial(work, *part) for part in parts])


@contextlib.contextmanager
def not_collecting() -> Iterator[None]:
    """Disable Python's garbage collector for a while.

    The collector scans all objects of all modules repeatedly and frees little. These scans take half of the
    time to load Numba, and a seventh of the time to compile.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
