"""Read incoming rows in one pass, and write them as files of an index."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.disk_index.casts import cast, unlike
from dask_simjoin.disk_index.files import call_on_workers
from dask_simjoin.disk_index.publishing import Transaction
from dask_simjoin.disk_index.rows import Written, write_rows
from dask_simjoin.disk_index.schema import (
    Finder,
    arrow_of,
    ids_as_read,
    schema_of,
    schema_without_rows,
    with_ids,
)
from dask_simjoin.disk_index.types import SEQ, VERSION, Content, Options
from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.index.kdtree import Regions, make_regions
from dask_simjoin.graph.base import Shared
from dask_simjoin.graph.dask_private import Expr, Shuffle, TaskRef
from dask_simjoin.graph.planner import check_ids, collect
from dask_simjoin.graph.shuffle import SentPieces, cut_rows
from dask_simjoin.graph.source import FrozenSource, MapPartition, freeze, gather, map_frozen
from dask_simjoin.graph.source import optimise_in_place as optimised
from dask_simjoin.graph.workers import check_sending
from dask_simjoin.metrics.norms import Frame, reach
from dask_simjoin.planning.budget import make_budget
from dask_simjoin.planning.entity_chunks import Piece
from dask_simjoin.planning.partition import id_keys, points
from dask_simjoin.planning.resources import can_move, resources_for, sent_rows, shuffle_method
from dask_simjoin.planning.spatial_chunks import NO_HALO
from dask_simjoin.planning.table import TableSummary, summarise_table
from dask_simjoin.planning.tables import MAX_REGIONS
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import Fingerprint, check_source
from dask_simjoin.tasks.shuffle import CELL

FILE_ROWS = 1 << 20
"""Approximate maximum rows of a file: larger frames are cut into regions first."""


@dataclass(frozen=True, eq=False)
class Incoming:
    """Rows of a lazy frame that were read once and checked."""

    source: FrozenSource
    table: TableSummary
    id: str | None
    columns: list[str]  # columns of row files
    file_rows: int  # approximate maximum rows of a file

    @property
    def each(self) -> list[Fingerprint]:
        """Fingerprints of the partitions, for tasks that read them again."""
        return list(enumerate(self.table.sources))


@dataclass(frozen=True, eq=False)
class RowRequest:
    """The fields of `Incoming` that tasks need."""

    spec: JoinSpec
    id: str | None
    columns: list[str]


def collect_rows(frame: Frame, spec: JoinSpec, id: str | None, columns: list[str]) -> Incoming:
    """Read a lazy frame once; refuse invalid coordinates and duplicate ids."""
    source = freeze(frame, spec.columns)
    statistics = collect(source, spec, True)
    table = summarise_table(statistics.summaries, spec)
    chunk = make_budget(spec.blocksize, spec.settings, resources_for(spec.library)).chunk
    check_ids(source, spec, statistics, chunk)
    return Incoming(source, table, id, columns, max(1, min(FILE_ROWS, int(chunk // table.row_bytes))))


def schema_for(incoming: Incoming) -> pa.Schema:
    """Return the schema of row files, from the first partition with rows; without rows, from the dtypes."""
    rows = source_rows(incoming)
    filled = [n for n, some in enumerate(rows) if some]
    if not filled:
        example = incoming.source.inner._meta.iloc[:0]
        return schema_without_rows(with_ids(example, incoming.id, incoming.columns))
    expr = map_frozen("simjoin_schema", _schema, incoming.source, incoming.id, incoming.columns)
    return _gathered(expr, filled[:1])[0]


def _gathered(expr: Expr, which: Iterable[int] | None = None) -> list[Any]:
    """Compute an expression for all or some partitions."""
    keys = expr.__dask_keys__()
    wanted = keys if which is None else [keys[n] for n in which]
    return gather(dict(expr.__dask_graph__()), list(wanted))


def _schema(frame: Frame, id: str | None, columns: list[str]) -> pa.Schema:
    return schema_of(with_ids(frame, id, columns))


def existing_rows(incoming: Incoming, finder: Finder, schema: pa.Schema,
               with_content: bool = False) -> tuple[pd.DataFrame, Content]:  # fmt: skip
    """Find incoming rows whose ids the index has; return `id` and the columns of `Finder.find`.

    Also return the content of the incoming rows, if `with_content`. Refuse columns of other types than the
    index has.
    """
    request = RowRequest(incoming.table.spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_finder", finder)
    each, source = incoming.each, incoming.source.inner
    how = (request, schema, with_content)
    expr = MapPartition(source, "simjoin_known", _existing_rows, how, each, None, shared)
    results = _gathered(optimised(expr))
    found = [one for one, _ in results]
    some = [one for one in found if len(one)] or found[:1]  # an empty frame may have ids of another dtype
    return pd.concat(some, ignore_index=True), _sum(content for _, content in results)


def _existing_rows(frame: Frame, fingerprint: Fingerprint, finder: Finder, request: RowRequest,
                schema: pa.Schema, with_content: bool) -> tuple[pd.DataFrame, Content]:  # fmt: skip
    spec = request.spec
    where = f"of partition {fingerprint[0]}"
    if len(frame):  # an empty frame has arbitrary dtypes, such as int64 labels for int32
        first = arrow_of(with_ids(frame.iloc[:1], request.id, request.columns)).schema
        if odd := unlike(first, schema):
            values = arrow_of(with_ids(frame, request.id, request.columns)[odd])
            cast(values, pa.schema([schema.field(name) for name in odd], schema.metadata), where)
    rows = _taking_part(frame, fingerprint, spec)
    ids = host_ids(rows, spec)
    read = ids_as_read(ids, schema, finder.row_id, where)
    found = finder.find(read)
    found["id"] = ids.take(found.pop("row").to_numpy()).to_numpy()
    return found, _content(rows, read, spec) if with_content else Content()


def content_of(incoming: Incoming, schema: pa.Schema, row_id: str) -> Content:
    """Return the content of incoming rows, like `existing_rows`. `row_id`: the column of ids in `schema`."""
    spec, each = incoming.table.spec, incoming.each
    return _sum(
        _gathered(
            map_frozen("simjoin_content", _content_of, incoming.source, spec, schema, row_id, each=each)
        )
    )


def _content_of(
    frame: Frame, fingerprint: Fingerprint, spec: JoinSpec, schema: pa.Schema, row_id: str
) -> Content:
    rows = _taking_part(frame, fingerprint, spec)
    return _content(
        rows, ids_as_read(host_ids(rows, spec), schema, row_id, f"of partition {fingerprint[0]}"), spec
    )


def _content(rows: Frame, ids: pd.Index, spec: JoinSpec) -> Content:
    """Return the content of rows. `ids`: their ids, with the dtype of row files."""
    if not len(rows):
        return Content()
    return digested(ids, to_host(frames_for(rows).coordinates(rows, spec.on)))


def _sum(contents: Iterable[Content]) -> Content:
    """Return the content of all rows; the order of rows and partitions does not matter."""
    rows, digests = zip(*contents, strict=True)
    return Content(sum(rows), sum(digests) % 2**64)


FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with random bits, to mix hashes."""

