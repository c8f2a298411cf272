"""Read CSV files in blocks with Arrow, and name the rows that are wrong."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import click
import dask
import dask.dataframe as dd
import fsspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.core import url_to_fs
from pyarrow import csv as arrow_csv

from dask_simjoin.graph.dask_private import AUTO_BLOCKSIZE as BLOCK_BYTES
from dask_simjoin.metrics.norms import Frame

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


class WiderType(Exception):
    """Raised if a column needs another type than its first rows: the program reads the
    table again.
    """

    def __init__(self, path: str, column: str, kind: str, why: str) -> None:
        super().__init__(path, column, kind, why)
        self.path, self.column, self.kind, self.why = path, column, kind, why


INT, UINT, FLOAT, BOOL, TEXT = "int64", "uint64", "float64", "bool", "str"
TYPES = {
    INT: pa.int64(),
    UINT: pa.uint64(),
    FLOAT: pa.float64(),
    BOOL: pa.bool_(),
    TEXT: pa.string(),
}
"""Types of columns, by the names of their dtypes."""

NULLABLE = {INT: "Int64", UINT: "UInt64"}
"""dtypes of integers with missing cells."""

TRUE, FALSE = ["True", "TRUE", "true"], ["False", "FALSE", "false"]

MISSING = [
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-1.#IND",
    "-1.#QNAN",
    "-NaN",
    "-nan",
    "1.#IND",
    "1.#QNAN",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
]
"""Texts that are missing numbers, as in pandas. In columns of text, only empty cells are
missing.
"""

NUMBER = r"^\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))\s*$"
INTEGER = r"^\s*[+-]?\d+\s*$"
"""Match the texts of numbers and of integers."""

HEAD_ROWS = 5_000
"""Look at this many rows of each CSV file to choose dtypes."""

HEAD_BYTES = 1 << 20
"""Begin with this many bytes to find them."""

MAX_EXACT = 2**53
"""float64 represents every integer exactly up to this one."""


@dataclass(frozen=True)
class CsvColumns:
    """The columns of CSV files that a command uses. Types of columns are inferred, or
    columns are read as text.
    """

    # columns whose types are inferred; None: all except ids
    inferred: frozenset[Any] | None = None
    # columns that become integers if no digit is lost
    ids: frozenset[Any] = frozenset()
    read: frozenset[Any] | None = None  # columns to read; None: all
    # inferred columns that must have only numbers; None: all that have numbers
    numbers: frozenset[Any] | None = None
    # columns with known types; other columns are inferred or text
    types: Mapping[Any, str] = field(default_factory=dict)
    # columns of integers with known types that may have missing cells
    gaps: frozenset[Any] = frozenset()
    # type of inferred columns in a table without rows
    empty: str = FLOAT

    def is_inferred(self, name: str) -> bool:
        return name not in self.ids if self.inferred is None else name in self.inferred

    def is_number(self, name: str) -> bool:
        return self.numbers is None or name in self.numbers


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written, and what to do with bad rows."""

    separator: str | None = None  # None: by the ending of the name
    encoding: str = "utf-8"
    skips: bool = False  # whether bad rows are left out


class CsvFile(NamedTuple):
    path: str
    name: str  # in messages
    columns: tuple[str, ...]
    separator: str
    encoding: str
    start: int  # position of the first byte after the header
    line: int  # line number at this position
    version: str  # other content, another version; so tasks have other names


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
                _lines(source.read(min(SCAN_BYTES, self.start - at)))
                for at in range(0, self.start, SCAN_BYTES)
            )
            return 1 + list(lines)[-1]


class BadRow(NamedTuple):
    file: str
    line: int
    reason: str
    row: str


class CsvTable(NamedTuple):
    """A table of CSV files, and the bad rows that were left out."""

    frame: Frame
    blocks: list[CsvBlock]
    bad_rows: list[BadRow]


