"""Read the rows that are added to an index once, and write them as files."""

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
from dask_simjoin.graph.source import (
    FrozenSource,
    MapPartition,
    freeze,
    gather,
    map_frozen,
)
from dask_simjoin.graph.source import optimise_in_place as optimised
from dask_simjoin.graph.workers import check_sending
from dask_simjoin.metrics.norms import Frame, reach
from dask_simjoin.planning.entity_chunks import Piece
from dask_simjoin.planning.partition import points
from dask_simjoin.planning.resources import (
    can_move,
    limits_for,
    sent_rows,
    shuffle_method,
)
from dask_simjoin.planning.spatial_chunks import NO_HALO
from dask_simjoin.planning.table import TableSummary, summarise_table
from dask_simjoin.planning.tables import MAX_REGIONS
from dask_simjoin.planning.unique_ids import id_keys
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PARTITION
from dask_simjoin.tasks.chunks import Fingerprint, check_source
from dask_simjoin.tasks.shuffle import CELL


@dataclass(frozen=True, eq=False)
class Incoming:
    """Rows that are added to an index: a lazy frame that has been read once and
    checked.
    """

    source: FrozenSource
    table: TableSummary
    id: str | None
    columns: list[str]  # the columns of row files
    file_rows: int  # a file has about this many rows at most

    @property
    def each(self) -> list[Fingerprint]:
        """Fingerprints of the partitions. They show whether a partition has changed
        when a task reads it again.
        """
        return list(enumerate(self.table.sources))


@dataclass(frozen=True, eq=False)
class RowRequest:
    """Those fields of `Incoming` that tasks need."""

    spec: JoinSpec
    id: str | None
    columns: list[str]


