"""Bring what is found of the rows of each chunk back to the rows of the source."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.expressions.aligned import Aligned, found_task, pieces_by_partition, row_names
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.chunks import Chunks
from dask_simjoin.expressions.counts_by_region import back_to_rows, updates_of_rows
from dask_simjoin.expressions.dask_private import BlockwiseIO, Expr, PartitionsFiltered, Task, TaskRef
from dask_simjoin.expressions.lazy_join import LazyJoin
from dask_simjoin.expressions.reduced import (
    FEW,
    Dependents,
    FoundTogether,
    join_held,
    read_by_reductions,
    together,
)
from dask_simjoin.expressions.work import chunk_ref
from dask_simjoin.metrics.types import Array, Frame
from dask_simjoin.planning.chunking.base import is_shuffled
from dask_simjoin.planning.plan import Plan
from dask_simjoin.tasks.chunks import Chunk
from dask_simjoin.tasks.counts import scatter


class FoundByChunk(Aligned, LazyJoin):
    """Stand for values of rows that are found chunk by chunk before they are planned."""

    def _found(self, chunks: Chunks, plan: Plan) -> Expr:
        """Make one array for each chunk: a value, or several, of each of its rows."""
        raise NotImplementedError

    def _values(self) -> Expr:
        plan, source, chunks = self.plan, self._source, self._chunks()
        found, meta, chosen = self._found(chunks, plan), self._meta, self.operand("chosen")
        own = plan.counted
        if is_shuffled(own):
            updates = RowUpdates(self._label, found, chunks, *updates_of_rows(own, source, meta))
            return back_to_rows(updates, source, own, meta, chosen)
        whole = source.inner.divisions
        return FoundPartitions(self._label, found, NamesOfRows(chunks), own.pieces, meta, whole, chosen)


class FoundPartitions(LabelledExpr, PartitionsFiltered, BlockwiseIO):
    """Make what was found of the rows of entity chunks the partitions of the source.

    Each is a task that Dask fuses with what is done with it next, where it does; many are made of one chunk.
    On the host those that are only reduced are made few: see `reduced`.
    """

    _parameters = ["label", "found", "names", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    @property
    def _label(self) -> str:  # type: ignore[override]
        return f"{self.operand('label')}_rows"

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    @functools.cached_property
    def _held(self) -> dict[int, list[tuple[int, int, int]]]:
        return pieces_by_partition(self.operand("pieces"), list(self._partitions))

    def _filtered_task(self, name: Any, index: int) -> Task:
        return Task(name, *found_task(self.names._name, self.found._name, self._held[index], self._meta))

    def _simplify_up(self, parent: Expr, dependents: Dependents) -> Expr | None:
        if frames_for(self._meta).xp is not np or not read_by_reductions(self, dependents):
            return None
        held = [self._held[n] for n in self._partitions]
        pieces = self.operand("pieces")
        rows = [sum(stop - start for c, k, _ in some for _, start, stop in (pieces[c][k],)) for some in held]
        groups = together(rows)
        if not FEW <= len(groups) <= len(held) // FEW:
            return None
        divisions = (*(self.divisions[first] for first, _ in groups), self.divisions[-1])
        few = FoundTogether(
            self.operand("label"), self.found, self.names, join_held(held, groups), self._meta, divisions
        )
        return type(parent)(*(few if operand is self else operand for operand in parent.operands))


class NamesOfRows(LabelledExpr):
    """Take what tells the rows of chunks' pieces: where a chunk's partitions are made, no index travels."""

    _label = "simjoin_row_names"
    _parameters = ["chunks"]

    def _divisions(self) -> Any:
        return self.chunks.divisions

    def _layer(self) -> dict[Any, Any]:
        keys = [(self._name, c) for c in range(self.npartitions)]
        return {key: Task(key, row_names, chunk_ref(self.chunks, key[1])) for key in keys}


class RowUpdates(LabelledExpr):
    """Make updates, to be shuffled to their partitions, of what was found of the rows of regions."""

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
            layer[key] = Task(key, _scatter, *refs, self.offsets.ref)
        return layer


def _scatter(chunk: Chunk, values: Array, offsets: np.ndarray) -> Frame:
    return scatter(chunk["position"], values, offsets, frames_for(chunk["example"]))