def read_csv(
    paths: Sequence[tuple[str, str]],
    used: CsvColumns,
    written: CsvFormat,
    wider: Mapping[tuple[str, str], str],
) -> CsvTable:
    """Read CSV files as one lazy frame, with a partition per block.

    `paths`: paths, and their names in messages. `wider`: types of columns whose first
    rows do not show them, by path and column.
    """
    # workers of a cluster have other working folders
    paths = [
        (path if "://" in path else os.path.abspath(path), name) for path, name in paths
    ]
    with ThreadPoolExecutor() as threads:
        heads = list(threads.map(lambda path: _head(path, used, written), paths))
    kinds = _kinds(heads, used)
    for path, column in wider:
        if column in kinds and any(path == one for one, _ in paths):
            kinds[column] = wider[path, column]
    ids = {name for name in used.ids & kinds.keys() if not used.is_inferred(name)}
    rules = Rules(
        kinds=kinds,
        numbers=frozenset(
            name
            for name, kind in kinds.items()
            if name in used.types
            or (kind in (INT, UINT, FLOAT) and name not in ids and used.is_number(name))
        ),
        known=frozenset(used.types),
        gaps=used.gaps,
        ids=frozenset(ids),
    )
    with ThreadPoolExecutor() as threads:
        cut = threads.map(lambda head: _blocks(head.file), heads)
        blocks = [block for blocks in cut for block in blocks]
    bad: list[BadRow] = []
    if written.skips:
        find = dask.delayed(_without_bad_rows)
        found = dask.compute(*(find(block, rules) for block in blocks))
        blocks = [block for block, _ in found]
        bad = [row for _, rows in found for row in rows]
    meta = pd.DataFrame(
        {
            name: pd.Series(dtype=_dtype(kind, name in used.gaps))
            for name, kind in kinds.items()
        }
    )
    frame = dd.from_map(
        functools.partial(read_csv_block, meta=meta, rules=rules),
        blocks,
        meta=meta,
        enforce_metadata=False,
        label="read-csv",
    )
    return CsvTable(frame, blocks, bad)


def _dtype(kind: str, has_gaps: bool) -> Any:
    """Return the dtype of a column; integers with gaps are nullable."""
    return str if kind == TEXT else NULLABLE[kind] if has_gaps else kind


# ---- headers and first rows


class Head(NamedTuple):
    """The beginning of a CSV file."""

    file: CsvFile
    has_rows: bool
    texts: pa.Table  # first rows of the columns whose types are chosen


def _head(named: tuple[str, str], used: CsvColumns, written: CsvFormat) -> Head:
    path, name = named
    separator = written.separator or separator_of(path)
    size = HEAD_BYTES
    while True:
        data, at_end = _beginning(path, name, size, written.encoding)
        bom = 3 * data.startswith(b"\xef\xbb\xbf")
        starts, stops, _ = record_spans(data[bom:], separator)
        if at_end or len(starts) > HEAD_ROWS + 1:
            break
        size *= 4
    first = next(
        (n for n in range(len(starts)) if data[bom:][starts[n] : stops[n]].strip()),
        None,
    )
    if first is None:
        raise BadData(f"{name} is empty: it has no header.")
    starts, stops = starts[first:] + bom, stops[first:] + bom
    end = int(starts[1]) if len(starts) > 1 else len(data)
    file = CsvFile(
        path,
        name,
        _columns(data[starts[0] : stops[0]], name, separator, written.encoding),
        separator,
        written.encoding,
        end,
        1 + _lines(data[:end]),
        _version(path),
    )
    looked = [
        column
        for column in file.columns
        if column not in used.types and (used.is_inferred(column) or column in used.ids)
    ]
    # the last row may be cut off
    last = len(starts) - 1 if at_end else len(starts) - 2
    some = data[end : stops[min(HEAD_ROWS, last)]] if last > 0 else b""
    if not looked or not some.strip():
        none = pa.array([], pa.string())
        return Head(file, bool(some.strip()), pa.table(dict.fromkeys(looked, none)))
    block = CsvBlock(file, end, None)
    if _has_single_bytes(written.encoding):
        some = _as_utf8(some, written.encoding, name, block.line)
    texts = _texts(some, block, looked)
    if texts.ragged and not len(texts.table) and not written.skips:
        raise _refused(_bad_rows(texts, some, block, NO_RULES)[0].row)
    return Head(file, len(texts.table) > 0, texts.table)


