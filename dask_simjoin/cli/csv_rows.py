"""Parse blocks of CSV files with Arrow, and name the rows that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from dask_simjoin.cli.csv_records import (
    BadData,
    CsvBlock,
    CsvFile,
    bytes_of,
    check_closed,
    check_utf8,
    line_numbers,
    record_spans,
    without_ranges,
)
from dask_simjoin.cli.csv_types import (
    BOOL,
    CLOCKS,
    FALSE,
    FLOAT,
    INT,
    MISSING,
    TEXT,
    TRUE,
    TYPES,
    UINT,
    Range,
    WiderType,
    as_floats,
    as_integers,
    as_numbers,
    said,
    which_fit,
)
from dask_simjoin.engine.columns import EXACT_INTEGER
from dask_simjoin.sizes import PARSED_BYTES


class BadRow(NamedTuple):
    file: str
    line: int  # in Parquet files, the number of the row
    reason: str
    row: str

    @property
    def unit(self) -> str:
        """The thing that `line` counts."""
        return "line"

    @property
    def place(self) -> str:
        return f"{self.file}, {self.unit} {self.line}"


@dataclass(frozen=True)
class Rules:
    """Rules for the cells of columns."""

    kinds: Mapping[str, str]  # the types of all columns
    numbers: frozenset[str]  # columns where other texts are errors
    known: frozenset[str]  # columns that cannot get another type
    gaps: frozenset[str]  # known columns of integers that may have missing cells
    ids: frozenset[str]  # columns whose integers must lose no character
    # allowed values of columns of numbers
    ranges: Mapping[str, Range] = field(default_factory=dict)
    # lengths that the lists of columns must have
    lengths: Mapping[str, int] = field(default_factory=dict)


NO_RULES = Rules({}, frozenset(), frozenset(), frozenset(), frozenset())
"""With these rules, only rows with too many or too few cells are bad."""


def read_csv_block(
    block: CsvBlock,
    columns: list[str] | None = None,
    *,
    meta: pd.DataFrame,
    rules: Rules,
) -> pd.DataFrame:
    """Parse some columns of a block, and convert them to the dtypes of `meta`."""
    wanted = meta if columns is None else meta[columns]
    data = without_ranges(bytes_of(block), block.dropped)
    if not data or data.isspace():
        return wanted
    names = list(wanted.columns) or list(block.file.columns[:1])
    table = _parsed(data, block, names, rules)
    frame = table.to_pandas()
    for name in rules.gaps.intersection(wanted.columns):
        dtype = wanted[name].dtype
        frame[name] = table[name].to_pandas(types_mapper=lambda _, to=dtype: to)
    return frame[list(wanted.columns)]


def _parsed(data: bytes, block: CsvBlock, names: list[str], rules: Rules) -> pa.Table:
    """Parse columns with the types of the rules.

    Arrow parses most blocks at once. If a row or a cell does not fit, look at all cells
    as text.
    """
    kinds = {name: rules.kinds.get(name, TEXT) for name in names}
    check_closed(data, block)
    as_text = [name for name in names if kinds[name] == TEXT or name in rules.ids]
    times = [name for name in names if kinds[name] in CLOCKS]
    has_integers = any(
        kinds[name] in (INT, UINT) and name not in as_text for name in names
    )
    # Arrow would read 0x10 as 16
    if not has_integers or not (b"0x" in data or b"0X" in data):
        # it has other rules for times
        types = {
            name: pa.string() if name in (*as_text, *times) else TYPES[kinds[name]]
            for name in names
        }
        try:
            table = _arrow(data, block.file, types, _only_blank)
        except ValueError:
            pass
        else:
            has_gaps = any(
                table[name].null_count and kinds[name] in (INT, UINT, BOOL)
                for name in names
                if name not in rules.gaps
            )
            if not has_gaps and all(
                which_fit(table[name], kinds[name], False, block.file.decimal).all()
                for name in times
            ):
                for name in times:
                    cells = as_numbers(table[name], kinds[name], block.file.decimal)
                    place = table.column_names.index(name)
                    table = table.set_column(place, name, cells)
                _check_digits(table, block, rules)
                return _with_texts(table, block, as_text, rules)
    texts = read_texts(data, block, names)
    for found in find_bad_rows(texts, data, block, rules):
        raise refused_row(found.row)
    typed = {}
    for name in names:
        cells = texts.table[name]
        if name not in as_text:
            _check_width(cells, name, block, rules)
            cells = as_numbers(cells, kinds[name], block.file.decimal)
        typed[name] = cells
    return _with_texts(pa.table(typed), block, as_text, rules)


def _arrow(
    data: bytes,
    file: CsvFile,
    types: Mapping[str, pa.DataType],
    irregular: Callable[[Any], str],
    size: int = PARSED_BYTES,
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
                decimal_point=file.decimal,
            ),
        )
    except pa.ArrowInvalid as error:
        if "straddl" not in str(error) or size > PARSED_BYTES:
            raise
    return _arrow(data, file, types, irregular, min(len(data) + 1, 2**31 - 1))


def _only_blank(row: Any) -> str:
    return "error" if row.text.strip() else "skip"


class Texts(NamedTuple):
    """The rows of a block as text."""

    table: pa.Table  # the rows with the right number of fields
    ragged: dict[int, str]  # number of another row -> the reason why it is wrong
    blank: set[int]  # numbers of rows of white space


def read_texts(data: bytes, block: CsvBlock, names: list[str]) -> Texts:
    check_utf8(data, block.file.name, block.line)
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


def find_bad_rows(
    texts: Texts, data: bytes, block: CsvBlock, rules: Rules
) -> list[Found]:
    """List the bad rows of a block in the order of the file."""
    reasons = dict(texts.ragged)
    starts, stops, _ = record_spans(data, block.file.separator)
    numbers = regular_rows(texts, len(starts))
    for name in texts.table.column_names:
        if name in rules.numbers:
            cells = texts.table[name]
            for n, wrong in bad_cells(cells, name, rules, block.file.decimal):
                reasons.setdefault(numbers[n], f"column {name!r} has {wrong}")
    rows = sorted(reasons)
    lines = line_numbers(data, block, [int(starts[n]) for n in rows])
    found = []
    for k, line in zip(rows, lines, strict=True):
        start, stop = int(starts[k]), int(stops[k])
        after = int(starts[k + 1]) if k + 1 < len(starts) else len(data)
        row = data[start:stop].decode().rstrip("\r")
        found.append(
            Found(start, after, BadRow(block.file.name, line, reasons[k], row))
        )
    return found


def bad_cells(
    cells: Any, name: str, rules: Rules, decimal: str
) -> Iterator[tuple[int, str]]:
    """Yield the positions of cells that are wrong in a column of numbers, and why."""
    kind, known = rules.kinds[name], name in rules.known
    fits = which_fit(cells, kind, known, decimal)
    if name in rules.gaps:
        fits |= np.asarray(pc.is_in(cells, pa.array(MISSING)))
    for n in np.flatnonzero(~fits).tolist():
        yield n, said(cells[n].as_py(), kind, known, decimal)
    if name in rules.ranges:
        yield from cells_outside(cells, as_floats(cells, decimal), rules.ranges[name])


def cells_outside(
    cells: Any, numbers: np.ndarray, allowed: Range
) -> Iterator[tuple[int, str]]:
    """Yield the positions of cells whose numbers are not allowed, and why."""
    what, lowest, highest = allowed
    outside = (numbers < lowest) | (numbers > highest)
    for n in np.flatnonzero(outside & np.isfinite(numbers)).tolist():
        yield (
            n,
            f"{cells[n].as_py()!r}, which is not a {what} in degrees, "
            f"{lowest:g} to {highest:g}",
        )


def regular_rows(texts: Texts, rows: int) -> list[int]:
    """Return the numbers of the rows in the table of texts."""
    irregular = texts.ragged.keys() | texts.blank
    return [n for n in range(rows) if n not in irregular]


def lines_of(
    blocks: Iterable[CsvBlock], column: str, value: str | float | None
) -> list[str]:
    """Return the places of the first two cells with a text or a number, such as "a.csv,
    line 3". `value`: None for missing cells.
    """
    found: list[str] = []
    for block in blocks:
        data = bytes_of(block)
        if column not in block.file.columns or not data.strip():
            continue
        texts = read_texts(data, block, [column])
        cells = pc.utf8_trim_whitespace(texts.table[column])
        if isinstance(value, float):
            is_wanted = as_floats(cells, block.file.decimal) == value
        else:
            wanted = pa.array(MISSING if value is None else [value])
            is_wanted = np.asarray(pc.is_in(cells, wanted))
        starts, _, _ = record_spans(data, block.file.separator)
        numbers = regular_rows(texts, len(starts))
        rows = np.flatnonzero(is_wanted)[: 2 - len(found)]
        places = [int(starts[numbers[n]]) for n in rows]
        found += [
            f"{block.file.name}, line {line}"
            for line in line_numbers(data, block, places)
        ]
        if len(found) == 2:
            break
    return found


def _check_width(texts: Any, name: str, block: CsvBlock, rules: Rules) -> None:
    """Raise `WiderType` if the cells of a column do not fit its type."""
    kind = rules.kinds.get(name, TEXT)
    decimal = block.file.decimal
    fits = which_fit(texts, kind, True, decimal)
    if fits.all() or name in rules.known:
        return
    value = texts[int(np.flatnonzero(~fits)[0])].as_py()
    is_number = kind != BOOL and which_fit(texts, kind, False, decimal).all()
    raise WiderType(block.file.path, name, FLOAT if is_number else TEXT, value)


def _check_digits(table: pa.Table, block: CsvBlock, rules: Rules) -> None:
    """Raise `WiderType` if floats may have lost digits of integers that name groups."""
    for name in table.column_names:
        if rules.kinds.get(name) == FLOAT and name not in rules.numbers:
            largest = pc.max(pc.abs(table[name])).as_py()
            if largest is not None and np.inf > largest > EXACT_INTEGER:
                raise WiderType(block.file.path, name, TEXT, f"{largest:.0f}")


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


def refused_row(row: BadRow) -> BadData:
    shown = row.row if len(row.row) <= 80 else f"{row.row[:77]}..."
    quoting = (
        " A cell that contains the separator must be in double quotes."
        if row.reason.startswith("expected")
        else ""
    )
    return BadData(
        f"{row.place}: {row.reason}. The row is {shown!r}.{quoting} "
        "Correct the row, or leave out such rows with --bad-rows skip."
    )


def without_bad_rows(block: CsvBlock, rules: Rules) -> tuple[CsvBlock, list[BadRow]]:
    """Find the bad rows of a block, and mark them to be left out."""
    data = bytes_of(block)
    if not data.strip():
        return block, []
    check_closed(data, block)
    names = sorted(rules.numbers) or list(block.file.columns[:1])
    texts = read_texts(data, block, names)
    found = find_bad_rows(texts, data, block, rules)
    dropped = tuple((one.start, one.stop) for one in found)
    return block._replace(dropped=dropped), [one.row for one in found]
