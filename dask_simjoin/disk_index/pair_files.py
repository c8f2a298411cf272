"""Stored pairs: their files, tables and lazy frames.

A file has the ids of both rows, what is kept of them, their numbers, and the total that decided the pair: so
it can be decided for a smaller distance as any join decides it, and its distance is what a join tells.
"""

from __future__ import annotations

import functools
import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import dask.dataframe as dd
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dask_simjoin.disk_index.blocks import all_blocks, blocks_of, read_side, sizes
from dask_simjoin.disk_index.files import (
    PAIRS,
    cut_parts,
    parquet,
    read_groups,
    read_whole,
    write_table,
    write_tables,
)
from dask_simjoin.disk_index.graph import example_of_pairs, lazy_pairs, spec_of
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.requests import STORED
from dask_simjoin.disk_index.rows import KNOWN, example_table
from dask_simjoin.disk_index.schema import DTYPES, arrow_of, as_frame, dtypes_in
from dask_simjoin.disk_index.snapshots import Version
from dask_simjoin.disk_index.types import SEQ, MarkFile, Options, PairFile, Snapshot, StoredPairs
from dask_simjoin.engine.base import frames_of_library
from dask_simjoin.errors import IndexFormatError
from dask_simjoin.graph.dask_private import Task, TaskRef
from dask_simjoin.graph.source import gather, optimise_in_place
from dask_simjoin.graph.workers import on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.options import texts_as_given
from dask_simjoin.request.spec import JoinSpec, TotalsSpec

LEFT, RIGHT = STORED

TOTAL = "distance"
"""The column of totals, called as joins call it."""

GROUP = 1 << 18
"""Pairs of a row group."""


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


LEAST = 1 << 16
"""Pairs of a task that become a file of their own: fewer are put together here."""

SMALL = 1 << 20
"""Pairs of a file from which on it is no small one."""

MOST_SMALL = 8
"""Small files from which on they become few, as rows are put in order."""


class WrittenPairs(NamedTuple):
    """A file of pairs that was written: its name, pairs and bytes."""

    name: str
    rows: int
    size: int


def taken_in(own: Transaction, version: Version, gone: np.ndarray, again: bool) -> tuple[StoredPairs, int]:
    """Store the pairs that come with a version, which is about to be made, and the numbers of rows that go.

    Tells all that is stored then, and the bytes that were written.
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
    """Find the pairs that come with a version, and write them."""
    root, schema = version.root, pair_schema(version.root, version.manifest.options)
    expr = optimise_in_place(_coming(version).expr)
    graph: dict[Any, Any] = dict(expr.__dask_graph__())
    token, keys = uuid.uuid4().hex, []
    for n, found in enumerate(expr.__dask_keys__()):
        key = f"simjoin_store-{token}", n
        graph[key] = Task(key, on_worker, store, TaskRef(found), own, schema)
        keys.append(key)
    done = gather(graph, keys)
    made = [one for one in done if isinstance(one, WrittenPairs)]
    few = [one for one in done if isinstance(one, pa.Table) and len(one)]
    parts = cut_parts(np.array([len(one) for one in few]), SMALL)
    made += [WrittenPairs(*write_pairs(own, (few[n] for n in part), schema)) for part in parts]
    for one in made:
        path = root / PAIRS / one.name
        if not path.is_file() or path.stat().st_size != one.size:
            raise IndexFormatError(
                f"A worker wrote {one.rows:,} pairs to {str(path)!r}, and that file is not there as it was "
                "written; all workers and this process must see the same folder: use one that they share."
            )
    return made


def _coming(version: Version) -> Frame:
    """A lazy frame of the pairs of rows that come with a version."""
    rows, parent = version.rows, version.manifest.parent
    spec = stored_spec(rows)
    if parent is None:
        return found_pairs(rows, spec)
    delta, held, size = version.since(parent), version.held, sizes(rows, spec)
    came = read_side(delta.inserted, spec, size, bool(len(delta.same.groups)), True, held)
    return lazy_pairs(blocks_of(came, delta.inserted, delta.same, spec, size, None, held), rows)


def store(pairs: Frame, own: Transaction, schema: pa.Schema) -> WrittenPairs | pa.Table:
    """Write the pairs of a task; give them back if they are few."""
    table = arrow_of(pairs).select(schema.names).cast(schema)
    return table if len(table) < LEAST else WrittenPairs(*write_pairs(own, iter([table]), schema))


def tidied(own: Transaction, version: Version, whole: bool) -> tuple[StoredPairs, int]:
    """Put stored pairs in order: small files become few; `whole`: pairs that are gone leave all files.

    Tells what is stored then, of a version that is about to be made, and the bytes that were written.
    """
    pairs, number = version.manifest.pairs, version.number
    small = [one for one in pairs.files if one.rows < SMALL]
    large = [one for one in pairs.files if one.rows >= SMALL]
    if not whole and len(small) <= MOST_SMALL:
        return needed(pairs), 0
    bunches = [[small[n] for n in part] for part in cut_parts(np.array([one.rows for one in small]), SMALL)]
    stay = () if whole else tuple(large)
    bunches += [[one] for one in large] if whole else []
    schema = pair_schema(version.root, version.manifest.options)
    graph: dict[Any, Any] = {}
    keys: list[Any] = []
    for n, some in enumerate(bunches):
        key = f"simjoin_tidy-{uuid.uuid4().hex}", n
        graph[key] = Task(key, on_worker, joined, own, tuple(some), pairs.marks, schema)
        keys.append(key)
    found: list[WrittenPairs | None] = gather(graph, keys) if keys else []
    size, files = 0, list(stay)
    for some, made in zip(bunches, found, strict=True):
        if made is None:
            files.append(replace(some[0], version=number))  # all of its pairs are there still
        elif made.rows:
            files.append(PairFile(made.name, made.rows, number))
            size += made.size
    return needed(StoredPairs(tuple(files), pairs.marks)), size


def joined(own: Transaction, files: tuple[PairFile, ...], marks: tuple[MarkFile, ...],
           schema: pa.Schema) -> WrittenPairs | None:  # fmt: skip
    """Make one file of the pairs of some that are still there; None: of one, of which all are."""
    live = [sum(len(table) for table in read_live(own.root, one, marks, [LEFT])) for one in files]
    if not sum(live):
        return WrittenPairs("", 0, 0)
    if len(files) == 1 and live[0] == files[0].rows:
        return None
    tables = (table for one in files for table in read_live(own.root, one, marks, schema.names))
    return WrittenPairs(*write_pairs(own, (table.cast(schema) for table in tables), schema))
