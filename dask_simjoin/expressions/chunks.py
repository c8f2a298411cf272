"""Make the indexed chunks of a plan, as an expression."""

from __future__ import annotations

from typing import Any

from dask_simjoin.engine.protocols import Layout, SearchLayout
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.by_worker import chunks_of_held, held_by_workers
from dask_simjoin.expressions.dask_private import Alias, Expr, Task, TaskRef
from dask_simjoin.expressions.records import NO_RUN, RunName
from dask_simjoin.expressions.sending import MAX_PARCELS, packed_rows, shuffled_chunks
from dask_simjoin.expressions.shared_work import on_worker_of, share_work
from dask_simjoin.expressions.source import (
    FrozenSource,
    Listed,
    held_keys,
    is_held,
    map_frozen,
)
from dask_simjoin.expressions.worker_memory import on_worker
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.base import BY_WORKER, Chunking, Pieces, Sources, is_shuffled
from dask_simjoin.tasks.chunks import gather_chunk, make_chunk, read_chunk, read_points
from dask_simjoin.tasks.moving import unpack

MANY_COLUMNS = 8
"""Of a cuDF partition that goes to other workers: each is a message of its own, about a millisecond, and so
more are put together before."""


def chunk_key(chunks: Expr, c: int, part: tuple[int, int] = (0, 1)) -> tuple[Any, ...]:
    """Tell the key of a chunk: of the copy of it that this part of the work, of so many, is done with."""
    number, parts = part
    while isinstance(chunks, BothChunks):
        side = int(c >= chunks.left.npartitions)
        chunks, c = (chunks.left, chunks.right)[side], c - side * chunks.left.npartitions
    copies = chunks.operand("copies") if isinstance(chunks, Chunks | ReadChunks) else 1
    return _copies(chunks._name, c, copies)[number * copies // parts]


def _copies(name: str, c: int, copies: int) -> list[tuple[Any, ...]]:
    """List the keys of a chunk: of as many tasks, each of which makes it for a worker of its own."""
    return [(name, c), *((name, on_worker_of(copy, c)) for copy in range(1, copies))]


class Chunks(LabelledExpr):
    """Index chunks; not Blockwise, so that Dask does not fuse them into the block pairs.

    `pieces` and `layout`: how chunks are gathered from what the frozen expression gives; None: those
    are the chunks.  `threads`: that index a chunk together.  `copies`: workers for which each is made.
    """

    _label = "simjoin_index"
    _parameters = ["frozen", "pieces", "layout", "threads", "copies", "run"]
    _defaults = {"pieces": None, "layout": None, "threads": 1, "copies": 1, "run": NO_RUN}

    def _divisions(self) -> Any:
        pieces = self.operand("pieces")
        return (None,) * (1 + (self.operand("frozen").inner.npartitions if pieces is None else len(pieces)))

    def _layer(self) -> dict[Any, Any]:
        expr = self.operand("frozen").inner
        layer = dict(expr.__dask_graph__())
        keys = expr.__dask_keys__()
        pieces = self.operand("pieces")
        if pieces is None:
            for i, key in enumerate(keys):
                layer[(self._name, i)] = Alias((self._name, i), key)
            return layer
        for i, chunk in enumerate(pieces):
            rows = [(start, stop) for _, start, stop in chunk]
            parts = [TaskRef(keys[n]) for n, _, _ in chunk]
            layout, threads = self.operand("layout"), self.operand("threads")
            for key in _copies(self._name, i, self.operand("copies")):
                layer[key] = Task(key, gather_chunk, layout, rows, *parts, threads=threads)
        return layer


class ReadChunks(LabelledExpr):
    """Index chunks of whole partitions that are held: what is read of them is no task's, and stays there.

    `each`: what the plan knows of each partition.  `named`: whether a result names rows.  `copies`: workers
    for which each chunk is made.
    """

    _label = "simjoin_index"
    _parameters = ["frozen", "each", "pieces", "spec", "layout", "threads", "named", "copies", "run"]
    _defaults = {"named": True, "copies": 1, "run": NO_RUN}

    def _divisions(self) -> Any:
        return (None,) * (1 + len(self.operand("pieces")))

    def _layer(self) -> dict[Any, Any]:
        frame, each = self.operand("frozen").inner, self.operand("each")
        spec, layout, *how = (self.operand(name) for name in ("spec", "layout", "threads", "named"))
        keys, layer = held_keys(frame), dict(frame.operand("layer"))
        for c, chunk in enumerate(self.operand("pieces")):
            rows = [(start, stop) for _, start, stop in chunk]
            known, parts = [each[n] for n, _, _ in chunk], [TaskRef(keys[n]) for n, _, _ in chunk]
            for key in _copies(self._name, c, self.operand("copies")):
                layer[key] = Task(key, on_worker, read_chunk, layout, rows, known, spec, *how, *parts)
        return layer


class Unpacked(LabelledExpr):
    """Index chunks whose rows partitions have packed, in memory that all tasks share: nothing is shuffled."""

    _label = "simjoin_index"
    _parameters = ["frozen", "number", "example", "spec", "layout", "run"]
    _defaults = {"run": NO_RUN}

    def _divisions(self) -> Any:
        return (None,) * (1 + self.operand("number"))

    def _layer(self) -> dict[Any, Any]:
        expr = self.operand("frozen").inner
        layer = dict(expr.__dask_graph__())
        parcels = [TaskRef(key) for key in expr.__dask_keys__()]
        own = self.operand("example"), self.operand("spec"), self.operand("layout")
        for c in range(self.operand("number")):
            layer[(self._name, c)] = Task((self._name, c), unpack, c, *own, *parcels)
        return layer


class BothChunks(LabelledExpr):
    """Number the indexed chunks of two tables through."""

    _label = "simjoin_indexes"
    _parameters = ["left", "right"]

    def _divisions(self) -> Any:
        return (None,) * (1 + self.left.npartitions + self.right.npartitions)

    def _layer(self) -> dict[Any, Any]:
        keys = [(side._name, c) for side in (self.left, self.right) for c in range(side.npartitions)]
        return {(self._name, n): Alias((self._name, n), key) for n, key in enumerate(keys)}


def indexed_chunks(source: FrozenSource, spec: JoinSpec, sources: Sources, chunks: Chunking,
                   layout: Layout | SearchLayout, with_ids: bool, threads: int,
                   copies: int, sent: int, run: RunName) -> Expr:  # fmt: skip
    """Make the chunks of a table.

    `sources`: of each partition its rows, and a digest of its box; `with_ids`: whether rows' ids are needed;
    `threads`: that index a chunk together; `copies`: workers for which each is made;
    `sent`: rows of a partition that are shuffled at a time; `run`: what tasks are recorded for.
    """
    each = Listed(list(enumerate(sources)))
    if copies > 1:
        share_work()
    if is_shuffled(chunks):
        if chunks.method == "tasks" and not spec.settings.cluster and len(each) * len(chunks) <= MAX_PARCELS:
            packed = packed_rows(source, spec, chunks, each, with_ids)
            return Unpacked(packed, len(chunks), source.inner._meta.iloc[:0], spec, layout, run)
        held = held_by_workers(source) if chunks.method == BY_WORKER else None
        if held is not None:
            return chunks_of_held(source, held, spec, chunks, each, layout, with_ids, run)
        moved = shuffled_chunks(source, spec, layout, chunks, each, with_ids, sent)
        return Chunks(FrozenSource(moved), run=run)
    if chunks.are_partitions(sources):
        made = map_frozen("simjoin_chunk", make_chunk, source, spec, layout, each=each)
        return Chunks(FrozenSource(made), run=run)
    frame = source.inner.simplify()  # of all its columns, it is itself
    apart = copies > 1 and spec.library == "cudf" and len(spec.on) > MANY_COLUMNS
    if is_held(frame) and _once(chunks.pieces) and not apart:
        frozen = FrozenSource(frame)
        return ReadChunks(frozen, each, Listed(chunks.pieces), spec, layout, threads, with_ids, copies, run)
    read = map_frozen("simjoin_points", read_points, source, spec, each=each)
    return Chunks(FrozenSource(read), Listed(chunks.pieces), layout, threads, copies, run)


def _once(pieces: Pieces) -> bool:
    """Tell whether no partition is cut."""
    numbers = [n for chunk in pieces for n, _, _ in chunk]
    return len(set(numbers)) == len(numbers)
