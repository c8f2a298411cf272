"""Bring numbers of neighbours that were counted by region back to the rows of the source."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_simjoin.engine.base import frames_for
from dask_simjoin.engine.compat import values_of
from dask_simjoin.expressions.base import LabelledExpr
from dask_simjoin.expressions.dask_private import Expr, PartitionsFiltered, Shuffle, Task, TaskRef
from dask_simjoin.expressions.source import FrozenSource, MapPartition, Shared, optimise_in_place
from dask_simjoin.expressions.work import meeting_of
from dask_simjoin.metrics.types import Frame, Ids, Series
from dask_simjoin.options.spec import JoinSpec
from dask_simjoin.planning.chunking.base import Shuffled
from dask_simjoin.planning.plan import Plan
from dask_simjoin.tasks.chunks import check_source
from dask_simjoin.tasks.counts import count_cells, scatter, update_columns
from dask_simjoin.tasks.moving import CELL, POSITION


def count_by_cell(source: FrozenSource, spec: JoinSpec, chunks: Expr, plan: Plan, own: Shuffled, meta: Series,
                  partitions: list[int] | None) -> Expr:  # fmt: skip
    """Align counts with the source: those of regions, shuffled back, added up by row."""
    updates = CountUpdates(chunks, plan, spec, *updates_of_rows(own, source, meta))
    return back_to_rows(updates, source, own, meta, partitions)


def updates_of_rows(chunks: Shuffled, source: FrozenSource, meta: Frame | Series) -> tuple[Shared, Frame]:
    """Make what tasks need to update rows, and an empty frame like those of their updates.

    `meta`: an example of the result, with one value of each row or several.
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
    """Make one partition for each piece of the work: positions of rows and their numbers of neighbours."""

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
            meeting = meeting_of(self.chunks, i, j, spec, plan.layout, part)
            layer[key] = Task(key, count_cells, meeting, self.offsets.ref)
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
    """Add up the values of one partition; `rows`: its number, its first row in the frame, its rows."""
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
    if not present.all():  # dropna= left some out
        labels, values = labels[present], values[present]
    return frames.rows(values if meta.ndim > 1 else values[:, 0], labels, meta)
