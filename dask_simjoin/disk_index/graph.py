"""Lazy frames of an index: its pairs, its rows, and joins with other frames."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dask.dataframe as dd
import numpy as np

from dask_simjoin.calls.examples import pairs_example
from dask_simjoin.disk_index.blocks import Blocks, Sizes, boxes_of
from dask_simjoin.disk_index.cell_filter import near_tiles, touched
from dask_simjoin.disk_index.compare import (
    Comparison,
    pairs_across,
    pairs_of_two,
    pairs_with_part,
    pairs_with_segments,
    pairs_within,
)
from dask_simjoin.disk_index.files import cut_parts
from dask_simjoin.disk_index.row_batch import changed, load, load_near, rows_of
from dask_simjoin.disk_index.rows import read_part
from dask_simjoin.disk_index.segments import CachedPart, load_changed
from dask_simjoin.disk_index.types import ID, SEQ, Part, Snapshot
from dask_simjoin.engine.base import frames_for
from dask_simjoin.graph.base import LabelledExpr, RowsExpr, itself
from dask_simjoin.graph.dask_private import Task, TaskRef, new_collection
from dask_simjoin.graph.workers import on_worker
from dask_simjoin.metrics.norms import Frame
from dask_simjoin.request.options import texts_as_given
from dask_simjoin.request.spec import JoinSpec
from dask_simjoin.sizes import PARTITION


def spec_with(frame: Frame, rows: Snapshot, eps: float, distance: bool) -> JoinSpec:
    """Return the options for joining a frame like `frame` (left) with an index (right)."""
    options = rows.options
    right = _returning(options.spec(rows.library, eps), distance)
    keep = tuple(name for name in options.keep if name in frame.columns)
    called = dict(zip(options.keep, options.names, strict=False))
    other = replace(right, names=options.names[len(options.keep) :])
    names = tuple(called[name] for name in keep)
    left = right.coordinates._replace(dropna=options.dropna)
    return replace(
        right, id=options.id, keep=keep, names=names, other=other, coordinates=left
    )


def _returning(spec: JoinSpec, distance: bool) -> JoinSpec:
    return replace(spec, result=spec.result._replace(distance=distance))


def pairs_of_partition(
    frame: Frame, rows: Snapshot, spec: JoinSpec, like: Frame, size: Sizes
) -> Frame:
    """Return the pairs between a partition's rows and rows of an index. The rows of the
    index are read part by part.
    """
    columns, boxes = list(like.columns), boxes_of(rows)
    own = rows_of(frame, spec, frames_for(frame).xp.zeros(len(frame), np.int64))
    if not len(own["seq"]):
        return like
    cut = boxes.dims.tolist()
    own = changed(own, cut, spec, ordered=True)
    near = near_tiles(own["tiles"], boxes, spec.norm, spec.threshold)
    chosen = np.flatnonzero(
        touched(own["tiles"], near, boxes, spec.norm, spec.threshold)
    )
    how, max_rows = Comparison(spec, tuple(cut), like), max(1, size.rows // 2)
    parts = (
        pairs_of_two(how, own, load(rows.part(chosen[some]), spec.right), columns)
        for some in cut_parts(rows.groups.rows[chosen], max_rows)
    )
    found = [part for part in parts if len(part)] or [like]
    return found[0] if len(found) == 1 else frames_for(like).stacked(found)


def pairs_of_parts(
    how: Comparison, parts: tuple[Part, ...], columns: list[str]
) -> Frame:
    """Read one part of the rows and compare it with itself, or read two parts and
    compare them with each other.
    """
    read = [load_changed(how.spec, how.cut, False, part, ()) for part in parts]
    if len(read) == 1:
        return pairs_within(how, read[0], None, columns)
    return pairs_across(how, read[0], read[1], None, False, columns)


class LazyStoredRows(LabelledExpr):
    """Rows that several tasks use, one part per partition: changed rows, and old rows
    near several parts of them.
    """

    _label = "simjoin_moved"
    _parameters = ["blocks"]

    @property
    def _blocks(self) -> Blocks:
        blocks: Blocks = self.operand("blocks")
        return blocks

    @functools.cached_property
    def _shared(self) -> dict[int, int]:
        """Index of a part in `Blocks.old` -> number of the partition with its rows.

        A part has a partition only if several tasks use it, or if it has been read
        already.
        """
        uses, old = (
            collections.Counter(j for _, j in self._blocks.against_old),
            self._blocks.old,
        )
        shared = [
            j
            for j, part in enumerate(old)
            if isinstance(part, dict) or (uses[j] > 1 and isinstance(part, Part))
        ]
        return {j: len(self._blocks.changed) + 1 + n for n, j in enumerate(shared)}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (len(self._blocks.changed) + 2 + len(self._shared))

    def changed(self, i: int) -> TaskRef:
        return TaskRef((self._name, i))

    def replaced(self) -> TaskRef | None:
        """Return a reference for tasks to the replaced rows; None if no row was
        replaced.
        """
        return (
            None
            if self._blocks.replaced is None
            else TaskRef((self._name, len(self._blocks.changed)))
        )

    def old(self, j: int) -> TaskRef | None:
        """Return a reference for tasks to a part of the old rows; None if the part has
        no partition.
        """
        return TaskRef((self._name, self._shared[j])) if j in self._shared else None

    def _layer(self) -> dict[Any, Any]:
        blocks, name = self._blocks, self._name
        layer: dict[Any, Any] = {}
        for i, rows in enumerate(blocks.changed):
            key = (name, i)
            how = blocks.spec, blocks.cut, bool(blocks.against_old)
            if isinstance(rows, Part):
                layer[key] = Task(key, on_worker, load_changed, *how, rows, ())
            elif isinstance(rows, CachedPart):
                segments = (segment.ref for segment in rows.segments)
                layer[key] = Task(
                    key,
                    on_worker,
                    load_changed,
                    *how,
                    rows.rest,
                    rows.chosen,
                    *segments,
                )
            else:
                layer[key] = Task(key, itself, rows)
        key = (name, len(blocks.changed))
        layer[key] = Task(key, itself, blocks.replaced)
        for j, number in self._shared.items():
            key = (name, number)
            old = blocks.old[j]
            read = isinstance(old, dict)
            layer[key] = (
                Task(key, itself, old)
                if read
                else Task(key, on_worker, load_near, old, blocks.spec)
            )
        for part in (*blocks.changed, *blocks.old):
            if isinstance(part, CachedPart):
                layer |= {segment.key: segment.in_graph() for segment in part.segments}
        return layer


class IndexPairs(RowsExpr):
    """Pairs of rows of an index, one partition per block."""

    _label = "simjoin_changed"
    _parameters = ["rows", "blocks", "meta", "columns", "_partitions"]
    _defaults = {"columns": None, "_partitions": None}

    def _divisions(self) -> tuple[None, ...]:
        return (None,) * (max(len(self.operand("blocks")), 1) + 1)

    def _filtered_task(self, name: Any, index: int) -> Task:
        blocks: Blocks = self.operand("blocks")
        rows: LazyStoredRows = self.operand("rows")
        if not len(blocks):
            return Task(name, itself, self._meta)
        how = Comparison(blocks.spec, blocks.cut, self.operand("meta"))
        if index < len(blocks.read_by_task):
            return Task(
                name,
                on_worker,
                pairs_of_parts,
                how,
                blocks.read_by_task[index],
                self.columns,
            )
        index -= len(blocks.read_by_task)
        rest = rows.replaced(), self.columns
        if index < len(blocks.within):
            return Task(
                name, pairs_within, how, rows.changed(blocks.within[index]), *rest
            )
        index -= len(blocks.within)
        if index < len(blocks.across):
            i, j = blocks.across[index]
            others = rows.changed(j), rest[0], False, self.columns
            return Task(name, pairs_across, how, rows.changed(i), *others)
        i, j = blocks.against_old[index - len(blocks.across)]
        old, part = rows.old(j), blocks.old[j]
        if isinstance(part, CachedPart):
            segments = (segment.ref for segment in part.segments)
            return Task(
                name,
                pairs_with_segments,
                how,
                rows.changed(i),
                part.chosen,
                *rest,
                *segments,
            )
        if old is None:
            return Task(
                name, on_worker, pairs_with_part, how, rows.changed(i), part, *rest
            )
        return Task(
            name, pairs_across, how, rows.changed(i), old, rest[0], True, self.columns
        )


def example_of_rows(rows: Snapshot) -> Frame:
    return read_part(rows.part(np.zeros(0, np.int64)))


def spec_of(
    rows: Snapshot, eps: float | None, distance: bool, numbered: bool = False
) -> JoinSpec:
    """Return the options for joining the rows of an index. `numbered`: whether row
    numbers replace ids in the result.
    """
    spec = _returning(rows.options.spec(rows.library, eps), distance)
    return replace(spec, id=SEQ, keep=(), names=()) if numbered else spec


def example_of_pairs(rows: Snapshot, spec: JoinSpec) -> Frame:
    example = example_of_rows(rows)
    return pairs_example(example, example, spec)


def lazy_pairs(blocks: Blocks, rows: Snapshot) -> Frame:
    """Return a lazy frame with the pairs that some blocks find. `rows`: any snapshot of
    the index.
    """
    return new_collection(
        IndexPairs(LazyStoredRows(blocks), blocks, example_of_pairs(rows, blocks.spec))
    )


def parts_of(rows: Snapshot, max_rows: int = PARTITION) -> Iterator[Part]:
    """Yield parts of consecutive row groups, each with about `max_rows` rows. There is
    at least one part.
    """
    number = (np.cumsum(rows.groups.rows) - rows.groups.rows) // max_rows
    for n in np.unique(number).tolist() or [0]:
        yield rows.part(np.flatnonzero(number == n))


def stored_rows(rows: Snapshot) -> Frame:
    """Return a lazy frame of all rows of a snapshot, with their ids, coordinates and
    kept columns.
    """
    parts = list(parts_of(rows))
    meta = _rows(rows.part(np.zeros(0, np.int64)))
    with texts_as_given():
        return dd.from_map(
            _rows, parts, meta=meta, label="simjoin_rows", enforce_metadata=False
        )


def _rows(part: Part) -> Frame:
    """Read the rows of a part. If ids came from the index of a frame, they become the
    index again.
    """
    found = read_part(part, part.options.columns)
    if part.options.id is not None:
        return found
    named = found.set_index(ID)
    named.index = named.index.rename(None)
    return named
