"""Read tables: parquet or CSV, as files, folders, globs and URLs that fsspec knows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import PurePosixPath

import click
import dask.dataframe as dd
import pandas as pd
from fsspec.core import url_to_fs

from dask_simjoin.metrics.norms import Frame

PARQUET, CSV = FORMATS = ("parquet", "csv")

SUFFIXES = {".parquet": PARQUET, ".parq": PARQUET, ".pq": PARQUET, ".csv": CSV, ".tsv": CSV, ".txt": CSV}
"""What names of files end in."""

HEADER = 1 << 16
"""Bytes that a file of a header only has at most: larger ones are not looked into."""

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of files that are read as a whole."""


def read(paths: Sequence[str], kind: str | None = None) -> Frame:
    """A lazy frame of tables that follow each other; `kind`: their format, else told by their names.

    Rows are named by columns, so an index that a file keeps is one.
    """
    try:
        found = [path for given in paths for path in files_of(given)]
        kinds = {kind or format_of(path) for path in found}
        if len(kinds) > 1:
            raise click.UsageError(f"{', '.join(paths)} are of several formats: {', '.join(sorted(kinds))}.")
        if kinds == {CSV}:
            found = _with_rows(found)
            parts = [_csv(list(some), *how) for how, some in itertools.groupby(found, _written)]
            return parts[0] if len(parts) == 1 else dd.concat(parts)
        return dd.read_parquet(found if len(found) > 1 else found[0], index=False)
    except (OSError, ImportError, ValueError) as error:
        raise click.ClickException(f"{', '.join(paths)} cannot be read: {error}") from error


def format_of(path: str) -> str:
    """The format that a path's name tells of; without one it is a folder of parquet."""
    return SUFFIXES.get(_suffix(path), PARQUET)


def separator_of(path: str) -> str:
    """What parts the columns of a file of that name."""
    return "\t" if _suffix(path) == ".tsv" else ","


def _written(path: str) -> tuple[str, str]:
    """How a file was written: what parts its columns, and how it is packed."""
    return separator_of(path), next((one for one in PACKED if path.endswith(one)), "")


def _with_rows(paths: list[str]) -> list[str]:
    """Leave out files of a header and no rows: they tell nothing of what columns hold, and add nothing."""
    filled: list[str] = []
    bare: dict[str, list[str]] = {}
    for path in paths:
        fs, name = url_to_fs(path)
        size = fs.info(name).get("size")
        head = _head(path) if size is not None and size <= HEADER else None
        if head is not None and not len(head):
            bare[path] = list(head.columns)
        else:
            filled.append(path)
    if not filled:
        raise click.ClickException(
            f"{', '.join(bare)}: there is a header and no row, so what the columns hold is not known; leave "
            "this table out, or write it as parquet, which tells."
        )
    columns = list(_head(filled[0]).columns) if bare else []
    for path, own in bare.items():
        if own != columns:
            raise click.ClickException(
                f"{path} has the columns {', '.join(own)}, and {filled[0]} has {', '.join(columns)}; tables "
                "that follow each other have the same columns."
            )
    return filled


def _head(path: str) -> Frame:
    """The first row of a file of CSV, if it has one."""
    try:
        return pd.read_csv(path, sep=separator_of(path), nrows=1)
    except pd.errors.EmptyDataError:
        raise click.ClickException(f"{path} is empty: it has not even a header.") from None


def _csv(paths: list[str], separator: str, packed: str) -> Frame:
    """A lazy frame of files that were written alike; of one its name is no pattern."""
    how = {"sep": separator, "blocksize": None if packed else "default"}
    return dd.read_csv(paths if len(paths) > 1 else paths[0], **how)


def _suffix(path: str) -> str:
    name = PurePosixPath(path)
    return PurePosixPath(name.stem).suffix if name.suffix in PACKED else name.suffix


def files_of(given: str) -> list[str]:
    """The files of a path; of what is none, as a word that belongs to an option is, it says so."""
    if not given:
        raise click.UsageError("A table's name is empty; name a file, a folder or a URL.")
    try:
        return _files(given)
    except FileNotFoundError as error:
        word = not PurePosixPath(given).suffix and "/" not in given
        of_option = (
            " (if it belongs to an option: columns are separated by commas, as in --on lat,lon, and flags "
            "take no value)"
        )
        raise click.ClickException(f"{given} cannot be read: {error}{of_option * word}") from error


def _files(given: str) -> list[str]:
    """What a path stands for: itself, or the files of a glob or of a folder of CSV."""
    fs, path = url_to_fs(given)
    if any(one in path for one in "*?[") and not fs.exists(path):
        found = sorted(fs.glob(path))
        if not found:
            raise FileNotFoundError("no file is called so")
        return [fs.unstrip_protocol(one) for one in found]
    if not fs.exists(path):
        raise FileNotFoundError("there is no such file or folder")
    if fs.isdir(path):
        files = [one for one in sorted(fs.find(path)) if format_of(one) == CSV]
        if files and not any(_suffix(one) in SUFFIXES and format_of(one) == PARQUET for one in fs.find(path)):
            return [fs.unstrip_protocol(one) for one in files]
    return [given]
