"""List the rows that `--dropna` leaves out, with their places in the files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dask
import numpy as np
import pyarrow.parquet as pq

from dask_simjoin.cli.csv_files import CsvTable
from dask_simjoin.cli.csv_records import CsvBlock, bytes_of, line_numbers, record_spans
from dask_simjoin.cli.csv_rows import BadRow, read_texts, regular_rows
from dask_simjoin.cli.parquet_files import (
    BadParquetRow,
    ParquetFile,
    ParquetTable,
    rows_as_csv,
)
from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import to_host, values_of
from dask_simjoin.graph.dask_private import natural_sort_key
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.planning.left_out import (
    LeftOut,
    LeftOutPart,
    LeftOutRows,
    Reason,
    packed,
    positions_in,
)

REASONS = {
    "missing": "no value",
    "infinite": "an infinite value",
    "no direction": "only zeros, which have no direction",
}
"""Reason -> the same in words, after a column and "has"."""

Reasons = dict[int, str]
"""Positions of rows -> why they are left out."""


def left_out_in_csv(table: CsvTable, left_out: LeftOut) -> list[BadRow]:
    """List the rows of CSV files that are left out. They have the partitions that the
    files were cut into.
    """
    reasons = _reasons(left_out)
    find = dask.delayed(_rows_of_block)
    each = zip(table.blocks, left_out.parts, reasons, strict=True)
    found = dask.compute(*(find(block, some) for block, _, some in each if some))
    return [row for rows in found for row in rows]


def left_out_in_parquet(table: ParquetTable, left_out: LeftOut) -> list[BadRow]:
    """List the rows of Parquet files that are left out."""
    first = 0
    reasons: Reasons = {}
    for part, some in zip(left_out.parts, _reasons(left_out), strict=True):
        reasons |= {first + row: reason for row, reason in some.items()}
        first += part.rows
    bad: dict[str, list[int]] = {}
    for one in table.bad_rows:
        bad.setdefault(one.file, []).append(one.line)
    first, found = 0, []
    # Dask reads files in this order
    for file in sorted(
        table.contents.files, key=lambda one: natural_sort_key(one.path)
    ):
        with file.fs.open(file.path, "rb") as opened:
            rows = pq.ParquetFile(opened).metadata.num_rows
        good = np.delete(np.arange(rows), bad.get(file.name, []))
        some = {int(n): reasons[k] for k, n in enumerate(good, first) if k in reasons}
        found += list(_rows_of_file(file, some))
        first += len(good)
    return found


def _reasons(left_out: LeftOut) -> list[Reasons]:
    """Return for each partition its rows that are left out."""
    found: list[Reasons] = []
    for part in left_out.parts:
        own: Reasons = {}
        for (columns, reason, _), mask in zip(part.reasons, part.masks, strict=True):
            names = " or ".join(map(repr, columns))
            text = f"column {names} has {REASONS[reason]}"
            for row in positions_in(mask, part.rows).tolist():
                own[row] = f"{own[row]}; {text}" if row in own else text
        found.append(own)
    return found


def _rows_of_block(block: CsvBlock, reasons: Reasons) -> list[BadRow]:
    data = bytes_of(block)
    texts = read_texts(data, block, list(block.file.columns[:1]))
    starts, stops, _ = record_spans(data, block.file.separator)
    dropped = {start for start, _ in block.dropped}
    rows = [n for n in regular_rows(texts, len(starts)) if starts[n] not in dropped]
    some = [rows[n] for n in sorted(reasons)]
    lines = line_numbers(data, block, [int(starts[n]) for n in some])
    return [
        BadRow(
            block.file.name,
            line,
            reason,
            data[starts[n] : stops[n]].decode().rstrip("\r"),
        )
        for n, line, reason in zip(
            some, lines, (reasons[n] for n in sorted(reasons)), strict=True
        )
    ]


def _rows_of_file(file: ParquetFile, reasons: Reasons) -> Iterator[BadRow]:
    for n, row in rows_as_csv(file, reasons):
        yield BadParquetRow(file.name, n, reasons[n], row)


INFINITE = [float("inf"), float("-inf")]


def left_out_of_frame(frame: Frame, on: list[str], metric: str) -> LeftOut:
    """Return the rows of a lazy frame that have no coordinates."""
    find = dask.delayed(_left_out_part)
    found = dask.compute(*(find(rows, on, metric) for rows in frame.to_delayed()))
    parts = tuple(part for part, _ in found)
    return LeftOut(
        sum(part.rows for part in parts), tuple(rows for _, rows in found), (), parts
    )


def _left_out_part(rows: Frame, on: list[str], metric: str) -> tuple[LeftOutPart, int]:
    """Return the rows of a partition without coordinates, and their number."""
    every = _without_coordinates(rows, on, metric)
    found = {key: mask for key, mask in every.items() if mask.any()}
    reasons = (
        LeftOutRows(names, reason, int(mask.sum()))
        for (names, reason), mask in found.items()
    )
    number = int(np.any([*found.values()], axis=0).sum()) if found else 0
    masks = tuple(map(packed, found.values()))
    return LeftOutPart(len(rows), tuple(reasons), masks), number


def with_coordinates(rows: Frame, on: list[str], metric: str) -> Frame:
    """Return the rows of a partition that have coordinates."""
    without = np.any([*_without_coordinates(rows, on, metric).values()], axis=0)
    return rows[frames_for(rows).xp.asarray(~without)]


def _without_coordinates(
    rows: Frame, on: list[str], metric: str
) -> dict[tuple[tuple[str, ...], Reason], np.ndarray]:
    """Return masks of the rows that cannot be compared, by columns and reason."""
    found: dict[tuple[tuple[str, ...], Reason], np.ndarray] = {}
    if len(on) == 1 and rows[on].dtypes.iloc[0].name == "object":
        lists = [_numbers(one) for one in rows[on[0]]]
        missing = [one is None or bool(np.isnan(one).any()) for one in lists]
        infinite = [one is not None and bool(np.isinf(one).any()) for one in lists]
        zero = [one is not None and not one.any() for one in lists]
        own = (on[0],)
        found[own, "missing"] = np.array(missing, bool)
        found[own, "infinite"] = np.array(infinite, bool) & ~found[own, "missing"]
        only_zeros = np.array(zero, bool)
    else:
        for name in on:
            found[(name,), "missing"] = _on_host(rows[name].isna())
            found[(name,), "infinite"] = _on_host(rows[name].isin(INFINITE))
        only_zeros = _on_host((rows[on] == 0).all(axis=1))
    if metric == "cosine":
        found[tuple(on), "no direction"] = only_zeros
    return found


def _numbers(cell: Any) -> np.ndarray | None:
    return None if cell is None else np.asarray(cell, float)


def _on_host(mask: Any) -> np.ndarray:
    """Return a column of booleans, which may be nullable or on a GPU."""
    return np.asarray(to_host(values_of(mask)), bool)