def _version(path: str) -> str:
    fs, name = url_to_fs(path)
    return str(fs.ukey(name))


def _beginning(path: str, name: str, size: int, encoding: str) -> tuple[bytes, bool]:
    """Return about `size` bytes from the start of a file, and whether they are the
    whole file. An encoding of several bytes per character is read whole, as UTF-8.
    """
    with fsspec.open(path, compression="infer") as file:
        if not _has_single_bytes(encoding):
            return _as_utf8(file.read(), encoding, name, _one), True
        data = file.read(size)
    if len(data) < size:
        return data, True
    return data[: max(data.rfind(b"\n"), data.rfind(b"\r")) + 1] or data, False


def _one() -> int:
    return 1


def _columns(
    header: bytes, name: str, separator: str, encoding: str
) -> tuple[str, ...]:
    if _has_single_bytes(encoding):
        header = _as_utf8(header, encoding, name, _one)
    _check_utf8(header, name, _one)
    return tuple(map(str, pd.read_csv(BytesIO(header), sep=separator, nrows=0)))


def _kinds(heads: list[Head], used: CsvColumns) -> dict[str, str]:
    """Return the type of each column to read; all files must have it."""
    columns = dict.fromkeys(name for head in heads for name in head.file.columns)
    first = heads[0].file
    wanted = [name for name in columns if used.read is None or name in used.read]
    for head in heads:
        lacking = [name for name in wanted if name not in head.file.columns]
        if lacking:
            raise click.ClickException(
                f"Column {lacking[0]!r} is not found in {head.file.name}, which has the "
                f"columns {', '.join(head.file.columns)}, but "
                f"{next(one.file.name for one in heads if lacking[0] in one.file.columns)}"
                f" has {', '.join(first.columns if first is not head.file else columns)}. "
                "Tables to concatenate need the same columns."
            )
    filled = [head.texts for head in heads if head.has_rows]
    kinds = {}
    for name in wanted:
        if name in used.types:
            kinds[name] = used.types[name]
        elif used.is_inferred(name):
            some = [_inferred(one[name], used, name) for one in filled]
            kinds[name] = _common(some) if some else used.empty
        elif name in used.ids:
            found = {_id_kind(one[name]) for one in filled}
            kinds[name] = found.pop() if len(found) == 1 else TEXT
        else:
            kinds[name] = TEXT
    return kinds


class Inferred(NamedTuple):
    kind: str
    is_exact: bool  # whether float64 represents all numbers exactly


def _inferred(texts: pa.ChunkedArray, used: CsvColumns, name: str) -> Inferred:
    """Choose the type of a column as pandas does. If its cells must be numbers, ignore
    others, unless all are texts.
    """
    must = used.numbers is not None and used.is_number(name)
    missing = pc.is_in(texts, pa.array(MISSING))
    rest = texts.filter(pc.invert(missing))
    if not len(rest):
        return Inferred(FLOAT, True)
    numbers = rest.filter(pc.match_substring_regex(rest, NUMBER))
    if len(numbers) < len(rest) and not (must and len(numbers)):
        is_bool = pc.all(pc.is_in(rest, pa.array(TRUE + FALSE))).as_py()
        return Inferred(BOOL if is_bool and len(rest) == len(texts) else TEXT, False)
    if not pc.all(pc.match_substring_regex(numbers, INTEGER)).as_py():
        return Inferred(FLOAT, True)
    values = [int(one) for one in numbers.to_pylist()]
    largest = max(-min(values), max(values))
    is_exact = largest <= MAX_EXACT
    if len(rest) == len(texts):
        if min(values) >= -(2**63) and max(values) < 2**63:
            return Inferred(INT, is_exact)
        if min(values) >= 0 and max(values) < 2**64:
            return Inferred(UINT, is_exact)
    # text keeps the digits of large integers if other cells are missing
    return Inferred(FLOAT if is_exact or must else TEXT, is_exact)


