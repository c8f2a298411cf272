"""Write rows of frames as files of an index: of regions of space where they are many, else as they come."""

from __future__ import annotations

import functools
import itertools
import uuid
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
import pandas as pd
import pyarrow as pa

from dask_simjoin.engine.base import frames_for, joiner_for
from dask_simjoin.engine.compat import module_of, to_host
from dask_simjoin.engine.index.regions import Regions, make_regions
from dask_simjoin.expressions.dask_private import Expr, Shuffle, Task, TaskRef
from dask_simjoin.expressions.sending import SentPieces, cut_rows
from dask_simjoin.expressions.source import FrozenSource, MapPartition, Shared, gather
from dask_simjoin.expressions.source import optimise_in_place as optimised
from dask_simjoin.expressions.worker_memory import check_sending, on_worker
from dask_simjoin.incremental.loading import Asked, Incoming, host_ids, source_rows
from dask_simjoin.incremental.rows import Written, write_rows
from dask_simjoin.incremental.schema import with_ids
from dask_simjoin.incremental.transactions import Transaction
from dask_simjoin.incremental.types import SEQ, VERSION, Options
from dask_simjoin.metrics.norms import reach
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.base import Piece
from dask_simjoin.planning.chunking.regions import NO_HALO
from dask_simjoin.planning.moving import can_move, sent_rows
from dask_simjoin.planning.resources import resources, shuffle_method
from dask_simjoin.planning.statistics.partition import points
from dask_simjoin.planning.tables import MAX_REGIONS
from dask_simjoin.tasks.chunks import Fingerprint, check_source
from dask_simjoin.tasks.moving import CELL


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


def _prepared(frame: Frame, known: Fingerprint, numbering: Numbering, incoming: Asked) -> Frame:
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


def write_frame(incoming: Incoming, options: Options, own: Transaction, schema: pa.Schema,
                numbering: Numbering) -> list[Written]:  # fmt: skip
    """Write the rows of a frame as files; where they are several, each has rows near each other in space."""
    spec = incoming.table.spec
    asked = Asked(spec, incoming.id, incoming.columns)
    shared = Shared("simjoin_numbering", numbering)
    source, each = incoming.source.inner, incoming.each
    rows = MapPartition(source, "simjoin_rows", _prepared, (asked,), each, None, shared)
    write = functools.partial(write_some, options=options, own=own, schema=schema, library=spec.library)
    method = _sending(incoming)
    if method is not None:
        expr = _by_region(incoming, rows, options, method)
        groups = [[n] for n in range(expr.npartitions)]
    else:
        expr = optimised(rows)
        groups = _together(source_rows(incoming), incoming.file_rows)
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


def write_some(*rows: Frame, options: Options, own: Transaction, schema: pa.Schema,
               library: str) -> Written | None:  # fmt: skip
    """Write the rows of some frames as one file."""
    filled = [some for some in rows if len(some)]
    if not filled:
        return None
    whole = filled[0] if len(filled) == 1 else frames_for(filled[0]).stacked(filled)
    return write_rows(whole, options, own, schema, library)


def _sending(incoming: Incoming) -> str | None:
    """How rows are shuffled into files of regions; None: each partition is written where it is.

    So are few rows, and those that workers have no room to shuffle: their files lie across each other.
    """
    spec, table = incoming.table.spec, incoming.table
    if len(table.summaries) == 1 or table.rows <= incoming.file_rows:
        return None
    have, size = resources(spec.library), table.rows * table.row_bytes
    dtypes = [incoming.source.inner._meta[name].dtype for name in incoming.columns if name in spec.columns]
    method = shuffle_method(spec.settings.shuffle, have, size, len(table.summaries), dtypes)
    return method if can_move(method, have, [table]) else None


def _by_region(incoming: Incoming, rows: MapPartition, options: Options, method: str) -> Expr:
    """The rows, each in a partition of a region of space."""
    spec, table = incoming.table.spec, incoming.table
    away, every = reach(spec.norm, spec.threshold), table.every
    regions = make_regions(
        table.points.x, table.points.weight, every.lower, every.upper, away, incoming.file_rows, MAX_REGIONS
    )
    meta = with_ids(incoming.source.inner._meta.iloc[:0], incoming.id, incoming.columns)
    for name in (SEQ, VERSION, CELL):
        meta[name] = np.zeros(0, np.int64)
    most = sent_rows(method, resources(spec.library), table.row_bytes)
    pieces, shared = cut_rows(source_rows(incoming), most), Shared("simjoin_regions", regions)
    how = (spec, method), meta, shared
    if len(pieces) > len(table.summaries):
        sent: Expr = SentPieces(FrozenSource(optimised(rows)), pieces, _sent_piece, *how)
    else:
        sent = MapPartition(rows, "simjoin_send", _sent, how[0], None, *how[1:])
    return optimised(Shuffle(sent, CELL, len(regions), True, method))


def _sent_piece(rows: Frame, piece: Piece, regions: Regions, spec: JoinSpec, method: str) -> Frame:
    """Do as `_sent` does with some rows of a partition."""
    return _sent(rows.iloc[piece[1] : piece[2]], regions, spec, method)


def _sent(rows: Frame, regions: Regions, spec: JoinSpec, method: str) -> Frame:
    """Rows, and which region each of them is in."""
    check_sending(method)
    x = points(rows, replace(spec, dropna=False))[0]
    return rows.assign(**{CELL: _region(x, regions, rows)})


def _region(x: Array, regions: Regions, rows: Frame) -> Array:
    if not len(x):
        return module_of(x).zeros(0, np.int64)
    return joiner_for(rows).regions(x, regions, **NO_HALO)[0].astype(np.int64)
