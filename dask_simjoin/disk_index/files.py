"""Atomic files: unique names, synced to disk before any manifest names them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.disk_index.checksums import DIGITS, CheckedFile, SummedFile, is_checked, told_of
from dask_simjoin.disk_index.types import VERSION
from dask_simjoin.errors import IndexWriteError, OptionError, SimJoinError
from dask_simjoin.graph.workers import is_worker


def cut_parts(rows: np.ndarray, most: int) -> list[np.ndarray]:
    """Cut what has so many rows each, in its order, into parts of at most `most` rows: their numbers."""
    parts: list[np.ndarray] = []
    start, total = 0, 0
    for number, size in enumerate(rows.tolist()):
        if number > start and total + size > most:
            parts.append(np.arange(start, number))
            start, total = number, 0
        total += size
    if start < len(rows):
        parts.append(np.arange(start, len(rows)))
    return parts


FOLDERS = ("_versions", "rows", "boxes", "deleted", "keys")
"""What an index has: manifests, rows, their boxes, deletions, keys of ids."""

PAIRS = "pairs"
"""What it has besides, if pairs are stored."""


REPEATED = (VERSION,)
"""Columns of numbers of which many are equal."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a disk that is full, or of a user's share of it."""

KNOWN, SMALL = 1024, 1 << 16
"""How many files' contents are kept, those of boxes and deletions of updates, and bytes of the largest."""


def new_name(ending: str = "parquet") -> str:
    """Make a name that no other file has."""
    return f"{uuid.uuid4().hex}.{ending}"


def write_table(table: pa.Table, file: SummedFile, rows: int | None = None) -> None:
    """Write a table as Parquet, in row groups of so many rows.

    Numbers are as they are, since few of them are equal.
    """
    write_tables([table], file, table.schema, encoded(table.schema), rows)


def encoded(schema: pa.Schema) -> list[str]:
    """List the columns of which a dictionary is made."""
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_nested, pa.types.is_temporal)
    texts = [one.name for one in schema if not any(kind(one.type) for kind in plain)]
    return [*texts, *(name for name in REPEATED if name in schema.names)]


def write_tables(tables: Iterable[pa.Table], file: SummedFile, schema: pa.Schema, columns: Sequence[str],
                 rows: int | None = None) -> None:  # fmt: skip
    """Write tables as one file of Parquet; `columns`: those of which a dictionary is made.

    Lz4 is read twice as fast as snappy.
    """
    how = {"compression": "lz4", "use_dictionary": list(columns) or False}
    with pq.ParquetWriter(file, schema, **how) as writer:
        for table in tables:
            writer.write_table(table, rows)
        file.end_rows()


def write_named(folder: Path, write: Callable[[SummedFile], object], first: str) -> tuple[str, int]:
    """Write a file that is named by its checksum, and wait until the disk has it; tells its name and bytes.

    `first`: what its name begins with.
    """
    checksum = 0

    def summed(file: BinaryIO) -> None:
        nonlocal checksum
        own = SummedFile(file)
        write(own)
        checksum = own.checksum

    folder.mkdir(exist_ok=True)  # copies of an index may lack folders that were empty
    temporary = folder / f".{first}-{new_name('tmp')}"
    size = write_new(temporary, summed)
    name = f"{first}-{checksum:0{DIGITS}x}.parquet"
    temporary.rename(folder / name)
    return name, size


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of errors where they were, and what helps."""
    try:
        yield
    except SimJoinError:
        raise
    except OSError as error:
        raise IndexWriteError(
            error.errno or 0,
            f"{str(path)!r} cannot be written: {error.strerror or error}. Free disk, or mend that, "
            "and do the same again: an update with a batch= is never taken in twice.",
        ) from error


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write a file that is not there yet, and wait until the disk has it; tells its bytes.

    If that fails nothing is left.
    """
    with writing(path), open(path, "xb") as file:
        try:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            return file.tell()
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise


def read_whole(path: Path) -> pa.Table:
    """Read a file of Parquet; files never change, and so the last small ones are kept, but by no worker."""
    with told_of(path, is_checked(path)):
        few = path.stat().st_size <= SMALL and not is_worker()
    table: pa.Table = (_kept if few else read_anew)(path)
    return table


@contextlib.contextmanager
def parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file of Parquet, whose bytes come into memory of the pool that is set; refuses damaged ones.

    Files of older versions of this package have no checksums, and are taken as they are.
    """
    checked = is_checked(path)
    with told_of(path, checked):
        own = CheckedFile(path) if checked else None
        opened = pa.OSFile(str(path)) if own is None else pa.PythonFile(own, mode="r")
        known = None if own is None else own.ending.metadata
        with opened as source, pq.ParquetFile(source, metadata=known, pre_buffer=False) as file:
            yield file


def read_groups(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str] | None = None
) -> pa.Table:
    """Read row groups of a file, without Arrow's threads.

    Each of those keeps what it freed, and takes longer to call what verifies a chunk than that takes.
    """
    return file.read_row_groups(list(groups), columns=columns, use_threads=False)


def read_anew(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file of Parquet, all columns or some."""
    with parquet(path) as file:
        return read_groups(file, range(file.num_row_groups), columns)


_kept = functools.lru_cache(KNOWN)(read_anew)


def listed(folder: Path) -> list[Path]:
    """List what is in a folder; one that is missing, as empty ones are in some copies, has nothing in it."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_folder(path: Path) -> None:
    """Wait until the disk knows the names of the files in a folder."""
    with writing(path):
        path.mkdir(exist_ok=True)
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def check_links(folder: Path) -> None:
    """Refuse a file system on which links cannot be made."""
    first, second = (folder / f".{new_name('tmp')}" for _ in range(2))
    write_new(first, lambda file: None)
    try:
        os.link(first, second)
    except OSError as error:
        if error.errno in FULL:
            with writing(second):
                raise
        raise OptionError(
            f"path={str(folder.parent)!r} is on a file system without hard links ({error.strerror}), by "
            "which of two writers one wins; use a folder on another one that all workers share."
        ) from None
    finally:
        for path in (first, second):
            path.unlink(missing_ok=True)
