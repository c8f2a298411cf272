"""Read Parquet files: types of columns, and rows with values that are not allowed."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import dask
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dask_simjoin.catalog import is_text
from dask_simjoin.cli.csv_records import BadData
from dask_simjoin.cli.csv_rows import (
    BadRow,
    Rules,
    bad_cells,
    cells_outside,
    refused_row,
)
from dask_simjoin.cli.csv_types import (
    BOOL,
    FLOAT,
    MISSING,
    POINT,
    TEXT,
    CsvColumns,
    as_floats,
    as_numbers,
)
from dask_simjoin.engine.base import frames_for
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.sizes import BATCH


class ParquetFile(NamedTuple):
    fs: Any  # its file system, of fsspec
    path: str
    name: str  # in messages
    in_folder: bool = False  # whether a folder was named, not this file


class ParquetContents(NamedTuple):
    """Content of Parquet files, as their footers show it."""

    files: list[ParquetFile]
    types: dict[str, pa.DataType]  # types of the columns
    # whether pandas would change values, such as large integers if others are missing
    has_gaps: bool
    numbers: frozenset[str]  # columns of numbers in at least one file
    texts: frozenset[str]  # columns of texts in at least one file
    columns: list[frozenset[str]]  # names of the columns of each file

    @property
    def lists(self) -> frozenset[str]:
        """Columns of lists that may differ in length."""
        return frozenset(name for name, kind in self.types.items() if _is_list(kind))


class ParquetTable(NamedTuple):
    """A table of Parquet files, and the bad rows that were left out."""

    contents: ParquetContents
    bad_rows: list[BadRow]


class CheckedRows(NamedTuple):
    frame: Frame
    table: ParquetTable


class BadParquetRow(BadRow):
    """A bad row of a Parquet file, with its number, from 0."""

    @property
    def unit(self) -> str:
        return "row"


def contents_of(files: Sequence[ParquetFile]) -> ParquetContents:
    """Read the footers of Parquet files; other files of a folder are left out."""
    with ThreadPoolExecutor() as threads:
        read = zip(files, threads.map(_footer, files), strict=True)
        footers = [(file, one) for file, one in read if one is not None]
    types: dict[str, pa.DataType] = {}
    numbers, texts = set(), set()
    for _, footer in footers:
        for field in footer.schema.to_arrow_schema():
            # a file may have only missing values
            if types.get(field.name, pa.null()) == pa.null():
                types[field.name] = field.type
            if _is_number(field.type):
                numbers.add(field.name)
            if _is_text(field.type):
                texts.add(field.name)
    unusual = {
        name
        for name, kind in types.items()
        if pa.types.is_integer(kind) or pa.types.is_boolean(kind)
    }
    gaps = pa.time64("ns") in types.values() or any(
        _has_missing(one, unusual) for _, one in footers
    )
    return ParquetContents(
        [file for file, _ in footers],
        types,
        gaps,
        frozenset(numbers),
        frozenset(texts),
        [frozenset(one.schema.to_arrow_schema().names) for _, one in footers],
    )


def check_columns(contents: ParquetContents, names: Iterable[str]) -> None:
    """Raise `BadData` if a file lacks one of these columns."""
    for name in names:
        for file, columns in zip(contents.files, contents.columns, strict=True):
            if name not in columns:
                raise BadData(
                    f"Column {name!r} is not found in {file.name}, but in other files. "
                    "Tables to concatenate need the same columns."
                )


ENDINGS = (".parquet", ".parq", ".pq")
"""Endings of the names of Parquet files. Dask leaves out other files of a folder."""


def _footer(file: ParquetFile) -> pq.FileMetaData | None:
    with file.fs.open(file.path, "rb") as opened:
        try:
            return pq.ParquetFile(opened).metadata
        except DAMAGED as error:
            if is_not_damage(error):
                raise
            if file.in_folder and not file.path.lower().endswith(ENDINGS):
                return None
            raise _damaged(file, error) from error


DAMAGED = (OSError, pa.ArrowException)
"""Errors of Arrow for damaged files."""


def is_not_damage(error: Exception) -> bool:
    """Return whether the operating system, not Arrow, has raised an error."""
    return isinstance(error, OSError) and error.errno is not None


def _damaged(file: ParquetFile, error: Exception) -> BadData:
    reason = " ".join(str(error).split()).rstrip(".")
    hint = (
        "Write or copy the file again."
        if file.path.lower().endswith(ENDINGS)
        else "If it is a CSV file, add --input-format csv."
    )
    return BadData(f"{file.name} cannot be read: {reason}. {hint}")


def check_readable(files: Iterable[ParquetFile]) -> None:
    """Read files, and raise `BadData` for the first one that is damaged."""
    for file in files:
        try:
            for _ in _batches(file, None):
                pass
        except DAMAGED as error:
            if is_not_damage(error):
                raise
            raise _damaged(file, error) from error


def _has_missing(footer: pq.FileMetaData, columns: Container[str]) -> bool:
    """Return whether one of the columns may have missing values."""
    for n in range(footer.num_row_groups):
        group = footer.row_group(n)
        for k in range(group.num_columns):
            chunk = group.column(k)
            if chunk.path_in_schema in columns:
                counts = chunk.statistics
                if counts is None or counts.null_count != 0:
                    return True
    return False


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def checked_rows(
    frame: Frame, contents: ParquetContents, used: CsvColumns, skips: bool
) -> CheckedRows:
    """Check the columns of numbers of Parquet files by the rules for CSV files.

    Columns that are text in some files become numbers, and bad rows are left out of the
    frame. Without `skips`, raise `BadData` for a text that is not a number.
    """
    rules = _rules(contents, used, skips)
    if skips:
        rules = replace(rules, lengths=_most_frequent_lengths(contents, rules))
    checks_numbers = rules.ranges or contents.texts & rules.numbers
    if not checks_numbers and not rules.lengths:
        return CheckedRows(frame, ParquetTable(contents, []))
    find = dask.delayed(find_bad_rows)
    found = dask.compute(*(find(file, rules) for file in contents.files))
    # a column without any number is probably another one than meant: planning refuses it
    filled = contents.numbers.union(*(one.filled for one in found))
    rules = replace(
        rules,
        numbers=rules.numbers & filled - contents.lists,
        ranges={name: one for name, one in rules.ranges.items() if name in filled},
    )
    checked = rules.numbers | rules.lengths.keys()
    bad = [row for one in found for name, row in one.rows if name in checked]
    if bad and not skips:
        raise refused_row(bad[0])
    if bad or contents.texts & rules.numbers:
        frame = frame.map_partitions(
            without_bad_rows, rules, meta=without_bad_rows(frame._meta, rules)
        )
    return CheckedRows(frame, ParquetTable(contents, bad))


def _rules(contents: ParquetContents, used: CsvColumns, skips: bool) -> Rules:
    if used.types:
        numbers = frozenset(
            name for name, kind in used.types.items() if kind not in (TEXT, BOOL)
        )
    elif used.numbers is not None:
        numbers = used.numbers
    else:
        numbers = contents.numbers - used.ids
    points = used.points or [name for name in contents.types if name in numbers]
    return Rules(
        kinds={name: used.types.get(name, FLOAT) for name in numbers},
        numbers=numbers & (contents.numbers | contents.texts | contents.lists),
        known=frozenset(used.types),
        gaps=used.gaps,
        ids=frozenset(),
        ranges=dict(zip(points, used.ranges, strict=False)) if skips else {},
    )


def list_lengths(files: Sequence[ParquetFile], column: str) -> Counter[int]:
    """Count the lists of each length in a column."""

    def count(file: ParquetFile) -> Counter[int]:
        found: Counter[int] = Counter()
        for _, table in _batches(file, [column]):
            found.update(pc.list_value_length(table[column]).drop_null().to_pylist())
        return found

    counts = dask.compute(*(dask.delayed(count)(file) for file in files))
    return sum(counts, Counter[int]())


def most_frequent(lengths: Counter[int]) -> int:
    """Return the most frequent length; of several, the largest."""
    return max(lengths, key=lambda length: (lengths[length], length))


def _most_frequent_lengths(contents: ParquetContents, rules: Rules) -> dict[str, int]:
    """Return the most frequent lengths of columns whose lists differ in length."""
    counts = {
        name: list_lengths(contents.files, name)
        for name in sorted(contents.lists & rules.numbers)
    }
    return {name: most_frequent(one) for name, one in counts.items() if len(one) > 1}


class FoundRows(NamedTuple):
    """The bad rows of a file."""

    rows: list[tuple[str, BadRow]]  # with the column that has the bad value
    filled: frozenset[str]  # columns with at least one number


def find_bad_rows(file: ParquetFile, rules: Rules) -> FoundRows:
    """List the bad rows of a file in the order of the file."""
    reasons: dict[int, tuple[str, str]] = {}
    filled: set[str] = set()
    for first, table in _batches(file, rules.numbers | rules.lengths.keys()):
        for name in table.column_names:
            wrong = dict(_wrong(table[name], name, rules))
            if len(wrong) + table[name].null_count < len(table):
                filled.add(name)
            for n, reason in wrong.items():
                text = f"column {name!r} has {reason}"
                reasons.setdefault(first + n, (name, text))
    rows: list[tuple[str, BadRow]] = []
    for n, shown in rows_as_csv(file, reasons):
        name, reason = reasons[n]
        rows.append((name, BadParquetRow(file.name, n, reason, shown)))
    return FoundRows(rows, frozenset(filled))


def rows_as_csv(
    file: ParquetFile, numbers: Collection[int]
) -> Iterator[tuple[int, str]]:
    """Yield the rows with these numbers as lines of a CSV file, in their order."""
    for first, table in _batches(file, None) if numbers else ():
        for n in sorted(n for n in numbers if first <= n < first + len(table)):
            yield n, _as_csv(table.slice(n - first, 1))


def _batches(
    file: ParquetFile, columns: Iterable[str] | None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield tables of some columns of a file (None: all), with the number of their first
    row.
    """
    with file.fs.open(file.path, "rb") as opened, pq.ParquetFile(opened) as parquet:
        own = parquet.schema_arrow.names
        names = None if columns is None else [one for one in own if one in columns]
        if names == []:
            return
        first = 0
        for batch in parquet.iter_batches(BATCH, columns=names):
            yield first, pa.Table.from_batches([batch])
            first += len(batch)