def collect_rows(
    frame: Frame, spec: JoinSpec, id: str | None, columns: list[str]
) -> Incoming:
    """Read a lazy frame once. Raise an error for invalid coordinates or duplicate ids."""
    source = freeze(frame, spec.columns)
    statistics = collect(source, spec, True)
    table = summarise_table(statistics.summaries, spec)
    chunk = limits_for(spec.library).sized(spec.blocksize, spec.settings).chunk
    check_ids(source, spec, statistics, chunk)
    return Incoming(
        source,
        table,
        id,
        columns,
        max(1, min(PARTITION, int(chunk // table.row_bytes))),
    )


def schema_for(incoming: Incoming) -> pa.Schema:
    """Return the schema of row files. It is made from the first partition that has
    rows, or else from the dtypes.
    """
    rows = source_rows(incoming)
    filled = [n for n, some in enumerate(rows) if some]
    if not filled:
        example = incoming.source.inner._meta.iloc[:0]
        return schema_without_rows(with_ids(example, incoming.id, incoming.columns))
    expr = map_frozen(
        "simjoin_schema", _schema, incoming.source, incoming.id, incoming.columns
    )
    return _gathered(expr, filled[:1])[0]


def _gathered(expr: Expr, which: Iterable[int] | None = None) -> list[Any]:
    """Compute an expression. `which`: numbers of the partitions to compute; None: all."""
    keys = expr.__dask_keys__()
    wanted = keys if which is None else [keys[n] for n in which]
    return gather(dict(expr.__dask_graph__()), list(wanted))


def _schema(frame: Frame, id: str | None, columns: list[str]) -> pa.Schema:
    return schema_of(with_ids(frame, id, columns))


def existing_rows(
    incoming: Incoming, finder: Finder, schema: pa.Schema, with_content: bool = False
) -> tuple[pd.DataFrame, Content]:
    """Find the new rows whose ids the index has already. Return `id` and the columns of
    `Finder.find`.

    If `with_content`, also return the content of the new rows. Raise an error if types
    of columns differ from the index.
    """
    request = RowRequest(incoming.table.spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_finder", finder)
    each, source = incoming.each, incoming.source.inner
    how = (request, schema, with_content)
    expr = MapPartition(
        source, "simjoin_known", _existing_rows, how, each, None, shared
    )
    results = _gathered(optimised(expr))
    found = [one for one, _ in results]
    # leave out frames without rows, because their ids may have another dtype
    some = [one for one in found if len(one)] or found[:1]
    return pd.concat(some, ignore_index=True), _sum(content for _, content in results)


def _existing_rows(
    frame: Frame,
    fingerprint: Fingerprint,
    finder: Finder,
    request: RowRequest,
    schema: pa.Schema,
    with_content: bool,
) -> tuple[pd.DataFrame, Content]:
    spec = request.spec
    where = f"of partition {fingerprint[0]}"
    # without rows, the dtypes can be arbitrary, such as int64 instead of int32
    if len(frame):
        first = arrow_of(with_ids(frame.iloc[:1], request.id, request.columns)).schema
        if odd := unlike(first, schema):
            values = arrow_of(with_ids(frame, request.id, request.columns)[odd])
            cast(
                values,
                pa.schema([schema.field(name) for name in odd], schema.metadata),
                where,
            )
    rows = _taking_part(frame, fingerprint, spec)
    ids = host_ids(rows, spec)
    read = ids_as_read(ids, schema, finder.row_id, where)
    found = finder.find(read)
    found["id"] = ids.take(found.pop("row").to_numpy()).to_numpy()
    return found, _content(rows, read, spec) if with_content else Content()


def content_of(incoming: Incoming, schema: pa.Schema, row_id: str) -> Content:
    """Return the content of new rows, as `existing_rows` does. `row_id`: the column
    with ids in `schema`.
    """
    spec, each = incoming.table.spec, incoming.each
    return _sum(
        _gathered(
            map_frozen(
                "simjoin_content",
                _content_of,
                incoming.source,
                spec,
                schema,
                row_id,
                each=each,
            )
        )
    )


def _content_of(
    frame: Frame,
    fingerprint: Fingerprint,
    spec: JoinSpec,
    schema: pa.Schema,
    row_id: str,
) -> Content:
    rows = _taking_part(frame, fingerprint, spec)
    return _content(
        rows,
        ids_as_read(
            host_ids(rows, spec), schema, row_id, f"of partition {fingerprint[0]}"
        ),
        spec,
    )


def _content(rows: Frame, ids: pd.Index, spec: JoinSpec) -> Content:
    """Return the content of rows. `ids`: the ids of the rows, with the dtype that they
    have in row files.
    """
    if not len(rows):
        return Content()
    return digested(ids, to_host(frames_for(rows).coordinates(rows, spec.on)))


def _sum(contents: Iterable[Content]) -> Content:
    """Combine the contents of partitions. The order of rows and partitions does not
    matter.
    """
    rows, digests = zip(*contents, strict=True)
    return Content(sum(rows), sum(digests) % 2**64)


FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number with random bits. Hashes are multiplied by it."""

HALF = np.uint64(32)


def digested(ids: pd.Index, x: np.ndarray) -> Content:
    """Return the content of rows, given their ids (n,) and coordinates (n, d)."""
    total = id_keys(ids).copy()
    for k in range(x.shape[1]):
        # adding 0.0 turns -0.0 into 0.0, so that their hashes are equal
        _mix(total, (x[:, k] + 0.0).view(np.uint64))
    for _ in range(2):
        _mix(total, FACTOR)
    return Content(len(total), int(total.sum(dtype=np.uint64)))


def _mix(total: np.ndarray, values: np.ndarray | np.uint64) -> None:
    """Mix values into hashes (n,), in place."""
    total ^= values
    total *= FACTOR
    total ^= total >> HALF


def coordinates_of(incoming: Incoming) -> np.ndarray:
    """Return the coordinates (n, columns) of all rows as the user gave them, on the
    host.
    """
    spec, each = incoming.table.spec, incoming.each
    return np.concatenate(
        _gathered(
            map_frozen(
                "simjoin_coordinates", _coordinates, incoming.source, spec, each=each
            )
        )
    )


def _coordinates(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> np.ndarray:
    rows = _taking_part(frame, fingerprint, spec)
    return to_host(frames_for(rows).coordinates(rows, spec.on))


def host_ids(frame: Frame, spec: JoinSpec) -> pd.Index:
    ids = row_ids(frame, spec.id, spec.id_dtype)
    return ids.to_pandas() if hasattr(ids, "to_pandas") else ids


def _taking_part(frame: Frame, fingerprint: Fingerprint, spec: JoinSpec) -> Frame:
    """Return the rows that `dropna` keeps. Raise an error if the partition has changed
    since it was first read.
    """
    check_source(fingerprint[0], len(frame), fingerprint[1][0])
    if not spec.coordinates.dropna:
        return frame
    kept = points(frame, spec)[1]
    return frame if kept is None else frame[kept]


def source_rows(incoming: Incoming) -> list[int]:
    """Return the number of rows in each partition, including the rows that `dropna`
    removes.
    """
    return [summary.source_rows for summary in incoming.table.summaries]


@dataclass(frozen=True, eq=False)
class Numbering:
    """Says which row number each new row gets."""

    version: int  # the version that inserts the rows
    # (partitions,), int64: row number of the first row of each partition
    first: np.ndarray
    seq: pd.Series  # id -> row number, for rows that replace others
    left_out: pd.Index  # ids of the rows that are ignored


def _prepared(
    frame: Frame, fingerprint: Fingerprint, numbering: Numbering, incoming: RowRequest
) -> Frame:
    """Return the rows of a partition with row numbers and the version. Rows to ignore
    are left out.
    """
    spec, number = incoming.spec, fingerprint[0]
    check_source(number, len(frame), fingerprint[1][0])
    xp = frames_for(frame).xp
    seq = np.arange(len(frame)) + numbering.first[number]
    rows = with_ids(frame, incoming.id, incoming.columns)
    kept = np.ones(len(frame), bool)
    if spec.coordinates.dropna:
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


def write_frame(
    incoming: Incoming,
    options: Options,
    own: Transaction,
    schema: pa.Schema,
    numbering: Numbering,
) -> list[Written]:
    """Write the rows of a frame to files. If rows are shuffled, each file has the rows
    in one region of space.
    """
    spec = incoming.table.spec
    request = RowRequest(spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_numbering", numbering)
    source, each = incoming.source.inner, incoming.each
    rows = MapPartition(
        source, "simjoin_rows", _prepared, (request,), each, None, shared
    )
    write = functools.partial(
        write_some, options=options, own=own, schema=schema, library=spec.library
    )
    method = _shuffle_method(incoming)
    if method is not None:
        expr = _by_region(incoming, rows, options, method)
        groups = [[n] for n in range(expr.npartitions)]
    else:
        expr = optimised(rows)
        groups = _file_groups(source_rows(incoming), incoming.file_rows)
    keys = expr.__dask_keys__()
    parts = (tuple(TaskRef(keys[part]) for part in group) for group in groups)
    found: list[Written | None] = call_on_workers(
        "simjoin_write", write, parts, expr.__dask_graph__()
    )
    return [one for one in found if one is not None]


def _file_groups(rows: list[int], max_rows: int) -> list[list[int]]:
    """Group consecutive partitions into files of about `max_rows` rows. `rows`: number
    of rows in each partition.
    """
    number = ((np.cumsum(rows) - rows) // max_rows).tolist()
    return [
        [part for part, _ in some]
        for _, some in itertools.groupby(enumerate(number), itemgetter(1))
    ]


def write_some(
    *rows: Frame, options: Options, own: Transaction, schema: pa.Schema, library: str
) -> Written | None:
    """Write the rows of some frames to one file."""
    filled = [some for some in rows if len(some)]
    if not filled:
        return None
    whole = filled[0] if len(filled) == 1 else frames_for(filled[0]).stacked(filled)
    return write_rows(whole, options, own, schema, library)


def _shuffle_method(incoming: Incoming) -> str | None:
    """Return the shuffle method to sort rows into regions, with one file each. Return
    None to leave them in partitions.

    Rows are not shuffled if they are few, or if they do not fit in the memory of the
    workers. Then the boxes of different files overlap.
    """
    spec, table = incoming.table.spec, incoming.table
    if len(table.summaries) == 1 or table.rows <= incoming.file_rows:
        return None
    limits, size = limits_for(spec.library), table.rows * table.row_bytes
    dtypes = [
        incoming.source.inner._meta[name].dtype
        for name in incoming.columns
        if name in spec.columns
    ]
    method = shuffle_method(
        spec.settings.shuffle, limits, size, len(table.summaries), dtypes
    )
    return method if can_move(method, limits, [table]) else None


def _by_region(
    incoming: Incoming, rows: MapPartition, options: Options, method: str
) -> Expr:
    """Return the rows, shuffled so that each partition has the rows in one region of
    space.
    """
    spec, table = incoming.table.spec, incoming.table
    away, every = reach(spec.norm, spec.threshold), table.every
    regions = make_regions(
        table.points.x,
        table.points.weight,
        every.lower,
        every.upper,
        away,
        incoming.file_rows,
        MAX_REGIONS,
    )
    meta = with_ids(incoming.source.inner._meta.iloc[:0], incoming.id, incoming.columns)
    for name in (SEQ, VERSION, CELL):
        meta[name] = np.zeros(0, np.int64)
    max_rows = sent_rows(method, limits_for(spec.library), table.row_bytes)
    pieces, shared = (
        cut_rows(source_rows(incoming), max_rows),
        Shared("simjoin_regions", regions),
    )
    how = (spec, method), meta, shared
    if len(pieces) > len(table.summaries):
        sent: Expr = SentPieces(
            FrozenSource(optimised(rows)), pieces, _piece_with_regions, *how
        )
    else:
        sent = MapPartition(rows, "simjoin_send", _with_regions, how[0], None, *how[1:])
    return optimised(Shuffle(sent, CELL, len(regions), True, method))


def _piece_with_regions(
    rows: Frame, piece: Piece, regions: Regions, spec: JoinSpec, method: str
) -> Frame:
    return _with_regions(rows.iloc[piece[1] : piece[2]], regions, spec, method)


def _with_regions(rows: Frame, regions: Regions, spec: JoinSpec, method: str) -> Frame:
    check_sending(method)
    x = points(
        rows, replace(spec, coordinates=spec.coordinates._replace(dropna=False))
    )[0]
    if not len(x):
        return rows.assign(**{CELL: module_of(x).zeros(0, np.int64)})
    return rows.assign(
        **{CELL: joiner_for(rows).regions(x, regions, **NO_HALO)[0].astype(np.int64)}
    )
