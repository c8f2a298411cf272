"""Lazy frames of pairs that are stored, and of all pairs of a version, stored or not."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.blocks import all_blocks, sizes
from dask_simjoin.incremental.entries import MarkFile, PairFile, StoredPairs
from dask_simjoin.incremental.files import PAIRS, parquet
from dask_simjoin.incremental.lazy import example_of_pairs, lazy_pairs, spec_of
from dask_simjoin.incremental.pair_tables import LEFT, RIGHT, TOTAL, pair_schema, read_live
from dask_simjoin.incremental.schema import as_frame
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import SEQ, Snapshot
from dask_simjoin.metrics.types import Frame
from dask_simjoin.options.settings import texts_as_given
from dask_simjoin.options.spec import JoinSpec

ROWS = 1 << 20
"""Pairs of a partition, about."""


class Pieces(NamedTuple):
    """Row groups of files of pairs: what a partition is made of."""

    files: tuple[tuple[PairFile, tuple[int, ...]], ...]


def all_pairs(version: Version, eps: float | None = None, numbered: bool = False) -> Frame:
    """Make a lazy frame of all pairs of a version, each once, the row with the smaller number left.

    `eps`: within another distance than that of the index; `numbered`: of rows' numbers alone.
    """
    options, rows = version.manifest.options, version.rows
    spec = spec_of(rows, eps, options.return_distance and not numbered, numbered)
    if options.store_pairs and spec.eps <= options.eps:
        return stored_pairs(version.manifest.pairs, rows, spec)
    return found_pairs(rows, spec)


def found_pairs(rows: Snapshot, spec: JoinSpec) -> Frame:
    """Make a lazy frame of all pairs of rows, which are found when it is computed."""
    return lazy_pairs(all_blocks(rows, spec, sizes(rows, spec)), rows)


def stored_pairs(pairs: StoredPairs, rows: Snapshot, spec: JoinSpec) -> Frame:
    """Make a lazy frame of pairs that are stored; `rows`: any of the index, `spec`: what is asked for."""
    schema = pair_schema(rows.root, rows.options)
    meta = example_of_pairs(rows, spec)
    parts = list(_parts(rows.root, pairs.files)) or [Pieces(())]
    with texts_as_given():
        return dd.from_map(
            _on_worker, parts, root=rows.root, marks=pairs.marks, spec=spec, schema=schema,
            least=rows.options.eps, meta=meta, label="simjoin_stored", enforce_metadata=False,
            columns=list(meta.columns),
        )  # fmt: skip


def _parts(root: Path, files: Sequence[PairFile]) -> Iterator[Pieces]:
    """Put row groups together that have about `ROWS` pairs."""
    some: list[tuple[PairFile, tuple[int, ...]]] = []
    room = ROWS
    for one in files:
        with parquet(root / PAIRS / one.name) as file:
            about = file.metadata
        for group in range(about.num_row_groups):
            size = about.row_group(group).num_rows
            if size > room and some:
                yield Pieces(tuple(some))
                some, room = [], ROWS
            some.append((one, (group,)))
            room -= size
    if some:
        yield Pieces(tuple(some))


def _on_worker(part: Pieces, columns: list[str], **how: Any) -> Frame:
    """Read pairs; Dask tells a function whose argument is called so which columns are needed."""
    return on_worker(functools.partial(_read, part, columns=columns, **how))


def _read(part: Pieces, root: Path, marks: tuple[MarkFile, ...], spec: JoinSpec, schema: pa.Schema,
          least: float, columns: list[str]) -> Frame:  # fmt: skip
    """Read pairs that are still there, and are within the distance of `spec`."""
    numbered = {"left": LEFT, "right": RIGHT} if not spec.keep and spec.id == SEQ else {}
    names = [numbered.get(name, name) for name in columns]
    nearer = spec.eps < least
    wanted = list(dict.fromkeys([*names, *([TOTAL] if nearer else ())]))
    tables = [pa.schema([schema.field(name) for name in wanted], schema.metadata).empty_table()]
    for one, groups in part.files:
        tables += read_live(root, one, marks, wanted, groups)
    table = pa.concat_tables(tables)
    if nearer:
        table = table.filter(pc.less_equal(table[TOTAL], spec.threshold))
    frames = frames_of_library(spec.library)
    found = as_frame(table.select(names), spec.library)
    found.columns = columns
    if TOTAL in columns and spec.return_distance:
        total = frames.xp.array(found[TOTAL].values, copy=True)
        found[TOTAL] = spec.measure.distance(total, frames.xp)
    return found