def _as_csv(row: pa.Table) -> str:
    """Return the cells of a row as a line of a CSV file."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(row.to_pylist()[0].values())
    return line.getvalue()


def _wrong(
    cells: pa.ChunkedArray, name: str, rules: Rules
) -> Iterator[tuple[int, str]]:
    """Yield the positions of values that are not allowed in a column of numbers, and
    why.
    """
    if _is_text(cells.type):
        yield from bad_cells(_texts(cells), name, rules, POINT)
    elif name in rules.lengths and _is_list(cells.type):
        yield from _other_lists(cells, rules.lengths[name])
    elif _is_number(cells.type) and name in rules.ranges:
        yield from cells_outside(cells, _floats(cells), rules.ranges[name])


def _other_lists(cells: pa.ChunkedArray, length: int) -> Iterator[tuple[int, str]]:
    """Yield the positions of lists that do not have this length, and why."""
    lengths = pc.list_value_length(cells)
    other = pc.fill_null(pc.not_equal(lengths, length), False)
    for n in np.flatnonzero(other).tolist():
        yield n, f"a list of length {lengths[n].as_py()}, but most have length {length}"


def first_other_list(files: Iterable[ParquetFile], column: str) -> str | None:
    """Return the place of the first list that does not have the most frequent length,
    in words; None if all lists have one length.
    """
    files = [*files]
    lengths = list_lengths(files, column)
    if len(lengths) < 2:
        return None
    for file in files:
        for first, table in _batches(file, [column]):
            for n, reason in _other_lists(table[column], most_frequent(lengths)):
                return f"{file.name}, row {first + n}, has {reason}"
    return None


def _texts(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts without missing ones, as in a CSV file."""
    return pc.fill_null(cells.cast(pa.string()), "")


