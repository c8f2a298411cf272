"""Infer the types of CSV columns from the first rows of each file."""

from __future__ import annotations

from io import BytesIO
from typing import NamedTuple

import click
import fsspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from fsspec.core import url_to_fs

from dask_simjoin.cli.csv_blocks import (
    as_utf8,
    check_utf8,
    has_single_bytes,
    record_spans,
)
from dask_simjoin.cli.csv_format import (
    BOOL,
    FALSE,
    FLOAT,
    HEAD_BYTES,
    HEAD_ROWS,
    INT,
    INTEGER,
    MAX_EXACT,
    MISSING,
    NUMBER,
    TEXT,
    TRUE,
    UINT,
    BadData,
    CsvBlock,
    CsvColumns,
    CsvFile,
    CsvFormat,
    count_lines,
    separator_of,
)
from dask_simjoin.cli.csv_rows import as_integers, first_line, read_texts


class Head(NamedTuple):
    """The beginning of a CSV file."""

    file: CsvFile
    has_rows: bool
    texts: pa.Table  # first rows of the columns whose types are chosen


def read_head(named: tuple[str, str], used: CsvColumns, written: CsvFormat) -> Head:
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
        1 + count_lines(data[:end]),
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
    if has_single_bytes(written.encoding):
        some = as_utf8(some, written.encoding, name, block.line)
    return Head(file, True, read_texts(some, block, looked).table)


def _version(path: str) -> str:
    fs, name = url_to_fs(path)
    return str(fs.ukey(name))


def _beginning(path: str, name: str, size: int, encoding: str) -> tuple[bytes, bool]:
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


def _columns(
    header: bytes, name: str, separator: str, encoding: str
) -> tuple[str, ...]:
    if has_single_bytes(encoding):
        header = as_utf8(header, encoding, name, first_line)
    check_utf8(header, name, first_line)
    return tuple(map(str, pd.read_csv(BytesIO(header), sep=separator, nrows=0)))


def common_kinds(heads: list[Head], used: CsvColumns) -> dict[str, str]:
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
