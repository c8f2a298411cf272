"""Read tables: parquet or CSV, from files, folders and URLs that fsspec supports."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

import click
import dask.dataframe as dd
import numpy as np
import pandas as pd
from fsspec.core import url_to_fs

from dask_simjoin.metrics.norms import Frame

PARQUET, CSV = FORMATS = ("parquet", "csv")

SUFFIXES = {".parquet": PARQUET, ".parq": PARQUET, ".pq": PARQUET, ".csv": CSV, ".tsv": CSV, ".txt": CSV}

MAX_HEADER_BYTES = 1 << 16
"""A CSV file is checked for rows only up to this size in bytes. A larger file is more than a header."""

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of compressed files; pandas and Dask must read such a file from its start."""


def read(paths: Sequence[str], kind: str | None = None) -> Frame:
    """Read tables as one lazy frame. `kind`: their format; None: decide by their names.

    An index that pandas stored in a file is not kept as an index but becomes a column, since options name
    columns.
    """
    try:
        found = [path for given in paths for path in files_of(given)]
        kinds = {kind or format_of(path) for path in found}
        if len(kinds) > 1:
            raise click.UsageError(f"{', '.join(paths)} have different formats: {', '.join(sorted(kinds))}.")
        if kinds == {CSV}:
            found = _without_empty(found)
            dtypes = _common_dtypes(found)
            parts = [_csv(list(some), *how, dtypes) for how, some in itertools.groupby(found, _written)]
            return parts[0] if len(parts) == 1 else dd.concat(parts)
        return dd.read_parquet(found if len(found) > 1 else found[0], index=False)
    except (OSError, ImportError, ValueError) as error:
        raise click.ClickException(f"{', '.join(paths)} cannot be read: {error}") from error


def format_of(path: str) -> str:
    """Return the format that a path's ending stands for; for an unknown ending, assume a folder of parquet
    files.
    """
    return SUFFIXES.get(_suffix(path), PARQUET)


def separator_of(path: str) -> str:
    return "\t" if _suffix(path) == ".tsv" else ","


def _written(path: str) -> tuple[str, str]:
    """Return separator and compression of a CSV file, by its name; "" if it is not compressed."""
    return separator_of(path), next((one for one in COMPRESSED if path.endswith(one)), "")


def _without_empty(paths: list[str]) -> list[str]:
    """Drop CSV files that have a header but no rows: without values, their dtypes would be wrong."""
    filled: list[str] = []
    bare: dict[str, list[str]] = {}
    for path in paths:
        fs, name = url_to_fs(path)
        size = fs.info(name).get("size")
        head = _first_rows(path) if size is not None and size <= MAX_HEADER_BYTES else None
        if head is not None and not len(head):
            bare[path] = list(head.columns)
        else:
            filled.append(path)
    if not filled:
        raise click.ClickException(
            f"{', '.join(bare)}: the table has a header and no rows, so its dtypes are unknown. Omit this "
            "table, or write it as parquet, which stores dtypes."
        )
    columns = list(_first_rows(filled[0]).columns) if bare else []
    for path, own in bare.items():
        if own != columns:
            raise click.ClickException(
                f"{path} has the columns {', '.join(own)}, but {filled[0]} has {', '.join(columns)}. Tables "
                "to concatenate need the same columns."
            )
    return filled


def _first_rows(path: str, rows: int = 1) -> Frame:
    try:
        return pd.read_csv(path, sep=separator_of(path), nrows=rows)
    except pd.errors.EmptyDataError:
        raise click.ClickException(f"{path} is empty: it has no header.") from None


HEAD_ROWS = 5_000
"""Number of rows of each CSV file that decide dtypes. Dask would look at the first file only."""

MAX_EXACT = 2**53
"""float64 represents every integer exactly up to this one."""


def _common_dtypes(paths: list[str]) -> dict[str, Any]:
    """For columns whose dtypes differ between CSV files, return a dtype for all files: float64 if exact, else
    text.
    """
    if len(paths) < 2:
        return {}
    with ThreadPoolExecutor() as threads:
        heads = list(threads.map(lambda path: _first_rows(path, HEAD_ROWS), paths))
    found: dict[str, Any] = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(heads)):
        columns = [head[name] for head in heads if name in head.columns]
        if len({column.dtype for column in columns}) > 1:
            found[name] = np.float64 if all(map(_is_exact, columns)) else str
    return found


def _is_exact(column: pd.Series) -> bool:
    """Return whether a column holds numbers that float64 represents exactly."""
    if column.dtype.kind not in "iu":
        return bool(column.dtype.kind == "f")
    return not len(column) or max(-int(column.min()), int(column.max())) <= MAX_EXACT


def _csv(paths: list[str], separator: str, packed: str, dtypes: dict[str, Any]) -> Frame:
    """Read CSV files with the same separator and compression. A single path is not passed as a list, since
    Dask would then treat it as a pattern.
    """
    how = {"sep": separator, "blocksize": None if packed else "default", "dtype": dtypes}
    return dd.read_csv(paths if len(paths) > 1 else paths[0], **how)


def _suffix(path: str) -> str:
    name = PurePosixPath(path)
    return PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix


def files_of(given: str) -> list[str]:
    """Return the files that a path, glob or folder on the command line stands for.

    If no file exists, the error also says how options take several values: the path may be a misplaced value.
    """
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
    """Return the files of a glob or of a folder of CSV files; any other path stands for itself."""
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
