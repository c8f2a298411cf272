"""Files that are whole or not there: of new names, and on the disk before anything tells of them."""

from __future__ import annotations

import contextlib
import functools
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.errors import OptionError
from dask_simjoin.expressions.worker_memory import is_worker
from dask_simjoin.incremental.checked import DIGITS, CheckedFile, SummedFile, is_checked
from dask_simjoin.incremental.damage import told_of
from dask_simjoin.incremental.types import VERSION

FOLDERS = ("_versions", "rows", "boxes", "deleted", "keys")
"""What an index has: manifests, rows, their boxes, deletions, keys of ids."""

PAIRS = "pairs"
"""What it has besides, if pairs are stored."""


REPEATED = (VERSION,)
"""Columns of numbers of which many are equal."""

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


def write_named(folder: Path, write: Callable[[SummedFile], object], first: str = "") -> tuple[str, int]:
    """Write a file that is named by its checksum, and wait until the disk has it; tells its name and bytes.

    `first`: what its name begins with, by default 16 random digits.
    """
    checksum = 0

    def summed(file: BinaryIO) -> None:
        nonlocal checksum
        own = SummedFile(file)
        write(own)
        checksum = own.checksum

    folder.mkdir(exist_ok=True)  # copies of an index may lack folders that were empty
    temporary = folder / f".{new_name('tmp')}"
    size = write_new(temporary, summed)
    name = f"{first or uuid.uuid4().hex[:DIGITS]}-{checksum:0{DIGITS}x}.parquet"
    temporary.rename(folder / name)
    return name, size


def write_new(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write a file that is not there yet, and wait until the disk has it; tells its bytes."""
    with open(path, "xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


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
    path.mkdir(exist_ok=True)
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def publish(path: Path, content: bytes) -> bool:
    """Make a file appear as a whole under a name, unless there is one: then it tells False.

    The name is made by a link, which only one of several writers can make; a rename would replace what
    another one has written.
    """
    temporary = path.with_name(f".{new_name('tmp')}")
    write_new(temporary, lambda file: file.write(content))
    try:
        made = _link(temporary, path)
    finally:
        os.unlink(temporary)
    if made:
        sync_folder(path.parent)
    return made


def check_links(folder: Path) -> None:
    """Refuse a file system on which links cannot be made."""
    first, second = (folder / f".{new_name('tmp')}" for _ in range(2))
    write_new(first, lambda file: None)
    try:
        os.link(first, second)
        os.unlink(second)
    except OSError as error:
        raise OptionError(
            f"path={str(folder.parent)!r} is on a file system without hard links ({error.strerror}), by "
            "which of two writers one wins; use a folder on another one that all workers share."
        ) from None
    finally:
        os.unlink(first)


def _link(temporary: Path, path: Path) -> bool:
    try:
        os.link(temporary, path)
    except FileExistsError:
        # the answer of a file system in a network may have got lost, and the question been asked again
        return os.stat(temporary).st_nlink > 1
    return True