def _common(some: list[Inferred]) -> str:
    """Return the type of a column in several CSV files: if they differ, float64 or
    text.
    """
    kinds = {one.kind for one in some}
    if len(kinds) == 1:
        return kinds.pop()
    return FLOAT if all(one.is_exact for one in some) else TEXT


def _id_kind(texts: pa.ChunkedArray) -> str:
    """Return an integer type that loses no character of the texts, such as leading
    zeros; else text.
    """
    return next(
        (kind for kind in (INT, UINT) if as_integers(texts, kind) is not None), TEXT
    )


def as_integers(texts: Any, kind: str) -> Any:
    """Convert texts to integers. Return None if a text is missing, or is not written
    like its integer.
    """
    try:
        numbers = texts.cast(TYPES[kind])
    except pa.ArrowInvalid:
        return None
    same = not texts.null_count and numbers.cast(texts.type).equals(texts)
    return numbers if same else None


# ---- rows in bytes

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


def _lines(data: bytes) -> int:
    """Return the number of line ends."""
    return data.count(b"\n") or data.count(b"\r")


SCAN_BYTES = 1 << 23
"""Scan a large file for quotes in pieces of this size."""


def _blocks(file: CsvFile) -> list[CsvBlock]:
    """Cut a file into blocks, between two rows."""
    whole = [CsvBlock(file, file.start, None)]
    if endings(file.path)[1] or not _has_single_bytes(file.encoding):
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
        raise _unclosed(file, CsvBlock(file, opened, None).line())


def _unclosed(file: CsvFile, line: int) -> BadData:
    return BadData(
        f'{file.name}, line {line}: a quote (") begins a cell and is never closed. '
        'Close it, or write it as "" in a quoted cell.'
    )


# ---- encodings


@functools.cache
def _has_single_bytes(encoding: str) -> bool:
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


def _as_utf8(data: bytes, encoding: str, name: str, line: Line) -> bytes:
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
        f"{name}, line {line() + _lines(data[:at])}: {found} is not {encoding.upper()}. "
        f"Name the encoding of the file, such as --encoding {other}."
    )


def _check_utf8(data: bytes, name: str, line: Line) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _undecodable(data, error, name, "utf-8", line) from None


# ---- cells


@dataclass(frozen=True)
class Rules:
    """Rules for the cells of columns."""

    kinds: Mapping[str, str]  # the types of all columns
    numbers: frozenset[str]  # columns where other texts are errors
    known: frozenset[str]  # columns that cannot get another type
    gaps: frozenset[str]  # known columns of integers that may have missing cells
    ids: frozenset[str]  # columns whose integers must lose no character


NO_RULES = Rules({}, *[frozenset()] * 4)
"""Rules by which only rows with other numbers of cells are bad."""


def read_csv_block(
    block: CsvBlock,
    columns: list[str] | None = None,
    *,
    meta: pd.DataFrame,
    rules: Rules,
) -> pd.DataFrame:
    """Parse some columns of a block, and convert them to the dtypes of `meta`."""
    wanted = meta if columns is None else meta[columns]
    data = _without(_bytes(block), block.dropped)
    if not data[:LONGEST_BLANK].strip() and not data.strip():
        return wanted
    names = list(wanted.columns) or list(block.file.columns[:1])
    table = _parsed(data, block, names, rules)
    frame = table.to_pandas()
    for name in rules.gaps.intersection(wanted.columns):
        dtype = wanted[name].dtype
        frame[name] = table[name].to_pandas(types_mapper=lambda _, to=dtype: to)
    return frame[list(wanted.columns)]


def _bytes(block: CsvBlock) -> bytes:
    """Return the bytes of a block as UTF-8."""
    file = block.file
    with fsspec.open(file.path, compression="infer") as source:
        if block.stop is not None:
            source.seek(block.start)
            data = source.read(block.stop - block.start)
        elif _has_single_bytes(file.encoding):
            data = source.read()[block.start :]
        else:
            return _as_utf8(source.read(), file.encoding, file.name, _one)[
                block.start :
            ]
    return _as_utf8(data, file.encoding, file.name, block.line)


