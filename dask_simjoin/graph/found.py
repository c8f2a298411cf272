"""What clusterings find out of the rows of each chunk, as rows of the source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dask_simjoin.backends.base import backend_for
from dask_simjoin.blocks import tell
from dask_simjoin.chunking import EntityChunks
from dask_simjoin.chunks import Chunk
from dask_simjoin.graph.aligned import SUM_FAN_IN, Aligned, add_partitions
from dask_simjoin.graph.cell_counts import back_to_rows, told_by
from dask_simjoin.graph.chunked import Chunks
from dask_simjoin.graph.named import Named
from dask_simjoin.graph.private import Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.graph.unplanned import Unplanned
from dask_simjoin.plan import Plan


class FoundByChunk(Aligned, Unplanned):
    """Values of rows that are found chunk by chunk, before they are planned."""

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        """One array for each chunk: a value, or several, of each of its rows."""
        raise NotImplementedError

    def _values(self) -> Expr:
        plan, source, chunks = self.plan, self._source, self._chunks()
        found, meta, chosen = self._found(chunks, plan), self._meta, self.operand("chosen")
        if isinstance(plan.chunks, EntityChunks):
            whole = source.inner.divisions
            return FoundPartitions(self._label, found, chunks, plan.chunks.pieces, meta, whole, chosen)
        told = ToldRows(self._label, found, chunks, *told_by(plan.chunks, source, meta))
        return back_to_rows(told, source, plan.chunks, meta, chosen)


class FoundPartitions(PartitionsFiltered, Named):
    """What was found of the rows of entity chunks, as the partitions of the source."""

    _parameters = ["label", "found", "chunks", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_rows"

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        pieces, chosen = self.operand("pieces"), list(self._partitions)
        layer: dict[Any, Any] = {}
        values = {c: (self.found._name, c) for c in range(len(pieces))}
        add_partitions(layer, self._name, self.chunks, pieces, values, chosen, self._meta)
        return layer


class ToldRows(Named):
    """What was found of the rows of regions, as rows that are to be shuffled back to their partitions."""

    _parameters = ["label", "found", "chunks", "offsets", "meta"]

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_told"

    def _divisions(self) -> Any:
        return self.found.divisions

    def _layer(self) -> dict[Any, Any]:
        layer = {}
        for c in range(self.npartitions):
            key = (self._name, c)
            refs = TaskRef((self.chunks._name, c)), TaskRef((self.found._name, c))
            layer[key] = Task(key, _told, *refs, self.offsets.ref)
        return layer


def _told(chunk: Chunk, values: Any, offsets: np.ndarray) -> Any:
    return tell(chunk["position"], values, offsets, backend_for(chunk["example"]))


def blocks_of_chunks(plan: Plan) -> list[list[tuple[int, int, int]]]:
    """For each chunk its block pairs: their numbers, which side of them it is, and the other side's chunk."""
    own: list[list[tuple[int, int, int]]] = [[] for _ in range(len(plan.chunks))]
    for b, (i, j) in enumerate(plan.blocks.tolist()):
        own[i].append((b, 0, j))
        if i != j:
            own[j].append((b, 1, i))
    return own


class Steps:
    """Tasks of a clustering: their names begin with a label, and say which step they are.

    Attributes
    ----------
    layer : dict
        What was added so far.
    """

    def __init__(self, label: str, token: str) -> None:
        self._label, self._token = label, token
        self.layer: dict[Any, Any] = {}

    def add(self, step: str, place: Any, function: Callable[..., Any], *arguments: Any) -> TaskRef:
        """Add a task; `place` tells it from others of its step."""
        key = (f"{self._label}_{step}-{self._token}", place)
        self.layer[key] = Task(key, function, *arguments)
        return TaskRef(key)

    def merged(self, step: str, function: Callable[..., Any], parts: list[TaskRef],
               fan_in: int = SUM_FAN_IN) -> TaskRef:  # fmt: skip
        """Add tasks that merge some values in a tree."""
        depth = 0
        while len(parts) > fan_in:
            groups = [parts[s : s + fan_in] for s in range(0, len(parts), fan_in)]
            parts = [self.add(step, (depth, n), function, *group) for n, group in enumerate(groups)]
            depth += 1
        return self.add(step, (depth, 0), function, *parts)

    def names(self, plan: Plan, chunks: list[TaskRef]) -> list[Any]:
        """For each chunk its rows' positions in the frame, or its number if chunks follow each other."""
        if plan.chunks.kind == EntityChunks.kind:
            return list(range(len(chunks)))
        return [self.add("names", c, _positions, chunk) for c, chunk in enumerate(chunks)]


def _positions(chunk: Chunk) -> Any:
    return chunk["position"]
