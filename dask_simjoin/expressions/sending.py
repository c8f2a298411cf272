"""Send rows to the chunks of regions: as parcels in memory that tasks share, or by a shuffle of Dask."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Expr, Shuffle, Task, TaskRef
from dask_simjoin.expressions.source import FrozenSource, MapPartition, Shared, optimise_in_place
from dask_simjoin.expressions.worker_memory import check_sending, on_worker
from dask_simjoin.metrics.types import Frame, Values
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.base import BY_WORKER, Piece, Shuffled
from dask_simjoin.tasks.chunks import Fingerprint, as_planned
from dask_simjoin.tasks.moving import (
    CELL,
    ID,
    LIMIT,
    POSITION,
    cell_chunk,
    cell_columns,
    pack,
    send,
    send_piece,
    sent_names_of_kept,
)

MAX_PARCELS = 1 << 17
"""Partitions times chunks up to which each chunk takes its rows from all partitions' parcels itself."""


def packed_rows(source: FrozenSource, spec: JoinSpec, chunks: Shuffled, each: Sequence[Fingerprint],
                with_ids: bool) -> FrozenSource:  # fmt: skip
    """Pack the rows of each partition as a parcel."""
    regions = Shared("simjoin_regions", chunks)
    expr = MapPartition(source.inner, "simjoin_send", pack, (spec, with_ids), each, None, regions)
    return FrozenSource(optimise_in_place(expr))


def shuffled_chunks(source: FrozenSource, spec: JoinSpec, layout: Layout | SearchLayout, chunks: Shuffled,
                    each: Sequence[Fingerprint], with_ids: bool, most: int) -> Expr:  # fmt: skip
    """Shuffle rows to their chunks, and index those; `most`: rows of a partition that are sent at a time."""
    example = source.inner._meta.iloc[:0]
    meta = _sent(example, spec, with_ids)
    regions = Shared("simjoin_regions", chunks)
    pieces = cut_rows([rows for _, (rows, _) in each], most)
    if len(pieces) > len(each):
        read = optimise_in_place(MapPartition(source.inner, "simjoin_read", as_planned, (spec,), each))
        how = _send_piece, (spec, with_ids)
        sent: Expr = SentPieces(FrozenSource(read), pieces, *how, meta, regions)
    else:
        sent = MapPartition(source.inner, "simjoin_send", _send, (spec, with_ids), each, meta, regions)
    # rows that were held as the join was planned, and are not now
    method = "tasks" if chunks.method == BY_WORKER else chunks.method
    moved = Shuffle(sent, CELL, len(chunks), True, method)
    return optimise_in_place(
        MapPartition(moved, "simjoin_chunk", cell_chunk, (example, spec, layout, with_ids))
    )


def cut_rows(rows: list[int], most: int) -> tuple[Piece, ...]:
    """Cut partitions of so many rows into pieces of about equally many, and of at most so many."""
    pieces: list[Piece] = []
    for number, size in enumerate(rows):
        parts = max(1, -(-size // most))
        ends = [size * k // parts for k in range(parts + 1)]
        pieces += [(number, start, stop) for start, stop in itertools.pairwise(ends)]
    return tuple(pieces)


class SentPieces(LabelledExpr):
    """Send partitions in pieces; not Blockwise, so that a partition is read once for all of its own.

    The function is given a partition, a piece, what is shared, and the arguments.
    """

    _label = "simjoin_send"
    _parameters = ["frozen", "pieces", "function", "arguments", "meta", "shared"]

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("pieces")))

    def _layer(self) -> dict[Any, Any]:
        read, shared = self.operand("frozen").inner, self.operand("shared").ref
        keys, layer = read.__dask_keys__(), dict(read.__dask_graph__())
        function, arguments = self.operand("function"), self.operand("arguments")
        for n, piece in enumerate(self.operand("pieces")):
            key = (self._name, n)
            layer[key] = Task(key, on_worker, function, TaskRef(keys[piece[0]]), piece, shared, *arguments)
        return layer


def _send(frame: Frame, fingerprint: Fingerprint, chunks: Shuffled, spec: JoinSpec,
          with_ids: bool) -> Frame:  # fmt: skip
    """Do as `send` does; refuse to where no worker is to shuffle what is sent."""
    check_sending(chunks.method)
    return send(frame, fingerprint, chunks, spec, with_ids)


def _send_piece(frame: Frame, piece: Piece, chunks: Shuffled, spec: JoinSpec, with_ids: bool) -> Frame:
    """Do as `send_piece` does; refuse to where no worker is to shuffle what is sent."""
    check_sending(chunks.method)
    return send_piece(frame, piece, chunks, spec, with_ids)


def _sent(example: Frame, spec: JoinSpec, with_ids: bool) -> Frame:
    """Make an empty frame like those that `send` makes."""
    frames = frames_for(example)
    columns: dict[str, Values] = {}
    for name, kind in cell_columns(example, spec).items():
        columns[name] = np.empty(0, kind)
    if with_ids:
        columns[ID] = row_ids(example, spec.id)
    for name, column in zip(sent_names_of_kept(spec), spec.keep, strict=True):
        columns[name] = frames.values(example, column, np.zeros(0, np.int64))
    if spec.radius is not None:
        columns[LIMIT] = np.empty(0)
    columns |= {POSITION: np.empty(0, np.int64), CELL: np.empty(0, np.int64)}
    return frames.result(columns, 0)