def _without(data: bytes, dropped: Iterable[tuple[int, int]]) -> bytes:
    """Leave out ranges of bytes."""
    kept, at = [], 0
    for start, stop in dropped:
        kept.append(data[at:start])
        at = stop
    return b"".join([*kept, data[at:]]) if kept else data


def _parsed(data: bytes, block: CsvBlock, names: list[str], rules: Rules) -> pa.Table:
    """Parse columns with the types of the rules.

    Arrow parses most blocks at once. If a row or a cell does not fit, look at all cells
    as text.
    """
    kinds = {name: rules.kinds.get(name, TEXT) for name in names}
    _check_closed(data, block)
    as_text = [name for name in names if kinds[name] == TEXT or name in rules.ids]
    has_integers = any(
        kinds[name] in (INT, UINT) and name not in as_text for name in names
    )
    # Arrow would read 0x10 as 16
    if not has_integers or not (b"0x" in data or b"0X" in data):
        types = {
            name: pa.string() if name in as_text else TYPES[kinds[name]]
            for name in names
        }
        try:
            table = _arrow(data, block.file, types, _only_blank)
        except ValueError:
            pass
        else:
            if not any(
                table[name].null_count and kinds[name] in (INT, UINT, BOOL)
                for name in names
                if name not in rules.gaps
            ):
                _check_digits(table, block, rules)
                return _with_texts(table, block, as_text, rules)
    texts = _texts(data, block, names)
    for found in _bad_rows(texts, data, block, rules):
        raise _refused(found.row)
    typed = {}
    for name in names:
        cells = texts.table[name]
        if name not in as_text:
            _check_width(cells, name, block, rules)
            cells = _numbers(cells, kinds[name])
        typed[name] = cells
    return _with_texts(pa.table(typed), block, as_text, rules)


LONGEST_BLANK = 1_000
"""Look at this many bytes first to find out whether a block has rows."""


def _check_closed(data: bytes, block: CsvBlock) -> None:
    """Refuse a quote that is never closed. The quotes of a file of several blocks were
    checked when it was cut.
    """
    if block.stop is not None or QUOTE not in data:
        return
    codes = np.frombuffer(data, np.uint8)
    toggles = quote_toggles(codes, False, block.file.separator)
    if len(toggles) % 2:
        raise _unclosed(block.file, block.line() + _lines(data[: int(toggles[-1])]))


ARROW_BYTES = 1 << 20
"""Arrow parses this many bytes at a time, unless a row is longer."""


def _arrow(
    data: bytes,
    file: CsvFile,
    types: Mapping[str, pa.DataType],
    irregular: Callable[[Any], str],
    size: int = ARROW_BYTES,
) -> pa.Table:
    """Parse columns with Arrow. `irregular`: called for each row with another number of
    fields; returns "skip" or "error".
    """
    try:
        return arrow_csv.read_csv(
            pa.BufferReader(data),
            # without threads, rows have numbers
            arrow_csv.ReadOptions(
                use_threads=False, block_size=size, column_names=file.columns
            ),
            arrow_csv.ParseOptions(
                delimiter=file.separator,
                newlines_in_values=True,
                invalid_row_handler=irregular,
            ),
            arrow_csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=MISSING,
                strings_can_be_null=False,
                true_values=TRUE,
                false_values=FALSE,
            ),
        )
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error) or size > ARROW_BYTES:
            raise
    return _arrow(data, file, types, irregular, min(len(data) + 1, 2**31 - 1))


def _only_blank(row: Any) -> str:
    return "error" if row.text.strip() else "skip"


class Texts(NamedTuple):
    """The rows of a block as text."""

    table: pa.Table  # the rows with the right number of fields
    ragged: dict[int, str]  # number of another row -> the reason why it is wrong
    blank: set[int]  # numbers of rows of white space


