"""Read CSV files in blocks with Arrow, and name the rows that are wrong."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd

from dask_simjoin.cli.csv_blocks import split_file
from dask_simjoin.cli.csv_format import (
    FLOAT,
    INT,
    NULLABLE,
    TEXT,
    UINT,
    BadRow,
    CsvColumns,
    CsvFormat,
    CsvTable,
)
from dask_simjoin.cli.csv_rows import Rules, leave_out_bad_rows, read_csv_block
from dask_simjoin.cli.csv_types import common_kinds, read_head


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
        heads = list(threads.map(lambda path: read_head(path, used, written), paths))
    kinds = common_kinds(heads, used)
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
        cut = threads.map(lambda head: split_file(head.file), heads)
        blocks = [block for blocks in cut for block in blocks]
    bad: list[BadRow] = []
    if written.skips:
        find = dask.delayed(leave_out_bad_rows)
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


# ---- rows in bytes


# ---- encodings


# ---- cells


# ---- bad rows
