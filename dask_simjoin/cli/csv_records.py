"""Find the rows of CSV files in bytes: separators, quotes, encodings, and blocks that end
between two rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import click
import fsspec
import numpy as np
from fsspec.core import url_to_fs

from dask_simjoin.graph.dask_private import AUTO_BLOCKSIZE as BLOCK_BYTES
from dask_simjoin.sizes import READ_BYTES

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
"""Endings of compressed files, which must be read from their start."""


def endings(path: str) -> tuple[str, str]:
    """Return the ending of a path without a compression, and the ending of the
    compression or "". Both are in lower case.
    """
    name = PurePosixPath(path.lower())
    packed = name.suffix if name.suffix in COMPRESSED else ""
    return PurePosixPath(name.stem).suffix if packed else name.suffix, packed


def separator_of(path: str) -> str:
    return "\t" if endings(path)[0] == ".tsv" else ","


class BadData(click.ClickException):
    """Raised for rows that cannot be read."""

    exit_code = 3


SEPARATORS = ";|\t,"
"""If the name of a CSV file's only column contains one of these characters, this is
probably the separator.
"""


class CsvFile(NamedTuple):
    path: str
    name: str  # in messages
    columns: tuple[str, ...]
    separator: str
    decimal: str  # the decimal mark
    encoding: str
    start: int  # position of the first byte after the header
    line: int  # line number at this position
    version: str  # other content, another version; so tasks have other names

    def likely_separator(self) -> str | None:
        """Return another separator in the name of the only column; None: none."""
        if len(self.columns) > 1:
            return None
        others = (one for one in SEPARATORS if one != self.separator)
        return next((one for one in others if one in self.columns[0]), None)


class CsvBlock(NamedTuple):
    """A part of a CSV file that begins and ends between two rows."""

    file: CsvFile
    start: int  # position of the first byte
    stop: int | None  # position after the last byte; None: the end of the file
    # byte ranges of bad rows, from the first byte
    dropped: tuple[tuple[int, int], ...] = ()

    def line(self) -> int:
        """Return the line number at the first byte; only messages need it."""
        file = self.file
        if self.start == file.start:
            return file.line
        with fsspec.open(file.path) as source:
            lines = itertools.accumulate(
                line_ends(source.read(min(READ_BYTES, self.start - at)))
                for at in range(0, self.start, READ_BYTES)
            )
            return 1 + list(lines)[-1]


def beginning_of(path: str, name: str, size: int, encoding: str) -> tuple[bytes, bool]:
    """Return about `size` bytes from the start of a file, and whether they are the
    whole file. An encoding of several bytes per character is read whole, as UTF-8.
    """
    with fsspec.open(path, compression="infer") as file:
        if not has_single_bytes(encoding):
            return as_utf8(file.read(), encoding, name, first_line), True
        data = file.read(size)
    if len(data) < size:
        return data, True
    return data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1] or data, False


def first_line() -> int:
    return 1


QUOTE, LF, CR = b'"\n\r'


def quote_toggles(
    codes: np.ndarray, inside: bool, separator: str, before: int = LF
) -> np.ndarray:
    """Return the positions where quoted cells begin and end.

    Only a quote at the beginning of a cell begins a quoted cell. `inside`: whether the
    bytes begin within a quoted cell. `before`: the byte before them.
    """
    quotes = np.flatnonzero(codes == QUOTE)
    if not quotes.size:
        return quotes
    previous = codes[quotes - 1]
    if quotes[0] == 0:
        previous[0] = before
    begins = (previous == ord(separator)) | (previous == LF) | (previous == CR)
    opening = np.zeros(len(quotes), bool)
    opening[int(inside) :: 2] = True
    doubled = np.diff(quotes, prepend=-2) == 1
    literal = np.flatnonzero(opening & ~begins & ~doubled)
    if not literal.size:
        return quotes
    # rare: a quote within a cell without quotes, so go one by one
    k = int(literal[0])
    places, toggles = quotes.tolist(), quotes[:k].tolist()
    inside = False
    while k < len(places):
        if inside and places[k + 1 : k + 2] == [places[k] + 1]:
            k += 1
        elif inside or begins[k]:
            toggles.append(places[k])
            inside = not inside
        k += 1
    return np.array(toggles, quotes.dtype)


def record_spans(
    data: bytes, separator: str
) -> tuple[np.ndarray, np.ndarray, int | None]:
    """Return the first and last positions of all records that are not empty, and the
    position of a quote that is never closed.
    """
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero((codes == LF) | (codes == CR))
    follows = codes[np.minimum(ends + 1, len(codes) - 1)] if len(ends) else ends
    ends = ends[~((codes[ends] == CR) & (follows == LF) & (ends + 1 < len(codes)))]
    toggles = quote_toggles(codes, False, separator)
    ends = ends[np.searchsorted(toggles, ends) % 2 == 0]
    starts, stops = np.append(0, ends + 1), np.append(ends, len(codes))
    filled = stops > starts
    filled[filled] &= ~(
        (stops[filled] - starts[filled] == 1) & (codes[starts[filled]] == CR)
    )
    unclosed = int(toggles[-1]) if len(toggles) % 2 else None
    return starts[filled], stops[filled], unclosed


def line_ends(data: bytes) -> int:
    """Return the number of line ends."""
    return data.count(b"\n") or data.count(b"\r")


def blocks_of(file: CsvFile) -> list[CsvBlock]:
    """Cut a file into blocks, between two rows."""
    whole = [CsvBlock(file, file.start, None)]
    if endings(file.path)[1] or not has_single_bytes(file.encoding):
        return whole
    fs, path = url_to_fs(file.path)
    size = fs.size(path)
    if size is None or size - file.start <= BLOCK_BYTES:
        return whole
    cuts = itertools.pairwise([file.start, *_cuts(fs, path, file), size])
    return [CsvBlock(file, start, stop) for start, stop in cuts if stop > start]


def _cuts(fs: Any, path: str, file: CsvFile) -> Iterator[int]:
    """Yield the positions between blocks.

    Quotes must be followed from the start of the file: a line end in a quoted cell is
    not the end of a row.
    """
    at, target = file.start, file.start + BLOCK_BYTES
    inside, before, end, opened = False, LF, b"", at
    with fs.open(path, "rb") as source:
        source.seek(at)
        while data := source.read(min(READ_BYTES, BLOCK_BYTES)):
            # so that two quotes for one are never cut apart
            while data.endswith(b'"') and (more := source.read(1)):
                data += more
            end = end or (b"\n" if b"\n" in data else b"\r")
            codes = np.frombuffer(data, np.uint8)
            toggles = quote_toggles(codes, inside, file.separator, before)
            place = max(target - at - 1, 0)
            while (place := data.find(end, place)) >= 0:
                place += 1
                if (np.searchsorted(toggles, place) + inside) % 2 == 0:
                    yield at + place
                    target = at + place + BLOCK_BYTES
                    place = target - at - 1
            if toggles.size:
                opened = at + int(toggles[-1])
            inside ^= bool(len(toggles) % 2)
            at, before = at + len(data), data[-1]
    if inside:
        raise _unclosed(file, CsvBlock(file, opened, None).line())


def _unclosed(file: CsvFile, line: int) -> BadData:
    return BadData(
        f'{file.name}, line {line}: a quote (") begins a cell and is never closed. '
        'Close it, or write it as "" in a quoted cell.'
    )


@functools.cache
def has_single_bytes(encoding: str) -> bool:
    """Return whether line ends, quotes and separators can be found in the bytes of an
    encoding.
    """
    if _is_utf8(encoding):
        return True
    every = bytes(range(256)).decode(encoding, "replace")
    return len(every) == 256 and every[:128] == bytes(range(128)).decode("ascii")


def _is_utf8(encoding: str) -> bool:
    return encoding.lower().replace("_", "-") in ("utf-8", "utf8", "utf-8-sig", "ascii")


Line = Callable[[], int]
"""A function that returns the number of the first line."""


def as_utf8(data: bytes, encoding: str, name: str, line: Line) -> bytes:
    if _is_utf8(encoding):
        return data
    try:
        return data.decode(encoding).encode()
    except UnicodeError as error:
        raise _undecodable(data, error, name, encoding, line) from None


def _undecodable(
    data: bytes, error: UnicodeError, name: str, encoding: str, line: Line
) -> BadData:
    at = getattr(error, "start", 0)
    found = f"byte 0x{data[at]:02x}" if at < len(data) else "the end"
    other = (
        "utf-16"
        if data[:2] in (b"\xff\xfe", b"\xfe\xff")
        else "latin-1 or --encoding cp1252"
        if _is_utf8(encoding)
        else "utf-8"
    )
    return BadData(
        f"{name}, line {line() + line_ends(data[:at])}: {found} is not {encoding.upper()}. "
        f"Name the encoding of the file, such as --encoding {other}."
    )


def check_utf8(data: bytes, name: str, line: Line) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _undecodable(data, error, name, "utf-8", line) from None


def bytes_of(block: CsvBlock) -> bytes:
    """Return the bytes of a block as UTF-8."""
    file = block.file
    with fsspec.open(file.path, compression="infer") as source:
        if block.stop is not None:
            source.seek(block.start)
            data = source.read(block.stop - block.start)
        elif has_single_bytes(file.encoding):
            data = source.read()[block.start :]
        else:
            return as_utf8(source.read(), file.encoding, file.name, first_line)[
                block.start :
            ]
    return as_utf8(data, file.encoding, file.name, block.line)


def without_ranges(data: bytes, dropped: Iterable[tuple[int, int]]) -> bytes:
    """Leave out ranges of bytes."""
    kept, at = [], 0
    for start, stop in dropped:
        kept.append(data[at:start])
        at = stop
    return b"".join([*kept, data[at:]]) if kept else data


def check_closed(data: bytes, block: CsvBlock) -> None:
    """Refuse a quote that is never closed. The quotes of a file of several blocks were
    checked when it was cut.
    """
    if block.stop is not None or QUOTE not in data:
        return
    codes = np.frombuffer(data, np.uint8)
    toggles = quote_toggles(codes, False, block.file.separator)
    if len(toggles) % 2:
        raise _unclosed(block.file, block.line() + line_ends(data[: int(toggles[-1])]))


def line_numbers(data: bytes, block: CsvBlock, places: list[int]) -> Iterator[int]:
    """Yield the line numbers of positions in a block, which ascend."""
    line, counted = block.line() if places else 0, 0
    for place in places:
        line += line_ends(data[counted:place])
        counted = place
        yield line
