"""Pairs that an index stores: their files, tables and lazy frames.

For each pair, a file has the ids, the kept values and the row numbers of both rows, and
the total of the pair. The total is the number that a join compares with its threshold,
such as a squared distance. So for a smaller distance, the stored totals select exactly
the pairs that a join would find.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.disk_index.blocks import all_blocks, blocks_of, read_side, sizes
from dask_simjoin.disk_index.casts import DTYPES, dtypes_in
from dask_simjoin.disk_index.files import (
    PAIRS,
    call_on_workers,
    check_written,
    cut_parts,
    parquet,
    read_file,
    read_groups,
    write_table,
    write_tables,
)
from dask_simjoin.disk_index.graph import example_of_pairs, lazy_pairs, spec_of
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.rows import CACHED_VERSIONS, example_table
from dask_simjoin.disk_index.schema import arrow_of, as_frame
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.stores import AnyPath
from dask_simjoin.disk_index.types import (
    SEQ,
    MarkFile,
    Options,
    PairFile,
    Snapshot,
    StoredPairs,
)
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.graph.dask_private import TaskRef
from dask_simjoin.graph.source import optimise_in_place
from dask_simjoin.graph.workers import on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.options import texts_as_given
from dask_simjoin.request.spec import JoinSpec, TotalsSpec
from dask_simjoin.sizes import BATCH, FEW, MIN_PART, PARTITION
from dask_simjoin.tasks.matches import measured

STORED = LEFT, RIGHT = f"{SEQ}_left", f"{SEQ}_right"
"""Columns of pair files that results do not have: the row numbers of both rows."""

TOTAL = "distance"
"""Name of the column of totals: a join with `TotalsSpec` returns them in place of
distances.
"""


def stored_spec(rows: Snapshot) -> TotalsSpec:
    """Return the options for a join that finds the pairs of an index with all columns
    of pair files.
    """
    spec, names, kept = (
        spec_of(rows, None, True),
        rows.options.names,
        len(rows.options.keep),
    )
    both = (*names[:kept], LEFT, *names[kept:], RIGHT)
    return TotalsSpec.of(spec, keep=(*spec.keep, SEQ), names=both)


def pair_schema(root: AnyPath, options: Options) -> pa.Schema:
    own = example_table(root, options).schema
    own_dtypes, ids = dtypes_in(own), options.row_id
    of = {"left": ids, "right": ids} | dict(
        zip(options.names, options.keep * 2, strict=True)
    )
    columns = [pa.field(name, own.field(column).type) for name, column in of.items()]
    numbers = [
        pa.field(TOTAL, pa.float64()),
        pa.field(LEFT, pa.int64()),
        pa.field(RIGHT, pa.int64()),
    ]
    dtypes = {
        name: own_dtypes[column] for name, column in of.items() if column in own_dtypes
    }
    return pa.schema([*columns, *numbers], {DTYPES: json.dumps(dtypes).encode()})


class WrittenPairs(NamedTuple):
    name: str
    rows: int
    size: int  # bytes


def write_pairs(
    own: Transaction, tables: Iterator[pa.Table], schema: pa.Schema
) -> WrittenPairs:
    rows = 0
    plain = (pa.types.is_integer, pa.types.is_floating, pa.types.is_temporal)
    texts = [one.name for one in schema if not any(kind(one.type) for kind in plain)]

    def counted() -> Iterator[pa.Table]:
        nonlocal rows
        for table in tables:
            rows += len(table)
            yield table

    name, size = own.write(
        PAIRS, lambda file: write_tables(counted(), file, schema, texts, BATCH)
    )
    return WrittenPairs(name, rows, size)


class DeletedRows(NamedTuple):
    seq: np.ndarray  # (n,): row numbers, ascending
    version: np.ndarray  # (n,): for each row, the last version that deleted it


@functools.lru_cache(CACHED_VERSIONS)
def deleted_rows(root: AnyPath, marks: tuple[MarkFile, ...]) -> DeletedRows:
    """Read from mark files which rows were deleted. The result is cached, because files
    never change.
    """
    seq = [read_file(root / PAIRS / one.name)[SEQ].to_numpy() for one in marks]
    every = np.concatenate([np.zeros(0, np.int64), *seq])
    version = np.repeat(
        np.array([one.version for one in marks], np.int64), [len(some) for some in seq]
    )
    order = np.lexsort((version, every))
    every, version = every[order], version[order]
    last = np.append(every[1:] != every[:-1], True)[: len(every)]
    return DeletedRows(every[last], version[last])


def read_valid(
    root: AnyPath,
    one: PairFile,
    marks: tuple[MarkFile, ...],
    columns: Sequence[str],
    groups: Sequence[int] | None = None,
) -> Iterator[pa.Table]:
    """Read a pair file, and yield the valid pairs in each row group. `groups`: the row
    groups to read; None: all.
    """
    every = deleted_rows(root, marks)
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
    """Return a mask of the row numbers that occur in `gone`, which is ascending and not
    empty.
    """
    at = np.minimum(np.searchsorted(gone, seq), len(gone) - 1)
    return gone[at] == seq


def needed(pairs: StoredPairs) -> StoredPairs:
    """Drop mark files that are older than all pair files: no stored pair is invalid
    because of them.
    """
    oldest = min((one.version for one in pairs.files), default=0)
    marks = pairs.marks if pairs.files else ()
    return StoredPairs(pairs.files, tuple(one for one in marks if one.version > oldest))


class Pieces(NamedTuple):
    """The input of one partition: pair files, and for each of them the indexes of row
    groups.
    """

    files: tuple[tuple[PairFile, tuple[int, ...]], ...]


def all_pairs(
    version: Version, eps: float | None = None, numbered: bool = False
) -> Frame:
    """Return a lazy frame of all pairs of a version. The left row of a pair has the
    smaller row number.

    `eps`: a distance to use instead of the `eps` of the index. `numbered`: whether row
    numbers replace ids in the result.
    """
    options, rows = version.manifest.options, version.rows
    spec = spec_of(rows, eps, options.return_distance and not numbered, numbered)
    if options.store_pairs and spec.eps <= options.eps:
        return stored_pairs(version.manifest.pairs, rows, spec)
    return found_pairs(rows, spec)


def found_pairs(rows: Snapshot, spec: JoinSpec) -> Frame:
    """Return a lazy frame of all pairs of rows. A join computes them."""
    return lazy_pairs(all_blocks(rows, spec, sizes(rows, spec)), rows)


def stored_pairs(pairs: StoredPairs, rows: Snapshot, spec: JoinSpec) -> Frame:
    """Return a lazy frame of the stored pairs. `rows`: any snapshot of the index."""
    schema = pair_schema(rows.root, rows.options)
    meta = example_of_pairs(rows, spec)
    parts = list(_parts(rows.root, pairs.files)) or [Pieces(())]
    with texts_as_given():
        return dd.from_map(
            _on_worker,
            parts,
            root=rows.root,
            marks=pairs.marks,
            spec=spec,
            schema=schema,
            index_eps=rows.options.eps,
            meta=meta,
            label="simjoin_stored",
            enforce_metadata=False,
            columns=list(meta.columns),
        )


def _parts(root: AnyPath, files: Sequence[PairFile]) -> Iterator[Pieces]:
    """Group row groups into partitions of about `PARTITION` pairs."""
    some: list[tuple[PairFile, tuple[int, ...]]] = []
    capacity = PARTITION
    for one in files:
        with parquet(root / PAIRS / one.name) as file:
            about = file.metadata
        for group in range(about.num_row_groups):
            size = about.row_group(group).num_rows
            if size > capacity and some:
                yield Pieces(tuple(some))
                some, capacity = [], PARTITION
            some.append((one, (group,)))
            capacity -= size
    if some:
        yield Pieces(tuple(some))


def _on_worker(part: Pieces, columns: list[str], **how: Any) -> Frame:
    """Read the pairs of a partition. `columns`: the columns to read; Dask passes an
    argument of this name.
    """
    return on_worker(functools.partial(_read, part, columns=columns, **how))


def _read(
    part: Pieces,
    root: AnyPath,
    marks: tuple[MarkFile, ...],
    spec: JoinSpec,
    schema: pa.Schema,
    index_eps: float,
    columns: list[str],
) -> Frame:
    """Read those valid pairs whose distance is at most `spec.eps`."""
    numbered = (
        {"left": LEFT, "right": RIGHT} if not spec.keep and spec.id == SEQ else {}
    )
    names = [numbered.get(name, name) for name in columns]
    nearer = spec.eps < index_eps
    wanted = list(dict.fromkeys([*names, *([TOTAL] if nearer else ())]))
    tables = [
        pa.schema(
            [schema.field(name) for name in wanted], schema.metadata
        ).empty_table()
    ]
    for one, groups in part.files:
        tables += read_valid(root, one, marks, wanted, groups)
    table = pa.concat_tables(tables)
    if nearer:
        table = table.filter(pc.less_equal(table[TOTAL], spec.threshold))
    frames = frames_of_library(spec.library)
    found = as_frame(table.select(names), spec.library)
    found.columns = columns
    if TOTAL in columns and spec.result.distance:
        total = frames.xp.array(found[TOTAL].values, copy=True)
        found[TOTAL] = measured(spec, frames.xp)(total)
    return found


def append_pairs(
    own: Transaction, version: Version, gone: np.ndarray, again: bool
) -> tuple[StoredPairs, int]:
    """Store the pairs that a new version adds. Also store the row numbers `gone` of
    rows that the version deletes.

    `again`: whether the version inserts some of these rows again, with other values.
    Return all stored pairs, and the number of bytes written.
    """
    manifest, number = version.manifest, version.number
    made = _written(own, version)
    files = tuple(PairFile(one.name, one.rows, number) for one in made)
    marks, size = manifest.pairs.marks, sum(one.size for one in made)
    if len(gone):
        table = pa.table({SEQ: np.sort(gone)})
        name, marked = own.write(PAIRS, lambda file: write_table(table, file))
        size += marked
        marks += (MarkFile(name, len(gone), number, again),)
    return needed(StoredPairs(manifest.pairs.files + files, marks)), size


def _written(own: Transaction, version: Version) -> list[WrittenPairs]:
    """Compute the pairs that a version adds, and write them."""
    root, schema = version.root, pair_schema(version.root, version.manifest.options)
    expr = optimise_in_place(_added_pairs(version).expr)
    each = ((TaskRef(key), own, schema) for key in expr.__dask_keys__())
    done = call_on_workers("simjoin_store", store, each, expr.__dask_graph__())
    made = [one for one in done if isinstance(one, WrittenPairs)]
    few = [one for one in done if isinstance(one, pa.Table) and len(one)]
    parts = cut_parts(np.array([len(one) for one in few]), PARTITION)
    made += [write_pairs(own, (few[n] for n in part), schema) for part in parts]
    for one in made:
        check_written(root / PAIRS / one.name, one.size, one.rows, "pairs")
    return made


def _added_pairs(version: Version) -> Frame:
    rows, parent = version.rows, version.manifest.parent
    spec = stored_spec(rows)
    if parent is None:
        return found_pairs(rows, spec)
    delta, cached, size = version.since(parent), version.cached, sizes(rows, spec)
    came = read_side(
        delta.inserted, spec, size, bool(len(delta.unchanged.groups)), True, cached
    )
    return lazy_pairs(
        blocks_of(came, delta.inserted, delta.unchanged, spec, size, None, cached), rows
    )


def store(pairs: Frame, own: Transaction, schema: pa.Schema) -> WrittenPairs | pa.Table:
    """Write the pairs of a task to a file. If they are few, return them instead."""
    table = arrow_of(pairs).select(schema.names).cast(schema)
    return table if len(table) < MIN_PART else write_pairs(own, iter([table]), schema)


def compact_pairs(
    own: Transaction, version: Version, whole: bool
) -> tuple[StoredPairs, int]:
    """If there are many small pair files, merge them. If `whole`, rewrite all files
    without invalid pairs.

    Return the stored pairs of the new version, and the number of bytes written.
    """
    pairs, number = version.manifest.pairs, version.number
    small = [one for one in pairs.files if one.rows < PARTITION]
    large = [one for one in pairs.files if one.rows >= PARTITION]
    if not whole and len(small) <= FEW:
        return needed(pairs), 0
    bunches = [
        [small[n] for n in part]
        for part in cut_parts(np.array([one.rows for one in small]), PARTITION)
    ]
    stay = () if whole else tuple(large)
    bunches += [[one] for one in large] if whole else []
    schema = pair_schema(version.root, version.manifest.options)
    found: list[WrittenPairs | None] = call_on_workers(
        "simjoin_tidy",
        joined,
        [(own, tuple(some), pairs.marks, schema) for some in bunches],
    )
    size, files = 0, list(stay)
    for some, made in zip(bunches, found, strict=True):
        if made is None:
            # all pairs in the file are valid, so it stays
            files.append(replace(some[0], version=number))
        elif made.rows:
            files.append(PairFile(made.name, made.rows, number))
            size += made.size
    return needed(StoredPairs(tuple(files), pairs.marks)), size


def joined(
    own: Transaction,
    files: tuple[PairFile, ...],
    marks: tuple[MarkFile, ...],
    schema: pa.Schema,
) -> WrittenPairs | None:
    """Merge the valid pairs of some files to one file. Return None for a single file
    that has only valid pairs.
    """
    live = [
        sum(len(table) for table in read_valid(own.root, one, marks, [LEFT]))
        for one in files
    ]
    if not sum(live):
        return WrittenPairs("", 0, 0)
    if len(files) == 1 and live[0] == files[0].rows:
        return None
    tables = (
        table
        for one in files
        for table in read_valid(own.root, one, marks, schema.names)
    )
    return write_pairs(own, (table.cast(schema) for table in tables), schema)
