"""Parquet files with checksums for all their bytes. The checksums are verified on every
read.

A run of bytes is one write: the header of a page, or its content. A block before the
footer lists the length and the checksum of each run; Parquet readers skip it. The
file's name ends in a checksum of this block and the footer. So each read notices damage
in the bytes that it reads, or a wrong file name, without reading more. Parquet's own
checksums do not cover the headers of pages, where a flipped bit can change values.
"""

from __future__ import annotations

import array
import contextlib
import functools
import io
import os
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dask_simjoin.disk_index.disks import open_regular
from dask_simjoin.disk_index.folders import folder_of, is_tombstone
from dask_simjoin.disk_index.stores import FIRST_BYTES, AnyPath, ObjectFile
from dask_simjoin.engine.base import host_kernels
from dask_simjoin.errors import IndexFormatError, SimJoinError, VersionGoneError
from dask_simjoin.sizes import KEPT, NUMBER_BYTES, READ_BYTES

REMEDY = (
    "`dask-simjoin index check` lists all damage. Copy the file back from a backup. Or "
    "make a new index from "
    "the rows() of a version that does not need the file: open_index(path, "
    "version=...)."
)


def damaged(path: AnyPath, what: str, remedy: str = REMEDY) -> IndexFormatError:
    """Return the error for a file whose bytes have changed. `what`: how the change was
    noticed.
    """
    return IndexFormatError(f"{str(path)!r} is damaged: {what}. {remedy}")


def missing(path: AnyPath) -> IndexFormatError | VersionGoneError:
    """Return the error for a missing file: `IndexFormatError` if a version needs the
    file, else `VersionGoneError`.
    """
    folder, names = folder_of(path.parent.parent / "_versions"), list[str]()
    with contextlib.suppress(OSError):
        names = folder.names()
    for name in reversed([name for name in names if name.endswith(".json")]):
        with contextlib.suppress(OSError):
            content = folder.read(name)
            if is_tombstone(content):
                break  # all older versions are removed, too
            if path.name.encode() in content:
                stem = name.removesuffix(".json")
                version = int(stem) if stem.isascii() and stem.isdigit() else "?"
                return IndexFormatError(
                    f"{str(path)!r} is missing, and version {version} of the index "
                    f"needs it. {REMEDY}"
                )
    return VersionGoneError(
        f"{str(path)!r} does not exist: vacuum(), or components() of newer versions, "
        "removed it, or this "
        "machine does not see the folder. Repeat the call with a version that "
        "history() lists; "
        "vacuum(keep=...) keeps more versions."
    )


@contextlib.contextmanager
def reading(path: AnyPath, checked: bool) -> Iterator[None]:
    """Convert errors while reading a file to errors that name the file.

    `checked`: whether checksums are verified. Otherwise damaged bytes can lead to more
    types of errors.
    """
    kinds = (
        (OSError, pa.ArrowException)
        if checked
        else (OSError, pa.ArrowException, ValueError, LookupError)
    )
    try:
        yield
    except (SimJoinError, MemoryError, pa.ArrowCancelled):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise missing(path) from None
    except kinds as error:
        raise damaged(
            path, f"it cannot be read ({' '.join(str(error).split())[:300]})"
        ) from error


DIGITS = 16
"""Number of hexadecimal digits in a checksum."""

NAME = re.compile(
    rf"(?:[0-9]{{20}}|[0-9a-f]{{{DIGITS}}}-[0-9a-f]{{8}})-[0-9a-f]{{{DIGITS}}}"
)
"""Names of files with checksums, without the ending. Names of component files begin
with a version number.
"""

MARK = b"dask_simjoin.sum"
"""These bytes end the block of checksums."""

BLOCK_END, FOOTER_END = struct.Struct("<I16s"), struct.Struct("<I4s")
"""Formats of the last bytes of the block, and of the last bytes of a file.

Both consist of a size and a mark: the size of the block, and the size of the footer.
"""

OTHER = "its content changed after it was written"


def checksum(data: Any) -> int:
    """Return the checksum of `data`, which must have at least eight bytes."""
    buffer = pa.py_buffer(data)
    return int(_kernels().checksum(buffer.address, buffer.size))


@functools.cache
def _kernels() -> Any:
    return host_kernels("reductions")


def is_checked(path: AnyPath) -> bool:
    """Return whether the name of a file ends in a checksum."""
    return NAME.fullmatch(path.stem) is not None


