"""Files that are whole or not there: of new names, and on the disk before anything tells of them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.errors import IndexWriteError, OptionError, SimJoinError, VersionGoneError
from dask_simjoin.expressions.worker_memory import is_worker
from dask_simjoin.incremental.types import VERSION

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


def write_table(table: pa.Table, file: BinaryIO, rows: int | None = None) -> None:
    """Write a table as Parquet, in row groups of so many rows.

    Numbers are as they are, since few of them are equal; lz4 is read twice as fast as snappy.
    """
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_nested, pa.types.is_temporal)
    texts = [one.name for one in table.schema if not any(kind(one.type) for kind in plain)]
    encoded = [*texts, *(name for name in REPEATED if name in table.column_names)]
    pq.write_table(table, file, row_group_size=rows, use_dictionary=encoded or False, compression="lz4")


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
    try:
        few = path.stat().st_size <= SMALL and not is_worker()
    except FileNotFoundError:
        raise _gone(path) from None
    table: pa.Table = (_kept if few else read_anew)(path)
    return table


@contextlib.contextmanager
def parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file of Parquet, whose bytes come into memory of the pool that is set; refuses one that went."""
    try:
        opened = pa.OSFile(str(path))
    except FileNotFoundError:
        raise _gone(path) from None
    with opened as source, pq.ParquetFile(source) as file:
        yield file


def _gone(path: Path) -> VersionGoneError:
    return VersionGoneError(
        f"{str(path)!r} is not there: vacuum(), or components() of newer versions, removed it, or this "
        "machine does not see the folder. Ask again, of a version that history() names; vacuum(keep=...) "
        "keeps more of them."
    )


def read_groups(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str] | None = None
) -> pa.Table:
    """Read row groups of a file; on a worker without Arrow's threads, each of which keeps what it freed."""
    return file.read_row_groups(list(groups), columns=columns, use_threads=not is_worker())


def read_anew(path: Path) -> pa.Table:
    """Read a file of Parquet; refuses one that went."""
    with parquet(path) as file:
        return read_groups(file, range(file.num_row_groups))


_kept = functools.lru_cache(KNOWN)(read_anew)


def sync_folder(path: Path) -> None:
    """Wait until the disk knows the names of the files in a folder."""
    with writing(path):
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
