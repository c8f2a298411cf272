"""Files of Parquet with checksums of all of their bytes, which are verified as they are read.

Before the footer of a file is a block that Parquet's readers skip.  It has the length and the checksum of
each run of bytes before it, as they were written: the header of a page, or its content.  The file's name ends
in the checksum of the block and the footer.  So whoever reads a part of a file that is damaged, or of another
file than the name says, notices, and no more is read for it.

Parquet's own checksums of pages leave out their headers, in which a flipped bit can change what is read.
"""

from __future__ import annotations

import functools
import io
import re
import struct
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from dask_simjoin.engine.base import host_kernels
from dask_simjoin.incremental.damage import damaged

DIGITS = 16
"""Hexadecimal digits of a checksum."""

NAME = re.compile(rf"(?:[0-9]{{20}}|[0-9a-f]{{{DIGITS}}}-[0-9a-f]{{8}})-[0-9a-f]{{{DIGITS}}}")
"""What files with checksums are called, without their ending; those of groups begin with their version."""

MARK = b"dask_simjoin.sum"
"""What the block of checksums ends in, after its number of bytes."""

BLOCK_END, FOOTER_END = struct.Struct("<I16s"), struct.Struct("<I4s")
"""The last bytes of the block, and those of a file: the bytes that are before them, and a mark."""

TAIL = 1 << 16
"""Bytes at the end of a file that are read first, as Arrow does."""

AT_ONCE = 1 << 24
"""Bytes that are verified at a time, about, where all are."""

WORD = 8
"""Bytes of which there are fewer are followed by zeros, to be summed."""


def checksum(data: Any, start: int = 0, size: int | None = None) -> int:
    """Return the checksum of some bytes of a buffer."""
    buffer = data if isinstance(data, pa.Buffer) else pa.py_buffer(data)
    size = buffer.size - start if size is None else size
    if size < WORD:
        buffer, start = pa.py_buffer(buffer.slice(start, size).to_pybytes().ljust(WORD, b"\0")), 0
    return int(_kernel()(buffer.address + start, max(size, WORD)))


@functools.cache
def _kernel() -> Any:
    return host_kernels("checksum").checksum


def is_checked(path: Path) -> bool:
    """Tell whether the name of a file ends in its checksum."""
    return NAME.fullmatch(path.stem) is not None


class SummedFile(io.RawIOBase):
    """A file that is written, of which checksums are noted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._runs: list[tuple[int, int]] = []
        self._tail: list[bytes] | None = None

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def tell(self) -> int:
        """Count the bytes that were written."""
        return self._file.tell()

    def write(self, data: Any) -> int:
        """Write some bytes."""
        if self._tail is None:
            self._runs.append((len(data), checksum(data)))
        else:
            self._tail.append(bytes(data))
        return self._file.write(data)

    def end_rows(self) -> None:
        """Write the block of checksums; what follows is the footer."""
        self._tail = []
        block = np.array(self._runs, "<u8").tobytes()
        self.write(block + BLOCK_END.pack(len(block), MARK))

    @property
    def checksum(self) -> int:
        """The checksum of what was written since `end_rows`, and with it."""
        return checksum(b"".join(self._tail or ()))


class CheckedFile:
    """A file whose bytes are verified as they are read.

    It has what `pyarrow.PythonFile` asks for, which calls one method at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0
        self._file = pa.OSFile(str(path))
        self._size = self._file.size()
        start, block, self._tail = self._ending()
        self._starts: list[int] = [0, *np.cumsum(block[:, 0]).tolist()]
        self._sums: list[int] = block[:, 1].tolist()
        if self._starts[-1] != start:
            raise self._other()

    def _ending(self) -> tuple[int, np.ndarray, bytes]:
        """Read where rows end, the runs before and their checksums (n, 2), and all that is behind them."""
        first = max(0, self._size - TAIL)
        last = self._file.read_at(self._size - first, first)
        if len(last) != self._size - first or self._size < FOOTER_END.size + BLOCK_END.size:
            raise self._other()
        footer = self._size - FOOTER_END.size - FOOTER_END.unpack(last[-FOOTER_END.size :])[0]
        at = footer - BLOCK_END.size
        if at < 0:
            raise self._other()
        length, mark = BLOCK_END.unpack(self._file.read_at(BLOCK_END.size, at))
        start = at - length
        if mark != MARK or start < 0 or length % (2 * WORD):
            raise self._other()
        tail = last[start - first :] if start >= first else self._file.read_at(self._size - start, start)
        if checksum(tail) != int(self._path.stem[-DIGITS:], 16):
            raise self._other()
        return start, np.frombuffer(tail, "<u8", length // WORD).reshape(-1, 2), tail

    def _other(self) -> Exception:
        return damaged(self._path, "its bytes are not those that were written")

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        closed: bool = self._file.closed
        return closed

    def close(self) -> None:
        """Close it."""
        self._file.close()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Tell which byte is next."""
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read some bytes, or all that are left."""
        data: bytes = self.read_buffer(size if size >= 0 else self._size - self._at).to_pybytes()
        return data

    def read_buffer(self, size: int) -> pa.Buffer:
        """Read some bytes into memory of the pool that is set; refuses others than were written."""
        start, stop, end = self._at, min(self._at + size, self._size), self._starts[-1]
        self._at = max(start, stop)
        if stop <= end:
            return self._rows(start, stop)
        rows = self._rows(start, end).to_pybytes() if start < end else b""
        return pa.py_buffer(rows + self._tail[max(start - end, 0) : stop - end])

    def _rows(self, start: int, stop: int) -> pa.Buffer:
        """Read bytes before the block, with the runs that they are in."""
        first = bisect_right(self._starts, start) - 1
        last = max(bisect_left(self._starts, stop), first + 1)
        begin = self._starts[first]
        self._file.seek(begin)
        data = self._file.read_buffer(self._starts[last] - begin)
        if data.size != self._starts[last] - begin:
            raise self._other()
        for run in range(first, last):
            at = self._starts[run]
            if checksum(data, at - begin, self._starts[run + 1] - at) != self._sums[run]:
                raise self._other()
        return (
            data if (start, stop) == (begin, begin + data.size) else data.slice(start - begin, stop - start)
        )

    def verify(self) -> None:
        """Read all of it, some runs at a time."""
        at = 0
        while at < self._starts[-1]:
            stop = self._starts[min(bisect_right(self._starts, at + AT_ONCE), len(self._sums))]
            self._rows(at, stop)
            at = stop
