"""The indexed chunks of a plan as an expression."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import backend_for
from dask_simjoin.engine.ids import row_ids
from dask_simjoin.expressions.base import Named
from dask_simjoin.expressions.dask_private import Alias, Expr, Shuffle, Task, TaskRef
from dask_simjoin.expressions.source import MapPartition, Sealed, Shared, sealed_map, settled
from dask_simjoin.expressions.worker_memory import check_sending
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.entity import EntityChunks
from dask_simjoin.planning.chunking.regions import Chunking, Shuffled
from dask_simjoin.planning.plan import as_they_come
from dask_simjoin.tasks.chunks import (
    CELL,
    ID,
    LIMIT,
    POSITION,
    cell_chunk,
    cell_columns,
    gather_chunk,
    kept_columns,
    make_chunk,
    read_points,
    send,
)

Sources = tuple[tuple[int, str], ...]


class Chunks(Named):
    """The indexed chunks; not Blockwise, so that Dask does not fuse them into the block pairs.

    `pieces` and `layout`: how chunks are gathered from what the sealed expression gives; None: those
    are the chunks.
    """

    _label = "simjoin_index"
    _parameters = ["sealed", "pieces", "layout"]
    _defaults = {"pieces": None, "layout": None}

    def _divisions(self) -> Any:
        pieces = self.operand("pieces")
        return (None,) * (1 + (self.operand("sealed").inner.npartitions if pieces is None else len(pieces)))

    def _layer(self) -> dict[Any, Any]:
        expr = self.operand("sealed").inner
        layer = dict(expr.__dask_graph__())
        keys = expr.__dask_keys__()
        pieces = self.operand("pieces")
        if pieces is None:
            for i, key in enumerate(keys):
                layer[(self._name, i)] = Alias((self._name, i), key)
            return layer
        for i, chunk in enumerate(pieces):
            rows = [(start, stop) for _, start, stop in chunk]
            parts = (TaskRef(keys[n]) for n, _, _ in chunk)
            layer[(self._name, i)] = Task((self._name, i), gather_chunk, self.operand("layout"), rows, *parts)
        return layer


class BothChunks(Named):
    """The indexed chunks of two tables, numbered through."""

    _label = "simjoin_indexes"
    _parameters = ["left", "right"]

    def _divisions(self) -> Any:
        return (None,) * (1 + self.left.npartitions + self.right.npartitions)

    def _layer(self) -> dict[Any, Any]:
        keys = [(side._name, c) for side in (self.left, self.right) for c in range(side.npartitions)]
        return {(self._name, n): Alias((self._name, n), key) for n, key in enumerate(keys)}


def indexed_chunks(source: Sealed, spec: JoinSpec, sources: Sources, chunks: Chunking, layout: Any,
                   named: bool) -> Chunks:  # fmt: skip
    """The chunks of a table.

    `sources`: of each partition its rows, and a digest of its box; `named`: whether rows' ids are needed.
    """
    each = list(enumerate(sources))
    if not isinstance(chunks, EntityChunks):
        return Chunks(Sealed(_shuffled(source, spec, layout, chunks, each, named)))
    if as_they_come(chunks, sources):
        return Chunks(Sealed(sealed_map("simjoin_chunk", make_chunk, source, spec, layout, each=each)))
    read = sealed_map("simjoin_points", read_points, source, spec, each=each)
    return Chunks(Sealed(read), chunks.pieces, layout)


def _shuffled(source: Sealed, spec: JoinSpec, layout: Any, chunks: Shuffled, each: list[Any],
              named: bool) -> Expr:  # fmt: skip
    example = source.inner._meta.iloc[:0]
    meta = _sent(example, spec, named)
    regions = Shared("simjoin_regions", chunks)
    sent = MapPartition(source.inner, "simjoin_send", _send, (spec, named), each, meta, regions)
    moved = Shuffle(sent, CELL, len(chunks), True, chunks.method)
    return settled(MapPartition(moved, "simjoin_chunk", cell_chunk, (example, spec, layout, named)))


def _send(frame: Any, known: tuple[int, tuple[int, str]], chunks: Shuffled, spec: JoinSpec,
          named: bool) -> Any:  # fmt: skip
    """See `send`; refuses to where no worker is to shuffle what is sent."""
    check_sending(chunks.method)
    return send(frame, known, chunks, spec, named)


def _sent(example: Any, spec: JoinSpec, named: bool) -> Any:
    """An empty frame like those that `send` makes."""
    backend = backend_for(example)
    columns: dict[str, Any] = {}
    for name, kind in cell_columns(example, spec).items():
        columns[name] = np.empty(0, kind)
    if named:
        columns[ID] = row_ids(example, spec.id)
    for name, column in zip(kept_columns(spec), spec.keep, strict=True):
        columns[name] = backend.values(example, column, np.zeros(0, np.int64))
    if spec.radius is not None:
        columns[LIMIT] = np.empty(0)
    columns |= {POSITION: np.empty(0, np.int64), CELL: np.empty(0, np.int64)}
    return backend.result(columns, 0)


def chunk_refs(chunks: Expr, i: int, j: int) -> tuple[TaskRef, TaskRef]:
    """Two chunks as a task's arguments."""
    return TaskRef((chunks._name, i)), TaskRef((chunks._name, j))
