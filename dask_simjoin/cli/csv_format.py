"""The format of CSV files, the types of their columns, and blocks of their rows."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import click
import fsspec
import pyarrow as pa

from dask_simjoin.metrics.norms import Frame

QUOTE, LF, CR = b'"\n\r'


def count_lines(data: bytes) -> int:
    """Return the number of line ends."""
    return data.count(b"\n") or data.count(b"\r")


SCAN_BYTES = 1 << 23
"""Scan a large file for quotes in pieces of this size."""


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
                count_lines(source.read(min(SCAN_BYTES, self.start - at)))
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
