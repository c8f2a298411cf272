"""Write and read the files of an index, and call functions on workers.

Each file has a new name, and is synced to disk before a manifest lists it. So readers
see only complete files.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, cast

import dask
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.disk_index.checksums import (
    DIGITS,
    ChecksumWriter,
    VerifiedFile,
    is_checked,
    reading,
)
from dask_simjoin.disk_index.disks import check_folder, check_regular, paths_in
from dask_simjoin.disk_index.folders import write_new, writing
from dask_simjoin.disk_index.stores import AnyPath, ObjectPath
from dask_simjoin.disk_index.types import VERSION
from dask_simjoin.errors import IndexFormatError, IndexStoreError
from dask_simjoin.graph.dask_private import Task
from dask_simjoin.graph.source import gather
from dask_simjoin.graph.workers import is_worker, on_worker
from dask_simjoin.sizes import SPARE_BYTES


def cut_parts(rows: np.ndarray, max_rows: int) -> list[np.ndarray]:
    """Group consecutive items into parts of at most `max_rows` rows. Return the indexes
    of the items in each part.

    `rows`: number of rows in each item. An item with more than `max_rows` rows becomes
    a part of its own.
    """
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


def call_on_workers(
    name: str,
    function: Callable[..., Any],
    arguments: Iterable[tuple[Any, ...]],
    graph: Mapping[Any, Any] = MappingProxyType({}),
) -> list[Any]:
    """Call a function on workers, in one task per tuple of arguments. Return the
    results.

    `graph`: tasks whose results the arguments refer to.
    """
    token, tasks = uuid.uuid4().hex, {}
    for n, some in enumerate(arguments):
        key = f"{name}-{token}", n
        tasks[key] = Task(key, on_worker, function, *some)
    return gather({**graph, **tasks}, list(tasks))


FOLDERS = ("_versions", "rows", "boxes", "deleted", "keys")
"""Folders of an index, for: manifests, rows, boxes of row groups, deletions, and keys
of ids.
"""

PAIRS = "pairs"
"""Folder for stored pairs. It exists only if the index stores pairs."""

COMPONENTS = "components"
"""Folder for connected components. It exists once they were computed."""

EVERY_FOLDER = (*FOLDERS, PAIRS, COMPONENTS)

REPEATED = (VERSION,)
"""Numeric columns with many equal values. Parquet stores them by a dictionary."""

CACHED_FILES, SMALL = 1024, 1 << 16
"""At most this many small files are cached, such as the boxes and deletions of updates.
Small means: up to this size in bytes.
"""


def write_table(table: pa.Table, file: ChecksumWriter, rows: int | None = None) -> None:
    """Write a table as Parquet, in row groups of `rows` rows.

    Numeric columns are stored without Parquet's dictionaries, because few of their
    values are equal.
    """
    write_tables([table], file, table.schema, encoded(table.schema), rows)


def encoded(schema: pa.Schema) -> list[str]:
    """List the columns that Parquet stores by a dictionary."""
    plain = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_nested,
        pa.types.is_temporal,
    )
    texts = [one.name for one in schema if not any(kind(one.type) for kind in plain)]
    return [*texts, *(name for name in REPEATED if name in schema.names)]


def write_tables(
    tables: Iterable[pa.Table],
    file: ChecksumWriter,
    schema: pa.Schema,
    columns: Sequence[str],
    rows: int | None = None,
) -> None:
    """Write tables as one Parquet file. `columns`: the columns to store by a
    dictionary.

    The compression is LZ4, because it is read twice as fast as Snappy.
    """
    how = {"compression": "lz4", "use_dictionary": list(columns) or False}
    with pq.ParquetWriter(file, schema, **how) as writer:
        for table in tables:
            writer.write_table(table, rows)
        file.end_rows()


def write_named(
    folder: AnyPath, write: Callable[[ChecksumWriter], object], first: str
) -> tuple[str, int]:
    """Write and sync a file named ``<first>-<checksum>.parquet``; return its name and
    its size in bytes.
    """
    checksum = 0

    def summed(file: BinaryIO) -> None:
        nonlocal checksum
        own = ChecksumWriter(file)
        write(own)
        checksum = own.checksum

    def named() -> str:
        return f"{first}-{checksum:0{DIGITS}x}.parquet"

    if isinstance(folder, ObjectPath):
        # None means the system's folder for temporary files
        scratch = dask.config.get("temporary-directory", None)
        with (
            writing(folder),
            tempfile.SpooledTemporaryFile(SPARE_BYTES, dir=scratch) as file,
        ):
            spooled = cast(BinaryIO, file)
            summed(spooled)
            size = spooled.tell()
            spooled.seek(0)
            (folder / named()).put(spooled)
        return named(), size
    check_folder(folder)
    # the folder may be missing in a copy of an index, if it was empty
    with writing(folder):
        folder.mkdir(exist_ok=True)
    temporary = folder / f".{first}-{uuid.uuid4().hex}.tmp"
    size = write_new(temporary, summed)
    with writing(temporary):
        temporary.rename(folder / named())
    return named(), size


def read_file(path: AnyPath) -> pa.Table:
    """Read a Parquet file. Files never change, so small ones are cached, except on
    workers.
    """
    with reading(path, is_checked(path)):
        size = path.stat().st_size if isinstance(path, Path) else _size(path)
        few = size <= SMALL and not is_worker()
    table: pa.Table = (_kept if few else read_anew)(path)
    return table


@functools.lru_cache(CACHED_FILES)
def _size(path: ObjectPath) -> int:
    """Return the bytes of an object. They are cached, because objects never change, and
    requests to a store are slow.
    """
    return path.stat().st_size


@contextlib.contextmanager
def parquet(path: AnyPath) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file. Its bytes are read into Arrow's current memory pool; damage
    raises an error.

    Files that older releases of this package wrote have no checksums, so they are not
    verified. For an object in a store, reads are combined into few requests.
    """
    checked, remote = is_checked(path), isinstance(path, ObjectPath)
    with reading(path, checked):
        own = VerifiedFile(path) if checked else None
        known = None if own is None else own.ending.metadata
        with (
            _source(path, own) as source,
            pq.ParquetFile(source, metadata=known, pre_buffer=remote) as file,
        ):
            yield file