HALF = np.uint64(32)


def digested(ids: pd.Index, x: np.ndarray) -> Content:
    """Return the content of rows (n,) with coordinates (n, d)."""
    total = id_keys(ids).copy()
    for k in range(x.shape[1]):
        _mix(total, (x[:, k] + 0.0).view(np.uint64))  # 0.0 and -0.0 must have equal hashes
    for _ in range(2):
        _mix(total, FACTOR)
    return Content(len(total), int(total.sum(dtype=np.uint64)))


def _mix(total: np.ndarray, values: np.ndarray | np.uint64) -> None:
    """Mix values into hashes (n,), in place."""
    total ^= values
    total *= FACTOR
    total ^= total >> HALF


def coordinates_of(incoming: Incoming) -> np.ndarray:
    """Return the coordinates (n, columns) of all rows, as given, on the host."""
    spec, each = incoming.table.spec, incoming.each
    return np.concatenate(
        _gathered(map_frozen("simjoin_coordinates", _coordinates, incoming.source, spec, each=each))
    )


def _coordinates(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> np.ndarray:
    rows = _taking_part(frame, fingerprint, spec)
    return to_host(frames_for(rows).coordinates(rows, spec.on))


def host_ids(frame: Frame, spec: JoinSpec) -> pd.Index:
    ids = row_ids(frame, spec.id, spec.id_dtype)
    return ids.to_pandas() if hasattr(ids, "to_pandas") else ids


def _taking_part(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> Frame:
    """Return the rows that `dropna` keeps; refuse a partition that changed since it was first read."""
    check_source(fingerprint[0], len(frame), fingerprint[1][0])
    if not spec.dropna:
        return frame
    kept = points(frame, spec)[1]
    return frame if kept is None else frame[kept]


def source_rows(incoming: Incoming) -> list[int]:
    """Return the number of rows of each partition, including rows that `dropna` drops."""
    return [summary.source_rows for summary in incoming.table.summaries]


@dataclass(frozen=True, eq=False)
class Numbering:
    """How new rows get their row numbers."""

    version: int  # version that inserts the rows
    first: np.ndarray  # (partitions,), int64: row number of the first row of each partition
    seq: pd.Series  # id -> row number, of rows that replace others
    left_out: pd.Index  # ids of rows to ignore


def _prepared(frame: Frame, fingerprint: Fingerprint, numbering: Numbering, incoming: RowRequest) -> Frame:
    """Return the rows of a partition with row numbers and version, without rows to ignore."""
    spec, number = incoming.spec, fingerprint[0]
    check_source(number, len(frame), fingerprint[1][0])
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


def write_frame(incoming: Incoming, options: Options, own: Transaction, schema: pa.Schema,
                numbering: Numbering) -> list[Written]:  # fmt: skip
    """Write the rows of a frame as files; if rows are shuffled, each file has the rows of a region."""
    spec = incoming.table.spec
    request = RowRequest(spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_numbering", numbering)
    source, each = incoming.source.inner, incoming.each
    rows = MapPartition(source, "simjoin_rows", _prepared, (request,), each, None, shared)
    write = functools.partial(write_some, options=options, own=own, schema=schema, library=spec.library)
    method = _shuffle_method(incoming)
    if method is not None:
        expr = _by_region(incoming, rows, options, method)
        groups = [[n] for n in range(expr.npartitions)]
    else:
        expr = optimised(rows)
        groups = _file_groups(source_rows(incoming), incoming.file_rows)
    keys = expr.__dask_keys__()
    parts = (tuple(TaskRef(keys[part]) for part in group) for group in groups)
    found: list[Written | None] = call_on_workers("simjoin_write", write, parts, expr.__dask_graph__())
    return [one for one in found if one is not None]


def _file_groups(rows: list[int], max_rows: int) -> list[list[int]]:
    """Group consecutive partitions into files of about `max_rows` rows. `rows`: rows of each partition."""
    number = ((np.cumsum(rows) - rows) // max_rows).tolist()
    return [[part for part, _ in some] for _, some in itertools.groupby(enumerate(number), itemgetter(1))]


def write_some(*rows: Frame, options: Options, own: Transaction, schema: pa.Schema,
               library: str) -> Written | None:  # fmt: skip
    """Write the rows of some frames as one file."""
    filled = [some for some in rows if len(some)]
    if not filled:
        return None
    whole = filled[0] if len(filled) == 1 else frames_for(filled[0]).stacked(filled)
    return write_rows(whole, options, own, schema, library)


def _shuffle_method(incoming: Incoming) -> str | None:
    """Return the method that shuffles rows into files of regions; None: partitions are written as they are.

    Rows are not shuffled if they are few, or if they do not fit in the workers' memory. Then the boxes of
    files overlap.
    """
    spec, table = incoming.table.spec, incoming.table
    if len(table.summaries) == 1 or table.rows <= incoming.file_rows:
        return None
    resources, size = resources_for(spec.library), table.rows * table.row_bytes
    dtypes = [incoming.source.inner._meta[name].dtype for name in incoming.columns if name in spec.columns]
    method = shuffle_method(spec.settings.shuffle, resources, size, len(table.summaries), dtypes)
    return method if can_move(method, resources, [table]) else None


def _by_region(incoming: Incoming, rows: MapPartition, options: Options, method: str) -> Expr:
    """Return the rows, shuffled into one partition per region of space."""
    spec, table = incoming.table.spec, incoming.table
    away, every = reach(spec.norm, spec.threshold), table.every
    regions = make_regions(
        table.points.x, table.points.weight, every.lower, every.upper, away, incoming.file_rows, MAX_REGIONS
    )
    meta = with_ids(incoming.source.inner._meta.iloc[:0], incoming.id, incoming.columns)
    for name in (SEQ, VERSION, CELL):
        meta[name] = np.zeros(0, np.int64)
    max_rows = sent_rows(method, resources_for(spec.library), table.row_bytes)
    pieces, shared = cut_rows(source_rows(incoming), max_rows), Shared("simjoin_regions", regions)
    how = (spec, method), meta, shared
    if len(pieces) > len(table.summaries):
        sent: Expr = SentPieces(FrozenSource(optimised(rows)), pieces, _piece_with_regions, *how)
    else:
        sent = MapPartition(rows, "simjoin_send", _with_regions, how[0], None, *how[1:])
    return optimised(Shuffle(sent, CELL, len(regions), True, method))


def _piece_with_regions(rows: Frame, piece: Piece, regions: Regions, spec: JoinSpec, method: str) -> Frame:
    return _with_regions(rows.iloc[piece[1] : piece[2]], regions, spec, method)


def _with_regions(rows: Frame, regions: Regions, spec: JoinSpec, method: str) -> Frame:
    check_sending(method)
    x = points(rows, replace(spec, dropna=False))[0]
    if not len(x):
        return rows.assign(**{CELL: module_of(x).zeros(0, np.int64)})
    return rows.assign(**{CELL: joiner_for(rows).regions(x, regions, **NO_HALO)[0].astype(np.int64)})
