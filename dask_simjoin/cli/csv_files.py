"""Read CSV files as one lazy frame: headers, first rows and types of columns."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import NamedTuple

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from fsspec.core import url_to_fs

from dask_simjoin.cli.csv_records import (
    BadData,
    CsvBlock,
    CsvFile,
    as_utf8,
    beginning_of,
    blocks_of,
    check_utf8,
    first_line,
    has_single_bytes,
    line_ends,
    record_spans,
    separator_of,
)
from dask_simjoin.cli.csv_rows import (
    NO_RULES,
    BadRow,
    Rules,
    find_bad_rows,
    read_csv_block,
    read_texts,
    refused_row,
    without_bad_rows,
)
from dask_simjoin.cli.csv_types import (
    CLOCKS,
    FLOAT,
    INT,
    POINT,
    TEXT,
    TIME,
    UINT,
    CsvColumns,
    common_type,
    dtype_of,
    has_values,
    inferred_type,
    type_of_ids,
)
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.sizes import PARSED_BYTES

HEAD_ROWS = 5_000
"""Look at this many rows of each CSV file to choose dtypes."""


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written, and what to do with bad rows."""

    separator: str | None = None  # None: by the ending of the name
    encoding: str = "utf-8"
    decimal: str = POINT
    skips: bool = False  # whether bad rows are left out


class CsvTable(NamedTuple):
    """A table of CSV files, and the bad rows that were left out."""

    frame: Frame
    blocks: list[CsvBlock]
    bad_rows: list[BadRow]
    # columns of times whose first rows have no value
    no_times: frozenset[str]


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
    numbers = [
        name
        for name, kind in kinds.items()
        if name in used.types
        or (kind in (INT, UINT, FLOAT) and name not in ids and used.is_number(name))
        or kind in CLOCKS
    ]
    points = used.points or numbers
    rules = Rules(
        kinds=kinds,
        numbers=frozenset(numbers),
        known=frozenset(used.types),
        gaps=used.gaps,
        ids=frozenset(ids),
        # otherwise planning refuses them
        ranges=dict(zip(points, used.ranges, strict=False)) if written.skips else {},
    )
    with ThreadPoolExecutor() as threads:
        cut = threads.map(lambda head: blocks_of(head.file), heads)
        blocks = [block for blocks in cut for block in blocks]
    bad: list[BadRow] = []
    if written.skips:
        find = dask.delayed(without_bad_rows)
        found = dask.compute(*(find(block, rules) for block in blocks))
        blocks = [block for block, _ in found]
        bad = [row for _, rows in found for row in rows]
    meta = pd.DataFrame(
        {
            name: pd.Series(dtype=dtype_of(kind, name in used.gaps))
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
    no_times = used.times - {
        name
        for head in heads
        for name in head.texts.column_names
        if has_values(head.texts[name])
    }
    return CsvTable(frame, blocks, bad, no_times)


class Head(NamedTuple):
    """The beginning of a CSV file."""

    file: CsvFile
    has_rows: bool
    texts: pa.Table  # first rows of the columns whose types are chosen


def _head(named: tuple[str, str], used: CsvColumns, written: CsvFormat) -> Head:
    path, name = named
    separator = written.separator or separator_of(path)
    size = PARSED_BYTES
    while True:
        data, at_end = beginning_of(path, name, size, written.encoding)
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
    header = _header(data[starts[0] : stops[0]], name, written.encoding)
    _check_unlike(header, name, separator, used)
    file = CsvFile(
        path,
        name,
        tuple(map(str, pd.read_csv(BytesIO(header), sep=separator, nrows=0))),
        separator,
        written.decimal,
        written.encoding,
        end,
        1 + line_ends(data[:end]),
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
    texts = read_texts(some, block, looked)
    if texts.ragged and not len(texts.table) and not written.skips:
        raise refused_row(find_bad_rows(texts, some, block, NO_RULES)[0].row)
    return Head(file, len(texts.table) > 0, texts.table)


def _version(path: str) -> str:
    fs, name = url_to_fs(path)
    return str(fs.ukey(name))


def _header(header: bytes, name: str, encoding: str) -> bytes:
    """Return a header as UTF-8. `name`: of the file, in messages."""
    if has_single_bytes(encoding):
        header = as_utf8(header, encoding, name, first_line)
    check_utf8(header, name, first_line)
    return header


def _check_unlike(header: bytes, name: str, separator: str, used: CsvColumns) -> None:
    """Refuse a column that an option names, if another one has the same name."""
    how = {"sep": separator, "dtype": str, "keep_default_na": False}
    given = pd.read_csv(BytesIO(header), header=None, **how).iloc[0]
    named = used.ids | used.times | (used.inferred or frozenset())
    for repeated in given[given.duplicated() & given.isin(named)]:
        raise BadData(
            f"{name} has several columns named {repeated!r}; rename all but one. The "
            f"program reads them as {repeated!r}, '{repeated}.1' and so on."
        )


def _kinds(heads: list[Head], used: CsvColumns) -> dict[str, str]:
    """Return the type of each column to read; all files must have it."""
    columns = dict.fromkeys(name for head in heads for name in head.file.columns)
    first = heads[0].file
    wanted = [name for name in columns if used.read is None or name in used.read]
    for head in heads:
        lacking = [name for name in wanted if name not in head.file.columns]
        if lacking:
            raise BadData(
                f"Column {lacking[0]!r} is not found in {head.file.name}, which has the "
                f"columns {', '.join(head.file.columns)}, but "
                f"{next(one.file.name for one in heads if lacking[0] in one.file.columns)}"
                f" has {', '.join(first.columns if first is not head.file else columns)}. "
                "Tables to concatenate need the same columns."
            )
    filled = [head.texts for head in heads if head.has_rows]
    decimal = first.decimal
    kinds = {}
    for name in wanted:
        if name in used.types:
            kinds[name] = used.types[name]
        elif used.is_inferred(name):
            some = [
                inferred_type(one[name], used, name, decimal)
                for one in filled
                if name not in used.times or has_values(one[name])
            ]
            none = TIME if name in used.durations else FLOAT
            kinds[name] = common_type(some) if some else none
        elif name in used.ids:
            found = {type_of_ids(one[name]) for one in filled}
            kinds[name] = found.pop() if len(found) == 1 else TEXT
        else:
            kinds[name] = TEXT
    return kinds
