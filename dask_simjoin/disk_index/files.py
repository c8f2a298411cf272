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

from dask_simjoin.disk_index.checksums import DIGITS, CheckedFile, SummedFile, is_checked, reading
from dask_simjoin.disk_index.types import VERSION
from dask_simjoin.errors import IndexFormatError, IndexWriteError, OptionError, SimJoinError
from dask_simjoin.graph.workers import is_worker


def cut_parts(rows: np.ndarray, max_rows: int) -> list[np.ndarray]:
    """Group consecutive items of `rows` rows into parts of at most `max_rows` rows; return their indexes."""
    parts: list[np.ndarray] = []
    start, total = 0, 0
    for number, size in enumerate(rows.tolist()):
        if number > start and total + size > max_rows:
            parts.append(np.arange(start, number))
            start, total = number, 0
        total += size
    if start < len(rows):
        parts.append(np.arange(start, len(rows)))
    return parts


FOLDERS = ("_versions", "rows", "boxes", "deleted", "keys")
"""Folders of an index: manifests, rows, boxes, deletions, keys of ids."""

PAIRS = "pairs"
"""The folder of stored pairs, if there are any."""


REPEATED = (VERSION,)
"""Numeric columns with many equal values."""

FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk or an exceeded quota."""

KNOWN, SMALL = 1024, 1 << 16
"""Number of cached small files (boxes and deletions of updates), and the largest size in bytes."""


def new_name(ending: str = "parquet") -> str:
    """Return a unique file name."""
    return f"{uuid.uuid4().hex}.{ending}"


def write_table(table: pa.Table, file: SummedFile, rows: int | None = None) -> None:
    """Write a table as Parquet, in row groups of `rows` rows.

    Numbers have no dictionary, since few of them are equal.
    """
    write_tables([table], file, table.schema, encoded(table.schema), rows)


def encoded(schema: pa.Schema) -> list[str]:
    """List the columns that get a dictionary."""
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_nested, pa.types.is_temporal)
    texts = [one.name for one in schema if not any(kind(one.type) for kind in plain)]
    return [*texts, *(name for name in REPEATED if name in schema.names)]


def write_tables(tables: Iterable[pa.Table], file: SummedFile, schema: pa.Schema, columns: Sequence[str],
                 rows: int | None = None) -> None:  # fmt: skip
    """Write tables as one Parquet file; `columns`: the columns that get a dictionary.

    Reading LZ4 is twice as fast as reading Snappy.
    """
    how = {"compression": "lz4", "use_dictionary": list(columns) or False}
    with pq.ParquetWriter(file, schema, **how) as writer:
        for table in tables:
            writer.write_table(table, rows)
        file.end_rows()


def write_named(folder: Path, write: Callable[[SummedFile], object], first: str) -> tuple[str, int]:
    """Write and sync a file that is named by its checksum; return its name and bytes.

    `first`: the beginning of its name.
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
    """Raise errors of writing with the name of the file, and a remedy."""
    try:
        yield
    except SimJoinError:
        raise
    except OSError as error:
        raise IndexWriteError(
            error.errno or 0,
            f"{str(path)!r} cannot be written: {error.strerror or error}. Free disk space, or repair it, "
            "and do the same again: an update with a batch= is never applied twice.",
        ) from error


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write and sync a new file; return its bytes.

    Nothing is left after a failure.
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
    """Read a Parquet file; small ones are cached, as files never change, but not on workers."""
    with reading(path, is_checked(path)):
        few = path.stat().st_size <= SMALL and not is_worker()
    table: pa.Table = (_kept if few else read_anew)(path)
    return table


@contextlib.contextmanager
def parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file, whose bytes are read into the current memory pool; refuses damaged files.

    Files of older versions of this package have no checksums, and are not verified.
    """
    checked = is_checked(path)
    with reading(path, checked):
        own = CheckedFile(path) if checked else None
        opened = pa.OSFile(str(path)) if own is None else pa.PythonFile(own, mode="r")
        known = None if own is None else own.ending.metadata
        with opened as source, pq.ParquetFile(source, metadata=known, pre_buffer=False) as file:
            yield file


def read_groups(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str] | None = None
) -> pa.Table:
    """Read row groups of a file, without Arrow's threads.

    Arrow's threads keep freed memory, and calling back into the verification costs more than it saves.
    """
    return file.read_row_groups(list(groups), columns=columns, use_threads=False)


def read_anew(path: Path, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a Parquet file, all columns or some, past the cache."""
    with parquet(path) as file:
        return read_groups(file, range(file.num_row_groups), columns)


_kept = functools.lru_cache(KNOWN)(read_anew)


def listed(folder: Path) -> list[Path]:
    """List the files of a folder; a missing folder is empty, as in some copies."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_folder(path: Path) -> None:
    """Sync the names of the files in a folder."""
    with writing(path):
        path.mkdir(exist_ok=True)
        number = os.open(path, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def check_written(path: Path, size: int, rows: int, name: str) -> None:
    """Refuse a file that differs from the report of the task that wrote it; `name`: of its rows."""
    try:
        found = pq.read_metadata(path).num_rows if path.stat().st_size == size else -1
    except (OSError, ValueError):
        found = -1
    if found != rows:
        raise IndexFormatError(
            f"A worker wrote {rows:,} {name} to {str(path)!r}, but this process does not see that file "
            "as it was written. All workers and this process must share the folder."
        )


def check_links(folder: Path) -> None:
    """Refuse a file system without hard links."""
    first, second = (folder / f".{new_name('tmp')}" for _ in range(2))
    write_new(first, lambda file: None)
    try:
        os.link(first, second)
    except OSError as error:
        if error.errno in FULL:
            with writing(second):
                raise
        raise OptionError(
            f"path={str(folder.parent)!r} is on a file system without hard links ({error.strerror}). The "
            "index needs them to order its writers; use another file system that all workers share."
        ) from None
    finally:
        for path in (first, second):
            path.unlink(missing_ok=True)
