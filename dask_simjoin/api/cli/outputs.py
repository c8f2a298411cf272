"""Decide what an output may replace: a file that is named, or a folder that this program wrote."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from typing import Any

import click
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from dask_simjoin.api.cli.sources import files_of

MARK = "_dask_simjoin"
"""An empty file in each folder that this program writes: some readers skip its name, others empty files."""

PART = re.compile(r"part\.\d+\.(parquet|csv)")
"""Names of the other files."""


def located(output: str) -> tuple[Any, str]:
    """The file system and the path of an output, where links lead; refuses what names none."""
    if not output:
        raise click.UsageError("--output is empty; name a file or a folder.")
    if output == "-":
        raise click.UsageError(
            "--output - is not allowed: nothing is written to the standard output; name a file, or ./- for "
            "a folder called so."
        )
    if "\0" in output:
        raise click.UsageError(f"--output {output!r} is not allowed: a path has no null character.")
    if output.startswith("~") and os.path.expanduser(output) == output:
        user = output[1:].partition("/")[0]
        raise click.UsageError(
            f"--output {output} is not allowed: no user is called {user!r}; write ./{output} for a folder "
            "called so."
        )
    fs, path = url_to_fs(output)
    return fs, _real(fs, path)


def check_apart(path: str, output: str, tables: Sequence[str], there: bool, index: str | None) -> None:
    """Refuse an output that would replace what is read, and any in the folder of an index.

    Parameters
    ----------
    path, output : str
        Where it is, and how it was named.
    tables : sequence of str
        What is read.
    there : bool
        Whether there is something at `path`.
    index : str, optional
        The folder of an index.
    """
    read = [_real(*url_to_fs(each)) for given in tables for each in files_of(given)]
    lost = there and any(_within(name, path) or _within(path, name) for name in read)
    if lost or (index is not None and _within(path, _real(*url_to_fs(index)))):
        raise click.UsageError(f"{output} is what is read, or a part of it; name another output.")


def check_replaceable(fs: Any, path: str, output: str, single: bool) -> None:
    """Refuse to replace what is at a path, unless it is one file for another, or a folder for its like."""
    if isinstance(fs, LocalFileSystem) and any(_within(os.path.realpath(one), path) for one in _of_use()):
        raise click.UsageError(
            f"{output} is your home, the folder that you work in, or one above; name another output."
        )
    if fs.isfile(path):
        if not single:
            raise click.UsageError(
                f"{output} is a file, and a folder would be written; remove it yourself, or name another."
            )
        return
    if not fs.isdir(path):
        raise click.UsageError(f"{output} is neither a file nor a folder; name another output.")
    if single:
        raise click.UsageError(
            f"{output} is a folder, and one file would be written; remove it yourself, or name another."
        )
    _check_ours(fs, path)


def _check_ours(fs: Any, path: str) -> None:
    """Refuse a folder with anything in it that this program did not write."""
    found = {posixpath.basename(one["name"]): one for one in fs.ls(path, detail=True)}
    if not found:
        return
    marked = _is_mark(found.pop(MARK, {}))
    foreign = [
        name for name, one in sorted(found.items()) if one["type"] != "file" or not PART.fullmatch(name)
    ]
    if foreign or not marked:
        why = f"it has {foreign[0]!r} in it" if foreign else f"it has no file {MARK}"
        raise click.UsageError(
            f"{path} was not written by dask-simjoin alone, as {why}, and --overwrite replaces nothing else; "
            "remove it yourself, or name another output."
        )


def _is_mark(file: dict[str, Any]) -> bool:
    return file.get("type") == "file" and file["size"] == 0


def _of_use() -> list[str]:
    """The folders that nobody wants to lose."""
    return [os.getcwd(), os.path.expanduser("~")]


def _real(fs: Any, path: str) -> str:
    """A path without links and dots."""
    return os.path.realpath(path) if isinstance(fs, LocalFileSystem) else posixpath.normpath(path)


def _within(path: str, folder: str) -> bool:
    """Whether a path is a folder, or in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
