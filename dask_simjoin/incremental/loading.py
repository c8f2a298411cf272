"""Take rows of frames into row files: look at them in one pass, and write them in another."""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.index.regions import Regions, make_regions
from dask_simjoin.expressions.dask_private import Expr, Shuffle, Task, TaskRef
from dask_simjoin.expressions.planner import check_ids, passed_over
from dask_simjoin.expressions.source import FrozenSource, MapPartition, Shared, freeze, gather, map_frozen
from dask_simjoin.expressions.source import optimise_in_place as optimised
from dask_simjoin.expressions.worker_memory import check_sending, on_worker
from dask_simjoin.incremental.keys import Finder
from dask_simjoin.incremental.rows import Written, write_rows
from dask_simjoin.incremental.schema import arrow_of, check_types, schema_of, with_ids
from dask_simjoin.incremental.types import SEQ, VERSION, Options
from dask_simjoin.metrics.norms import reach
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.budget import make_budget
from dask_simjoin.planning.chunking.regions import NO_HALO
from dask_simjoin.planning.resources import resources, shuffle_method
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.planning.table import TableSummary, summarise_table
from dask_simjoin.planning.tables import MAX_REGIONS
from dask_simjoin.tasks.chunks import Fingerprint, check_source
from dask_simjoin.tasks.moving import CELL

FILE_ROWS = 1 << 20
"""Rows of a file, at most about: frames of more are cut into regions first."""


@dataclass(frozen=True, eq=False)
class Incoming:
    """Rows of a lazy frame that were looked at, and found to be fit for an index.

    Attributes
    ----------
    source : FrozenSource
    table : TableSummary
    id : str or None
    columns : list of str
        Of row files.
    file_rows : int
        Rows of a file, at most about.
    """

    source: FrozenSource
    table: TableSummary
    id: str | None
    columns: list[str]
    file_rows: int

    @property
    def each(self) -> list[Fingerprint]:
        """What the tasks that read partitions again know of them."""
        return list(enumerate(self.table.sources))


