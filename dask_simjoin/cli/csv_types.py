"""Choose the types of CSV columns from their texts, and convert texts to these types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.engine.columns import EXACT_INTEGER


class WiderType(Exception):
    """Raised if a column needs another type than its first rows: the program reads the
    table again.
    """

    def __init__(self, path: str, column: str, kind: str, why: str) -> None:
        super().__init__(path, column, kind, why)
        self.path, self.column, self.kind, self.why = path, column, kind, why


INT, UINT, FLOAT, BOOL, TEXT = "int64", "uint64", "float64", "bool", "str"
TIME, ZONED = CLOCKS = ("datetime64[us]", "datetime64[us, UTC]")

TYPES = {
    INT: pa.int64(),
    UINT: pa.uint64(),
    FLOAT: pa.float64(),
    BOOL: pa.bool_(),
    TEXT: pa.string(),
    TIME: pa.timestamp("us"),
    ZONED: pa.timestamp("us", "UTC"),
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

INTEGER = r"^\s*[+-]?\d+\s*$"
"""Matches the texts of integers."""

DAY, CLOCK = r"\d{4}-\d{2}-\d{2}", r"[T ]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?"
ZONE = r" ?(Z|[+-]\d{2}(:?\d{2})?)"

TIMES = {
    TIME: rf"^\s*{DAY}({CLOCK})?\s*$",
    ZONED: rf"^\s*{DAY}{CLOCK}{ZONE}\s*$",
}
"""Match the texts of times in the notation of ISO 8601."""

POINT, COMMA = DECIMALS = (".", ",")
"""Decimal marks of CSV files."""


def number_pattern(decimal: str) -> str:
    """Return a regular expression for the texts of numbers."""
    mark = re.escape(decimal)
    digits = rf"(\d+{mark}?\d*|{mark}\d+)([eE][+-]?\d+)?"
    return rf"^\s*[+-]?({digits}|(?i:inf|infinity|nan))\s*$"


class Range(NamedTuple):
    """The allowed values of a coordinate."""

    quantity: str  # such as "latitude"
    lowest: float
    highest: float


@dataclass(frozen=True)
class CsvColumns:
    """The columns of CSV files that a command uses. Types of columns are inferred, or
    columns are read as text.
    """

    # columns whose types are inferred; None: all except ids
    inferred: frozenset[Any] | None = None
    # columns that become integers if no character is lost; else text
    ids: frozenset[Any] = frozenset()
    read: frozenset[Any] | None = None  # columns to read; None: all
    # inferred columns that must have only numbers; None: all that have numbers
    numbers: frozenset[Any] | None = None
    # columns with known types; other columns are inferred or text
    types: Mapping[Any, str] = field(default_factory=dict)
    # columns of integers with known types that may have missing cells
    gaps: frozenset[Any] = frozenset()
    # inferred columns that must have only times, if they have any
    times: frozenset[Any] = frozenset()
    # columns that have times or no values
    durations: frozenset[Any] = frozenset()
    # columns of coordinates; empty: all that have numbers
    points: tuple[Any, ...] = ()
    # allowed values of the coordinates, in their order; empty: all numbers
    ranges: tuple[Range, ...] = ()

    def is_inferred(self, name: str) -> bool:
        return name not in self.ids if self.inferred is None else name in self.inferred

    def reads(self, name: str) -> bool:
        return self.read is None or name in self.read

    def is_number(self, name: str) -> bool:
        return self.numbers is None or name in self.numbers

    def with_inferred(self, name: str) -> CsvColumns:
        inferred = None if self.inferred is None else self.inferred | {name}
        return replace(self, inferred=inferred, ids=self.ids - {name})


def dtype_of(kind: str, has_gaps: bool) -> Any:
    """Return the dtype of a column; integers with gaps are nullable."""
    return str if kind == TEXT else NULLABLE[kind] if has_gaps else kind


class Inferred(NamedTuple):
    kind: str
    is_exact: bool  # whether float64 represents all numbers exactly


def inferred_type(
    texts: pa.ChunkedArray, used: CsvColumns, name: str, decimal: str
) -> Inferred:
    """Choose the type of a column as pandas does. If its cells must be numbers, ignore
    others, unless all are texts.
    """
    must = used.numbers is not None and used.is_number(name)
    missing = pc.is_in(texts, pa.array(MISSING))
    rest = texts.filter(pc.invert(missing))
    if name in used.times and (time := _type_of_times(rest)):
        return Inferred(time, False)
    if not len(rest):
        return Inferred(FLOAT, True)
    numbers = rest.filter(pc.match_substring_regex(rest, number_pattern(decimal)))
    if len(numbers) < len(rest) and not (must and len(numbers)):
        is_bool = pc.all(pc.is_in(rest, pa.array(TRUE + FALSE))).as_py()
        return Inferred(BOOL if is_bool and len(rest) == len(texts) else TEXT, False)
    if not pc.all(pc.match_substring_regex(numbers, INTEGER)).as_py():
        return Inferred(FLOAT, True)
    values = [int(one) for one in numbers.to_pylist()]
    largest = max(-min(values), max(values))
    is_exact = largest <= EXACT_INTEGER
    if len(rest) == len(texts):
        if min(values) >= -(2**63) and max(values) < 2**63:
            return Inferred(INT, is_exact)
        if min(values) >= 0 and max(values) < 2**64:
            return Inferred(UINT, is_exact)
    # text keeps the digits of large integers if other cells are missing
    return Inferred(FLOAT if is_exact or must else TEXT, is_exact)


def has_values(texts: pa.ChunkedArray) -> bool:
    """Return whether a column has a cell that is not missing."""
    return not pc.all(pc.is_in(texts, pa.array(MISSING))).as_py()


def _type_of_times(texts: pa.ChunkedArray) -> str | None:
    """Return the type of a column with times; None if no text is a time."""
    kinds = (kind for kind in (ZONED, TIME) if _matches(texts, TIMES[kind]).any())
    return next(kinds, None)


def common_type(some: list[Inferred]) -> str:
    """Return the type of a column in several CSV files: if they differ, float64 or
    text.
    """
    kinds = {one.kind for one in some}
    if kinds == {*CLOCKS}:
        return ZONED
    if len(kinds) == 1:
        return kinds.pop()
    return FLOAT if all(one.is_exact for one in some) else TEXT


def type_of_ids(texts: pa.ChunkedArray) -> str:
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


def said(value: str, kind: str, known: bool, decimal: str) -> str:
    if value in MISSING:
        return f"{value!r}, which is missing"
    is_whole = known and kind in (INT, UINT)
    what = (
        "True or False"
        if kind == BOOL
        else "a time such as 2024-01-31 10:00"
        if kind == TIME
        else "a time with a time zone, such as 2024-01-31T10:00Z"
        if kind == ZONED
        else "a whole number, as in the index"
        if is_whole
        else "a number"
    )
    return f"{value!r}, which is not {what}{decimal_hint(value, decimal)}"


def decimal_hint(value: str, decimal: str = POINT) -> str:
    """Return what to do with a number that has the other decimal mark; "" for other
    texts.
    """
    other = POINT if decimal == COMMA else COMMA
    if other not in value or not re.fullmatch(number_pattern(other), value):
        return ""
    return (
        " (for decimal commas add --decimal ',')"
        if other == COMMA
        else " (--decimal ',' takes only decimal commas)"
    )


def _matches(texts: Any, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(texts, pattern))


def which_fit(texts: Any, kind: str, known: bool, decimal: str) -> np.ndarray:
    """Return which cells may be in a column of numbers. `known`: whether the column
    cannot become float64.
    """
    missing = np.asarray(pc.is_in(texts, pa.array(MISSING)))
    if kind == TEXT:
        return np.ones(len(texts), bool)
    if kind == BOOL:
        return np.asarray(pc.is_in(texts, pa.array(TRUE + FALSE)))
    if kind in CLOCKS:
        # a date such as February 30 has the right form
        times = ~np.asarray(as_numbers(texts, kind, decimal).is_null())
        return missing | (_matches(texts, TIMES[kind]) & times)
    if not known or kind == FLOAT:
        return missing | _matches(texts, number_pattern(decimal))
    fitting = _matches(texts, INTEGER)
    low, high = (0, 2**64) if kind == UINT else (-(2**63), 2**63)
    for n in np.flatnonzero(
        fitting & np.asarray(pc.greater(pc.binary_length(texts), 18))
    ):
        fitting[n] = low <= int(texts[int(n)].as_py()) < high
    return fitting


def as_floats(texts: Any, decimal: str) -> np.ndarray:
    """Convert cells to float64: NaN for missing cells, and for those that are not
    numbers.
    """
    fits = pa.array(which_fit(texts, FLOAT, False, decimal))
    cells = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
    return as_numbers(cells, FLOAT, decimal).to_pandas().to_numpy(float)


def as_numbers(texts: Any, kind: str, decimal: str) -> Any:
    """Convert cells that were checked."""
    if kind == BOOL:
        return pc.is_in(texts, pa.array(TRUE))
    if kind in CLOCKS:
        return _as_times(texts, kind)
    bare = pc.utf8_ltrim(pc.utf8_trim_whitespace(texts), characters="+")
    bare = pc.replace_substring(bare, decimal, POINT)
    missing = pc.is_in(texts, pa.array(MISSING))
    return pc.if_else(missing, pa.scalar(None, pa.string()), bare).cast(TYPES[kind])


def _as_times(texts: Any, kind: str) -> Any:
    """Convert cells to times; cells that are not times become missing."""
    is_time = pc.match_substring_regex(texts, TIMES[kind])
    cells = pc.if_else(is_time, pc.utf8_trim_whitespace(texts), None)
    how = {"format": "ISO8601", "errors": "coerce", "utc": kind == ZONED}
    times = pd.to_datetime(cells.to_pandas(), **how)
    return pa.chunked_array([pa.array(times, TYPES[kind], from_pandas=True)])
