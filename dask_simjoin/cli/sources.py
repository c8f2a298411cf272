"""Read tables: parquet or CSV, as files, folders, globs and URLs that fsspec supports."""

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
"""Formats by file name ending."""

MAX_HEADER_BYTES = 1 << 16
"""Larger CSV files are assumed to have rows, and are not checked."""

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of compressed files, which cannot be read in parts."""


def read(paths: Sequence[str], kind: str | None = None) -> Frame:
    """Return a lazy frame of concatenated tables; `kind`: their format, by default from their names.

    The command line names rows by a column, so an index in a file becomes a column.
    """
    try:
        found = [path for given in paths for path in files_of(given)]
        kinds = {kind or format_of(path) for path in found}
        if len(kinds) > 1:
            raise click.UsageError(f"{', '.join(paths)} have different formats: {', '.join(sorted(kinds))}.")
        if kinds == {CSV}:
            found = _with_rows(found)
            parts = [_csv(list(some), *how) for how, some in itertools.groupby(found, _written)]
            return parts[0] if len(parts) == 1 else dd.concat(parts)
        return dd.read_parquet(found if len(found) > 1 else found[0], index=False)
    except (OSError, ImportError, ValueError) as error:
        raise click.ClickException(f"{', '.join(paths)} cannot be read: {error}") from error


def format_of(path: str) -> str:
    """Return the format of a path by its ending; a path without a known ending is a parquet folder."""
    return SUFFIXES.get(_suffix(path), PARQUET)


def separator_of(path: str) -> str:
    """Return the column separator of a file by its name."""
    return "\t" if _suffix(path) == ".tsv" else ","


def _written(path: str) -> tuple[str, str]:
    """Return the column separator and the compression of a file."""
    return separator_of(path), next((one for one in PACKED if path.endswith(one)), "")


def _with_rows(paths: list[str]) -> list[str]:
    """Drop files with a header and no rows: their dtypes are unknown."""
    filled: list[str] = []
    bare: dict[str, list[str]] = {}
    for path in paths:
        fs, name = url_to_fs(path)
        size = fs.info(name).get("size")
        head = _head(path) if size is not None and size <= MAX_HEADER_BYTES else None
        if head is not None and not len(head):
            bare[path] = list(head.columns)
        else:
            filled.append(path)
    if not filled:
        raise click.ClickException(
            f"{', '.join(bare)}: the table has a header and no rows, so its dtypes are unknown. Omit this "
            "table, or write it as parquet, which stores dtypes."
        )
    columns = list(_head(filled[0]).columns) if bare else []
    for path, own in bare.items():
        if own != columns:
            raise click.ClickException(
                f"{path} has the columns {', '.join(own)}, but {filled[0]} has {', '.join(columns)}. Tables "
                "to concatenate need the same columns."
            )
    return filled


def _head(path: str) -> Frame:
    """Return the first row of a CSV file, if it has one."""
    try:
        return pd.read_csv(path, sep=separator_of(path), nrows=1)
    except pd.errors.EmptyDataError:
        raise click.ClickException(f"{path} is empty: it has no header.") from None


def _csv(paths: list[str], separator: str, packed: str) -> Frame:
    """Return a lazy frame of similar files; a single name is not treated as a pattern."""
    how = {"sep": separator, "blocksize": None if packed else "default"}
    return dd.read_csv(paths if len(paths) > 1 else paths[0], **how)


def _suffix(path: str) -> str:
    name = PurePosixPath(path)
    return PurePosixPath(name.stem).suffix if name.suffix in PACKED else name.suffix


def files_of(given: str) -> list[str]:
    """Return the files of a path; the error for a word that is not a path mentions options."""
    if not given:
        raise click.UsageError("A table's name is empty; name a file, a folder or a URL.")
    try:
        return _files(given)
    except FileNotFoundError as error:
        word = not PurePosixPath(given).suffix and "/" not in given
        of_option = (
            " (If it belongs to an option: separate columns with commas, as in --on lat,lon. Flags take no "
            "value.)"
        )
        raise click.ClickException(f"{given} cannot be read: {error}{of_option * word}") from error


def _files(given: str) -> list[str]:
    """Return a path itself, or the files of a glob or of a CSV folder."""
    fs, path = url_to_fs(given)
    if any(one in path for one in "*?[") and not fs.exists(path):
        found = sorted(fs.glob(path))
        if not found:
            raise FileNotFoundError("no file matches")
        return [fs.unstrip_protocol(one) for one in found]
    if not fs.exists(path):
        raise FileNotFoundError("no such file or folder")
    if fs.isdir(path):
        files = [one for one in sorted(fs.find(path)) if format_of(one) == CSV]
        if files and not any(_suffix(one) in SUFFIXES and format_of(one) == PARQUET for one in fs.find(path)):
            return [fs.unstrip_protocol(one) for one in files]
    return [given]