def look_at(frame: Frame, spec: JoinSpec, id: str | None, columns: list[str]) -> Incoming:
    """Pass over a lazy frame; refuse coordinates that are none, and ids that repeat."""
    source = freeze(frame, spec.columns)
    known = passed_over(source, spec, True)
    table = summarise_table(known.summaries, spec)
    chunk = make_budget(spec.blocksize, spec.settings, resources(spec.library)).chunk
    check_ids(source, spec, known, chunk)
    return Incoming(source, table, id, columns, max(1, min(FILE_ROWS, int(chunk // table.row_bytes))))


def schema_for(incoming: Incoming) -> pa.Schema:
    """Tell the schema of row files of these rows, by the first of them; of none, by the example."""
    rows = [summary.source_rows for summary in incoming.table.summaries]
    filled = [n for n, some in enumerate(rows) if some]
    if not filled:
        return schema_of(with_ids(incoming.source.inner._meta.iloc[:0], incoming.id, incoming.columns))
    asked = map_frozen("simjoin_schema", _schema, incoming.source, incoming.id, incoming.columns)
    return _gathered(asked, filled[:1])[0]


def _gathered(expr: Expr, which: Iterable[int] | None = None) -> list[Any]:
    """Compute what is asked of partitions, of all or of some."""
    keys = expr.__dask_keys__()
    wanted = keys if which is None else [keys[n] for n in which]
    return gather(dict(expr.__dask_graph__()), list(wanted))


def _schema(frame: Frame, id: str | None, columns: list[str]) -> pa.Schema:
    return schema_of(with_ids(frame, id, columns))


def known_rows(incoming: Incoming, finder: Finder, schema: pa.Schema) -> pd.DataFrame:
    """Find those of the rows whose ids the index has: `id`, and where they are, as `Finder.find` says.

    Refuses columns of other types than the index has.
    """
    asked = _Asked(incoming.table.spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_finder", finder)
    each, source = incoming.each, incoming.source.inner
    expr = MapPartition(source, "simjoin_known", _known_rows, (asked, schema), each, None, shared)
    found = _gathered(optimised(expr))
    return pd.concat(found, ignore_index=True)


def _known_rows(frame: Frame, known: Fingerprint, finder: Finder, asked: _Asked,
                schema: pa.Schema) -> pd.DataFrame:  # fmt: skip
    spec = asked.spec
    first = with_ids(frame.iloc[:1], asked.id, asked.columns)
    check_types(arrow_of(first).schema, schema, f"of partition {known[0]}")
    ids = host_ids(_taking_part(frame, known, spec), spec)
    found = finder.find(ids)
    found["id"] = ids.take(found.pop("row").to_numpy()).to_numpy()
    return found


def coordinates_of(incoming: Incoming) -> np.ndarray:
    """The coordinates (n, columns) of all of the rows, as given, on the host."""
    spec, each = incoming.table.spec, incoming.each
    return np.concatenate(
        _gathered(map_frozen("simjoin_coordinates", _coordinates, incoming.source, spec, each=each))
    )


def _coordinates(frame: Frame, known: Fingerprint, spec: JoinSpec) -> np.ndarray:
    rows = _taking_part(frame, known, spec)
    return to_host(frames_for(rows).coordinates(rows, spec.on))


def host_ids(frame: Frame, spec: JoinSpec) -> pd.Index:
    """The ids of rows, on the host, as the index keeps them."""
    ids = row_ids(frame, spec.id, spec.id_dtype)
    return ids.to_pandas() if hasattr(ids, "to_pandas") else ids


def _taking_part(frame: Frame, known: Fingerprint, spec: JoinSpec) -> Frame:
    """The rows that `dropna` leaves; refuses a partition that is not like it was."""
    check_source(known[0], len(frame), known[1][0])
    if not spec.dropna:
        return frame
    kept = points(frame, spec)[1]
    return frame if kept is None else frame[kept]


@dataclass(frozen=True, eq=False)
class Numbering:
    """What rows are numbered by as they are written.

    Attributes
    ----------
    version : int
        Which they come in with.
    first : array (partitions,), int64
        The number of the first row of each partition.
    seq : Series
        Numbers of rows that take the place of others, by their ids.
    left_out : Index
        Ids of rows that are not taken.
    """

    version: int
    first: np.ndarray
    seq: pd.Series
    left_out: pd.Index


def _prepared(frame: Frame, known: Fingerprint, numbering: Numbering, incoming: _Asked) -> Frame:
    """The rows of a partition as they are written."""
    spec, number = incoming.spec, known[0]
    check_source(number, len(frame), known[1][0])
    xp = frames_for(frame).xp
    seq = np.arange(len(frame)) + numbering.first[number]
    rows = with_ids(frame, incoming.id, incoming.columns)
    kept = np.ones(len(frame), bool)
    if spec.dropna:
        there = points(frame, spec)[1]
        kept = kept if there is None else to_host(there)
    if len(numbering.left_out) or len(numbering.seq):
        ids = host_ids(frame, spec)
        kept &= ~ids.isin(numbering.left_out)
        old = numbering.seq.index.get_indexer(ids)
        seq = np.where(old >= 0, np.append(numbering.seq.to_numpy(), 0)[old], seq)
    rows[SEQ] = xp.asarray(seq)
    rows[VERSION] = xp.full(len(rows), numbering.version, np.int64)
    return rows if kept.all() else rows[xp.asarray(kept)].reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class _Asked:
    spec: JoinSpec
    id: str | None
    columns: list[str]


def write_frame(incoming: Incoming, options: Options, root: Path, schema: pa.Schema,
                numbering: Numbering) -> list[Written]:  # fmt: skip
    """Write the rows of a frame as files; where they are several, each has rows near each other in space."""
    spec, table = incoming.table.spec, incoming.table
    asked = _Asked(spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_numbering", numbering)
    source, each = incoming.source.inner, incoming.each
    rows = MapPartition(source, "simjoin_rows", _prepared, (asked,), each, None, shared)
    write = functools.partial(write_some, options=options, root=root, schema=schema, library=spec.library)
    if len(table.summaries) > 1 and table.rows > incoming.file_rows:
        expr = _by_region(incoming, rows, options)
        groups = [[n] for n in range(expr.npartitions)]
    else:
        expr, groups = (
            optimised(rows),
            _together([s.source_rows for s in table.summaries], incoming.file_rows),
        )
    graph, keys = dict(expr.__dask_graph__()), expr.__dask_keys__()
    token = uuid.uuid4().hex  # files get new names each time
    made = []
    for n, group in enumerate(groups):
        key = f"simjoin_write-{token}", n
        graph[key] = Task(key, on_worker, write, *(TaskRef(keys[part]) for part in group))
        made.append(key)
    found: list[Written | None] = gather(graph, made)
    return [one for one in found if one is not None]


def _together(rows: list[int], most: int) -> list[list[int]]:
    """Partitions that follow each other, as many as make a file."""
    number = ((np.cumsum(rows) - rows) // most).tolist()
    return [[part for part, _ in some] for _, some in itertools.groupby(enumerate(number), itemgetter(1))]


def write_some(*rows: Frame, options: Options, root: Path, schema: pa.Schema, library: str) -> Written | None:
    """Write the rows of some frames as one file."""
    filled = [some for some in rows if len(some)]
    if not filled:
        return None
    whole = filled[0] if len(filled) == 1 else frames_for(filled[0]).stacked(filled)
    return write_rows(whole, options, root, schema, library)


def _by_region(incoming: Incoming, rows: MapPartition, options: Options) -> Expr:
    """The rows, each in a partition of a region of space."""
    spec, table = incoming.table.spec, incoming.table
    away, every = reach(spec.norm, spec.threshold), table.every
    regions = make_regions(
        table.points.x, table.points.weight, every.lower, every.upper, away, incoming.file_rows, MAX_REGIONS
    )
    dtypes = [incoming.source.inner._meta[name].dtype for name in incoming.columns if name in spec.columns]
    size = table.rows * table.row_bytes
    method = shuffle_method(
        spec.settings.shuffle, resources(spec.library), size, len(table.summaries), dtypes
    )
    meta = with_ids(incoming.source.inner._meta.iloc[:0], incoming.id, incoming.columns)
    for name in (SEQ, VERSION, CELL):
        meta[name] = np.zeros(0, np.int64)
    sent = MapPartition(rows, "simjoin_send", _sent, (spec, regions, method), None, meta)
    return optimised(Shuffle(sent, CELL, len(regions), True, method))


def _sent(rows: Frame, spec: JoinSpec, regions: Regions, method: str) -> Frame:
    """Rows, and which region each of them is in."""
    check_sending(method)
    x = points(rows, replace(spec, dropna=False))[0]
    rows[CELL] = _region(x, regions, rows)
    return rows


def _region(x: Array, regions: Regions, rows: Frame) -> Array:
    if not len(x):
        return module_of(x).zeros(0, np.int64)
    return joiner_for(rows).regions(x, regions, **NO_HALO)[0].astype(np.int64)
