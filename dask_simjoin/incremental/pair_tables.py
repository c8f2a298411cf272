"""Pairs in files: what columns they have, and which of them are still there.

A file has the ids of both rows, what is kept of them, their numbers, and the total that decided the pair: so
it can be decided for a smaller distance as any join decides it, and its distance is what a join tells.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dask_simjoin.incremental.deletions import KNOWN
from dask_simjoin.incremental.entries import MarkFile, PairFile, StoredPairs
from dask_simjoin.incremental.files import PAIRS, parquet, read_groups, read_whole, write_tables
from dask_simjoin.incremental.lazy import spec_of
from dask_simjoin.incremental.requests import STORED
from dask_simjoin.incremental.rows import example_table
from dask_simjoin.incremental.schema import DTYPES, dtypes_in
from dask_simjoin.incremental.transactions import Transaction
from dask_simjoin.incremental.types import SEQ, Options, Snapshot
from dask_simjoin.metrics.distances import Metric
from dask_simjoin.metrics.totals import Totals
from dask_simjoin.options.spec import JoinSpec

LEFT, RIGHT = STORED

TOTAL = "distance"
"""The column of totals, called as joins call it."""

GROUP = 1 << 18
"""Pairs of a row group."""


@dataclass(frozen=True)
class TotalsSpec(JoinSpec):
    """What a join is asked for whose distances are totals."""

    @property
    def measure(self) -> Metric:
        return Totals(super().measure)


def stored_spec(rows: Snapshot) -> TotalsSpec:
    """Make what the pairs of an index are asked for, as they are stored."""
    spec, names, kept = spec_of(rows, None, True), rows.options.names, len(rows.options.keep)
    asked = {one.name: getattr(spec, one.name) for one in fields(spec)}
    asked["keep"] = (*spec.keep, SEQ)
    asked["names"] = (*names[:kept], LEFT, *names[kept:], RIGHT)
    return TotalsSpec(**asked)


def pair_schema(root: Path, options: Options) -> pa.Schema:
    """The schema of files of pairs."""
    own = example_table(root, options).schema
    told, ids = dtypes_in(own), options.row_id
    of = {"left": ids, "right": ids} | dict(zip(options.names, options.keep * 2, strict=True))
    columns = [pa.field(name, own.field(column).type) for name, column in of.items()]
    numbers = [pa.field(TOTAL, pa.float64()), pa.field(LEFT, pa.int64()), pa.field(RIGHT, pa.int64())]
    dtypes = {name: told[column] for name, column in of.items() if column in told}
    return pa.schema([*columns, *numbers], {DTYPES: json.dumps(dtypes).encode()})


def write_pairs(own: Transaction, tables: Iterator[pa.Table], schema: pa.Schema) -> tuple[str, int, int]:
    """Write pairs as a file; tells its name, how many there are, and the bytes."""
    rows = 0
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_temporal)
    texts = [one.name for one in schema if not any(kind(one.type) for kind in plain)]

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in tables:
            rows += len(table)
            yield table

    name, size = own.write(PAIRS, lambda file: write_tables(counted(), file, schema, texts, GROUP))
    return name, rows, size


class Gone(NamedTuple):
    """Rows that went: their numbers (n,), ascending, and the last version (n,) with which each did."""

    seq: np.ndarray
    version: np.ndarray


@functools.lru_cache(KNOWN)
def rows_gone(root: Path, marks: tuple[MarkFile, ...]) -> Gone:
    """Tell which rows went, as files that never change say: each process reads them once."""
    seq = [read_whole(root / PAIRS / one.name)[SEQ].to_numpy() for one in marks]
    every = np.concatenate([np.zeros(0, np.int64), *seq])
    version = np.repeat(np.array([one.version for one in marks], np.int64), [len(some) for some in seq])
    order = np.lexsort((version, every))
    every, version = every[order], version[order]
    last = np.append(every[1:] != every[:-1], True)[: len(every)]
    return Gone(every[last], version[last])


def read_live(root: Path, one: PairFile, marks: tuple[MarkFile, ...], columns: Sequence[str],
              groups: Sequence[int] | None = None) -> Iterator[pa.Table]:  # fmt: skip
    """Read the pairs of a file that are still there, some row groups or all, one after the other."""
    every = rows_gone(root, marks)
    gone = every.seq[every.version > one.version]
    wanted = list(dict.fromkeys([*columns, *((LEFT, RIGHT) if len(gone) else ())]))
    with parquet(root / PAIRS / one.name) as file:
        for group in range(file.num_row_groups) if groups is None else groups:
            table = read_groups(file, [group], wanted)
            if len(gone):
                dead = [_among(table[name].to_numpy(), gone) for name in (LEFT, RIGHT)]
                table = table.filter(pa.array(~(dead[0] | dead[1])))
            yield table.select(list(columns))


def _among(seq: np.ndarray, gone: np.ndarray) -> np.ndarray:
    """Tell which numbers are among others, of which there are some, ascending."""
    at = np.minimum(np.searchsorted(gone, seq), len(gone) - 1)
    return gone[at] == seq


def needed(pairs: StoredPairs) -> StoredPairs:
    """Leave out marks that are of no file any more."""
    oldest = min((one.version for one in pairs.files), default=0)
    marks = pairs.marks if pairs.files else ()
    return StoredPairs(pairs.files, tuple(one for one in marks if one.version > oldest))
