"""Expressions of lazy neighbor counts and pair counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import values_of
from dask_simjoin.graph.aligned import Aligned, add_counts, add_partitions, pieces_by_partition
from dask_simjoin.graph.base import LabelledExpr
from dask_simjoin.graph.dask_private import Expr, List, PartitionsFiltered, Shuffle, Task, TaskRef
from dask_simjoin.graph.lazy_join import LazyJoin, block_pair_of
from dask_simjoin.graph.outputs import pairs_by_eps
from dask_simjoin.graph.source import FrozenSource, MapPartition, Shared, optimise_in_place
from dask_simjoin.metrics.norms import Frame, Ids, Series
from dask_simjoin.planning.entity_chunks import Shuffled, is_shuffled
from dask_simjoin.planning.outputs import ROW_COUNTS
from dask_simjoin.planning.plan import Plan
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.tasks.chunks import check_source
from dask_simjoin.tasks.counts import count_cells, scatter, update_columns
from dask_simjoin.tasks.shuffle import CELL, POSITION


def count_by_cell(source: FrozenSource, spec: JoinSpec, chunks: Expr, plan: Plan, own: Shuffled, meta: Series,
                  partitions: list[int] | None) -> Expr:  # fmt: skip
    """Align counts with the source: shuffle the counts of regions back, and add them up by row."""
    updates = CountUpdates(chunks, plan, spec, *updates_of_rows(own, source, meta))
    return back_to_rows(updates, source, own, meta, partitions)


def updates_of_rows(chunks: Shuffled, source: FrozenSource, meta: Frame | Series) -> tuple[Shared, Frame]:
    """Return the offsets that tasks need to update rows, and an empty frame of updates.

    `meta`: an example of the result, with one or several values per row.
    """
    frames = frames_for(meta)
    none = frames.xp.zeros(0 if meta.ndim == 1 else (0, meta.shape[1]), np.int64)
    return Shared("simjoin_offsets", chunks.offsets), scatter(none.reshape(-1), none, chunks.offsets, frames)


def back_to_rows(updates: Expr, source: FrozenSource, chunks: Shuffled, meta: Frame | Series,
                 partitions: list[int] | None) -> Expr:  # fmt: skip
    """Shuffle updates of rows back to their partitions, and add them up."""
    back = Shuffle(updates, CELL, source.inner.npartitions, True, chunks.method)
    column = source.inner.columns[0]
    labels = optimise_in_place(MapPartition(source.inner[[column]], "simjoin_labels", _labels, ()))
    return RowCounts(back, FrozenSource(labels), chunks.offsets, meta, source.inner.divisions, partitions)


def _labels(frame: Frame) -> Ids:
    return frame.index


class CountUpdates(LabelledExpr):
    """Make one partition for each piece of the work: row positions and neighbor counts."""

    _label = "simjoin_count_block"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "offsets", "meta"]

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(int(self.operand("plan").parts.sum()), 1) + 1)

    def _layer(self) -> dict[Any, Any]:
        plan: Plan = self.operand("plan")
        spec, layer = self.operand("spec"), {}
        for n, (_, i, j, part) in enumerate(plan.pieces()):
            key = (self._name, n)
            block_pair = block_pair_of(self.chunks, i, j, spec, plan.layout, part)
            layer[key] = Task(key, count_cells, block_pair, self.offsets.ref)
        return layer


class RowCounts(PartitionsFiltered, LabelledExpr):
    """Add up the updates of each row, in the order and with the labels of the source."""

    _label = "simjoin_counts"
    _parameters = ["updates", "labels", "offsets", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        offsets = self.operand("offsets").tolist()
        labels = self.operand("labels").inner
        layer = dict(labels.__dask_graph__())
        keys = labels.__dask_keys__()
        for place, n in enumerate(self._partitions):
            key = (self._name, place)
            rows = (n, offsets[n], offsets[n + 1] - offsets[n])
            updates = TaskRef((self.updates._name, n))
            layer[key] = Task(key, add_up, TaskRef(keys[n]), updates, rows, self._meta)
        return layer


def add_up(labels: Ids, updates: Frame, rows: tuple[int, int, int],
           meta: Frame | Series) -> Frame | Series:  # fmt: skip
    """Add up the values of one partition.

    `rows`: the partition's number, its first row's number in the frame, and its count of rows.
    """
    number, first, size = rows
    check_source(number, len(labels), size)
    frames = frames_for(meta)
    xp = frames.xp
    place = values_of(updates[POSITION]) - first
    values = xp.zeros((size, 1 if meta.ndim == 1 else meta.shape[1]), xp.int64)
    for k, name in enumerate(update_columns(values.shape[1])):
        xp.add.at(values[:, k], place, values_of(updates[name]))
    present = xp.zeros(size, bool)
    present[place] = True
    if not present.all():  # dropna= left out some rows
        labels, values = labels[present], values[present]
    return frames.rows(values if meta.ndim > 1 else values[:, 0], labels, meta)


class NeighborCounts(Aligned, LazyJoin):
    """Stand for neighbor counts before they are planned."""

    _label = "simjoin_neighbor_counts"
    _parameters = ["frame", "source", "spec", "meta", "chosen"]
    _output = ROW_COUNTS

    def _values(self) -> Expr:
        source, plan = self._source, self.plan
        chunks, spec, chosen = self._chunks(), self.operand("spec"), self.operand("chosen")
        own = plan.counted
        if is_shuffled(own):
            return count_by_cell(source, spec, chunks, plan, own, self._meta, chosen)
        return CountBlocks(chunks, plan, spec, own.pieces, self._meta, source.inner.divisions, chosen)


class MatchCounts(NeighborCounts):
    """Stand for match counts with another table before they are planned."""

    _label = "simjoin_match_counts"
    _parameters = ["frame", "source", "other", "spec", "meta", "chosen"]


class CountBlocks(PartitionsFiltered, LabelledExpr):
    """Count the block pairs of entity chunks, and add up the counts for each chunk in a tree."""

    _label = "simjoin_counts"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "pieces", "meta", "source_divisions", "_partitions"]
    _defaults = {"_partitions": None}

    def _divisions(self) -> Any:
        return self.operand("source_divisions")

    def _layer(self) -> dict[Any, Any]:
        pieces, chosen = self.operand("pieces"), list(self._partitions)
        wanted = {c for found in pieces_by_partition(pieces, chosen).values() for c, _, _ in found}
        layer: dict[Any, Any] = {}
        plan, spec = self.operand("plan"), self.operand("spec")
        totals = add_counts(layer, self.deterministic_token, self.chunks, plan, spec, wanted)
        add_partitions(layer, self._name, self.chunks, pieces, totals, chosen, self._meta)
        return layer


class CountPairs(LazyJoin):
    """Stand for the number of pairs before it is planned."""

    _label = "simjoin_count_pairs"
    _parameters = ["source", "spec", "meta", "example"]
    _defaults = {"example": None}

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _lower(self) -> Expr:
        total = CountTotal(self._chunks(), self.plan, self.operand("spec"), 0, self._tasks)
        if self.operand("example") is None:
            return total
        return CountsByEps(total, self.operand("spec"), self._meta, self.operand("example"))


class CountsByEps(LabelledExpr):
    """Make a Series of pair counts by distance."""

    _label = "simjoin_count_by_eps"
    _parameters = ["total", "spec", "meta", "example"]

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _layer(self) -> dict[Any, Any]:
        key, total = (self._name, 0), TaskRef((self.total._name, 0))
        return {key: Task(key, pairs_by_eps, total, self.operand("spec"), self.operand("example"))}


class CountTotal(LabelledExpr):
    """Add up the pair counts of all block pairs."""

    _label = "simjoin_count"
    _makes_result = True
    _parameters = ["chunks", "plan", "spec", "meta", "tasks"]

    def _divisions(self) -> tuple[None, None]:
        return (None, None)

    def _layer(self) -> dict[Any, Any]:
        plan, spec, tasks = self.operand("plan"), self.operand("spec"), self.operand("tasks")
        name = f"simjoin_count_block-{self.deterministic_token}"
        layer: dict[Any, Any] = {}
        for b, i, j, part in plan.pieces():
            block_pair = tasks.block_pair(self.chunks, i, j, spec, plan.layout, part)
            layer[(name, b, part[0])] = Task((name, b, part[0]), tasks.count_pairs, block_pair)
        key = (self._name, 0)
        layer[key] = Task(key, sum, List(*(TaskRef(piece) for piece in layer)))
        return layer