def _texts(data: bytes, block: CsvBlock, names: list[str]) -> Texts:
    _check_utf8(data, block.file.name, block.line)
    ragged: dict[int, str] = {}
    blank: set[int] = set()

    def irregular(row: Any) -> str:
        if row.text.strip():
            wrong = f"expected {row.expected_columns} columns, got {row.actual_columns}"
            ragged[row.number - 1] = wrong
        else:
            blank.add(row.number - 1)
        return "skip"

    table = _arrow(data, block.file, dict.fromkeys(names, pa.string()), irregular)
    return Texts(table, ragged, blank)


class Found(NamedTuple):
    """A bad row, and its bytes in the block."""

    start: int
    stop: int
    row: BadRow


def _bad_rows(texts: Texts, data: bytes, block: CsvBlock, rules: Rules) -> list[Found]:
    """List the bad rows of a block in the order of the file."""
    reasons = dict(texts.ragged)
    starts, stops, _ = record_spans(data, block.file.separator)
    numbers = _regular(texts, len(starts))
    for name in texts.table.column_names:
        if name in rules.numbers:
            kind, cells = rules.kinds[name], texts.table[name]
            known = name in rules.known
            fits = _fitting(cells, kind, known)
            if name in rules.gaps:
                fits |= np.asarray(pc.is_in(cells, pa.array(MISSING)))
            for n in np.flatnonzero(~fits):
                wrong = (
                    f"column {name!r} has {_said(cells[int(n)].as_py(), kind, known)}"
                )
                reasons.setdefault(numbers[n], wrong)
    rows = sorted(reasons)
    lines = _line_numbers(data, block, [int(starts[n]) for n in rows])
    found = []
    for k, line in zip(rows, lines, strict=True):
        start, stop = int(starts[k]), int(stops[k])
        after = int(starts[k + 1]) if k + 1 < len(starts) else len(data)
        row = data[start:stop].decode().rstrip("\r")
        found.append(
            Found(start, after, BadRow(block.file.name, line, reasons[k], row))
        )
    return found


def _regular(texts: Texts, rows: int) -> list[int]:
    """Return the numbers of the rows in the table of texts."""
    irregular = texts.ragged.keys() | texts.blank
    return [n for n in range(rows) if n not in irregular]


def _line_numbers(data: bytes, block: CsvBlock, places: list[int]) -> Iterator[int]:
    """Yield the line numbers of positions in a block, which ascend."""
    line, counted = block.line() if places else 0, 0
    for place in places:
        line += _lines(data[counted:place])
        counted = place
        yield line


def lines_of(blocks: Iterable[CsvBlock], column: str, value: str | None) -> list[str]:
    """Return the places of the first two cells with a value, such as "a.csv, line 3".
    `value`: None for a missing one.
    """
    found: list[str] = []
    for block in blocks:
        data = _bytes(block)
        if column not in block.file.columns or not data.strip():
            continue
        texts = _texts(data, block, [column])
        wanted = pa.array(MISSING if value is None else [value])
        cells = pc.utf8_trim_whitespace(texts.table[column])
        starts, _, _ = record_spans(data, block.file.separator)
        numbers = _regular(texts, len(starts))
        rows = np.flatnonzero(np.asarray(pc.is_in(cells, wanted)))[: 2 - len(found)]
        places = [int(starts[numbers[n]]) for n in rows]
        found += [
            f"{block.file.name}, line {line}"
            for line in _line_numbers(data, block, places)
        ]
        if len(found) == 2:
            break
    return found


def _said(value: str, kind: str, known: bool) -> str:
    if value in MISSING:
        return f"{value!r}, which is missing"
    is_whole = known and kind in (INT, UINT)
    what = (
        "True or False"
        if kind == BOOL
        else "a whole number, as in the index"
        if is_whole
        else "a number"
    )
    return f"{value!r}, which is not {what}"


def _matches(texts: Any, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(texts, pattern))


