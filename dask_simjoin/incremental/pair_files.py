"""Store the pairs that come with a version, before it is made, and put what is stored in order."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dask_simjoin.errors import IndexFormatError
from dask_simjoin.expressions.dask_private import Task, TaskRef
from dask_simjoin.expressions.source import gather, optimise_in_place
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.incremental.blocks import blocks_of, read_side, sizes
from dask_simjoin.incremental.cuts import cut_parts
from dask_simjoin.incremental.entries import MarkFile, PairFile, StoredPairs
from dask_simjoin.incremental.files import PAIRS, write_named, write_table
from dask_simjoin.incremental.lazy import lazy_pairs
from dask_simjoin.incremental.pair_frames import found_pairs
from dask_simjoin.incremental.pair_tables import (
    LEFT,
    needed,
    pair_schema,
    read_live,
    stored_spec,
    write_pairs,
)
from dask_simjoin.incremental.schema import arrow_of
from dask_simjoin.incremental.snapshots import Version
from dask_simjoin.incremental.types import SEQ
from dask_simjoin.metrics.types import Frame

LEAST = 1 << 16
"""Pairs of a task that become a file of their own: fewer are put together here."""

SMALL = 1 << 20
"""Pairs of a file from which on it is no small one."""

MOST_SMALL = 8
"""Small files from which on they become few, as rows are put in order."""


class Pairs(NamedTuple):
    """A file of pairs that was written: its name, pairs and bytes."""

    name: str
    rows: int
    size: int


def taken_in(version: Version, gone: np.ndarray, again: bool) -> tuple[StoredPairs, int]:
    """Store the pairs that come with a version, which is about to be made, and the numbers of rows that go.

    Tells all that is stored then, and the bytes that were written.
    """
    root, manifest, number = version.root, version.manifest, version.number
    made = _written(version)
    files = tuple(PairFile(one.name, one.rows, number) for one in made)
    marks, size = manifest.pairs.marks, sum(one.size for one in made)
    if len(gone):
        table = pa.table({SEQ: np.sort(gone)})
        name, own = write_named(root / PAIRS, lambda file: write_table(table, file))
        size += own
        marks += (MarkFile(name, len(gone), number, again),)
    return needed(StoredPairs(manifest.pairs.files + files, marks)), size


def _written(version: Version) -> list[Pairs]:
    """Find the pairs that come with a version, and write them."""
    root, schema = version.root, pair_schema(version.root, version.manifest.options)
    expr = optimise_in_place(_coming(version).expr)
    graph: dict[Any, Any] = dict(expr.__dask_graph__())
    token, keys = uuid.uuid4().hex, []
    for n, found in enumerate(expr.__dask_keys__()):
        key = f"simjoin_store-{token}", n
        graph[key] = Task(key, on_worker, store, TaskRef(found), root, schema)
        keys.append(key)
    done = gather(graph, keys)
    made = [one for one in done if isinstance(one, Pairs)]
    few = [one for one in done if isinstance(one, pa.Table) and len(one)]
    parts = cut_parts(np.array([len(one) for one in few]), SMALL)
    made += [Pairs(*write_pairs(root, (few[n] for n in part), schema)) for part in parts]
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


def store(pairs: Frame, root: Path, schema: pa.Schema) -> Pairs | pa.Table:
    """Write the pairs of a task; give them back if they are few."""
    table = arrow_of(pairs).select(schema.names).cast(schema)
    return table if len(table) < LEAST else Pairs(*write_pairs(root, iter([table]), schema))


def tidied(version: Version, whole: bool) -> tuple[StoredPairs, int]:
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
        graph[key] = Task(key, on_worker, joined, version.root, tuple(some), pairs.marks, schema)
        keys.append(key)
    found: list[Pairs | None] = gather(graph, keys) if keys else []
    size, files = 0, list(stay)
    for some, made in zip(bunches, found, strict=True):
        if made is None:
            files.append(replace(some[0], version=number))  # all of its pairs are there still
        elif made.rows:
            files.append(PairFile(made.name, made.rows, number))
            size += made.size
    return needed(StoredPairs(tuple(files), pairs.marks)), size


def joined(root: Path, files: tuple[PairFile, ...], marks: tuple[MarkFile, ...],
           schema: pa.Schema) -> Pairs | None:  # fmt: skip
    """Make one file of the pairs of some that are still there; None: of one, of which all are."""
    live = [sum(len(table) for table in read_live(root, one, marks, [LEFT])) for one in files]
    if not sum(live):
        return Pairs("", 0, 0)
    if len(files) == 1 and live[0] == files[0].rows:
        return None
    tables = (table for one in files for table in read_live(root, one, marks, schema.names))
    return Pairs(*write_pairs(root, (table.cast(schema) for table in tables), schema))
