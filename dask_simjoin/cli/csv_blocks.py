"""Divide CSV files into blocks of whole rows, and decode them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from fsspec.core import url_to_fs

from dask_simjoin.cli.csv_format import (
    CR,
    LF,
    QUOTE,
    SCAN_BYTES,
    BadData,
    CsvBlock,
    CsvFile,
    count_lines,
    endings,
)
from dask_simjoin.graph.dask_private import AUTO_BLOCKSIZE as BLOCK_BYTES


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


def split_file(file: CsvFile) -> list[CsvBlock]:
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
        while data := source.read(min(SCAN_BYTES, BLOCK_BYTES)):
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
        raise unclosed_quote(file, CsvBlock(file, opened, None).line())


def unclosed_quote(file: CsvFile, line: int) -> BadData:
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
        f"{name}, line {line() + count_lines(data[:at])}: {found} is not {encoding.upper()}. "
        f"Name the encoding of the file, such as --encoding {other}."
    )


def check_utf8(data: bytes, name: str, line: Line) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _undecodable(data, error, name, "utf-8", line) from None