def _source(path: AnyPath, own: VerifiedFile | None) -> pa.NativeFile:
    if own is not None:
        return pa.PythonFile(own, mode="r")
    if not isinstance(path, Path):
        return pa.BufferReader(path.read_bytes())
    check_regular(path)
    return pa.OSFile(str(path))


def read_groups(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str] | None = None
) -> pa.Table:
    """Read row groups of a file, without using Arrow's threads.

    Arrow's threads keep freed memory. They would also have to call Python to verify
    bytes, which takes more time than the threads save.
    """
    return file.read_row_groups(list(groups), columns=columns, use_threads=False)


def read_anew(path: AnyPath, columns: Sequence[str] | None = None) -> pa.Table:
    """Read all or some columns of a Parquet file, bypassing the cache."""
    with parquet(path) as file:
        return read_groups(file, range(file.num_row_groups), columns)


_kept = functools.lru_cache(CACHED_FILES)(read_anew)


def listed(folder: AnyPath) -> list[AnyPath]:
    """List the files of a folder, sorted by name. A missing folder counts as empty."""
    if isinstance(folder, Path):
        return [*sorted(paths_in(folder))]
    try:
        return [*sorted(folder.iterdir())]
    except FileNotFoundError:
        return []


def of_attempt(folder: AnyPath, token: str) -> Iterator[AnyPath]:
    """Yield the files in a folder that one attempt to write has left. `token`: the
    token of the attempt.
    """
    if isinstance(folder, Path):
        yield from (
            path
            for path in folder.iterdir()
            if path.name.removeprefix(".").startswith(token)
        )
        return
    for path in folder.after(token):
        if not path.name.startswith(token):
            return
        yield path


def check_written(path: AnyPath, size: int, rows: int, name: str) -> None:
    """Raise an error if the bytes or the rows of a file differ from what its task has
    reported.

    `name`: what messages call the rows, such as "pairs".
    """
    try:
        found = _written_rows(path) if path.stat().st_size == size else -1
    except IndexStoreError:
        raise
    except (OSError, ValueError):
        found = -1
    if found != rows:
        raise IndexFormatError(
            f"A worker wrote {rows:,} {name} to {str(path)!r}, but this process does "
            "not see that file "
            "as it was written. All workers and this process must share the folder."
        )


def _written_rows(path: AnyPath) -> int:
    """Return the number of rows in a file.

    On a disk, only its metadata is read, without verifying checksums.
    """
    if isinstance(path, Path):
        return int(pq.read_metadata(path).num_rows)
    with parquet(path) as file:
        return int(file.metadata.num_rows)