def _fitting(texts: Any, kind: str, known: bool) -> np.ndarray:
    """Return which cells may be in a column of numbers. `known`: whether the column
    cannot become float64.
    """
    missing = np.asarray(pc.is_in(texts, pa.array(MISSING)))
    if kind == TEXT:
        return np.ones(len(texts), bool)
    if kind == BOOL:
        return np.asarray(pc.is_in(texts, pa.array(TRUE + FALSE)))
    if not known or kind == FLOAT:
        return missing | _matches(texts, NUMBER)
    fitting = _matches(texts, INTEGER)
    low, high = (0, 2**64) if kind == UINT else (-(2**63), 2**63)
    for n in np.flatnonzero(
        fitting & np.asarray(pc.greater(pc.binary_length(texts), 18))
    ):
        fitting[n] = low <= int(texts[int(n)].as_py()) < high
    return fitting


def _check_width(texts: Any, name: str, block: CsvBlock, rules: Rules) -> None:
    """Raise `WiderType` if the cells of a column do not fit its type."""
    kind = rules.kinds.get(name, TEXT)
    fits = _fitting(texts, kind, True)
    if fits.all() or name in rules.known:
        return
    value = texts[int(np.flatnonzero(~fits)[0])].as_py()
    is_number = kind != BOOL and _fitting(texts, kind, False).all()
    raise WiderType(block.file.path, name, FLOAT if is_number else TEXT, value)


def _check_digits(table: pa.Table, block: CsvBlock, rules: Rules) -> None:
    """Raise `WiderType` if floats may have lost digits of integers that name groups."""
    for name in table.column_names:
        if rules.kinds.get(name) == FLOAT and name not in rules.numbers:
            largest = pc.max(pc.abs(table[name])).as_py()
            if largest is not None and np.inf > largest > MAX_EXACT:
                raise WiderType(block.file.path, name, TEXT, f"{largest:.0f}")


def _numbers(texts: Any, kind: str) -> Any:
    """Convert cells that were checked."""
    if kind == BOOL:
        return pc.is_in(texts, pa.array(TRUE))
    bare = pc.utf8_ltrim(pc.utf8_trim_whitespace(texts), characters="+")
    missing = pc.is_in(texts, pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), bare).cast(TYPES[kind])


def _with_texts(
    table: pa.Table, block: CsvBlock, as_text: list[str], rules: Rules
) -> pa.Table:
    """Make empty texts missing, and convert ids to integers."""
    for name in as_text:
        column = table[name]
        empty = pc.equal(column, "")
        if pc.any(empty).as_py():
            column = pc.if_else(empty, pa.scalar(None, pa.string()), column)
        kind = rules.kinds.get(name, TEXT)
        if kind != TEXT:
            numbers = as_integers(column, kind)
            if numbers is None:
                value = next(
                    one
                    for one in column.to_pylist()
                    if as_integers(pa.array([one], pa.string()), kind) is None
                )
                raise WiderType(block.file.path, name, TEXT, value or "")
            column = numbers
        table = table.set_column(table.column_names.index(name), name, column)
    return table


# ---- bad rows


def _refused(row: BadRow) -> BadData:
    shown = row.row if len(row.row) <= 80 else f"{row.row[:77]}..."
    quoting = (
        " A cell that contains the separator must be in double quotes."
        if row.reason.startswith("expected")
        else ""
    )
    return BadData(
        f"{row.file}, line {row.line}: {row.reason}. The row is {shown!r}.{quoting} "
        "Correct the row, or leave out such rows with --bad-rows skip."
    )


def _without_bad_rows(block: CsvBlock, rules: Rules) -> tuple[CsvBlock, list[BadRow]]:
    """Find the bad rows of a block, and mark them to be left out."""
    data = _bytes(block)
    if not data.strip():
        return block, []
    _check_closed(data, block)
    names = sorted(rules.numbers) or list(block.file.columns[:1])
    texts = _texts(data, block, names)
    found = _bad_rows(texts, data, block, rules)
    dropped = tuple((one.start, one.stop) for one in found)
    return block._replace(dropped=dropped), [one.row for one in found]