def _floats(cells: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(cells.cast(pa.float64(), safe=False), np.nan))


def without_bad_rows(frame: Frame, rules: Rules) -> Frame:
    """Leave out the bad rows of a partition, and convert its texts to numbers."""
    frames, good = frames_for(frame), np.ones(len(frame), bool)
    names = rules.numbers | rules.lengths.keys()
    for name in sorted(names.intersection(frame.columns)):
        cells = _cells(frame, name, name in rules.lengths)
        wrong = [n for n, _ in _wrong(cells, name, rules)]
        good[wrong] = False
        if _is_text(cells.type):
            texts = _texts(cells)
            if wrong:
                texts = pc.if_else(np.isin(np.arange(len(texts)), wrong), "", texts)
            numbers = as_numbers(texts, rules.kinds[name], POINT)
            converted = frames.from_arrow(pa.table({name: numbers}), {})
            converted.index = frame.index
            frame = frame.assign(**{name: converted[name]})
    return frame if good.all() else frame[frames.xp.asarray(good)]


def _cells(frame: Frame, name: str, has_lists: bool) -> pa.ChunkedArray:
    """Return a column as Arrow's numbers, texts or lists."""
    column = frame[name]
    # texts and numbers, if Dask has concatenated files
    is_object = isinstance(column, pd.Series) and column.dtype.name == "object"
    if is_object and not has_lists:
        texts = column.map(str, na_action="ignore")
        return pa.chunked_array([pa.array(texts, pa.string(), from_pandas=True)])
    return frames_for(frame).to_arrow(frame[[name]])[name]


def rows_of(
    files: Iterable[ParquetFile], column: str, value: str | float | None
) -> list[str]:
    """Return the places of the first two cells with a text or a number, such as
    "a.parquet, row 3". `value`: None for missing cells.
    """
    found: list[str] = []
    for file in files:
        for first, table in _batches(file, [column]):
            rows = np.flatnonzero(_equal(table[column], value))[: 2 - len(found)]
            found += [f"{file.name}, row {first + n}" for n in rows.tolist()]
            if len(found) == 2:
                return found
    return found


def _equal(cells: pa.ChunkedArray, value: str | float | None) -> np.ndarray:
    """Return which cells have a value."""
    kind = cells.type
    if not (_is_text(kind) or _is_number(kind)):
        is_missing = np.asarray(cells.is_null())
        return is_missing if value is None else np.zeros(len(cells), bool)
    if isinstance(value, float):
        numbers = as_floats(_texts(cells), POINT) if _is_text(kind) else _floats(cells)
        return numbers == value
    if value is not None:
        return np.asarray(pc.equal(_texts(cells), value))
    if _is_text(kind):
        return np.asarray(pc.is_in(_texts(cells), pa.array(MISSING)))
    return np.isnan(_floats(cells))