class ChecksumWriter(io.RawIOBase):
    """A writable file that also records the length and the checksum of each run."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._cached = file, b""
        self._runs: list[tuple[int, int]] = []
        self._tail: list[bytes] | None = None

    def writable(self) -> bool:
        """Return True, because PyArrow asks before it writes."""
        return True

    def tell(self) -> int:
        return self._file.tell()

    def write(self, data: Any) -> int:
        if self._tail is not None:
            self._tail.append(bytes(data))
            return self._file.write(data)
        run = (
            self._cached + bytes(data)
            if self._cached or len(data) < NUMBER_BYTES
            else data
        )
        self._cached = run if len(run) < NUMBER_BYTES else b""
        if not self._cached:
            self._runs.append((len(run), checksum(run)))
        return self._file.write(data)

    def end_rows(self) -> None:
        """Write the block of checksums after the rows. PyArrow writes its footer after
        this block.
        """
        if self._cached:
            self.write(bytes(NUMBER_BYTES))
        self._tail = []
        block = np.array(self._runs, "<u8").tobytes()
        self.write(block + BLOCK_END.pack(len(block), MARK))

    @property
    def checksum(self) -> int:
        """The checksum of the block and all bytes after it, for the name of the file."""
        return checksum(b"".join(self._tail or ()))


class Ending(NamedTuple):
    """The verified end of a file."""

    # (runs + 1,), int64: offset of each run, then the offset where the rows end
    starts: np.ndarray
    sums: np.ndarray  # (runs,), uint64: checksum of each run
    # the same as `starts`, as a Python array, where bisection is faster
    found: array.array[int]
    metadata: pq.FileMetaData


@functools.lru_cache(KEPT)
def ending_of(path: AnyPath, size: int, changed: int, number: int | str) -> Ending:
    """Read and verify the end of a file. The result is cached, because several tasks
    read the same file.

    `size`, `changed`, `number`: the bytes, the modification time and the inode of the
    file; for objects, a tag replaces the inode. With them, the cache never returns the
    ending of an older file with the same name.
    """
    other = damaged(path, OTHER)
    with contextlib.closing(opened(path)) as file:

        def read(start: int, size: int) -> bytes:
            data: bytes = read_bytes(file, start, size, path).to_pybytes()
            return data

        first = max(0, size - FIRST_BYTES)
        last = read(first, size - first)
        if size < FOOTER_END.size + BLOCK_END.size:
            raise other
        at = (
            size
            - FOOTER_END.size
            - FOOTER_END.unpack(last[-FOOTER_END.size :])[0]
            - BLOCK_END.size
        )
        if at < 0:
            raise other
        length, mark = BLOCK_END.unpack(read(at, BLOCK_END.size))
        start = at - length
        if mark != MARK or start < 0 or length % (2 * NUMBER_BYTES):
            raise other
        behind = size - start
        tail = last[-behind:] if behind <= len(last) else read(start, behind)
    if checksum(tail) != int(path.stem[-DIGITS:], 16):
        raise other
    block = np.frombuffer(tail, "<u8", length // NUMBER_BYTES).reshape(-1, 2)
    starts = np.zeros(len(block) + 1, np.int64)
    np.cumsum(block[:, 0], out=starts[1:])
    if starts[-1] != start:
        raise other
    found = array.array("q", starts.tobytes())
    return Ending(
        starts, block[:, 1].copy(), found, pq.read_metadata(pa.BufferReader(tail))
    )


class LocalFile:
    """A file on a local disk, which can be read from any offset."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        about = os.fstat(self._file.fileno())
        self.identity = about.st_size, about.st_mtime_ns, about.st_ino

    def read(self, start: int, size: int) -> pa.Buffer:
        """Read `size` bytes into memory from Arrow's current pool; at the end of the
        file, read fewer.
        """
        data = pa.allocate_buffer(size)
        done = os.preadv(self._file.fileno(), [data], start)
        while done < size:
            more = os.preadv(
                self._file.fileno(), [memoryview(data)[done:]], start + done
            )
            if not more:
                return data.slice(0, done)
            done += more
        return data

    def close(self) -> None:
        self._file.close()


def opened(path: AnyPath) -> LocalFile | ObjectFile:
    return LocalFile(path) if isinstance(path, Path) else ObjectFile(path)


def read_bytes(
    file: LocalFile | ObjectFile, start: int, size: int, path: AnyPath
) -> pa.Buffer:
    """Read `size` bytes of a file from offset `start`. Raise an error if the file ends
    before that.
    """
    data = file.read(start, size)
    if data.size < size:
        raise damaged(path, OTHER)
    return data


class VerifiedFile:
    """The bytes of a file up to its `ending`. They are verified as they are read.

    It has the methods that `pyarrow.PythonFile` calls. They are never called
    concurrently.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path, self._at, self.closed = path, 0, False
        self._file = opened(path)
        try:
            self.ending = ending_of(path, *self._file.identity)
        except BaseException:
            self._file.close()
            raise
        self._found = self.ending.found
        self._where = self.ending.starts.ctypes.data, self.ending.sums.ctypes.data

    def close(self) -> None:
        self._file.close()
        self.closed = True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence:
            offset += self._at if whence == io.SEEK_CUR else self._found[-1]
        self._at = offset
        return offset

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        data: bytes = self.read_buffer(
            size if size >= 0 else self._found[-1] - self._at
        ).to_pybytes()
        return data

    def read_buffer(self, size: int) -> pa.Buffer:
        """Read bytes, and verify all runs that contain some of them. Raise an error if
        a run is damaged.
        """
        start, stop = self._at, min(self._at + size, self._found[-1])
        self._at = max(start, stop)
        first = bisect_right(self._found, start) - 1
        last = max(bisect_left(self._found, stop), first + 1)
        begin, end = self._found[first], self._found[last]
        data = read_bytes(self._file, begin, end - begin, self._path)
        if not _kernels().are_intact(data.address, *self._where, first, last):
            raise damaged(self._path, OTHER)
        if (start, stop) == (begin, end):
            return data
        return data.slice(start - begin, stop - start)

    def verify(self) -> None:
        """Verify the complete file, about `READ_BYTES` bytes at a time."""
        at = 0
        while at < self._found[-1]:
            self.seek(at)
            at = self._found[
                min(bisect_right(self._found, at + READ_BYTES), len(self._found) - 1)
            ]
            self.read_buffer(at - self._at)
